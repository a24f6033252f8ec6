"""This module parses statements: loops, conditions, assignments, declarations, stores, and the words of ``T`` among them."""

from __future__ import annotations

import ast
from typing import Any

from ..expr import Broadcast, Call, Cast, DType, Expr, IntImm, IterVar, Range, Var, cast, const, convert, plain
from ..stmt import Allocate, AssertStmt, AttrStmt, Buffer, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt, While
from ..vocabulary import TypeWord, Word
from .block_parser import (
    BLOCK_WORDS,
    BUFFER_ARGS,
    consecutive_indices,
    parse_alloc_buffer,
    parse_axis,
    parse_block,
    parse_buffer,
    parse_buffer_view,
    parse_index_list,
    parse_indices,
    parse_init,
    parse_match_buffer,
    parse_remap,
    parse_span,
)
from .function_parser import (
    Macro,
    expand_macro,
    is_macro,
    parse_bind_axis,
    parse_launch,
    parse_older_block,
    parse_older_let,
)
from .parser_base import BufferMethod, MetaVar, Parse, Parser, Wrapper


def _function_def_statement(p: Parser, node: ast.FunctionDef) -> None:
    if not is_macro(node):
        raise p.error("a function inside a function is a macro, under @T.macro or @T.inline", node)
    p.define(node.name, Macro(node))


def _return_statement(p: Parser, node: ast.Return) -> Stmt | None:
    if node.value is None:
        return None
    value = p.expr(node.value)
    return Evaluate(Call("tir.ret", (value,), value.dtype))


def _expr_statement(p: Parser, node: ast.Expr) -> Stmt | Wrapper | None:
    call = node.value
    if isinstance(call, ast.Constant) and isinstance(call.value, str):
        return None  # a docstring
    if isinstance(call, ast.Call):
        func = p.eval(call.func)
        if isinstance(func, BufferMethod) and func.name == "vstore":
            args = p.arguments(call, "begin", "value", "predicate")
            indices = parse_index_list(p, args["begin"], func.buffer, call)
            predicate = p.expr(args["predicate"]) if "predicate" in args else None
            value = p.eval(args["value"])
            lanes = value.dtype.lanes if isinstance(value, Expr) else 1
            if lanes > 1 and all(i.dtype.lanes == 1 for i in indices):  # consecutive elements, as in TVM
                indices = consecutive_indices(func.buffer, indices, lanes)
            return parse_buffer_store(p, func.buffer, indices, value, predicate, call)
        if isinstance(func, Macro):
            return expand_macro(p, func, call, p.body)
        if isinstance(func, Word):
            return _parse_word_statement(p, func.name, call)
    return Evaluate(p.expr(call))


def _parse_word_statement(p: Parser, word: str, call: ast.Call) -> Stmt | Wrapper | None:
    if word in BLOCK_WORDS:
        BLOCK_WORDS[word](p, call)
        return None
    if word == "alloc_buffer":
        parse_alloc_buffer(p, "buffer", call)
        return None
    if word == "launch_thread":
        return parse_launch(p, call, "v")[1]
    if word == "LetStmt":
        return _parse_let_statement(p, call)
    if word == "evaluate":
        args = p.arguments(call, "value")
        return Evaluate(p.expr(args["value"]))
    if word == "attr":
        return _parse_attr(p, call)
    if word == "Assert":
        condition, message = _parse_assertion(p, call)
        return lambda rest: AssertStmt(condition, message, rest)
    if word == "buffer_store":
        args = p.arguments(call, "buffer", "value", "indices", "predicate")
        buffer = p.eval(args["buffer"])
        if not isinstance(buffer, Buffer):
            raise p.error("a buffer is needed", args["buffer"])
        indices = parse_index_list(p, args["indices"], buffer, call)
        predicate = p.expr(args["predicate"]) if "predicate" in args else None
        return parse_buffer_store(p, buffer, indices, p.eval(args["value"]), predicate, call)
    return Evaluate(p.as_expr(p.word(word, call), call))


def _parse_let_statement(p: Parser, call: ast.Call) -> Wrapper | None:
    """Parse ``T.Bind(value, var=x)``, and the older ``T.bind(axis, value)``."""
    if len(call.args) == 2:
        parse_bind_axis(p, call)
        return None
    var, value = _parse_let_parts(p, call, "v")
    return lambda rest: LetStmt(var, value, rest)


def _parse_let_parts(p: Parser, call: ast.Call, name: str) -> tuple[Var, Expr]:
    args = p.arguments(call, "value", "dtype", "var")
    value = p.expr(args["value"])
    if "var" not in args:
        return Var(name, p.dtype(args["dtype"]) if "dtype" in args else value.dtype), value
    var = p.eval(args["var"])
    if not isinstance(var, Var):
        raise p.error("var= needs a variable", args["var"])
    return var, value


def _parse_attr(p: Parser, call: ast.Call) -> Wrapper:
    """Parse ``T.attr(node, key, value)``, or ``T.attr({key: value})`` without a node."""
    if len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
        items = [(p.string(k), p.expr(v)) for k, v in zip(call.args[0].keys, call.args[0].values, strict=True) if k]
        return compose([lambda rest, k=k, v=v: AttrStmt(0, k, v, rest) for k, v in items])  # type: ignore[misc]
    args = p.arguments(call, "node", "attr_key", "value")
    if len(args) != 3:
        raise p.error("write T.attr(node, key, value)", call)
    node = p.eval(args["node"])
    if isinstance(node, IntImm):
        node = plain(node)
    key, value = p.string(args["attr_key"]), p.expr(args["value"])
    return lambda rest: AttrStmt(node, key, value, rest)


def _parse_assertion(p: Parser, call: ast.Call) -> tuple[Expr, str]:
    args = p.arguments(call, "condition", "message")
    if len(args) != 2:
        raise p.error("write T.Assert(condition, message)", call)
    return p.condition(args["condition"]), p.string(args["message"])


def _assert_statement(p: Parser, node: ast.Assert) -> Wrapper:
    condition = p.condition(node.test)
    message = "" if node.msg is None else _parse_message(p, node.msg)
    return lambda rest: AssertStmt(condition, message, rest)


def _parse_message(p: Parser, node: ast.expr) -> str:
    value = p.eval(node)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):  # ("RuntimeError", ["…"])
        return "".join([str(part) for part in value[1]])
    return p.string(node)


def _if_statement(p: Parser, node: ast.If) -> Stmt | None:
    test = p.eval(node.test)
    if not isinstance(test, Expr):  # the condition is a Python value, known when the program is built
        chosen = node.body if test else node.orelse
        return p.nested(chosen) if chosen else None
    chain = [(p.condition(node.test), p.nested(node.body))]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        following = node.orelse[0]
        if not isinstance(p.eval(following.test), Expr):
            break
        node = following
        chain.append((p.condition(node.test), p.nested(node.body)))
    out = p.nested(node.orelse) if node.orelse else None
    for condition, then in reversed(chain):
        out = IfThenElse(condition, then, out)
    return out


def _with_statement(p: Parser, node: ast.With) -> Stmt | None:
    return _parse_with(p, node.items, node)


def _parse_with(p: Parser, items: list[ast.withitem], node: ast.With) -> Stmt | None:
    if not items:
        return p.body(node.body)
    item, call = items[0], items[0].context_expr
    func = p.eval(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(func, Word) or not isinstance(call, ast.Call):
        raise p.error("`with` takes T.block, T.init, T.LetStmt, T.decl_buffer, T.attr, T.Assert …", call)
    word = func.name
    if word == "init":
        parse_init(p, call, lambda: p.nested(node.body))
        return None
    if word == "block" and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
        inner = lambda: _parse_with(p, items[1:], node) or Evaluate(IntImm(0))  # noqa: E731
        return parse_older_block(p, call, item.optional_vars, inner, parse_block)
    if word == "block":
        return parse_block(p, call, lambda: _parse_with(p, items[1:], node) or Evaluate(IntImm(0)))
    p.scopes.append({})
    wrap = _parse_with_word(p, word, item, call)
    body = _parse_with(p, items[1:], node) or Evaluate(IntImm(0))
    p.scopes.pop()
    return wrap(body)


def _parse_with_word(p: Parser, word: str, item: ast.withitem, call: ast.Call) -> Wrapper:
    target = item.optional_vars
    name = target.id if isinstance(target, ast.Name) else "v"
    if word == "LetStmt" and len(call.args) == 2 and isinstance(call.args[0], ast.Name) and target is None:
        return parse_older_let(p, call)
    if word == "LetStmt":
        var, value = _parse_let_parts(p, call, name)
        if target is not None:
            p.unpack(target, var)
        return lambda rest: LetStmt(var, value, rest)
    if word in ("decl_buffer", "alloc_buffer", "allocate"):
        made, wrapper = parse_allocation(p, word, name, call)
        if target is not None:
            p.unpack(target, made)
        return wrapper
    if word == "attr":
        return _parse_attr(p, call)
    if word == "Assert":
        condition, message = _parse_assertion(p, call)
        return lambda rest: AssertStmt(condition, message, rest)
    if word == "launch_thread":
        var, wrap = parse_launch(p, call, name)
        if target is not None:
            p.unpack(target, var)
        return wrap
    raise p.error(f"`with T.{word}` has no meaning", call)


_LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread_binding",
}  # fmt: skip


def _for_statement(p: Parser, node: ast.For) -> Stmt:
    if node.orelse:
        raise p.error("a loop has no else", node.orelse[0])
    call = node.iter
    func = p.eval(call.func) if isinstance(call, ast.Call) else None
    if isinstance(call, ast.Call):
        if isinstance(func, Word) and func.name == "grid":
            return _parse_grid(p, node, call)
        if isinstance(func, Word) and func.name in _LOOPS:
            return _parse_loop(p, node, call, _LOOPS[func.name])
        if isinstance(call.func, ast.Name) and call.func.id == "range":
            return _parse_loop(p, node, call, "serial")
    raise p.error("a loop runs over range, T.grid, T.serial, T.parallel, T.vectorized, T.unroll …", call)


def _while_statement(p: Parser, node: ast.While) -> Stmt:
    if node.orelse:
        raise p.error("a loop has no else", node.orelse[0])
    condition = p.condition(node.test)
    p.scopes.append({})
    body = p.body(node.body)
    p.scopes.pop()
    return While(condition, body)


def _parse_grid(p: Parser, node: ast.For, call: ast.Call) -> Stmt:
    extents = [p.as_expr(e, call) for e in p.items(call.args)]
    targets = list(node.target.elts) if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
    if len(targets) != len(extents) or call.keywords or not extents:
        raise p.error(f"{len(targets)} loop variables for {len(extents)} extents", node.target)
    p.scopes.append({})
    loops = []
    for target, extent in zip(targets, extents, strict=True):
        loops.append((_loop_variable(p, target, extent.dtype), Range(const(0, extent.dtype), extent)))
        p.loops[loops[-1][0]] = loops[-1][1]
    body = p.body(node.body)
    p.scopes.pop()
    for var, r in reversed(loops):
        body = For(var, r.min, r.extent, "serial", body)
    return body


def _loop_variable(p: Parser, target: ast.expr, dtype: DType) -> Var:
    if not isinstance(target, ast.Name):
        raise p.error("a loop variable is a name", target)
    if not dtype.is_int:
        raise p.error(f"a loop's extent is an integer, this is {dtype}", target)
    var = Var(target.id, dtype)
    p.define(target.id, var)
    return var


def _parse_loop(p: Parser, node: ast.For, call: ast.Call, kind: str) -> Stmt:
    positional, rest = list(call.args), {k.arg: k.value for k in call.keywords}
    thread: str | None = None
    if kind == "thread_binding":
        tag = rest.pop("thread", None)
        if tag is None and len(positional) > 1:
            tag = positional.pop()
        if tag is None:
            raise p.error('write T.thread_binding(4, thread="threadIdx.x")', call)
        thread = p.string(tag)
    bounds = [positional.pop(0) if positional else rest.pop(name, None) for name in ("start", "stop")]
    annotations, step = rest.pop("annotations", None), rest.pop("step", None)
    if step is None and len(positional) == 1:
        step = positional.pop()
    unroll = rest.pop("unroll", None)
    if positional or rest or all(b is None for b in bounds):
        raise p.error("a loop takes (stop) or (start, stop), step=, unroll= and annotations=", call)
    if bounds[0] is None or bounds[1] is None:
        only = bounds[0] if bounds[0] is not None else bounds[1]
        extent = p.expr(only)  # type: ignore[arg-type]
        r = Range(const(0, extent.dtype) if extent.dtype.is_int else IntImm(0), extent)
    else:
        r = parse_span(p, *bounds)  # type: ignore[arg-type]
    notes = {} if annotations is None else p.attributes(annotations)
    if unroll is not None:  # one word for two annotations in newer TVM
        wanted = plain(p.eval(unroll))
        notes.update({"disable_unroll": True} if wanted is False else {"pragma_unroll": wanted})
    by = 1 if step is None else p.number(step)
    if by < 1:
        raise p.error("the step of a loop must be positive", step)
    p.scopes.append({})
    if by > 1:
        return _parse_strided(p, node, kind, r, by, thread, notes)
    var = _loop_variable(p, node.target, r.extent.dtype)
    p.loops[var] = r
    body = p.body(node.body)
    p.scopes.pop()
    return For(var, r.min, r.extent, kind, body, thread, notes)


def _parse_strided(
    p: Parser, node: ast.For, kind: str, r: Range, by: int, thread: str | None, notes: dict[str, Any]
) -> Stmt:
    """Parse ``range(start, stop, step)`` as a loop ``var`` over the trip count.

    The name in the text has the value ``start + var * step``.
    """
    var = _loop_variable(p, node.target, r.extent.dtype)
    steps = (r.extent + (by - 1)) // by
    zero = const(0, r.extent.dtype)
    p.loops[var] = Range(zero, steps)
    p.unpack(node.target, r.min + var * by)
    body = p.body(node.body)
    p.scopes.pop()
    return For(var, zero, steps, kind, body, thread, notes)


def _assign_statement(p: Parser, node: ast.Assign) -> Stmt | Wrapper | None:
    if len(node.targets) != 1:
        raise p.error("an assignment has one target", node)
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        return parse_store(p, target, p.eval(node.value), node)
    name = target.id if isinstance(target, ast.Name) else "v"
    if isinstance(node.value, ast.Call):
        func = p.eval(node.value.func)
        if isinstance(func, Word):
            return _parse_assign_word(p, func.name, target, name, node.value)
        if isinstance(func, BufferMethod) and func.name == "view":
            p.unpack(target, parse_buffer_view(p, func.buffer, name, node.value))
            return None
        if isinstance(func, TypeWord) and (not node.value.args or func.dtype == "handle"):
            p.unpack(target, _declared_size(p, name, DType(func.dtype)))
            return None
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and _declares_sizes(p, node.value, target):
        return None
    return _bind(p, target, p.eval(node.value), node.value)


def _declares_sizes(p: Parser, values: ast.Tuple, target: ast.Tuple) -> bool:
    """Declare the sizes of ``n, m = T.int32(), T.int32()``; return false when the values are something else."""
    kinds = [p.eval(v.func) for v in values.elts if isinstance(v, ast.Call) and not v.args]
    if len(kinds) != len(values.elts) or not all(isinstance(k, TypeWord) for k in kinds):
        return False
    names = [t.id if isinstance(t, ast.Name) else "v" for t in target.elts]
    p.unpack(target, tuple([_declared_size(p, n, k.dtype) for n, k in zip(names, kinds, strict=False)]))
    return True


def _declared_size(p: Parser, name: str, dtype: DType) -> Var:
    """Return the variable of ``n = T.int32()``: a size that a shape has named before, or a new one."""
    known = p.named_sizes.get(name)
    return known if known is not None and known.dtype == dtype else Var(name, dtype)


def _parse_assign_word(p: Parser, word: str, target: ast.expr, name: str, call: ast.Call) -> Wrapper | None:
    if word == "axis.remap":
        parse_remap(p, target, call)
    elif word.startswith("axis."):
        p.unpack(target, parse_axis(p, word[5:], name, call))
    elif word == "alloc_buffer":
        p.unpack(target, parse_alloc_buffer(p, name, call))
    elif word == "match_buffer":
        p.unpack(target, parse_match_buffer(p, name, call))
    elif word == "Buffer":
        p.unpack(target, parse_buffer(p, name, p.arguments(call, *BUFFER_ARGS), call))
    elif word in ("decl_buffer", "allocate"):
        made, wrap = parse_allocation(p, word, name, call)
        p.unpack(target, made)
        return wrap
    elif word == "local_scalar":  # the following assignment defines the variable
        p.arguments(call, "dtype")
    elif word in ("var", "env_thread"):
        var = Var(name, p.word(word, call).dtype)
        if word == "env_thread" and call.args:
            p.thread_tags[var] = p.string(call.args[0])
        p.unpack(target, var)
    elif word == "launch_thread":
        var, wrap = parse_launch(p, call, name)
        p.unpack(target, var)
        return wrap
    else:
        return _bind(p, target, p.word(word, call), call)
    return None


def _bind(p: Parser, target: ast.expr, value: Any, node: ast.AST) -> Wrapper | None:
    if isinstance(value, MetaVar):
        p.unpack(target, value.value)
    elif isinstance(value, (Buffer, str, list, dict, IterVar)) or not isinstance(value, (Expr, int, float, tuple)):
        p.unpack(target, value)
    elif isinstance(value, tuple):
        if not isinstance(target, ast.Tuple):
            p.unpack(target, value)
            return None
        if len(target.elts) != len(value):
            raise p.error(f"{len(value)} values for {len(target.elts)} names", target)
        made = [_bind(p, t, v, node) for t, v in zip(target.elts, value, strict=True)]
        wrappers = [w for w in made if w is not None]
        return compose(wrappers) if wrappers else None
    elif isinstance(target, ast.Name):
        e = convert(value)
        _check_not_outer(p, target)
        var = Var(target.id, e.dtype)
        p.define(target.id, var)
        p.named_values.add(var)
        return lambda rest: LetStmt(var, e, rest)
    else:
        raise p.error("a name or an element of a buffer is needed here", target)
    return None


def _check_not_outer(p: Parser, target: ast.Name) -> None:
    """Raise ParseError when a name of an outer scope is assigned in a loop or branch. It would not change outside."""
    outer = next((s[target.id] for s in reversed(p.scopes[:-1]) if target.id in s), None)
    if isinstance(outer, Var) and outer in p.named_values and target.id not in p.scopes[-1]:
        raise p.error(
            f"`{target.id}` is a name for a value, which a loop or branch cannot change; "
            "use a buffer of one element, or another name",
            target,
        )


def _ann_assign_statement(p: Parser, node: ast.AnnAssign) -> Wrapper | None:
    if not isinstance(node.target, ast.Name):
        raise p.error("a name is needed here", node.target)
    annotation: ast.expr = node.annotation
    if isinstance(annotation, ast.Subscript) and isinstance(p.eval(annotation.value), Word):
        annotation = annotation.slice  # T.let[T.int32]
    kind = p.eval(annotation)
    if isinstance(kind, Word) and kind.name == "LetStmt" and node.value is not None:  # x: T.let = value
        kind = p.expr(node.value)
    if not isinstance(kind, (TypeWord, Expr)):
        raise p.error("a type such as T.int32 is needed", node.annotation)
    dtype = kind.dtype
    value = None if node.value is None else p.expr(node.value, dtype)
    var = Var(node.target.id, dtype)
    p.define(node.target.id, var)
    p.named_values.add(var)
    return None if value is None else lambda rest: LetStmt(var, value, rest)


def _aug_assign_statement(p: Parser, node: ast.AugAssign) -> Stmt:
    if not isinstance(node.target, ast.Subscript):
        raise p.error("only elements of buffers can be updated", node)
    load = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node.target)
    value = p.eval(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
    return parse_store(p, node.target, value, node)


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


STATEMENTS: dict[type, Parse] = {
    ast.AnnAssign: _ann_assign_statement,
    ast.Assert: _assert_statement,
    ast.Assign: _assign_statement,
    ast.AugAssign: _aug_assign_statement,
    ast.Expr: _expr_statement,
    ast.For: _for_statement,
    ast.FunctionDef: _function_def_statement,
    ast.If: _if_statement,
    ast.Pass: lambda p, node: None,
    ast.Return: _return_statement,
    ast.While: _while_statement,
    ast.With: _with_statement,
}
"""Every statement that programs may have, by its class."""
