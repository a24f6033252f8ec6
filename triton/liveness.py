"""What the source of a kernel says of its names. It says which are still needed after each statement, and how often each is read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .jumps import flag_of

Names = frozenset[str]


def names_read(*parts: ast.AST) -> Names:
    """Return the names that are read in some parts of the source."""
    return frozenset(
        n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def names_assigned(stmts: Sequence[ast.stmt]) -> list[str]:
    """Return the names that statements assign, in order of their first assignment."""
    out: dict[str, None] = {}
    for stmt in stmts:
        for n in ast.walk(stmt):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                out[n.id] = None
    return list(out)


class Liveness:
    """The names that are needed after each statement of a function, and at the head of each loop.

    >>> tree = ast.parse("x = a + b\\ny = x * x\\nf(y)")
    >>> sorted(Liveness(tree.body).after[tree.body[0]])
    ['f', 'x']
    """

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.after: dict[ast.stmt, Names] = {}
        self.head: dict[ast.stmt, Names] = {}
        self.reads: dict[str, list[tuple[ast.stmt, ...]]] = {}
        self.loops: dict[ast.stmt, tuple[ast.stmt, ...]] = {}
        self._block(body, frozenset())
        for stmt in body:
            self._count(stmt, ())

    def is_read_often(self, name: str, stmt: ast.stmt) -> bool:
        """Return whether what ``stmt`` assigns to ``name`` may be read more than once, by several reads or in a loop."""
        here = self.loops[stmt]
        weights = [2 if len(at) > len(here) and at[: len(here)] == here else 1 for at in self.reads.get(name, ())]
        return sum(weights) > 1

    def _block(self, stmts: Sequence[ast.stmt], out: Names) -> Names:
        for stmt in reversed(stmts):
            self.after[stmt] = out
            out = self._before(stmt, out)
        return out

    def _before(self, s: ast.stmt, out: Names) -> Names:
        if isinstance(s, ast.If):
            return self._block(s.body, out) | self._block(s.orelse, out) | names_read(s.test)
        if isinstance(s, (ast.For, ast.While)):
            fixed = names_read(s.test) if isinstance(s, ast.While) else frozenset()
            bound = (
                frozenset(names_assigned([ast.Assign([s.target], ast.Constant(0))]))
                if isinstance(s, ast.For)
                else frozenset()
            )
            flag = flag_of(s)
            head = out | fixed | (frozenset() if flag is None else {flag})
            while True:
                more = head | (self._block(s.body, head) - bound)
                if more == head:
                    break
                head = more
            self.head[s] = head
            return head | (names_read(s.iter) if isinstance(s, ast.For) else frozenset())
        written = frozenset(names_assigned([s]))
        if isinstance(s, ast.AugAssign):
            return out | written | names_read(s)
        return (out - written) | names_read(s)

    def _count(self, node: ast.AST, loops: tuple[ast.stmt, ...]) -> None:
        if isinstance(node, ast.stmt):
            self.loops[node] = loops
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.reads.setdefault(node.id, []).append(loops)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.reads.setdefault(node.target.id, []).append(loops)
        inside = (*loops, node) if isinstance(node, (ast.For, ast.While)) else loops
        for name, part in ast.iter_fields(node):
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, ast.AST):
                    self._count(child, inside if name == "body" else loops)
