"""This module indexes the statements of a function: blocks by name, loops by variable, and the path to each.

A :class:`Tree` is made by one walk over the statements and cached for the functions used last, so that a primitive's
checks and its rewrite share it. The tree of a function that a step has changed is made of the one before, where only the
changed statements of a long sequence are walked. A replacement copies only the path from the root to the replaced statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any

from ..expr import IntImm, Var, pre_order
from ..stmt import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    is_no_op,
    seq,
    statements,
    statements_in,
)


class Tree:
    """A ``Tree`` is the index of the statements of one function.

    ``parent`` gives the statement directly above (a Block's parent is its BlockRealize), ``loops`` the loop of a
    variable, ``blocks`` the realizations of a block name in program order. :func:`tree_of` gives the names and variables
    in any order, a tree made anew in program order. Statements inside the body of a leaf block are included; expressions
    are not walked.
    """

    __slots__ = ("blocks", "func", "loops", "parent")

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.parent: dict[Stmt, Stmt | None] = {func.body: None}
        self.loops: dict[Var, For] = {}
        self.blocks: dict[str, list[BlockRealize]] = {}
        self._add(func.body)

    def _add(self, start: Stmt) -> None:
        """Add the statements below ``start``, whose own parent is known."""
        parent = self.parent
        stack: list[Any] = [start]
        while stack:
            top = stack.pop()
            while True:  # down to where the program branches
                kind = type(top)
                if kind is For:
                    self.loops[top.loop_var] = top
                    below = top.body
                elif kind is BlockRealize:
                    self.blocks.setdefault(top.block.name_hint, []).append(top)
                    below = top.block
                elif kind is Block and top.init is None:
                    below = top.body
                else:
                    break
                parent[below] = top
                top = below
            if kind is BufferStore:
                continue
            several = statements_in(top)
            for child in several:
                parent[child] = top
            stack.extend(several[::-1])

    def _remove(self, start: Stmt) -> None:
        """Take away ``start`` and what is below it."""
        stack = [start]
        while stack:
            top = stack.pop()
            del self.parent[top]
            if isinstance(top, For):
                self.loops.pop(top.loop_var, None)
            elif isinstance(top, BlockRealize):
                del self.blocks[top.block.name_hint]
            stack += statements_in(top)

    def changed(self, func: PrimFunc) -> Tree | None:
        """Return the tree of ``func``, made of this one; None where they differ in much.

        Both functions have a long sequence, of which few statements are others.
        """
        old, new, above = self.func.body, func.body, []
        while type(old) is type(new) and not isinstance(new, SeqStmt):
            below, others = statements_in(new), statements_in(old)
            if len(below) != 1 or len(others) != 1:
                return None
            above.append((old, new))
            old, new = others[0], below[0]
        if not isinstance(old, SeqStmt) or not isinstance(new, SeqStmt):
            return None
        before, after = old.seq, new.seq
        short = min(len(before), len(after))
        first = next((n for n in range(short) if before[n] is not after[n]), short)
        last = next((n for n in range(short - first) if before[-1 - n] is not after[-1 - n]), short - first)
        gone, come = before[first : len(before) - last], after[first : len(after) - last]
        if 4 * (len(gone) + len(come)) > len(before):
            return None
        if any(len(self.blocks[name]) > 1 for stmt in gone for name in _names_within(stmt)):
            return None  # the order of the blocks of one name would have to be found out
        tree = copy(self)
        tree.func, tree.parent = func, self.parent.copy()
        tree.loops, tree.blocks = self.loops.copy(), self.blocks.copy()
        for stmt in gone:
            tree._remove(stmt)
        for was, now in above:
            del tree.parent[was]
            if isinstance(was, For):
                del tree.loops[was.loop_var]
            elif isinstance(was, BlockRealize) and isinstance(now, BlockRealize):
                name = now.block.name_hint
                if name != was.block.name_hint or len(tree.blocks[name]) > 1:
                    return None
                tree.blocks[name] = [now]
        del tree.parent[old]
        up: Stmt | None = None
        for _, now in above:
            if isinstance(now, For):
                tree.loops[now.loop_var] = now
            tree.parent[now] = up
            up = now
        tree.parent[new] = up
        tree.parent.update(dict.fromkeys(after, new))
        names = [name for stmt in come for name in _names_within(stmt)]
        if len(set(names)) < len(names) or any(name in tree.blocks for name in names):
            return None
        for stmt in come:
            tree._add(stmt)
        return tree

    def path(self, stmt: Stmt) -> list[Stmt]:
        """Return the statements from the function's body down to ``stmt``, both included."""
        out: list[Stmt] = []
        here: Stmt | None = stmt
        while here is not None:
            out.append(here)
            here = self.parent[here]
        out.reverse()
        return out

    def above(self, stmt: Stmt) -> Iterator[Stmt]:
        """Return the statements above ``stmt``, nearest first."""
        here = self.parent[stmt]
        while here is not None:
            yield here
            here = self.parent[here]

    def loops_above(self, stmt: Stmt) -> list[For]:
        """Return the loops above ``stmt`` up to the nearest enclosing block, outermost first."""
        out: list[For] = []
        parent = self.parent
        up = parent[stmt]
        while up is not None and type(up) is not Block:
            if type(up) is For:
                out.append(up)
            up = parent[up]
        out.reverse()
        return out

    def all_loops_above(self, stmt: Stmt) -> list[For]:
        """Return the loops above ``stmt`` up to the function itself, outermost first."""
        return [up for up in reversed(list(self.above(stmt))) if isinstance(up, For)]

    def scope(self, stmt: Stmt) -> BlockRealize:
        """Return the realization of the nearest block around ``stmt`` (not ``stmt`` itself): its scope root.

        The root block has none, which is a ValueError.
        """
        up = self.parent[stmt]
        while up is not None:
            if type(up) is BlockRealize:
                return up
            up = self.parent[up]
        raise ValueError("the root block has no scope around it")

    def is_below(self, stmt: Stmt, ancestor: Stmt) -> bool:
        """Return whether ``stmt`` is ``ancestor`` or somewhere below it."""
        return stmt is ancestor or any(up is ancestor for up in self.above(stmt))

    def blocks_in(self, scope: BlockRealize) -> list[BlockRealize]:
        """Return the blocks directly in a scope, in program order, without blocks nested in those."""
        return list(blocks_below(scope.block.body))

    def child_of(self, ancestor: Stmt, stmt: Stmt) -> Stmt:
        """Return the direct child of ``ancestor`` on the path to ``stmt``."""
        here = stmt
        while self.parent[here] is not ancestor:
            up = self.parent[here]
            if up is None:
                raise ValueError("stmt is not below ancestor")
            here = up
        return here

    # -- rewriting -------------------------------------------------------------------------------------------------

    def replace(
        self, changes: Mapping[Any, Stmt | None], after: Mapping[Any, Callable[[Any], Stmt]] | None = None
    ) -> PrimFunc:
        """Return the function with each key of ``changes`` (by identity) replaced by its value; None removes it.

        Only the paths to the keys are copied. Loops around a statement that becomes empty are removed as well, but
        blocks are not. No key may lie below another one. The keys of ``after`` may lie above those of ``changes``: each
        function gets the statement as it is by then. In a sequence among them the statements keep their positions.

        >>> tree.replace({loop: loop.with_(kind="parallel")})            # doctest: +SKIP
        """
        then = after or {}
        dirty: set[Stmt] = set(then)
        for key in (*changes, *then):
            for up in self.above(key):
                if up in dirty and up not in then:
                    break
                dirty.add(up)
        body = _Replacement(changes, then, dirty).rebuilt(self.func.body)
        assert body is not None, "the root block cannot be taken away"
        return self.func.with_body(body)


class _Replacement:
    """Rebuilds the statements in ``dirty``, those above the keys of ``changes`` and ``then``."""

    def __init__(
        self, changes: Mapping[Any, Stmt | None], then: Mapping[Any, Callable[[Any], Stmt]], dirty: set[Stmt]
    ) -> None:
        self.changes, self.then, self.dirty = changes, then, dirty

    def rebuilt(self, stmt: Any) -> Any:
        if stmt in self.changes:
            return self.changes[stmt]
        if stmt not in self.dirty:
            return stmt
        return self.then[stmt](self.parts(stmt)) if stmt in self.then else self.parts(stmt)

    def parts(self, stmt: Any) -> Stmt | None:
        """Return ``stmt`` with its statements rebuilt."""
        if isinstance(stmt, For):
            body = self.rebuilt(stmt.body)
            return None if body is None else stmt.with_(body=body)
        if isinstance(stmt, BlockRealize):
            return BlockRealize(stmt.iter_values, stmt.predicate, self.rebuilt(stmt.block))
        if isinstance(stmt, Block):
            init = None if stmt.init is None else self.rebuilt(stmt.init)
            return stmt.with_(init=init, body=seq(self.rebuilt(stmt.body)))
        if isinstance(stmt, SeqStmt):
            kept = [self.rebuilt(s) for s in stmt.seq]
            if stmt in self.then:
                return SeqStmt(tuple([seq() if s is None else s for s in kept]))
            out = seq(*kept)
            return None if is_no_op(out) else out
        # the other statements hold expressions beside their bodies; an emptied body becomes a no-op
        return stmt.map_children(lambda n: seq(self.rebuilt(n)) if isinstance(n, Stmt) else n)


@lru_cache(maxsize=16)
def tree_of(func: PrimFunc) -> Tree:
    """Return the index of ``func``; it is cached for the functions used last."""
    tree = next((tree for known in _latest if (tree := known.changed(func)) is not None), None) or Tree(func)
    _latest[:] = [tree]
    return tree


_latest: list[Tree] = []
"""The tree that was made last, of which that of the next function is often made."""


def _names_within(stmt: Stmt) -> list[str]:
    """Return the names of all blocks in ``stmt``, itself included."""
    return [s.block.name_hint for s in statements(stmt) if isinstance(s, BlockRealize)]


def blocks_below(stmt: Stmt) -> Iterator[BlockRealize]:
    """Return the outermost blocks in ``stmt``, itself included, in program order, without blocks nested in those."""
    stack: list[Stmt] = [stmt]
    while stack:
        top = stack.pop()
        if isinstance(top, BlockRealize):
            yield top
        elif isinstance(top, For):
            stack.append(top.body)
        else:
            below = statements_in(top)
            stack.extend(below if len(below) < 2 else below[::-1])


def unique_block_name(func: PrimFunc, wish: str, taken: Iterable[str] = ()) -> str:
    """Return ``wish``, or ``wish_1``, ``wish_2`` … when a block of ``func`` or one of ``taken`` has that name."""
    used = {*tree_of(func).blocks, *taken}
    if wish not in used:
        return wish
    number = 1
    while f"{wish}_{number}" in used:
        number += 1
    return f"{wish}_{number}"


def unique_names(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with numbers added to block names that occur twice; the root keeps its name.

    For example, ``C``, ``C`` become ``C_1``, ``C_2``.
    """
    tree = Tree(func)
    twice = {name for name, found in tree.blocks.items() if len(found) > 1}
    if not twice:
        return func
    used = set(tree.blocks)
    counts = dict.fromkeys(twice, 0)

    # names are given in program order, before the rewrite, which goes bottom up
    fresh: dict[Block, str] = {}
    for name in twice:
        for realize in tree.blocks[name]:
            if realize is func.body:
                continue
            counts[name] += 1
            while f"{name}_{counts[name]}" in used:
                counts[name] += 1
            fresh[realize.block] = f"{name}_{counts[name]}"
            used.add(fresh[realize.block])

    def walk(stmt: Stmt) -> Stmt:
        new = stmt.map_children(lambda n: walk(n) if isinstance(n, Stmt) else n)
        return new.with_(name_hint=fresh[stmt]) if isinstance(stmt, Block) and stmt in fresh else new  # type: ignore[attr-defined]

    return func.with_body(walk(func.body))


def symbols_of(func: PrimFunc) -> list[Var]:
    """Return the sizes of a function: its scalar parameters, then the variables in its buffers' shapes, each once."""
    found: dict[Var, None] = {p: None for p in func.params if p not in func.buffer_map}
    for buffer in func.buffers:
        for extent in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            for n in () if type(extent) is IntImm else pre_order(extent):
                if isinstance(n, Var):
                    found[n] = None
    return list(found)
