"""Bugs that a mutation run planted and no other test found."""

import pytest

from tilewright import te
from tilewright.tir import Add, Evaluate, PrimFunc, Var, const, decl_buffer, parse
from tilewright.tir.analysis.scope import BlockScope, why_not_reduction
from tilewright.tir.analysis.simplify import bind_sizes, simplify
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.arith import Analyzer, iter_map_simplify
from tilewright.tir.arith.itermap.inverse_map import invert
from tilewright.tir.expr import IntImm, Range, Reason
from tilewright.tir.walk import pre_order


def narrow_sums(e):
    return [n for n in pre_order(e) if isinstance(n, Add) and n.dtype == "int32"]


def test_a_wide_sum_is_narrowed_only_where_it_fits():
    i, j = Var("i"), Var("j")
    total = i.astype("int64") + j.astype("int64")
    for low, high, fits in ((0, 2**30, True), (0, 2**31, False), (-(2**30), 0, True), (-(2**31), 1, False)):
        analyzer = Analyzer()
        for v in (i, j):
            analyzer.bind(v, (low, high - 1))
        assert bool(narrow_sums(analyzer.simplify(total))) is fits


def test_sizes_are_at_least_one_inside_loops_over_them():
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    analyzer = Analyzer()
    handle = Var("handle", "handle")
    bind_sizes(analyzer, PrimFunc((handle,), Evaluate(const(0)), {handle: decl_buffer((n, m, 4), "float32", "A")}))
    assert analyzer.const_int_bound(n) == (0, None) and not analyzer.can_prove(n >= 1)
    for extent, least in (
        (n, 1),
        (n * m, 1),
        ((n + 31) // 32, 1),
        (n - 3, 4),
        (n // 4, 4),
        (n // 2 * m, 2),
        ((n - 3) * (n // 4), 4),
        (n + 1, 0),
        (n * 0 + 7, 0),
    ):
        with analyzer.nonempty(extent):
            assert analyzer.can_prove(n >= least) and not analyzer.can_prove(n >= least + 1), extent
        assert not analyzer.can_prove(n >= 1), extent
    with analyzer.nonempty(k):  # the loop has iterations, whatever is known of its extent
        assert analyzer.can_prove(k >= 1) and not analyzer.can_prove(n >= 1)
    analyzer.learn_nonempty(n + m * 0, m * n)
    assert analyzer.can_prove(n * m >= 1)


def test_axes_with_something_added_are_solved_for():
    v, n = Var("v"), Var("n")
    doms = {v: Range(IntImm(0), IntImm(8))}
    for index, want in ((v + 3, "p - 3"), (v + n, "p - n"), (n - v, "n - p"), (5 - v, "5 - p")):
        analyzer, place = Analyzer(), Var("p")
        analyzer.bind(v, doms[v])
        solved, _ = invert(analyzer, doms, [index], [place])
        assert analyzer.can_prove_equal(
            solved[v], {"p - 3": place - 3, "p - n": place - n, "n - p": n - place}.get(want, 5 - place)
        )
    assert isinstance(invert(Analyzer(), doms, [n + 1], [Var("p")]), Reason)


def test_constants_of_comparisons_stand_alone():
    x, y = Var("x"), Var("y")
    for a, b in ((IntImm(0) < x + 3, IntImm(-3) < x), (IntImm(0) < x + y + 3, IntImm(-3) < x + y), (x + 3 > 5, x > 2)):
        assert str(simplify(a)) == str(simplify(b))


def test_even_powers_are_not_negative():
    x, y = Var("x"), Var("y")
    analyzer = Analyzer()
    for v in (x, y):
        analyzer.bind(v, (-2, 3))
    bounds = {x * x: (0, 9), x * x * x: (-18, 27), x * x * x * x: (0, 81), x * y * y: (-18, 27), x * x * y * y: (0, 81)}
    assert {e: tuple(analyzer.const_int_bound(e)) for e in bounds} == bounds


def test_a_digit_that_is_always_zero():
    i, n = Var("i"), Var("n")
    assert [str(e) for e in iter_map_simplify([i // n], {i: Range(IntImm(0), n)})] == ["0"]


SUM = """
@T.prim_func
def main(A: T.Buffer((4, 5)), S: T.Buffer((4,))):
    for i, k in T.grid(4, 5):
        with T.block("S"):
            v = T.axis.{kind}(4, i)
            vk = T.axis.reduce(5, k)
            with T.init():
                S[{place}] = T.float32(0)
            S[{place}] = S[{place}] + A[v, vk]
    for i in T.grid(4):
        with T.block("other"):
            v = T.axis.spatial(4, i)
            {other}
"""


@pytest.mark.parametrize(
    "kind, place, other, why",
    [
        ("spatial", "v", "T.evaluate(0)", None),
        ("spatial", "v", "S[v] = S[v] * T.float32(2)", "buffer S is written by 'other' too"),
        ("spatial", "vk", "T.evaluate(0)", "its reduce axis vk addresses the output S"),
        ("scan", "v", "T.evaluate(0)", "its axis v is"),
    ],
)
def test_what_is_a_reduction_block(kind, place, other, why):
    tree = tree_of(parse(SUM.format(kind=kind, place=place, other=other)))
    (realize,) = tree.blocks["S"]
    found = why_not_reduction(BlockScope(tree.scope(realize)), realize.block)
    assert found is None if why is None else why in str(found)


def test_products_of_quotients_by_anything():
    i, n = Var("i"), Var("n")
    unknown, positive = Analyzer(), Analyzer()
    positive.bind(n, (1, None))
    for test in (i // n * n <= i, i // n * n >= i - n + 1, i // n * n * 2 <= i * 2):
        assert positive.can_prove(test) and not unknown.can_prove(test)
