"""One random primitive with random arguments: mostly sensible ones, so that a good share is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...schedule.primitive import REGISTRY
from ...schedule.tree import tree_of
from ...tir.expr import IterVar, Var
from ...tir.stmt import Block

__all__ = ["STEPS", "draw_step"]

Rng = np.random.Generator
Step = Callable[[Rng, Schedule], Any]

STEPS: dict[str, tuple[float, Step]] = {}
"""What may be drawn: a weight, and the function that applies it; the name is that of a primitive or a short recipe."""


class Nothing(Exception):
    """There is nothing here that the step could be applied to."""


def step(weight: float, *needs: str) -> Callable[[Step], Step]:
    """Add a function to :data:`STEPS` when the primitives it needs (its own name, unless others are given) exist."""

    def add(f: Step) -> Step:
        if all(name in REGISTRY for name in needs or (f.__name__,)):
            STEPS[f.__name__] = (weight, f)
        return f

    return add


def draw_step(rng: Rng, only: Sequence[str] | None = None) -> tuple[str, Step]:
    """A step by its weight."""
    names = [n for n in STEPS if only is None or n in only]
    weights = np.array([STEPS[n][0] for n in names])
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    return name, STEPS[name][1]


# -- choices -------------------------------------------------------------------------------------------------------------


def _one(rng: Rng, items: Sequence[Any]) -> Any:
    if not items:
        raise Nothing
    return items[int(rng.integers(len(items)))]


def _blocks(sch: Schedule) -> list[str]:
    tree = tree_of(sch.func)
    return [name for name, found in tree.blocks.items() if found[0] is not sch.func.body]


def _block(rng: Rng, sch: Schedule) -> str:
    return str(_one(rng, _blocks(sch)))


def _the(sch: Schedule, name: str) -> Block:
    return tree_of(sch.func).block(name).block


def _block_where(rng: Rng, sch: Schedule, test: Callable[[Block], bool]) -> str:
    return str(_one(rng, [n for n in _blocks(sch) if test(_the(sch, n))]))


def _reduces(block: Block) -> bool:
    return block.init is not None


def _loops(sch: Schedule, block: str) -> list[Var]:
    return list(sch.get_loops(block))


def _loop(rng: Rng, sch: Schedule, block: str | None = None) -> Var:
    loop: Var = _one(rng, _loops(sch, block or _block(rng, sch)))
    return loop


def _coin(rng: Rng, p: float = 0.5) -> bool:
    return bool(rng.random() < p)


def _small(rng: Rng) -> int:
    return int(rng.choice([1, 2, 2, 3, 4, 4, 5, 8]))


def _user(rng: Rng, sch: Schedule, block: str, ahead: bool) -> str:
    """A consumer of the block (or a producer), else any block."""
    near = sch.get_consumers(block) if ahead else sch.get_producers(block)
    return str(_one(rng, near).name) if near and _coin(rng, 0.8) else _block(rng, sch)


# -- loops -----------------------------------------------------------------------------------------------------------------


@step(10)
def split(rng: Rng, sch: Schedule) -> None:
    loop = _loop(rng, sch)
    factors: list[int | None] = [None, _small(rng)]
    if _coin(rng, 0.3):
        factors.reverse()
    if _coin(rng, 0.25):
        factors.insert(int(rng.integers(3)), _small(rng))
    sch.split(loop, factors, preserve_unit_iters=_coin(rng, 0.8), disable_predication=_coin(rng, 0.1))


@step(5)
def fuse(rng: Rng, sch: Schedule) -> None:
    loops = _loops(sch, _block(rng, sch))
    if len(loops) < 2:
        raise Nothing
    at = int(rng.integers(len(loops) - 1))
    sch.fuse(*loops[at : at + int(rng.integers(2, 4))], preserve_unit_iters=_coin(rng, 0.8))


@step(8)
def reorder(rng: Rng, sch: Schedule) -> None:
    loops = _loops(sch, _block(rng, sch))
    if len(loops) < 2:
        raise Nothing
    rng.shuffle(loops)
    sch.reorder(*loops[: int(rng.integers(2, len(loops) + 1))])


@step(1)
def add_unit_loop(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    loops = _loops(sch, block)
    sch.add_unit_loop(_one(rng, [block, *loops]))


@step(2)
def loop_partition(rng: Rng, sch: Schedule) -> None:
    loop = _loop(rng, sch)
    sch.loop_partition(loop, _one(rng, [[None, 1], [1, None], [2, None, 1], [2], [4, None]]))


@step(3)
def merge(rng: Rng, sch: Schedule) -> None:
    a, b = _block(rng, sch), _block(rng, sch)
    one, two = _loops(sch, a), _loops(sch, b)
    depth = int(rng.integers(1, 3))
    if a == b or len(one) < depth or len(two) < depth:
        raise Nothing
    sch.merge(one[depth - 1], two[depth - 1])


@step(3)
def parallel(rng: Rng, sch: Schedule) -> None:
    sch.parallel(_loop(rng, sch))


@step(3)
def vectorize(rng: Rng, sch: Schedule) -> None:
    loops = _loops(sch, _block(rng, sch))
    sch.vectorize(loops[-1] if loops and _coin(rng, 0.7) else _one(rng, loops))


@step(3)
def unroll(rng: Rng, sch: Schedule) -> None:
    sch.unroll(_loop(rng, sch))


@step(0.3)
def bind(rng: Rng, sch: Schedule) -> None:
    sch.bind(_loop(rng, sch), str(rng.choice(["blockIdx.x", "threadIdx.x", "vthread.x"])))


# -- copies ----------------------------------------------------------------------------------------------------------------


def _scope(rng: Rng) -> str:
    return str(rng.choice(["local", "global", "shared"]))


@step(4)
def cache_read(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    users = [block] if _coin(rng, 0.3) else None
    sch.cache_read(block, int(rng.integers(max(1, len(_the(sch, block).reads)))), _scope(rng), consumer_blocks=users)


@step(4)
def cache_write(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    users = [_block(rng, sch)] if _coin(rng, 0.2) else None
    sch.cache_write(block, 0, _scope(rng), consumer_blocks=users)


@step(2)
def reindex(rng: Rng, sch: Schedule) -> None:
    sch.reindex(_block(rng, sch), (str(rng.choice(["read", "write"])), int(rng.integers(2))))


def _a_map(rng: Rng, axes: int) -> Any:
    order = [int(x) for x in rng.permutation(axes)]
    by = _small(rng)
    kind = int(rng.integers(3))
    if kind == 0:
        return lambda *v: tuple([v[k] for k in order])
    at = int(rng.integers(axes))
    if kind == 1:
        return lambda *v: (*v[:at], v[at] // by, *v[at + 1 :], v[at] % by)
    return lambda *v: (v[at] // by, *v[:at], v[at] % by, *v[at + 1 :])


@step(1)
def reindex_cache_read(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    axes = len(_the(sch, block).iter_vars)
    order = [int(x) for x in rng.permutation(axes)]
    sch.reindex_cache_read(block, 0, _scope(rng), _named(axes, lambda v: tuple([v[k] for k in order])))


@step(1)
def reindex_cache_write(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    spatial = [k for k, iv in enumerate(_the(sch, block).iter_vars) if iv.kind == IterVar.SPATIAL]
    order = [spatial[int(x)] for x in rng.permutation(len(spatial))]
    axes = len(_the(sch, block).iter_vars)
    sch.reindex_cache_write(block, 0, _scope(rng), _named(axes, lambda v: tuple([v[k] for k in order])))


def _named(axes: int, f: Callable[[Sequence[Any]], Any]) -> Any:
    """``f`` over a sequence as a function of that many arguments, for maps that must know how many they take."""
    names = [f"v{k}" for k in range(axes)]
    scope: dict[str, Any] = {"f": f}
    return eval(f"lambda {', '.join(names)}: f([{', '.join(names)}])", scope)  # noqa: S307 - names of our own


@step(0.7)
def cache_inplace(rng: Rng, sch: Schedule) -> None:
    sch.cache_inplace(_block(rng, sch), int(rng.integers(2)), _scope(rng))


@step(0.7)
def cache_index(rng: Rng, sch: Schedule) -> None:
    sch.cache_index(_block(rng, sch), "global", int(rng.integers(0, 3)))


@step(1)
def read_at(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.read_at(_loop(rng, sch, block), block, 0, _scope(rng))


@step(1)
def write_at(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.write_at(_loop(rng, sch, block), block, 0, _scope(rng))


@step(0.5)
def set_scope(rng: Rng, sch: Schedule) -> None:
    sch.set_scope(_block(rng, sch), 0, _scope(rng))


@step(0.5)
def storage_align(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    dims = len(_the(sch, block).writes[0].region) if _the(sch, block).writes else 1
    sch.storage_align(block, 0, int(rng.integers(-dims, dims)), int(rng.choice([4, 8])), int(rng.integers(0, 4)))


# -- moving ----------------------------------------------------------------------------------------------------------------


@step(10)
def compute_at(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    loop = _loop(rng, sch, _user(rng, sch, block, True))
    sch.compute_at(block, loop, _coin(rng, 0.3), int(rng.choice([-1, -1, -2, 0, 1])))


@step(8)
def reverse_compute_at(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    loop = _loop(rng, sch, _user(rng, sch, block, False))
    sch.reverse_compute_at(block, loop, _coin(rng, 0.3), int(rng.choice([-1, -1, -2, 0, 1])))


@step(2)
def compute_inline(rng: Rng, sch: Schedule) -> None:
    sch.compute_inline(_block(rng, sch))


@step(3)
def reverse_compute_inline(rng: Rng, sch: Schedule) -> None:
    sch.reverse_compute_inline(_block(rng, sch))


@step(1, "sample_compute_location", "compute_at")
def sampled_compute_at(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.compute_at(block, sch.sample_compute_location(block))


# -- reductions ------------------------------------------------------------------------------------------------------------


@step(3)
def decompose_reduction(rng: Rng, sch: Schedule) -> None:
    block = _block_where(rng, sch, _reduces)
    sch.decompose_reduction(block, _loop(rng, sch, block))


@step(3)
def rfactor(rng: Rng, sch: Schedule) -> None:
    block = _block_where(rng, sch, _reduces)
    sch.rfactor(_loop(rng, sch, block), int(rng.integers(-1, 2)))


@step(2)
def fuse_reduction_epilogue(rng: Rng, sch: Schedule) -> None:
    block = _block_where(rng, sch, _reduces)
    sch.fuse_reduction_epilogue(block, _user(rng, sch, block, True))


# -- padding and tiles -----------------------------------------------------------------------------------------------------


@step(2)
def pad_einsum(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.pad_einsum(block, [int(rng.choice([1, 1, 2, 4, 8])) for _ in _the(sch, block).iter_vars])


@step(4)
def decompose_padding(rng: Rng, sch: Schedule) -> None:
    block = _block_where(rng, sch, lambda b: "if_then_else" in str(b))
    sch.decompose_padding(block, _loop(rng, sch, block))


@step(2)
def rolling_buffer(rng: Rng, sch: Schedule) -> None:
    sch.rolling_buffer(_block(rng, sch), 0)


@step(3, "split", "compute_at", "rolling_buffer")
def rolled(rng: Rng, sch: Schedule) -> None:
    """A producer under the tiles of its consumer, and its buffer rolled."""
    block = _block_where(rng, sch, lambda b: bool(sch.get_consumers(b.name_hint)))
    outer, _ = sch.split(_one(rng, _loops(sch, _user(rng, sch, block, True))[:2]), [None, int(rng.integers(2, 5))])
    sch.compute_at(block, outer)
    sch.rolling_buffer(block, 0)


# -- sampling --------------------------------------------------------------------------------------------------------------


@step(1.5, "sample_perfect_tile", "split")
def sampled_split(rng: Rng, sch: Schedule) -> None:
    loop = _loop(rng, sch)
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
    sch.annotate(_block(rng, sch), "note", value)


# -- layouts, blocks, remarks ----------------------------------------------------------------------------------------------


@step(4)
def transform_layout(rng: Rng, sch: Schedule) -> None:
    block = _block_where(rng, sch, lambda b: bool(b.writes) and b.writes[0].buffer not in sch.func.buffers)
    dims = len(_the(sch, block).writes[0].region)
    if not dims:
        raise Nothing
    pad = float(rng.integers(2)) if _coin(rng) else None
    if pad is not None and "int" in _the(sch, block).writes[0].buffer.dtype:
        pad = int(pad)
    sch.transform_layout(block, ("write", 0), _a_map(rng, dims), pad)


@step(3)
def transform_block_layout(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    axes = len(_the(sch, block).iter_vars)
    if not axes:
        raise Nothing
    sch.transform_block_layout(block, _a_map(rng, axes))


@step(1)
def reorder_block_iter_var(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.reorder_block_iter_var(block, [int(x) for x in rng.permutation(len(_the(sch, block).iter_vars))])


@step(0.5)
def set_axis_separator(rng: Rng, sch: Schedule) -> None:
    sch.set_axis_separator(_block(rng, sch), ("write", 0), [1])


@step(2)
def blockize(rng: Rng, sch: Schedule) -> None:
    sch.blockize(_loop(rng, sch), _coin(rng, 0.7))


@step(0.5)
def annotate(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.annotate(_one(rng, [block, *_loops(sch, block)]), "note", int(rng.integers(9)))


@step(0.5)
def unannotate(rng: Rng, sch: Schedule) -> None:
    block = _block(rng, sch)
    sch.unannotate(_one(rng, [block, *_loops(sch, block)]), "note")
