"""This module defines functions and modules of functions."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import field
from typing import Any

from ...pages import card, code_html
from ..expr import IntImm, Var
from ..expr.base.node import Node, binds, matches, node, nodes
from .buffer import Buffer
from .stmt import Block, BlockRealize, Stmt


@node
class PrimFunc(Node):
    """Represents a function over buffers.

    ``params`` are variables; those of type ``handle`` stand for the buffers that
    ``buffer_map`` gives them (in the order of the parameters), the others are scalars.

    ``attrs`` holds e.g. ``global_symbol`` (its name) and ``tir.noalias``. Before lowering, ``body`` is the realization
    of a root block that holds the program; the printed text leaves it out.
    """

    params: tuple[Var, ...]
    body: Stmt
    buffer_map: Mapping[Var, Buffer]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    parts = binds("params") + matches("buffer_map") + nodes("body")

    def _repr_html_(self) -> str:
        return card(self.name, code_html(self.script()), note="a click on a loop or block folds it")

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the parameters, in order."""
        return tuple([self.buffer_map[p] for p in self.params if p in self.buffer_map])

    @property
    def name(self) -> str:
        """The global symbol, ``main`` unless one is set."""
        return str(self.attrs.get("global_symbol", "main"))

    def with_body(self, body: Stmt) -> PrimFunc:
        """Return this function with another body; the same object when the body is the same."""
        return self if body is self.body else PrimFunc(self.params, body, self.buffer_map, self.attrs)

    def with_attrs(self, attrs: Mapping[str, Any]) -> PrimFunc:
        """Return this function with ``attrs`` added to its attributes."""
        return PrimFunc(self.params, self.body, self.buffer_map, {**self.attrs, **attrs})

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        """Return this function with one attribute set, or with the attributes of a mapping."""
        return self.with_attrs({key: value} if isinstance(key, str) else key)

    def without_attr(self, key: str) -> PrimFunc:
        """Return this function without the attribute ``key``."""
        attrs = {k: v for k, v in self.attrs.items() if k != key}
        return PrimFunc(self.params, self.body, self.buffer_map, attrs)


@node
class IRModule(Node):
    """Represents a module: functions by name."""

    functions: Mapping[str, PrimFunc]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return card(", ".join(sorted(self.functions)), code_html(self.script()))

    def __getitem__(self, name: str) -> PrimFunc:
        try:
            return self.functions[name]
        except KeyError:
            raise KeyError(f"no function {name!r} here; there are {sorted(self.functions)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def with_function(self, name: str, func: PrimFunc) -> IRModule:
        """Return this module with ``name`` set to ``func``."""
        return IRModule({**self.functions, name: func}, self.attrs)

    def items(self) -> ItemsView[str, PrimFunc]:
        """Return the functions with their names."""
        return self.functions.items()

    functions_items = items

    @staticmethod
    def from_func(func: PrimFunc) -> IRModule:
        """Return a module of one function, under its global symbol."""
        return IRModule({func.name: func})

    @staticmethod
    def from_expr(func: PrimFunc) -> IRModule:
        """Return :meth:`from_func`; this is TVM's other name for it."""
        return IRModule.from_func(func)


def root_block(name: str, body: Stmt, alloc_buffers: tuple[Buffer, ...] = ()) -> BlockRealize:
    """Return the realization of a root block around ``body``."""
    return BlockRealize((), IntImm(1, "bool"), Block((), (), (), name, body, None, alloc_buffers))
