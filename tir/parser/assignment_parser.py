"""This module parses assignments: names for values, declarations, stores."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..buffer import Buffer
from ..constants import cast, convert
from ..dtype import DType
from ..expr import Broadcast, Cast, Expr, IntImm, Var
from ..ranges import IterVar
from ..stmt import Allocate, BufferStore, LetStmt, Stmt
from ..vocabulary import TypeWord, Word
from .block_parser import BUFFER_ARGS
from .older_spellings import OlderParser
from .parser_values import BufferMethod, MetaVar

Wrapper = Callable[[Stmt], Stmt]
"""Builds a statement around the statements that follow it in the same body."""


class AssignParser(OlderParser):
    """Parses ``name = …``, ``name: T.int32 = …``, ``A[i] = …`` and ``A[i] += …``."""

    def _stmt_Assign(self, node: ast.Assign) -> Stmt | Wrapper | None:
        if len(node.targets) != 1:
            raise self.error("an assignment has one target", node)
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self.store(target, self.eval(node.value), node)
        name = target.id if isinstance(target, ast.Name) else "v"
        if isinstance(node.value, ast.Call):
            func = self.eval(node.value.func)
            if isinstance(func, Word):
                return self._assign_word(func.name, target, name, node.value)
            if isinstance(func, BufferMethod) and func.name == "view":
                self.unpack(target, self.buffer_view(func.buffer, name, node.value))
                return None
            if isinstance(func, TypeWord) and (not node.value.args or func.dtype == "handle"):
                self.unpack(target, self._declared(name, DType(func.dtype)))
                return None
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and self._declares(node.value, target):
            return None
        return self._bind(target, self.eval(node.value), node.value)

    def _declares(self, values: ast.Tuple, target: ast.Tuple) -> bool:
        """Declare the sizes of ``n, m = T.int32(), T.int32()``; return false when the values are something else."""
        kinds = [self.eval(v.func) for v in values.elts if isinstance(v, ast.Call) and not v.args]
        if len(kinds) != len(values.elts) or not all(isinstance(k, TypeWord) for k in kinds):
            return False
        names = [t.id if isinstance(t, ast.Name) else "v" for t in target.elts]
        self.unpack(target, tuple([self._declared(n, k.dtype) for n, k in zip(names, kinds, strict=False)]))
        return True

    def _declared(self, name: str, dtype: DType) -> Var:
        """Return the variable of ``n = T.int32()``: a size that a shape has named before, or a new one."""
        known = self.named_sizes.get(name)
        return known if known is not None and known.dtype == dtype else Var(name, dtype)

    def _assign_word(self, word: str, target: ast.expr, name: str, call: ast.Call) -> Wrapper | None:
        if word == "axis.remap":
            self.remap(target, call)
        elif word.startswith("axis."):
            self.unpack(target, self.axis(word[5:], name, call))
        elif word == "alloc_buffer":
            self.unpack(target, self.alloc_buffer(name, call))
        elif word == "match_buffer":
            self.unpack(target, self.match_buffer(name, call))
        elif word == "Buffer":
            self.unpack(target, self.buffer(name, self.arguments(call, *BUFFER_ARGS), call))
        elif word in ("decl_buffer", "allocate"):
            made, wrap = self.allocation(word, name, call)
            self.unpack(target, made)
            return wrap
        elif word == "local_scalar":  # the following assignment defines the variable
            self.arguments(call, "dtype")
        elif word in ("var", "env_thread"):
            var = Var(name, self.word(word, call).dtype)
            if word == "env_thread" and call.args:
                self.thread_tags[var] = self.string(call.args[0])
            self.unpack(target, var)
        elif word == "launch_thread":
            var, wrap = self.launch(call, name)
            self.unpack(target, var)
            return wrap
        else:
            return self._bind(target, self.word(word, call), call)
        return None

    def allocation(self, word: str, name: str, call: ast.Call) -> tuple[Buffer | Var, Wrapper]:
        """Return a buffer that exists in the following statements, and a wrapper that declares it around them.

        For ``T.allocate`` the pointer is returned instead of the buffer. With ``data=`` the buffer is another view of
        existing memory.
        """
        if word == "allocate":
            args = self.arguments(call, "extents", "dtype", "scope", "condition", "annotations")
            renamed = {"extents": "shape", "dtype": "dtype", "scope": "scope"}
            args = {renamed.get(k, k): v for k, v in args.items() if k != "condition"}
        else:
            args = self.arguments(call, *BUFFER_ARGS, "annotations")
        notes = args.pop("annotations", None)
        buffer = self.buffer(name, args, call)
        attrs = {} if notes is None else self.attributes(notes)
        if word == "allocate":
            self.allocated[buffer.data] = buffer
            return buffer.data, lambda rest: Allocate(buffer, rest, attrs)
        if word == "decl_buffer" and "data" in args:
            owner = self.allocated.get(buffer.data)
            return owner if owner is not None and _same_memory(owner, buffer) else buffer, lambda rest: rest
        return buffer, lambda rest: Allocate(buffer, rest, attrs)

    def _bind(self, target: ast.expr, value: Any, node: ast.AST) -> Wrapper | None:
        if isinstance(value, MetaVar):
            self.unpack(target, value.value)
        elif isinstance(value, (Buffer, str, list, dict, IterVar)) or not isinstance(value, (Expr, int, float, tuple)):
            self.unpack(target, value)
        elif isinstance(value, tuple):
            if not isinstance(target, ast.Tuple):
                self.unpack(target, value)
                return None
            if len(target.elts) != len(value):
                raise self.error(f"{len(value)} values for {len(target.elts)} names", target)
            made = [self._bind(t, v, node) for t, v in zip(target.elts, value, strict=True)]
            wrappers = [w for w in made if w is not None]
            return compose(wrappers) if wrappers else None
        elif isinstance(target, ast.Name):
            e = convert(value)
            self._not_outer(target)
            var = Var(target.id, e.dtype)
            self.define(target.id, var)
            self.named_values.add(var)
            return lambda rest: LetStmt(var, e, rest)
        else:
            raise self.error("a name or an element of a buffer is needed here", target)
        return None

    def _not_outer(self, target: ast.Name) -> None:
        """Raise ParseError when a name of an outer scope is assigned in a loop or branch: it would not change
        outside."""
        outer = next((s[target.id] for s in reversed(self.scopes[:-1]) if target.id in s), None)
        if isinstance(outer, Var) and outer in self.named_values and target.id not in self.scopes[-1]:
            raise self.error(
                f"`{target.id}` is a name for a value, which a loop or branch cannot change; "
                "use a buffer of one element, or another name",
                target,
            )

    def _stmt_AnnAssign(self, node: ast.AnnAssign) -> Wrapper | None:
        if not isinstance(node.target, ast.Name):
            raise self.error("a name is needed here", node.target)
        annotation: ast.expr = node.annotation
        if isinstance(annotation, ast.Subscript) and isinstance(self.eval(annotation.value), Word):
            annotation = annotation.slice  # T.let[T.int32]
        kind = self.eval(annotation)
        if isinstance(kind, Word) and kind.name == "LetStmt" and node.value is not None:  # x: T.let = value
            kind = self.expr(node.value)
        if not isinstance(kind, (TypeWord, Expr)):
            raise self.error("a type such as T.int32 is needed", node.annotation)
        dtype = kind.dtype
        value = None if node.value is None else self.expr(node.value, dtype)
        var = Var(node.target.id, dtype)
        self.define(node.target.id, var)
        self.named_values.add(var)
        return None if value is None else lambda rest: LetStmt(var, value, rest)

    def _stmt_AugAssign(self, node: ast.AugAssign) -> Stmt:
        if not isinstance(node.target, ast.Subscript):
            raise self.error("only elements of buffers can be updated", node)
        load = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node.target)
        value = self.eval(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
        return self.store(node.target, value, node)

    def store(self, target: ast.Subscript, value: Any, node: ast.AST) -> Stmt:
        """Parse ``A[i] = value``."""
        buffer = self.eval(target.value)
        if not isinstance(buffer, Buffer):
            raise self.error("only elements of buffers can be assigned", target)
        return self.buffer_store(buffer, self.indices(buffer, target), value, None, node)

    def buffer_store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: Any, predicate: Expr | None, node: ast.AST
    ) -> Stmt:
        """Return a store; the value is converted to the buffer's type unless a fraction would be lost."""
        lanes = max([i.dtype.lanes for i in indices], default=1) * buffer.dtype.lanes
        if value in ("inf", "-inf", "nan") and isinstance(value, str) and buffer.dtype.is_float:
            value = float(value)
        e = self.as_expr(value, node, buffer.dtype if isinstance(value, (int, float)) else None)
        have, want = e.dtype.element, buffer.dtype.element
        if have != want:
            if have.is_float and not want.is_float or "handle" in (have, want):
                raise self.error(f"{e.dtype} does not fit {buffer.dtype} of {buffer.name}; write T.Cast", node)
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
