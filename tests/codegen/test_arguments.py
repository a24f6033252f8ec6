"""Calls: what fits is passed without a copy, what does not is refused with words that help."""

import ctypes
import itertools
import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.c.c_header import argument_type
from tilewright.codegen.lowered import LoweredFunc, Param, abi_of
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.arguments import ArgumentError, Arguments, apart, view_of
from tilewright.codegen.runtime.native_glue import UNUSUAL, fast_call_ir, glue_for
from tilewright.tir.expr import DType, IntImm, Var, max_value, min_value
from tilewright.tir.parser import parse
from tilewright.tir.stmt import BufferStore, Evaluate, PrimFunc, decl_buffer


class Foreign:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, array, device=1, versioned=False):
        self.array, self.device, self.versioned = array, device, versioned

    def __dlpack__(self, **options):
        if not self.versioned:
            options.pop("max_version", None)
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


def data(n=7):
    a = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
    return a, np.full_like(a, np.nan)


@pytest.mark.parametrize("n", [0, 1, 7, 13, 16, 17])
def test_symbolic_sizes(scale_module, n):
    f = scale_module()
    a, b = data(n)
    f(a, b, 2.0)
    np.testing.assert_array_equal(b, 2 * a)
    f(a, b, 3)
    np.testing.assert_array_equal(b, 3 * a)
    f(a, b, np.float32(0.5))
    np.testing.assert_array_equal(b, a / 2)


def test_the_quick_path_is_taken(scale_module):
    function = scale_module()["scale"]
    a, b = data()
    assert function._quick(function.address, a, b, 2.0) == 0
    np.testing.assert_array_equal(b, 2 * a)


@pytest.mark.parametrize("wrap", [Foreign, lambda x: Foreign(x, versioned=True)])
def test_dlpack(scale_module, wrap):
    a, b = data()
    scale_module()(wrap(a), wrap(b), 4.0)
    np.testing.assert_array_equal(b, 4 * a)


def test_dlpack_view_is_no_copy():
    a = np.arange(24, dtype=np.int16).reshape(4, 6)[::2, 1:]
    view = view_of(Foreign(a))
    assert (view.pointer, view.shape, view.strides, view.dtype) == (a.ctypes.data, (2, 5), (12, 1), "int16")
    assert not view.is_compact()
    assert view_of(a).extent_bytes() == (a.ctypes.data, a.ctypes.data + 2 * (12 + 5))


def test_memory_elsewhere_is_refused(scale_module):
    a, b = data()
    with pytest.raises(ArgumentError, match=r"argument 0 \(A\): its memory is on cuda, not in main memory"):
        scale_module()(Foreign(a, device=2), b, 1.0)


def read_only(b):
    b.flags.writeable = False
    return b


def unaligned(n=7):
    return np.zeros(16 * n + 1, np.uint8)[1:].view(np.float32).reshape(n, 4)


SHARED = np.zeros(60, np.float32)
WRONG = {
    "too few": (lambda a, b: (a, b), "scale takes 3 arguments, 2 were given"),
    "too many": (lambda a, b: (a, b, 1.0, 2), "takes 3 arguments, 4 were given; it is scale(A: float32[n, 4]"),
    "list": (lambda a, b: ([1.0], b, 1.0), "argument 0 (A): expected an array, A: float32[n, 4], got list; np.asarray"),
    "dtype": (
        lambda a, b: (a.astype("f8"), b, 1.0),
        "0 (A): expected dtype float32, got float64; convert it with .ast",
    ),
    "swapped bytes": (lambda a, b: (a.astype(">f4"), b, 1.0), "got float32 of the other byte order"),
    "rank": (lambda a, b: (a[0], b, 1.0), "argument 0 (A): expected 2 dimensions, A: float32[n, 4], got 1: shape (4,)"),
    "extent": (
        lambda a, b: (a, b[:, :3].copy(), 1.0),
        "argument 1 (B): expected 4 in dimension 1, got 3: shape (7, 3)",
    ),
    "symbol": (lambda a, b: (a, b[:5], 1.0), "1 (B): expected 7 (n, bound by another argument) in dimension 0, got 5"),
    "order": (lambda a, b: (np.asfortranarray(a), b, 1.0), "row-major array without gaps, got strides (1, 7)"),
    "gaps": (lambda a, b: (np.zeros((7, 8), "f4")[:, ::2], b, 1.0), "strides (8, 2) (in elements) for shape (7, 4)"),
    "read-only": (lambda a, b: (a, read_only(b), 1.0), "argument 1 (B): it is written to, but the array is read-only"),
    "unaligned": (lambda a, b: (unaligned(), b, 1.0), "argument 0 (A): the array is not aligned to its elements of 4"),
    "same": (lambda a, b: (a, a, 1.0), "argument 1 (B): it is written to and shares memory with argument 0 (A)"),
    "overlap": (
        lambda a, b: (SHARED[:28].reshape(7, 4), SHARED[24:52].reshape(7, 4), 1.0),
        "1 (B): it is written to and shares",
    ),
    "scalar": (lambda a, b: (a, b, "x"), "argument 2 (s): expected a number, float32, got str"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_errors(scale_module, case):
    make, message = WRONG[case]
    a, b = data()
    with pytest.raises(ArgumentError, match=re.escape(message)):
        scale_module()(*make(a, b))
    if b.flags.writeable:
        assert np.isnan(b).all()


def test_neighbours_do_not_overlap(scale_module):
    both = np.arange(56, dtype=np.float32)
    scale_module()(both[:28].reshape(7, 4), both[28:].reshape(7, 4), 2.0)
    np.testing.assert_array_equal(both[28:], 2 * both[:28])


def test_a_failed_assertion_is_an_error(scale_module):
    a, b = data(100)
    with pytest.raises(RuntimeError, match="scale: more than 99 rows"):
        scale_module()(a, b, 1.0)


def test_bind_keeps_its_arrays(scale_module):
    a, b = data()
    bound = scale_module().bind(a, b.copy(), 2.0)  # nobody else holds the copy, nor the module
    bound()
    out = bound._alive[1]
    np.testing.assert_array_equal(out, 2 * a)
    a[:] = 1
    bound()
    np.testing.assert_array_equal(out, 2 * a)
    with pytest.raises(ArgumentError, match="shares memory"):
        scale_module().bind(a, a, 2.0)


def buffer_function(*buffers, scalars=()):
    handles = [Var(f"p_{b.name}", "handle") for b in buffers]
    return PrimFunc((*handles, *scalars), Evaluate(IntImm(0)), dict(zip(handles, buffers, strict=True)))


def prepared(func, *args):
    return Arguments("f", abi_of(func)).prepare(args)[0]


def test_sizes_in_sums_and_products():
    n, m = Var("n"), Var("m", "int64")
    func = buffer_function(decl_buffer((2 * n + 1, m - 3), "int8", "A"), decl_buffer((m // 2,), "int8", "B"))
    assert [p.name for p in abi_of(func)] == ["A", "B", "n", "m"]
    a, b = np.zeros((7, 10), np.int8), np.zeros(6, np.int8)
    assert prepared(func, a, b)[2:] == [3, 13]
    with pytest.raises(ArgumentError, match=r"expected 6 \(m // T.int64\(2\).*, got 7|expected 6 .*got 7"):
        prepared(func, a, np.zeros(7, np.int8))
    with pytest.raises(ArgumentError, match="dimension 0, got 8"):  # 8 is no 2n + 1
        prepared(func, np.zeros((8, 10), np.int8), b)


def test_a_size_that_no_argument_tells():
    n = Var("n")
    func = buffer_function(decl_buffer((n * n,), "int8", "A"))
    with pytest.raises(ArgumentError, match="expected None|no argument tells the size n"):
        prepared(func, np.zeros(9, np.int8))


def test_a_scalar_parameter_is_a_size_too():
    n = Var("n")
    func = buffer_function(decl_buffer((n,), "int8", "A"), scalars=(n,))
    assert [p.kind for p in abi_of(func)] == ["buffer", "scalar"]
    assert prepared(func, np.zeros(13, np.int8), 13)[1:] == [13]
    with pytest.raises(ArgumentError, match=r"argument 0 \(A\): expected 12 \(n, bound by another argument\)"):
        prepared(func, np.zeros(13, np.int8), 12)


def test_strides_of_the_buffer():
    s = Var("s", "int64")
    func = buffer_function(decl_buffer((4, 5), "float32", "A", strides=(s, 1)))
    big = np.zeros((4, 17), np.float32)
    assert prepared(func, big[:, :5])[1:] == [17]
    with pytest.raises(ArgumentError, match="expected a stride of 1 elements in dimension 1, got 2"):
        prepared(func, big[:, :10:2])


@pytest.mark.parametrize(
    "dtype, good, bad, message",
    [
        ("int8", [-128, 127, np.int64(5)], 128, r"128 does not fit int8 \(-128 … 127\)"),
        ("uint8", [0, 255], -1, "-1 does not fit uint8"),
        ("int64", [2**62], 2**63, "does not fit int64"),
        ("int32", [np.array(3)], 1.5, "expected a whole number, int32, got float"),
        ("bool", [True, False, 1], 2, "expected a truth value, got 2"),
        ("float64", [1, 2.5, np.float32(3)], "1", "expected a number, float64, got str"),
    ],
)
def test_scalars(dtype, good, bad, message):
    func = buffer_function(scalars=(Var("x", dtype),))
    for value in good:
        assert prepared(func, value) == [value]
    with pytest.raises(ArgumentError, match=message):
        prepared(func, bad)


def test_half_scalars_travel_as_bits():
    func = buffer_function(scalars=(Var("x", "float16"), Var("y", "bfloat16")))
    assert prepared(func, 1.0, 1.0) == [0x3C00, 0x3F80]
    assert prepared(func, -2.0, float("nan"))[0] == 0xC000 - 0x10000
    assert prepared(func, 0.0, 1.00390625) == [0, 0x3F80]  # half way: to even
    assert prepared(func, 0.0, 1.01171875) == [0, 0x3F82]


def test_bfloat16_arrays_are_their_bits():
    func = buffer_function(decl_buffer((3,), "bfloat16", "A"))
    a = np.zeros(3, np.uint16)
    assert prepared(func, a) == [a.ctypes.data]
    with pytest.raises(ArgumentError, match="expected dtype bfloat16, got float32; pass the bits as uint16"):
        prepared(func, a.astype(np.float32))


def test_signatures_without_a_quick_path():
    n = Var("n")
    for func in (
        buffer_function(decl_buffer((n + 1,), "int8", "A")),
        buffer_function(decl_buffer((4,), "int8", "A", strides=(2,))),
        buffer_function(scalars=(Var("k", "bool"),)),
    ):
        params = abi_of(func)
        assert fast_call_ir(params) is None
        assert glue_for(params).call is None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_of_the_quick_path(dtype):
    call = glue_for(abi_of(buffer_function(scalars=(Var("k", dtype),)))).call
    function = ctypes.CFUNCTYPE(ctypes.c_int32, f_type(dtype))(lambda k: k % 100)
    address = ctypes.cast(function, ctypes.c_void_p).value
    low, high = min_value(dtype), max_value(dtype)
    for value in (0, 3, low, min(high, (1 << 63) - 1), np.int64(3), np.uint8(7)):
        assert call(address, value) == value % 100
    for wrong in (low - 1, high + 1, high + 4, 3 - (1 << DType(dtype).bits), 3 + (1 << DType(dtype).bits)):
        if -(1 << 63) <= wrong < 1 << 63:
            assert call(address, wrong) == UNUSUAL
        else:
            with pytest.raises(ctypes.ArgumentError):
                call(address, wrong)
    for wrong in (3.0, True, "3", np.float32(3)):
        with pytest.raises(ctypes.ArgumentError):
            call(address, wrong)


def f_type(dtype):
    return getattr(ctypes, f"c_{dtype}")


def test_sizes_of_the_quick_path_agree_with_the_arrays():
    n = te.var("n")
    A = te.placeholder((n, 2), name="A")
    run = tw.build([A, n, te.compute((n, 2), lambda i, j: A[i, j] + 1, name="B")])
    a, out = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
    run(a, 3, out)
    assert (out == 1).all()
    with pytest.raises(ArgumentError):
        run(a, 2, out)


def test_equal_signatures_share_their_glue():
    first, second = (buffer_function(decl_buffer((Var("n"), 8), "int8", "A")) for _ in range(2))
    assert glue_for(abi_of(first)) is glue_for(abi_of(second))


def test_glue_is_the_same_in_every_process(monkeypatch):
    def text():
        return fast_call_ir(
            abi_of(buffer_function(decl_buffer((Var("n"), 8), "int8", "A"), decl_buffer((3,), "float32", "B")))
        )

    here = text()
    assert str(id(np.ndarray)) not in here and str(id(np.dtype("int8"))) not in here
    assert all(f"@{name} = external" in here for name in ("tw_ndarray", "tw_dtype_int8", "tw_dtype_float32"))


def test_written_buffers_are_found():
    a, b, c = (decl_buffer((4,), "float32", name) for name in "ABC")
    handles = [Var(x, "handle") for x in "abc"]
    body = BufferStore(c, a[0] + b[0], (IntImm(0),))
    func = PrimFunc(tuple(handles), body, dict(zip(handles, (a, b, c), strict=True)))
    lowered = LoweredFunc.of(func, Target("native"), "add")
    assert [p.writes for p in lowered.params] == [False, False, True]
    assert [argument_type(p) for p in lowered.params] == ["const float*", "const float*", "float*"]


def test_addresses_that_are_only_looked_at_write_nothing(monkeypatch):
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        {call}
        B[i] = A[i]
"""
    fetched = parse(text.format(call="T.prefetch(T.address_of(A[i]), 0, 3)"))
    passed = parse(text.format(call='T.call_extern("void", "write", T.address_of(A[i]))'))
    assert [p.writes for p in abi_of(passed)] == [True, True]
    monkeypatch.setattr("tilewright.codegen.lowered.accesses_below", None)  # a look at all accesses takes long
    assert [p.writes for p in abi_of(fetched)] == [False, True]


def test_spelling_in_llvm_and_c():
    def spelled(dtype):
        p = Param("scalar", Var("x", dtype), DType(dtype))
        return p.llvm_type, argument_type(p)

    assert spelled("bool") == ("i8", "uint8_t")
    assert spelled("bfloat16") == spelled("float16") == ("i16", "uint16_t")
    assert spelled("uint32") == ("i32", "uint32_t")
    assert spelled("float64") == ("double", "double")


def single(dtype, value):
    """An array of no dimensions, read; what a call with ``value`` passes for it."""
    buffer, data = decl_buffer((), dtype, "s"), Var("s", "handle")
    target = Param("buffer", data, DType(dtype), buffer, False)
    arguments = Arguments("f", (target,))
    _, (owner,) = arguments.prepare([value])
    return np.asarray(owner)


@pytest.mark.parametrize("dtype, value", [
    ("float32", np.float32(2.5)), ("float32", 2.5), ("float32", 3), ("float64", 2.5), ("float16", np.float16(2.5)),
    ("int32", 7), ("int64", np.int64(-7)), ("int8", np.int8(7)), ("bool", True), ("float32", np.ones(5, np.float32).sum()),
])  # fmt: skip
def test_a_number_is_an_array_of_no_dimensions(dtype, value):
    got = single(dtype, value)
    assert got.shape == () and got == value


@pytest.mark.parametrize("dtype, value, message", [
    ("float32", np.float64(2.5), "expected dtype float32, got float64"),
    ("int32", 2.5, "expected an array, s: int32[], got float"),
    ("int8", 300, "expected an array, s: int8[], got int"),
    ("int32", True, "expected an array, s: int32[], got bool"),
])  # fmt: skip
def test_a_number_of_another_type_is_refused(dtype, value, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        single(dtype, value)


@pytest.mark.parametrize(
    ("dtype", "place"),
    [*itertools.product(["int1", "uint1"], ["input", "output", "scalar"]), ("int4", "scalar"), ("uint2", "scalar")],
)
def test_arguments_narrower_than_a_byte_are_refused(dtype, place):
    x, narrow, s = te.placeholder((8,), name="X"), te.placeholder((8,), dtype, name="N"), te.var("N", dtype)
    args = {
        "input": [narrow, te.compute((8,), lambda i: narrow[i].astype("float32"), name="Y")],
        "output": [x, te.compute((8,), lambda i: x[i].astype(dtype), name="N")],
        "scalar": [s, x, te.compute((8,), lambda i: x[i] * s.astype("float32"), name="Y")],
    }[place]
    with pytest.raises(ValueError, match=f"N is an argument of {dtype}.* declare it as {dtype[:-1]}8"):
        compile(te.create_prim_func(args))


def many(results, inputs=1):
    """A function of many arguments, ``outs[n][i] = a[i]``, and the lines of its glue."""
    params = [
        Param("buffer", Var(f"a{n}", "handle"), DType("float32"), decl_buffer((4,), "float32", f"a{n}"))
        for n in range(inputs)
    ]
    params += [
        Param("buffer", Var(f"o{n}", "handle"), DType("float32"), decl_buffer((4,), "float32", f"o{n}"), True)
        for n in range(results)
    ]
    return params


def test_the_glue_grows_in_proportion_to_the_arguments():
    lines = {n: len(fast_call_ir(many(n)).splitlines()) for n in (100, 200, 800)}
    assert lines[200] - lines[100] <= 100 * 60
    assert lines[800] - lines[200] <= 6.2 * (lines[200] - lines[100])
    functions = fast_call_ir(many(800)).split("define ")
    assert all(f.count("\nplain") <= 64 for f in functions)  # LLVM's time grows with the square of a function


@pytest.mark.parametrize("results", [1, 7, 8, 9, 63, 64, 65, 130, 300, 1001, 1100])
def test_many_results(results):
    text = ["from tilewright.tir import script as T", "@T.prim_func"]
    arrays = ", ".join(f"o{n}: T.Buffer((2,), 'float32')" for n in range(results))
    text += [f"def f(a: T.Buffer((2,), 'float32'), {arrays}):", "    for i in range(2):"]
    text += [f"        o{n}[i] = a[i] + T.float32({n})" for n in range(results)]
    function = tw.codegen.compile(parse("\n".join(text)), "native -num-cores=1")["f"]
    a = np.array([0.5, 2], np.float32)
    made = function(a)
    for n, o in enumerate([made] if results == 1 else made):
        np.testing.assert_array_equal(o, a + n)
    memory = np.zeros(2 * (results + 1), np.float32)
    given = [memory[2 * n : 2 * n + 2] for n in range(results + 1)][::-1]
    given[0][:] = a
    function(*given)  # neighbours, in falling order
    np.testing.assert_array_equal(given[-1], a + results - 1)
    if results <= 900:
        assert function._quick(function.address, *given) == 0
        spans = [*given[:-1], memory[1:3]]  # overlaps the one before
        assert results == 1 or function._quick(function.address, *spans) == UNUSUAL
    with pytest.raises(ArgumentError, match="shares memory"):
        function(*given[:-1], given[0])


def test_spans_that_meet():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        spans = [
            (int(b), int(b + rng.integers(1, 6)), bool(rng.integers(2)))
            for b in rng.integers(0, 40, rng.integers(1, 7))
        ]
        pairs = [(x, y) for n, x in enumerate(spans) for y in spans[:n] if x[2] or y[2]]
        assert apart(spans) == (not any(x[0] < y[1] and y[0] < x[1] for x, y in pairs))


@pytest.mark.parametrize("symbolic", [False, True])
def test_arrays_that_a_call_makes_are_aligned(symbolic):
    rows = te.size_var("n") if symbolic else 40
    x = te.placeholder((rows, 50), name="x")
    module = compile(te.create_prim_func([x, te.compute((rows, 50), lambda i, j: x[i, j] + 1.0, name="y")]))
    kept = [module(np.ones((40, 50), np.float32)) for _ in range(4)]
    assert {y.ctypes.data % 64 for y in kept} == {0}
    assert all((y == 2.0).all() and y.flags.writeable and y.flags.c_contiguous for y in kept)
