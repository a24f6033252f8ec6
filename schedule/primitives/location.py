"""Where to compute a block: one of the loops of its consumer, nowhere (inlined), or where it is."""

from __future__ import annotations

import numpy as np

from ...tir.expr import Var
from ...tir.function import PrimFunc
from ...tir.stmt import For
from ..analysis import consumers_of
from ..errors import ScheduleError
from ..handles import COMPUTE_INLINE, COMPUTE_ROOT
from ..primitive import primitive
from ..tree import tree_of
from .compute_at import compute_at
from .inline import compute_inline

__all__ = ["sample_compute_location"]

ROOT, INLINE = -1, -2


@primitive(kind="sample")
def sample_compute_location(
    func: PrimFunc, block: str, decision: int | None = None, *, rng: np.random.Generator
) -> tuple[int, Var]:
    """Choose a place for :func:`compute_at` among those that are legal; all are equally likely.

    The decision is the position of a loop above the block's first consumer, -1 for where the block is, or -2 for
    inlining it. The output goes where ``compute_at`` takes a loop.
    """
    tree = tree_of(func)
    realize = tree.block(block)
    consumers = consumers_of(tree, realize)
    loops = tree.loops_above(consumers[0]) if consumers else []
    if decision is None:
        legal = [ROOT]
        if consumers and _applies(lambda: compute_inline(func, block)):
            legal.insert(0, INLINE)
        legal += [n for n, loop in enumerate(loops) if _applies(lambda v=loop.loop_var: compute_at(func, block, v))]
        decision = legal[int(rng.integers(len(legal)))]
    if isinstance(decision, bool) or not isinstance(decision, int) or not INLINE <= decision < len(loops):
        raise ScheduleError(
            f"the decision {decision!r} is no place for block {block!r}: its consumer has {len(loops)} loops",
            where=[realize, *[loop for loop in loops if isinstance(loop, For)]],
            hint="-2 inlines, -1 leaves the block where it is, others count loops from outside",
        )
    if decision == ROOT:
        return decision, COMPUTE_ROOT
    return decision, COMPUTE_INLINE if decision == INLINE else loops[decision].loop_var


def _applies(step: object) -> bool:
    try:
        step()  # type: ignore[operator]
    except ScheduleError:
        return False
    return True
