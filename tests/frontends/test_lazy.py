"""``tilewright.lazy``: names of the array API standard, compared with array-api-strict and NumPy; what is compiled when."""

import gc

import numpy as np
import pytest

from tilewright import lazy as xp
from tilewright.doors.lazy_array import settings

from .array_api_names import CASES, LEFT_OUT, difference, names

strict = pytest.importorskip("array_api_strict", reason="it is the oracle: pip install array-api-strict")

ROWS = [
    pytest.param(call, dtypes[n % len(dtypes)], id=f"{name}-{k}")
    for n, (name, rows) in enumerate(sorted(CASES.items()))
    for k, (dtypes, call) in enumerate(rows)
]
"""Each case with one of its data types; ``python -m tests.frontends.array_api_names`` takes all."""

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()


@pytest.mark.parametrize(("call", "dtype"), ROWS)
def test_equal_to_the_oracle(call, dtype):
    assert difference(call, dtype, strict) == ""


def test_no_name_is_forgotten():
    there = {name for name in names(strict) if hasattr(xp, name)}
    assert set(names(strict)) - there == set(LEFT_OUT)
    assert {name for name in there if name not in CASES and callable(getattr(xp, name))} == {"__array_namespace_info__"}


def outcome(namespace, call):
    try:
        return str(call(namespace).dtype).rpartition(".")[2]
    except (TypeError, OverflowError) as error:
        return type(error).__name__


def expected(call):
    """What the standard says, and NumPy where the standard has no data type for both."""
    found = outcome(strict, call)
    return outcome(np, call) if found == "TypeError" else found


@pytest.mark.parametrize("first", DTYPES)
def test_promotion(first):
    """Of all pairs of data types, and with Python numbers."""
    for second in DTYPES:

        def both(xp, second=second):
            return xp.asarray(xp.ones(3, dtype=getattr(xp, first)) == xp.ones(3, dtype=getattr(xp, second)))

        def result(xp, second=second):
            return xp.empty(0, dtype=xp.result_type(getattr(xp, first), getattr(xp, second)))

        assert outcome(xp, both) == expected(both), second
        assert outcome(xp, result) == expected(result), second
    for number in (True, 3, -1, 300, 0.5):

        def added(xp, number=number):
            return xp.where(xp.ones(2, dtype=xp.bool), xp.ones(2, dtype=getattr(xp, first)), number)

        assert outcome(xp, added) == expected(added), number


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x + xp.ones(4), ValueError),
        (lambda x: x & x, TypeError),
        (lambda x: -(x > 0), TypeError),
        (lambda x: xp.subtract(x > 0, x > 0), TypeError),
        (lambda x: xp.sum(x, axis=1), ValueError),
        (lambda x: xp.sum(x, axis=(0, 0)), ValueError),
        (lambda x: xp.max(x[:0]), ValueError),
        (lambda x: xp.argmax(x[:0]), ValueError),
        (lambda x: x[3], IndexError),
        (lambda x: (x + 1)[0, 0], IndexError),
        (lambda x: xp.reshape(x, (2, 2)), ValueError),
        (lambda x: x @ xp.ones(()), ValueError),
        (lambda x: x.T, ValueError),
        (lambda x: bool(x), ValueError),
        (lambda x: int(x), TypeError),
        (lambda x: len(x[0]), TypeError),
        (lambda x: hash(x), TypeError),
        (lambda x: x + "a", TypeError),
        (lambda x: xp.asarray(1j), TypeError),
        (lambda x: xp.astype(x, np.complex64), TypeError),
        (lambda x: xp.asarray(np.ones(2, np.float16)), TypeError),
        (lambda x: xp.asarray([1, 2], copy=False), ValueError),
        (lambda x: xp.asarray("text"), TypeError),
        (lambda x: x.to_device("gpu"), ValueError),
        (lambda x: x.__array_namespace__(api_version="1999"), ValueError),
        (lambda x: xp.tensordot(x, xp.ones(1), axes=1), ValueError),
        (lambda x: xp.ones(3, dtype=xp.int8) + 300, OverflowError),
        (lambda x: xp.cumulative_sum(xp.ones((2, 2))), ValueError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call(xp.ones(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, i, f, b: i * f,
        lambda xp, i, f, b: xp.sin(i),
        lambda xp, i, f, b: i / 2,
        lambda xp, i, f, b: xp.logical_not(f),
        lambda xp, i, f, b: b + b,
        lambda xp, i, f, b: xp.maximum(b, ~b) * 3,
        lambda xp, i, f, b: xp.max(b),
        lambda xp, i, f, b: xp.mean(i),
        lambda xp, i, f, b: xp.concat([i, f]),
        lambda xp, i, f, b: xp.where(i, i, f),
        lambda xp, i, f, b: f[xp.argsort(i)] + b,
    ],
)
def test_where_the_standard_says_nothing_numpy_does(call):
    given = np.array([3, -1, 2], np.int32), np.array([0.5, 0.0, -2.0], np.float32), np.array([True, False, True])
    found, wanted = np.asarray(call(xp, *[xp.asarray(a) for a in given])), call(np, *given)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, 1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda xp: xp.asarray(np.array([1.0, 2.0, 3.0], ">f4")) + 1.0,
        lambda xp: xp.asarray(np.frombuffer(b"." + np.arange(3, dtype="f4").tobytes(), "f4", 3, 1)) + 1.0,
        lambda xp: (xp.asarray(np.arange(5.0)) * 2.0)[xp.asarray(1) : np.int8(4)],
    ],
    ids=["another byte order", "not aligned", "a slice from an array on"],
)
def test_data_as_numpy_takes_it(call):
    np.testing.assert_array_equal(np.asarray(call(xp)), call(np))


def compiled(run):
    """How many structures a function compiles."""
    before = len(settings.compiled)
    run()
    return len(settings.compiled) - before


def test_nothing_is_computed_before_a_value_is_used():
    x = xp.asarray(np.arange(7.0))
    y = xp.tanh(x * 2.0 - 1.0)
    assert y.shape == (7,) and y.dtype == xp.float64 and y.expression.data is None
    assert compiled(lambda: float(y[3])) == 1
    assert y.expression.data is not None and compiled(lambda: float(y[3])) == 0


def test_a_loop_of_equal_steps_compiles_once():
    w, x = xp.asarray(np.eye(13)), xp.asarray(np.ones((5, 13)))

    def steps():
        nonlocal x
        for _ in range(4):
            x = xp.tanh(x @ w) + x
            assert np.isfinite(float(xp.sum(x)))

    assert compiled(steps) == 1


def test_a_number_that_changes_becomes_an_input():
    x = xp.asarray(np.arange(13.0))
    found = []

    def steps():
        found.extend([float(xp.sum(x * (0.5 + n))) for n in range(5)])

    assert compiled(steps) == 2
    assert found == [78 * (0.5 + n) for n in range(5)]


def test_a_value_that_somebody_has_is_computed_with_the_rest():
    x = xp.asarray(np.ones(17))
    kept, ones = x * 3.0, xp.ones(17, dtype=xp.float64)
    assert float(xp.sum(kept + ones)) == 17 * 4
    assert kept.expression.data is not None and ones.expression.data is None


@pytest.mark.parametrize("step", [lambda x: x + 1.0, lambda x: xp.concat([x[1:], x[:1]])])
def test_long_chains(step):
    x = xp.asarray(np.zeros(3))
    for _ in range(600):
        x = step(x)
    assert float(xp.sum(x)) in (0.0, 1800.0)
    gc.collect()


def test_assignment_leaves_others_as_they_were():
    a = np.arange(6.0)
    x = xp.asarray(a)
    before, view = x + 0.0, x[2:4]
    a[:] = 7  # the data was copied
    x[2:4] = 9.0
    x[xp.asarray([0, 5])] += 1.0
    assert np.asarray(before).tolist() == [0, 1, 2, 3, 4, 5] and np.asarray(view).tolist() == [2, 3]
    assert np.asarray(x).tolist() == [1, 1, 9, 9, 4, 6]


def test_numpy_and_dlpack():
    x = xp.asarray(np.arange(5, dtype=np.int32)) * 2
    a = np.asarray(x)
    assert a.tolist() == [0, 2, 4, 6, 8] and not a.flags.writeable and np.shares_memory(a, np.asarray(x))
    assert np.shares_memory(np.from_dlpack(x), a)
    assert np.array(x, copy=True).flags.writeable and np.asarray(x, np.float64).dtype == np.float64
    shared = np.ones(3, np.float32)
    assert np.shares_memory(np.asarray(xp.asarray(shared, copy=False)), shared)
    assert np.shares_memory(np.asarray(xp.from_dlpack(shared)), shared)
    assert (np.arange(5, dtype=np.int32) + x).dtype == xp.int32 and isinstance(a + x, xp.Array)
    assert repr(xp.asarray([1.0, 2.0])) == "Array([1., 2.], dtype=float32)"


def test_functions_of_numpy_stay_lazy():
    x = xp.asarray(np.arange(1.0, 5.0))
    y = np.tanh(x) + np.power(x, 2.0) - np.absolute(np.negative(x))
    assert isinstance(y, xp.Array) and y.expression.data is None
    np.testing.assert_allclose(
        np.asarray(y), np.tanh(np.arange(1.0, 5.0)) + np.arange(1.0, 5.0) ** 2 - np.arange(1.0, 5.0)
    )
    refused = (
        lambda: np.add.reduce(x),
        lambda: np.spacing(x),
        lambda: np.add(x, 1.0, where=np.ones(4, bool)),
        lambda: np.add(x, 1.0, out=np.zeros(4)),
        lambda: np.add(1.0, x, out=x),
    )
    for call in refused:
        with pytest.raises(TypeError):
            call()


def test_an_operator_in_place_makes_a_new_array():
    x = y = xp.asarray(np.arange(3.0))
    x += 1.0
    assert np.asarray(x).tolist() == [1, 2, 3] and np.asarray(y).tolist() == [0, 1, 2]
    data = np.zeros(3)
    with pytest.raises(TypeError):
        data += x
    assert data.tolist() == [0, 0, 0]


def test_the_namespace_of_an_array():
    assert xp.ones(1).__array_namespace__(api_version="2024.12") is xp
    info = xp.__array_namespace_info__()
    assert list(info.dtypes()) == DTYPES and list(info.dtypes(kind="bool")) == ["bool"] and info.devices() == ["cpu"]
    assert info.default_dtypes()["real floating"] == xp.asarray(1.0).dtype


def test_the_graph():
    x = xp.asarray(np.ones((2, 3), np.float32))
    graph = xp.graph_of(xp.sqrt(x) @ xp.ones((3, 4)), x - 1.0)
    assert [v.shape for v in graph.inputs] == [(2, 3)] and [v.shape for v in graph.outputs] == [(2, 4), (2, 3)]


def test_any_shapes():
    """Shapes that broadcast, and keys, as hypothesis draws them for namespaces of the standard."""
    pytest.importorskip("hypothesis")
    from hypothesis import given, seed
    from hypothesis import settings as limits
    from hypothesis import strategies as st
    from hypothesis.extra.array_api import make_strategies_namespace

    xps = make_strategies_namespace(xp)

    @seed(0)
    @limits(max_examples=8, deadline=None, database=None)
    @given(st.data(), st.sampled_from(["int8", "uint32", "float64"]))
    def check(data, dtype):
        shapes, shape = data.draw(xps.mutually_broadcastable_shapes(2, max_dims=3, max_side=7))
        m, n = [(np.arange(np.prod(s, dtype=int)) % 11).astype(dtype).reshape(s) for s in shapes]
        a, b = xp.asarray(m), xp.asarray(n)
        key = data.draw(xps.indices(shape, allow_newaxis=True))
        found = [a * b + a, xp.broadcast_to(a, shape), (a + b)[key], xp.sum(a, axis=None)]
        expected = [m * n + m, np.broadcast_to(m, shape), (m + n)[key], np.sum(m)]
        for x, e in zip(found, expected, strict=True):
            assert np.array_equal(np.asarray(x), e)

    check()
