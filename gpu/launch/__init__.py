"""From scheduled functions to kernels in launch form: what all GPUs share, and the order of the passes.

:data:`LAUNCH_PASSES` are the passes; :mod:`.launch_form` describes the form.
"""

from __future__ import annotations

from collections.abc import Callable

from ...codegen.late_tables import TARGET_KINDS
from ...codegen.lower.check_accesses import check_accesses
from ...codegen.lower.compact_buffers import compact_buffers
from ...codegen.lower.flatten_blocks import drop_assumptions, flatten_blocks, place_init
from ...codegen.lower.form_fma import form_fma
from ...codegen.lower.legalize_loops import legalize_vector_loops, remove_unit_loops
from ...codegen.lower.lower_math import lower_math
from ...codegen.lower.pipeline import Pass
from ...codegen.lower.unroll_loops import choose_unrolled, split_unroll_factors, unroll_loops
from ...codegen.lower.vectorize_loops import vectorize_loops
from ...codegen.lower.widen_half_floats import widen_half_floats
from ...tir.analysis.simplify import simplify
from ...tir.index_width import unified
from ...tir.stmt import PrimFunc
from ...tir.storage_types import lower_storage_types
from .atomic_updates import pair_atomics, update_atomically
from .barriers import place_barriers
from .bulk_copies import bulk_instructions, start_bulk_copies
from .cross_thread_reduction import reduce_across_threads
from .launch_form import GpuError, to_launch_form
from .narrow_shared import narrow_shared
from .shared_overlay import overlay_shared
from .software_pipeline import pipeline_loops
from .virtual_threads import run_virtual_threads

__all__ = ["LAUNCH_PASSES", "THREAD_PASSES", "GpuError"]


def _pass(rewrite: Callable[..., PrimFunc], target: bool = False, name: str = "") -> Pass:
    return Pass(name or rewrite.__name__, rewrite if target else lambda func, _: rewrite(func))


LAUNCH_PASSES: tuple[Pass, ...] = (
    _pass(unified, name="unify_indices"),
    _pass(drop_assumptions),
    Pass("reduce_across_threads", lambda func, target: reduce_across_threads(func, TARGET_KINDS[target.kind].warps)),
    _pass(update_atomically),
    _pass(place_init),
    _pass(flatten_blocks),
    _pass(check_accesses),
    _pass(lower_storage_types),
    _pass(to_launch_form),
    _pass(compact_buffers),
    _pass(narrow_shared),
    _pass(run_virtual_threads),
    _pass(pipeline_loops),
    _pass(start_bulk_copies),
    _pass(simplify),
    _pass(remove_unit_loops),
    _pass(overlay_shared),
    _pass(place_barriers),
)
"""From blocks to kernels in launch form with barriers. The simulated device runs what comes out."""

THREAD_PASSES: tuple[Pass, ...] = (
    _pass(bulk_instructions),
    _pass(pair_atomics),
    _pass(widen_half_floats),
    _pass(lower_math, target=True),
    _pass(form_fma, target=True),
    _pass(legalize_vector_loops, target=True),
    _pass(split_unroll_factors),
    _pass(simplify),
    _pass(choose_unrolled),
    _pass(vectorize_loops),
    _pass(unroll_loops),
)
"""What machine code of one thread needs after that."""
