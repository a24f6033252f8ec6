"""This module parses loops."""

from __future__ import annotations

import ast
from typing import Any

from ..constants import const
from ..dtype import DType
from ..equal import plain
from ..expr import IntImm, Var
from ..ranges import Range
from ..stmt import For, Stmt, While
from ..vocabulary import Word
from .assignment_parser import AssignParser

_LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread_binding",
}  # fmt: skip


class LoopParser(AssignParser):
    """Parses ``for`` and ``while`` statements."""

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a list of statements."""
        raise NotImplementedError

    def _stmt_For(self, node: ast.For) -> Stmt:
        if node.orelse:
            raise self.error("a loop has no else", node.orelse[0])
        call = node.iter
        func = self.eval(call.func) if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call):
            if isinstance(func, Word) and func.name == "grid":
                return self._grid(node, call)
            if isinstance(func, Word) and func.name in _LOOPS:
                return self._loop(node, call, _LOOPS[func.name])
            if isinstance(call.func, ast.Name) and call.func.id == "range":
                return self._loop(node, call, "serial")
        raise self.error("a loop runs over range, T.grid, T.serial, T.parallel, T.vectorized, T.unroll …", call)

    def _stmt_While(self, node: ast.While) -> Stmt:
        if node.orelse:
            raise self.error("a loop has no else", node.orelse[0])
        condition = self.condition(node.test)
        self.scopes.append({})
        body = self.body(node.body)
        self.scopes.pop()
        return While(condition, body)

    def _grid(self, node: ast.For, call: ast.Call) -> Stmt:
        extents = [self.as_expr(e, call) for e in self.items(call.args)]
        targets = list(node.target.elts) if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        if len(targets) != len(extents) or call.keywords or not extents:
            raise self.error(f"{len(targets)} loop variables for {len(extents)} extents", node.target)
        self.scopes.append({})
        loops = []
        for target, extent in zip(targets, extents, strict=True):
            loops.append((self._loop_var(target, extent.dtype), Range(const(0, extent.dtype), extent)))
            self.loops[loops[-1][0]] = loops[-1][1]
        body = self.body(node.body)
        self.scopes.pop()
        for var, r in reversed(loops):
            body = For(var, r.min, r.extent, "serial", body)
        return body

    def _loop_var(self, target: ast.expr, dtype: DType) -> Var:
        if not isinstance(target, ast.Name):
            raise self.error("a loop variable is a name", target)
        if not dtype.is_int:
            raise self.error(f"a loop's extent is an integer, this is {dtype}", target)
        var = Var(target.id, dtype)
        self.define(target.id, var)
        return var

    def _loop(self, node: ast.For, call: ast.Call, kind: str) -> Stmt:
        positional, rest = list(call.args), {k.arg: k.value for k in call.keywords}
        thread: str | None = None
        if kind == "thread_binding":
            tag = rest.pop("thread", None)
            if tag is None and len(positional) > 1:
                tag = positional.pop()
            if tag is None:
                raise self.error('write T.thread_binding(4, thread="threadIdx.x")', call)
            thread = self.string(tag)
        bounds = [positional.pop(0) if positional else rest.pop(name, None) for name in ("start", "stop")]
        annotations, step = rest.pop("annotations", None), rest.pop("step", None)
        if step is None and len(positional) == 1:
            step = positional.pop()
        unroll = rest.pop("unroll", None)
        if positional or rest or all(b is None for b in bounds):
            raise self.error("a loop takes (stop) or (start, stop), step=, unroll= and annotations=", call)
        if bounds[0] is None or bounds[1] is None:
            only = bounds[0] if bounds[0] is not None else bounds[1]
            extent = self.expr(only)  # type: ignore[arg-type]
            r = Range(const(0, extent.dtype) if extent.dtype.is_int else IntImm(0), extent)
        else:
            r = self.span(*bounds)  # type: ignore[arg-type]
        notes = {} if annotations is None else self.attributes(annotations)
        if unroll is not None:  # one word for two annotations in newer TVM
            wanted = plain(self.eval(unroll))
            notes.update({"disable_unroll": True} if wanted is False else {"pragma_unroll": wanted})
        by = 1 if step is None else self.number(step)
        if by < 1:
            raise self.error("the step of a loop must be positive", step)
        self.scopes.append({})
        if by > 1:
            return self._strided(node, kind, r, by, thread, notes)
        var = self._loop_var(node.target, r.extent.dtype)
        self.loops[var] = r
        body = self.body(node.body)
        self.scopes.pop()
        return For(var, r.min, r.extent, kind, body, thread, notes)

    def _strided(self, node: ast.For, kind: str, r: Range, by: int, thread: str | None, notes: dict[str, Any]) -> Stmt:
        """Parse ``range(start, stop, step)`` as a loop ``var`` over the trip count.

        The name in the text has the value ``start + var * step``.
        """
        var = self._loop_var(node.target, r.extent.dtype)
        steps = (r.extent + (by - 1)) // by
        zero = const(0, r.extent.dtype)
        self.loops[var] = Range(zero, steps)
        self.unpack(node.target, r.min + var * by)
        body = self.body(node.body)
        self.scopes.pop()
        return For(var, zero, steps, kind, body, thread, notes)
