"""This module defines what programs are made of besides expressions: buffers, statements, functions and modules.

It also walks statements: it finds the accesses and the blocks of programs, and replaces buffers.

A :class:`Block` is a unit of computation with its own axes; a :class:`BlockRealize` says, inside loops, which values
the axes take and when (``predicate``). ``init`` runs when all reduction axes are at the start of their domain. A
reduction without iterations gives its init as well, unless one loop binds reduction and spatial axes
(:mod:`tilewright.tir.analysis.reductions`).
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeVar

from ..pages import card, code_html
from .expr import (
    Add,
    BufferLoad,
    Call,
    DType,
    Expr,
    FloatImm,
    IntImm,
    IterVar,
    Range,
    Var,
    as_exprs,
    const,
    convert,
    distinct,
    is_const_int,
    pre_order,
    product,
    same,
    shape_text,
)
from .expr.dtype import array_bytes
from .expr.node import IRNode, Mapper, NodePart, binds, counts, declares, holds, matches, node, nodes, uses

__all__ = [
    "FOR_KINDS", "Allocate", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "Buffer", "BufferRegion", "BufferStore",
    "Evaluate", "For", "IRModule", "IfThenElse", "LetStmt", "MatchBufferRegion", "PrimFunc", "SeqStmt", "Stmt", "While",
    "below_assertions", "blocks_of", "children_of", "decl_buffer", "is_no_op", "loads_and_stores", "root_block", "seq", "statements",
    "statements_in",
]  # fmt: skip


@node
class Buffer(NodePart):
    """Represents memory with a shape and a data type. Two buffers are the same only if they are the same object.

    ``shape``, ``strides`` and ``elem_offset`` count elements; empty ``strides`` mean row-major without gaps.
    ``scope`` is ``global`` (memory; an empty text means the same), ``local`` (registers or stack, one per thread),
    ``shared`` … . A buffer with shape ``()`` has one element. ``data`` is the variable of the pointer.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType = DType("float32")
    scope: str = "global"
    strides: tuple[Expr, ...] = ()
    elem_offset: Expr = field(default_factory=lambda: IntImm(0))
    data_alignment: int = 64
    offset_factor: int = 1
    axis_separators: tuple[int, ...] = ()
    data: Var = field(default=None)  # type: ignore[assignment]

    parts = counts("shape", "strides", "elem_offset")
    identity = "buffer"

    def __post_init__(self) -> None:
        if self.scope == "":
            object.__setattr__(self, "scope", "global")
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(f"buffer {self.name}: {len(self.strides)} strides for {len(self.shape)} dimensions")
        if self.data is None:
            object.__setattr__(self, "data", Var(self.name, "handle"))

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}[{shape_text(self.shape)}], scope={self.scope})"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def element_strides(self) -> tuple[Expr, ...]:
        """Return the strides in elements, the row-major ones when the buffer names none."""
        if self.strides or not self.shape:
            return self.strides
        out: list[Expr] = [const(1, self.shape[-1].dtype)]
        for extent in reversed(self.shape[1:]):
            out.append(product((out[-1], extent)))
        return tuple(reversed(out))

    def num_bytes(self) -> int | None:
        """Return the bytes of all elements when the shape is constant and the elements have no gaps, else None."""
        if not all([isinstance(extent, IntImm) for extent in self.shape]):
            return None
        return array_bytes([extent.value for extent in self.shape], self.dtype)  # type: ignore[attr-defined]

    def with_(self, **changes: Any) -> Buffer:
        """Return a new buffer that differs in the named fields; its ``data`` variable is new unless one is given."""
        return NodePart.with_(self, **{"data": None, **changes})

    def rebuilt(self, *values: Any) -> Buffer:
        """Return the buffer of these values but the last one: its ``data`` variable is new."""
        return Buffer(*values[:-1])

    def full_region(self) -> BufferRegion:
        """Return the whole buffer as a region."""
        return BufferRegion(self, tuple([Range.from_extent(e) for e in self.shape]))

    def vload(self, indices: Any, dtype: str | None = None, predicate: Expr | None = None) -> BufferLoad:
        """Return a load at ``indices`` (one vector index at most). A given ``dtype`` must be the type that is read."""
        load = BufferLoad(self, as_exprs(indices if isinstance(indices, (tuple, list)) else (indices,)), predicate)
        if dtype is not None and load.dtype != dtype:
            raise ValueError(f"vload of {self.name} reads {load.dtype}, not {dtype}")
        return load

    def __getitem__(self, key: Any) -> Any:
        """Return a :class:`BufferLoad` for ``A[i, j]``, and a :class:`BufferRegion` for slices (``A[0:4, j]``)."""
        items = key if isinstance(key, tuple) else (key,)
        if len(items) != len(self.shape):
            raise IndexError(f"buffer {self.name} has {len(self.shape)} dimensions, indexed with {len(items)}")
        if not any(isinstance(item, (slice, Range)) for item in items):
            return BufferLoad(self, as_exprs(items))
        return BufferRegion(self, tuple([_range(i, e) for i, e in zip(items, self.shape, strict=True)]))


def _range(item: Any, extent: Expr) -> Range:
    if isinstance(item, Range):
        return item
    if not isinstance(item, slice):
        item = convert(item)
        return Range(item, const(1, item.dtype))
    if item.step not in (None, 1):
        raise IndexError("a region's slices have no step")
    start = convert(0 if item.start is None else item.start)
    stop = extent if item.stop is None else convert(item.stop)
    if is_const_int(start, 0):
        return Range(const(0, stop.dtype), stop)
    return Range(start, _extent(start, stop))


def _extent(start: Expr, stop: Expr) -> Expr:
    """Return ``stop - start``; for ``x + a`` and ``x + b`` this is a constant."""
    x, a = (start.a, start.b.value) if isinstance(start, Add) and isinstance(start.b, IntImm) else (start, 0)
    y, b = (stop.a, stop.b.value) if isinstance(stop, Add) and isinstance(stop.b, IntImm) else (stop, 0)
    return const(b - a, stop.dtype) if same(x, y) else stop - start


@node
class BufferRegion(NodePart):
    """Represents a box in a buffer: one range per dimension."""

    buffer: Buffer
    region: tuple[Range, ...]

    parts = uses("buffer") + holds("region")

    def __repr__(self) -> str:
        def text(r: Range) -> str:
            return str(r.min) if is_const_int(r.extent, 1) else f"{r.min}:{r.min + r.extent}"

        return f"{self.buffer.name}[{', '.join(map(text, self.region))}]"


@node
class MatchBufferRegion(NodePart):
    """Declares that inside a block ``buffer`` is another name and shape for the region ``source``."""

    buffer: Buffer
    source: BufferRegion

    parts = holds("source") + matches("buffer")


def decl_buffer(
    shape: Sequence[Any] | Any,
    dtype: str = "float32",
    name: str = "buffer",
    *,
    scope: str = "global",
    strides: Sequence[Any] = (),
    **rest: Any,
) -> Buffer:
    """Return a new buffer from plain numbers or expressions.

    >>> decl_buffer((4, 8), "int8", "A").ndim
    2
    """
    dims = shape if isinstance(shape, (tuple, list)) else (shape,)
    return Buffer(name, as_exprs(dims), DType(dtype), scope, as_exprs(strides), **rest)


FOR_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")


class Stmt(IRNode):
    """The base class of all statements."""

    __slots__ = ()
    __hash__ = object.__hash__


@node
class For(Stmt):
    """Represents a loop: ``loop_var`` runs over ``[min, min + extent)``, in order when serial.

    ``kind`` is one of :data:`FOR_KINDS`; ``thread_binding`` names the thread axis (``threadIdx.x``) of that kind.
    """

    loop_var: Var
    min: Expr
    extent: Expr
    kind: str
    body: Stmt
    thread_binding: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    parts = counts("min", "extent") + binds("loop_var") + nodes("body")

    def __post_init__(self) -> None:
        if self.kind not in FOR_KINDS:
            raise ValueError(f"loop kind {self.kind!r}; there are {FOR_KINDS}")


@node
class BufferStore(Stmt):
    """Stores ``buffer[indices] = value``; with ``predicate``, a bool vector, only the marked lanes are written."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    parts = uses("buffer") + counts("indices") + nodes("value", "predicate")


@node
class SeqStmt(Stmt):
    """Runs statements one after the other; :func:`seq` makes sequences without nesting."""

    seq: tuple[Stmt, ...]

    parts = nodes("seq")

    def rebuilt(self, stmts: tuple[Stmt, ...]) -> Stmt:
        """Return the sequence of other statements, flattened."""
        return seq(*stmts)


@node
class IfThenElse(Stmt):
    """Runs ``then_case`` when ``condition`` holds, else ``else_case`` (if any)."""

    condition: Expr
    then_case: Stmt
    else_case: Stmt | None = None

    parts = nodes("condition", "then_case", "else_case")


@node
class While(Stmt):
    """Runs ``body`` repeatedly, as long as ``condition`` holds.

    The condition is evaluated anew before each iteration, the first one included, so that ``body`` may not run at all.
    What the body writes to memory, the condition and the next iteration see. Nothing says that the loop ends.
    """

    condition: Expr
    body: Stmt

    parts = nodes("condition", "body")


@node
class LetStmt(Stmt):
    """Runs ``body``, in which ``var`` has the value ``value``; that is evaluated once."""

    var: Var
    value: Expr
    body: Stmt

    parts = nodes("value") + binds("var") + nodes("body")


@node
class AttrStmt(Stmt):
    """Represents an attribute ``attr_key = value`` of ``node`` that holds in ``body``."""

    node: Any
    attr_key: str
    value: Expr
    body: Stmt

    parts = nodes("value", "body")


@node
class AssertStmt(Stmt):
    """Stops the run with ``message`` when ``condition`` is false. Messages may hold names, so they are not compared."""

    condition: Expr
    message: str
    body: Stmt

    parts = nodes("condition", "body")
    names = ("message",)


@node
class Allocate(Stmt):
    """Allocates ``buffer``, uninitialized, for ``body``. Before lowering, blocks have ``alloc_buffers`` instead."""

    buffer: Buffer
    body: Stmt
    annotations: Mapping[str, Any] = field(default_factory=dict)

    parts = declares("buffer") + nodes("body")


@node
class Evaluate(Stmt):
    """Evaluates an expression for its side effect; ``Evaluate(0)`` does nothing."""

    value: Expr

    parts = nodes("value")


@node
class Block(Stmt):
    """Represents a unit of computation.

    ``iter_vars`` are its axes with domains and kinds; ``reads`` and ``writes`` are the regions that it accesses for one
    value of the axes; ``alloc_buffers`` live inside it; ``match_buffers`` rename regions.
    """

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    parts = (
        holds("iter_vars", "reads", "writes")
        + declares("alloc_buffers")
        + holds("match_buffers")
        + nodes("init", "body")
    )
    names = ("name_hint",)

    @property
    def name(self) -> str:
        """The block's name, ``name_hint`` in TVM."""
        return self.name_hint


@node
class BlockRealize(Stmt):
    """Runs ``block`` with its axes bound to ``iter_values`` where ``predicate`` holds."""

    iter_values: tuple[Expr, ...]
    predicate: Expr
    block: Block

    parts = counts("iter_values") + nodes("predicate", "block")


def children_of(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements of a sequence, or the single statement."""
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def below_assertions(stmt: Stmt) -> Stmt:
    """Return the statement inside the assertions that stand around all of ``stmt``; itself where there are none."""
    while isinstance(stmt, AssertStmt):
        stmt = stmt.body
    return stmt


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements one after the other: nested sequences are flattened, ``None`` and no-ops dropped."""
    flat: Any = stmts
    if not _DISSOLVED.isdisjoint(map(type, stmts)):
        flat = []
        for stmt in stmts:
            if type(stmt) is SeqStmt:
                flat += stmt.seq
            elif stmt is not None and (type(stmt) is not Evaluate or type(stmt.value) is not IntImm):
                flat.append(stmt)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


_DISSOLVED = frozenset((SeqStmt, Evaluate, type(None)))


def statements_in(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly below ``stmt``, in order."""
    kind = type(stmt)
    if kind is For:
        return (stmt.body,)  # type: ignore[attr-defined]
    if kind is BlockRealize:
        return (stmt.block,)  # type: ignore[attr-defined]
    if kind is Block:
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)  # type: ignore[attr-defined]
    if kind is SeqStmt:
        return stmt.seq  # type: ignore[attr-defined]
    if kind is BufferStore or kind is Evaluate:
        return ()
    return tuple([child for child in stmt.children() if isinstance(child, Stmt)])


def is_no_op(stmt: Stmt) -> bool:
    """Return whether the statement is ``Evaluate`` of a constant."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


@node
class PrimFunc(IRNode):
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
class IRModule(IRNode):
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


N = TypeVar("N", bound=IRNode)


def statements(node: PrimFunc | Stmt) -> Iterator[Stmt]:
    """Yield all statements, parents first; expressions are not walked."""
    stack: list[Stmt] = [node.body if isinstance(node, PrimFunc) else node]
    while stack:
        top = stack.pop()
        yield top
        stack += statements_in(top)[::-1]


def loads_and_stores(node: IRNode) -> Iterator[BufferLoad | BufferStore]:
    """Yield every access in bodies and inits; the regions that blocks declare do not count."""
    for n in pre_order(node):
        if type(n) is BufferLoad or type(n) is BufferStore:
            yield n


def needs_root(body: Stmt, allocs: bool) -> bool:
    """Return whether the parser puts a root block around ``body`` (with ``allocs`` when buffers are allocated at the
    top)."""
    if allocs:
        return True
    has_block = any(type(n) is BlockRealize for n in statements(body))
    return has_block and not (type(body) is BlockRealize and not body.block.iter_vars)


def blocks_of(node: PrimFunc | Stmt) -> Iterator[BlockRealize]:
    """Yield every block realization, outermost first, in program order."""
    for n in statements(node):
        if type(n) is BlockRealize:
            yield n


def replace_buffers(node: N, mapping: Mapping[Buffer, Buffer]) -> Any:
    """Return ``node`` with buffers replaced, in loads, stores, regions, allocations and match_buffers."""
    return _BufferReplacement(mapping).visit(node) if mapping else node


def memory_in(stmt: Stmt) -> frozenset[Any]:
    """Return the buffers and the pointers that ``stmt`` names, in accesses, regions and declarations."""
    return memory_of(stmt)[0]


@lru_cache(maxsize=8192)
def memory_of(stmt: Stmt) -> tuple[frozenset[Any], frozenset[Var]]:
    """Return what :func:`memory_in` does, and the pointers that are used other than by plain loads and stores.

    Results are kept for each statement, because a step of a schedule leaves most of them as they are.
    """
    named: set[Any] = {*stmt.used_buffers(), *stmt.declared_buffers()}
    opaque: set[Var] = set()
    if isinstance(stmt, Block):
        opaque.update([b.data for m in stmt.match_buffers for b in (m.source.buffer, m.buffer)])
    for part in stmt.children():
        if isinstance(part, Stmt):
            below = memory_of(part)
            named |= below[0]
            opaque |= below[1]
        elif type(part) is not IntImm:
            _add_memory_of(part, named, opaque)
    return frozenset(named), frozenset(opaque)


def _add_memory_of(e: IRNode, named: set[Any], opaque: set[Var]) -> None:
    for n in distinct(e):
        if type(n) is not Var:
            named.update(n.used_buffers())
            if type(n) is Call and n.op == "tir.address_of" and isinstance(n.args[0], BufferLoad):
                opaque.add(n.args[0].buffer.data)
        elif n.dtype == "handle":
            named.add(n)
            opaque.add(n)


class _BufferReplacement(Mapper):
    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        self.mapping = mapping
        self.data: dict[Var, Var] = {old.data: new.data for old, new in mapping.items()}
        self.names = {*self.data, *mapping}

    def visit(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self.data.get(n, n)
        if kind is IntImm or kind is FloatImm or (isinstance(n, Stmt) and self.names.isdisjoint(memory_in(n))):
            return n
        return n.map_parts(self)

    def use(self, buffer: Any) -> Any:
        return self.mapping.get(buffer, buffer)
