"""Code objects for AMD's GPUs: what LLVM and its tools say of them. No kernel runs; the simulated GPU has their results."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.codegen.machine.target_text import TargetError
from tilewright.gpu import GpuError
from tilewright.gpu.rocm import code_object_reports, find_lld
from tilewright.gpu.rocm.kernel_text import PROCESSORS
from tilewright.tir.parser import parse
from tilewright.tuner import Space

from ..tuner.gpu_programs import PROGRAMS
from .device_programs import ADDED, ASSERTED, REVERSED, each
from .kernel_table import CASES
from .test_ptx import SHARED

SOME = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
WIDE = dict.fromkeys(SOME[:2], 64)


def spilled(module):
    """The kernels that keep registers in memory, with what is said of them."""
    return [r for r in module.reports if r.scratch_bytes or r.vector_spills or r.scalar_spills]


ELEMENTS = """abs acos acosh asin asinh atan atanh ceil celu cos cosh elu erf exp exp2 expm1 floor gelu hardsigmoid hardswish
    leaky_relu log log10 log1p log2 mish negative reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin sinh softplus
    softsign sqrt square tan tanh trunc""".split()
PAIRS = "add subtract multiply divide maximum minimum power floor_mod remainder".split()
ROWS = {
    "softmax": lambda x: te.ops.softmax(x), "sum": lambda x: te.ops.sum(x, 1), "mean": lambda x: te.ops.mean(x, 0),
    "max": lambda x: te.ops.max(x, 1), "argmax": lambda x: te.ops.argmax(x, 1), "cumsum": lambda x: te.ops.cumsum(x, 1),
    "transpose": lambda x: te.ops.transpose(x), "matmul": lambda x: te.ops.matmul(x, te.ops.transpose(x)),
    "log_softmax": lambda x: te.ops.log_softmax(x),
}  # fmt: skip


@pytest.mark.parametrize(("number", "name"), list(enumerate([*ELEMENTS, *PAIRS, *ROWS])))
def test_operators_stay_in_registers(number, name):
    x, y = te.placeholder((48, 40), name="X"), te.placeholder((48, 40), name="Y")
    given = [x, y] if name in PAIRS else [x]
    made = ROWS[name](x) if name in ROWS else getattr(te.ops, name)(*given)
    module = tw.build([*given, made], f"rocm -mcpu={SOME[number % len(SOME)]}")
    assert module.reports and not spilled(module)


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("name", CASES)
def test_large_kernels_stay_in_registers(name, cpu):
    module = tw.build(CASES[name].build(*CASES[name].large), f"rocm -mcpu={cpu}")
    assert module.reports and not spilled(module)
    assert all(r.shared_bytes <= 64 << 10 and r.wavefront == WIDE.get(cpu, 32) for r in module.reports)


@pytest.mark.parametrize("number", range(5))
def test_kernels_of_the_rules_stay_in_registers(number):
    target = Target(f"rocm -mcpu={SOME[number]}")
    for name in list(PROGRAMS)[number :: len(SOME)]:
        func = te.create_prim_func(PROGRAMS[name].make())
        space = Space(func, target)
        assert space.sketches and not space.left
        for sketch in space.sketches[:3]:
            module = compile(space.schedule(sketch, sketch.best_rows(1)[0]).func, target)
            assert module.reports and not spilled(module), (name, sketch.name)


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_every_processor_has_code(cpu):
    (report,) = compile(parse(REVERSED), f"rocm -mcpu={cpu}").reports
    assert (report.kernel, report.threads, report.shared_bytes, report.argument_bytes) == ("main_kernel0", 64, 256, 16)
    assert report.wavefront == (64 if cpu.startswith("gfx9") else 32) and report.vector_registers > 0


def told(text):
    """What the assembly says of a kernel, by the names of a report."""
    names = {
        "vgpr_count": "vector_registers", "sgpr_count": "scalar_registers", "group_segment_fixed_size": "shared_bytes",
        "private_segment_fixed_size": "scratch_bytes", "vgpr_spill_count": "vector_spills", "sgpr_spill_count": "scalar_spills",
        "wavefront_size": "wavefront", "max_flat_workgroup_size": "threads", "kernarg_segment_size": "argument_bytes",
    }  # fmt: skip
    return [
        {names[word]: int(n) for word, n in re.findall(r"\.(\w+): +(\d+)$", part, re.M) if word in names}
        for part in text[text.index("amdhsa.kernels:") :].split("\n  - .a")[1:]
    ]


def test_reports_say_what_the_assembly_says():
    a, b, c = (te.placeholder((64, 64), name=name) for name in "abc")
    module = tw.build([a, b, c, te.ops.matmul(te.ops.matmul(a, b), c)], "rocm -mcpu=gfx942")
    said = told(module.get_source())
    assert [r.kernel for r in module.reports] == ["main_kernel0", "main_kernel1"] and len(said) == 2
    for report, numbers in zip(module.reports, said, strict=True):
        assert len(numbers) == 9 and {name: getattr(report, name) for name in numbers} == numbers


def test_a_kernel_whose_array_has_no_constant_index_is_reported_with_scratch():
    func = parse("""
@T.prim_func
def main(I: T.Buffer((4096,), "int32"), B: T.Buffer((4096,), "int32")):
    for b in T.thread_binding(64, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            L = T.alloc_buffer((4096,), "int32", scope="local")
            for i in range(4096):
                L[I[i] & 4095] = I[t] + i
            B[b * 64 + t] = L[I[t] & 4095]
""")
    assert compile(func, "rocm").reports[0].scratch_bytes >= 16384


@pytest.mark.parametrize("cpu", SOME)
def test_the_words_of_the_text(cpu):
    module = compile(parse(REVERSED), f"rocm -mcpu={cpu}")
    ir, text = module.get_source("ir"), module.get_source()
    assert "define amdgpu_kernel void @main_kernel0(ptr addrspace(1) noalias readonly %a0" in ir
    assert "llvm.amdgcn.workitem.id.x" in ir and "addrspace(3) global [64 x float]" in ir
    assert re.search(r"ds_(read|load)_b32", text) and re.search(r"ds_(write|store)_b32", text)
    assert "flat_" not in re.sub(r"\.\w+", "", text)  # LLVM knows where each pointer points
    # threads of one wavefront go in step
    assert ("s_barrier" in text) == (cpu not in WIDE)


@pytest.mark.parametrize("cpu", SOME)
def test_exchanges_in_a_warp(cpu):
    x = te.placeholder((64, 256), name="X")
    text = tw.build([x, te.ops.sum(x, 1)], f"rocm -mcpu={cpu}").get_source()
    found = re.findall(r"ds_swizzle_b32 \S+ \S+ offset:swizzle\(BITMASK_PERM, ?\"(\w+)\"\)", text)
    found += ["ppppp"[: 4 - d] + "i" + "ppppp"[:d] for d in map(int, re.findall(r"swizzle\(SWAP, ?(\d+)\)", text))]
    assert len(found) >= 5 or text.count("ds_swizzle_b32") >= 5


@pytest.mark.parametrize(("dtype", "words"), [
    ("float32", "global_atomic_add_f32"), ("float64", "global_atomic_add_f64"), ("int32", "global_atomic_add "),
    ("int64", "global_atomic_add_x2"), ("uint32", "global_atomic_add "), ("float16", "global_atomic_cmpswap"),
    ("bfloat16", "global_atomic_cmpswap"),
])  # fmt: skip
def test_atomic_additions(dtype, words):
    assert words in compile(parse(ADDED.replace("DTYPE", dtype)), "rocm -mcpu=gfx90a").get_source()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pairs_of_halves_are_added_at_once(dtype):
    func = parse(ADDED.replace("DTYPE", dtype).replace("3,)", "6,)").replace(
        "T.atomic_add(T.address_of(B[t % 3]), A[b * 100 + t])", "T.atomic_add_pair(T.address_of(B[t % 3 * 2]), A[b * 100 + t], A[b * 100 + t])"
    ))  # fmt: skip
    text = compile(func, "rocm -mcpu=gfx942").get_source()
    assert f"global_atomic_pk_add_{'f16' if dtype == 'float16' else 'bf16'}" in text


def test_an_assertion_ends_the_kernel():
    assert "s_trap" in compile(parse(ASSERTED), "rocm").get_source()


def test_halves_are_the_gpus():
    x = te.placeholder((64, 64), "float16", "X")
    text = tw.build([x, te.ops.add(x, x)], "rocm -mcpu=gfx1100").get_source()
    assert re.search(r"(?s)v_cvt_f32_f16.*v_cvt_f16_f32|v_(pk_)?add_f16", text)


def test_sizes_of_the_call():
    n = te.var("n")
    x = te.placeholder((n, 7), name="X")
    module = tw.build([x, te.compute((n, 7), lambda i, j: x[i, j] * 2, name="Y")], "rocm -mcpu=gfx1201")
    (report,) = module.reports
    assert report.argument_bytes == 24 and not spilled(module)


@pytest.mark.skipif(not shutil.which("llvm-objdump"), reason="llvm-objdump is not installed: apt-get install llvm")
@pytest.mark.parametrize("cpu", ["gfx90a", "gfx1030"])
def test_disassembled(cpu, tmp_path):
    """LLVM's other tool reads the instructions that the text has."""
    module = compile(parse(REVERSED), f"rocm -mcpu={cpu}")
    (place,) = module.export(tmp_path / "k.o")
    done = subprocess.run(["llvm-objdump", "-d", f"--mcpu={cpu}", place], capture_output=True, text=True, check=True)
    read = re.findall(r"^\t(\w+)", done.stdout, re.M)
    written = re.findall(r"^\t([sv]_\w+|ds_\w+|global_\w+|buffer_\w+)", module.get_source().split(".section")[0], re.M)
    assert "s_endpgm" in written and read[: len(written)] == written


@pytest.mark.skipif(find_lld() is None, reason="LLVM's linker is not installed: pip install ziglang")
def test_linked(tmp_path):
    module = compile(parse(REVERSED), "rocm -mcpu=gfx1100")
    (place,) = module.export(tmp_path / "k.hsaco")
    code = place.read_bytes()
    assert code[:4] == b"\x7fELF" and code[16] == 3 and code_object_reports(code) == module.reports
    assert b"main_kernel0.kd" in code


def test_without_a_linker(monkeypatch, tmp_path):
    monkeypatch.setattr("tilewright.gpu.rocm.code_objects.find_lld", lambda: None)
    with pytest.raises(GpuError, match="no ld.lld is here.*TILEWRIGHT_LLD"):
        compile(parse(REVERSED), "rocm").export(tmp_path / "k.hsaco")
    assert compile(parse(REVERSED), "rocm").export(tmp_path / "k.s")[0].read_text().count("s_endpgm") == 1


def test_calls_say_what_is_missing():
    module = compile(parse(REVERSED), "rocm")
    with pytest.raises(GpuError, match="lacks HIP.*hipModuleLoad"):
        module(np.zeros(64, "float32"), np.zeros(64, "float32"))
    assert "HIP" in Target("rocm").missing_here()[0]


def test_other_processors_are_refused():
    with pytest.raises(TargetError, match="gfx91a.*did you mean.*gfx90a"):
        Target("rocm -mcpu=gfx91a")
    assert Target("rocm -arch=gfx1100").mcpu == "gfx1100"


def test_more_shared_memory_than_there_is_is_refused():
    func = parse(SHARED.replace("ROOM", str(17024)))
    with pytest.raises(GpuError, match="needs 68096 bytes of shared memory, and gfx90a has 65536"):
        assert compile(func, "rocm").reports
    assert compile(func, "rocm -mcpu=gfx950").reports[0].shared_bytes == 68096


def test_functions_of_libraries_are_refused():
    with pytest.raises(GpuError, match="call cbrtf"):
        assert compile(each('T.call_extern("float32", "cbrtf", A[i])'), "rocm").reports


def test_other_files_are_no_code_objects():
    with pytest.raises(ValueError, match="no code object"):
        code_object_reports(b"\x7fELF")
