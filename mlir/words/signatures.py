"""This module says which parameters of a function are arguments and results, and where its sizes come from.

The order of parameters, and the sizes of shapes, go out as attributes where MLIR's types do not say them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func
from xdsl.ir import Attribute

from ...tir.expr import DType, IntImm, Var
from ...tir.stmt import Buffer, PrimFunc
from ...tir.walk import pre_order
from .affine_indices import affine_map
from .mlir_error import MlirError
from .mlir_types import DTYPE, attribute, is_unsigned, sign_attribute

PARAMETERS = "tilewright.parameters"
"""Attribute of a function: for each parameter the number of its argument and of its result, or -1."""
SHAPE = "tilewright.shape"
"""Attribute of an argument: its sizes over the function's symbols."""
SYMBOL = "tilewright.symbol"
"""Attribute of a scalar argument that sizes name: the number of its symbol."""
INDEX_TYPE = "tilewright.index"
"""Attribute of a function: the type of its indices, where it is not i32."""
ATTRIBUTES = "tilewright.attributes"
"""Attribute of a function: its attributes in TIR, where they are not those that te gives."""
INDICES = "tilewright.indices"
"""Attribute of an access: the types of its indices, where those of constants are not those of the others."""
USUAL = {"tir.noalias": True}


@dataclass(frozen=True)
class MlirSignature:
    """The signature of a function in MLIR. ``arguments`` are buffers and scalars, ``results`` the buffers whose values
    are returned; ``sizes`` says which dimension of which argument a size is. ``places`` has the numbers of
    :data:`PARAMETERS`."""

    prim: PrimFunc
    arguments: tuple[Any, ...]
    results: tuple[Buffer, ...]
    sizes: Mapping[Var, tuple[Buffer, int]]
    places: tuple[tuple[int, int], ...]

    @staticmethod
    def of(prim: PrimFunc, written: Mapping[Buffer, bool]) -> MlirSignature:
        """Returns the signature; ``written`` tells of each written buffer whether its old content is not needed."""
        arguments: list[Any] = []
        results: list[Buffer] = []
        places: list[tuple[int, int]] = []
        for param in prim.params:
            what: Any = prim.buffer_map.get(param, param)
            first, second = -1, -1
            if not written.get(what, False):
                first = len(arguments)
                arguments.append(what)
            if what in written:
                second = len(results)
                results.append(what)
            places.append((first, second))
        sizes = _sizes(prim, [a for a in arguments if isinstance(a, Buffer)])
        return MlirSignature(prim, tuple(arguments), tuple(results), sizes, tuple(places))

    def describe(self, op: func.FuncOp, bools: bool = False) -> None:
        """Add to a function what its types do not say; with ``bools`` truth values are bytes."""
        symbols = symbols_of(self.prim)
        found: list[dict[str, Attribute]] = []
        for param in self.arguments:
            one: dict[str, Attribute] = {}
            if is_unsigned(param.dtype) or (bools and isinstance(param, Buffer) and param.dtype.is_bool):
                one[DTYPE] = sign_attribute(param.dtype)
            if isinstance(param, Buffer):
                shape = shape_attribute(param, symbols)
                if shape is not None:
                    one[SHAPE] = shape
            elif param in symbols:
                one[SYMBOL] = B.IntegerAttr(symbols.index(param), 64)
            found.append(one)
        if any(found):
            op.properties["arg_attrs"] = B.ArrayAttr([B.DictionaryAttr(one) for one in found])
        if index_type(self.prim) != "int32":
            op.attributes[INDEX_TYPE] = B.i64
        if self.places != usual_places(len(self.arguments), len(self.results)):
            numbers = [n for pair in self.places for n in pair]
            op.attributes[PARAMETERS] = B.DenseArrayBase.from_list(B.i64, numbers)
        rest = {k: v for k, v in self.prim.attrs.items() if k != "global_symbol"}
        if rest != USUAL:
            op.attributes[ATTRIBUTES] = attribute(rest)


def usual_places(arguments: int, results: int) -> tuple[tuple[int, int], ...]:
    """Returns the places of parameters that are arguments first, then results."""
    return (*[(n, -1) for n in range(arguments)], *[(-1, n) for n in range(results)])


def symbols_of(prim: PrimFunc) -> list[Var]:
    """Returns the variables in the shapes of parameters, in order of appearance."""
    found: dict[Var, None] = {}
    for buffer in prim.buffers:
        for e in (*buffer.shape, *buffer.strides):
            found.update({v: None for v in pre_order(e) if isinstance(v, Var)})
    return list(found)


def shape_attribute(buffer: Buffer, symbols: list[Var]) -> Attribute | None:
    """Returns the sizes of a buffer as a map over symbols. None stands for a type that says all, or for a size that is
    not affine."""
    if all(isinstance(e, IntImm) for e in buffer.shape):
        return None
    found = affine_map(buffer.shape, (), symbols)
    return None if found is None else B.AffineMapAttr(found)


def index_type(prim: PrimFunc) -> DType:
    """Returns the type of a function's sizes: int32 unless all are int64."""
    kinds = {e.dtype for b in prim.buffers for e in b.shape}
    return DType("int64") if kinds == {"int64"} else DType("int32")


def _sizes(prim: PrimFunc, buffers: list[Buffer]) -> dict[Var, tuple[Buffer, int]]:
    scalars = {p for p in prim.params if p not in prim.buffer_map}
    out: dict[Var, tuple[Buffer, int]] = {}
    for buffer in buffers:
        for n, e in enumerate(buffer.shape):
            if isinstance(e, Var) and e not in scalars:
                out.setdefault(e, (buffer, n))
    for v in symbols_of(prim):
        if v not in out and v not in scalars:
            raise MlirError(f"function {prim.name}: the size {v.name} is not the size of an input")
    return out
