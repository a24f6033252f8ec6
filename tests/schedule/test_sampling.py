"""Decisions: what is drawn, how evenly, and what is refused."""

import math
from collections import Counter

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.primitives import compute_at
from tilewright.schedule.primitives.sampling import _draw_factorization, count_factorizations
from tilewright.tir import parse


def factorizations(x, n):
    if n == 1:
        return [(x,)]
    return [(d, *rest) for d in range(1, x + 1) if x % d == 0 for rest in factorizations(x // d, n - 1)]


@pytest.mark.parametrize(("x", "n"), [(1, 1), (1, 3), (12, 2), (36, 3), (17, 4), (1024, 2)])
def test_count(x, n):
    assert count_factorizations(x, n) == len(factorizations(x, n))


@pytest.mark.parametrize(("x", "n", "most"), [(12, 3, 4), (36, 2, 36), (16, 4, 2), (13, 2, 1)])
def test_perfect_tiles_are_drawn_evenly(x, n, most):
    rng = np.random.default_rng(0)
    allowed = [f for f in factorizations(x, n) if f[-1] <= most]
    rounds = 400 * len(allowed)
    counts = Counter(tuple(_draw_factorization(x, n, most, rng)) for _ in range(rounds))
    assert set(counts) == set(allowed)
    chi2 = sum((counts[f] - 400) ** 2 / 400 for f in allowed)
    assert chi2 < len(allowed) + 5 * math.sqrt(2 * len(allowed)) + 5


@pytest.mark.parametrize("extent", [1, 7, 13, 16, 17, 96])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_sampled_tiles_split(matmul, agree, replays, extent, n):
    func = matmul(extent, 3, 2)
    for seed in range(3):
        for sample in ("sample_perfect_tile", "sample_tile"):
            sch = Schedule(func, seed=seed)
            i = sch.get_loops("C")[0]
            sizes = getattr(sch, sample)(i, n=n, max_innermost_factor=5 if n > 1 else extent)
            sch.split(i, sizes)
            numbers = [sch.get(v) for v in sizes]
            assert len(numbers) == n and math.prod(numbers) >= extent and (n == 1 or numbers[-1] <= 5)
            if sample == "sample_perfect_tile":
                assert math.prod(numbers) == extent
            replays(sch, func)
        agree(func, sch.func)


def test_decisions_are_checked(matmul):
    sch = Schedule(matmul(12, 17, 7))
    i = sch.get_loops("C")[0]
    assert [sch.get(v) for v in sch.sample_perfect_tile(i, n=2, decision=[3, 4])] == [3, 4]
    with pytest.raises(ScheduleError, match="the decision \\[3, 5\\] makes 15 iterations, loop i has 12"):
        sch.sample_perfect_tile(i, n=2, decision=[3, 5])
    with pytest.raises(ScheduleError, match="is not a list of 2 positive sizes"):
        sch.sample_perfect_tile(i, n=2, decision=[3, 4, 1])
    with pytest.raises(ScheduleError, match="is not a list of 2 positive sizes"):
        sch.sample_tile(i, n=2, decision=[12, 0])
    with pytest.raises(ScheduleError, match="its outermost size would be 3"):
        sch.sample_tile(i, n=2, decision=[2, 5])
    with pytest.raises(ScheduleError, match="at least one loop and at most 1024, not 0"):
        sch.sample_perfect_tile(i, n=0)
    with pytest.raises(ScheduleError, match="max_innermost_factor is at least 1"):
        sch.sample_perfect_tile(i, n=2, max_innermost_factor=0)


SYMBOLIC = """
@T.prim_func
def main(a: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    for i in range(n):
        with T.block("A"):
            vi = T.axis.spatial(n, i)
            A[vi] = T.float32(1)
"""


@pytest.mark.parametrize("sample", ["sample_perfect_tile", "sample_partitioned_tile"])
@pytest.mark.parametrize("tiles", [1, 3])
def test_a_loop_of_unknown_extent_is_not_tiled(agree, replays, sample, tiles):
    func = parse(SYMBOLIC)
    sch = Schedule(func, debug_mask="all")
    i = sch.get_loops("A")[0]
    sizes = getattr(sch, sample)(i, n=tiles)
    assert sch.trace.insts[-1].decision == [-1] + [1] * (tiles - 1)
    assert [sch.get(v) for v in sizes] == [None] + [1] * (tiles - 1)
    loops = sch.split(i, sizes)
    assert [str(sch.get(v).extent) for v in loops] == ["n"] + ["1"] * (tiles - 1)
    agree(func, sch.func, n=13)
    replays(sch, func)
    with pytest.raises(ScheduleError, match=r"the decision \[4, 2\] tiles loop i_0, whose extent n is not a constant"):
        getattr(sch, sample)(loops[0], n=2, decision=[4, 2])


def test_symbolic_extents_cannot_be_drawn():
    sch = Schedule(parse(SYMBOLIC))
    i = sch.get_loops("A")[0]
    with pytest.raises(ScheduleError, match="the extent n of loop i is not a constant"):
        sch.sample_tile(i, n=2)
    with pytest.raises(ScheduleError, match="the extent n of loop i is not a constant"):
        sch.sample_partitioned_tile(i, n=2, innerpart_factor=4)


def test_categorical(matmul):
    sch = Schedule(matmul(), seed=0)
    counts = Counter(sch.get(sch.sample_categorical([3, 5, 9], [0.1, 0.0, 0.9])) for _ in range(300))
    assert set(counts) == {3, 9} and counts[9] > counts[3]
    assert sch.get(sch.sample_categorical([3, 5], [0.5, 0.5], decision=1)) == 5
    with pytest.raises(ScheduleError, match="2 candidates with 1 probabilities"):
        sch.sample_categorical([1, 2], [1.0])
    with pytest.raises(ScheduleError, match="do not sum up to 1"):
        sch.sample_categorical([1, 2], [0.7, 0.7])
    with pytest.raises(ScheduleError, match="the decision 2 is not a position among 2 candidates"):
        sch.sample_categorical([1, 2], [0.5, 0.5], decision=2)


def test_compute_location(chain, agree, replays):
    func = chain()
    seen = set()
    for seed in range(12):
        sch = Schedule(func, seed=seed)
        block = sch.get_block("B")
        place = sch.sample_compute_location(block)
        seen.add(sch.trace.insts[-1].decision)
        sch.compute_at(block, place)
        agree(func, sch.func)
        replays(sch, func)
    assert seen == {-2, -1, 0, 1}
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="the decision 2 is not a place for block 'B': its consumer has 2 loops"):
        sch.sample_compute_location("B", decision=2)
    assert sch.get(sch.sample_compute_location("B", decision=0)).loop_var is sch.get_loops("C")[0]


def test_only_locations_that_differ_are_drawn(agree):
    A, B = te.placeholder((7, 16), name="A"), te.placeholder((16, 8), name="B")
    P = te.compute((7, 16), lambda i, j: A[i, j] * 2.0, name="P")
    r = te.reduce_axis((0, 16), name="k")
    C = te.compute((7, 8), lambda i, j: te.sum(P[i, r] * B[r, j], axis=r), name="C")
    func = te.create_prim_func([A, B, C])
    sch = Schedule(func, debug_mask="all")
    i, j, k = sch.get_loops("C")
    i0, i1, i2 = sch.split(i, [7, 1, 1])
    j0, j1 = sch.split(j, [2, 4])
    k0, k1 = sch.split(k, [4, 4])
    sch.reorder(i0, i1, j0, k0, i2, j1, k1)
    drawn = {}
    for seed in range(60):
        one = sch.copy()
        one.seed(seed)
        place = one.sample_compute_location("P")
        if drawn.setdefault(one.trace.insts[-1].decision, one) is one:
            one.compute_at("P", place)
            agree(func, one.func)
    # not i1, which has one iteration; not j1, a data-parallel loop in one that reduces; not k1, which reduces innermost
    assert drawn.keys() == {-2, -1, 0, 2, 3}


def test_legal_locations_are_found_once(monkeypatch, chain):
    sch = Schedule(chain(5, 7), seed=0)
    tried = []
    monkeypatch.setattr(compute_at, "moved_block", lambda func, block, loop, *how: tried.append(loop))
    for _ in range(20):
        sch.sample_compute_location("B")
    assert len(tried) == 2
