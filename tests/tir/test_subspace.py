"""Bindings taken apart into outer and inner loops: the parts give the whole again, and nothing is missed."""

import itertools
import random

import pytest

from tilewright.tir.arith import divide_subspace
from tilewright.tir.expr import IntImm, Range, Reason, Var
from tilewright.tir.interpret.interpret_expr import ExprCompiler


def loops(**extents):
    made = {name: Var(name) for name in extents}
    return made, {made[name]: Range.from_extent(n) for name, n in extents.items()}


def values(exprs, ranges):
    """One tuple of values per iteration, the first loop outermost."""
    compiler = ExprCompiler(None, {})
    slots = [compiler.slot(v) for v in ranges]
    runs = [compiler.compile(e) for e in exprs]
    for point in itertools.product(*[range(r.min.value, r.min.value + r.extent.value) for r in ranges.values()]):
        for slot, value in zip(slots, point, strict=True):
            compiler.registers[slot] = value
        yield point, [run() for run in runs]


def check(bindings, ranges, inner, found, predicate=None):
    """The parts make up the bindings; the outer ones are swept in full, with every combination of inner ones."""
    parts = [e for d in found.divisions for e in (d.outer, d.inner)]
    sides = [found.outer_predicate, found.inner_predicate]
    tests = [e for e in (predicate, *sides) if e is not None]
    seen = set()
    for point, got in values([*bindings, *parts, *tests], ranges):
        whole, halves, truth = (
            got[: len(bindings)],
            got[len(bindings) : len(bindings) + len(parts)],
            got[len(bindings) + len(parts) :],
        )
        assert predicate is None or truth[0] == all(truth[1:]), point
        if not all(truth):
            continue
        for n, d in enumerate(found.divisions):
            outer, low = halves[2 * n : 2 * n + 2]
            assert 0 <= outer < d.outer_extent.value and 0 <= low < d.inner_extent.value
            assert whole[n] == outer * d.inner_extent.value + low + d.base.value
        seen.add(tuple(halves))
    size = 1
    for d in found.divisions:
        size *= d.outer_extent.value * d.inner_extent.value
    assert len(seen) == size


def names(e):
    from tilewright.tir.walk import vars_in

    return {v.name for v in vars_in(e)}


def test_a_split():
    v, ranges = loops(i=4, j=8)
    found = divide_subspace([v["i"] * 8 + v["j"] + 3], ranges, [v["j"]])
    (d,) = found.divisions
    assert (str(d.outer), str(d.inner), str(d.base)) == ("i", "j", "3")
    check([v["i"] * 8 + v["j"] + 3], ranges, "j", found)


def test_sums_are_written_from_the_left():
    v, ranges = loops(a=8, b=2, c=1, d=4)
    found = divide_subspace([v["a"] * 2 + v["b"] + v["c"], v["d"]], ranges, [v["d"]], keep_unit=True)
    assert str(found.divisions[0].outer) == "a * 2 + b + c"
    found = divide_subspace([v["a"] * 2 + v["b"] + v["c"], v["d"]], ranges, [v["d"]])
    assert str(found.divisions[0].outer) == "a * 2 + b"


def test_a_fused_loop_split_across_two_axes():
    v, ranges = loops(f=12, g=10)
    whole = v["f"] * 10 + v["g"]
    bindings = [whole // 5, whole % 5]
    found = divide_subspace(bindings, ranges, [v["g"]])
    assert [str(d.inner_extent) for d in found.divisions] == ["2", "5"]
    check(bindings, ranges, "g", found)
    bindings = [whole // 20, whole % 20]
    found = divide_subspace(bindings, ranges, [v["g"]])
    assert [(str(d.outer_extent), str(d.inner_extent)) for d in found.divisions] == [("6", "1"), ("2", "10")]
    check(bindings, ranges, "g", found)


@pytest.mark.parametrize("inner, limit", [("ij", 100), ("j", None)])
def test_predicates_on_one_side(inner, limit):
    v, ranges = loops(k=3, i=4, j=32)
    value = v["i"] * 32 + v["j"]
    found = divide_subspace([value, v["k"]], ranges, [v[n] for n in inner], value < 100)
    if limit is None:
        assert isinstance(found, Reason) and "joins outer and inner loops" in found.text
    else:
        assert str(found.inner_predicate) == "i * 32 + j < 100" and found.outer_predicate is None
        check([value, v["k"]], ranges, inner, found, value < 100)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda i, j: [i * 8 + j, i], "overlapping|independent|bindings"),
        (lambda i, j: [j * 4 + i], "has a larger scale"),
        (lambda i, j: [i * j], "multiplies"),
        (lambda i, j: [i * 16 + j], "leave gaps"),
    ],
)
def test_what_cannot_be_divided(make, words):
    import re

    v, ranges = loops(i=4, j=8)
    found = divide_subspace(make(v["i"], v["j"]), ranges, [v["j"]])
    assert isinstance(found, Reason) and re.search(words, found.text), found


@pytest.mark.parametrize("seed", range(60))
def test_random_splits_and_fusions(seed):
    """Axes split into loops, some loops fused and split again; some suffix of the loops is inner."""
    rng = random.Random(seed)
    pieces = []  # (value as a function of the loops, extent) per loop, outermost first
    ranges = {}
    bindings = []
    for a in range(rng.randint(1, 3)):
        factors = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 3))]
        digits = [Var(f"a{a}{n}") for n in range(len(factors))]
        value = IntImm(0)
        for var, factor in zip(digits, factors, strict=True):
            value = value * factor + var
        bindings.append(value)
        pieces.append(list(zip(digits, factors, strict=True)))
    order = []
    while any(pieces):  # loops of different axes interleaved, digits of an axis in order
        order.append(rng.choice([p for p in pieces if p]).pop(0))
    n = 0
    mapping = {}
    while n < len(order):
        if n + 1 < len(order) and rng.random() < 0.3:
            (x, fx), (y, fy) = order[n : n + 2]
            fused = Var(f"f{n}")
            mapping[x], mapping[y] = fused // fy, fused % fy
            ranges[fused] = Range.from_extent(fx * fy)
            n += 2
        else:
            var, factor = order[n]
            ranges[var] = Range.from_extent(factor)
            n += 1
    from tilewright.tir.walk import substitute

    bindings = [substitute(b, mapping) for b in bindings]
    cut = rng.randint(0, len(ranges))
    inner = list(ranges)[cut:]
    for keep in (False, True):
        found = divide_subspace(bindings, ranges, inner, keep_unit=keep)
        if isinstance(found, Reason):  # a fused loop may hold digits in an order that no division has
            assert keep or any(v.name.startswith("f") for v in ranges), found
            continue
        check(bindings, ranges, inner, found)
        for d in found.divisions:
            assert not names(d.outer) & {v.name for v in inner}
            assert names(d.inner) <= {v.name for v in inner}


def test_loops_from_a_symbolic_start():
    i, j, m = Var("i"), Var("j"), Var("m")
    ranges = {i: Range(m, IntImm(8)), j: Range(m, IntImm(16))}
    (found,) = divide_subspace([i * 16 + j], ranges, [j]).divisions
    assert [str(e) for e in (found.outer, found.inner, found.base)] == ["i - m", "j - m", "m * 17"]
