"""Constants picked by number: lanes of a register where there is an instruction, an array elsewhere; what is made of it."""

import ctypes
import math
import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import emit_c
from tilewright.codegen.math.lookup_tables import ERF, ERF_TABLE, GELU, GELU_TABLE, TANH, TANH_TABLE
from tilewright.schedule import Schedule
from tilewright.te import ops
from tilewright.tir import PrimFunc, assert_structural_equal, const, parse
from tilewright.tir.expr.intrinsics.number_operations import lookup
from tilewright.tir.interpret import interpret

LEVELS = ["native", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"]
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+neon -num-cores=1"


def picking(count: int, lanes: int, values: int, dtype: str = "float32") -> PrimFunc:
    """y[i] = table[n[i] modulo the size of the table]"""
    n = te.placeholder((count,), "int32", name="n")
    table = [const(float(v), dtype) for v in numbers(values, dtype)]
    sch = Schedule(te.create_prim_func([n, te.compute((count,), lambda i: lookup(n[i], *table), name="y")]))
    if lanes > 1:
        sch.vectorize(sch.split(sch.get_loops("y")[0], [None, lanes])[1])
    return sch.func


def numbers(values: int, dtype: str) -> np.ndarray:
    """What is in the table: with all bits in use, signs, and a zero of each sign."""
    out = np.random.default_rng(values).standard_normal(values).astype(dtype)
    out[:2] = 0.0, -0.0
    return out


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize(("values", "dtype"), [(16, "float32"), (2, "float32"), (64, "float32"), (16, "float64")])
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 13, 16, 24, 32])
def test_every_number_finds_its_value(target: str, values: int, dtype: str, lanes: int) -> None:
    count = 5 * lanes + 7
    func = picking(count, lanes, values, dtype)
    assert_structural_equal(parse(func.script()), func)
    n = np.arange(count, dtype="int32") - 9
    n[:2] = 2**31 - 1, -(2**31)
    want = numbers(values, dtype)[n % values]
    for run in (lambda *a: interpret(func, *a), compile(func, Target(f"{target} -num-cores=1"), "kernel")):
        got = np.full(count, math.nan, dtype)
        run(n, got)
        np.testing.assert_array_equal(got.view(f"int{got.itemsize * 8}"), want.view(f"int{got.itemsize * 8}"))


@pytest.mark.parametrize(
    ("target", "lanes", "word"),
    [
        ("llvm -mcpu=x86-64-v4 -num-cores=1", 16, r"vperm(ps|d)\s.*zmm"),
        ("llvm -mcpu=x86-64-v4 -num-cores=1", 8, r"vperm([it]2)?ps\s"),
        ("llvm -mcpu=x86-64-v3 -num-cores=1", 8, r"vperm(ps|d)\s.*ymm"),
        (ARM, 4, r"\btbl\s"),
    ],
)
def test_the_instruction_is_taken_where_there_is_one(target: str, lanes: int, word: str) -> None:
    text = compile(picking(lanes * 4, lanes, 16), Target(target), "kernel").get_source("asm")
    assert re.search(word, text), text


def test_the_c_form_has_an_array() -> None:
    text = emit_c([lower(picking(32, 4, 16), Target("native -num-cores=1"))])
    assert re.search(r"static const float table\[16\] = \{.*\}; return table\[n & 15\];", text)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("lanes", [1, 4])
def test_c(tmp_path, lanes: int) -> None:
    (tmp_path / "kernel.c").write_text(emit_c([lower(picking(32, lanes, 16), Target("native -num-cores=1"))]))
    library = tmp_path / "kernel.so"
    command = ["cc", "-O1", "-w", "-fPIC", "-shared", "-o", str(library), str(tmp_path / "kernel.c"), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    function = next(iter(re.findall(r"^int32_t (\w+)\(", (tmp_path / "kernel.c").read_text(), re.M)))
    n, y = np.arange(32, dtype="int32") * 7 - 50, np.zeros(32, "float32")
    run = getattr(ctypes.CDLL(str(library)), function)
    assert run(ctypes.c_void_p(n.ctypes.data), ctypes.c_void_p(y.ctypes.data)) == 0
    np.testing.assert_array_equal(y, numbers(16, "float32")[n % 16])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((const(1), const(0.5), const(1.5), const(2.5)), ValueError, "2, 4, 8 … values, not 3"),
        ((const(1), const(0.5)), ValueError, "not 1"),
        ((const(1), const(1), const(2)), TypeError, "all float32 or all float64"),
        ((const(1), const(1.0), const(2.0, "float64")), TypeError, "all float32 or all float64"),
        ((const(1.0), const(1.0), const(2.0)), TypeError, "an int32, not float32"),
    ],
)
def test_what_is_no_table(arguments, error, words: str) -> None:
    with pytest.raises(error, match=words):
        lookup(*arguments)


# -- the functions that are made of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("pieces", "table"), [(GELU, GELU_TABLE), (ERF, ERF_TABLE), (TANH, TANH_TABLE)])
def test_the_intervals_have_numbers_of_their_own(pieces, table) -> None:
    edges = list(pieces.intervals())
    found = [pieces.number((low + high) / 2) for low, high in edges]
    assert len(set(found)) == len(found) <= 16 and edges[0][0] == 0 and edges[-1][1] == pieces.limit
    assert len(table) == 7 and all(len(row) == 16 for row in table)
    for k, (low, high) in zip(found, edges, strict=True):
        assert low <= table[0][k] <= high, "a centre outside its interval"
        just_below = float(np.nextafter(np.float32(high), np.float32(0)))
        assert pieces.number(low) == k and pieces.number(just_below) in (k, pieces.number(high))


def results(f, target: str, xs: np.ndarray) -> np.ndarray:
    """``f`` of a tensor, compiled and called."""
    x = te.placeholder(xs.shape, "float32", name="x")
    y = np.full_like(xs, 7)
    tw.build([x, f(x)], target=f"{target} -num-cores=1")(xs, y)
    return y


@pytest.mark.parametrize("f", [ops.gelu, ops.erf, ops.tanh])
def test_targets_with_fused_operations_agree_to_the_last_bit(f) -> None:
    xs = np.random.default_rng(3).integers(0, 1 << 32, 40013, dtype=np.uint64).astype(np.uint32).view("float32")
    xs[:20000] = np.random.default_rng(4).uniform(-14, 14, 20000)
    xs[-4:] = 0.0, -0.0, math.inf, -math.inf
    first, *others = [results(f, target, xs).view("int32") for target in LEVELS[:3]]
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("target", LEVELS[1:])
def test_gelu_near_the_edges_of_its_intervals(target: str) -> None:
    edges = np.array([[low, high] for low, high in GELU.intervals()], "float32").ravel()
    around = (edges.view("int32")[:, None] + np.arange(-40, 41, dtype="int32")).ravel()
    xs = np.unique(around[around > 0]).view("float32")
    xs = np.concatenate([xs[xs <= 13], -xs[xs <= 13]])
    exact = np.array([x / 2 * math.erfc(-x * math.sqrt(0.5)) for x in xs.astype("float64")])
    off = np.abs(results(ops.gelu, target, xs) - exact) / np.spacing(np.abs(exact.astype("float32")))
    assert off.max() < 2


def test_gelu_takes_forty_instructions() -> None:
    x = te.placeholder((4096,), name="x")
    y = ops.gelu(x)
    sch = Schedule(te.create_prim_func([x, y]))
    sch.vectorize(sch.split(sch.get_loops(y.op.name)[0], [None, 16])[1])
    asm = compile(sch.func, Target("llvm -mcpu=x86-64-v4 -num-cores=1"), "kernel").get_source("asm")
    lines = [line.split("#")[0].strip() for line in asm.splitlines()]
    back = ((n, re.match(r"j\w+\s+(\.LBB\w+)", line)) for n, line in enumerate(lines))
    end = next(n for n, jump in back if jump and f"{jump[1]}:" in lines[:n])
    label = lines[end].split()[1] + ":"
    loop = [line for line in lines[lines.index(label) : end + 1] if line and not line.startswith(".")]
    vectors = [line for line in loop if "zmm" in line or re.search(r"%k\d", line)]
    assert 30 < len(vectors) <= 41, "\n".join(loop)  # a load and a store among them
    assert not any(line.startswith("vdiv") for line in loop)


def looking_up(size: int, lanes: int, dtype: str, count: int, index: str = "uint8") -> PrimFunc:
    """y[i] = table[n[i]]"""
    table, n = te.placeholder((size,), dtype, name="table"), te.placeholder((count,), index, name="n")
    sch = Schedule(te.create_prim_func([table, n, te.ops.take(table, n, axis=0, mode="fast", name="y")]))
    sch.vectorize(sch.split(sch.get_loops("y")[0], [None, lanes])[1])
    return sch.func


@pytest.mark.parametrize("target", ["native", "llvm -mcpu=icelake-server", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("size", [64, 128, 200, 256])
@pytest.mark.parametrize("lanes", [8, 16, 48, 64, 80, 128])
@pytest.mark.parametrize(("dtype", "index"), [("uint8", "uint8"), ("int8", "int32"), ("bool", "int64")])
def test_bytes_are_looked_up_in_tables(target: str, size: int, lanes: int, dtype: str, index: str) -> None:
    if target.endswith("server") and not Target("native").has("avx512vbmi"):
        pytest.skip("the machine lacks the instructions")
    rng, count = np.random.default_rng(size), 3 * lanes + 5
    table = rng.integers(0, 2 if dtype == "bool" else 127, size).astype(dtype)
    n = rng.integers(0, size, count).astype(index)
    n[:2] = 0, size - 1
    got = np.zeros(count, dtype)
    compile(looking_up(size, lanes, dtype, count, index), Target(f"{target} -num-cores=1"), "kernel")(table, n, got)
    np.testing.assert_array_equal(got, table[n])


@pytest.mark.parametrize(("size", "word"), [(64, r"vpermb\s.*zmm"), (256, r"vperm[it]2b\s.*zmm")])
def test_small_tables_of_bytes_are_permuted(size: int, word: str) -> None:
    target = Target("llvm -mcpu=icelake-server -num-cores=1")
    text = compile(looking_up(size, 64, "uint8", 256), target, "kernel").get_source("asm")
    assert re.search(word, text), text
