"""This module defines the handles of a schedule: blocks by name, loops by variable, sampled numbers by variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..tir.expr import Var


@dataclass(frozen=True, slots=True)
class BlockRV:
    """A ``BlockRV`` refers to a block by its name, which is unique in its function.

    It stays valid through rewrites that keep the block.

    ``func_name`` tells functions of one module apart; it is empty when the module has only one function.
    """

    name: str
    func_name: str = ""

    def __str__(self) -> str:
        return self.name


LoopRV = Var
"""A loop is identified by its variable (identity, not name); it stays valid through rewrites that keep the loop."""

ExprRV = Var
"""A sampled number stands as a variable; ``Schedule.get`` tells its value."""

COMPUTE_ROOT = Var("compute_at_root")
"""In the place of a loop: leave the block where it is, outside all loops of its consumers."""

COMPUTE_INLINE = Var("compute_inline")
"""In the place of a loop: inline the block into its consumers."""

PLACES = frozenset((COMPUTE_ROOT, COMPUTE_INLINE))

Handle = Union[BlockRV, Var]
