"""What is built accesses its buffers inside, or checks at the call that it does, or is refused."""

from __future__ import annotations

import ctypes
import logging

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import lower
from tilewright.codegen.lower.check_accesses import check_accesses
from tilewright.tir import parse
from tilewright.tir.stmt import AssertStmt, For
from tilewright.tir.walk import pre_order

TARGET = "native -num-cores=1"
AB = "A: T.Buffer((8,)), B: T.Buffer((8,))"


def program(body: str, params: str = AB) -> tw.PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return parse(f"@T.prim_func\ndef main({params}):\n{lines}\n")


def copied(loops: int, domain: str, value: str = "i", where: str = "True") -> str:
    return f"""
for i in range({loops}):
    with T.block("B"):
        vi = T.axis.spatial({domain}, {value})
        T.where({where})
        B[vi] = A[vi]
"""


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# -- refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (copied(1000000, "1000000"), "the index is 999999 at i = 999999, which is outside 0 … 7"),
        (copied(1000, "8"), "the index is 999 at i = 999"),  # the domain says 8, the loop gives more
        (copied(9, "9"), r"reads A\[i\] of shape \(8\), dimension 0: the index is 8"),
        (copied(8, "(-1, 7)", "i - 1"), "the index is -1 at i = 0"),
        (copied(100, "9", where="i < 9"), "the index is 8 at i = 8"),
        ("for i in range(2):\n    B[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(0, 1, 8)]", "the index is 8 at i = 1"),
        ("for i in range(2):\n    B[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(2, -1, 4)]", "the index is -1 at the only element"),
        ("for i in range(8):\n    B[i] = T.Select(i < 4, A[i + 4], A[i])", "the index is 11 at i = 7"),
        ("for i in range(8):\n    B[i * i] = A[i]", "the index is 49 at i = 7"),
        ("for i in range(8):\n    for j in range(i, 9):\n        B[j] = A[i]", "the index is 8 at j = 8"),
        ("C = T.decl_buffer((16,), data=B.data)\nfor i in range(16):\n    C[i] = A[0]", "shows 64 bytes of B, which has 32"),
        ("""
C = T.alloc_buffer((4,))
for i in range(8):
    with T.block("C"):
        vi = T.axis.spatial(8, i)
        C[vi] = A[vi]
for i in range(8):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        B[vi] = A[vi]
""", r"writes C\[i\] of shape \(4\)"),
        ("""
for i in range(8):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        T.reads(A[vi:vi + 4])
        T.writes(B[vi])
        M = T.match_buffer(A[vi:vi + 4], (4,), offset_factor=1)
        B[vi] = M[3]
""", r"reads A\[i \+ 3\] of shape \(8\), dimension 0: the index is 10 at i = 7"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", [TARGET, "c"])
def test_an_access_outside_is_refused(body, message, target):
    with pytest.raises(IndexError, match=message):
        lower(program(body), target)


def test_the_place_is_marked():
    with pytest.raises(IndexError) as error:
        tw.build(program(copied(9, "9")), target=TARGET)
    assert "^" in str(error.value) and "B[" in str(error.value)


# -- proven ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        copied(8, "8"),
        copied(100, "8", where="i < 8"),
        copied(8, "(0, 8)", "7 - i"),
        copied(16, "8", "i % 8"),
        copied(0, "100"),
        "for i in range(3):\n    for j in range(3):\n        if i * 3 + j < 8:\n            B[i * 3 + j] = A[i * 3 + j]",
        "for i in range(2):\n    B[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(7 - i, -1, 4)]",
        "for i in range(9):\n    if i >= 1:\n        B[i - 1] = T.if_then_else(i < 8, A[i], A[0])",
        "for i in range(100):\n    B[i * 3 % 8] = A[i * 5 % 7]",
        "for i in range(8):\n    for j in range(8 - i):\n        B[i + j] = A[i]",
        "C = T.decl_buffer((2, 4), data=B.data)\nfor i in range(8):\n    C[i // 4, i % 4] = A[i]",
    ],
)  # fmt: skip
def test_what_is_inside_needs_no_check(body):
    func = lower(program(body), TARGET).func
    assert not any(isinstance(n, AssertStmt) for n in pre_order(func.body))


def test_scheduled_programs_are_proven():
    n = te.var("n")
    A = te.placeholder((n, 37), name="A")
    P = te.compute((n, 39), lambda i, j: te.if_then_else(te.all(j >= 1, j < 38), A[i, j - 1], 0.0), name="P")
    k = te.reduce_axis((0, 3), name="k")
    B = te.compute((n, 37), lambda i, j: te.sum(P[i, j + k], axis=k), name="B")
    sch = tw.Schedule(te.create_prim_func([A, B]))
    fused = sch.fuse(*sch.get_loops("B")[:2])
    _, inner = sch.split(fused, [None, 16])
    sch.vectorize(inner)
    sch.split(sch.get_loops("P")[0], [None, 8])
    lowered = lower(sch, TARGET).func
    assert not any(isinstance(s, AssertStmt) for s in pre_order(lowered.body))
    a = np.random.default_rng(0).random((5, 37), np.float32)
    padded = np.pad(a, ((0, 0), (1, 1)))
    np.testing.assert_allclose(
        tw.build(sch, target=TARGET)(a), padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:], rtol=1e-6
    )


# -- checked at the call --------------------------------------------------------------------------------------------------


def _one_reduction():
    A, n = te.placeholder((16,), name="A"), te.var("n")
    t = te.reduce_axis((0, n), name="t")
    return [A, n, te.compute((1,), lambda i: te.sum(A[t], axis=t), name="B")]


def _two_reductions():
    A, n, m = te.placeholder((16, 8), name="A"), te.var("n"), te.var("m")
    r, s = te.reduce_axis((0, n), name="r"), te.reduce_axis((0, m), name="s")
    return [A, n, m, te.compute((1,), lambda i: te.sum(A[r, s], axis=[r, s]), name="B")]


def _nested_reductions():
    A, n = te.placeholder((16,), name="A"), te.var("n")
    r = te.reduce_axis((0, n), name="r")
    S = te.compute((n,), lambda i: te.sum(A[r] * A[i], axis=r), name="S")
    t = te.reduce_axis((0, n), name="t")
    return [A, n, te.compute((1,), lambda i: te.sum(S[t], axis=t), name="B")]


def _cache():
    K, filled = te.placeholder((64, 8), name="K"), te.var("filled")
    t, r = te.reduce_axis((0, filled), name="t"), te.reduce_axis((0, 8), name="r")
    S = te.compute((filled,), lambda i: te.sum(K[i, r], axis=r), name="S")
    return [K, filled, te.compute((8,), lambda j: te.sum(S[t] * K[t, j], axis=t), name="O")]


def _shifted():
    n = te.var("n")
    A, k = te.placeholder((n,), name="A"), te.var("k")
    return [A, k, te.compute((n,), lambda i: te.if_then_else(i + k < n, A[i + k], 0.0), name="B")]


def _guarded():
    A, n, p = te.placeholder((16,), name="A"), te.var("n"), te.var("p")
    return [A, n, p, te.compute((n,), lambda i: te.if_then_else(i < p, A[i], 0.0), name="B")]


def _strided():
    A, n = te.placeholder((17,), name="A"), te.var("n")
    return [A, n, te.compute((n,), lambda i: te.if_then_else(i * 2 < n, A[i * 2], 0.0), name="B")]


def _remainder():
    A, n = te.placeholder((8,), name="A"), te.var("n")
    return [A, n, te.compute((n,), lambda i: A[i % 16], name="B")]


CALLS = [
    (_one_reduction, (16,), [(0,), (1,), (16,), (-3,)], [(17,), (64,), (10**6,)]),
    (_two_reductions, (16, 8), [(16, 8), (0, 99), (99, 0)], [(3, 9), (17, 1)]),
    (_nested_reductions, (16,), [(0,), (16,)], [(17,)]),
    (_cache, (64, 8), [(0,), (1,), (64,)], [(65,), (10**5,)]),
    (_shifted, (7,), [(0,), (3,), (100,)], [(-1,)]),
    (_guarded, (16,), [(100, 16), (8, 100), (16, 16), (0, 5)], [(17, 17), (100, 17)]),
    (_strided, (17,), [(0,), (17,), (18,)], [(19,), (20,), (100,)]),
    (_remainder, (8,), [(0,), (8,)], [(9,), (20,)]),
]


@pytest.mark.parametrize("target", [TARGET, "c"])
@pytest.mark.parametrize(("made", "shape", "right", "wrong"), CALLS, ids=[case[0].__name__ for case in CALLS])
def test_what_sizes_decide_is_checked_at_the_call(made, shape, right, wrong, target):
    func = te.create_prim_func(made())
    f = tw.build(func, target=target)
    a = ones(*shape)
    for values in right:
        got = f(a, *values)
        want = np.full_like(got, np.nan)
        tw.tir.interpret(func, a, *values, want)
        np.testing.assert_array_equal(got, want)
    for values in wrong:
        with pytest.raises(RuntimeError, match=r"reads [AK]\[.*dimension [01]: .*(lie within|outside) 0 … "):
            f(a, *values)


def test_sizes_of_zero_and_derived_sizes():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    first = tw.build([A, te.compute((3,), lambda i: A[0], name="B")], target=TARGET)
    assert first(ones(1)).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"reads A\[0\] of shape \(n\)"):
        first(ones(0))
    half = tw.build([A, te.compute((n // 2,), lambda i: A[2 * i + 1] + A[2 * i], name="B")], target=TARGET)
    for size in (0, 1, 2, 3, 7):
        assert half(ones(size)).tolist() == [2] * (size // 2)
    inner = tw.build([A, te.compute((n - 2,), lambda i: A[i + 2] + A[i], name="B")], target=TARGET)
    for size in (2, 3, 7):
        assert inner(ones(size)).tolist() == [2] * (size - 2)


def test_writes_of_parsed_programs_are_checked():
    f = tw.build(program("for i in range(n):\n    B[i] = T.float32(1)", "B: T.Buffer((8,)), n: T.int32"), target=TARGET)
    out = np.zeros(8, np.float32)
    f(out, 8)
    assert out.sum() == 8
    with pytest.raises(RuntimeError, match=r"writes B\[i\].* the indices 0 … n - 1 have to lie within 0 … 7"):
        f(out, 9)


@pytest.mark.parametrize(
    ("index", "dtype", "right", "wrong"),
    [
        ("T.Cast('int32', k)", "uint8", (0, 7), (8, 255)),
        ("T.Cast('int32', k)", "int8", (0, 7), (8, -1)),
        ("k", "int64", (0, 7), (8, -1, 1 << 40)),
        ("T.shift_right(k, 1)", "int32", (0, 15), (16, -1)),
        ("T.bitwise_and(k, 15)", "int32", (0, 7, 16), (8, 31, -1)),
        ("T.truncdiv(k, 2)", "int32", (0, 15, -1), (16, -2)),
    ],
)
@pytest.mark.parametrize("target", [TARGET, "c"])
def test_scalars_of_all_types_are_checked(index, dtype, right, wrong, target):
    f = tw.build(program(f"B[{index}] = T.float32(1)", f"B: T.Buffer((8,)), k: T.{dtype}"), target=target)
    for k in right:
        out = np.zeros(8, np.float32)
        f(out, k)
        assert out.sum() == 1
    for k in wrong:
        with pytest.raises(RuntimeError, match="dimension 0"):
            f(np.zeros(8, np.float32), k)


def test_one_assertion_for_equal_conditions():
    A, B, n = te.placeholder((16,), name="A"), te.placeholder((16,), name="B"), te.var("n")
    C = te.compute((n,), lambda i: A[i] * B[i] + A[i], name="C")
    func = lower(te.create_prim_func([A, B, n, C]), TARGET).func
    assert sum(isinstance(s, AssertStmt) for s in pre_order(func.body)) == 1


def test_an_assertion_of_the_program_is_believed():
    text = 'assert n <= 8, "too many"\nfor i in range(n):\n    B[i] = T.float32(1)'
    func = lower(program(text, "B: T.Buffer((8,)), n: T.int32"), TARGET).func
    assert sum(isinstance(s, AssertStmt) for s in pre_order(func.body)) == 1


def test_a_check_walks_only_where_the_simple_one_fails():
    func = check_accesses(program("for i in range(n):\n    if i < p:\n        B[i] = T.float32(1)",
                                  "B: T.Buffer((8,)), n: T.int32, p: T.int32"))  # fmt: skip
    walk = func.body.seq[0]
    assert any(isinstance(s, For) for s in pre_order(walk)) and str(walk.condition) != "True"


def test_indices_from_memory_are_not_checked_and_it_is_said(caplog):
    caplog.set_level(logging.INFO, logger="tilewright")
    text = "for i in range(8):\n    B[i] = A[I[i]]"
    f = tw.build(program(text, AB + ', I: T.Buffer((8,), "int32")'), target=TARGET)
    out = np.zeros(8, np.float32)
    f(np.arange(8, dtype=np.float32), out, np.arange(8, dtype=np.int32)[::-1].copy())
    assert out.tolist() == list(range(8))[::-1]
    assert "whether the index is inside is not checked" in caplog.text
    caplog.clear()
    lower(
        program("for i in range(8):\n    B[i] = A[T.max(T.min(I[i], 7), 0)]", AB + ', I: T.Buffer((8,), "int32")'),
        TARGET,
    )
    assert "not checked" not in caplog.text


# -- C --------------------------------------------------------------------------------------------------------------------


def test_a_null_array_is_an_error_code(tmp_path):
    n = te.var("n")
    A, X = te.placeholder((16,), name="A"), te.placeholder((n,), name="X")
    module = tw.build([A, X, te.compute((n,), lambda i: X[i] + A[0], name="B")], target=TARGET, name="shifted")
    path = tmp_path / "shifted.so"
    module.export(str(path))
    call = ctypes.CDLL(str(path)).shifted
    a, x, out = ones(16), ones(4), np.zeros(4, np.float32)

    def called(a, x, out, size):
        places = [None if one is None else ctypes.c_void_p(one.ctypes.data) for one in (a, x, out)]
        return call(*places, ctypes.c_int64(size))

    assert called(a, x, out, 4) == 0 and out.tolist() == [2] * 4
    assert [called(None, x, out, 4), called(a, None, out, 4), called(a, x, None, 4)] == [-3, -3, -3]
    assert called(a, None, None, 0) == 0


# -- random programs ------------------------------------------------------------------------------------------------------

SIZES = [(0, 0), (0, 3), (1, 1), (2, 5), (4, 4), (7, 2), (8, 9), (-2, 1)]


def _random_program(rng: np.random.Generator) -> str:
    """Returns the text of loops over two scalars, with conditions, around a store that may be outside."""

    def pick(*texts: str) -> str:
        return texts[rng.integers(len(texts))]

    def term(names: tuple[str, ...]) -> str:
        c = int(rng.integers(1, 4))
        return pick("{v}", f"{{v}} * {c}", f"({{v}} + {c})", f"{{v}} // {c}", f"{{v}} % {c}").format(v=pick(*names))

    bounds = ("n", "m", "4", "3", "n + 1", "n - 1", "T.min(n, m)")
    index = pick("{0}", "{0} + {1}", "{0} - {1}", "{0} - 1", "T.max({0} - 1, 0)", "7 - {0}")
    guard = pick("True", "{0} < {b}", "{0} + {1} < {b}", "{0} >= 1 and {1} < {b}", "n < 5", "{0} * 2 < {b}")
    names, body = ("i", "j"), []
    index, guard = (t.format(term(names), term(names), b=pick(*bounds)) for t in (index, guard))
    body = [
        "@T.prim_func",
        'def main(B: T.Buffer((SIZE,)), n: T.int32, m: T.int32):'.replace("SIZE", pick("8", "8", "5", "1")),
        f"    for i in range({pick(*bounds)}):",
        f"        for j in range({pick(*bounds, 'i')}):",
        f"            if {guard}:",
        f"                B[{index}] = T.float32(1)",
    ]  # fmt: skip
    return "\n".join(body)


@pytest.mark.parametrize("seed", range(120))
def test_what_is_checked_is_what_happens(seed):
    """The interpreter, which looks at every access, says which calls are wrong."""
    func = parse(_random_program(np.random.default_rng(seed)))
    size = func.buffers[0].shape[0].value
    wrong = []
    for n, m in SIZES:
        try:
            tw.tir.interpret(func, np.zeros(size, np.float32), n, m)
        except Exception:
            wrong.append((n, m))
    try:
        checked = check_accesses(func)
    except IndexError:
        assert len(wrong) == len(SIZES), f"refused, and only {wrong} are wrong"
        return
    for n, m in SIZES:
        caught = False
        try:
            tw.tir.interpret(checked, np.zeros(size, np.float32), n, m)
        except Exception as error:
            caught = True
            assert "dimension 0:" in str(error), f"not checked for n = {n}, m = {m}: {error}"
        assert caught == ((n, m) in wrong), f"n = {n}, m = {m}\n{checked.script()}"


FACTORS = {
    "n * (n // 2)": lambda n: (n, n // 2),
    "3 * n * (n // 2)": lambda n: (3 * n, n // 2),
    "(n - 2) * (n // 2)": lambda n: (n - 2, n // 2),
    "4 * n * (n - 2)": lambda n: (4 * n, n - 2),
}


@pytest.mark.parametrize("name", FACTORS)
def test_loops_of_two_sizes_that_were_fused_need_no_checks(name: str) -> None:
    """A loop over a product has iterations where both factors are at least 1; quotients and remainders are in range."""
    n = te.var("n")
    rows, columns = FACTORS[name](n)
    x, u = te.placeholder((rows, columns), name="x"), te.placeholder((n,), name="u")
    sch = tw.Schedule(te.create_prim_func([u, x, te.compute((rows, columns), lambda i, j: x[i, j] + 1.0, name="y")]))
    sch.fuse(*sch.get_loops("y"))
    assert not any(isinstance(node, AssertStmt) for node in pre_order(lower(sch.func, TARGET).func.body))
    run = tw.build(sch, TARGET)
    for size in (2, 3, 4, 9, 17):
        shape = FACTORS[name](size)
        a = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        b = np.zeros(shape, np.float32)
        run(ones(size), a, b)
        np.testing.assert_array_equal(b, a + 1)
