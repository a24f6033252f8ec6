"""This module defines the steps that set how a loop runs: parallel, vectorized, unrolled, or on GPU threads.

A loop has one kind. As in TVM the last of these steps on a loop decides which, and each step makes its own proof.
"""

from __future__ import annotations

import re

from ...tir.analysis.tree import tree_of
from ...tir.expr import Var
from ...tir.stmt import PrimFunc
from ..errors import bad_argument
from ..primitive import primitive
from ..require.lookup import find_loop
from ..require.loop_preconditions import check_independent

_THREAD = re.compile(r"(blockIdx|threadIdx)\.[xyz]|vthread(\.[xyz])?")


@primitive
def parallel(func: PrimFunc, loop: Var) -> PrimFunc:
    """Run the iterations of a loop in parallel.

        for i in range(16): ...      =>      for i in T.parallel(16): ...

    It is proven that no iteration writes an element that another one accesses. A buffer that every iteration fills
    before it reads it is allowed, because after lowering each iteration has its own copy.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_independent(tree, target, "run in parallel", private=True)
    return tree.replace({target: target.with_(kind="parallel", thread_binding=None)})


@primitive
def vectorize(func: PrimFunc, loop: Var) -> PrimFunc:
    """Run the iterations of a loop as the lanes of vectors. Loops inside it are allowed.

        for i in range(16): ...      =>      for i in T.vectorized(16): ...

    It is proven that no iteration writes an element that another one accesses.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_independent(tree, target, "be the lanes of vectors")
    return tree.replace({target: target.with_(kind="vectorized", thread_binding=None)})


@primitive
def unroll(func: PrimFunc, loop: Var) -> PrimFunc:
    """Write out the iterations of a loop one after the other.

    This is always legal. A loop that was bound to a thread axis is no longer bound.

        for i in range(4): ...      =>      for i in T.unroll(4): ...
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    return tree.replace({target: target.with_(kind="unrolled", thread_binding=None)})


@primitive
def bind(func: PrimFunc, loop: Var, thread_axis: str) -> PrimFunc:
    """Run the iterations of a loop on the threads of a GPU axis (``blockIdx.x``, ``threadIdx.y``, ``vthread.x`` …).

        for i in range(16): ...      =>      for i in T.thread_binding(16, thread="threadIdx.x"): ...

    The conditions are those of :func:`parallel`. On ``threadIdx`` a reduction is allowed, which the lowering turns into
    a reduction across threads; on ``blockIdx`` one whose block has no init any more and the annotation ``atomic_update``.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    if not _THREAD.fullmatch(thread_axis):
        raise bad_argument(
            f"{thread_axis!r} is not a thread axis",
            where=target,
            hint="blockIdx.x, threadIdx.y, vthread.z and their like",
        )
    reducing = thread_axis.startswith("threadIdx")
    check_independent(tree, target, f"run on {thread_axis}", private=True, reducing=reducing, atomic=True)
    return tree.replace({target: target.with_(kind="thread_binding", thread_binding=thread_axis)})
