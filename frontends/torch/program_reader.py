"""This module reads programs of PyTorch: exported ones, and the graphs that torch.compile hands over.

Expressions of symbolic sizes are SymPy's there, and become expressions of this library. Sizes are integers. What becomes of
them may be a float, such as the ``x.shape[-1] ** -0.5`` of attention: it is computed in
float64, as Python does, and is a scalar that kernels compute from the sizes of a call.
"""

from __future__ import annotations

import logging
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from ... import te
from ...graph.builder import Builder, add_cond, add_scan, add_while
from ...graph.graph import Graph, GraphError, Value, without_unread
from ...graph.reference import verify
from ...tir.expr import Expr, Var, cast, const, convert, max_, min_, pre_order, truncdiv
from ...tir.expr.intrinsics import number_operations as floats
from ..common.graph_call import UnsupportedOperators, require_inputs
from . import aten_elements, aten_gradients, aten_products, aten_quantized, aten_reductions, aten_shapes
from .aten_call import CONVERTERS, AtenCall, TorchError, dtype_name, load_torch, op, to_array
from .decompositions import with_own


@dataclass(frozen=True)
class Ratio:
    """The quotient of two integers, the second of which is positive. Python divides them as floats, and may round down."""

    top: Any
    under: Any

    def as_float(self) -> Expr:
        """Returns the quotient in float64."""
        whole = _as_float(self.top)
        return whole if isinstance(self.under, int) and self.under == 1 else whole / _as_float(self.under)

    def times(self, factor: float) -> Ratio | None:
        """Returns the product with a float that is a short fraction exactly, such as 1.5; None for others."""
        top, under = factor.as_integer_ratio()
        return Ratio(self.top * top, self.under * under) if max(abs(top), under) <= _LONGEST else None


_LONGEST = 1 << 20
"""The largest numerator and denominator of a factor that integers are multiplied with."""


def _as_float(e: Any) -> Expr:
    if isinstance(e, Ratio):
        return e.as_float()
    return cast("float64", convert(e)) if isinstance(e, (Expr, int)) else const(e, "float64")


def _is_integer(e: Any) -> bool:
    return isinstance(e, int) or (isinstance(e, Expr) and not e.dtype.is_float)


def _folded(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return reduce(combine, args if all(map(_is_integer, args)) else map(_as_float, args))

    return function


def _product(*args: Any) -> Any:
    if len(args) == 2 and isinstance(args[0], float) and isinstance(args[1], Ratio):
        found = args[1].times(args[0])
        if found is not None:
            return found
    return _folded(operator.mul)(*args)


def _in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*map(_as_float, args))


def _as_integer(function: Callable[[Expr], Expr], of_ratio: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def rounded(e: Any) -> Any:
        if isinstance(e, Ratio):
            return of_ratio(convert(e.top), convert(e.under))
        return e if _is_integer(e) else cast("int64", function(_as_float(e)))

    return rounded


def _of_integers(function: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    def checked(a: Any, b: Any) -> Any:
        if _is_integer(a) and _is_integer(b):
            return function(a, b)
        raise TorchError(
            f"{name} of floats that are computed from sizes is not supported; shapes= can give sizes as numbers"
        )

    return checked


_quotient, _rest = _of_integers(operator.floordiv, "//"), _of_integers(operator.mod, "%")
_down = _as_integer(floats.floor, operator.floordiv)
_up = _as_integer(floats.ceil, lambda a, b: -(-a // b))
_to_zero = _as_integer(floats.trunc, truncdiv)


def _nearest(e: Any) -> Any:
    return e if _is_integer(e) else cast("int64", floats.nearbyint(_as_float(e)))


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, int) and exponent > 0 and _is_integer(base):
        return reduce(operator.mul, [base] * exponent)
    if isinstance(exponent, float) and exponent in (0.5, -0.5):
        return floats.sqrt(_as_float(base)) if exponent > 0 else const(1.0, "float64") / floats.sqrt(_as_float(base))
    return floats.pow_(_as_float(base), _as_float(exponent))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": _folded(operator.add), "Mul": _product, "Min": _folded(min_), "Max": _folded(max_),
    "FloorDiv": _quotient, "CleanDiv": _quotient, "Mod": _rest, "PythonMod": _rest,
    "IntTrueDiv": Ratio, "FloatTrueDiv": _in_floats(operator.truediv),
    "Pow": _power, "FloatPow": _power, "PowByNatural": _power, "Identity": lambda e: e, "ToFloat": lambda e: Ratio(e, 1),
    "Abs": lambda e: max_(e, -e) if _is_integer(e) else floats.abs_(_as_float(e)),
    "TruncToFloat": _in_floats(floats.trunc), "TruncToInt": _to_zero, "FloorToInt": _down, "floor": _down,
    "CeilToInt": _up, "ceiling": _up, "RoundToInt": _nearest,
    **{f"OpaqueUnaryFn_{name}": _in_floats(getattr(floats, name)) for name in ("sqrt", "exp", "sin", "cos", "tanh")},
    **{f"OpaqueUnaryFn_{name}": _in_floats(getattr(floats, name)) for name in ("log", "log2")},
}  # fmt: skip
"""What PyTorch's functions of sizes are here, by their names."""


def expression(e: Any, symbol: Callable[[str], Any]) -> Any:
    """Returns a SymPy expression as a number or an expression; ``symbol`` gives what a name stands for.

    Floats are expressions of float64. TorchError for a function of sizes that the table does not have.
    """
    made = _read(e, symbol)
    return made.as_float() if isinstance(made, Ratio) else made


def is_rounded_float(e: Any) -> bool:
    """Returns whether an integer is computed from floats. Such numbers are data; extents are not known from them."""
    return isinstance(e, Expr) and any(n.dtype.is_float for n in pre_order(e) if isinstance(n, Expr))


def _read(e: Any, symbol: Callable[[str], Any]) -> Any:
    if e.is_Integer:
        return int(e)
    if e.is_Number:
        return float(e)
    if e.is_Symbol:
        return symbol(str(e))
    function = _FUNCTIONS.get(type(e).__name__)
    if function is None:
        raise TorchError(f"the size {e} is not supported; shapes= can give sizes as numbers")
    return function(*[_read(a, symbol) for a in e.args])


@op("while_loop")
def while_loop(c: AtenCall, condition: Any, body: Any, states: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    given = _tensors(c, states)
    return tuple(
        add_while(c.builder, given, lambda s: c.run(condition, [*s, *others])[0], lambda s: c.run(body, [*s, *others]))
    )


@op("scan")
def scan(c: AtenCall, body: Any, states: Sequence[Any], arrays: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    given, count = _tensors(c, states), len(states)

    def step(before: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        made = c.run(body, [*before, *parts, *others])
        return made[:count], made[count:]

    ends, rows = add_scan(c.builder, given, _tensors(c, arrays), step)
    return (*ends, *rows)


@op("cond")
def branch(c: AtenCall, chosen: Any, first: Any, second: Any, given: Sequence[Any] = ()) -> Any:
    """Returns the results of the branch that is chosen, when the program is read or when it runs."""
    if not isinstance(chosen, Value):
        return tuple(c.run(first if chosen else second, given))
    return tuple(add_cond(c.builder, chosen, lambda: c.run(first, given), lambda: c.run(second, given)))


def _tensors(c: AtenCall, given: Sequence[Any]) -> list[Value]:
    if not all(isinstance(v, Value) for v in given):
        raise c.error("a loop whose states are numbers of Python is not supported; make tensors of them")
    return list(given)


TABLES = (
    aten_elements, aten_gradients, aten_products, aten_quantized, aten_reductions, aten_shapes,
)  # fmt: skip
"""The modules whose converters are in the table."""

_CHECKS = ("aten._assert_async.", "aten._assert_scalar.", "aten._assert_tensor_metadata.", "aten.sym_constrain_range")
"""Assertions of PyTorch about values and sizes. They are left out; kernels assert what they need themselves."""


_LINE = re.compile(r'File "([^"]*)", line (\d+)')


class UnsupportedTorchOperators(UnsupportedOperators, TorchError):
    """Raised when operators have no converter; ``operators`` has the places of their calls by operator."""

    adder = "tilewright.frontends.torch.op"
    otherwise = "; torch.compile(…, backend='tilewright') without the option strict leaves them to PyTorch"


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Keep a logger of PyTorch from printing meanwhile."""
    found = logging.getLogger(logger)
    before, found.disabled = found.disabled, True
    try:
        yield
    finally:
        found.disabled = before


def from_torch(program: Any, name: str = "", shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Returns the graph of an exported program of PyTorch, or of a ``.pt2`` file.

    The inputs are the program's own in their order, followed by the buffers that the program changes; the outputs are
    the program's, followed by the new contents of those buffers, and of inputs that it changes. Parameters and other buffers become constants. ``shapes``
    gives numbers to dynamic dimensions, by the names of inputs; others stay open, up to the largest values that the program
    gives them. TorchError for a program that cannot be read; :class:`UnsupportedTorchOperators` lists all operators that are missing.
    """
    torch = load_torch()
    if isinstance(program, (str, Path)):
        if not Path(program).is_file():
            raise TorchError(f"there is no file {program}")
        try:
            with warnings.catch_warnings(), _quiet("torch.export"):  # the error below says it in a line
                warnings.simplefilter("ignore")
                program = torch.export.load(str(program))
        except Exception as error:  # damaged files raise errors without a common class
            raise TorchError(f"{program} is not a program that torch.export.save wrote: {error}") from error
    if not isinstance(program, torch.export.ExportedProgram):
        raise TorchError(
            f"{type(program).__name__} is not an exported program; torch.export.export(model, args) makes one"
        )
    strided = unknown_strides(program.graph.nodes)
    if strided is not None:
        raise unknown_strides_error(strided)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what PyTorch says of its own code
        plain = program.run_decompositions(with_own(torch.export.default_decompositions()))
    changed = set(plain.graph_signature.buffers_to_mutate.values())
    held = {**_parameters(plain, changed), **_constants(plain)}
    reader = ProgramReader(name or "main")
    inputs = {node.name: node for node in plain.graph.nodes if node.op == "placeholder" and node.name not in held}
    require_inputs("shapes=", shapes or {}, inputs, TorchError)
    for given, shape in (shapes or {}).items():
        reader.fix(inputs[given], shape)
    late = []
    for node in plain.graph.nodes:
        if node.op == "placeholder":
            target = plain.graph_signature.inputs_to_buffers.get(node.name)
            if node.name in held:
                reader.constant(node, held[node.name])
            elif target in changed:
                late.append((node, target))
            else:
                reader.input(node)
    for node, target in late:
        reader.input(node, target)
    reader.read(plain.graph.nodes)
    (given,) = plain.graph.output_node().args
    outputs = list(given)
    states = len(plain.graph_signature.buffers_to_mutate) + len(plain.graph_signature.user_inputs_to_mutate)
    return replace(reader.graph([*outputs[states:], *outputs[:states]]), bounds=_bounds(plain, reader))


def _bounds(program: Any, reader: ProgramReader) -> dict[str, int]:
    """Returns the largest values of symbolic sizes, where the program has them."""
    names = {d.name for v in reader.builder.inputs for d in v.shape if isinstance(d, Var)}
    stated = {str(symbol): span.upper for symbol, span in program.range_constraints.items()}
    return {name: int(upper) for name, upper in stated.items() if name in names and upper.is_Integer}


def _parameters(program: Any, changed: set[str]) -> dict[str, Any]:
    signature = program.graph_signature
    targets = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    state = {**program.constants, **program.state_dict}
    return {name: state[target] for name, target in targets.items() if target not in changed}


def _constants(program: Any) -> dict[str, Any]:
    return {n: program.constants[t] for n, t in program.graph_signature.inputs_to_lifted_tensor_constants.items()}


def missing_operators(nodes: Any) -> dict[str, list[str]]:
    """Returns the operators without a converter, with the places of their calls."""
    out: dict[str, list[str]] = {}
    for node in nodes:
        if node.op in ("call_function", "call_method", "call_module") and not is_supported(node):
            inside = {k: v for module in graphs_of(node) for k, v in missing_operators(module.graph.nodes).items()}
            for name, places in (inside or {str(node.target): [_place(node)]}).items():
                out.setdefault(name, []).extend(places)
    return out


def unknown_strides(nodes: Any) -> Any:
    """Returns the first ``as_strided`` of an array whose order in memory is not known, or None.

    That of an input is known. That of an intermediate is row-major where all that it comes from is; else the order is
    what PyTorch's kernels choose, and its decompositions choose otherwise.
    """
    for node in nodes:
        if "as_strided" not in str(getattr(node.target, "__name__", node.target)):
            continue
        operand = node.all_input_nodes[0]
        if operand.op not in ("placeholder", "get_attr") and not _is_row_major(operand):
            return node
    return None


def unknown_strides_error(node: Any) -> TorchError:
    """Returns the refusal of what :func:`unknown_strides` found."""
    return TorchError(
        f"as_strided of {node.all_input_nodes[0].name}, an intermediate result that may not be row-major, "
        f"is not supported ({_place(node)}); make its operand contiguous, or take slices"
    )


def _is_row_major(node: Any) -> bool:
    """Returns whether an intermediate and all that it is computed from are row-major."""
    seen, stack = set(), [node]
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        val = one.meta.get("val", one.meta.get("example_value"))
        for part in val if isinstance(val, (list, tuple)) else [val]:
            if hasattr(part, "is_contiguous") and not part.is_contiguous():
                return False
        stack.extend(one.all_input_nodes)
    return True


def graphs_of(node: Any) -> list[Any]:
    """Returns the graphs that a call is given: the bodies of a loop, the branches of a condition."""
    given = [_attribute(a) for a in node.args if getattr(a, "op", "") == "get_attr"]
    return [g for g in given if hasattr(g, "graph")]


def _attribute(node: Any) -> Any:
    return reduce(getattr, str(node.target).split("."), node.graph.owning_module)


def is_supported(node: Any) -> bool:
    """Returns whether a call has a converter, or is arithmetic of sizes."""
    if node.op != "call_function" or any(missing_operators(g.graph.nodes) for g in graphs_of(node)):
        return False
    name = str(node.target)
    return name in CONVERTERS or node.target is operator.getitem or _is_size(node) or name.startswith(_CHECKS)


def _is_size(node: Any) -> bool:
    """Returns whether a call computes with sizes alone; numbers that are read from tensors are none."""
    if str(node.target) in ("aten.sym_size.int", "aten.sym_numel.default"):
        return True
    of_tensors = type(node.target).__name__ in ("OpOverload", "HigherOrderOperator")
    return not of_tensors and type(node.meta.get("val")).__name__ in _NUMBERS


_NUMBERS = ("SymInt", "SymFloat", "SymBool", "int", "float", "bool")
"""The types of what is no tensor."""


def _place(node: Any) -> str:
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    return ":".join(found[-1]) if found else node.name


class ProgramReader:
    """A reader adds the calls of a program to a builder, in their order."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)
        self.scope: dict[Any, Any] = {}
        self.sizes: dict[str, Any] = {}

    def input(self, node: Any, name: str = "") -> None:
        """Add an input of the graph: a tensor; a symbolic size becomes known by the shapes."""
        val = node.meta["val"]
        if not hasattr(val, "dtype"):
            self.scope[node] = self.dim(val)
            return
        shape = [self.dim(d) for d in val.shape]
        self.scope[node] = self.builder.input(self.builder.unused(name or node.name), shape, dtype_name(val.dtype))

    def fix(self, node: Any, shape: Sequence[int]) -> None:
        """Give numbers to the symbolic sizes of an input. TorchError for a shape that it cannot have."""
        sizes = node.meta["val"].shape
        if len(sizes) != len(shape) or any(isinstance(d, int) and d != e for d, e in zip(sizes, shape, strict=True)):
            raise TorchError(f"the input {node.name} has the shape {tuple(sizes)}, which {tuple(shape)} does not fit")
        for d, extent in zip(sizes, shape, strict=True):
            self._note(d, int(extent))

    def actual_input(self, node: Any, tensor: Any) -> None:
        """Add an input of the shape that a tensor has, and note what it says about symbolic sizes."""
        val = node.meta.get("val")
        for d, extent in zip(getattr(val, "shape", ()), tensor.shape, strict=False):
            self._note(d, int(extent))
        self.scope[node] = self.builder.input(
            self.builder.unused(node.name), [int(d) for d in tensor.shape], dtype_name(tensor.dtype)
        )

    def actual_number(self, node: Any, number: Any) -> None:
        """Take a number for an input that is a size."""
        self._note(node.meta.get("val"), number)
        self.scope[node] = number

    def _note(self, size: Any, number: Any) -> None:
        expression = getattr(getattr(size, "node", None), "expr", None)
        if expression is not None and expression.is_Symbol:
            self.sizes[str(expression)] = number

    def result(self, node: Any) -> Any:
        """Returns what a node or a plain argument stands for: a value of the graph, a number, None."""
        return self.scope[node] if hasattr(node, "meta") else node

    def constant(self, node: Any, tensor: Any) -> None:
        """Add a parameter or a buffer as a constant."""
        if not hasattr(tensor, "dtype"):
            self.scope[node] = tensor
            return
        self.scope[node] = self.builder.constant(to_array(tensor), node.name, dtype_name(tensor.dtype))

    def dim(self, size: Any) -> Any:
        """Returns a size as a number or an expression of symbolic sizes."""
        if isinstance(size, (int, float, bool)) or size is None:
            return size
        return expression(size.node.expr, lambda name: self.sizes.setdefault(name, te.var(name)))

    def read(self, nodes: Any) -> None:
        """Add all calls. UnsupportedTorchOperators when some have no converter."""
        left_out: set[Any] = set()
        for node in reversed(nodes):
            is_check = node.op == "call_function" and str(node.target).startswith(_CHECKS)
            if is_check or (node.op == "call_function" and node.users and left_out.issuperset(node.users)):
                left_out.add(node)
        missing = missing_operators(n for n in nodes if n not in left_out)
        if missing:
            raise UnsupportedTorchOperators(missing)
        for node in nodes:
            if node in left_out:
                continue
            if node.op == "call_function":
                self.scope[node] = self._call(node)
            elif node.op == "get_attr":
                found = _attribute(node)
                if hasattr(found, "graph"):
                    self.scope[node] = found
                else:
                    self.constant(node, found)

    def run(self, module: Any, given: Sequence[Any]) -> Sequence[Any]:
        """Returns the results of another graph of the program, whose calls are added with these arguments."""
        before, self.scope = self.scope, {}
        try:
            holders = [n for n in module.graph.nodes if n.op == "placeholder"]
            self.scope.update(zip(holders, given, strict=True))
            self.read(module.graph.nodes)
            (results,) = module.graph.output_node().args
            found = [self.result(r) for r in (results if isinstance(results, (list, tuple)) else [results])]
            return [v if isinstance(v, Value) else self.builder.constant(v) for v in found]
        finally:
            self.scope = before

    def _call(self, node: Any) -> Any:
        args = [self._argument(a) for a in node.args]
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if node.target is operator.getitem:
            return args[0][args[1]]
        val = node.meta.get("val")
        if _is_size(node):
            return self.dim(val)
        label = f"{node.target} ({_place(node)})"
        results = val if isinstance(val, (list, tuple)) else [val]
        given = [_described(a) for a in node.args]
        call = AtenCall(self.builder, label, results, given, _used(node, val), self)
        rounded = next((d for r in results for d in getattr(r, "shape", ()) if is_rounded_float(self.dim(d))), None)
        if rounded is not None:
            raise TorchError(f"{label}: the extent {rounded} is computed in floats; shapes= can give sizes as numbers")
        if results and all(map(_is_empty, results)):
            empty = tuple([call.full(call.shape_of(n), 0, dtype_name(r.dtype)) for n, r in enumerate(results)])
            return empty if results is val else empty[0]
        try:
            made = CONVERTERS[str(node.target)](call, *args, **_plain(kwargs))
        except GraphError as error:
            way_out = "; shapes= can give sizes as numbers" if "has to be a constant here" in str(error) else ""
            raise TorchError(f"{label}: {error}{way_out}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            symbolic = [v for v in (*_values(args), *_values(kwargs.values())) if _is_symbolic(v)]
            if isinstance(error, TorchError) or not symbolic:
                raise
            shown = ", ".join(v.type_text if isinstance(v, Value) else str(v) for v in symbolic)
            raise TorchError(
                f"{label}: the sizes have to be numbers here, in {shown}; shapes= can give them"
            ) from error
        if isinstance(val, (list, tuple)):
            return made if isinstance(made, tuple) else (made,)
        return made[0] if isinstance(made, tuple) else made

    def _argument(self, a: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return [self._argument(x) for x in a]
        if hasattr(a, "op") and hasattr(a, "meta"):
            return self.scope[a]
        return self.dim(a) if type(a).__name__ in ("SymInt", "SymFloat") else a

    def graph(self, outputs: Sequence[Any]) -> Graph:
        """Returns the graph of these results."""
        values = [self.result(o) for o in outputs]
        if not all(isinstance(v, Value) for v in values):
            raise TorchError("a program whose results are not tensors is not supported")
        made = without_unread(self.builder.graph(values))
        verify(made)
        return made


def _values(given: Any) -> list[Any]:
    """Returns arguments with those in lists."""
    return [v for a in given for v in (_values(a) if isinstance(a, (list, tuple)) else [a])]


def _is_symbolic(v: Any) -> bool:
    return isinstance(v, Expr) or (isinstance(v, Value) and not v.is_static)


_DROPPED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad")


def _plain(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if k not in _DROPPED}


def _described(a: Any) -> Any:
    return a.meta.get("val") if hasattr(a, "meta") else a


def _is_empty(val: Any) -> bool:
    """Returns whether a result is one tensor that has no elements for sure."""
    return hasattr(val, "dtype") and any(isinstance(d, int) and d == 0 for d in val.shape)


def _used(node: Any, val: Any) -> set[int] | None:
    if not isinstance(val, (list, tuple)):
        return None
    users = list(node.users)
    if any(u.target is not operator.getitem for u in users):
        return None
    return {u.args[1] for u in users if len(u.users)}
