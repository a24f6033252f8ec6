"""Line tables of exported code: the same machine code, and lines that other people's tools read."""

import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from tilewright.codegen import compile
from tilewright.codegen.runtime.export import ExportError
from tilewright.driver import build, parse_spec
from tilewright.tir.parser import parse
from tilewright.tir.printer import script_lines
from tilewright.tir.walk import statements

AVX512 = "llvm -mcpu=cascadelake -num-cores=2"


def text_section(data: bytes) -> bytes:
    """The section .text of an ELF object of 64 bits."""
    start, entry, count, names = (*struct.unpack_from("<Q", data, 0x28), *struct.unpack_from("<HHH", data, 0x3A))
    headers = [struct.unpack_from("<IIQQQQ", data, start + n * entry) for n in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, size in headers:
        if data[strings + name :].split(b"\0", 1)[0] == b".text":
            return data[offset : offset + size]
    raise AssertionError("no .text")


PROGRAMS = [
    ("matmul:M=17,N=16,K=13", AVX512),
    ("matmul:M=256,N=256,K=256", AVX512),
    ("matmul:M=32,N=32,K=64,dtype=int8", "llvm -mcpu=sapphirerapids -num-cores=1"),
    ("softmax:M=7,N=130", AVX512),
    ("layer_norm:M=16,N=17", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"),
    ("conv2d:H=7,W=7,CI=16,CO=16", "llvm -mcpu=haswell -num-cores=1"),
    ("transpose:M=64,N=48", AVX512),
    ("gelu:M=13,N=1024", AVX512),
    ("max_pool2d:H=8,W=8,C=3", "llvm -mcpu=x86-64 -num-cores=1"),
]


@pytest.mark.parametrize("spec, target", PROGRAMS)
def test_the_machine_code_is_the_same(spec, target, tmp_path):
    module = build(parse_spec(spec), target)
    plain, *_ = module.export(tmp_path / "plain.o")
    located, *others = module.export(tmp_path / "located.o", debug_info=True)
    assert [path.name for path in others] == ["located.h", "located.hpp", "located.tir"]
    assert text_section(located.read_bytes()) == text_section(plain.read_bytes())
    assert b".debug_line" in located.read_bytes() and b".debug_line" not in plain.read_bytes()


PAIR = """
@T.prim_func
def pair(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        C[i] = A[i] * T.float32(3)
    for j in T.parallel(16):
        B[j] = T.sqrt(C[j])
"""


@pytest.fixture
def pair(tmp_path):
    """An object with line tables, and the lines of its program."""
    module = compile(parse(PAIR), AVX512)
    path, *_, program = module.export(tmp_path / "pair.o", debug_info=True)
    return path, program.read_text().splitlines()


def tool(name: str, *words: object) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    return subprocess.run([name, *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_objdump_shows_the_statement_of_an_instruction(pair):
    path, lines = pair
    said = re.split(r"pair\.tir:(\d+)", tool("objdump", "-dlS", path))[1:]
    of = {name: {lines[int(n) - 1].strip() for n, code in zip(said[::2], said[1::2], strict=True) if name in code}
          for name in ("mulss", "sqrtss")}  # fmt: skip
    assert of == {"mulss": {"C[i] = A[i] * T.float32(3.0)"}, "sqrtss": {"B[j] = T.sqrt(C[j])"}}
    assert "C[i] = A[i]" in tool("objdump", "-dS", path)  # it finds the program


def test_gdb_knows_functions_and_lines(pair):
    path, lines = pair
    assert "def pair(" in tool("gdb", "-batch", "-nx", "-ex", "list pair", path)
    number = next(n for n, line in enumerate(lines, 1) if "T.parallel" in line)
    assert f"Line {number} of" in tool("gdb", "-batch", "-nx", "-ex", "info line pair_region1_body", path)


def test_dwarf_is_valid(pair):
    assert "No errors" in tool("llvm-dwarfdump", "--verify", pair[0])


def test_addr2line_follows_functions(pair):
    path, lines = pair
    at = next(row.split()[0] for row in tool("nm", path).splitlines() if row.endswith(" pair"))
    assert re.fullmatch(r"pair\n.*pair\.tir:(\d+)\n", tool("addr2line", "-fe", path, at)), lines


def test_a_library_with_line_tables_runs(tmp_path):
    if not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))):
        pytest.skip("needs a linker")
    library, *_ = build(parse_spec("relu:M=7,N=13"), "native").export(tmp_path / "k.so", debug_info=True)
    assert "k.tir" in tool("objdump", "--dwarf=decodedline", library)


def test_one_function_of_several(tmp_path):
    module = compile({"a": parse(PAIR), "b": parse(PAIR.replace("* T.float32(3)", "+ A[i]"))}, AVX512)
    path, *_ = module.export(tmp_path / "two.ll", debug_info=True)
    assert path.read_text().count("distinct !DICompileUnit") == 2
    text = (tmp_path / "two.tir").read_text()
    lines = {int(n) for n in re.findall(r"DILocation\(line: (\d+)", path.read_text())}
    assert {"C[i] = A[i] * T.float32(3.0)", "C[i] = A[i] + A[i]"} <= {text.splitlines()[n - 1].strip() for n in lines}


def test_what_has_no_line_tables(tmp_path):
    with pytest.raises(ExportError, match=r"'k\.c' with line tables: only \.o, \.so, \.s, \.ll have them"):
        compile(parse(PAIR), AVX512).export(tmp_path / "k.c", debug_info=True)


def test_lines_of_nodes():
    func = parse(PAIR)
    text, lines = script_lines(func)
    assert text == func.script()
    first = {text.splitlines()[lines[id(s)][0] - 1].strip() for s in statements(func.body) if id(s) in lines}
    assert first == {
        "for i in range(16):",
        "C[i] = A[i] * T.float32(3.0)",
        "for j in T.parallel(16):",
        "B[j] = T.sqrt(C[j])",
    }
    assert np.all([len(found) == 1 for found in lines.values()])
