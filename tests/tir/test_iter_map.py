"""Iter maps: named cases, and random ones against counting."""

import itertools
import random

import pytest

from tilewright.tir import Expr, Range, Var, const
from tilewright.tir.arith import detect_iter_map
from tilewright.tir.interpret.interpret_expr import ExprCompiler

VI, J, K, F, N, M = [Var(x) for x in "ijkfnm"]


def found(bindings: list[Expr], loops: dict[Var, object], predicate: Expr | None = None):
    ranges = {v: Range.from_extent(e) for v, e in loops.items()}
    return detect_iter_map(bindings, ranges, predicate)


def test_split_and_fused_loops() -> None:
    r = found([VI * 8 + J], {VI: 16, J: 8})
    assert r.bijective and int(r.extents[0]) == 128 and int(r.mins[0]) == 0
    r = found([F // 8, F % 8], {F: 128})
    assert r.bijective and [int(e) for e in r.extents] == [16, 8]
    r = found([(VI * 8 + J) // 32, (VI * 8 + J) % 32], {VI: 16, J: 8})
    assert r.bijective and [int(e) for e in r.extents] == [4, 32]
    r = found([F // 32, F % 32 // 4, F % 4 + 3], {F: 128})
    assert r.bijective and [int(e) for e in r.mins] == [0, 0, 3]


def test_predicates_shorten() -> None:
    r = found([VI * 8 + J], {VI: 3, J: 8}, VI * 8 + J < 17)
    assert r.bijective and int(r.extents[0]) == 17
    r = found([(VI * 8 + J) * 4 + K], {VI: 3, J: 8, K: 4}, VI * 8 + J < 17)
    assert r.bijective and int(r.extents[0]) == 68
    r = found([(VI * 16 + J) // 8, (VI * 16 + J) % 8], {VI: 3, J: 16}, VI * 16 + J < 40)
    assert r.bijective and [int(e) for e in r.extents] == [5, 8]
    r = found([VI], {VI: 16}, VI < 10)
    assert r.bijective and int(r.extents[0]) == 10


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (3, 4), (8, 3)])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_loops_fused_then_split_with_a_rest(rows: int, columns: int, factor: int) -> None:
    number = VI * factor + J
    r = found(
        [number // columns, number % columns], {VI: -(-rows * columns // factor), J: factor}, number < rows * columns
    )
    assert r.bijective and [int(e) for e in r.extents] == [rows, columns]


def test_the_low_digit_of_a_fused_loop_in_a_predicate() -> None:
    """Rows split with a rest, their upper digit fused with what is around: as a nest of tiles in parallel has them."""
    r = found([F // 27, F % 27 // 3, F % 3 * 3 + J], {F: 54, J: 3}, F % 3 * 3 + J < 8)
    assert r.bijective and [int(e) for e in r.extents] == [2, 9, 8]


def test_two_predicates() -> None:
    r = found([VI * 8 + J, K * 4 + F], {VI: 3, J: 8, K: 4, F: 4}, (VI * 8 + J < 17) & (K * 4 + F < 13))
    assert r.bijective and [int(e) for e in r.extents] == [17, 13]
    nested = (VI * 2 + J) * 4 + K
    r = found([nested], {VI: 3, J: 2, K: 4}, (VI * 2 + J < 5) & (nested < 17))
    assert r.bijective and int(r.extents[0]) == 17


def test_symbolic_extents() -> None:
    r = found([F // N, F % N], {F: M * N})
    assert r.bijective
    r = found([VI * N + J], {VI: M, J: N})
    assert r.bijective
    r = found([VI * 8 + J], {VI: (N + 7) // 8, J: 8}, VI * 8 + J < N)
    assert r.bijective and r.extents[0] is N


def test_what_is_no_bijection() -> None:
    r = found([VI * 4 + J], {VI: 16, J: 8})
    assert not r.surjective and "leave gaps or overlap" in r.errors[0]
    r = found([F // 8, F % 16], {F: 128})
    assert not r.surjective and "overlapping parts of f" in r.errors[0]
    r = found([VI, VI], {VI: 16})
    assert not r.surjective
    r = found([VI * J], {VI: 4, J: 4})
    assert "multiplies loops" in r.errors[0]
    r = found([VI * 2], {VI: 4})
    assert "every 2th" in r.errors[0]
    r = found([VI], {VI: 4, J: 4})
    assert r.surjective and not r.injective
    r = found([F // 8], {F: 128})
    assert r.surjective and not r.injective
    r = found([F // 8, F % 8], {F: 17})
    assert not r.surjective and r.injective
    r = found([VI, J], {VI: 4, J: 4}, VI + J < 5)
    assert not r.surjective


def test_unit_loops_and_constants() -> None:
    assert found([VI, const(0)], {VI: 4, J: 1}).bijective
    assert found([VI + J], {VI: 4, J: 1}).bijective


@pytest.mark.parametrize("seed", range(8))
def test_random_maps_against_counting(seed: int) -> None:
    rng = random.Random(seed)
    proved = 0
    for _ in range(60):
        loops = {v: rng.choice([1, 2, 3, 4, 6, 8]) for v in rng.sample([VI, J, K], rng.randint(1, 3))}
        order = list(loops)
        rng.shuffle(order)
        total: Expr = const(0)
        for v in order:
            total = total * loops[v] + v
        count = 1
        for e in loops.values():
            count *= e
        limit = count if rng.random() < 0.5 else rng.randint(1, count)
        predicate = total < limit if limit < count else None
        d = rng.choice([x for x in (1, 2, 3, 4, 6, 8, 12) if x <= limit])
        kind = rng.randint(0, 4)
        a, b = (rng.choice(order), rng.choice(order))
        bindings = [
            [total],
            [total // d, total % d],
            [total // (d * 2), total % (d * 2) // d, total % d],
            [a * loops[b] + b],
            [total // d, a],
        ][kind]
        got = found(bindings, loops, predicate)
        ex = ExprCompiler(lambda *_: None, {})
        fs, holds = [ex.compile(e) for e in bindings], None if predicate is None else ex.compile(predicate)
        seen: list[tuple[int, ...]] = []
        for p in itertools.product(*[range(e) for e in loops.values()]):
            for v, x in zip(loops, p, strict=True):
                ex.registers[ex.slot(v)] = x
            if holds is None or holds():
                seen.append(tuple([f() for f in fs]))
        if got.injective:
            assert len(set(seen)) == len(seen), f"{bindings} over {loops} under {predicate}"
        if got.surjective:
            proved += 1
            box = set(
                itertools.product(*[range(int(m), int(m) + int(e)) for m, e in zip(got.mins, got.extents, strict=True)])
            )
            assert set(seen) == box, f"{bindings} over {loops} under {predicate}"
    assert proved > 10
