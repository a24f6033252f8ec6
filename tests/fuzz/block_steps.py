"""Steps on blocks: where they are computed, reductions, padding, tiles, intrinsics."""

from __future__ import annotations

from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.require.block_preconditions import find_loop
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.expr import IntImm, IterVar, is_const_int
from tilewright.tir.walk import uses_var

from .four_element_intrinsics import KINDS, intrinsic
from .step_drawing import (
    Nothing,
    Rng,
    a_block,
    a_block_where,
    a_factor,
    a_loop,
    a_user,
    blocks_in,
    coin,
    loops_of,
    one,
    reduces,
    step,
    the,
)


@step(10)
def compute_at(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    loop = a_loop(rng, sch, a_user(rng, sch, block, True))
    sch.compute_at(block, loop, coin(rng, 0.3), int(rng.choice([-1, -1, -2, 0, 1])))


@step(8)
def reverse_compute_at(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    loop = a_loop(rng, sch, a_user(rng, sch, block, False))
    sch.reverse_compute_at(block, loop, coin(rng, 0.3), int(rng.choice([-1, -1, -2, 0, 1])))


@step(2)
def compute_inline(rng: Rng, sch: Schedule) -> None:
    sch.compute_inline(a_block(rng, sch))


@step(3)
def reverse_compute_inline(rng: Rng, sch: Schedule) -> None:
    sch.reverse_compute_inline(a_block(rng, sch))


@step(2, "split", "reverse_compute_inline")
def inlined_behind_a_tail(rng: Rng, sch: Schedule) -> None:
    """A consumer in its producer, of which a loop is split so that a predicate guards the last tile."""
    found = []
    for block in blocks_in(sch):
        users = sch.get_consumers(block)
        if len(users) == 1 and len(sch.get_producers(users[0].name)) == 1:
            found.append((block, users[0].name))
    block, user = one(rng, found)
    sch.split(one(rng, loops_of(sch, block)), [None, a_factor(rng)])
    sch.reverse_compute_inline(user)


@step(2, "split", "rfactor")
def rfactored_tail(rng: Rng, sch: Schedule) -> None:
    """A reduction loop in tiles, the last perhaps not whole, and partial results of the tiles or of their places."""
    block = a_block_where(rng, sch, reduces)
    parts = sch.split(a_loop(rng, sch, block), [None, a_factor(rng)])
    sch.rfactor(one(rng, parts), int(rng.integers(-1, 2)))


@step(1, "rfactor", "vectorize", "annotate")
def lanes_added_up(rng: Rng, sch: Schedule) -> None:
    """Partial results in the lanes of a vector, which one operation adds up."""
    block = a_block_where(rng, sch, reduces)
    loop = a_loop(rng, sch, block)
    if coin(rng):
        _, loop = sch.split(loop, [None, one(rng, [2, 4, 8, 16])])
    partial = sch.rfactor(loop, 0)
    if coin(rng, 0.7):
        sch.reverse_compute_at(block, sch.get_loops(partial)[0])
    sch.vectorize(sch.get_loops(partial)[-1])
    sch.annotate(sch.get_loops(block)[-1], "tir.horizontal_reduce", 1)


@step(1, "sample_compute_location", "compute_at")
def sampled_compute_at(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.compute_at(block, sch.sample_compute_location(block))


@step(3)
def decompose_reduction(rng: Rng, sch: Schedule) -> None:
    block = a_block_where(rng, sch, reduces)
    sch.decompose_reduction(block, a_loop(rng, sch, block))


@step(2)
def reduce_once(rng: Rng, sch: Schedule) -> None:
    sch.reduce_once(a_block_where(rng, sch, reduces))


@step(2)
def reduce_where_copied(rng: Rng, sch: Schedule) -> None:
    """A reduction where a copy reads it, which may be one of the block that does."""
    block = a_block_where(rng, sch, reduces)
    written = [w.buffer.name for w in sch.get(sch.get_block(block)).writes]
    if coin(rng) and written and len(users := sch.get_consumers(block)) == 1:
        sch.reindex(users[0], ("read", written[0]))
    sch.reduce_where_copied(block)


@step(2)
def drop_equal_steps(rng: Rng, sch: Schedule) -> None:
    sch.drop_equal_steps(a_block_where(rng, sch, reduces))


@step(1)
def online_softmax(rng: Rng, sch: Schedule) -> None:
    """Attention in one kernel: random programs have none, so that it is refused."""
    sch.online_softmax(a_block(rng, sch), one(rng, [1, 2]), one(rng, [64, 128]))


@step(3)
def rfactor(rng: Rng, sch: Schedule) -> None:
    block = a_block_where(rng, sch, reduces)
    sch.rfactor(a_loop(rng, sch, block), int(rng.integers(-1, 2)))


@step(1)
def shift_operand(rng: Rng, sch: Schedule) -> None:
    """A factor of a sum of narrow products with the other sign."""
    block = a_block_where(rng, sch, lambda b: reduces(b) and len(b.reads) > 1 and "int" in b.writes[0].buffer.dtype)
    sch.shift_operand(block, int(rng.integers(2)))


@step(1)
def expand_offsets(rng: Rng, sch: Schedule) -> None:
    """Zero points out of a sum of products."""
    sch.expand_offsets(
        a_block_where(rng, sch, lambda b: reduces(b) and len(b.reads) > 1 and "int" in b.writes[0].buffer.dtype)
    )


@step(1)
def pad_before_offset(rng: Rng, sch: Schedule) -> None:
    """Zero points out of a padded stage."""
    sch.pad_before_offset(
        a_block_where(rng, sch, lambda b: not reduces(b) and any("int" in w.buffer.dtype for w in b.writes))
    )


@step(2)
def fuse_reduction_epilogue(rng: Rng, sch: Schedule) -> None:
    followed = []
    for block in blocks_in(sch):
        users = sch.get_consumers(block) if reduces(the(sch, block)) else []
        if len(users) == 1 and not reduces(the(sch, users[0].name)):
            followed.append((block, users[0].name))
    block, user = one(rng, followed)
    sch.fuse_reduction_epilogue(block, user)


@step(2)
def pad_einsum(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.pad_einsum(block, [int(rng.choice([1, 1, 2, 4, 8])) for _ in the(sch, block).iter_vars])


@step(1)
def pad_reduction(rng: Rng, sch: Schedule) -> None:
    sch.pad_reduction(a_block_where(rng, sch, reduces))


@step(4)
def decompose_padding(rng: Rng, sch: Schedule) -> None:
    block = a_block_where(rng, sch, lambda b: "if_then_else" in str(b))
    sch.decompose_padding(block, a_loop(rng, sch, block))


@step(2)
def call_blas(rng: Rng, sch: Schedule) -> None:
    sch.call_blas(a_block_where(rng, sch, reduces))


@step(0.5)
def rolling_buffer(rng: Rng, sch: Schedule) -> None:
    tiled = [n for n in blocks_in(sch) for c in sch.get_consumers(n) if {*loops_of(sch, n)} & {*loops_of(sch, c.name)}]
    sch.rolling_buffer(one(rng, tiled), 0)


@step(3, "split", "compute_at", "rolling_buffer")
def rolled(rng: Rng, sch: Schedule) -> None:
    """A producer under the tiles of its consumer, where those overlap, and its buffer rolled."""
    found = []
    outputs = {n for n in blocks_in(sch) if any(r.buffer in sch.func.buffers for r in the(sch, n).writes)}
    for block in blocks_in(sch):
        users = [] if block in outputs else sch.get_consumers(block)
        loops = loops_of(sch, users[0].name) if len(users) == 1 else []
        user = the(sch, users[0].name) if loops else the(sch, block)
        for region in user.reads if loops and len(loops) == len(user.iter_vars) else ():
            if any(w.buffer is region.buffer for w in the(sch, block).writes):
                for iv, loop in zip(user.iter_vars, loops, strict=True):
                    wide = [r for r in region.region if uses_var(r.min, iv.var) and not is_const_int(r.extent, 1)]
                    found += [(block, loop)] * bool(wide)
    block, loop = one(rng, found)
    extent = find_loop(tree_of(sch.func), loop).extent
    most = extent.value // 2 if isinstance(extent, IntImm) else 4
    outer, _ = sch.split(loop, [None, int(rng.integers(1, max(2, min(most, 4) + 1)))])
    sch.compute_at(block, outer)
    sch.rolling_buffer(block, 0)


@step(2)
def blockize(rng: Rng, sch: Schedule) -> None:
    sch.blockize(a_loop(rng, sch), coin(rng, 0.7))


@step(1.5, "blockize")
def blockize_several(rng: Rng, sch: Schedule) -> None:
    names = [n for n in blocks_in(sch) if not reduces(the(sch, n))]
    at = int(rng.integers(max(1, len(names) - 1)))
    several = names[at : at + int(rng.integers(2, 4))]
    rng.shuffle(several)
    sch.blockize(several or one(rng, []), coin(rng, 0.7))


@step(3, "split", "decompose_reduction", "tensorize")
def tensorized(rng: Rng, sch: Schedule) -> None:
    """Four turns of an inner loop by an intrinsic."""
    block = a_block_where(rng, sch, lambda b: bool(b.writes) and _by_fours(sch, b.name_hint))
    loops, found = loops_of(sch, block), the(sch, block)
    if reduces(found):
        along = [lp for lp, iv in zip(reversed(loops), reversed(found.iter_vars), strict=False)
                 if iv.kind == IterVar.REDUCE]  # fmt: skip
        outer, inner = sch.split(along[0] if along else loops[-1], [None, 4])
        sch.decompose_reduction(block, outer)
    else:
        _, inner = sch.split(loops[-1], [None, 4])
    problem: ScheduleError | None = None
    for kind in KINDS:
        try:
            sch.tensorize(inner, intrinsic(kind, found.writes[0].buffer.dtype))
            return
        except ScheduleError as error:
            problem = error
    assert problem is not None
    raise problem


@step(1, "split", "decompose_reduction", "tensorize")
def tensorized_init(rng: Rng, sch: Schedule) -> None:
    """The zeros that a sum starts from, four at a time."""
    block = a_block_where(rng, sch, lambda b: reduces(b) and "0" in str(b.init))
    dtype = the(sch, block).writes[0].buffer.dtype
    init = sch.decompose_reduction(block, one(rng, loops_of(sch, block)[:1]))
    if not _by_fours(sch, init.name):
        raise Nothing
    _, inner = sch.split(loops_of(sch, init.name)[-1], [None, 4])
    sch.tensorize(inner, intrinsic("fill", dtype))


def _by_fours(sch: Schedule, block: str) -> bool:
    """Whether the innermost loop around the block runs a multiple of four times."""
    loops = loops_of(sch, block)
    extent = find_loop(tree_of(sch.func), loops[-1]).extent if loops else None
    return isinstance(extent, IntImm) and extent.value > 0 and extent.value % 4 == 0
