"""This module parses expressions from Python's ``ast`` to nodes.

Nothing is executed: only words of ``T``, a few builtins and functions that the caller passes can be called.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .. import expr as E
from ..arithmetic import match_types
from ..buffer import Buffer
from ..constants import convert
from ..dtype import INDEX
from ..expr import Expr, IntImm, Var
from ..intrinsics import Operation
from ..intrinsics.control_and_memory import if_then_else
from ..intrinsics.float_operations import pow_
from ..ranges import CommReducer, IterVar
from ..vocabulary import FUNCTIONS, TypeWord, Word
from ..vocabulary.expression_words import TYPED, call_intrin
from .access_parser import AccessParser
from .parser_values import BufferMethod, MetaVar, Namespace, python_binary

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


class ExprParser(AccessParser):
    """Evaluates Python expressions, with a method per ``ast`` class."""

    def _Constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis or isinstance(node.value, (bytes, complex)):
            raise self.error(f"{node.value!r} has no meaning in TIR", node)
        return node.value

    def _Name(self, node: ast.Name) -> Any:
        return self.lookup(node.id, node)

    def _Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.items(node.elts))

    def _List(self, node: ast.List) -> list[Any]:
        return self.items(node.elts)

    def _Dict(self, node: ast.Dict) -> dict[Any, Any]:
        if any(key is None for key in node.keys):
            raise self.error("** has no meaning in TIR", node)
        return {self.eval(k): self.eval(v) for k, v in zip(node.keys, node.values, strict=True)}  # type: ignore[arg-type]

    def _JoinedStr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion != -1:
                    raise self.error("formats have no meaning in TIR", node)
                parts.append(str(self.eval(part.value)))
            else:
                parts.append(str(part.value))  # type: ignore[attr-defined]
        return "".join(parts)

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        if len(node.generators) != 1:
            raise self.error("a comprehension with one `for` only", node)
        g = node.generators[0]
        source = self.eval(g.iter)
        if not isinstance(source, (list, tuple, range)):
            raise self.error("a comprehension runs over a Python list, tuple or range", g.iter)
        out = []
        for item in source:
            self.scopes.append({})
            self.unpack(g.target, item)
            if all(self._truth(c) for c in g.ifs):
                out.append(self.eval(node.elt))
            self.scopes.pop()
        return out

    _GeneratorExp = _ListComp

    def _truth(self, node: ast.AST) -> bool:
        value = self.eval(node)
        if isinstance(value, Expr) and not isinstance(value, IntImm):
            raise self.error("the condition is not known while the program is being built", node)
        return bool(value)

    def _BinOp(self, node: ast.BinOp) -> Any:
        chain = []
        left: ast.AST = node
        while isinstance(left, ast.BinOp):  # in long sums the left operands nest
            chain.append(left)
            left = left.left
        value = self.eval(left)
        for n in reversed(chain):
            value = self._binary(n, value, self.eval(n.right))
        return value

    def _binary(self, node: ast.BinOp, a: Any, b: Any) -> Any:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.error(f"{type(node.op).__name__} has no meaning in TIR", node)
        a, b = _element(a), _element(b)
        if isinstance(a, Expr) or isinstance(b, Expr):
            if op is operator.pow:
                return self.guarded(node, pow_, a, b)
            if op in (operator.lshift, operator.rshift, operator.xor) and not isinstance(a, Expr):
                a = convert(a, b.dtype)
            out = self.guarded(node, op, a, b)
            if not isinstance(out, Expr):
                raise self.error("these two values do not support the operator", node)
            return out
        return self.guarded(node, python_binary, op, a, b)

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = _element(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            if not isinstance(value, Expr):
                return not value
            if not value.dtype.is_bool:
                raise self.error(f"`not` of {value.dtype}; write == 0", node)
            return E.Not(value)
        if not isinstance(value, (Expr, int, float)):
            raise self.error("a number is needed", node)
        if isinstance(node.op, ast.USub):
            return self.guarded(node, operator.neg, value)
        return value if isinstance(node.op, ast.UAdd) else self.guarded(node, operator.invert, value)

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        values = [_element(self.eval(v)) for v in node.values]
        is_and = isinstance(node.op, ast.And)
        if not any(isinstance(v, Expr) for v in values):
            return all(values) if is_and else any(values)
        out: Expr | None = None
        for v, n in zip(values, node.values, strict=True):
            e = self.as_expr(v, n)
            if not e.dtype.is_bool:
                raise self.error(f"`{'and' if is_and else 'or'}` takes bool, this is {e.dtype}", n)
            out = e if out is None else (E.And if is_and else E.Or)(out, e)
        return out

    def _Compare(self, node: ast.Compare) -> Any:
        parts = []
        left = _element(self.eval(node.left))
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.error(f"{type(op).__name__} has no meaning in TIR", node)
            cls, on_python = _COMPARE[type(op)]
            right = _element(self.eval(right_node))
            if isinstance(left, Expr) or isinstance(right, Expr):
                parts.append(cls(*self.guarded(node, match_types, left, right)))
            else:
                parts.append(self.guarded(node, on_python, left, right))
            left = right
        if len(parts) == 1:
            return parts[0]
        if not any(isinstance(p, Expr) for p in parts):
            return all(parts)
        out = convert(parts[0])
        for p in parts[1:]:
            out = E.And(out, convert(p))
        return out

    def _IfExp(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, Expr):
            return self.guarded(node, if_then_else, test, self.expr(node.body), self.expr(node.orelse))
        return self.eval(node.body) if test else self.eval(node.orelse)

    def _Attribute(self, node: ast.Attribute) -> Any:
        value, name = self.eval(node.value), node.attr
        if name.startswith("_"):
            raise self.error(f"`{name}` is private", node)
        if isinstance(value, Buffer):
            if name in _BUFFER_METHODS:
                return BufferMethod(value, name)
            if name in _BUFFER_VALUES:
                return getattr(value, name)
            raise self.error(f"a buffer has no `{name}`", node)
        if isinstance(value, Expr):
            if name in ("dtype", "ty"):
                return value.dtype
            if name in _EXPR_METHODS:
                return getattr(value, name)
            raise self.error(f"an expression has no `{name}`", node)
        if isinstance(value, Namespace):
            return self.guarded(node, value.lookup, name)
        if isinstance(value, ModuleType) or not isinstance(value, (str, int, float, list, tuple, dict, TypeWord, Word)):
            return self.guarded(node, getattr, value, name)
        raise self.error(f"`{name}` has no meaning here", node)

    def _Subscript(self, node: ast.Subscript) -> Any:
        value = self.eval(node.value)
        if isinstance(value, Buffer):
            return self.load(value, node)
        if isinstance(value, (list, tuple, range, dict, str)):
            index = self.eval(node.slice)
            if isinstance(index, IntImm):
                index = index.value
            return self.guarded(node, operator.getitem, value, index)
        if isinstance(value, Mapping):
            return self.guarded(node, operator.getitem, value, self.eval(node.slice))
        raise self.error("only buffers, lists and tuples are indexed", node)

    def _Slice(self, node: ast.Slice) -> slice:
        return slice(*[None if part is None else self.number(part) for part in (node.lower, node.upper, node.step)])

    def _Call(self, node: ast.Call) -> Any:
        func = self.eval(node.func)
        if isinstance(func, Word):
            return self.word(func.name, node)
        if isinstance(func, BufferMethod):
            return self.buffer_call(func, node)
        if isinstance(func, Namespace) or not callable(func):
            raise self.error(f"{func!r} cannot be called", node)
        args = [_element(a) for a in self.items(node.args)]
        kwargs = self.keywords(node)
        if "dtype" in kwargs and func in _UNTYPED:  # T.exp(x, dtype="float32") of older TVM repeats the type
            told = kwargs.pop("dtype")
            out = self.guarded(node, func, *args, **kwargs)
            if told not in (out.dtype, ""):
                raise self.error(f"the result is {out.dtype}, not {told}", node)
            return out
        out = self.guarded(node, func, *args, **kwargs)
        if isinstance(out, Expr):
            self.guarded(node, lambda: out.dtype)  # the text may name a type that does not exist
        return out.var if isinstance(out, IterVar) else out

    def word(self, name: str, node: ast.Call) -> Any:
        """Parse a call of a word that is not a plain function; the statement parser adds more of them."""
        if name == "meta_var":
            value = self.eval(self.arguments(node, "value")["value"])
            return MetaVar(value)
        if name == "Let":
            return self._let(node)
        if name == "comm_reducer":
            return self._reducer(node)
        if name == "target":
            return self.eval(node.args[0]) if node.args else {}
        if name == "Range":
            args = self.arguments(node, "start", "stop")
            return self.span(args["start"], args["stop"])
        if name == "iter_var":
            args = self.arguments(node, "var", "dom", "kind", "thread_tag")
            tag = self.string(args["thread_tag"]) if "thread_tag" in args else ""
            return IterVar(self.eval(args["dom"]), self.eval(args["var"]), self.string(args["kind"]), tag)
        if name in ("var", "env_thread"):
            args = self.arguments(node, "dtype")
            return Var("v", self.dtype(args["dtype"]) if name == "var" and "dtype" in args else INDEX)
        raise self.error(f"T.{name} cannot stand here", node)

    def _reducer(self, node: ast.Call) -> CommReducer:
        args = self.arguments(node, "combiner", "identity")
        function = args.get("combiner")
        if not isinstance(function, ast.Lambda) or "identity" not in args:
            raise self.error("write T.comm_reducer(lambda x, y: x + y, [T.float32(0)])", node)
        identity = [self.as_expr(v, args["identity"]) for v in self.items([ast.Starred(args["identity"], ast.Load())])]
        names = [a.arg for a in function.args.args]
        if len(names) != 2 * len(identity):
            raise self.error(f"{len(identity)} values take {2 * len(identity)} names, not {len(names)}", function)
        made = [Var(n, e.dtype) for n, e in zip(names, identity * 2, strict=True)]
        self.scopes.append(dict(zip(names, made, strict=True)))
        results = function.body.elts if isinstance(function.body, ast.Tuple) else [function.body]
        values = tuple([self.expr(r) for r in results])
        self.scopes.pop()
        half = len(identity)
        return self.guarded(  # type: ignore[no-any-return]
            node, CommReducer, tuple(made[:half]), tuple(made[half:]), values, tuple(identity)
        )

    def _let(self, node: ast.Call) -> Expr:
        args = self.arguments(node, "body", "where")
        where = args.get("where")
        if "body" not in args or not isinstance(where, ast.Dict):
            raise self.error("write T.Let(body, where={x: value})", node)
        bound = []
        self.scopes.append({})
        for key, value_node in zip(where.keys, where.values, strict=True):
            value = self.expr(value_node)
            if not isinstance(key, ast.Name):
                raise self.error("where= has names as keys", node)
            known = next((s[key.id] for s in reversed(self.scopes) if key.id in s), None)
            var = known if isinstance(known, Var) and known.dtype == value.dtype else Var(key.id, value.dtype)
            self.define(key.id, var)
            bound.append((var, value))
        body = self.expr(args["body"])
        self.scopes.pop()
        for var, value in reversed(bound):
            body = E.Let(var, value, body)
        return body


def _element(value: Any) -> Any:
    """Return the element of a buffer of rank 0, and the value of T.meta_var; other values as they are."""
    if isinstance(value, MetaVar):
        return value.value
    return value
