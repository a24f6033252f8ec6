"""An operation makes tensors: a placeholder, a computation, or a hand-written body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..tir.expr import Expr, IterVar, Reduce
from ..tir.stmt import Buffer, Stmt
from ..tir.walk import pre_order
from .tensor import ProducerLoad, Tensor

Requirement = tuple[Expr, str]
"""A condition on sizes that has to hold at the call, and what an error says where it does not."""


class Operation:
    """The base class of operations: a name, a tag and attributes for schedules, and the outputs. ``requires``: what an
    operation takes for granted of symbolic sizes, which is checked at the call."""

    __slots__ = ("attrs", "name", "outputs", "requires", "tag")

    name: str
    tag: str
    attrs: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
    requires: tuple[Requirement, ...]

    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    def __init__(
        self,
        name: str,
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"an operation's name is a string, not {name!r}")
        self.name, self.tag, self.attrs, self.requires = name, tag, dict(attrs or {}), tuple(requires)

    @property
    def num_outputs(self) -> int:
        """Returns the number of output tensors."""
        return len(self.outputs)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that it reads, in the order of first use."""
        return ()

    def output(self, index: int) -> Tensor:
        """Returns the ``index``-th tensor it makes."""
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """This operation is an input of the program."""

    __slots__ = ()

    def __init__(self, name: str, shape: tuple[Expr, ...], dtype: str) -> None:
        Operation.__init__(self, name)
        self.outputs = (Tensor(self, 0, shape, dtype),)


class ComputeOp(Operation):
    """This operation gives elements by expressions over ``axis``; ``body`` has one expression per output.

    When the body is a reduction, every output has the same :class:`Reduce` but for its ``value_index``.
    """

    __slots__ = ("axis", "body", "reduce_axis")

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: tuple[Expr, ...],
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        Operation.__init__(self, name, tag, attrs, requires)
        self.axis, self.body = axis, body
        first = body[0]
        self.reduce_axis = first.axis if isinstance(first, Reduce) else ()
        shape = tuple([iv.dom.extent for iv in axis])
        self.outputs = tuple([Tensor(self, i, shape, e.dtype) for i, e in enumerate(body)])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that the body reads, in the order of first use."""
        domains = [end for iv in self.reduce_axis for end in (iv.dom.min, iv.dom.extent)]
        return tuple(dict.fromkeys(load.producer for e in (*self.body, *domains) for load in _loads(e)))


class ExternOp(Operation):
    """This operation makes tensors by a hand-written statement over buffers."""

    __slots__ = ("body", "input_placeholders", "inputs", "output_placeholders")

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        input_placeholders: tuple[Buffer, ...],
        output_placeholders: tuple[Buffer, ...],
        body: Stmt,
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        Operation.__init__(self, name, tag, attrs, requires)
        self.inputs: tuple[Tensor, ...] = inputs
        self.input_placeholders: tuple[Buffer, ...] = input_placeholders
        self.output_placeholders: tuple[Buffer, ...] = output_placeholders
        self.body: Stmt = body
        self.outputs = tuple([Tensor(self, i, b.shape, b.dtype) for i, b in enumerate(output_placeholders)])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors whose buffers the body may read."""
        return self.inputs


def _loads(e: Expr) -> Iterator[ProducerLoad]:
    for n in pre_order(e):
        if isinstance(n, ProducerLoad):
            yield n


def ordered_operations(ops: Sequence[Operation], stop: set[Operation] | None = None) -> list[Operation]:
    """Returns ``ops`` and all they depend on, producers first; without operations that those of ``stop`` depend on."""
    placed: dict[Operation, None] = {}
    for op in ops:
        pending = [op]
        while pending:
            inputs = () if stop and pending[-1] in stop else pending[-1].input_tensors
            missing = [t.op for t in inputs if t.op not in placed]
            if missing:
                pending.append(missing[0])
            else:
                placed.setdefault(pending.pop())
    return list(placed)
