"""This module defines graphs: values with a data type and a shape, the operators that compute them, and constants.

Below them stands what all passes use: substitution of values, removal of what nothing reads, and numbers for symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..pages.messages import short_repr
from ..tir.analysis.simplify import simplify
from ..tir.expr import DType, Expr, IntImm, Var, array_bytes, convert, same, vars_in
from ..tir.walk import substitute

Dim = Any
"""An extent: an ``int``, or an expression of symbolic sizes (:func:`tilewright.te.var`)."""


class GraphError(ValueError):
    """Raised for a graph that is not well-formed, or an operator that does not fit its inputs."""


def dims(shape: Iterable[Any]) -> tuple[Dim, ...]:
    """Returns extents in their simplest form, with constants as Python numbers."""
    return tuple([_dim(d) for d in shape])


def _dim(extent: Any) -> Dim:
    if isinstance(extent, Expr) and not isinstance(extent, (IntImm, Var)):
        extent = simplify(extent)
    if isinstance(extent, IntImm):
        return int(extent.value)
    return extent if isinstance(extent, Expr) else int(extent)


def same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    """Returns whether two shapes are equal for sure."""
    if len(a) != len(b):
        return False
    return all(x == y if isinstance(x, int) or isinstance(y, int) else same(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value is an array that an input, a constant or an operator provides. Values are compared by identity.

    ``shape`` holds numbers, and expressions of symbolic sizes; ``dtype`` is a data type of TIR, as ``float32``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        if DType(self.dtype).per_byte > 1:
            raise GraphError(
                f"{self.name} would be {self.dtype}, and values of graphs have whole bytes: keep its numbers as "
                f"{'int8' if DType(self.dtype).is_signed else 'uint8'}; dense_nbits reads packed weights"
            )

    @property
    def ndim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Returns whether all extents are numbers."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def bytes(self) -> int:
        """Returns the size in bytes; the shape has to be static."""
        return array_bytes(self.shape, self.dtype)

    @property
    def type_text(self) -> str:
        """Returns data type and shape as text, ``float32[n, 3]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"{self.name}: {self.type_text}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node is one application of an operator. An optional input that is left out is None."""

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> Value:
        """Returns the only output."""
        (out,) = self.outputs
        return out

    @property
    def body(self) -> Graph | None:
        """Returns the graph that a loop runs at each step; None for operators that are no loops."""
        found = self.attrs.get("body")
        return found if isinstance(found, Graph) else None

    @property
    def given(self) -> Iterator[Value]:
        """Yields the inputs that are not left out."""
        return (v for v in self.inputs if v is not None)

    def __repr__(self) -> str:
        return f"<{self.op} -> {', '.join(v.name for v in self.outputs)}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph is a network: inputs, operators in an order in which each follows what it reads, outputs, and constants.

    A graph is not changed; passes make new ones. ``str(graph)`` is its text, which :func:`.text.parse` reads.
    ``bounds``: the largest values of symbolic sizes, by name, where the program says them; passes and text leave them out.
    So they do with ``held``: the types of ``ml_dtypes`` that inputs and outputs have for the caller, where the graph has them in
    another one: ``int4`` in int8. ``lists``: how many outputs make up each result of a call, None for an output
    itself, and -1 for a result that is None; empty where results are outputs.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, np.ndarray[Any, Any]] = field(default_factory=lambda: MappingProxyType({}))
    bounds: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    lists: tuple[int | None, ...] = ()

    __repr__ = short_repr("name", "inputs", "outputs", "nodes")

    def producers(self) -> dict[Value, Node]:
        """Returns the operator that computes each value; inputs and constants have none."""
        return {v: node for node in self.nodes for v in node.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """Returns the operators that read each value, one entry per operator."""
        out: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.given):
                out.setdefault(v, []).append(node)
        return out

    def values(self) -> Iterator[Value]:
        """Yields the inputs, the constants and the results, each once."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def replaced(self, nodes: Sequence[Node], **changes: Any) -> Graph:
        """Returns the graph with other operators, and other ``outputs`` or ``constants`` where they are given."""
        fields = {"name": self.name, "inputs": self.inputs, "outputs": self.outputs, "constants": self.constants}
        return Graph(nodes=tuple(nodes), **{**fields, **changes})

    def __str__(self) -> str:
        from .text import script

        return script(self)


def bodies(graph: Graph) -> Iterator[Graph]:
    """Yields the bodies of the loops in a graph."""
    return (node.body for node in graph.nodes if node.body is not None)


def substituted(node: Node, mapping: Mapping[Value, Value]) -> Node:
    """Returns the operator with other inputs; the same object when none of them is in ``mapping``."""
    if not any(v in mapping for v in node.given):
        return node
    inputs = tuple([v if v is None else mapping.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, node.outputs, node.attrs)


def with_replaced(graph: Graph, nodes: Sequence[Node], mapping: Mapping[Value, Value]) -> Graph:
    """Returns the graph of ``nodes`` in which ``mapping`` replaces values; chains of replacements are followed."""
    final: dict[Value, Value] = {}
    for v in mapping:
        target = mapping[v]
        while target in mapping:
            target = mapping[target]
        final[v] = target
    return without_unread(
        graph.replaced([substituted(n, final) for n in nodes], outputs=tuple([final.get(v, v) for v in graph.outputs]))
    )


COMPUTED_SIZE = "computed_size"
"""The operator whose result is a size: its attribute ``size`` is the symbol (:mod:`.computed_sizes`)."""


def computed_sizes(graph: Graph) -> dict[Var, Node]:
    """Returns the operators that compute symbolic sizes, by the sizes, in order."""
    found = [node for node in graph.nodes if node.op == COMPUTED_SIZE]
    return {node.attrs["size"]: node for node in found if isinstance(node.attrs["size"], Var)}


def sizes_of(node: Node) -> set[Var]:
    """Returns the symbolic sizes in the attributes of an operator, and in the shapes of what it reads and makes."""
    found: set[Var] = set()

    def visit(one: Any) -> None:
        if isinstance(one, Expr):
            found.update(vars_in(one))
        elif isinstance(one, (tuple, list)):
            for part in one:
                visit(part)
        elif isinstance(one, Graph):
            for inner in one.nodes:
                found.update(sizes_of(inner))

    visit([v.shape for v in (*node.given, *node.outputs)])
    visit(tuple(node.attrs.values()))
    return found


def without_unread(graph: Graph) -> Graph:
    """Returns the graph without operators and constants that no output needs."""
    needed = set(graph.outputs)
    sizes = {node: size for size, node in computed_sizes(graph).items()}
    used: set[Var] = set()
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs) or sizes.get(node) in used:
            needed.update(node.given)
            kept.append(node)
            if sizes:
                used |= sizes_of(node)
    constants = {v: data for v, data in graph.constants.items() if v in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.replaced(tuple(reversed(kept)), constants=constants)


def specialize(graph: Graph, sizes: Mapping[Var, int]) -> Graph:
    """Returns the graph with numbers in place of symbolic sizes."""
    numbers = {var: convert(size) for var, size in sizes.items()}

    def filled(value: Any) -> Any:
        if isinstance(value, Expr):
            return dims([substitute(value, numbers)])[0]
        if isinstance(value, Graph):
            return specialize(value, sizes)
        return tuple([filled(v) for v in value]) if isinstance(value, (tuple, list)) else value

    new: dict[Value, Value] = {}

    def of(v: Value) -> Value:
        if v.is_static:
            return v
        if v not in new:
            new[v] = Value(v.name, v.dtype, dims([filled(d) for d in v.shape]))
        return new[v]

    nodes = [
        Node(
            node.op,
            tuple([None if v is None else of(v) for v in node.inputs]),
            tuple([of(v) for v in node.outputs]),
            {key: filled(value) for key, value in node.attrs.items()},
        )
        for node in graph.nodes
    ]
    inputs, outputs = tuple([of(v) for v in graph.inputs]), tuple([of(v) for v in graph.outputs])
    return Graph(graph.name, inputs, outputs, tuple(nodes), graph.constants)


def with_output_names(graph: Graph, names: Sequence[str]) -> Graph:
    """Returns the graph whose outputs have these names; other values that have them get others.

    Names of inputs stay those of inputs, and a value that leaves twice has its first name.
    """
    new: dict[Value, Value] = {}
    taken = {v.name for v in graph.values()} | set(names)
    wanted: dict[str, Value] = {}
    owned, given = {*graph.inputs, *graph.constants}, {v.name for v in graph.inputs}
    for v, name in zip(graph.outputs, names, strict=True):
        if v not in owned and v not in wanted.values() and name not in given:
            wanted.setdefault(name, v)
    for name, v in wanted.items():
        if v.name != name:
            new[v] = Value(name, v.dtype, v.shape)
    if not new:
        return graph
    for v in graph.values():
        if v.name in wanted and wanted[v.name] is not v:
            if v in new or v in graph.inputs:
                continue
            number = next(n for n in range(len(taken) + 1) if f"{v.name}_{n}" not in taken)
            taken.add(f"{v.name}_{number}")
            new[v] = Value(f"{v.name}_{number}", v.dtype, v.shape)
    nodes = [
        Node(n.op, substituted(n, new).inputs, tuple([new.get(v, v) for v in n.outputs]), n.attrs) for n in graph.nodes
    ]
    constants = {new.get(v, v): data for v, data in graph.constants.items()}
    return graph.replaced(nodes, outputs=tuple([new.get(v, v) for v in graph.outputs]), constants=constants)


_BLOCK = 128
"""How many columns of a transposed matrix are copied at a time: their source lines stay in the cache."""


def copy_in_row_order(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Copy an array to another of its shape; a large transposed matrix goes block by block."""
    if source.ndim > 1 and abs(source.strides[-1]) > source.itemsize and source.size > _BLOCK**2:
        for start in range(0, source.shape[-1], _BLOCK):
            target[..., start : start + _BLOCK] = source[..., start : start + _BLOCK]
    else:
        target[...] = source


def in_row_order(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the array itself if its elements lie in row-major order at aligned addresses, else a copy that does."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    made = np.empty(array.shape, array.dtype)
    copy_in_row_order(made, array)
    return made


class MappedFile(np.memmap):
    """An array in a file, which is read where it is used. ``stamp`` is the file's size and time when it was mapped."""

    stamp: tuple[int, int]

    @staticmethod
    def of(path: Path, dtype: Any, offset: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Returns the array of that shape which begins ``offset`` bytes behind the start of the file."""
        made = MappedFile(path, dtype, "r", offset, shape or (1,))
        made.stamp = _stamp(path)
        return np.asarray(made).reshape(shape)


def mapped_file(array: Any) -> MappedFile | None:
    """Returns the mapped file that an array is a view of, or None."""
    base = array
    while base is not None and not isinstance(base, MappedFile):
        base = getattr(base, "base", None)
    return base


def require_unchanged(graph: Graph) -> None:
    """Raise GraphError where a constant lies in a file that was changed, or is gone, since it was mapped."""
    for value, array in graph.constants.items():
        found = mapped_file(array)
        if found is not None and _stamp(Path(found.filename)) != found.stamp:  # type: ignore[arg-type]
            raise GraphError(
                f"{found.filename} was changed since {value.name or 'its weights'} were read from it; read the model again, "
                "and leave the file as it is until the model is built"
            )


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return -1, 0
    return found.st_size, found.st_mtime_ns
