"""This module collects the accesses of a statement, each with the loops, blocks and conditions around it. Every analysis
of accesses starts from this one walk.

:func:`accesses_below` returns the elements that a statement loads and stores, the regions that blocks in it declare, the
buffers that it allocates and the pointers that it uses. An access knows the loops, blocks and conditions between the
statement and itself; let variables and block axes are replaced by their values in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from ..expr import And, BufferLoad, Call, Expr, IntImm, Let, Not, Or, Var, conjuncts, const, is_const_int, substitute
from ..expr.deep_recursion import with_room
from ..expr.intrinsics import Effect, effect_of
from ..expr.node import changed, record
from ..stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    Stmt,
    While,
    memory_of,
)

_LEAVES = frozenset((Var, IntImm))


@record
class Around:
    """``Around`` has the loops, blocks and conditions between a statement and an access below it, outermost first.

    ``guards`` are the conditions under which the access happens. Below a ``while`` (``in_while``) one of them is a
    variable of which nothing is known. ``values`` are those of block axes and let variables; what is bound further in
    may be among them.
    """

    loops: tuple[For, ...] = ()
    blocks: tuple[BlockRealize, ...] = ()
    guards: tuple[Expr, ...] = ()
    values: Mapping[Var, Expr] = field(default_factory=dict)
    in_init: bool = False
    in_while: bool = False
    in_attribute: bool = False
    address: Call | None = None
    """The call that gets the address of the element."""
    seen: set[int] = field(default_factory=set)
    """The expressions that were visited here: one that occurs in several places counts once."""

    def with_(self, **changes: Any) -> Around:
        """Return the same with the named fields changed."""
        changes["seen"] = set()
        return changed(self, changes)

    def under(self, condition: Expr, holds: bool = True) -> Around:
        """Return the surroundings of a statement that is only reached when ``condition`` holds (or does not)."""
        condition = substitute(condition, self.values)
        return self.with_(guards=(*self.guards, *(conjuncts(condition) if holds else (Not(condition),))))


@dataclass(frozen=True, eq=False)
class Access:
    """An ``Access`` is a load or a store of elements, or a region that a block declares. A vector accesses several
    elements.

    ``node`` is the load, the store or the region; ``indices`` are those of its first element, ``extents`` the lengths
    of the region, one per dimension.
    """

    node: BufferLoad | BufferStore | BufferRegion
    is_store: bool
    around: Around
    moving: tuple[Var, ...] = ()
    """Variables for values that are read from memory which is written as well (:mod:`.dependence`)."""

    @property
    def buffer(self) -> Buffer:
        """Return the buffer that is accessed."""
        return self.node.buffer

    @cached_property
    def indices(self) -> tuple[Expr, ...]:
        """Return the index of the first element in each dimension, in terms of what is defined outside."""
        node, values = self.node, self.around.values
        first = tuple([r.min for r in node.region]) if isinstance(node, BufferRegion) else node.indices
        return tuple([substitute(i, values) for i in first]) if values else first

    @cached_property
    def extents(self) -> tuple[Expr, ...]:
        """Return the number of elements in each dimension; one for the element (or vector) of a load or store."""
        if isinstance(self.node, BufferRegion):
            return tuple([substitute(r.extent, self.around.values) for r in self.node.region])
        return tuple([const(1, i.dtype) for i in self.node.indices])

    @property
    def is_declared(self) -> bool:
        """Return whether this is a region that a block declares."""
        return isinstance(self.node, BufferRegion)

    @property
    def loops(self) -> tuple[For, ...]:
        """Return the loops between the statement that was asked about and the access, outermost first."""
        return self.around.loops

    @property
    def blocks(self) -> tuple[BlockRealize, ...]:
        """Return the blocks between the statement that was asked about and the access, outermost first."""
        return self.around.blocks

    @property
    def realize(self) -> BlockRealize | None:
        """Return the innermost of these blocks; None outside blocks."""
        return self.around.blocks[-1] if self.around.blocks else None

    @property
    def guards(self) -> tuple[Expr, ...]:
        """Return the conditions under which it happens, its own mask included."""
        mask = getattr(self.node, "predicate", None)
        return self.around.guards if mask is None else (*self.around.guards, substitute(mask, self.around.values))


@record
class Pointer:
    """A ``Pointer`` is a use of memory other than by a load or a store.

    ``node`` is a data pointer, the address of an element, or a call of an external function. ``user`` is the call that
    gets it (the node itself where there is no such call).
    """

    node: Var | Call
    user: Var | Call
    around: Around

    @property
    def data(self) -> Var | None:
        """Return the data pointer of the buffer; None for calls of external functions."""
        if isinstance(self.node, Var):
            return self.node
        first = self.node.args[0] if self.node.op == "tir.address_of" else None
        return first.buffer.data if isinstance(first, BufferLoad) else None

    @property
    def may_write(self) -> bool:
        """Return whether memory may be written through it; false where the call or the address only reads."""
        if not isinstance(self.user, Call):
            return True
        if self.user.op == "tir.tvm_access_ptr" and is_const_int(self.user.args[4], 1):
            return False
        return effect_of(self.user) is not Effect.READS


class Accesses:
    """``Accesses`` are all that a statement accesses, in program order. What a store's value reads comes before what
    its indices read.

    ``allocated`` tells what stands around the allocation of each buffer. ``opaque`` holds the blocks whose declared regions stand for what happens in
    them: those that have match_buffers, and leaves that use pointers.
    """

    def __init__(self, stmt: Stmt) -> None:
        self.all: list[Access] = []
        self.allocated: dict[Buffer, Around] = {}
        self.pointers: list[Pointer] = []
        self.opaque: set[BlockRealize] = set()
        self.matches: list[MatchBufferRegion] = []
        self._blocks = 0
        self._visit(stmt, Around())

    @cached_property
    def elements(self) -> list[Access]:
        """Return the loads and stores. Those through match_buffers appear under the matched buffer's name."""
        return [a for a in self.all if not a.is_declared]

    def outside_of(self, hidden: Callable[[BlockRealize], bool]) -> Iterator[Access]:
        """Return the accesses; the outermost ``hidden`` blocks contribute their declared regions instead of the accesses in
        them."""
        for a in self.all:
            if a.is_declared:
                if hidden(a.blocks[-1]) and not any(map(hidden, a.blocks[:-1])):
                    yield a
            elif not any(map(hidden, a.blocks)):
                yield a

    def _visit(self, n: Any, around: Around, user: Call | None = None) -> None:
        kind = type(n)
        if kind in _LEAVES:
            if n.dtype == "handle":
                self.pointers.append(Pointer(n, n if user is None else user, around))
            return
        if isinstance(n, Expr):
            if id(n) in around.seen:
                return
            around.seen.add(id(n))
        rule = _RULES.get(kind)
        if rule is not None:
            rule(self, n, around)
            return
        self._each(n.children(), around)

    def _each(self, items: Iterable[Any], around: Around) -> None:
        for item in items:
            if type(item) not in _LEAVES or item.dtype == "handle":
                self._visit(item, around)

    def _load(self, n: BufferLoad, around: Around) -> None:
        self.all.append(Access(n, False, around))
        self._each(n.children(), around)

    def _store(self, n: BufferStore, around: Around) -> None:
        self.all.append(Access(n, True, around))
        self._each((n.value, *n.indices), around)
        if n.predicate is not None:
            self._visit(n.predicate, around)

    def _loop(self, n: For, around: Around) -> None:
        low, extent = n.min, n.extent
        if type(low) is not IntImm or type(extent) is not IntImm:
            self._visit(low, around)
            self._visit(extent, around)
            low, extent = substitute(low, around.values), substitute(extent, around.values)
        loop = n if low is n.min and extent is n.extent else n.with_(min=low, extent=extent)
        self._visit(n.body, around.with_(loops=(*around.loops, loop)))

    def _let(self, n: Let | LetStmt, around: Around) -> None:
        self._visit(n.value, around)
        self._visit(n.body, around.with_(values=_with_values(around.values, ((n.var, n.value),))))

    def _if(self, n: IfThenElse, around: Around) -> None:
        self._visit(n.condition, around)
        self._visit(n.then_case, around.under(n.condition))
        if n.else_case is not None:
            self._visit(n.else_case, around.under(n.condition, False))

    def _call(self, n: Call, around: Around) -> None:
        if n.op == "tir.if_then_else":
            self._visit(n.args[0], around)
            self._visit(n.args[1], around.under(n.args[0]))
            self._visit(n.args[2], around.under(n.args[0], False))
            return
        if n.op == "tir.address_of":
            self._address(n, n, around)
            return
        if n.op == "tir.call_extern":
            self.pointers.append(Pointer(n, n, around))
        if effect_of(n) is Effect.ADDRESS:
            around = around.with_(address=n)
        for arg in n.args:
            if isinstance(arg, Call) and arg.op == "tir.address_of":
                self._address(arg, n, around)
            else:
                self._visit(arg, around, n)

    def _address(self, n: Call, user: Call, around: Around) -> None:
        self.pointers.append(Pointer(n, user, around))
        for arg in n.args:
            self._visit(arg, around.with_(address=user))

    def _second_if(self, n: And | Or, around: Around) -> None:
        self._visit(n.a, around)
        self._visit(n.b, around.under(n.a, isinstance(n, And)))

    def _while(self, n: While, around: Around) -> None:
        around = around.with_(in_while=True)
        self._visit(n.condition, around)
        self._visit(n.body, around.with_(guards=(*around.guards, Var("runs", "bool"))))

    def _attribute(self, n: AttrStmt, around: Around) -> None:
        self._visit(n.value, around)
        self._visit(n.body, around.with_(in_attribute=True))

    def _allocate(self, n: Allocate, around: Around) -> None:
        self.allocated[n.buffer] = around
        self._visit(n.body, around)

    def _realize(self, n: BlockRealize, around: Around) -> None:
        self._each((*n.iter_values, n.predicate), around)
        block = n.block
        axes = [iv.var for iv in block.iter_vars]
        values = _with_values(around.values, zip(axes, n.iter_values, strict=True))
        guards = (*around.guards, *conjuncts(substitute(n.predicate, values)))
        inner = around.with_(guards=guards, blocks=(*around.blocks, n), values=values)
        self.all += [Access(r, False, inner) for r in block.reads]
        self.all += [Access(r, True, inner) for r in block.writes]
        before = len(self.pointers)
        leaf = self._block(block, inner)
        if block.match_buffers or (leaf and any(p.data is not None for p in self.pointers[before:])):
            self.opaque.add(n)

    def _block(self, n: Block, around: Around) -> bool:
        """Visit a block; return whether no block is in its body."""
        self.allocated.update(dict.fromkeys(n.alloc_buffers, around))
        self.matches += n.match_buffers
        for m in n.match_buffers:
            for r in m.source.region:
                self._visit(r.min, around)
                self._visit(r.extent, around)
        if n.init is not None:
            self._visit(n.init, around.with_(in_init=True))
        self._blocks += 1
        here = self._blocks
        self._visit(n.body, around)
        return self._blocks == here


_RULES: Mapping[type, Callable[[Accesses, Any, Around], Any]] = {
    Allocate: Accesses._allocate,
    And: Accesses._second_if,
    AttrStmt: Accesses._attribute,
    Block: Accesses._block,
    BlockRealize: Accesses._realize,
    BufferLoad: Accesses._load,
    BufferStore: Accesses._store,
    Call: Accesses._call,
    For: Accesses._loop,
    IfThenElse: Accesses._if,
    Let: Accesses._let,
    LetStmt: Accesses._let,
    Or: Accesses._second_if,
    While: Accesses._while,
}


def _with_values(values: Mapping[Var, Expr], more: Iterable[tuple[Var, Expr]]) -> Mapping[Var, Expr]:
    """Return ``values`` with those of more variables, in terms of what is defined outside.

    One mapping grows as long as no variable gets a second value: what is bound further in is not used further out.
    """
    new = {var: substitute(value, values) for var, value in more}
    if new.keys() & values.keys() or not isinstance(values, dict):
        return {**values, **new}
    values.update(new)
    return values


@lru_cache(maxsize=256)
@with_room
def accesses_below(stmt: Stmt) -> Accesses:
    """Return all that ``stmt`` accesses."""
    return Accesses(stmt)


def accesses(stmt: Stmt, buffer: Buffer | None = None) -> list[Access]:
    """Return every load and store below ``stmt`` (of ``buffer`` alone, when given), in program order.

    Those that say where a match_buffer lies are among them. Accesses through pointers do not appear: see
    :func:`opaque_buffers`.
    """
    return [a for a in accesses_below(stmt).elements if buffer is None or a.buffer is buffer]


@with_room
def opaque_buffers(stmt: Stmt) -> frozenset[Var]:
    """Return the pointers (``Buffer.data``) used below ``stmt`` other than by plain loads and stores.

    Such uses are calls, address_of and match_buffers. :func:`accesses` does not see what happens through them.
    """
    return memory_of(stmt)[1]
