"""Packing of constant operands: they are brought into the layout that the kernel needs once, ahead of time.

The attribute ``layout_free_buffers`` of a PrimFunc names (by number) the parameters that may be passed in any
layout. Where the scheduled function's root holds statements that only rearrange such a parameter into a buffer of its
own (as ``cache_read`` and ``transform_layout`` do), :func:`split_packing` moves them into a function of
their own, and the main function takes their result in the parameter's place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..tir.analysis.access import accesses_below
from ..tir.expr import IntImm, Var
from ..tir.stmt import BlockRealize, Buffer, PrimFunc, SeqStmt, Stmt, root_block, seq
from .lowered import ALIGNED_ARRAYS

LAYOUT_FREE = "layout_free_buffers"


@dataclass(frozen=True)
class Packing:
    """A function with packed parameters, ``main``, and the functions that pack them. ``packs`` has, by the number of
    the parameter, the function ``(original, packed)`` that fills the packed array. Its name is
    ``<function>_pack_<parameter>``."""

    main: PrimFunc
    packs: Mapping[int, PrimFunc]


def layout_free_params(func: PrimFunc) -> tuple[int, ...]:
    """Returns the parameters that may be packed ahead. ValueError for a number that is not one of a buffer
    parameter."""
    out = []
    for n in func.attrs.get(LAYOUT_FREE, ()):
        index = int(n)
        if not 0 <= index < len(func.params) or func.params[index] not in func.buffer_map:
            raise ValueError(f"{LAYOUT_FREE} of {func.name} names parameter {index}, which is not a buffer")
        out.append(index)
    return tuple(out)


def split_packing(func: PrimFunc) -> Packing:
    """Separate the packing of layout-free parameters from ``func``.

    Before (``layout_free_buffers = [1]``)::

        def main(A, B, C):
            P = T.alloc_buffer((4, 13, 16))
            for ...: P[p, k, q] = B[k, p * 16 + q]
            for ...: C[i, j] += A[i, k] * P[j // 16, k, j % 16]

    After::

        def main_pack_B(B, P):
            for ...: P[p, k, q] = B[k, p * 16 + q]

        def main(A, P, C):
            for ...: C[i, j] += A[i, k] * P[j // 16, k, j % 16]

    A parameter stays as it is when other statements read it too, when its packing is not at the root, takes other
    operands, or is read through several buffers, and when shapes are symbolic.
    """
    packs: dict[int, PrimFunc] = {}
    for index in layout_free_params(func):
        found = _split(func, index)
        if found is not None:
            func, packs[index] = found
    return Packing(func, packs)


def _split(func: PrimFunc, index: int) -> tuple[PrimFunc, PrimFunc] | None:
    weight = func.buffer_map[func.params[index]]
    root = func.body
    if not isinstance(root, BlockRealize) or not isinstance(root.block.body, SeqStmt):
        return None
    block, statements = root.block, root.block.body.seq
    accesses = [_accesses(s) for s in statements]
    packing, buffers = _weight_only_statements(weight, accesses, set(block.alloc_buffers))
    rest = [n for n in range(len(accesses)) if n not in packing]
    crossing: dict[Buffer, None] = {}
    for n in rest:
        reads = accesses[n]
        if reads is None or weight in reads[0]:
            return None
        for b in reads[0]:
            if b in buffers:
                crossing.setdefault(b)
    if len(crossing) != 1 or not rest:
        return None
    (packed,) = crossing
    if packed.scope != "global" or packed.strides or not all(isinstance(e, IntImm) for e in (*weight.shape, *packed.shape)):  # fmt: skip
        return None
    main_root = replace(
        root,
        block=replace(
            block,
            body=seq(*[statements[n] for n in rest]),
            alloc_buffers=tuple([b for b in block.alloc_buffers if b not in buffers]),
        ),
    )
    handle = Var(packed.name, "handle")
    params = tuple([handle if n == index else p for n, p in enumerate(func.params)])
    main = PrimFunc(params, main_root, {p: packed if p is handle else b for p, b in _buffers(func, params)}, func.attrs)
    inner = tuple([b for b in block.alloc_buffers if b in buffers and b is not packed])
    source, made = Var(weight.name, "handle"), Var(packed.name, "handle")
    name = f"{func.name}_pack_{re.sub(r'[^0-9A-Za-z_]', '_', weight.name)}"
    pack = PrimFunc(
        (source, made),
        root_block("root", seq(*[statements[n] for n in packing]), inner),
        {source: weight, made: packed},
        {"global_symbol": name, "tir.noalias": True, ALIGNED_ARRAYS: True},
    )
    return main, pack


def _buffers(func: PrimFunc, params: tuple[Var, ...]) -> list[tuple[Var, Buffer]]:
    """Returns the new parameters with their buffers. The caller inserts the packed one."""
    out = []
    for old, new in zip(func.params, params, strict=True):
        if old in func.buffer_map:
            out.append((new, func.buffer_map[old]))
    return out


_Accesses = tuple[frozenset[Buffer], frozenset[Buffer]]


def _accesses(s: Stmt) -> _Accesses | None:
    """Returns the buffers that a statement reads and writes, or None when it also accesses memory in other ways."""
    found = accesses_below(s)
    if any(isinstance(p.node, Var) for p in found.pointers):
        return None
    reads = [*[a.buffer for a in found.all if not a.is_store], *[m.source.buffer for m in found.matches]]
    return frozenset(reads), frozenset([a.buffer for a in found.all if a.is_store])


def _weight_only_statements(
    weight: Buffer, accesses: list[_Accesses | None], own: set[Buffer]
) -> tuple[list[int], set[Buffer]]:
    """Returns the statements that compute buffers from ``weight`` alone, and those buffers: the largest such set."""
    buffers = own
    while True:
        fine = [
            n
            for n, a in enumerate(accesses)
            if a is not None and a[1] and a[1] <= buffers and (a[0] - a[1]) <= buffers | {weight}
        ]
        kept = {b for b in buffers if _all_writers(b, accesses, fine)}
        if kept == buffers:
            break
        buffers = kept
    reached: set[Buffer] = {weight}
    while True:  # statements that do not depend on the weight stay
        more = {b for n in fine for b in accesses[n][1] if accesses[n][0] & reached}  # type: ignore[index]
        if more <= reached:
            break
        reached |= more
    reached.discard(weight)
    return [n for n in fine if accesses[n][1] <= reached], reached  # type: ignore[index]


def _all_writers(buffer: Buffer, accesses: list[_Accesses | None], fine: list[int]) -> bool:
    writers = [n for n, a in enumerate(accesses) if a is None or buffer in a[1]]
    return bool(writers) and all(n in fine for n in writers)


def packed_ahead(func: PrimFunc) -> tuple[PrimFunc, Mapping[int, PrimFunc], tuple[int, ...]]:
    split = split_packing(func)
    return split.main, split.packs, layout_free_params(func)
