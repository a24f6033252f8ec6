"""Expressions of a text, from Python's ``ast`` to nodes. Nothing is executed: only words of ``T``, a few builtins and
what the caller put into scope can be called."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .. import expr as E
from ..arith import Analyzer
from ..buffer import Buffer, BufferRegion, decl_buffer
from ..dtype import is_bool, lanes_of
from ..expr import BufferLoad, Expr, IntImm, IterVar, Ramp, Range, Var, const, convert
from ..op import if_then_else, pow_
from ..regions import linear_key
from ..vocabulary import TypeWord, Word, type_word
from .errors import ParseError, Source
from .values import BUILTINS, BufferMethod, MetaVar, Namespace, python_binary

__all__ = ["ExprParser"]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARE: dict[type, tuple[type[E.CmpOp], Callable[[Any, Any], Any]]] = {
    ast.Eq: (E.EQ, operator.eq), ast.NotEq: (E.NE, operator.ne), ast.Lt: (E.LT, operator.lt),
    ast.LtE: (E.LE, operator.le), ast.Gt: (E.GT, operator.gt), ast.GtE: (E.GE, operator.ge),
}  # fmt: skip
_BUFFER_VALUES = ("shape", "dtype", "data", "strides", "elem_offset", "name", "ndim", "data_alignment", "offset_factor")
_BUFFER_METHODS = ("vload", "vstore", "scope", "access_ptr")
_EXPR_METHODS = ("astype", "equal")


class ExprParser:
    """Evaluates expressions in a stack of scopes; ``outer`` finds the names that the text itself does not define."""

    def __init__(self, source: Source, outer: Callable[[str], Any]) -> None:
        self.source = source
        self.outer = outer
        self.scopes: list[dict[str, Any]] = [{}]
        self.analyzer: Analyzer | None = None

    def error(self, message: str, node: ast.AST | None) -> ParseError:
        """A ParseError at ``node``."""
        return self.source.error(message, node)

    # Names

    def lookup(self, name: str, node: ast.AST) -> Any:
        """What ``name`` stands for."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        value = self.outer(name)
        if value is NotImplemented:
            if name in BUILTINS:
                return BUILTINS[name]
            raise self.error(f"`{name}` is not defined here", node)
        if isinstance(value, IterVar):
            return value.var
        return BUILTINS["range"] if value is range else value

    def define(self, name: str, value: Any) -> None:
        """Give ``name`` a meaning in the innermost scope."""
        self.scopes[-1][name] = value

    # Values

    def eval(self, node: ast.AST) -> Any:
        """The value of an expression: a Python value, an expression node, a buffer, a word of ``T`` …"""
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return method(node)

    def guarded(self, node: ast.AST, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``f(*args)``; what it complains about is reported at ``node``."""
        try:
            return f(*args, **kwargs)
        except ParseError:
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as e:
            raise self.error(str(e) or type(e).__name__, node) from e

    def expr(self, node: ast.AST, dtype: str | None = None) -> Expr:
        """The value as an expression; a plain number takes ``dtype``, when given."""
        return self.as_expr(self.eval(node), node, dtype)

    def as_expr(self, value: Any, node: ast.AST, dtype: str | None = None) -> Expr:
        """``value`` as an expression."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Buffer):
            if value.ndim == 0:
                return BufferLoad(value, ())
            raise self.error(f"buffer {value.name} has no value of its own; index it", node)
        if isinstance(value, MetaVar):
            value = value.value
        if value is None or isinstance(value, (Word, TypeWord, Namespace, BufferMethod, tuple, list, dict)):
            raise self.error(f"a value is needed, not {value!r}", node)
        return self.guarded(node, convert, value, dtype)  # type: ignore[no-any-return]

    def condition(self, node: ast.AST) -> Expr:
        """The value as a truth value."""
        e = self.expr(node)
        if not is_bool(e.dtype):
            raise self.error(f"a condition must be bool, this is {e.dtype}", node)
        return e

    def number(self, node: ast.AST) -> int:
        """A constant integer."""
        value = self.eval(node)
        if isinstance(value, IntImm):
            return value.value
        if not isinstance(value, int):
            raise self.error("a constant integer is needed", node)
        return value

    def string(self, node: ast.AST) -> str:
        """A constant text."""
        value = self.eval(node)
        if isinstance(value, E.StringImm):
            return value.value
        if not isinstance(value, str):
            raise self.error("a text is needed", node)
        return value

    def dtype(self, node: ast.AST) -> str:
        """A data type: text, or a word such as ``T.int8``."""
        value = self.eval(node)
        name = value.dtype if isinstance(value, TypeWord) else value
        if not isinstance(name, str):
            raise self.error("a data type is needed", node)
        self.guarded(node, type_word, name)
        return name

    # Python's syntax, a method per ast class

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

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of some expressions, ``*rest`` spread out."""
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                value = self.eval(n.value)
                if not isinstance(value, (list, tuple, range)):
                    raise self.error("only a list or tuple can be spread with *", n)
                out.extend(value)
            else:
                out.append(self.eval(n))
        return out

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

    def unpack(self, target: ast.AST, value: Any) -> None:
        """Bind a target of names to a value."""
        if isinstance(target, ast.Name):
            self.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (list, tuple)):
            if len(target.elts) != len(value):
                raise self.error(f"{len(value)} values for {len(target.elts)} names", target)
            for t, v in zip(target.elts, value, strict=True):
                self.unpack(t, v)
        else:
            raise self.error("names are needed here", target)

    def _truth(self, node: ast.AST) -> bool:
        value = self.eval(node)
        if isinstance(value, Expr) and not isinstance(value, IntImm):
            raise self.error("the condition is not known while the program is being built", node)
        return bool(value)

    def _BinOp(self, node: ast.BinOp) -> Any:
        chain = []
        left: ast.AST = node
        while isinstance(left, ast.BinOp):  # long sums lean to the left
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
                raise self.error("these two do not combine", node)
            return out
        return self.guarded(node, python_binary, op, a, b)

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = _element(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            if not isinstance(value, Expr):
                return not value
            if not is_bool(value.dtype):
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
            if not is_bool(e.dtype):
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
                parts.append(cls(*self.guarded(node, E.match_types, left, right)))
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
            if name == "dtype":
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

    # Buffers

    def index_nodes(self, node: ast.Subscript) -> list[ast.expr]:
        """The index expressions between the brackets."""
        return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]

    def _rank(self, buffer: Buffer, count: int, node: ast.AST) -> None:
        if count != buffer.ndim:
            raise self.error(f"buffer {buffer.name} has {buffer.ndim} dimensions, indexed with {count}", node)

    def load(self, buffer: Buffer, node: ast.Subscript) -> BufferLoad:
        """``A[i, 0:4]`` as a load; a slice is a vector of neighbours."""
        return BufferLoad(buffer, self.indices(buffer, node))

    def indices(self, buffer: Buffer, node: ast.Subscript) -> tuple[Expr, ...]:
        """The indices of a load or store."""
        out: list[Expr] = []
        for n in self.index_nodes(node):
            if isinstance(n, ast.Slice):
                out.append(self._ramp(n))
            elif isinstance(n, ast.Starred):
                out.extend([self.as_expr(v, n) for v in self.items([n])])
            else:
                out.append(self.expr(n))
        self._rank(buffer, len(out), node)
        return tuple(out)

    def _ramp(self, node: ast.Slice) -> Expr:
        if node.lower is None or node.upper is None:
            raise self.error("a vector of elements needs both ends", node)
        r = self.span(node.lower, node.upper)
        step = 1 if node.step is None else self.number(node.step)
        if not isinstance(r.extent, IntImm) or r.extent.value < 1 or step < 1:
            raise self.error("a vector needs a constant number of elements", node)
        lanes = (r.extent.value + step - 1) // step
        return Ramp(r.min, const(step, r.min.dtype), lanes) if lanes > 1 else r.min

    def span(self, lower: ast.expr, upper: ast.expr) -> Range:
        """``[lower, upper)``. ``x:x + n`` has the extent ``n`` just as it is written."""
        start = self.eval(lower)
        if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and ast.dump(upper.left) == ast.dump(lower):
            lo = self.as_expr(start, lower)
            if not (isinstance(lo, IntImm) and lo.value == 0):
                return Range(lo, self.expr(upper.right, lo.dtype))
        stop = self.eval(upper)
        hi = self.as_expr(stop, upper, start.dtype if isinstance(start, Expr) else None)
        return self._between(self.as_expr(start, lower, hi.dtype), hi, upper)

    def _between(self, lo: Expr, hi: Expr, node: ast.AST) -> Range:
        if isinstance(lo, IntImm) and lo.value == 0:
            return Range(lo if lo.dtype == hi.dtype else const(0, hi.dtype), hi)
        left, right = linear_key(hi), linear_key(lo)
        if left[0] == right[0]:
            return Range(lo, const(left[1] - right[1], lo.dtype))
        if self.analyzer is None:
            self.analyzer = Analyzer()
        return Range(lo, self.analyzer.simplify(hi - lo))

    def region(self, node: ast.AST) -> BufferRegion:
        """``A[i, 0:4]`` as a region; ``A`` is the whole buffer."""
        if not isinstance(node, ast.Subscript):
            value = self.eval(node)
            if isinstance(value, Buffer):
                return value.full_region()
            if isinstance(value, BufferLoad):
                return BufferRegion(value.buffer, tuple([Range(i, const(1, i.dtype)) for i in value.indices]))
            if isinstance(value, BufferRegion):
                return value
            raise self.error("a region of a buffer is needed", node)
        buffer = self.eval(node.value)
        if not isinstance(buffer, Buffer):
            return self._load_region(node)
        ranges: list[Range] = []
        for n in self.index_nodes(node):
            if isinstance(n, ast.Slice):
                if n.step is not None:
                    raise self.error("a region's slices have no step", n)
                ranges.append(self._slice(n, buffer, len(ranges), node))
            else:
                for value in self.items([n]):
                    e = self.as_expr(value, n)
                    if isinstance(e, Ramp) and lanes_of(e.base.dtype) == 1:
                        ranges.append(Range(e.base, (e.lanes - 1) * e.stride + 1))
                    else:
                        ranges.append(Range(e, const(1, e.dtype)))
        self._rank(buffer, len(ranges), node)
        return BufferRegion(buffer, tuple(ranges))

    def _load_region(self, node: ast.Subscript) -> BufferRegion:
        value = self._Subscript(node)
        if isinstance(value, Buffer):
            return value.full_region()
        raise self.error("a region of a buffer is needed", node)

    def _slice(self, n: ast.Slice, buffer: Buffer, axis: int, node: ast.AST) -> Range:
        if n.lower is not None and n.upper is not None:
            return self.span(n.lower, n.upper)
        if axis >= buffer.ndim:
            self._rank(buffer, axis + 1, node)
        extent = buffer.shape[axis]
        if n.lower is None:
            stop = extent if n.upper is None else self.expr(n.upper, extent.dtype)
            return Range(const(0, stop.dtype), stop)
        return self._between(self.expr(n.lower, extent.dtype), extent, n)

    # Calls

    def _Call(self, node: ast.Call) -> Any:
        func = self.eval(node.func)
        if isinstance(func, Word):
            return self.word(func.name, node)
        if isinstance(func, BufferMethod):
            return self._buffer_call(func, node)
        if isinstance(func, Namespace) or not callable(func):
            raise self.error(f"{func!r} cannot be called", node)
        args = [_element(a) for a in self.items(node.args)]
        kwargs = self.keywords(node)
        out = self.guarded(node, func, *args, **kwargs)
        return out.var if isinstance(out, IterVar) else out

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """The values of the keyword arguments."""
        if any(k.arg is None for k in node.keywords):
            raise self.error("** has no meaning in TIR", node)
        return {k.arg: self.eval(k.value) for k in node.keywords}  # type: ignore[misc]

    def arguments(self, node: ast.Call, *names: str) -> dict[str, ast.expr]:
        """The argument expressions by name; ParseError for too many, unknown or repeated ones."""
        if len(node.args) > len(names):
            raise self.error(f"{len(node.args)} arguments, at most {len(names)}: {', '.join(names)}", node)
        out = dict(zip(names, node.args, strict=False))
        for k in node.keywords:
            if k.arg not in names or k.arg in out:
                known = "given twice" if k.arg in out else f"unknown; there are {', '.join(names)}"
                raise self.error(f"argument `{k.arg}` is {known}", k.value)
            out[k.arg] = k.value  # type: ignore[index]
        return out

    def word(self, name: str, node: ast.Call) -> Any:
        """A call of a word that is no plain function; statements add more of them."""
        if name == "meta_var":
            value = self.eval(self.arguments(node, "value")["value"])
            return MetaVar(value)
        if name == "Let":
            return self._let(node)
        if name == "Range":
            args = self.arguments(node, "start", "stop")
            return self.span(args["start"], args["stop"])
        if name == "iter_var":
            args = self.arguments(node, "var", "dom", "kind", "thread_tag")
            tag = self.string(args["thread_tag"]) if "thread_tag" in args else ""
            return IterVar(self.eval(args["dom"]), self.eval(args["var"]), self.string(args["kind"]), tag)
        if name in ("var", "env_thread"):
            args = self.arguments(node, "dtype")
            return Var("v", self.dtype(args["dtype"]) if name == "var" and "dtype" in args else E.INDEX)
        raise self.error(f"T.{name} cannot stand here", node)

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

    def _buffer_call(self, method: BufferMethod, node: ast.Call) -> Any:
        b = method.buffer
        if method.name == "scope":
            return b.scope
        if method.name == "vload":
            args = self.arguments(node, "begin", "dtype", "predicate")
            indices = self.index_list(args["begin"], b, node)
            predicate = self.expr(args["predicate"]) if "predicate" in args else None
            load = BufferLoad(b, indices, predicate)
            if "dtype" in args:
                dtype = self.dtype(args["dtype"])
                lanes = lanes_of(dtype)
                if indices and lanes > 1 and lanes_of(load.dtype) == 1:  # as in TVM: neighbours from there
                    last = Ramp(indices[-1], const(1, indices[-1].dtype), lanes)
                    load = BufferLoad(b, (*indices[:-1], last), predicate)
                if load.dtype != dtype:
                    raise self.error(f"vload of {b.name} reads {load.dtype}, not {dtype}", node)
            return load
        if method.name == "access_ptr":
            kwargs = self.keywords(node)
            mask = {"r": 1, "w": 2, "rw": 3, "wr": 3}.get(str(kwargs.get("access_mask", "r")), 3)
            return E.Call("tir.tvm_access_ptr", (b.data, const(0), const(mask)), "handle")
        raise self.error(f"`{method.name}` is a statement", node)

    def index_list(self, node: ast.expr, buffer: Buffer, call: ast.Call) -> tuple[Expr, ...]:
        """The indices of vload and vstore."""
        value = self.eval(node)
        items = value if isinstance(value, (list, tuple)) else [value]
        self._rank(buffer, len(items), call)
        return tuple([self.as_expr(v, node) for v in items])

    # Declarations

    def buffer(self, name: str, args: dict[str, ast.expr], node: ast.AST, like: BufferRegion | None = None) -> Buffer:
        """A buffer from the arguments of ``T.Buffer``, ``T.match_buffer`` and their like."""
        if "shape" in args:
            shape = self._sizes(self.eval(args["shape"]), args["shape"])
        elif like is not None:
            extents = [r.extent for r in like.region]
            shape = tuple(extents)
        else:
            raise self.error("the buffer's shape is missing", node)
        rest: dict[str, Any] = {}
        if "strides" in args:
            value = self.eval(args["strides"])
            rest["strides"] = self._sizes(value, args["strides"]) if value is not None else ()
        factor = self.number(args["offset_factor"]) if "offset_factor" in args else 0
        index = shape[0].dtype if shape else E.INDEX
        offset = self.eval(args["elem_offset"]) if "elem_offset" in args else None
        if isinstance(offset, str):
            rest["elem_offset"] = self._size(offset, args["elem_offset"])
        elif offset is not None:
            rest["elem_offset"] = self.as_expr(offset, args["elem_offset"], E.INDEX)
        elif factor:
            rest["elem_offset"] = Var(f"{name}_elem_offset", index)
        if factor:
            rest["offset_factor"] = factor
        if "align" in args:
            align = self.number(args["align"])
            rest["data_alignment"] = align if align > 0 else 64
        if "axis_separators" in args:
            rest["axis_separators"] = tuple(int(i) for i in self.eval(args["axis_separators"]) or ())
        if "data" in args:
            data = self.eval(args["data"])
            if isinstance(data, Var):
                rest["data"] = data
            elif data is not None:
                raise self.error("data= is a pointer's variable", args["data"])
        scope = self.string(args["scope"]) if "scope" in args else like.buffer.scope if like is not None else "global"
        dtype = self.dtype(args["dtype"]) if "dtype" in args else like.buffer.dtype if like is not None else "float32"
        return self.guarded(node, decl_buffer, shape, dtype, name, scope=scope, **rest)  # type: ignore[no-any-return]

    def _sizes(self, value: Any, node: ast.AST) -> tuple[Expr, ...]:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple([self._size(v, node) for v in items])

    def _size(self, value: Any, node: ast.AST) -> Expr:
        if isinstance(value, str):  # a text names a size: strides=("s0", "s1")
            known = next((s[value] for s in reversed(self.scopes) if value in s), None)
            if isinstance(known, Var):
                return known
            var = Var(value)
            self.define(value, var)
            return var
        return self.as_expr(value, node)


def _element(value: Any) -> Any:
    """A buffer of rank 0 stands for its element, T.meta_var for its value."""
    if isinstance(value, MetaVar):
        return value.value
    return value
