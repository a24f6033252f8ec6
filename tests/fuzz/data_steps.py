"""Steps on data: copies, layouts, scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.schedule import Schedule
from tilewright.schedule.index_map import IndexMap
from tilewright.tir.analysis.known_ranges import sized_analyzer
from tilewright.tir.analysis.tree import symbols_of
from tilewright.tir.expr import IterVar, Var
from tilewright.tir.stmt import Block, PrimFunc
from tilewright.tir.walk import substitute

from .step_drawing import (
    Nothing,
    Rng,
    a_block,
    a_block_where,
    a_factor,
    a_loop,
    a_scope,
    blocks_in,
    coin,
    loops_of,
    one,
    reduces,
    step,
    the,
)


@step(4)
def cache_read(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    users = [block] if coin(rng, 0.3) else None
    sch.cache_read(block, int(rng.integers(max(1, len(the(sch, block).reads)))), a_scope(rng), consumer_blocks=users)


@step(4)
def cache_write(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    users = [a_block(rng, sch)] if coin(rng, 0.2) else None
    outputs = max(1, len(the(sch, block).writes))
    sch.cache_write(block, int(rng.integers(outputs)), a_scope(rng), consumer_blocks=users)


@step(2)
def reindex(rng: Rng, sch: Schedule) -> None:
    place = int(rng.integers(2)) if rng.random() < 0.3 else None
    sch.reindex(a_block(rng, sch), (str(rng.choice(["read", "write"])), int(rng.integers(2))), place=place)


def _a_map(rng: Rng, axes: int, sizes: Sequence[Var] = ()) -> Any:
    """A map of so many indices, made of a permutation, tiles or a reversal; it may use ``sizes``."""
    order = [int(x) for x in rng.permutation(axes)]
    by = one(rng, sizes) if sizes and coin(rng) else a_factor(rng)
    kind = int(rng.integers(4))
    if kind == 3:
        last = int(rng.integers(axes))
        return lambda *v: tuple([20 - v[k] if k == last else v[k] for k in order])
    if kind == 0:
        return lambda *v: tuple([v[k] for k in order])
    at = int(rng.integers(axes))
    if kind == 1:
        return lambda *v: (*v[:at], v[at] // by, *v[at + 1 :], v[at] % by)
    return lambda *v: (v[at] // by, *v[:at], v[at] % by, *v[at + 1 :])


def _divides(func: PrimFunc, index_map: Any, dims: int) -> bool:
    """Whether all divisors of the map are known to be at least 1. Sizes and numbers given with the call may be 0."""
    analyzer = sized_analyzer(func)
    return all(analyzer.can_prove(e >= 1) for e in IndexMap.of(index_map, dims, symbols_of(func)).divisors())


@step(1)
def reindex_cache_read(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    axes = len(the(sch, block).iter_vars)
    order = [int(x) for x in rng.permutation(axes)]
    sch.reindex_cache_read(block, 0, a_scope(rng), _named(axes, lambda v: tuple([v[k] for k in order])))


@step(1)
def reindex_cache_write(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    spatial = [k for k, iv in enumerate(the(sch, block).iter_vars) if iv.kind == IterVar.SPATIAL]
    order = [spatial[int(x)] for x in rng.permutation(len(spatial))]
    axes = len(the(sch, block).iter_vars)
    sch.reindex_cache_write(block, 0, a_scope(rng), _named(axes, lambda v: tuple([v[k] for k in order])))


def _named(axes: int, f: Callable[[Sequence[Any]], Any]) -> Any:
    """``f`` over a sequence as a function of that many arguments, for maps that must know how many they take."""
    names = [f"v{k}" for k in range(axes)]
    scope: dict[str, Any] = {"f": f}
    return eval(f"lambda {', '.join(names)}: f([{', '.join(names)}])", scope)  # noqa: S307 - names of our own


@step(0.7)
def cache_inplace(rng: Rng, sch: Schedule) -> None:
    updating = [n for n in blocks_in(sch) if _updated(the(sch, n))]
    block = one(rng, updating) if updating and coin(rng, 0.8) else a_block(rng, sch)
    sch.cache_inplace(block, one(rng, _updated(the(sch, block)) or [0, 1]), a_scope(rng))


def _updated(block: Block) -> list[int]:
    """The numbers of those buffers that the block reads and writes."""
    written = {r.buffer for r in block.writes}
    return [n for n, r in enumerate(block.reads) if r.buffer in written]


@step(1, "decompose_reduction", "cache_inplace")
def updated_in_place(rng: Rng, sch: Schedule) -> None:
    """The update of a reduction, on a copy."""
    block = a_block_where(rng, sch, reduces)
    loops = loops_of(sch, block)
    sch.decompose_reduction(block, one(rng, loops[:2]))
    sch.cache_inplace(f"{block}_update", 0, a_scope(rng))


@step(0.7)
def cache_index(rng: Rng, sch: Schedule) -> None:
    sch.cache_index(a_block(rng, sch), "global", int(rng.integers(0, 3)))


@step(1)
def read_at(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.read_at(a_loop(rng, sch, block), block, int(rng.integers(max(1, len(the(sch, block).reads)))), a_scope(rng))


@step(1)
def write_at(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.write_at(a_loop(rng, sch, block), block, 0, a_scope(rng))


@step(0.5)
def annotate_buffer_access(rng: Rng, sch: Schedule) -> None:
    """What a block declares of a buffer made wider, now and then narrower, than it is."""
    block = a_block(rng, sch)
    found = the(sch, block)
    kind = str(rng.choice(["read", "write"]))
    region = one(rng, found.reads if kind == "read" else found.writes)
    wider = [(int(rng.choice([0, 0, 1, 2])), int(rng.choice([-1, 0, 0, 0, 1, 3]))) for _ in region.region]

    def ranges(*axes: Any) -> list[Any]:
        at = {iv.var: axis for iv, axis in zip(found.iter_vars, axes, strict=True)}
        ends = [(substitute(r.min, at), substitute(r.min + r.extent, at)) for r in region.region]
        return [(low - less, high + more) for (low, high), (less, more) in zip(ends, wider, strict=True)]

    number = [r.buffer for r in (found.reads if kind == "read" else found.writes)].index(region.buffer)
    sch.annotate_buffer_access(block, number, kind, ranges)


@step(0.5)
def set_scope(rng: Rng, sch: Schedule) -> None:
    sch.set_scope(a_block(rng, sch), 0, a_scope(rng))


@step(0.5)
def storage_align(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    dims = len(the(sch, block).writes[0].region) if the(sch, block).writes else 1
    if not dims:
        raise Nothing
    sch.storage_align(block, 0, int(rng.integers(-dims, dims)), int(rng.choice([4, 8])), int(rng.integers(0, 4)))


@step(4)
def transform_layout(rng: Rng, sch: Schedule) -> None:
    block = a_block_where(rng, sch, lambda b: bool(b.writes) and b.writes[0].buffer not in sch.func.buffers)
    dims = len(the(sch, block).writes[0].region)
    if not dims:
        raise Nothing
    pad = float(rng.integers(2)) if coin(rng) else None
    dtype = the(sch, block).writes[0].buffer.dtype
    if pad is not None and ("int" in dtype or dtype == "bool"):
        pad = int(pad)
    index_map = _a_map(rng, dims, symbols_of(sch.func))
    # what is drawn sends each element to a place of its own, except where it divides by a number that may be 0
    trusted = pad is None and coin(rng, 0.3) and _divides(sch.func, index_map, dims)
    sch.transform_layout(
        block, ("write", 0), index_map, pad, leave_padding=pad is None, assume_injective_transform=trusted
    )


@step(3)
def transform_block_layout(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    axes = len(the(sch, block).iter_vars)
    if not axes:
        raise Nothing
    sch.transform_block_layout(block, _a_map(rng, axes))


@step(1)
def reorder_block_iter_var(rng: Rng, sch: Schedule) -> None:
    block = a_block(rng, sch)
    sch.reorder_block_iter_var(block, [int(x) for x in rng.permutation(len(the(sch, block).iter_vars))])


@step(0.5)
def set_axis_separator(rng: Rng, sch: Schedule) -> None:
    sch.set_axis_separator(a_block(rng, sch), ("write", 0), [1])
