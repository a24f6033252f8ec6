"""This module reads StableHLO programs from whatever holds them: their functions, calls and regions become one graph."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import te
from ...graph.builder import Builder
from ...graph.graph import Graph, GraphError, Value, without_unread
from ...graph.reference import verify
from ..common.graph_call import UnsupportedOperators, add_sizes
from . import hlo_control, hlo_elements, hlo_products, hlo_reductions, hlo_shapes
from .hlo_call import (
    CONVERTERS,
    Given,
    HloCall,
    KnownArray,
    StableHloError,
    computed,
    dtype_of,
    known,
    load_jaxlib,
    plain,
)
from .hlo_control import stacked

_PORTABLE = b"ML\xefR"
"""The first bytes of MLIR's bytecode, in which portable artifacts are written."""


def module_of(program: Any) -> Any:
    """Returns a program as a module of MLIR, with its functions in its body. StableHloError for anything else."""
    ir = load_jaxlib("ir")
    if isinstance(program, ir.Module):
        return program
    if is_exported(program):
        return _parsed(ir, str(program.mlir_module()))
    if isinstance(program, Path) or (isinstance(program, str) and "\n" not in program and "(" not in program):
        if not Path(program).is_file():
            raise StableHloError(f"there is no file {program}")
        program = Path(program).read_bytes()
    if isinstance(program, (bytes, bytearray)) and not bytes(program).startswith(_PORTABLE):
        if b"\0" in program:
            return _parsed(ir, str(_unpacked(program).mlir_module()))
        program = bytes(program).decode(errors="replace")
    if isinstance(program, (str, bytes, bytearray)):
        return _parsed(ir, program if isinstance(program, str) else bytes(program))
    raise StableHloError(
        f"{type(program).__name__} is not a StableHLO program; jax.export.export(jax.jit(f))(x) makes one"
    )


def is_exported(program: Any) -> bool:
    """Returns whether a program is an exported function of JAX."""
    return hasattr(program, "mlir_module") and hasattr(program, "in_avals")


def exported_of(program: Any) -> Any:
    """Returns the exported function of JAX in a file that its ``serialize`` wrote; other programs as they are."""
    if isinstance(program, (str, Path)) and Path(program).suffix == ".jax":
        if not Path(program).is_file():
            raise StableHloError(f"there is no file {program}")
        return _unpacked(Path(program).read_bytes())
    return program


def _unpacked(data: bytes | bytearray) -> Any:
    try:
        return importlib.import_module("jax.export").deserialize(bytearray(data))
    except Exception as error:  # damaged data raises whatever the reader of the format raises
        raise StableHloError(f"the data is not a program that jax.export wrote: {error}") from error


def _parsed(ir: Any, text: str | bytes) -> Any:
    stablehlo, chlo = load_jaxlib("dialects.stablehlo"), load_jaxlib("dialects.chlo")
    registry = ir.DialectRegistry()
    load_jaxlib("_mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    context.allow_unregistered_dialects = True  # attributes of others say where arrays are kept, which is nothing here
    try:
        if isinstance(text, bytes):
            return stablehlo.deserialize_portable_artifact(context, text)
        return ir.Module.parse(text, context)
    except Exception as error:  # the bindings raise errors of several classes
        problem = str(error).strip().splitlines()
        raise StableHloError(f"the text is not a StableHLO program: {' '.join(problem[:2])[:300]}") from error


class Sizes:
    """The symbolic sizes of one program, one variable per name."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def named(self, name: str) -> Any:
        """Returns the variable of a name."""
        return self.known.setdefault(name, te.var(name))

    def of(self, dim: Any) -> Any:
        """Returns an extent of JAX: a number, or an expression such as ``2*b + 1``."""
        if isinstance(dim, int):
            return dim
        return self._read(ast.parse(str(dim).replace("^", "**"), mode="eval").body, str(dim))

    def _read(self, node: ast.expr, text: str) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return 0 - self._read(node.operand, text)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](self._read(node.left, text), self._read(node.right, text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            function = _ARITHMETIC.get(node.func.id)
            if function is not None:
                return function(*[self._read(a, text) for a in node.args])
        raise StableHloError(f"the size {text} is not supported")


def _power(a: Any, b: Any) -> Any:
    out = 1
    for _ in range(b):
        out = a * out
    return out


_ARITHMETIC: Mapping[Any, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Pow: _power,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}


TABLES = (
    hlo_control, hlo_elements, hlo_products, hlo_reductions, hlo_shapes,
)  # fmt: skip
"""The modules whose converters are in the table."""

_CALLS = ("func.call", "stablehlo.composite")
_ENDS = ("func.return", "stablehlo.return")
_PLACE = re.compile(r'"([^"]*\.py)":(\d+)')
_NAME = re.compile(r'^loc\("([^"]*)"')
_DEEPEST = 200
_MOST_NODES = 100_000


class UnsupportedStableHloOperators(UnsupportedOperators, StableHloError):
    """Raised when operations have no converter; ``operators`` has their places by operation."""

    adder = "tilewright.frontends.stablehlo.op"


def from_stablehlo(program: Any, name: str = "") -> Graph:
    """Returns the graph of a StableHLO program: an exported function of JAX, a portable artifact, text, or a file.

    The inputs are the function's flat arguments, with their names where JAX notes them; the outputs are its flat
    results. Dimensions that are left open are symbolic. StableHloError for a program that cannot be read;
    :class:`UnsupportedStableHloOperators` lists all operations that are missing.
    """
    program = exported_of(program)
    module = module_of(program)
    with module.context:
        reader = HloReader(module, name)
        return reader.graph(program if is_exported(program) else None)


class HloReader:
    """A reader adds the operations of a program to a builder."""

    def __init__(self, module: Any, name: str) -> None:
        self.functions = {_name_of(f): f for f in module.body.operations if f.operation.name == "func.func"}
        if not self.functions:
            raise StableHloError("the program has no functions")
        self.main = self.functions.get("main") or next(iter(self.functions.values()))
        title = str(plain(module.operation.attributes["sym_name"])) if "sym_name" in module.operation.attributes else ""
        self.builder = Builder(Builder().fresh(name or title.removeprefix("jit_") or "main"))
        self.sizes = Sizes()
        self.narrow: dict[Value, Value] = {}
        self.depth = 0

    def graph(self, exported: Any = None) -> Graph:
        """Returns the graph of the main function. ``exported``: what JAX knows of its arguments."""
        missing = self.missing()
        if missing:
            raise UnsupportedStableHloOperators(missing)
        results = self.block(self.main.regions[0].blocks[0], self.inputs(exported), {})
        values = [r if isinstance(r, Value) else self._constant(r) for r in results]
        made = without_unread(self.builder.graph(values))
        verify(made)
        return made

    def _constant(self, given: KnownArray) -> Value:
        if not given.is_symbolic:
            return self.builder.constant(given.data, "c", given.dtype)
        try:
            return add_sizes(self.builder, given.data, given.dtype)
        except GraphError as error:
            raise StableHloError(f"a result: {error}") from error

    def inputs(self, exported: Any) -> list[Given]:
        """Add the inputs. Arguments that the function does not read are inputs, too."""
        arguments = list(self.main.regions[0].blocks[0].arguments)
        avals: Sequence[Any] = [None] * len(arguments)
        kept = range(len(arguments))
        if exported is not None and len(exported.module_kept_var_idx) == len(arguments):
            avals, kept = exported.in_avals, exported.module_kept_var_idx
        by_place = dict(zip(kept, arguments, strict=True))
        out = []
        for n, aval in enumerate(avals):
            argument = by_place.get(n)
            name = _named(argument, n)
            if argument is None:
                shape, dtype = [self.sizes.of(d) for d in aval.shape], str(aval.dtype)
                self.builder.input(self.builder.unused(name), shape, dtype)
                continue
            kind = argument.type
            dims = aval.shape if aval is not None else [None] * kind.rank
            shape = [
                self.sizes.of(given) if given is not None and kind.is_dynamic_dim(d)
                else self.sizes.named(f"{name}_{d}".replace(".", "_")) if kind.is_dynamic_dim(d) else kind.shape[d]
                for d, given in enumerate(dims)
            ]  # fmt: skip
            out.append(self.builder.input(self.builder.unused(name), shape, dtype_of(kind.element_type)))
        return [*out]

    # operations

    def missing(self) -> dict[str, list[str]]:
        """Returns the operations without a converter, with their places."""
        out: dict[str, list[str]] = {}
        for function in self._reachable():
            for operation in _inside(function):
                name = _key(operation)
                if name not in CONVERTERS and operation.name not in (*_CALLS, *_ENDS):
                    out.setdefault(name, []).append(_place(operation))
        return out

    def _reachable(self) -> list[Any]:
        """Returns the functions that the main function calls, itself among them."""
        found, waiting = [self.main], [self.main]
        while waiting:
            for operation in _inside(waiting.pop()):
                callee = self._callee(operation)
                if callee is not None and callee not in found:
                    found.append(callee)
                    waiting.append(callee)
        return found

    def _callee(self, operation: Any) -> Any:
        if operation.name not in _CALLS or (operation.name == "stablehlo.composite" and _key(operation) in CONVERTERS):
            return None
        name = plain(operation.attributes["callee" if operation.name == "func.call" else "decomposition"])
        if name not in self.functions:
            raise StableHloError(f"{_label(operation)}: there is no function {name}")
        return self.functions[name]

    def block(self, block: Any, args: Sequence[Given], outer: dict[Any, Given]) -> list[Given]:
        """Add the operations of a block with these arguments, and return its results."""
        if len(block.arguments) != len(args):
            raise StableHloError(f"{len(args)} arguments for {len(block.arguments)}")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise StableHloError("functions and regions nest too deeply; does a function call itself?")
        try:
            return self._results(block, {**outer, **dict(zip(block.arguments, args, strict=True))})
        finally:
            self.depth -= 1

    def _results(self, block: Any, scope: dict[Any, Given]) -> list[Given]:
        for item in block.operations:
            operation = item.operation
            if operation.name in _ENDS:
                return [scope[v] for v in operation.operands]
            if len(self.builder.nodes) > _MOST_NODES:
                raise StableHloError(f"{_label(operation)}: with loops written out, there are too many operators")
            made = self.operation(operation, [scope[v] for v in operation.operands], scope)
            scope.update(zip(operation.results, made, strict=False))
        return []

    def operation(self, operation: Any, args: Sequence[Given], scope: dict[Any, Given]) -> Sequence[Given]:
        """Returns the results of one operation."""
        callee = self._callee(operation)
        if callee is not None:
            return self.block(callee.regions[0].blocks[0], args, {})

        def run(region: Any, *given: Given) -> list[Given]:
            return self.block(region.blocks[0], given, scope)

        row: Any = stacked(operation.name, args)
        if row is not None:
            return [row]
        call = HloCall(operation, _label(operation), args, self.builder, run, self.narrow)
        done = self._known(call)
        if done is not None:
            return [done]
        try:
            made = CONVERTERS[_key(operation)](call)
        except (GraphError, ZeroDivisionError) as error:
            raise StableHloError(f"{call.label}: {error}") from error
        return made if isinstance(made, tuple) else (made,)

    def _known(self, call: HloCall) -> KnownArray | None:
        """Returns the result where it is known: constants of few elements, sizes, and what is computed from them."""
        if call.name == "get_dimension_size":
            extent = call.args[0].shape[call.attribute("dimension")]
            return known(extent, call.dtype)
        if len(call.operation.results) != 1 or not all(isinstance(a, KnownArray) for a in call.args):
            return None
        if call.operation.name.partition(".")[0] != "stablehlo" or call.regions:
            return None
        attributes = {name: call.attribute(name) for name in _READ.get(call.name, ())}
        if call.name == "compare":
            attributes["direction"] = hlo_elements.direction(call)
        if not hasattr(call.operation.results[0].type, "element_type"):
            return None
        given = [a for a in call.args if isinstance(a, KnownArray)]
        return computed(call.name, given, attributes, call.dtype, call.shape)


_READ = {
    "slice": ("start_indices", "limit_indices", "strides"),
    "concatenate": ("dimension",),
    "broadcast_in_dim": ("broadcast_dimensions",),
    "iota": ("iota_dimension",),
}
"""The attributes that matter where operands are known."""


def _inside(operation: Any) -> Iterator[Any]:
    """Yields the operations in the regions of one, those in their regions included."""
    for region in operation.regions:
        for block in region.blocks:
            for item in block.operations:
                yield item.operation
                yield from _inside(item)


def _key(operation: Any) -> str:
    """Returns the name under which an operation stands in the table."""
    if operation.name == "stablehlo.custom_call":
        return f"custom_call @{plain(operation.attributes['call_target_name'])}"
    if operation.name == "stablehlo.composite":
        return f"composite {plain(operation.attributes['name'])}"
    return str(operation.name)


def _place(operation: Any) -> str:
    """Returns the line that made an operation, else the name that JAX gives it."""
    place = str(operation.location)
    found, name = _PLACE.search(place), _NAME.match(place)
    return f"{found[1]}:{found[2]}" if found else name[1] if name else "?"


def _label(operation: Any) -> str:
    return f"{_key(operation)} ({_place(operation)})"


def _name_of(function: Any) -> str:
    return str(plain(function.operation.attributes["sym_name"]))


def _named(argument: Any, n: int) -> str:
    """Returns the name of an argument as JAX notes it, without brackets, or ``arg0``."""
    found = _NAME.match(str(argument.location)) if argument is not None else None
    return re.sub(r"\W+", "_", found[1]).strip("_") or f"arg{n}" if found else f"arg{n}"
