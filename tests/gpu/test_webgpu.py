"""WGSL, run on the adapter that wgpu finds: equal to NumPy and to the interpreter, and errors that say what is missing."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen import compile
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError
from tilewright.gpu.wgsl import WebGpuError, webgpu_device
from tilewright.gpu.wgsl.webgpu_device import CHOICE, WebGpuDevice
from tilewright.tir.parser import parse

from .device_programs import ADDED, ASSERTED, REVERSED, each, ends, reverses, sum_by_three
from .kernel_table import CASES, error_on_gpu


def _missing():
    try:
        webgpu_device()
    except WebGpuError as error:
        return str(error)
    return ""


needs_adapter = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is an adapter")


@needs_adapter
@pytest.mark.parametrize("name", CASES)
def test_kernels_by_the_rules(name):
    assert error_on_gpu(CASES[name], "webgpu") <= CASES[name].tolerance


@needs_adapter
def test_threads_wait_for_each_other_in_shared_memory():
    assert reverses("webgpu")


@needs_adapter
def test_a_barrier_that_is_missing_is_noticed():
    assert "workgroupBarrier();" in compile(parse(REVERSED), "webgpu").source
    assert not reverses("webgpu", lambda text: text.replace("workgroupBarrier();", ""))


@needs_adapter
def test_a_bound_that_is_wrong_is_noticed():
    assert "S[(63 - threadIdx_x)]" in compile(parse(REVERSED), "webgpu").source
    assert not reverses("webgpu", lambda text: text.replace("(63 - threadIdx_x)", "(64 - threadIdx_x)"))


def test_the_words_of_the_text(tmp_path):
    module = tw.build(parse(REVERSED), "webgpu")
    text = module.get_source()
    assert "var<workgroup> S: array<f32, 64>;" in text and "@compute @workgroup_size(64, 1, 1)" in text
    assert "@group(0) @binding(1) var<storage, read_write> B: array<f32>;" in text
    assert module.export(tmp_path / "k.wgsl") == [tmp_path / "k.wgsl"] and (tmp_path / "k.wgsl").read_text() == text
    assert tw.build(parse(REVERSED), "gpu-sim").get_source("lowered") == module.get_source("lowered")


@needs_adapter
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32"])
def test_atomic_additions(dtype):
    a, b, want = sum_by_three(dtype)
    compile(parse(ADDED.replace("DTYPE", dtype)), "webgpu")(a, b)
    assert (b == want).all()


VALUES = [
    *[(f"{word}(A[i], D[i])", t) for word in ("T.floordiv", "T.floormod", "T.truncdiv", "T.truncmod") for t in ("int32", "int8", "uint16")],
    *[(f"A[i] {sign} D[i]", t) for sign in "+-*" for t in ("int32", "uint8", "int16", "uint32", "float32", "float16")],
    *[(f"T.{word}(A[i], D[i])", t) for word in ("max", "min") for t in ("float32", "int32", "uint32", "float16")],
    *[(f"T.{word}(A[i], D[i])", t) for word in ("shift_left", "shift_right") for t in ("int32", "uint8", "uint32")],
    *[(f"T.bitwise_{word}(A[i], D[i])", t) for word in ("and", "or", "xor") for t in ("int32", "uint8")],
    *[(f"T.{word}(A[i])", t) for word in ("popcount", "clz", "bitwise_not") for t in ("int32", "uint8")],
    *[(f"T.{word}(A[i])", "float32") for word in ("sqrt", "floor", "ceil", "round", "trunc", "fabs")],
    ("T.fmod(A[i], D[i])", "float32"), ("T.copysign(A[i], D[i])", "float32"), ("(A[i] + T.float32(12582912)) - T.float32(12582912)", "float32"),
    ("T.if_then_else(A[i] < D[i], A[i], T.float32(3))", "float32"), ('T.reinterpret("int32", A[i])', "float32", "int32"),
    ("T.isnan(A[i])", "float32", "bool"), ("T.isinf(A[i])", "float32", "bool"), ("A[i] != A[i]", "float32", "bool"),
    *[(f"A[i] {sign} D[i]", t, "bool") for sign in ("<", "<=", "==", "!=") for t in ("float32", "int32", "uint8")],
    ("T.float32(\"nan\")", "float32"), ("A[i] * T.float32(\"inf\")", "float32"),
]  # fmt: skip
_FROM, _TO = ("float32", "int32", "uint8", "float16", "bool"), ("int32", "uint32", "uint8", "int8", "int16", "float32", "float16", "bool")  # fmt: skip
CASTS = [(f'T.Cast("{b}", A[i])', a, b) for a in _FROM for b in _TO if a != b]


@needs_adapter
@pytest.mark.parametrize("case", [*VALUES, *CASTS], ids=" ".join)
def test_values_mean_what_the_interpreter_says(case):
    value, dtype, out = case if len(case) == 3 else (*case, case[1])
    first = np.array([False, True]) if dtype == "bool" else ends(dtype)
    a, d = [x.ravel().copy() for x in np.meshgrid(first, first)]
    func, want = each(value, dtype, out, a.size), np.zeros(a.size, out)
    tir.interpret(func, a, d, want)
    got = np.zeros(a.size, out)
    compile(func, "webgpu")(a, d, got)
    np.testing.assert_array_equal(got, want)


def numbers(reach, size=512):
    """Returns random float32 of all signs and sizes up to ``reach``, and the ends of the type."""
    rng = np.random.default_rng(3)
    some = rng.standard_normal(size) * reach ** rng.uniform(-1, 1, size)
    return np.concatenate([ends("float32"), np.clip(some, -reach, reach).astype("float32")])


MATH = {
    **{name: (getattr(np, name), 1e30) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "log1p", "expm1", "exp2", "log2")},
    **{name: (getattr(np, f"arc{name[1:]}"), 1.0) for name in ("asin", "acos")},
    "atan": (np.arctan, 1e30), "asinh": (np.arcsinh, 1e30), "acosh": (np.arccosh, 1e30), "atanh": (np.arctanh, 1.0),
    "sinh": (np.sinh, 80.0), "cosh": (np.cosh, 80.0), "atan2": (np.arctan2, 1e30), "hypot": (np.hypot, 1e30), "pow": (np.power, 30.0),
}  # fmt: skip
"""Functions, what NumPy has for them, and how large the arguments are."""


@needs_adapter
@pytest.mark.parametrize("name", MATH)
def test_functions_are_numpys(name):
    function, reach = MATH[name]
    a, two = numbers(reach), name in ("atan2", "hypot", "pow")
    d = np.roll(a, 5)
    got = compile(each(f"T.{name}(A[i], D[i])" if two else f"T.{name}(A[i])", size=a.size), "webgpu")(a, d)
    with np.errstate(all="ignore"):
        exact = function(*[x.astype("float64") for x in ((a, d) if two else (a,))]).astype("float32")
    np.testing.assert_allclose(got, exact, 1e-5, 1e-37)


@needs_adapter
def test_every_half_is_converted_exactly():
    halves = np.arange(1 << 16, dtype="uint16").view("float16")
    got = compile(each('T.Cast("float32", A[i])', "float16", "float32", 1 << 16), "webgpu")(halves, halves)
    np.testing.assert_array_equal(got, halves.astype("float32"))


@needs_adapter
def test_an_assertion_in_a_kernel_raises_its_message():
    module = compile(parse(ASSERTED), "webgpu")
    a = np.arange(64, dtype="int32")
    assert (module(a) == a + 1).all()
    a[5] = -1
    with pytest.raises(GpuError, match="no number is negative"):
        module(a)
    a[5] = 5
    assert (module(a) == a + 1).all()


VECTORS = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int8"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(8, thread="threadIdx.x"):
        B[T.Ramp(t * 8, 1, 8)] = T.Select(A[T.Ramp(t * 8 + 7, -1, 8)] < T.Broadcast(T.float32(20), 8), A[T.Ramp(t * 8, 1, 8)] * T.Broadcast(T.float32(2), 8), T.Cast("float32x8", I[T.Ramp(t * 8, 1, 8)]))
"""


@needs_adapter
def test_vectors():
    a, i = np.arange(64, dtype="float32"), -np.arange(64, dtype="int8")
    want = np.where(a.reshape(8, 8)[:, ::-1].ravel() < 20, a * 2, i)
    assert (compile(parse(VECTORS), "webgpu")(a, i) == want).all()


SEARCHED = """
@T.prim_func
def main(C: T.Buffer((COUNT,), "int32"), V: T.Buffer((COUNT, 3, 9), "int32")):
    for t in T.thread_binding(COUNT, thread="threadIdx.x"):
        for row, p in T.grid(3, 4):
            C[t] = 1
            while C[t] < 9:
                V[t, row, C[t]] = p + 1
                C[t] = C[t] * 2 + 1
"""
"""Loops that threads leave by what is in memory; where it is 0, they stay for ever."""


@needs_adapter
@pytest.mark.parametrize("count", [1, 3, 8, 13])
def test_loops_end_by_what_is_in_memory_for_every_number_of_threads(count):
    func = parse(SEARCHED.replace("COUNT", str(count)))
    want, got = [[np.zeros(count, "int32"), np.zeros((count, 3, 9), "int32")] for _ in range(2)]
    tir.interpret(func, *want)
    compile(func, "webgpu")(*got)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


LONG = """
@T.prim_func
def main(A: T.Buffer((5,), "int32"), B: T.Buffer((5,), "int32")):
    for t in T.thread_binding(5, thread="threadIdx.x"):
        for i, j in T.grid(300, COLUMNS):
            B[t] = T.bitwise_xor(B[t] * 3, A[t] + i + j)
"""


@needs_adapter
@pytest.mark.parametrize("columns", [100, 300])
def test_loops_are_run_to_their_end_or_the_call_fails(columns):
    """Lavapipe leaves the loops of a thread after 65535 iterations."""
    a, got = np.arange(5, dtype="int32"), np.zeros(5, "int32")
    call = compile(parse(LONG.replace("COLUMNS", str(columns))), "webgpu")
    if webgpu_device().leaves_loops and columns == 300:
        with pytest.raises(GpuError, match="main_kernel0: its loops were left early"):
            call(a, got)
        return
    call(a, got)
    want = np.zeros(5, "int32")
    with np.errstate(over="ignore"):
        for i, j in np.ndindex(300, columns):
            want = want * np.int32(3) ^ (a + np.int32(i + j))
    np.testing.assert_array_equal(got, want)


PACKED = """
@T.prim_func
def main(A: T.Buffer((SIZE,), "DTYPE"), B: T.Buffer((SIZE,), "DTYPE"), L: T.Buffer((SIZE,), "bool")):
    with T.block("root"):
        S = T.alloc_buffer((SIZE,), "DTYPE", scope="shared")
        P = T.alloc_buffer((2,), "DTYPE", scope="local")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(SIZE, thread="threadIdx.x"):
                S[t] = A[t]
            for t in T.thread_binding(SIZE, thread="threadIdx.x"):
                P[t % 2] = S[SIZE - 1 - t]
                B[t] = T.max(P[t % 2], B[t])
                L[t] = A[t] < P[t % 2]
"""
"""Elements that share words, in the memory of the call, of a block and of a thread."""


@needs_adapter
@pytest.mark.parametrize("size", [1, 3, 7, 8, 61])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_packed_integers_at_the_ends_of_their_types(dtype, size):
    rng = np.random.default_rng(size)
    a, b = rng.choice(ends(dtype), (2, size))
    got, less = b.copy(), np.zeros(size, "bool")
    compile(parse(PACKED.replace("SIZE", str(size)).replace("DTYPE", dtype)), "webgpu")(a, got, less)
    np.testing.assert_array_equal(got, np.maximum(a[::-1], b))
    np.testing.assert_array_equal(less, a < a[::-1])


@needs_adapter
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
    module = tw.build(s, "webgpu")
    for size in (0, 1, 40):
        a = np.arange(size * 7, dtype="float32").reshape(size, 7)
        assert (module(a) == a[::-1] * 2 + 1).all()


@needs_adapter
def test_times_are_those_of_the_device():
    module = tw.build("softmax:M=7,N=50", "webgpu")
    assert "analytic model" in module.origin
    x = np.zeros((7, 50), "float32")
    found = module.time_evaluator(repeat=3, number=2)(x, np.empty_like(x))
    assert len(found.results) == 3 and all(0 < t < 60 for t in found.results)


@needs_adapter
def test_a_bound_call_runs_again():
    module, a, b = compile(parse(REVERSED), "webgpu"), np.arange(64, dtype="float32"), np.zeros(64, "float32")
    call = module.bind(a, b)
    for _ in range(2):
        b[:] = 0
        call()
        assert (b == a[::-1]).all()


@pytest.mark.parametrize(
    ("func", "said"),
    [
        (each("A[i]", "float64"), "WGSL has no float64: the elements of [AB]"),
        (each("A[i]", "int64"), "WGSL has no int64: the elements of [AB]"),
        (each('T.Cast("float32", T.Cast("float64", A[i]) * T.float64(2))'), "WGSL has no float64"),
        (parse(REVERSED.replace("S[v] = A[v]", 'T.evaluate(T.call_extern("int32", "f", T.address_of(S[v])))')),
         "no WGSL form for the call"),
    ],
)  # fmt: skip
def test_what_wgsl_has_not_is_refused_by_name(func, said):
    with pytest.raises(EmitError, match=said):
        compile(func, "webgpu").get_source()


@needs_adapter
def test_launches_beyond_the_limits_are_refused():
    limits = webgpu_device().limits
    threads = limits["max-compute-invocations-per-workgroup"] * 2
    blocks = limits["max-compute-workgroups-per-dimension"] + 1
    for count, tag, said in (
        (threads, "threadIdx.x", f"has {threads} threads in a block, .* at most"),
        (blocks, "blockIdx.x", f"has {blocks} blocks along an axis, .* at most {blocks - 1}"),
    ):
        x = te.placeholder((count,), name="X")
        s = tw.Schedule(te.create_prim_func([x, te.compute((count,), lambda i, x=x: x[i] + 1, name="Y")]))
        s.bind(s.get_loops("Y")[0], tag)
        with pytest.raises(WebGpuError, match=said):
            tw.build(s, "webgpu")(np.zeros(count, "float32"))


@needs_adapter
def test_an_adapter_that_is_not_there(monkeypatch):
    monkeypatch.setenv(CHOICE, "no such adapter")
    with pytest.raises(WebGpuError, match="no WebGPU adapter 'no such adapter'"):
        WebGpuDevice()


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wgpu", None)
    with pytest.raises(WebGpuError, match="pip install wgpu"):
        WebGpuDevice()


@needs_adapter
def test_tuning_measures_on_the_device(tmp_path):
    a, b = te.placeholder((24, 16), name="A"), te.placeholder((16, 40), name="B")
    tensors = [a, b, te.ops.matmul(a, b)]
    result = tw.tune(te.create_prim_func(tensors), "webgpu", trials=2, final_race=0, db=tmp_path / "records.db")
    assert result.best is not None and result.best.times and "clock" not in result.best.machine
    module = tw.build(tensors, "webgpu", db=tmp_path / "records.db")
    assert module.origin.startswith("record ")
    x, y = np.arange(384, dtype="float32").reshape(24, 16) % 5, np.arange(640, dtype="float32").reshape(16, 40) % 7
    assert (module(x, y) == x @ y).all()
