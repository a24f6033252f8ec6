"""Bugs that a mutation run planted and no other test found."""

from tilewright import te
from tilewright.tir import Add, Var, decl_buffer
from tilewright.tir.analysis.simplify import bind_sizes
from tilewright.tir.arith import Analyzer
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


def test_sizes_are_at_least_one():
    n = te.var("n")
    analyzer = Analyzer()
    bind_sizes(analyzer, [decl_buffer((n, 4), "float32", "A")])
    assert analyzer.const_int_bound(n) == (1, None)
    assert analyzer.can_prove(n >= 1) and not analyzer.can_prove(n >= 2)
