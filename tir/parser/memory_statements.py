"""This module parses stores to buffers, and allocations, which hold for the statements that follow."""

from __future__ import annotations

import ast
from typing import Any

from ..expr import Broadcast, Cast, Expr, IntImm, Var, cast
from ..stmt import Allocate, Buffer, BufferStore, Stmt
from .access_parser import BUFFER_ARGS, parse_buffer, parse_indices
from .parser_base import Parser, Wrapper


def parse_allocation(p: Parser, word: str, name: str, call: ast.Call) -> tuple[Buffer | Var, Wrapper]:
    """Return a buffer that exists in the following statements, and a wrapper that declares it around them.

    For ``T.allocate`` the pointer is returned instead of the buffer. With ``data=`` the buffer is another view of
    existing memory.
    """
    if word == "allocate":
        args = p.arguments(call, "extents", "dtype", "scope", "condition", "annotations")
        renamed = {"extents": "shape", "dtype": "dtype", "scope": "scope"}
        args = {renamed.get(k, k): v for k, v in args.items() if k != "condition"}
    else:
        args = p.arguments(call, *BUFFER_ARGS, "annotations")
    notes = args.pop("annotations", None)
    buffer = parse_buffer(p, name, args, call)
    attrs = {} if notes is None else p.attributes(notes)
    if word == "allocate":
        p.allocated[buffer.data] = buffer
        return buffer.data, lambda rest: Allocate(buffer, rest, attrs)
    if word == "decl_buffer" and "data" in args:
        owner = p.allocated.get(buffer.data)
        return owner if owner is not None and _same_memory(owner, buffer) else buffer, lambda rest: rest
    return buffer, lambda rest: Allocate(buffer, rest, attrs)


def parse_store(p: Parser, target: ast.Subscript, value: Any, node: ast.AST) -> Stmt:
    """Parse ``A[i] = value``."""
    buffer = p.eval(target.value)
    if not isinstance(buffer, Buffer):
        raise p.error("only elements of buffers can be assigned", target)
    return parse_buffer_store(p, buffer, parse_indices(p, buffer, target), value, None, node)


def parse_buffer_store(
    p: Parser, buffer: Buffer, indices: tuple[Expr, ...], value: Any, predicate: Expr | None, node: ast.AST
) -> Stmt:
    """Return a store; the value is converted to the buffer's type unless a fraction would be lost."""
    lanes = max([i.dtype.lanes for i in indices], default=1) * buffer.dtype.lanes
    if isinstance(value, str) and value in ("inf", "-inf", "nan") and buffer.dtype.is_float:
        value = float(value)
    e = p.as_expr(value, node, buffer.dtype if isinstance(value, (int, float)) else None)
    have, want = e.dtype.element, buffer.dtype.element
    if have != want:
        if have.is_float and not want.is_float or "handle" in (have, want):
            raise p.error(f"{e.dtype} does not fit {buffer.dtype} of {buffer.name}; write T.Cast", node)
        e = Cast(want.with_lanes(e.dtype.lanes), e) if have.is_bool or want.is_bool else cast(want, e)
    if lanes > 1 and e.dtype.lanes == 1:
        e = Broadcast(e, lanes)
    return BufferStore(buffer, e, indices, predicate)


def compose(wrappers: list[Wrapper]) -> Wrapper:
    """Return the wrappers joined into one, the first outermost."""

    def wrap(rest: Stmt) -> Stmt:
        for w in reversed(wrappers):
            rest = w(rest)
        return rest

    return wrap


def _same_memory(a: Buffer, b: Buffer) -> bool:
    """Return whether two declarations over one pointer are equal."""
    sizes = (
        [(x.value if isinstance(x, IntImm) else x) for x in a.shape],
        [(x.value if isinstance(x, IntImm) else x) for x in b.shape],
    )
    return (
        sizes[0] == sizes[1]
        and (a.dtype, a.scope, a.strides) == (b.dtype, b.scope, b.strides)
        and not b.axis_separators
    )
