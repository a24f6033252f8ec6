"""This module walks the IR: it iterates over nodes, or rewrites them.

>>> from tilewright.tir.expr import Add, IntImm, Var, is_const_int
>>> i = Var("i")
>>> e = Add(i, IntImm(0))
>>> transform(e, post=lambda n: n.a if isinstance(n, Add) and is_const_int(n.b, 0) else None) is i
True
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from .node import IRNode
from .nodes import BufferLoad, Expr, FloatImm, IntImm, Var

LEAVES = frozenset((Var, IntImm, FloatImm))
"""The types of nodes without parts that programs are full of."""

N = TypeVar("N", bound=IRNode)
Rule = Callable[[Any], Any]


def pre_order(node: IRNode, enter: Callable[[IRNode], bool] | None = None) -> Iterator[IRNode]:
    """Yield all nodes, parents first; where ``enter(node)`` is false, the nodes below ``node`` are left out."""
    stack: list[IRNode] = [node]
    while stack:
        top = stack.pop()
        yield top
        if type(top) in LEAVES:
            continue
        if enter is None or enter(top):
            stack += top.children()[::-1]


def all_nodes(node: IRNode) -> list[Any]:
    """Return all nodes, those nearer to ``node`` first: the quick way where the order does not matter."""
    found: list[Any] = [node]
    for n in found:
        if type(n) not in LEAVES:
            found += n.children()
    return found


def distinct(node: IRNode) -> Iterator[IRNode]:
    """Yield what :func:`pre_order` does, but an expression used in several places only once.

    Leaves are yielded for each place.
    """
    seen: dict[IRNode, bool] = {}
    stack: list[IRNode] = [node]
    while stack:
        top = stack.pop()
        if type(top) in LEAVES:
            yield top
        elif top not in seen or not isinstance(top, Expr):
            seen[top] = True
            yield top
            stack += top.children()[::-1]


@lru_cache(maxsize=4)
def nodes_by_type(node: IRNode) -> Mapping[type, list[Any]]:
    """Return all nodes by their types, each node once. Variables and constants come in any order, the others in that of
    :func:`pre_order`."""
    seen: dict[IRNode, bool] = {}
    stack: list[Any] = [node]
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen[top] = True
        for child in top.children()[::-1]:
            if type(child) in LEAVES:
                seen[child] = True
            elif child not in seen:
                stack.append(child)
    found: defaultdict[type, list[Any]] = defaultdict(list)
    for n in seen:
        found[type(n)].append(n)
    return dict(found)


def post_order(node: IRNode) -> Iterator[IRNode]:
    """Yield all nodes, children first."""
    stack = [(node, iter(node.children()))]
    while stack:
        top, below = stack[-1]
        child = next(below, None)
        if child is None:
            stack.pop()
            yield top
        else:
            stack.append((child, iter(child.children())))


def transform(node: N, pre: Rule | None = None, post: Rule | None = None) -> Any:
    """Rebuild ``node`` by rules. A rule returns a new node, or None to leave the node as it is.

    ``pre`` is called before the children are rewritten; its result is not walked again.
    ``post`` is called with the node whose children are rewritten. A walk that changes nothing returns the same object.
    """
    return _Rewriter(pre, post).visit(node)


class _Rewriter:
    """Applies the rules of :func:`transform`. It is a class, because a closure that calls itself is freed late."""

    def __init__(self, pre: Rule | None, post: Rule | None) -> None:
        self.pre, self.post = pre, post

    def visit(self, n: Any) -> Any:
        pre, post = self.pre, self.post
        if pre is not None:
            new = pre(n)
            if new is not None:
                return new
        if type(n) not in LEAVES:
            n = n.map_children(self.visit)
        if post is not None:
            new = post(n)
            if new is not None:
                return new
        return n


def transform_statements(node: N, post: Rule) -> Any:
    """Rebuild ``node`` like :func:`transform`, by a rule that changes statements only; expressions are not walked."""
    return transform(node, lambda n: n if isinstance(n, Expr) else None, post)


def nodes_around(node: IRNode, wanted: Callable[[IRNode], bool]) -> set[IRNode]:
    """Return the nodes for which ``wanted`` is true, and all nodes around them.

    It is asked once about each node, and not about leaves.
    """
    found: dict[IRNode, bool] = {}
    _find_around(node, wanted, found)
    return {n for n, is_around in found.items() if is_around}


def _find_around(node: Any, wanted: Callable[[IRNode], bool], found: dict[IRNode, bool]) -> bool:
    is_around = wanted(node)
    for child in node.children():
        if type(child) not in LEAVES:
            inside = found[child] if child in found else _find_around(child, wanted, found)
            is_around = is_around or inside
    found[node] = is_around
    return is_around


def transform_around(node: N, around: Container[IRNode], post: Rule) -> Any:
    """Rebuild ``node`` like :func:`transform`, by a rule for nodes of :func:`nodes_around`; others are not walked."""
    return transform(node, lambda n: None if n in around else n, post)


def substitute(node: Any, mapping: Mapping[Var, Expr]) -> Any:
    """Return ``node`` with variables replaced by expressions, wherever they are used. Works on BufferRegion as well.

    Buffers' own shapes are left alone; see :func:`replace_buffers`.
    """
    if not mapping:
        return node
    kind = type(node)
    if kind is Var:
        return mapping.get(node, node)
    return node if kind in LEAVES else node.map_children(_Substitution(mapping).visit)


class _Substitution:
    __slots__ = ("mapping",)

    def __init__(self, mapping: Mapping[Var, Expr]) -> None:
        self.mapping = mapping

    def visit(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self.mapping.get(n, n)
        return n if kind in LEAVES else n.map_children(self.visit)


def replace_node(root: N, old: IRNode, new: IRNode) -> Any:
    """Return ``root`` with the one node ``old`` (by identity) replaced by ``new``; statements only are searched."""

    def pre(n: Any) -> Any:
        if n is old:
            return new
        return n if isinstance(n, Expr) else None

    return transform(root, pre)


def vars_in(node: IRNode) -> set[Var]:
    """Return every variable used in ``node`` (definitions alone do not count)."""
    if type(node) in LEAVES:
        return {node} if type(node) is Var else set()
    return {n for n in all_nodes(node) if type(n) is Var}


def uses_var(node: IRNode, var: Var | Callable[[Var], bool]) -> bool:
    """Return whether ``var``, or any variable that the function accepts, is used in ``node``."""
    single = type(var) is Var
    stack: list[Any] = [node]
    while stack:
        top = stack.pop()
        if type(top) is Var:
            if top is var if single else var(top):  # type: ignore[operator]
                return True
        elif type(top) not in LEAVES:
            stack += top.children()
    return False


def reads_memory(node: IRNode) -> bool:
    """Return whether ``node`` loads from a buffer."""
    stack: list[Any] = [node]
    while stack:
        top = stack.pop()
        if type(top) is BufferLoad:
            return True
        if type(top) not in LEAVES:
            stack += top.children()
    return False


def free_vars(node: IRNode) -> set[Var]:
    """Return the variables used but not bound inside ``node``."""
    bound = {var for n in pre_order(node) for var in n.bound_vars()}
    return vars_in(node) - bound
