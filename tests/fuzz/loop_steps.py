"""Steps on loops, kinds of loops, decisions, and remarks."""

from __future__ import annotations

from typing import Any

from tilewright.schedule import Schedule
from tilewright.schedule.require.block_preconditions import find_loop
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.annotations import register_annotation

from .step_drawing import Nothing, Rng, a_block, a_factor, a_loop, blocks_in, coin, loops_of, one, step, the

register_annotation("note", "a remark of the fuzzer on a loop or a block, which nothing reads")


@step(10)
def split(rng: Rng, sch: Schedule) -> None:
    loop = a_loop(rng, sch)
    factors: list[int | None] = [None, a_factor(rng)]
    if coin(rng, 0.3):
        factors.reverse()
    if coin(rng, 0.25):
        factors.insert(int(rng.integers(3)), a_factor(rng))
    sch.split(loop, factors, preserve_unit_iters=coin(rng, 0.8), disable_predication=coin(rng, 0.1))


@step(5)
def fuse(rng: Rng, sch: Schedule) -> None:
    loops = loops_of(sch, a_block(rng, sch))
    if len(loops) < 2:
        raise Nothing
    at = int(rng.integers(len(loops) - 1))
    sch.fuse(*loops[at : at + int(rng.integers(2, 4))], preserve_unit_iters=coin(rng, 0.8))


@step(8)
def reorder(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    loops = loops_of(sch, block)
    if len(loops) < 2:
        raise Nothing
    rng.shuffle(loops)
    chosen = loops[: int(rng.integers(2, len(loops) + 1))]
    if any(iv.kind == "scan" for iv in the(sch, block).iter_vars):
        sch.interchange(*chosen)
    else:
        sch.reorder(*chosen)


@step(1)
def add_unit_loop(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    loops = loops_of(sch, block)
    sch.add_unit_loop(one(rng, [block, *loops]))


@step(2)
def loop_partition(rng: Rng, sch: Schedule) -> None:
    loop = a_loop(rng, sch)
    sch.loop_partition(loop, one(rng, [[None, 1], [1, None], [2, None, 1], [2], [4, None]]))


@step(1, "loop_partition")
def partitioned_twice(rng: Rng, sch: Schedule) -> None:
    """A loop in parts, and a loop of one of the parts in parts again."""
    loop = a_loop(rng, sch)
    known = {*tree_of(sch.func).loops}
    sch.loop_partition(loop, one(rng, [[None, 1], [1, None], [2, None, 1], [2], [4, None]]))
    fresh = [v for v in tree_of(sch.func).loops if v not in known]
    sch.loop_partition(one(rng, fresh), one(rng, [[None, 1], [1, None], [2]]))


@step(3)
def merge(rng: Rng, sch: Schedule) -> None:
    """Loops at the same place in two nests that follow one another."""
    names = blocks_in(sch)
    at = int(rng.integers(max(1, len(names) - 1)))
    nests = [loops_of(sch, name) for name in names[at : at + int(rng.integers(2, 4))]]
    shared = sum(len(set(level)) == 1 for level in zip(*nests, strict=False))
    depth = shared + int(rng.integers(2))
    if len(nests) < 2 or any(len(nest) <= depth for nest in nests):
        raise Nothing
    sch.merge(*[nest[depth] for nest in nests])


@step(3)
def parallel(rng: Rng, sch: Schedule) -> None:
    sch.parallel(a_loop(rng, sch))


@step(3)
def vectorize(rng: Rng, sch: Schedule) -> None:
    loops = loops_of(sch, a_block(rng, sch))
    sch.vectorize(loops[-1] if loops and coin(rng, 0.7) else one(rng, loops))


@step(2, "vectorize")
def vectorized_twice(rng: Rng, sch: Schedule) -> None:
    """A vector loop in a vector loop."""
    loops = loops_of(sch, a_block(rng, sch))
    if len(loops) < 2:
        raise Nothing
    at = int(rng.integers(len(loops) - 1))
    pair = loops[at : at + 2]
    for loop in pair if coin(rng) else reversed(pair):
        sch.vectorize(loop)


@step(3)
def unroll(rng: Rng, sch: Schedule) -> None:
    sch.unroll(a_loop(rng, sch))


@step(0.3)
def bind(rng: Rng, sch: Schedule) -> None:
    sch.bind(a_loop(rng, sch), str(rng.choice(["blockIdx.x", "threadIdx.x", "vthread.x"])))


@step(1.5, "sample_perfect_tile", "split")
def sampled_split(rng: Rng, sch: Schedule) -> None:
    loop = a_loop(rng, sch)
    kind = int(rng.integers(3))
    if kind == 0:
        sch.split(loop, sch.sample_perfect_tile(loop, n=2, max_innermost_factor=8))
    elif kind == 1:
        sch.split(loop, sch.sample_partitioned_tile(loop, 3, partition_pos=1, innerpart_factor=int(rng.integers(1, 4))))
    else:
        sch.split(loop, sch.sample_tile(loop, n=2, max_innermost_factor=8))


@step(0.5, "sample_categorical", "annotate")
def sampled_annotation(rng: Rng, sch: Schedule) -> None:
    value = sch.sample_categorical([1, 2, 4], [0.2, 0.3, 0.5])
    sch.annotate(a_block(rng, sch), "note", value)


@step(0.5)
def annotate(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.annotate(one(rng, [block, *loops_of(sch, block)]), "note", int(rng.integers(9)))


@step(0.5)
def unannotate(rng: Rng, sch: Schedule) -> None:
    tree = tree_of(sch.func)
    noted: list[Any] = [n for n in blocks_in(sch) if "note" in the(sch, n).annotations]
    noted += [v for v in tree.loops if "note" in find_loop(tree, v).annotations]
    sch.unannotate(one(rng, noted) if noted else a_block(rng, sch), "note")


@step(0.2)
def enter_postproc(rng: Rng, sch: Schedule) -> None:
    sch.enter_postproc()
