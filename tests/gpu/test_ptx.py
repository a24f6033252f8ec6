"""PTX text, and what NVIDIA's assembler says of it."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.gpu.ptx.cuda_module import joined_ptx
from tilewright.gpu.thread_code import _FMOD

from .device_programs import ADDED, ASSERTED
from .kernel_table import CASES

needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12"
)


def scaled(n, lanes=1):
    x = te.placeholder((n,), name="X")
    s = tw.Schedule(te.create_prim_func([x, te.compute((n,), lambda i: te.exp(x[i]) * 2, name="Y")]))
    b, t, v = s.split(s.get_loops("Y")[0], [None, 64, lanes])
    s.bind(b, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    if lanes > 1:
        s.vectorize(v)
    return s


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_target_of_the_text(arch):
    ptx = tw.build(scaled(256), f"cuda -arch={arch}").get_source()
    assert f".target {arch}" in ptx and ".visible .entry main_kernel0(" in ptx and ".maxntid 64" in ptx


def test_four_lanes_are_one_access():
    ptx = tw.build(scaled(1024, 4), "cuda").get_source("asm")
    assert "ld.global.nc.v4" in ptx and "st.global.v4" in ptx


def test_threads_that_are_too_many_are_masked():
    assert "setp" in tw.build(scaled(130), "cuda").get_source("ptx")


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_assembler_takes_it(arch, lanes):
    (report,), code = run_ptxas(tw.build(scaled(1000, lanes), f"cuda -arch={arch}").get_source(), arch)
    assert report.kernel == "main_kernel0" and 0 < report.registers < 64 and report.spill_bytes == 0
    assert code.startswith(b"\x7fELF")


@needs_ptxas
def test_assembler_refuses():
    with pytest.raises(ValueError, match="ptxas refuses the text for sm_80"):
        run_ptxas(".version 7.0\n.target sm_80\nnonsense\n", "sm_80")


SHARED = """
@T.prim_func
def main(A: T.Buffer((ROOM,), "float32"), B: T.Buffer((64,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((ROOM,), scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for o in range(ROOM // 64):
                for t in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("S"):
                        v = T.axis.spatial(ROOM, o * 64 + t)
                        S[v] = A[v]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(64, t)
                    B[v] = S[63 - v] + S[ROOM - 1 - v]
"""


@pytest.mark.parametrize(("room", "words"), [(1024, ".shared .align 64 .b8 main_kernel0_shared0[4096]"),
                                             (16384, ".extern .shared .align 64 .b8 main_kernel0_room[]")])  # fmt: skip
def test_shared_memory(room, words):
    module = tw.build(tir.parse(SHARED.replace("ROOM", str(room))), "cuda")
    ptx = module.get_source()
    assert words in ptx and "bar.sync" in ptx and "ld.shared" in ptx
    assert module.kernels["main"][0].dynamic_shared == (4 * room if room > 12288 else 0)
    if find_ptxas():
        run_ptxas(ptx, "sm_80")


def two_products():
    a, b, c = (te.placeholder((64, 64), name=name) for name in "abc")
    return tw.build([a, b, c, te.ops.matmul(te.ops.matmul(a, b), c)], "cuda -arch=sm_80")


def test_kernels_of_a_program_are_one_module():
    module = two_products()
    text = module.get_source("ptx")
    assert [text.count(word) for word in (".version", ".target", ".address_size", ".entry")] == [1, 1, 1, 2]
    assert (
        module.get_source("ll").count("target triple") == 1 and module.get_source("ll").count("define ptx_kernel") == 2
    )


@needs_ptxas
def test_assembler_takes_a_program_of_two_kernels():
    reports, _ = run_ptxas(two_products().get_source("ptx"), "sm_80")
    assert sorted(report.kernel for report in reports) == ["main_kernel0", "main_kernel1"]


def test_joined_texts_have_the_newest_header():
    texts = [f"// LLVM\n\n.version {v}\n.target sm_90\n.address_size 64\n\n.entry k{v}" for v in ("7.8", "8.0")]
    joined = joined_ptx(texts)
    assert joined.startswith("// LLVM\n\n.version 8.0\n.target sm_90\n") and joined.count(".version") == 1
    assert joined.index(".entry k7.8") < joined.index(".entry k8.0")


@pytest.mark.parametrize(("scalar", "word", "dtype"), [("float", "f32", "float32"), ("double", "f64", "float64")])
def test_the_remainder_of_floats(scalar, word, dtype):
    """The function that GPUs get, compiled for this processor, equals the C library's at every distance of the exponents."""
    text = f"declare {scalar} @llvm.fabs.{word}({scalar})\ndeclare {scalar} @llvm.copysign.{word}({scalar}, {scalar})\n"
    text += f"define {scalar} @remainder" + _FMOD.replace("T", scalar).replace(".S(", f".{word}(")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine) as engine:
        engine.finalize_object()
        kind = ctypes.c_float if dtype == "float32" else ctypes.c_double
        run = ctypes.CFUNCTYPE(kind, kind, kind)(engine.get_function_address("remainder"))
        rng, bits = np.random.default_rng(0), np.uint32 if dtype == "float32" else np.uint64
        drawn = rng.integers(0, np.iinfo(bits).max, (2, 2000), bits, endpoint=True).view(dtype)
        info = np.finfo(dtype)
        ends = np.array(
            [0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, info.smallest_subnormal, 1, -3], dtype
        )
        x, y = [np.concatenate([d, e.ravel()]) for d, e in zip(drawn, np.meshgrid(ends, ends), strict=True)]
        got = np.array([run(float(a), float(b)) for a, b in zip(x, y, strict=True)], dtype)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_divisions_of_floats_need_no_library(dtype):
    a, b = te.placeholder((64,), dtype, "A"), te.placeholder((64,), dtype, "B")
    text = tw.build([a, b, te.ops.floor_divide(a, b)], "cuda").get_source()
    assert "extern" not in text
    if find_ptxas():
        run_ptxas(text, "sm_80")


@needs_ptxas
def test_an_assertion_ends_the_kernel():
    ptx = tw.build(tir.parse(ASSERTED), "cuda").get_source()
    assert "trap;" in ptx
    run_ptxas(ptx, "sm_80")


def test_halves_are_converted_by_instructions():
    x = te.placeholder((64,), "float16", "X")
    ptx = tw.build([x, te.ops.exp(x)], "cuda").get_source()
    assert "cvt.f32.f16" in ptx and "cvt.rn.f16.f32" in ptx


OLDER = [
    ("sm_50", "matmul", ""), ("sm_61", "fp16 matmul", ""), ("sm_70", "fp16 matmul", "wmma"), ("sm_70", "int8 matmul, matrix units", ""),
    ("sm_75", "int8 matmul, matrix units", "wmma"), ("sm_75", "tf32 matmul", ""), ("sm_75", "softmax", ""),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "name", "units"), OLDER)
def test_older_architectures_get_what_they_have(arch, name, units):
    """Copies that go on by themselves came with sm_80, matrix units for some types later than for others."""
    ptx = tw.build(CASES[name].build(*CASES[name].small), f"cuda -arch={arch}").get_source()
    assert "cp.async" not in ptx and ("wmma" in ptx) == bool(units)
    if find_ptxas(arch):
        run_ptxas(ptx, arch)


WARP = """
@T.prim_func
def main(A: T.Buffer((256,), "DTYPE"), C: T.Buffer((256,), "float32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            T.evaluate(T.wmma_store(T.address_of(C[0]), 16, T.wmma_dot(T.Broadcast(T.float32(0), 256),
                T.wmma_load_a(T.address_of(A[0]), 16, dtype="DTYPEx256"), T.wmma_load_b(T.address_of(A[0]), 16, dtype="DTYPEx256"))))
"""


@pytest.mark.parametrize(("arch", "dtype", "first"), [("sm_61", "float16", 70), ("sm_75", "bfloat16", 80)])
def test_matrix_units_that_are_not_there_are_refused(arch, dtype, first):
    with pytest.raises(
        EmitError, match=f"wmma_load_[ab] of {dtype} needs -arch=sm_{first} or newer; the target has {arch}"
    ):
        tw.codegen.compile(tir.parse(WARP.replace("DTYPE", dtype)), f"cuda -arch={arch}").get_source()


@pytest.mark.parametrize(
    ("arch", "dtype", "first"), [("sm_61", "float16", 70), ("sm_50", "float64", 60), ("sm_80", "bfloat16", 90)]
)
def test_additions_that_are_not_there_are_refused(arch, dtype, first):
    with pytest.raises(EmitError, match=f"atomic_add of {dtype} needs -arch=sm_{first} or newer"):
        tw.codegen.compile(tir.parse(ADDED.replace("DTYPE", dtype)), f"cuda -arch={arch}").get_source()
