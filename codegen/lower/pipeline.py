"""The order of the lowering passes, and the function that runs them: timed, printed on request, verified.

The function is always verified before the first pass and after the last one, which takes 1 to 5 percent of the compile
time. Verification after each pass takes a third of it; the tests do that.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...tir.analysis.simplify import simplify
from ...tir.annotations import unread_annotations
from ...tir.expr import BufferLoad, Call, Cast, FloatImm, FloorMod, IntImm, IterVar, Mul, Select, Var
from ...tir.expr.deep_recursion import with_room
from ...tir.index_width import unified
from ...tir.stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, PrimFunc
from ...tir.storage_types import lower_storage_types
from ...tir.verify import verify
from ...tir.walk import distinct
from ..lowered import NONTEMPORAL_ATTR
from ..machine.target import Target
from .align_tiles import align_tiles
from .carry_recurrences import carry_recurrences
from .check_accesses import check_accesses
from .compact_buffers import compact_buffers
from .flatten_blocks import drop_assumptions, flatten_blocks, place_init
from .form_fma import form_fma
from .hoist_guards import cut_idle_iterations, end_loops_at_guards, hoist_guards, name_quotients
from .horizontal_reductions import lower_horizontal
from .insert_prefetches import insert_prefetches
from .interleave_stores import interleave_stores
from .join_split_indices import join_split_indices
from .legalize_loops import legalize_vector_loops, loops_for_hls, remove_unit_loops, serialize_vector_loops
from .limit_library_threads import limit_library_threads
from .loop_annotations import (
    HORIZONTAL,
    NONTEMPORAL,
    PREFETCH_DISTANCE,
    PREFETCH_NEXT,
    UNROLL_EXPLICIT,
    UNROLL_FACTOR,
    UNROLL_STEPS,
)
from .lower_math import LOWERED, lower_math
from .nontemporal_stores import align_nontemporal_stores, mark_nontemporal_stores
from .promote_registers import promote_registers
from .read_all_lanes import read_all_lanes
from .read_around_ends import read_around_ends
from .transpose_in_registers import transpose_in_registers
from .transpose_steps import transpose_steps
from .unroll_loops import choose_unrolled, split_unroll_factors, unroll_loops
from .vectorize_loops import vectorize_loops
from .widen_half_floats import widen_half_floats

# what a program contains, so that passes with nothing to do are left out

Content = type | str
HALF, INIT, MASK, SCAN, STORAGE = "half", "init", "mask", "scan", "storage types"
UNROLLED, VECTORIZED = "unrolled", "vectorized"
"""The words for values of float16 or bfloat16, blocks with an init, masked accesses, scan axes, storage types, and two
kinds of loops."""


def contents(func: PrimFunc) -> set[Content]:
    """Return the types of the nodes of ``func``, the kinds of its loops, its calls and its annotations.

    A block counts as what it becomes when blocks are removed: the allocations of its buffers, and an ``IfThenElse``
    when it has a predicate. Attributes count as annotations.
    """
    found: set[Content] = set()
    if any([b.dtype.is_storage for b in func.buffers]):
        found.add(STORAGE)
    for n in distinct(func.body):
        kind = type(n)
        found.add(kind)
        words = _WORDS.get(kind)
        if words is not None:
            found.update(words(n))
    return found


def _of_value(n: Any) -> Iterable[Content]:
    if n.dtype.is_storage:
        return (STORAGE,)
    return (HALF,) if n.dtype.is_float and n.dtype.bits == 16 else ()


def _of_access(n: BufferLoad | BufferStore) -> Iterable[Content]:
    if n.predicate is not None:
        yield MASK
    if isinstance(n, BufferLoad):
        yield from _of_value(n.buffer)


def _of_block(n: Block) -> Iterable[Content]:
    yield from n.annotations
    if n.init is not None:
        yield INIT
    if n.alloc_buffers:
        yield Allocate
    if any([iv.kind == IterVar.SCAN for iv in n.iter_vars]):
        yield SCAN


_WORDS: dict[type, Callable[[Any], Iterable[Content]]] = {
    AttrStmt: lambda n: (n.attr_key,),
    Block: _of_block,
    BlockRealize: lambda n: () if isinstance(n.predicate, IntImm) and n.predicate.value else (IfThenElse,),
    BufferLoad: _of_access,
    BufferStore: _of_access,
    Call: lambda n: (n.op, *_of_value(n)),
    Cast: _of_value,
    FloatImm: _of_value,
    For: lambda n: (n.kind, *n.annotations),
    Var: _of_value,
}


# the passes


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step: ``run(func, target)`` gives the new function.

    The step is left out of programs that contain nothing of ``wants``, because it would return them unchanged; an empty
    ``wants`` stands for every program. ``adds``: what it may put into programs.
    """

    name: str
    run: Callable[[PrimFunc, Target], PrimFunc]
    wants: frozenset[Content] = frozenset()
    adds: frozenset[Content] = frozenset()


def _step(
    rewrite: Callable[..., PrimFunc],
    wants: Iterable[Content] = (),
    adds: Iterable[Content] = (),
    *,
    target: bool = False,
    name: str = "",
) -> Pass:
    """Returns the pass of a function, which takes the target where ``target`` says so."""
    run = rewrite if target else lambda func, _: rewrite(func)
    return Pass(name or rewrite.__name__, run, frozenset(wants), frozenset(adds))


_GUARDS = (IfThenElse, Select, "tir.if_then_else")

PASSES: tuple[Pass, ...] = (
    _step(unified, name="unify_indices"),
    _step(drop_assumptions, ["tir.assume"]),
    _step(loops_for_hls, [VECTORIZED, UNROLLED, UNROLL_FACTOR], target=True),
    _step(serialize_vector_loops, [VECTORIZED, HORIZONTAL, NONTEMPORAL, PREFETCH_DISTANCE, PREFETCH_NEXT], target=True),
    _step(limit_library_threads, ["tir.call_extern"]),
    _step(place_init, [INIT], [IfThenElse]),
    _step(flatten_blocks),
    _step(check_accesses),
    _step(mark_nontemporal_stores, [NONTEMPORAL], [NONTEMPORAL_ATTR]),
    _step(compact_buffers, [Allocate]),
    _step(remove_unit_loops),
    _step(lower_storage_types, [STORAGE], [HALF, IfThenElse, Mul, VECTORIZED, Allocate, FloorMod]),
    _step(widen_half_floats, [HALF]),
    _step(lower_math, LOWERED, [*_GUARDS, Mul], target=True),
    _step(form_fma, [Mul], target=True),
    _step(legalize_vector_loops, [VECTORIZED], [IfThenElse, UNROLLED], target=True),
    _step(split_unroll_factors, [UNROLL_FACTOR], [UNROLLED]),
    _step(cut_idle_iterations, [IfThenElse, "tir.if_then_else"]),
    _step(simplify),
    _step(remove_unit_loops, name="remove_known_unit_loops"),
    _step(choose_unrolled, [UNROLL_STEPS, UNROLL_EXPLICIT], [UNROLLED]),
    _step(name_quotients, _GUARDS),
    _step(hoist_guards, _GUARDS),
    _step(join_split_indices, [VECTORIZED]),
    _step(align_tiles, [VECTORIZED], target=True),
    _step(transpose_steps, [VECTORIZED], [UNROLLED], target=True),
    _step(transpose_in_registers, [VECTORIZED], [MASK], target=True),
    _step(align_nontemporal_stores, [NONTEMPORAL_ATTR], [IfThenElse], target=True),
    _step(lower_horizontal, [HORIZONTAL], [MASK]),
    _step(vectorize_loops, [VECTORIZED], [MASK]),
    _step(end_loops_at_guards, [IfThenElse]),
    _step(unroll_loops, [UNROLLED, MASK, "tir.if_then_else"]),
    _step(read_all_lanes, [MASK]),
    _step(read_around_ends, [FloorMod], [MASK]),
    _step(interleave_stores, [VECTORIZED]),
    _step(carry_recurrences, [SCAN]),
    _step(promote_registers, [Allocate]),
    _step(insert_prefetches, [PREFETCH_DISTANCE, PREFETCH_NEXT], target=True),
)

PLAIN_PASSES: tuple[Pass, ...] = tuple([
    p for p in PASSES
    if p.name in ("drop_assumptions", "limit_library_threads", "place_init", "flatten_blocks", "check_accesses", "lower_storage_types", "widen_half_floats", "lower_math", "lower_horizontal")
])  # fmt: skip
"""The passes that a function without special loop kinds needs: nothing is simplified, hoisted, unrolled or kept in
registers. The results are a reference that shares little with the other passes."""


@dataclass(slots=True)
class PassReport:
    """The seconds that each pass took."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(f"{name:24s} {1e3 * t:8.2f} ms" for name, t in self.seconds.items())


@with_room
def run_passes(
    func: PrimFunc,
    target: Target | str,
    passes: Sequence[Pass] = PASSES,
    *,
    show: Sequence[str] = (),
    check: bool | None = None,
    report: PassReport | None = None,
    seen: Callable[[str, PrimFunc], None] | None = None,
) -> PrimFunc:
    """Run ``passes`` in order.

    ``show``: names of passes after which the function is printed to stderr (``"all"``: every one); ``check``: verify
    the function after each (False: before the first and after the last; None: as ``TILEWRIGHT_VERIFY=passes`` in the
    environment says); ``report`` collects the times; ``seen`` is called with the name of each pass and its result.

    Raises VerifyError for a function that is not well-formed, ValueError for an annotation with an invalid value.
    """
    if check is None:
        check = os.environ.get("TILEWRIGHT_VERIFY", "") == "passes"
    target = Target.of(target)
    verify(func)
    _warn_of_unread(func)
    inside = contents(func)
    for p in passes:
        start = time.perf_counter()
        if not p.wants or not p.wants.isdisjoint(inside):
            func = p.run(func, target)
            inside |= p.adds
        if report is not None:
            report.seconds[p.name] = report.seconds.get(p.name, 0.0) + time.perf_counter() - start
        if p.name in show or "all" in show:
            print(f"# after {p.name}\n{func.script()}", file=sys.stderr)
        if seen is not None:
            seen(p.name, func)
        if check:
            verify(func)
    if not check:
        verify(func)
    return func


_warned: set[str] = set()


def _warn_of_unread(func: PrimFunc) -> None:
    """Warn, once for each key, of annotations that no pass reads."""
    for key, place, near in unread_annotations(func):
        if key not in _warned:
            _warned.add(key)
            hint = f"; did you mean {near}?" if near else "; register_annotation makes one of your own known"
            warnings.warn(f"nothing reads the annotation {key!r} ({func.name}, {place}){hint}", stacklevel=4)
