"""Statements of a text: loops, stores, bindings and what joins them. Blocks are :mod:`.blocks`'."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..buffer import Buffer
from ..dtype import element_of, is_bool, is_float, is_int, lanes_of, with_lanes
from ..equal import plain
from ..expr import Broadcast, Call, Cast, Expr, IntImm, IterVar, Range, Var, cast, const, convert
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from ..vocabulary import TypeWord, Word
from .blocks import BUFFER_ARGS
from .older import Macro, OlderParser
from .values import BufferMethod, MetaVar

__all__ = ["StmtParser"]

_LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread_binding",
}  # fmt: skip
Wrapper = Callable[[Stmt], Stmt]


class StmtParser(OlderParser):
    """Parses lists of statements."""

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Statements one after the other. What has a scope (a binding, an allocation) holds the rest of the list."""
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
        """A body in a scope of its own."""
        self.scopes.append({})
        out = self.body(nodes)
        self.scopes.pop()
        return out

    def statement(self, node: ast.stmt) -> Stmt | Wrapper | None:
        """One statement; a function when it wraps what follows; None when it only declares."""
        method = getattr(self, "_stmt_" + type(node).__name__, None)
        if method is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return method(node)  # type: ignore[no-any-return]

    def _stmt_Pass(self, node: ast.Pass) -> None:
        return None

    def _stmt_Return(self, node: ast.Return) -> Stmt | None:
        if node.value is None:
            return None
        value = self.expr(node.value)
        return Evaluate(Call("tir.ret", (value,), value.dtype))

    # Assignments

    def _stmt_Assign(self, node: ast.Assign) -> Stmt | Wrapper | None:
        if len(node.targets) != 1:
            raise self.error("one target at a time", node)
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self.store(target, self.eval(node.value), node)
        name = target.id if isinstance(target, ast.Name) else "v"
        if isinstance(node.value, ast.Call):
            func = self.eval(node.value.func)
            if isinstance(func, Word):
                return self._assign_word(func.name, target, name, node.value)
            if isinstance(func, TypeWord) and not node.value.args:
                self.unpack(target, self._declared(name, func.dtype))
                return None
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and self._declares(node.value, target):
            return None
        return self._bind(target, self.eval(node.value), node.value)

    def _declares(self, values: ast.Tuple, target: ast.Tuple) -> bool:
        """``n, m = T.int32(), T.int32()``: declare sizes; false when the values are something else."""
        kinds = [self.eval(v.func) for v in values.elts if isinstance(v, ast.Call) and not v.args]
        if len(kinds) != len(values.elts) or not all(isinstance(k, TypeWord) for k in kinds):
            return False
        names = [t.id if isinstance(t, ast.Name) else "v" for t in target.elts]
        self.unpack(target, tuple([self._declared(n, k.dtype) for n, k in zip(names, kinds, strict=False)]))
        return True

    def _declared(self, name: str, dtype: str) -> Var:
        """The variable of ``n = T.int32()``: a size that a shape has named already, or a new one."""
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
        elif word == "decl_buffer":
            buffer, notes = self._decl_buffer(name, call)
            self.unpack(target, buffer)
            return lambda rest: Allocate(buffer, rest, notes)
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

    def _decl_buffer(self, name: str, call: ast.Call) -> tuple[Buffer, dict[str, Any]]:
        args = self.arguments(call, *BUFFER_ARGS, "annotations")
        notes = args.pop("annotations", None)
        return self.buffer(name, args, call), {} if notes is None else self.attributes(notes)

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
            return _compose(wrappers) if wrappers else None
        elif isinstance(target, ast.Name):
            e = convert(value)
            var = Var(target.id, e.dtype)
            self.define(target.id, var)
            return lambda rest: LetStmt(var, e, rest)
        else:
            raise self.error("a name or an element of a buffer is needed here", target)
        return None

    def _stmt_AnnAssign(self, node: ast.AnnAssign) -> Wrapper | None:
        if not isinstance(node.target, ast.Name):
            raise self.error("a name is needed here", node.target)
        annotation: ast.expr = node.annotation
        if isinstance(annotation, ast.Subscript) and isinstance(self.eval(annotation.value), Word):
            annotation = annotation.slice  # T.let[T.int32]
        kind = self.eval(annotation)
        if not isinstance(kind, (TypeWord, Var)):
            raise self.error("a type such as T.int32 is needed", node.annotation)
        dtype = kind.dtype
        value = None if node.value is None else self.expr(node.value, dtype)
        var = Var(node.target.id, dtype)
        self.define(node.target.id, var)
        return None if value is None else lambda rest: LetStmt(var, value, rest)

    def _stmt_AugAssign(self, node: ast.AugAssign) -> Stmt:
        if not isinstance(node.target, ast.Subscript):
            raise self.error("only elements of buffers can be updated", node)
        load = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node.target)
        value = self.eval(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
        return self.store(node.target, value, node)

    def store(self, target: ast.Subscript, value: Any, node: ast.AST) -> Stmt:
        """``A[i] = value``"""
        buffer = self.eval(target.value)
        if not isinstance(buffer, Buffer):
            raise self.error("only elements of buffers can be assigned", target)
        return self.buffer_store(buffer, self.indices(buffer, target), value, None, node)

    def buffer_store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: Any, predicate: Expr | None, node: ast.AST
    ) -> Stmt:
        """A store; the value is converted to the buffer's type unless that would drop a fraction."""
        lanes = max([lanes_of(i.dtype) for i in indices], default=1) * lanes_of(buffer.dtype)
        e = self.as_expr(value, node, buffer.dtype if isinstance(value, (int, float)) else None)
        have, want = element_of(e.dtype), element_of(buffer.dtype)
        if have != want:
            if is_float(have) and not is_float(want) or "handle" in (have, want):
                raise self.error(f"{e.dtype} does not fit {buffer.dtype} of {buffer.name}; write T.Cast", node)
            e = Cast(with_lanes(want, lanes_of(e.dtype)), e) if is_bool(have) or is_bool(want) else cast(want, e)
        if lanes > 1 and lanes_of(e.dtype) == 1:
            e = Broadcast(e, lanes)
        return BufferStore(buffer, e, indices, predicate)

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
                return self.buffer_store(func.buffer, indices, self.eval(args["value"]), predicate, call)
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
            self.bind_axis(call)
            return None
        if word == "evaluate":
            args = self.arguments(call, "value")
            return Evaluate(self.expr(args["value"]))
        if word == "attr":
            node, key, value = self._attr(call)
            return lambda rest: AttrStmt(node, key, value, rest)
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

    def _attr(self, call: ast.Call) -> tuple[Any, str, Expr]:
        args = self.arguments(call, "node", "attr_key", "value")
        if len(args) != 3:
            raise self.error("write T.attr(node, key, value)", call)
        node = self.eval(args["node"])
        if isinstance(node, IntImm):
            node = plain(node)
        return node, self.string(args["attr_key"]), self.expr(args["value"])

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

    # What has a body

    def _stmt_If(self, node: ast.If) -> Stmt | None:
        test = self.eval(node.test)
        if not isinstance(test, Expr):  # known while the program is being built
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

    def _loop_var(self, target: ast.expr, dtype: str) -> Var:
        if not isinstance(target, ast.Name):
            raise self.error("a loop variable is a name", target)
        if not is_int(dtype):
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
        annotations = rest.pop("annotations", None)
        if positional or rest or all(b is None for b in bounds):
            raise self.error("a loop takes (stop) or (start, stop), and annotations=", call)
        if bounds[0] is None or bounds[1] is None:
            only = bounds[0] if bounds[0] is not None else bounds[1]
            extent = self.expr(only)  # type: ignore[arg-type]
            r = Range(const(0, extent.dtype) if is_int(extent.dtype) else IntImm(0), extent)
        else:
            r = self.span(*bounds)  # type: ignore[arg-type]
        notes = {} if annotations is None else self.attributes(annotations)
        self.scopes.append({})
        var = self._loop_var(node.target, r.extent.dtype)
        self.loops[var] = r
        body = self.body(node.body)
        self.scopes.pop()
        return For(var, r.min, r.extent, kind, body, thread, notes)

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
            args = self.arguments(call, "value", "dtype", "var")
            value = self.expr(args["value"])
            if "var" in args:
                var = self.eval(args["var"])
                if not isinstance(var, Var):
                    raise self.error("var= is a variable", args["var"])
            else:
                var = Var(name, self.dtype(args["dtype"]) if "dtype" in args else value.dtype)
            if target is not None:
                self.unpack(target, var)
            return lambda rest: LetStmt(var, value, rest)
        if word == "decl_buffer":
            buffer, notes = self._decl_buffer(name, call)
            if target is not None:
                self.unpack(target, buffer)
            return lambda rest: Allocate(buffer, rest, notes)
        if word == "attr":
            node, key, attr = self._attr(call)
            return lambda rest: AttrStmt(node, key, attr, rest)
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


def _compose(wrappers: list[Wrapper]) -> Wrapper:
    def wrap(rest: Stmt) -> Stmt:
        for w in reversed(wrappers):
            rest = w(rest)
        return rest

    return wrap
