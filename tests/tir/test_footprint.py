"""Boxes that accesses cover: those that are claimed hold exactly the elements of all iterations."""

import itertools
import random

import pytest

from tilewright.tir.analysis.footprint import exact_box
from tilewright.tir.arith import Analyzer
from tilewright.tir.expr import IntImm, Range, Var
from tilewright.tir.interpret.interpret_expr import ExprCompiler

X, Y, Z, N = (Var(name) for name in "ijkn")


def values(exprs, ranges):
    """The values of ``exprs`` in each iteration of loops with constant ends."""
    compiler = ExprCompiler(None, {})
    slots = [compiler.slot(v) for v in ranges]
    runs = [compiler.compile(e) for e in exprs]
    for point in itertools.product(*[range(r.min.value, r.min.value + r.extent.value) for r in ranges.values()]):
        for slot, value in zip(slots, point, strict=True):
            compiler.registers[slot] = value
        yield [run() for run in runs]


def check(indices, ranges, conditions, once=False):
    """Whether a box is claimed; it is compared with the elements that the iterations touch."""
    analyzer = Analyzer()
    for var, r in ranges.items():
        analyzer.bind(var, r)
    box = exact_box(analyzer, indices, ranges, conditions, once)
    if box is None:
        return False
    touched = [
        tuple(p[len(conditions) :]) for p in values([*conditions, *indices], ranges) if all(p[: len(conditions)])
    ]
    if not all(next(values(box.conditions, {}))):
        assert not touched
        return True
    ends = [next(values(end, {})) for end in box.ends]
    inside = set(itertools.product(*[range(low, high + 1) for low, high in ends]))
    if box.complete:
        assert set(touched) == inside, (indices, ranges, conditions, ends)
    else:
        assert inside <= set(touched), (indices, ranges, conditions, ends)
    assert not once or len(touched) == len(set(touched)), (indices, ranges, conditions)
    return True


def drawn(rng):
    """One or two indices over three loops, and up to two conditions on loops, on indices or on high digits."""
    ranges = {v: Range(IntImm(rng.choice((0, 0, 1, -2))), IntImm(rng.randint(1, 5))) for v in (X, Y, Z)}
    small = rng.choice((1, 1, 2, 3, 4))
    index = (
        X * (small * rng.randint(1, 4)) + Y * small * rng.choice((1, 1, 2, -1)) + rng.choice((Z, -Z, IntImm(3), Z + 5))
    )
    indices = [index] if rng.random() < 0.6 else [X * small + Y, Z * rng.choice((1, 1, -1)) + 2]
    limit = rng.randint(-2, 12)
    made = (
        X < limit,
        Y >= limit,
        index <= limit * 2,
        X * small + Y < limit * 2,
        X + Y <= limit,
        0 - X <= limit,
        X * 2 >= limit,
    )
    return indices, ranges, rng.sample(made, rng.choice((0, 1, 1, 2)))


def test_boxes_hold_the_elements_touched():
    rng = random.Random(0)
    found = [check(*drawn(rng), once=rng.random() < 0.3) for _ in range(400)]
    assert sum(found) > 120


def test_high_digits_of_a_sum_with_a_falling_one():
    ranges = {X: Range.from_extent(8), Y: Range.from_extent(4), Z: Range.from_extent(4)}
    assert exact_box(Analyzer(), [X * 4 + Y * 2 - Z], ranges, [X < 3]) is None  # from -3 to 14, not to 11


def test_low_digits_of_unknown_extent():
    analyzer = Analyzer()
    analyzer.bind(N, (4, 100))
    ranges = {X: Range.from_extent(8), Y: Range.from_extent(N)}
    assert exact_box(analyzer, [X * 4 + Y], ranges).ends[0][0].value == 0
    assert exact_box(analyzer, [X * 4 + Y], ranges, [X < 3]) is None


HIGH = [
    (X * 4 + Y, X < 3, (0, 11)),
    (X * 4 + Y, X >= 3, (12, 31)),
    (X * 4 + Y, X * 2 < 6, (0, 11)),
    (X * 4 - Y, X < 3, None),
    (Y * 2 + Z + X * 8 + 5, X < 2, (5, 20)),
    (Y * 2 + Z + X * 8 + 5, X * 4 + Y < 6, (5, 16)),
    (Y * 2 + Z + X * 8 + 5, X * 8 + Z < 6, None),
    (Y * 2 + Z + X * 8 + 5, X * 2 + Y < 6, None),
]


@pytest.mark.parametrize("index, condition, ends", HIGH, ids=[f"{i} with {c}" for i, c, _ in HIGH])
def test_conditions_on_high_digits(index, condition, ends):
    box = exact_box(
        Analyzer(), [index], {X: Range.from_extent(8), Y: Range.from_extent(4), Z: Range.from_extent(2)}, [condition]
    )
    assert ends is None if box is None else tuple(e.value for e in box.ends[0]) == ends
