"""This module prints graphs as text in Python's syntax, and parses that text.

Data of constants of more than a few elements is not part of the text: ``constant()`` takes it from the mapping that
:func:`parse` is given, by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import te
from ..tir.expr import Expr, Var, convert, max_, min_, select, to_numpy
from .graph import COMPUTED_SIZE, Dim, Graph, GraphError, Node, Value, bodies, dims, same_shape
from .graph_operators import infer

_INLINE = 16
"""Constants of at most so many elements are written out."""


def script(graph: Graph) -> str:
    """Returns the graph as text."""
    params = ", ".join([f"{v.name}: {_type(v)}" for v in graph.inputs])
    lines = [f"def {graph.name}({params}):"]
    for body in bodies(graph):
        lines += ["    " + line for line in script(body).split("\n")]
    for v, data in graph.constants.items():
        shown = _data(data)
        lines.append(f"    {v.name}: {_type(v)} = constant({shown})")
    for node in graph.nodes:
        args = [v.name if v is not None else "None" for v in node.inputs]
        args += [f"{key}={_attr(value)}" for key, value in node.attrs.items()]
        call = f"{node.op}({', '.join(args)})"
        if len(node.outputs) == 1:
            lines.append(f"    {node.output.name}: {_type(node.output)} = {call}")
        else:
            types = ", ".join([_type(v) for v in node.outputs])
            lines.append(f"    {', '.join([v.name for v in node.outputs])} = {call}  # {types}")
    lines.append(f"    return {', '.join([v.name for v in graph.outputs])}")
    return "\n".join(lines)


def _type(v: Value) -> str:
    return f"{v.dtype}[{', '.join(map(str, v.shape)) or '()'}]"


def _attr(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join([_attr(v) for v in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return f"float('{value}')" if value != value or value in (float("inf"), float("-inf")) else repr(value)
    if isinstance(value, np.generic):
        return _attr(value.item())
    if isinstance(value, Graph):
        return value.name
    return str(value) if isinstance(value, Expr) else repr(value)


def named_constants(graph: Graph, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Returns the data of constants by name, as :func:`parse` takes it; those of a loop's body are ``body.name``."""
    found = {prefix + v.name: data for v, data in graph.constants.items()}
    for body in bodies(graph):
        found |= named_constants(body, f"{prefix}{body.name}.")
    return found


def _data(data: np.ndarray[Any, Any]) -> str:
    if data.size > _INLINE:
        return ""
    return _attr(_nested(data.tolist()))


def _nested(data: Any) -> Any:
    return tuple([_nested(d) for d in data]) if isinstance(data, list) else data


def parse(text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Graph:
    """Returns the graph that ``text`` describes. ``constants`` has the data that the text leaves out, by name.

    GraphError names the line: of names that nothing defines, of types that are not those that the operators give.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraphError(f"this is not a graph: {error}") from error
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise GraphError("a graph is one function")
    return _Parser(constants or {}).graph(tree.body[0])


class _Parser:
    """Reads the statements of a graph in order."""

    def __init__(
        self, constants: Mapping[str, np.ndarray[Any, Any]], symbols: dict[str, Var] | None = None, prefix: str = ""
    ) -> None:
        self.data, self.prefix = constants, prefix
        self.values: dict[str, Value] = {}
        self.bodies: dict[str, Graph] = {}
        self.symbols: dict[str, Var] = {} if symbols is None else symbols
        self.constants: dict[Value, np.ndarray[Any, Any]] = {}
        self.nodes: list[Node] = []
        self.outputs: tuple[Value, ...] | None = None

    def graph(self, node: ast.FunctionDef) -> Graph:
        inputs = []
        for arg in node.args.args:
            if arg.annotation is None:
                raise self.error(f"the input {arg.arg} has no type", arg)
            inputs.append(self.define(arg.arg, *self.type(arg.annotation), arg))
        for statement in node.body:
            self.statement(statement)
        if self.outputs is None:
            raise self.error("a graph ends with return", node)
        return Graph(node.name, tuple(inputs), self.outputs, tuple(self.nodes), self.constants)

    def error(self, problem: str, node: Any) -> GraphError:
        return GraphError(f"line {getattr(node, 'lineno', '?')}: {problem}")

    def define(self, name: str, dtype: str, shape: tuple[Dim, ...], node: ast.AST) -> Value:
        if name in self.values:
            raise self.error(f"{name} is defined twice", node)
        self.values[name] = Value(name, dtype, shape)
        return self.values[name]

    def type(self, node: ast.expr) -> tuple[str, tuple[Dim, ...]]:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise self.error("a type is written as float32[n, 3]", node)
        extents = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return node.value.id, dims([self.number(e, declare=True) for e in extents])

    def number(self, node: ast.expr, declare: bool = False) -> Any:
        """Returns an extent: a number, or an expression of symbols, which an input's type declares."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in self.symbols and declare:
                self.symbols[node.id] = te.var(node.id)
            if node.id in self.symbols:
                return self.symbols[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.number(node.operand, declare)
        if isinstance(node, ast.BinOp):
            a, b = self.number(node.left, declare), self.number(node.right, declare)
            for kind, combine in _ARITHMETIC.items():
                if isinstance(node.op, kind):
                    return combine(a, b)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("min", "max"):
            a, b = [self.number(e, declare) for e in node.args]
            return min_(a, b) if node.func.attr == "min" else max_(a, b)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Select":
            condition, a, b = node.args
            if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Eq):
                ends = [self.number(e, declare) for e in (condition.left, condition.comparators[0], a, b)]
                left, right, chosen, other = map(convert, ends)
                return select(left.equal(right), chosen, other)
        raise self.error(f"{ast.unparse(node)} is not a size", node)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            names = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            self.outputs = tuple([self.value(n) for n in names])
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self.assign([node.target.id], node.value, node.annotation, node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.Name)):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            self.assign([t.id for t in targets if isinstance(t, ast.Name)], node.value, None, node)
        elif isinstance(node, ast.FunctionDef):
            inner = _Parser(self.data, self.symbols, f"{self.prefix}{node.name}.")
            self.bodies[node.name] = inner.graph(node)
        else:
            raise self.error("a statement of a graph is name: type = operator(…)", node)

    def value(self, node: ast.expr) -> Value:
        if not isinstance(node, ast.Name) or node.id not in self.values:
            raise self.error(f"{ast.unparse(node)} is not defined", node)
        return self.values[node.id]

    def assign(self, names: list[str], call: ast.expr | None, annotation: ast.expr | None, node: ast.stmt) -> None:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise self.error("an operator is applied as name(…)", node)
        if call.func.id == "constant":
            self.constant(names[0], call, annotation, node)
            return
        inputs = tuple([None if _is_none(a) else self.value(a) for a in call.args])
        if call.func.id == COMPUTED_SIZE:
            for k in call.keywords:
                if k.arg == "size":
                    self.number(k.value, declare=True)
        attrs = {k.arg: self.attribute(k.value) for k in call.keywords if k.arg is not None}
        try:
            types = infer(call.func.id, inputs, attrs)
        except GraphError as error:
            raise self.error(str(error), node) from error
        if len(types) != len(names):
            raise self.error(f"{call.func.id} has {len(types)} results, not {len(names)}", node)
        outputs = tuple([self.define(n, *t, node) for n, t in zip(names, types, strict=True)])
        if annotation is not None:
            dtype, shape = self.type(annotation)
            if dtype != outputs[0].dtype or not same_shape(shape, outputs[0].shape):
                raise self.error(f"{names[0]} is {outputs[0].type_text}, not {ast.unparse(annotation)}", node)
        self.nodes.append(Node(call.func.id, inputs, outputs, attrs))

    def constant(self, name: str, call: ast.Call, annotation: ast.expr | None, node: ast.stmt) -> None:
        if annotation is None:
            raise self.error(f"the constant {name} has no type", node)
        dtype, shape = self.type(annotation)
        if call.args:
            data = np.array(self.attribute(call.args[0]), to_numpy(dtype))
        elif self.prefix + name in self.data:
            data = np.asarray(self.data[self.prefix + name])
        else:
            raise self.error(f"the data of the constant {self.prefix}{name} is not given", node)
        if tuple(data.shape) != shape or data.dtype != to_numpy(dtype):
            raise self.error(
                f"the data of {name} is {data.dtype}{list(data.shape)}, not {ast.unparse(annotation)}", node
            )
        self.constants[self.define(name, dtype, shape, node)] = data

    def attribute(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.bodies:
            return self.bodies[node.id]
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple([self.attribute(e) for e in node.elts])
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
                return -value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
            return float(str(ast.literal_eval(node.args[0])))
        return self.number(node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
