"""This module keeps what handles stand for: their names in the trace, the values of sampled numbers, renamed blocks."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from ..tir.expr import BinaryOp, CmpOp, Expr, FloatImm, IntImm, Var, make_binary
from ..tir.walk import transform
from .errors import bad_argument, unknown_handle
from .handles import BlockRV
from .trace_data import Ref, constant, formula_of


class HandleTable:
    """A ``HandleTable`` tells the names and values of the handles that a schedule has given out.

    ``names`` are the names in the trace, ``values`` those of sampled variables, ``renamed`` maps old block names to
    present ones, and ``removed`` are the handles that ``remove_rv`` forgot.
    """

    __slots__ = ("count", "names", "removed", "renamed", "values")

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.values: dict[Var, int | float | Expr | None] = {}
        self.renamed: dict[str, str] = {}
        self.removed: frozenset[Any] = frozenset()
        self.count = 0

    def copy(self) -> HandleTable:
        """Return an independent table with the same contents."""
        new = HandleTable()
        new.names, new.values, new.renamed = self.names.copy(), self.values.copy(), self.renamed.copy()
        new.removed, new.count = self.removed, self.count
        return new

    def add(self, handle: Any, prefix: str) -> str:
        """Return the name in the trace that a new output gets."""
        name = f"{prefix}{self.count}"
        self.count += 1
        self.names[handle] = name
        self.removed -= {handle}
        return name

    def sampled(self, value: Any, prefix: str) -> Var:
        """Return a new variable that stands for a value."""
        var = Var(f"{prefix}{self.count}")
        self.values[var] = value
        return var

    def remove(self, handle: Any) -> None:
        """Forget a handle, so that using it is an error from now on."""
        if handle not in self.names:
            raise unknown_handle(
                f"{handle} is not a handle of this schedule", hint="get_block, get_loops and the steps give handles"
            )
        self.removed |= {handle}

    def block_name(self, rv: BlockRV, blocks: Container[str]) -> str:
        """Return the present name of a block among ``blocks``."""
        if rv in self.removed:
            raise unknown_handle(f"the handle of block {rv.name!r} was removed", hint="ask get_block again")
        name = rv.name
        while name not in blocks and name in self.renamed:
            name = self.renamed[name]
        return name

    def name_of(self, var: Var) -> str:
        """Return the name in the trace of a loop, a sampled number or a size."""
        try:
            return self.names[var]
        except KeyError:
            raise unknown_handle(
                f"{var.name} is neither a loop of this function, nor sampled, nor a size of it",
                hint="get_loops and split give loops, the sampling primitives numbers, get_symbol sizes",
            ) from None

    def resolve(self, value: Any, block_name: Callable[[BlockRV], str]) -> Any:
        """Return an argument as the primitive's function receives it: names for blocks, values for sampled numbers."""
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, BlockRV):
            return block_name(value)
        if isinstance(value, Var):
            if value in self.removed:
                raise unknown_handle(
                    f"the handle {self.names.get(value, value.name)} was removed",
                    hint="ask get_loops or get_block again after a step that replaces loops",
                )
            return self.values.get(value, value)
        if isinstance(value, IntImm):
            return bool(value.value) if value.dtype == "bool" else value.value if value.dtype == "int32" else value
        if isinstance(value, Expr):
            try:
                value = transform(value, self._value_of, _fold)
            except ZeroDivisionError:
                raise bad_argument("a factor divides by zero", hint="sizes are at least 1") from None
            return value.value if isinstance(value, IntImm) and value.dtype == "int32" else value
        if isinstance(value, (list, tuple)):
            return [self.resolve(item, block_name) for item in value]
        if isinstance(value, dict):
            return {key: self.resolve(item, block_name) for key, item in value.items()}
        return value.item() if isinstance(value, np.generic) else value

    def _value_of(self, e: Any) -> Any:
        if not isinstance(e, Var) or e not in self.values:
            return None
        value = self.values[e]
        return IntImm(value) if isinstance(value, int) else value

    def record(self, value: Any) -> Any:
        """Return an argument as the trace keeps it."""
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            return float(value)
        if isinstance(value, BlockRV):
            known = self.names.get(value)
            return value.name if known is None else Ref(known)
        if isinstance(value, Var):
            return Ref(self.name_of(value))
        if isinstance(value, (IntImm, FloatImm)):
            return constant(value)
        if isinstance(value, Expr):
            try:
                return formula_of(value, self.name_of)
            except TypeError as error:
                raise bad_argument(str(error), hint="give sampled numbers, or sums and products of them") from None
        if isinstance(value, (list, tuple)):
            return [self.record(item) for item in value]
        if isinstance(value, Mapping):
            return {str(key): self.record(item) for key, item in value.items()}
        raise bad_argument(
            f"a trace cannot hold {value!r} ({type(value).__name__})",
            hint="give numbers, texts, lists or dictionaries of these, handles, and sizes made of them",
        )


def _fold(e: Any) -> Any:
    return make_binary(type(e), e.a, e.b) if isinstance(e, BinaryOp) and not isinstance(e, CmpOp) else None
