"""How the steps of a chain are drawn: by weight, and mostly with sensible arguments, so that a good share is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.schedule import Schedule
from tilewright.schedule.primitive import REGISTRY
from tilewright.schedule.require.block_preconditions import find_block
from tilewright.tir.analysis.tree import tree_of
from tilewright.tir.expr import Var
from tilewright.tir.stmt import Block

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


def one(rng: Rng, items: Sequence[Any]) -> Any:
    """Any of the items."""
    if not items:
        raise Nothing
    return items[int(rng.integers(len(items)))]


def coin(rng: Rng, p: float = 0.5) -> bool:
    """True with probability ``p``."""
    return bool(rng.random() < p)


def a_factor(rng: Rng) -> int:
    """A number to split by: a small one, now and then one that is larger than any loop."""
    return int(rng.choice([17, 33, 100])) if coin(rng, 0.04) else int(rng.choice([1, 2, 2, 3, 4, 4, 5, 8]))


def a_scope(rng: Rng) -> str:
    """A storage scope."""
    return str(rng.choice(["local", "global", "shared"]))


def blocks_in(sch: Schedule) -> list[str]:
    """All blocks but the root, in the order of the program."""
    tree = tree_of(sch.func)
    return [name for name, found in tree.blocks.items() if found[0] is not sch.func.body]


def the(sch: Schedule, name: str) -> Block:
    """The block of that name."""
    return find_block(tree_of(sch.func), name).block


def a_block(rng: Rng, sch: Schedule) -> str:
    """Any block."""
    return str(one(rng, blocks_in(sch)))


def a_block_where(rng: Rng, sch: Schedule, test: Callable[[Block], bool]) -> str:
    """Any block that passes a test."""
    return str(one(rng, [n for n in blocks_in(sch) if test(the(sch, n))]))


def reduces(block: Block) -> bool:
    """Whether it starts something that it then adds to."""
    return block.init is not None


def loops_of(sch: Schedule, block: str) -> list[Var]:
    """The loops around a block."""
    return list(sch.get_loops(block))


def a_loop(rng: Rng, sch: Schedule, block: str | None = None) -> Var:
    """Any loop around the block, or around any block."""
    loop: Var = one(rng, loops_of(sch, block or a_block(rng, sch)))
    return loop


def a_user(rng: Rng, sch: Schedule, block: str, ahead: bool) -> str:
    """A consumer of the block (or a producer), else any block."""
    near = sch.get_consumers(block) if ahead else sch.get_producers(block)
    return str(one(rng, near).name) if near and coin(rng, 0.8) else a_block(rng, sch)
