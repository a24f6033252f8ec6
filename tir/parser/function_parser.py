"""This module parses functions and modules."""

from __future__ import annotations

import ast
from typing import Any

from ..buffer import Buffer
from ..expr import Expr, Var
from ..function import IRModule, PrimFunc, root_block
from ..printer_func import needs_root
from ..stmt import BlockRealize
from ..vocabulary import BufferWord, TypeWord
from .block_parser import BUFFER_ARGS, Frame
from .errors import ParseError
from .older_spellings import Macro
from .parser_values import Namespace
from .statement_parser import StmtParser

_OPTIONS = ("private", "check_well_formed", "s_tir")


class FunctionParser(StmtParser):
    """Parses definitions of functions and of classes with functions."""

    def module(self, tree: ast.Module) -> PrimFunc | IRModule:
        """Parse a whole text: one class, or one or more functions."""
        functions: dict[str, PrimFunc] = {}
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, ast.ClassDef):
                return self.class_(node)
            elif isinstance(node, ast.FunctionDef) and self.is_macro(node):
                self.define(node.name, Macro(node))
            elif isinstance(node, ast.FunctionDef):
                functions[node.name] = self.function(node, self._options(node))
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                raise self.error("a function under @T.prim_func or a class under @I.ir_module is needed", node)
        if not functions:
            raise self.error("there is no function here", tree.body[0] if tree.body else None)
        return next(iter(functions.values())) if len(functions) == 1 else IRModule(functions)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name in ("script", "tir", "s_tir", "tirx"):
                self.define(alias.asname or alias.name, Namespace("T"))
            elif alias.name == "ir":
                self.define(alias.asname or alias.name, Namespace("I"))

    def _decorator(self, node: ast.ClassDef | ast.FunctionDef, word: str) -> ast.expr:
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (isinstance(target, ast.Attribute) and target.attr == word) or (
                isinstance(target, ast.Name) and target.id == word
            ):
                return decorator
        raise self.error(f"`{node.name}` lacks the decorator {'@T.' if word == 'prim_func' else '@I.'}{word}", node)

    def _options(self, node: ast.FunctionDef) -> dict[str, Any]:
        decorator = self._decorator(node, "prim_func")
        if not isinstance(decorator, ast.Call):
            return {}
        options = self.keywords(decorator)
        for name in options:
            if name not in _OPTIONS:
                raise self.error(f"T.prim_func has no option `{name}`; there are {', '.join(_OPTIONS)}", decorator)
        return options

    def class_(self, node: ast.ClassDef) -> IRModule:
        """Parse ``@I.ir_module class Module: …``."""
        self._decorator(node, "ir_module")
        functions: dict[str, PrimFunc] = {}
        attrs: dict[str, Any] = {}
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and self.is_macro(item):
                self.define(item.name, Macro(item))
            elif isinstance(item, ast.FunctionDef):
                functions[item.name] = self.function(item, self._options(item))
            elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
                call = item.value
                word = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                if word == "module_global_infos":  # devices of Relax's tensors, unused here
                    continue
                if word != "module_attrs" or not call.args:
                    raise self.error("a module holds functions and I.module_attrs({...})", item)
                attrs.update(self.attributes(call.args[0]))
            elif not isinstance(item, ast.Pass) and not (
                isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
            ):
                raise self.error("a module holds functions and I.module_attrs({...})", item)
        return IRModule(functions, attrs)

    def function(self, node: ast.FunctionDef, options: dict[str, Any]) -> PrimFunc:
        """Parse ``@T.prim_func def main(A: T.Buffer(…), n: T.int32): …``."""
        frame = Frame(is_function=True)
        self.frames, self.loops, self.roots = [frame], {}, {}
        depth = len(self.scopes)
        self.scopes.append({})
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error("parameters are plain names with types", node)
        self.named_sizes, self.size_dtypes = {}, self._sizes_declared(node.body)
        is_buffer = {arg: self._is_buffer_type(arg.annotation) for arg in a.args}
        vars_of = {arg: self._parameter(arg, frame) for arg in sorted(a.args, key=lambda arg: is_buffer[arg])}
        params = [vars_of[arg] for arg in a.args]  # sizes first: a shape may name a later parameter
        if not options.get("private", False):
            frame.annotations["global_symbol"] = node.name
        body = self.body(node.body)
        del self.scopes[depth:]
        self.frames = []
        if needs_root(body, bool(frame.allocs)):
            body = root_block("root", body, tuple(frame.allocs))
        elif body in self.roots:  # the only statement; the root has only its declarations
            body = BlockRealize((), body.predicate, self.roots[body])  # type: ignore[attr-defined]
        buffer_map = {p: frame.params[p] for p in params if p in frame.params}
        return PrimFunc(tuple(params), body, buffer_map, frame.annotations)

    def _parameter(self, arg: ast.arg, frame: Frame) -> Var:
        node = arg.annotation
        if node is None:
            raise self.error(f"parameter `{arg.arg}` has no type; write T.Buffer(...), T.handle or T.int32", arg)
        buffer = self._buffer_type(arg.arg, node)
        if buffer is not None:
            var = Var(f"{arg.arg}_handle", "handle")
            frame.params[var] = buffer
            self.define(arg.arg, buffer)
            return var
        kind = self.eval(node)
        if not isinstance(kind, (TypeWord, Expr)):
            raise self.error("a parameter's type is T.Buffer(...), T.handle or a scalar type such as T.int32", node)
        var = Var(arg.arg, kind.dtype)
        self.define(arg.arg, var)
        return var

    def _sizes_declared(self, body: list[ast.stmt]) -> dict[str, str]:
        """Return names and types of ``n = T.int64()`` and ``n, m = T.int64(), T.int64()`` at the top of a function."""
        out: dict[str, str] = {}
        for stmt in body:
            if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
                continue
            target, value = stmt.targets[0], stmt.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for t, v in pairs:
                if isinstance(t, ast.Name) and isinstance(v, ast.Call) and not v.args and not v.keywords:
                    kind = self._maybe(v.func)
                    if isinstance(kind, TypeWord):
                        out[t.id] = kind.dtype
        return out

    def _maybe(self, node: ast.expr) -> Any:
        """Return the value of an expression; None when names in it are not defined yet."""
        try:
            return self.eval(node)
        except ParseError:
            return None

    def _is_buffer_type(self, node: ast.expr | None) -> bool:
        head = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else None
        return head is not None and isinstance(self._maybe(head), BufferWord)

    def _buffer_type(self, name: str, node: ast.expr) -> Buffer | None:
        if isinstance(node, ast.Call) and isinstance(self.eval(node.func), BufferWord):
            return self.buffer(name, self.arguments(node, *BUFFER_ARGS), node)
        if isinstance(node, ast.Subscript) and isinstance(self.eval(node.value), BufferWord):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self.buffer(name, dict(zip(("shape", "dtype"), items, strict=False)), node)
        return None
