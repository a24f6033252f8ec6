"""The order of the lowering passes, and the function that runs them: timed, printed on request, verified.

The function is always verified before the first pass and after the last one, which takes 1 to 5 percent of the compile
time. Verification after each pass takes a third of it; the tests do that.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...tir.annotations import unread_annotations
from ...tir.arith import simplify
from ...tir.deep_recursion import with_room
from ...tir.function import PrimFunc
from ...tir.index_width import unified
from ...tir.verify import verify
from ..machine.target import Target
from .assumptions import drop_assumptions
from .choose_unrolled import choose_unrolled
from .compact_buffers import compact_buffers
from .cut_idle_iterations import cut_idle_iterations
from .flatten_blocks import flatten_blocks
from .fold_masks import fold_masks
from .form_fma import form_fma
from .hoist_guards import hoist_guards, name_quotients
from .horizontal_reductions import lower_horizontal
from .insert_prefetches import insert_prefetches
from .interleave_prefetches import interleave_prefetches
from .join_split_indices import join_split_indices
from .legalize_loops import legalize_vector_loops, remove_unit_loops, split_unroll_factors
from .lower_math import lower_math
from .nontemporal_stores import align_nontemporal_stores, mark_nontemporal_stores
from .place_init import place_init
from .promote_registers import promote_registers
from .transpose_in_registers import transpose_in_registers
from .unroll_loops import unroll_loops
from .vectorize_loops import vectorize_loops
from .widen_half_floats import widen_half_floats


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step: ``run(func, target)`` gives the new function."""

    name: str
    run: Callable[[PrimFunc, Target], PrimFunc]


def _plain(rewrite: Callable[[PrimFunc], PrimFunc]) -> Callable[[PrimFunc, Target], PrimFunc]:
    return lambda func, target: rewrite(func)


PASSES: tuple[Pass, ...] = (
    Pass("unify_indices", _plain(unified)),
    Pass("drop_assumptions", _plain(drop_assumptions)),
    Pass("place_init", _plain(place_init)),
    Pass("flatten_blocks", _plain(flatten_blocks)),
    Pass("mark_nontemporal_stores", _plain(mark_nontemporal_stores)),
    Pass("compact_buffers", _plain(compact_buffers)),
    Pass("remove_unit_loops", _plain(remove_unit_loops)),
    Pass("widen_half_floats", _plain(widen_half_floats)),
    Pass("lower_math", lower_math),
    Pass("form_fma", form_fma),
    Pass("legalize_vector_loops", legalize_vector_loops),
    Pass("split_unroll_factors", _plain(split_unroll_factors)),
    Pass("cut_idle_iterations", _plain(cut_idle_iterations)),
    Pass("simplify", _plain(simplify)),
    Pass("choose_unrolled", _plain(choose_unrolled)),
    Pass("name_quotients", _plain(name_quotients)),
    Pass("hoist_guards", _plain(hoist_guards)),
    Pass("join_split_indices", _plain(join_split_indices)),
    Pass("transpose_in_registers", transpose_in_registers),
    Pass("align_nontemporal_stores", align_nontemporal_stores),
    Pass("lower_horizontal", _plain(lower_horizontal)),
    Pass("vectorize_loops", _plain(vectorize_loops)),
    Pass("unroll_loops", _plain(unroll_loops)),
    Pass("fold_masks", _plain(fold_masks)),
    Pass("promote_registers", _plain(promote_registers)),
    Pass("insert_prefetches", insert_prefetches),
    Pass("interleave_prefetches", interleave_prefetches),
)

PLAIN_PASSES: tuple[Pass, ...] = tuple([
    p for p in PASSES
    if p.name in ("drop_assumptions", "place_init", "flatten_blocks", "widen_half_floats", "lower_math", "lower_horizontal")
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
    target: Target,
    passes: Sequence[Pass] = PASSES,
    *,
    show: Sequence[str] = (),
    check: bool | None = None,
    report: PassReport | None = None,
) -> PrimFunc:
    """Run ``passes`` in order.

    ``show``: names of passes after which the function is printed to stderr (``"all"``: every one); ``check``: verify
    the function after each (False: before the first and after the last; None: as ``TILEWRIGHT_VERIFY=passes`` in the
    environment says); ``report`` collects the times.

    Raises VerifyError for a function that is not well-formed, ValueError for an annotation with an invalid value.
    """
    if check is None:
        check = os.environ.get("TILEWRIGHT_VERIFY", "") == "passes"
    verify(func)
    _warn_of_unread(func)
    for p in passes:
        start = time.perf_counter()
        func = p.run(func, target)
        if report is not None:
            report.seconds[p.name] = report.seconds.get(p.name, 0.0) + time.perf_counter() - start
        if p.name in show or "all" in show:
            print(f"# after {p.name}\n{func.script()}", file=sys.stderr)
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
