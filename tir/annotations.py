"""This module lists the known annotations of loops and blocks, and finds those of a function that nothing reads.

An annotation never changes what a function computes, so an unknown one is not an error. But an annotation that nothing
reads has no effect, and a warning tells its author.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..pages.messages import near_words
from .expr import IntImm
from .stmt import AttrStmt, Block, For, PrimFunc, statements

ALIGN = "buffer_dim_align"
ATOMIC = "atomic_update"
WINOGRAD = "winograd"
NBITS = "dense_nbits"
CACHED = "attention_cached"
MOST_ELEMENTS = (1 << 31) - 1
"""The largest factor and offset of :data:`ALIGN`, in elements."""

ANNOTATIONS: dict[str, str] = {
    "async_scope": "attribute: on GPUs, copies to shared memory are started only",
    ATOMIC: "block: on GPUs, a loop of its reduction may run on blocks, whose threads add to its result atomically",
    "bulk_copy": "loop: on GPUs of sm_90, one thread copies this row to shared memory by one instruction",
    "bulk_scope": "attribute: this row arrives at the mbarrier with this address (set by lowering)",
    ALIGN: "block: [buffer written, axis, factor, offset] each; the stride of the axis is k * factor + offset",
    CACHED: "block: its part of attention over a cache (scores, result); it is scheduled with the stages between them",
    NBITS: "block: its part of a product with packed weights of a few bits (code, dot, panel, taken), whose stages are scheduled together",
    "explicit_read_region": "block: numbers of the buffers read whose declared region is kept as it is",
    "explicit_write_region": "block: numbers of the buffers written whose declared region is kept as it is",
    "nontemporal_store": "attribute: stores bypass the caches (set by lowering)",
    "pragma_array_partition": "loop: [buffer, dimension, factor] each; hardware has so many memories for it",
    "pragma_auto_unroll_max_step": "loop or block: innermost loops of at most this many stores in all are unrolled",
    "pragma_hls_unroll": "loop: high-level synthesis unrolls it by this factor, 0: completely (set by lowering)",
    "pragma_nontemporal_store": "loop or block: stores of full vectors bypass the caches",
    "pragma_pipeline": "loop: hardware starts an iteration every so many cycles (0: as often as possible)",
    "pragma_prefetch_distance": "loop: each iteration prefetches what the iteration so many steps later reads",
    "pragma_prefetch_next": "loop: each iteration prefetches what the next one reads of these buffers",
    "pragma_tail": 'loop: "mask" or "peel", how an incomplete tile is computed',
    "pragma_unroll_explicit": "loop or block: 0 keeps loops that are marked for unrolling as loops",
    "pragma_unroll_factor": "serial loop: the number of copies of the body in each iteration",
    "tir.horizontal_reduce": "reduction loop over lanes, or loop of running sums: one step per halving or doubling of the vector",
    WINOGRAD: "block: its part of a convolution by Winograd's method, whose stages are scheduled together",
}
"""The annotations that passes and primitives read, by key; :func:`register_annotation` adds to it."""

_KINDS = ("auto_unroll", "meta_schedule.", "pragma_", "software_pipeline_", "tir.")
"""The prefixes of annotations for a code generator. Other keys of blocks describe the computation, as
``te.compute(attrs=)`` sets them."""


def register_annotation(key: str, meaning: str = "read by a pass of the user") -> None:
    """Make an annotation known, so that lowering does not warn of it. A pass, a rule or a tool of the user reads it.

    ``meaning`` is one line: where the annotation stands (loop, block) and what it asks for. Registering the same key
    again replaces it.
    """
    ANNOTATIONS[key] = meaning


def is_for_code(key: str) -> bool:
    """Return whether a block's annotation asks for something of schedules or code, and does not describe what is computed."""
    return key in ANNOTATIONS or key.startswith(_KINDS)


def unread_annotations(func: PrimFunc) -> Iterator[tuple[str, str, str]]:
    """Yield each annotation and each attribute that is not in :data:`ANNOTATIONS`. It comes with its key, its place,
    and the known key with the most similar spelling (empty where none is similar)."""
    for n in statements(func.body):
        if isinstance(n, For):
            found, place = list(n.annotations), f"loop {n.loop_var.name}"
        elif isinstance(n, Block):
            found, place = list(n.annotations), f"block {n.name!r}"
        elif isinstance(n, AttrStmt):
            found, place = [n.attr_key], "an attribute"
        else:
            continue
        for key in found:
            if key not in ANNOTATIONS:
                near = near_words(key, ANNOTATIONS, 1, 0.7)
                if near or not isinstance(n, Block) or is_for_code(key):
                    yield key, place, near[0] if near else ""


def alignment_wishes(value: Any) -> list[tuple[int, int, int, int]] | str:
    """Return the entries of an :data:`ALIGN` annotation, or a text that says why ``value`` is not valid.

    Each entry is (number of the written buffer, axis, factor, offset).
    """
    none = f"{value!r}, no list of [buffer, axis, factor, offset]"
    if not isinstance(value, (list, tuple)):
        return none
    out = []
    for wish in value:
        if not isinstance(wish, (list, tuple)) or len(wish) != 4 or not all(isinstance(n, (int, IntImm)) for n in wish):
            return none
        index, axis, factor, offset = map(int, wish)
        if factor <= 0:
            return f"the factor is a positive number of elements, not {factor}"
        if factor > MOST_ELEMENTS:
            return f"the factor is a number of elements up to {MOST_ELEMENTS}, not {factor}"
        if abs(offset) > MOST_ELEMENTS:
            return f"the offset is a number of elements from {-MOST_ELEMENTS} to {MOST_ELEMENTS}, not {offset}"
        if index < 0 or axis < 0:
            return f"buffers and axes are counted from 0, unlike {wish!r}"
        out.append((index, axis, factor, offset))
    return out
