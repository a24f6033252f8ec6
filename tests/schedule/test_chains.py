"""Random programs under random chains of primitives: whatever is accepted computes the same numbers.

``python tests/schedule/test_chains.py 1000 7`` runs a thousand chains from seed 7.
"""

import sys

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.tir import assert_structural_equal
from tilewright.tir.interpret import interpret
from tilewright.tir.verify import verify

SIZES = (1, 2, 3, 5, 7, 8)


def random_program(rng):
    """A few stages: element-wise, stencils, reductions, transposes; the last one is the output."""
    m, n = (int(rng.choice(SIZES)) for _ in range(2))
    A = te.placeholder((m, n), name="A")
    stages = [A]
    for number in range(int(rng.integers(1, 5))):
        T = stages[int(rng.integers(max(0, len(stages) - 2), len(stages)))]
        if len(T.shape) == 1:
            T = stages[0]
        p, q = (int(e) for e in T.shape)
        name = f"S{number}"
        kind = rng.choice(["scale", "add", "transpose", "stencil", "pad", "rowsum", "matmul", "shift", "flat"])
        if kind == "scale":
            S = te.compute((p, q), lambda i, j, T=T: T[i, j] * 2.0, name=name)
        elif kind == "add":
            other = next((s for s in stages if [int(e) for e in s.shape] == [p, q]), T)
            S = te.compute((p, q), lambda i, j, T=T, o=other: T[i, j] + o[i, j], name=name)
        elif kind == "transpose":
            S = te.compute((q, p), lambda i, j, T=T: T[j, i] + 1.0, name=name)
        elif kind == "stencil" and p >= 3:
            S = te.compute((p - 2, q), lambda i, j, T=T: T[i, j] + T[i + 1, j] + T[i + 2, j], name=name)
        elif kind == "pad":
            S = te.compute(
                (p + 2, q),
                lambda i, j, T=T, p=p: te.if_then_else(te.all(i >= 1, i < p + 1), T[i - 1, j], 0.0),
                name=name,
            )
        elif kind == "rowsum":
            k = te.reduce_axis((0, q), name="k")
            S = te.compute((p,), lambda i, T=T, k=k: te.sum(T[i, k], axis=k), name=name)
        elif kind == "matmul":
            k = te.reduce_axis((0, q), name="k")
            S = te.compute((p, p), lambda i, j, T=T, k=k: te.sum(T[i, k] * T[j, k], axis=k), name=name)
        elif kind == "shift" and q >= 2:
            S = te.compute((p, q - 1), lambda i, j, T=T: T[i, j + 1] - T[i, j], name=name)
        else:
            S = te.compute((p * q,), lambda f, T=T, q=q: T[f // q, f % q] * 3.0, name=name)
        stages.append(S)
    return te.create_prim_func([A, stages[-1]])


def _blocks(sch):
    return [b.name for b in sch.get_child_blocks(sch.get_block("root"))]


def _loop(rng, sch, block):
    loops = sch.get_loops(block)
    return loops[int(rng.integers(len(loops)))] if loops else None


def step(rng, sch):
    """One random primitive, which may be refused; returns its name."""
    blocks = _blocks(sch)
    block = str(rng.choice(blocks))
    other = str(rng.choice(blocks))
    which = str(
        rng.choice(
            ["split", "fuse", "reorder", "cache_read", "cache_write", "compute_at", "reverse_compute_at", "compute_inline",
             "reverse_compute_inline", "decompose_reduction", "rfactor", "transform_layout", "transform_block_layout",
             "parallel"],
            p=[0.14, 0.06, 0.1, 0.06, 0.06, 0.14, 0.12, 0.04, 0.06, 0.05, 0.06, 0.05, 0.04, 0.02],
        )
    )  # fmt: skip
    loop = _loop(rng, sch, other if "compute_at" in which else block)
    factor = int(rng.choice([1, 2, 3, 4]))
    if (
        which in ("split", "compute_at", "reverse_compute_at", "decompose_reduction", "rfactor", "parallel")
        and loop is None
    ):
        return "nothing"
    if which == "split":
        sch.split(loop, [None, factor])
    elif which == "fuse":
        loops = sch.get_loops(block)
        if len(loops) >= 2:
            at = int(rng.integers(len(loops) - 1))
            sch.fuse(loops[at], loops[at + 1])
    elif which == "reorder":
        loops = sch.get_loops(block)
        rng.shuffle(loops)
        if len(loops) >= 2:
            sch.reorder(*loops[:3])
    elif which == "cache_read":
        sch.cache_read(block, int(rng.integers(2)), "local")
    elif which == "cache_write":
        sch.cache_write(block, 0, "local")
    elif which == "compute_at":
        sch.compute_at(block, loop, bool(rng.integers(2)), int(rng.choice([-1, -1, -2])))
    elif which == "reverse_compute_at":
        sch.reverse_compute_at(block, loop, bool(rng.integers(2)), int(rng.choice([-1, -1, -2])))
    elif which == "compute_inline":
        sch.compute_inline(block)
    elif which == "reverse_compute_inline":
        sch.reverse_compute_inline(block)
    elif which == "decompose_reduction":
        sch.decompose_reduction(block, loop)
    elif which == "rfactor":
        sch.rfactor(loop, int(rng.integers(-1, 2)))
    elif which == "parallel":
        sch.parallel(loop)
    elif which == "transform_layout":
        maps = [
            lambda i, j: (j, i),
            lambda i, j: (i // factor, j, i % factor),
            lambda i, j: (j // factor, i, j % factor),
        ]
        pad = 0.0 if rng.integers(2) else None
        realize = sch.get(sch.get_block(block))
        if realize.writes and realize.writes[0].buffer not in sch.func.buffers:
            sch.transform_layout(block, ("write", 0), maps[int(rng.integers(3))], pad)
    else:
        axes = len(sch.get(sch.get_block(block)).iter_vars)
        if axes == 2:
            sch.transform_block_layout(block, lambda i, j: (j // factor, i, j % factor))
        elif axes == 1:
            sch.transform_block_layout(block, lambda i: (i // factor, i % factor))
    return which


def run_chain(seed, length=20, counts=None):
    """One program, one chain; AssertionError with the trace when the numbers differ."""
    rng = np.random.default_rng(seed)
    func = random_program(rng)
    shapes = [[int(e) for e in b.shape] for b in func.buffers]
    a = rng.integers(-3, 4, size=shapes[0]).astype("float32")
    expected = np.full(shapes[1], np.nan, "float32")
    interpret(func, a, expected)
    sch = Schedule(func, seed=0)
    for _ in range(length):
        before = sch.func
        try:
            name = step(rng, sch)
        except ScheduleError:
            assert sch.func is before
            continue
        if sch.func is before:
            continue
        if counts is not None:
            counts[name] = counts.get(name, 0) + 1
        found = np.full(shapes[1], np.nan, "float32")
        try:
            verify(sch.func)
            interpret(sch.func, a, found, check_regions=True)
            np.testing.assert_array_equal(found, expected)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {error}\n{before.script()}\n{sch.trace.as_python().splitlines()[-1]}\n{sch.func.script()}"
            ) from error
    again = Schedule(func, seed=0)
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


@pytest.mark.parametrize("seed", range(40))
def test_random_chains(seed):
    run_chain(seed)


if __name__ == "__main__":
    number, start = (int(x) for x in (*sys.argv[1:], "100", "0")[:2])
    totals: dict = {}
    failures = 0
    for s in range(start, start + number):
        try:
            run_chain(s, counts=totals)
        except ScheduleError as e:
            failures += 1
            print(f"seed {s}: replay refused: {e.problem}")
        except Exception as e:
            failures += 1
            print(f"{type(e).__name__}: {str(e)[:6000]}\n{'-' * 80}")
            if failures >= 3:
                break
    print(f"{number} chains, {failures} failures; accepted: {dict(sorted(totals.items()))}")
