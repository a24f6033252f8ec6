"""OpenCL C, run on the device that pyopencl finds: equal to NumPy and to the simulated GPU, and errors that say what is missing."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen import compile
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError
from tilewright.gpu.opencl import OpenClError, opencl_device
from tilewright.gpu.opencl.opencl_device import CHOICE, OpenClDevice
from tilewright.tir.parser import parse

from .device_programs import ADDED, ASSERTED, REVERSED, each, ends, reverses, sum_by_three
from .kernel_table import CASES, error_on_gpu


def _missing():
    try:
        opencl_device()
    except OpenClError as error:
        return str(error)
    return ""


needs_device = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is a device")


@needs_device
@pytest.mark.parametrize("name", CASES)
def test_kernels_by_the_rules(name):
    assert error_on_gpu(CASES[name], "opencl") <= CASES[name].tolerance


@needs_device
def test_threads_wait_for_each_other_in_shared_memory():
    assert reverses("opencl")


@needs_device
def test_a_barrier_that_is_missing_is_noticed():
    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    assert barrier in compile(parse(REVERSED), "opencl").source
    assert not reverses("opencl", lambda text: text.replace(barrier, ""))


def test_the_words_of_the_text():
    text = tw.build(parse(REVERSED), "opencl").get_source()
    assert "__local float S[64];" in text and "get_local_id(0)" in text and "reqd_work_group_size(64, 1, 1)" in text
    assert "void main_kernel0(__global const float *restrict A, __global float *restrict B)" in text


def test_the_text_of_a_module_for_another_gpu(tmp_path):
    assert compile(parse(REVERSED), "opencl").export(tmp_path / "k.cl") == [tmp_path / "k.cl"]
    assert "__kernel" in (tmp_path / "k.cl").read_text()


@needs_device
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint32"])
def test_atomic_additions(dtype):
    a, b, want = sum_by_three(dtype)
    compile(parse(ADDED.replace("DTYPE", dtype)), "opencl")(a, b)
    assert (b == want).all()


VALUES = [
    *[(f"{word}(A[i], D[i])", t) for word in ("T.floordiv", "T.floormod", "T.truncdiv", "T.truncmod") for t in ("int32", "int8", "int64")],
    *[(f"A[i] {sign} D[i]", t) for sign in "+-*" for t in ("int32", "uint8", "int64", "float32", "float64", "float16")],
    *[(f"T.{word}(A[i], D[i])", t) for word in ("max", "min") for t in ("float32", "int32", "uint64", "float16")],
    *[(f"T.{word}(A[i], D[i])", t) for word in ("shift_left", "shift_right") for t in ("int32", "uint8")],
    *[(f"T.{word}(A[i])", "float32") for word in ("exp", "sqrt", "tanh", "floor", "round", "trunc", "erf", "sigmoid", "log")],
    ("A[i] / D[i]", "float32"), ("T.popcount(A[i])", "int32"), ("T.clz(A[i])", "int32"), ("T.fma(A[i], D[i], A[i])", "float32"),
]  # fmt: skip
CASTS = [(a, b) for a in ("float32", "float64", "int32", "uint8", "int64", "float16") for b in ("int32", "uint8", "int8", "int64", "float32", "float16", "bool")
         if a != b]  # fmt: skip


@needs_device
@pytest.mark.parametrize(("value", "dtype", "out"), [
    *[(value, dtype, dtype) for value, dtype in VALUES], *[(f'T.Cast("{b}", A[i])', a, b) for a, b in CASTS],
])  # fmt: skip
def test_values_mean_what_the_interpreter_says(value, dtype, out):
    first = ends(dtype)
    a, d = [x.ravel().copy() for x in np.meshgrid(first, first)]
    func, want = each(value, dtype, out, a.size), np.zeros(a.size, out)
    tir.interpret(func, a, d, want)
    got = np.zeros(a.size, out)
    compile(func, "opencl")(a, d, got)
    if any(word in value for word in ("exp", "tanh", "erf", "sigmoid", "log")):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, want, 2e-6)
    else:
        np.testing.assert_array_equal(got, want)


@needs_device
def test_every_half_is_converted_exactly():
    bits = np.arange(1 << 16, dtype="uint16")
    halves = bits.view("float16")
    got = compile(each('T.Cast("float32", A[i])', "float16", "float32", 1 << 16), "opencl")(halves, halves)
    np.testing.assert_array_equal(got, halves.astype("float32"))


@needs_device
def test_an_assertion_in_a_kernel_raises_its_message():
    module = compile(parse(ASSERTED), "opencl")
    a = np.arange(64, dtype="int32")
    assert (module(a) == a + 1).all()
    a[5] = -1
    with pytest.raises(GpuError, match="no number is negative"):
        module(a)
    a[5] = 5
    assert (module(a) == a + 1).all()


@needs_device
def test_sizes_of_the_call_and_memory_between_kernels():
    n = te.var("n")
    x = te.placeholder((n, 7), name="X")
    y = te.compute((n, 7), lambda i, j: x[i, j] * 2, name="Y")
    z = te.compute((n, 7), lambda i, j: y[n - 1 - i, j] + 1, name="Z")
    s = tw.Schedule(te.create_prim_func([x, z]))
    for name in "YZ":
        block, thread = s.split(s.get_loops(name)[0], [None, 32])
        s.bind(block, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
    module = tw.build(s, "opencl")
    for size in (0, 1, 40):
        a = np.arange(size * 7, dtype="float32").reshape(size, 7)
        assert (module(a) == a[::-1] * 2 + 1).all()


WIDE = """
@T.prim_func
def main(n: T.KIND, A: T.Buffer((63,), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        B[t] = A[INDEX]
"""


@needs_device
@pytest.mark.parametrize(
    ("kind", "index", "want", "narrow"),
    [
        ("int32", "(t * 30000001) % 63", lambda t, n: t * 30000001 % 63, True),
        ("int32", "(t * 100000007) % 63", lambda t, n: t * 100000007 % 63, False),
        ("int32", "(t - 31) // 2 + 16", lambda t, n: (t - 31) // 2 + 16, True),
        ("int64", 'T.max(T.Cast("int64", t) * n * n % 63, T.int64(3))', lambda t, n: max(t * n * n % 63, 3), False),
        ("int64", '(n * n - T.Cast("int64", t) * n) % 63', lambda t, n: (n * n - t * n) % 63, False),
        ("int32", 'T.Cast("int32", T.clz(T.Cast("int64", t) + T.int64(1))) % 63', lambda t, n: (64 - (t + 1).bit_length()) % 63, True),
        ("int32", 'T.Cast("int32", T.shift_right(T.shift_left(T.Cast("int64", t), T.int64(40)), T.int64(40))) % 63',
         lambda t, n: t % 63, True),
    ],
)  # fmt: skip
def test_indices_have_64_bits_where_32_do_not_hold_them(kind, index, want, narrow):
    module, n = compile(parse(WIDE.replace("KIND", kind).replace("INDEX", index)), "opencl"), 99991
    assert "const int32_t threadIdx_x" in module.source
    a, got = np.random.default_rng(0).random(63, "float32"), np.zeros(64, "float32")
    module(n, a, got)
    np.testing.assert_array_equal(got, a[[want(t, n) for t in range(64)]])
    if narrow and "int64" not in index:
        assert "int64_t" not in module.source


@needs_device
def test_times_are_those_of_the_device():
    module = tw.build("softmax:M=7,N=50", "opencl")
    assert "analytic model" in module.origin
    x = np.zeros((7, 50), "float32")
    found = module.time_evaluator(repeat=3, number=2)(x, np.empty_like(x))
    assert len(found.results) == 3 and all(0 < t < 60 for t in found.results)


@needs_device
def test_a_bound_call_runs_again():
    module, a, b = compile(parse(REVERSED), "opencl"), np.arange(64, dtype="float32"), np.zeros(64, "float32")
    call = module.bind(a, b)
    for _ in range(2):
        b[:] = 0
        call()
        assert (b == a[::-1]).all()


def test_products_of_matrix_units_are_refused():
    text = REVERSED.replace("S[v] = A[v]", 'T.evaluate(T.call_extern("int32", "f", T.address_of(S[v])))')
    with pytest.raises(EmitError, match="no OpenCL C form for the call"):
        compile(parse(text), "opencl").get_source()


@needs_device
def test_blocks_of_too_many_threads_are_refused():
    many = opencl_device().device.max_work_group_size * 2
    x = te.placeholder((many,), name="X")
    s = tw.Schedule(te.create_prim_func([x, te.compute((many,), lambda i: x[i] + 1, name="Y")]))
    s.bind(s.get_loops("Y")[0], "threadIdx.x")
    with pytest.raises(OpenClError, match=f"has {many} threads in a block, .* at most {many // 2}"):
        tw.build(s, "opencl")(np.zeros(many, "float32"))


@needs_device
def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setenv(CHOICE, "no such device")
    with pytest.raises(OpenClError, match="no OpenCL device 'no such device'"):
        OpenClDevice()


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyopencl", None)
    with pytest.raises(OpenClError, match=r'pip install "pyopencl\[pocl\]"'):
        OpenClDevice()


@needs_device
def test_tuning_measures_on_the_device(tmp_path):
    a, b = te.placeholder((24, 16), name="A"), te.placeholder((16, 40), name="B")
    tensors = [a, b, te.ops.matmul(a, b)]
    result = tw.tune(te.create_prim_func(tensors), "opencl", trials=2, final_race=0, db=tmp_path / "records.db")
    assert result.best is not None and result.best.times and "clock" not in result.best.machine
    module = tw.build(tensors, "opencl", db=tmp_path / "records.db")
    assert module.origin.startswith("record ")
    x, y = np.arange(384, dtype="float32").reshape(24, 16) % 5, np.arange(640, dtype="float32").reshape(16, 40) % 7
    assert (module(x, y) == x @ y).all()
