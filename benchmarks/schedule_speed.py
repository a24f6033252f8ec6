"""This script measures how long scheduling, printing and parsing take.

``python benchmarks/schedule_speed.py [--rounds 15]``

Three tables: 25 steps on a matmul, checks included (goal: 25 ms), printing and parsing a function of 200 lines (goal:
30 ms each), and single steps on functions of 10, 100 and 1000 blocks: ten times the blocks, about ten times the time.
Each figure is the median of ``--rounds`` runs, in processor time, so that neighbours do not matter.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from table import print_table

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.tir import PrimFunc, parse, verify

GOALS = {"25 steps on a matmul": 25.0, "print 200 lines": 30.0, "parse 200 lines": 30.0}
BLOCKS = (10, 100, 1000)


def median_ms(run: Callable[[], Any], rounds: int) -> float:
    """Returns the median time of ``run`` in milliseconds; a first run is not counted."""
    run()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 1e3 * statistics.median(times)


def matmul(m: int = 512, n: int = 512, k: int = 512) -> PrimFunc:
    """Returns the function that the 25 steps are for."""
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((m, n), lambda i, j: te.max(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def twenty_five_steps(func: PrimFunc) -> Schedule:
    """Tiles in registers and caches, packed operands, a fused consumer, parallel and vector loops."""
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    i0, i1, i2 = sch.split(i, [None, 8, 6])  # 1
    j0, j1, j2 = sch.split(j, [None, 4, 32])  # 2
    k0, k1 = sch.split(k, [None, 8])  # 3
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)  # 4
    packed = sch.cache_read("C", 1, "global")  # 5
    sch.transform_layout(packed, ("write", 0), lambda k, j: (j // 32, k, j % 32))  # 6
    sch.transform_block_layout(packed, lambda k, j: (j // 32, k, j % 32))  # 7
    sch.reverse_compute_at("D", j1)  # 8
    rows, columns = sch.get_loops("D")[-2:]
    sch.vectorize(columns)  # 9
    sch.unroll(rows)  # 10
    copy = sch.cache_read("C", 0, "local")  # 11
    sch.compute_at(copy, k0)  # 12
    sch.annotate(copy, "pragma_copy", 1)  # 13
    outer = sch.fuse(i0, j0)  # 14
    sch.parallel(outer)  # 15
    init = sch.decompose_reduction("C", k0)  # 16
    vector = sch.get_loops(init)[-1]
    sch.vectorize(vector)  # 17
    sch.unroll(sch.get_loops(init)[-2])  # 18
    sch.vectorize(j2)  # 19
    sch.unroll(i2)  # 20
    sch.annotate(k1, "pragma_unroll", 2)  # 21
    first, second, third = sch.get_loops(packed)
    sch.vectorize(third)  # 22
    sch.parallel(first)  # 23
    sch.unroll(k1)  # 24
    sch.set_scope(init, 0, "local")  # 25
    return sch


def chain(blocks: int, n: int = 64) -> PrimFunc:
    """``blocks`` element-wise blocks, one after the other, of seven lines each."""
    lines = ["@T.prim_func", f"def main(B0: T.Buffer(({n}, {n})), B{blocks}: T.Buffer(({n}, {n}))):"]
    lines += [f"    B{b} = T.alloc_buffer(({n}, {n}))" for b in range(1, blocks)]
    for b in range(blocks):
        lines += [
            f"    for i, j in T.grid({n}, {n}):",
            f'        with T.block("S{b}"):',
            '            vi, vj = T.axis.remap("SS", [i, j])',
            f"            T.reads(B{b}[vi, vj])",
            f"            T.writes(B{b + 1}[vi, vj])",
            f"            B{b + 1}[vi, vj] = B{b}[vi, vj] * T.float32(2) + T.float32(1)",
        ]
    return parse("\n".join(lines))


def steps(blocks: int) -> dict[str, Callable[[Schedule], Any]]:
    """Single steps in the middle of a chain."""
    here, after = f"S{blocks // 2}", f"S{blocks // 2 + 1}"
    return {
        "split": lambda s: s.split(s.get_loops(here)[0], [None, 8]),
        "parallel": lambda s: s.parallel(s.get_loops(here)[0]),
        "compute_at": lambda s: s.compute_at(here, s.get_loops(after)[0]),
        "compute_inline": lambda s: s.compute_inline(here),
        "cache_read": lambda s: s.cache_read(here, 0, "local"),
        "transform_layout": lambda s: s.transform_layout(here, ("write", 0), lambda i, j: (j, i)),
    }


def table_of_goals(rounds: int) -> bool:
    """Returns the three figures with goals; whether all are met."""
    func = matmul()
    assert sum(i.primitive.kind == "rewrite" for i in twenty_five_steps(func).trace.insts) == 25
    long = chain(28)
    text = long.script()
    assert 195 <= len(text.splitlines()) <= 205, len(text.splitlines())
    runs = (lambda: twenty_five_steps(func), lambda: long.script(), lambda: parse(text))
    lines, fine = [], True
    for (name, goal), run in zip(GOALS.items(), runs, strict=True):
        found = median_ms(run, rounds)
        fine &= found <= goal
        lines.append([name, f"{found:.1f}", f"{goal:.0f}"])
    print_table("milliseconds", ["", "median", "goal"], lines)
    return fine


def times_at(blocks: int, rounds: int) -> dict[str, float]:
    """Milliseconds of each step, and of printing, parsing and verifying, on a chain of this length."""
    func = chain(blocks)
    text = func.script()
    found = {
        "print": median_ms(func.script, rounds),
        "parse": median_ms(lambda: parse(text), rounds),
        "verify": median_ms(lambda: verify(func), rounds),
    }
    for name, step in steps(blocks).items():
        fresh = iter(range(rounds + 1))  # each time a new function, for which nothing is cached
        found[name] = median_ms(lambda s=step, f=fresh: s(Schedule(func.with_attr("round", next(f)))), rounds)
    return found


def table_of_growth(rounds: int) -> bool:
    """Returns the times on ever longer functions; whether none grows faster than they, but for what memory caches
    miss."""
    small, middle, large = [times_at(n, max(3, rounds // (1 + n // 100))) for n in BLOCKS]
    lines = []
    fine = True
    for name in small:
        growth = large[name] / middle[name]
        fine &= growth < 14
        lines.append([name, *[f"{at[name]:.2f}" for at in (small, middle, large)], f"{growth:.1f}×"])
    print_table("milliseconds by number of blocks", ["", *map(str, BLOCKS), "100 → 1000"], lines)
    return fine


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    goals = table_of_goals(options.rounds)
    print()
    raise SystemExit(0 if table_of_growth(options.rounds) and goals else 1)
