"""This module parses statements: sequences, branches, calls, ``with``.

Other statements are parsed in :mod:`.assignment_parser`, :mod:`.loop_parser` and :mod:`.block_parser`.
"""

from __future__ import annotations

import ast

from ..buffer import Buffer
from ..equal import plain
from ..expr import Call, Expr, IntImm, Var
from ..stmt import AssertStmt, AttrStmt, Evaluate, IfThenElse, LetStmt, SeqStmt, Stmt
from ..vocabulary import Word
from .access_parser import consecutive_indices
from .assignment_parser import Wrapper, compose
from .loop_parser import LoopParser
from .older_spellings import Macro
from .parser_values import BufferMethod


class StmtParser(LoopParser):
    """Parses lists of statements."""

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a list of statements. A statement with a scope (a binding, an allocation) contains the rest of the
        list."""
        out: list[Stmt] = []
        scoped: list[tuple[int, Wrapper]] = []
        for node in nodes:
            made = self.statement(node)
            if isinstance(made, Stmt):
                out.append(made)
            elif made is not None:
                scoped.append((len(out), made))
        for start, wrap in reversed(scoped):
            out[start:] = [wrap(_sequence(out[start:]))]
        return _sequence(out)

    def nested(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a body in a scope of its own."""
        self.scopes.append({})
        out = self.body(nodes)
        self.scopes.pop()
        return out

    def statement(self, node: ast.stmt) -> Stmt | Wrapper | None:
        """Parse one statement.

        The result is a function when the statement contains those that follow, and None when it only declares
        something.
        """
        method = getattr(self, "_stmt_" + type(node).__name__, None)
        if method is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return method(node)  # type: ignore[no-any-return]

    def _stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not self.is_macro(node):
            raise self.error("a function inside a function is a macro, under @T.macro or @T.inline", node)
        self.define(node.name, Macro(node))

    def _stmt_Pass(self, node: ast.Pass) -> None:
        return None

    def _stmt_Return(self, node: ast.Return) -> Stmt | None:
        if node.value is None:
            return None
        value = self.expr(node.value)
        return Evaluate(Call("tir.ret", (value,), value.dtype))

    # Statements that are expressions

    def _stmt_Expr(self, node: ast.Expr) -> Stmt | Wrapper | None:
        call = node.value
        if isinstance(call, ast.Constant) and isinstance(call.value, str):
            return None  # a docstring
        if isinstance(call, ast.Call):
            func = self.eval(call.func)
            if isinstance(func, BufferMethod) and func.name == "vstore":
                args = self.arguments(call, "begin", "value", "predicate")
                indices = self.index_list(args["begin"], func.buffer, call)
                predicate = self.expr(args["predicate"]) if "predicate" in args else None
                value = self.eval(args["value"])
                lanes = value.dtype.lanes if isinstance(value, Expr) else 1
                if lanes > 1 and all(i.dtype.lanes == 1 for i in indices):  # consecutive elements, as in TVM
                    indices = consecutive_indices(func.buffer, indices, lanes)
                return self.buffer_store(func.buffer, indices, value, predicate, call)
            if isinstance(func, Macro):
                return self.expand(func, call, self.body)
            if isinstance(func, Word):
                return self._word_statement(func.name, call)
        return Evaluate(self.expr(call))

    def _word_statement(self, word: str, call: ast.Call) -> Stmt | Wrapper | None:
        if word in ("where", "reads", "writes", "block_attr", "func_attr"):
            getattr(self, "block_" + word)(call)
            return None
        if word == "alloc_buffer":
            self.alloc_buffer("buffer", call)
            return None
        if word == "launch_thread":
            return self.launch(call, "v")[1]
        if word == "LetStmt":
            return self._let_statement(call)
        if word == "evaluate":
            args = self.arguments(call, "value")
            return Evaluate(self.expr(args["value"]))
        if word == "attr":
            return self._attr(call)
        if word == "Assert":
            condition, message = self._assertion(call)
            return lambda rest: AssertStmt(condition, message, rest)
        if word == "buffer_store":
            args = self.arguments(call, "buffer", "value", "indices", "predicate")
            buffer = self.eval(args["buffer"])
            if not isinstance(buffer, Buffer):
                raise self.error("a buffer is needed", args["buffer"])
            indices = self.index_list(args["indices"], buffer, call)
            predicate = self.expr(args["predicate"]) if "predicate" in args else None
            return self.buffer_store(buffer, indices, self.eval(args["value"]), predicate, call)
        return Evaluate(self.as_expr(self.word(word, call), call))

    def _let_statement(self, call: ast.Call) -> Wrapper | None:
        """Parse ``T.Bind(value, var=x)``, and the older ``T.bind(axis, value)``."""
        if len(call.args) == 2:
            self.bind_axis(call)
            return None
        var, value = self._let_parts(call, "v")
        return lambda rest: LetStmt(var, value, rest)

    def _let_parts(self, call: ast.Call, name: str) -> tuple[Var, Expr]:
        args = self.arguments(call, "value", "dtype", "var")
        value = self.expr(args["value"])
        if "var" not in args:
            return Var(name, self.dtype(args["dtype"]) if "dtype" in args else value.dtype), value
        var = self.eval(args["var"])
        if not isinstance(var, Var):
            raise self.error("var= needs a variable", args["var"])
        return var, value

    def _attr(self, call: ast.Call) -> Wrapper:
        """Parse ``T.attr(node, key, value)``, or ``T.attr({key: value})`` without a node."""
        if len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
            items = [
                (self.string(k), self.expr(v)) for k, v in zip(call.args[0].keys, call.args[0].values, strict=True) if k
            ]
            return compose([lambda rest, k=k, v=v: AttrStmt(0, k, v, rest) for k, v in items])  # type: ignore[misc]
        args = self.arguments(call, "node", "attr_key", "value")
        if len(args) != 3:
            raise self.error("write T.attr(node, key, value)", call)
        node = self.eval(args["node"])
        if isinstance(node, IntImm):
            node = plain(node)
        key, value = self.string(args["attr_key"]), self.expr(args["value"])
        return lambda rest: AttrStmt(node, key, value, rest)

    def _assertion(self, call: ast.Call) -> tuple[Expr, str]:
        args = self.arguments(call, "condition", "message")
        if len(args) != 2:
            raise self.error("write T.Assert(condition, message)", call)
        return self.condition(args["condition"]), self.string(args["message"])

    def _stmt_Assert(self, node: ast.Assert) -> Wrapper:
        condition = self.condition(node.test)
        message = "" if node.msg is None else self._message(node.msg)
        return lambda rest: AssertStmt(condition, message, rest)

    def _message(self, node: ast.expr) -> str:
        value = self.eval(node)
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):  # ("RuntimeError", ["…"])
            return "".join([str(part) for part in value[1]])
        return self.string(node)

    # Statements with a body

    def _stmt_If(self, node: ast.If) -> Stmt | None:
        test = self.eval(node.test)
        if not isinstance(test, Expr):  # the condition is a Python value, known when the program is built
            chosen = node.body if test else node.orelse
            return self.nested(chosen) if chosen else None
        chain = [(self.condition(node.test), self.nested(node.body))]
        while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            following = node.orelse[0]
            if not isinstance(self.eval(following.test), Expr):
                break
            node = following
            chain.append((self.condition(node.test), self.nested(node.body)))
        out = self.nested(node.orelse) if node.orelse else None
        for condition, then in reversed(chain):
            out = IfThenElse(condition, then, out)
        return out

    def _stmt_With(self, node: ast.With) -> Stmt | None:
        return self._with(node.items, node)

    def _with(self, items: list[ast.withitem], node: ast.With) -> Stmt | None:
        if not items:
            return self.body(node.body)
        item, call = items[0], items[0].context_expr
        func = self.eval(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(func, Word) or not isinstance(call, ast.Call):
            raise self.error("`with` takes T.block, T.init, T.LetStmt, T.decl_buffer, T.attr, T.Assert …", call)
        word = func.name
        if word == "init":
            self.block_init(call, lambda: self.nested(node.body))
            return None
        if word == "block" and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
            inner = lambda: self._with(items[1:], node) or Evaluate(IntImm(0))  # noqa: E731
            return self.older_block(call, item.optional_vars, inner)
        if word == "block":
            return self.block(call, lambda: self._with(items[1:], node) or Evaluate(IntImm(0)))
        self.scopes.append({})
        wrap = self._with_word(word, item, call)
        body = self._with(items[1:], node) or Evaluate(IntImm(0))
        self.scopes.pop()
        return wrap(body)

    def _with_word(self, word: str, item: ast.withitem, call: ast.Call) -> Wrapper:
        target = item.optional_vars
        name = target.id if isinstance(target, ast.Name) else "v"
        if word == "LetStmt" and len(call.args) == 2 and isinstance(call.args[0], ast.Name) and target is None:
            return self.older_let(call)
        if word == "LetStmt":
            var, value = self._let_parts(call, name)
            if target is not None:
                self.unpack(target, var)
            return lambda rest: LetStmt(var, value, rest)
        if word in ("decl_buffer", "alloc_buffer", "allocate"):
            made, wrapper = self.allocation(word, name, call)
            if target is not None:
                self.unpack(target, made)
            return wrapper
        if word == "attr":
            return self._attr(call)
        if word == "Assert":
            condition, message = self._assertion(call)
            return lambda rest: AssertStmt(condition, message, rest)
        if word == "launch_thread":
            var, wrap = self.launch(call, name)
            if target is not None:
                self.unpack(target, var)
            return wrap
        raise self.error(f"`with T.{word}` has no meaning", call)


def _sequence(stmts: list[Stmt]) -> Stmt:
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.seq) if isinstance(s, SeqStmt) else flat.append(s)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))
