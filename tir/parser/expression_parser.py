"""This module parses expressions from Python's ``ast`` to nodes.

Nothing is executed: only words of ``T``, a few builtins and functions that the caller passes can be called.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..expr import INDEX, CommReducer, Expr, IntImm, IterVar, Range, Var, convert, match_types
from ..expr import nodes as E
from ..expr.intrinsics import Operation
from ..expr.intrinsics.control_and_memory import if_then_else
from ..expr.intrinsics.number_operations import pow_
from ..stmt import Buffer
from ..vocabulary import FUNCTIONS, TYPED, TypeWord, Word, call_intrin
from .block_parser import parse_buffer_call, parse_load, parse_span
from .parser_base import BufferMethod, MetaVar, Namespace, Parse, Parser, python_binary

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARE: dict[type, tuple[type[E.CmpOp], Callable[[Any, Any], Any]]] = {
    ast.Eq: (E.EQ, operator.eq), ast.NotEq: (E.NE, operator.ne), ast.Lt: (E.LT, operator.lt),
    ast.LtE: (E.LE, operator.le), ast.Gt: (E.GT, operator.gt), ast.GtE: (E.GE, operator.ge),
}  # fmt: skip
_UNTYPED = {f for name, f in FUNCTIONS.items() if name not in TYPED and not isinstance(f, Operation)} - {call_intrin}
_BUFFER_VALUES = ("shape", "dtype", "data", "strides", "elem_offset", "name", "ndim", "data_alignment", "offset_factor")
_BUFFER_METHODS = ("vload", "vstore", "scope", "access_ptr", "view")
_EXPR_METHODS = ("astype", "equal")


def _constant(p: Parser, node: ast.Constant) -> Any:
    if node.value is Ellipsis or isinstance(node.value, (bytes, complex)):
        raise p.error(f"{node.value!r} has no meaning in TIR", node)
    return node.value


def _name(p: Parser, node: ast.Name) -> Any:
    return p.lookup(node.id, node)


def _tuple(p: Parser, node: ast.Tuple) -> tuple[Any, ...]:
    return tuple(p.items(node.elts))


def _list(p: Parser, node: ast.List) -> list[Any]:
    return p.items(node.elts)


def _dict(p: Parser, node: ast.Dict) -> dict[Any, Any]:
    if any(key is None for key in node.keys):
        raise p.error("** has no meaning in TIR", node)
    return {p.eval(k): p.eval(v) for k, v in zip(node.keys, node.values, strict=True)}  # type: ignore[arg-type]


def _joined_str(p: Parser, node: ast.JoinedStr) -> str:
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            if part.format_spec is not None or part.conversion != -1:
                raise p.error("formats have no meaning in TIR", node)
            parts.append(str(p.eval(part.value)))
        else:
            parts.append(str(part.value))  # type: ignore[attr-defined]
    return "".join(parts)


def _list_comp(p: Parser, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
    if len(node.generators) != 1:
        raise p.error("a comprehension with one `for` only", node)
    g = node.generators[0]
    source = p.eval(g.iter)
    if not isinstance(source, (list, tuple, range)):
        raise p.error("a comprehension runs over a Python list, tuple or range", g.iter)
    out = []
    for item in source:
        p.scopes.append({})
        p.unpack(g.target, item)
        if all(_truth(p, c) for c in g.ifs):
            out.append(p.eval(node.elt))
        p.scopes.pop()
    return out


def _truth(p: Parser, node: ast.AST) -> bool:
    value = p.eval(node)
    if isinstance(value, Expr) and not isinstance(value, IntImm):
        raise p.error("the condition is not known while the program is being built", node)
    return bool(value)


def _bin_op(p: Parser, node: ast.BinOp) -> Any:
    chain = []
    left: ast.AST = node
    while isinstance(left, ast.BinOp):  # in long sums the left operands nest
        chain.append(left)
        left = left.left
    value = p.eval(left)
    for n in reversed(chain):
        value = _binary(p, n, value, p.eval(n.right))
    return value


def _binary(p: Parser, node: ast.BinOp, a: Any, b: Any) -> Any:
    op = _BINARY.get(type(node.op))
    if op is None:
        raise p.error(f"{type(node.op).__name__} has no meaning in TIR", node)
    a, b = _element(a), _element(b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        if op is operator.pow:
            return p.guarded(node, pow_, a, b)
        if op in (operator.lshift, operator.rshift, operator.xor) and not isinstance(a, Expr):
            a = convert(a, b.dtype)
        out = p.guarded(node, op, a, b)
        if not isinstance(out, Expr):
            raise p.error("these two values do not support the operator", node)
        return out
    return p.guarded(node, python_binary, op, a, b)


def _unary_op(p: Parser, node: ast.UnaryOp) -> Any:
    value = _element(p.eval(node.operand))
    if isinstance(node.op, ast.Not):
        if not isinstance(value, Expr):
            return not value
        if not value.dtype.is_bool:
            raise p.error(f"`not` of {value.dtype}; write == 0", node)
        return E.Not(value)
    if not isinstance(value, (Expr, int, float)):
        raise p.error("a number is needed", node)
    if isinstance(node.op, ast.USub):
        return p.guarded(node, operator.neg, value)
    return value if isinstance(node.op, ast.UAdd) else p.guarded(node, operator.invert, value)


def _bool_op(p: Parser, node: ast.BoolOp) -> Any:
    values = [_element(p.eval(v)) for v in node.values]
    is_and = isinstance(node.op, ast.And)
    if not any(isinstance(v, Expr) for v in values):
        return all(values) if is_and else any(values)
    out: Expr | None = None
    for v, n in zip(values, node.values, strict=True):
        e = p.as_expr(v, n)
        if not e.dtype.is_bool:
            raise p.error(f"`{'and' if is_and else 'or'}` takes bool, this is {e.dtype}", n)
        out = e if out is None else (E.And if is_and else E.Or)(out, e)
    return out


def _compare(p: Parser, node: ast.Compare) -> Any:
    parts = []
    left = _element(p.eval(node.left))
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _COMPARE:
            raise p.error(f"{type(op).__name__} has no meaning in TIR", node)
        cls, on_python = _COMPARE[type(op)]
        right = _element(p.eval(right_node))
        if isinstance(left, Expr) or isinstance(right, Expr):
            parts.append(cls(*p.guarded(node, match_types, left, right)))
        else:
            parts.append(p.guarded(node, on_python, left, right))
        left = right
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, Expr) for part in parts):
        return all(parts)
    out = convert(parts[0])
    for part in parts[1:]:
        out = E.And(out, convert(part))
    return out


def _if_exp(p: Parser, node: ast.IfExp) -> Any:
    test = p.eval(node.test)
    if isinstance(test, Expr):
        return p.guarded(node, if_then_else, test, p.expr(node.body), p.expr(node.orelse))
    return p.eval(node.body) if test else p.eval(node.orelse)


def _attribute(p: Parser, node: ast.Attribute) -> Any:
    value, name = p.eval(node.value), node.attr
    if name.startswith("_"):
        raise p.error(f"`{name}` is private", node)
    if isinstance(value, Buffer):
        if name in _BUFFER_METHODS:
            return BufferMethod(value, name)
        if name in _BUFFER_VALUES:
            return getattr(value, name)
        raise p.error(f"a buffer has no `{name}`", node)
    if isinstance(value, Expr):
        if name in ("dtype", "ty"):
            return value.dtype
        if name in _EXPR_METHODS:
            return getattr(value, name)
        raise p.error(f"an expression has no `{name}`", node)
    if isinstance(value, Namespace):
        return p.guarded(node, value.lookup, name)
    if isinstance(value, ModuleType) or not isinstance(value, (str, int, float, list, tuple, dict, TypeWord, Word)):
        return p.guarded(node, getattr, value, name)
    raise p.error(f"`{name}` has no meaning here", node)


def _subscript(p: Parser, node: ast.Subscript) -> Any:
    value = p.eval(node.value)
    if isinstance(value, Buffer):
        return parse_load(p, value, node)
    if isinstance(value, (list, tuple, range, dict, str)):
        index = p.eval(node.slice)
        if isinstance(index, IntImm):
            index = index.value
        return p.guarded(node, operator.getitem, value, index)
    if isinstance(value, Mapping):
        return p.guarded(node, operator.getitem, value, p.eval(node.slice))
    raise p.error("only buffers, lists and tuples are indexed", node)


def _slice(p: Parser, node: ast.Slice) -> slice:
    return slice(*[None if part is None else p.number(part) for part in (node.lower, node.upper, node.step)])


def _call(p: Parser, node: ast.Call) -> Any:
    func = p.eval(node.func)
    if isinstance(func, Word):
        return p.word(func.name, node)
    if isinstance(func, BufferMethod):
        return parse_buffer_call(p, func, node)
    if isinstance(func, Namespace) or not callable(func):
        raise p.error(f"{func!r} cannot be called", node)
    args = [_element(a) for a in p.items(node.args)]
    kwargs = p.keywords(node)
    if "dtype" in kwargs and func in _UNTYPED:  # T.exp(x, dtype="float32") of older TVM repeats the type
        told = kwargs.pop("dtype")
        out = p.guarded(node, func, *args, **kwargs)
        if told not in (out.dtype, ""):
            raise p.error(f"the result is {out.dtype}, not {told}", node)
        return out
    out = p.guarded(node, func, *args, **kwargs)
    if isinstance(out, Expr):
        p.guarded(node, lambda: out.dtype)  # the text may name a type that does not exist
    return out.var if isinstance(out, IterVar) else out


def _parse_reducer(p: Parser, node: ast.Call) -> CommReducer:
    args = p.arguments(node, "combiner", "identity")
    function = args.get("combiner")
    if not isinstance(function, ast.Lambda) or "identity" not in args:
        raise p.error("write T.comm_reducer(lambda x, y: x + y, [T.float32(0)])", node)
    identity = [p.as_expr(v, args["identity"]) for v in p.items([ast.Starred(args["identity"], ast.Load())])]
    names = [a.arg for a in function.args.args]
    if len(names) != 2 * len(identity):
        raise p.error(f"{len(identity)} values take {2 * len(identity)} names, not {len(names)}", function)
    made = [Var(n, e.dtype) for n, e in zip(names, identity * 2, strict=True)]
    p.scopes.append(dict(zip(names, made, strict=True)))
    results = function.body.elts if isinstance(function.body, ast.Tuple) else [function.body]
    values = tuple([p.expr(r) for r in results])
    p.scopes.pop()
    half = len(identity)
    return p.guarded(node, CommReducer, tuple(made[:half]), tuple(made[half:]), values, tuple(identity))


def _parse_let(p: Parser, node: ast.Call) -> Expr:
    args = p.arguments(node, "body", "where")
    where = args.get("where")
    if "body" not in args or not isinstance(where, ast.Dict):
        raise p.error("write T.Let(body, where={x: value})", node)
    bound = []
    p.scopes.append({})
    for key, value_node in zip(where.keys, where.values, strict=True):
        value = p.expr(value_node)
        if not isinstance(key, ast.Name):
            raise p.error("where= has names as keys", node)
        known = next((s[key.id] for s in reversed(p.scopes) if key.id in s), None)
        var = known if isinstance(known, Var) and known.dtype == value.dtype else Var(key.id, value.dtype)
        p.define(key.id, var)
        bound.append((var, value))
    body = p.expr(args["body"])
    p.scopes.pop()
    for var, value in reversed(bound):
        body = E.Let(var, value, body)
    return body


def _element(value: Any) -> Any:
    """Return the element of a buffer of rank 0, and the value of T.meta_var; other values as they are."""
    if isinstance(value, MetaVar):
        return value.value
    return value


def _meta_var(p: Parser, node: ast.Call) -> MetaVar:
    return MetaVar(p.eval(p.arguments(node, "value")["value"]))


def _range(p: Parser, node: ast.Call) -> Range:
    args = p.arguments(node, "start", "stop")
    return parse_span(p, args["start"], args["stop"])


def _iter_var(p: Parser, node: ast.Call) -> IterVar:
    args = p.arguments(node, "var", "dom", "kind", "thread_tag")
    tag = p.string(args["thread_tag"]) if "thread_tag" in args else ""
    return IterVar(p.eval(args["dom"]), p.eval(args["var"]), p.string(args["kind"]), tag)


def _variable(p: Parser, node: ast.Call) -> Var:
    args = p.arguments(node, "dtype")
    return Var("v", p.dtype(args["dtype"]) if "dtype" in args else INDEX)


def _env_thread(p: Parser, node: ast.Call) -> Var:
    p.arguments(node, "dtype")
    return Var("v", INDEX)


WORDS: dict[str, Parse] = {
    "Let": _parse_let,
    "Range": _range,
    "comm_reducer": _parse_reducer,
    "env_thread": _env_thread,
    "iter_var": _iter_var,
    "meta_var": _meta_var,
    "target": lambda p, node: p.eval(node.args[0]) if node.args else {},
    "var": _variable,
}
"""The words that make values."""

EXPRESSIONS: dict[type, Parse] = {
    ast.Attribute: _attribute,
    ast.BinOp: _bin_op,
    ast.BoolOp: _bool_op,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.GeneratorExp: _list_comp,
    ast.IfExp: _if_exp,
    ast.JoinedStr: _joined_str,
    ast.List: _list,
    ast.ListComp: _list_comp,
    ast.Name: _name,
    ast.Slice: _slice,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _unary_op,
}
"""The functions that evaluate Python expressions, by their class."""
