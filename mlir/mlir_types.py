"""This module maps data types, shapes, index expressions and signatures to those of MLIR and back.

Index expressions become affine expressions where that is exact in both directions. A signature says which parameters of a
function are arguments and results, and where its sizes come from.

MLIR's integers have no sign. An ``ui8`` in an attribute :data:`DTYPE` says where memory or a value is unsigned.

The order of parameters, and the sizes of shapes, go out as attributes where MLIR's types do not say them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)

from ..tir.expr import Add, DType, Expr, FloorDiv, FloorMod, IntImm, Mul, Sub, Var, const, same
from ..tir.expr.equal import plain
from ..tir.stmt import Buffer, PrimFunc
from ..tir.walk import pre_order
from .mlir_error import MlirError

DTYPE = "tilewright.dtype"
"""The attribute with the data type of an unsigned value, or of an index that is not int32."""
AS = "tilewright.as"
"""The attribute that names the node, where one operation of MLIR stands for several."""

_FLOATS = {"float16": B.f16, "bfloat16": B.bf16, "float32": B.f32, "float64": B.f64}
_DYNAMIC = B.DYNAMIC_INDEX


def mlir_type(dtype: DType) -> Attribute:
    """Returns the type of a value: a scalar, or a vector of lanes."""
    element = dtype.element
    if element in _FLOATS:
        one: Attribute = _FLOATS[element]
    elif element.is_bool:
        one = B.i1
    elif element.is_int:
        one = B.IntegerType(element.bits)
    else:
        raise MlirError(f"values of type {dtype} have no counterpart in MLIR")
    return one if dtype.lanes == 1 else B.VectorType(one, [dtype.lanes])


def dtype_of(kind: Attribute) -> DType:
    """Returns the data type of a value; that of an index is int32."""
    if isinstance(kind, B.VectorType):
        if len(kind.get_shape()) != 1 or any(s.value.data for s in kind.scalable_dims):
            raise MlirError(f"{kind} is no vector of one dimension and constant length")
        return dtype_of(kind.element_type).with_lanes(kind.get_shape()[0])
    for name, known in _FLOATS.items():
        if kind == known:
            return DType(name)
    if isinstance(kind, B.IndexType):
        return DType("int32")
    if isinstance(kind, B.IntegerType):
        bits = kind.width.data
        if bits == 1:
            return DType("bool")
        if bits in (8, 16, 32, 64):
            return DType(f"{'u' if kind.signedness.data is B.Signedness.UNSIGNED else ''}int{bits}")
    raise MlirError(f"the type {kind} is not supported")


def sign_attribute(dtype: DType) -> Attribute:
    """Returns a type with its sign, as attributes hold it."""
    element = dtype.element
    if element.is_int:
        sign = B.Signedness.SIGNED if element.is_signed else B.Signedness.UNSIGNED
        return B.IntegerType(element.bits, sign)
    return mlir_type(element)


def is_unsigned(dtype: DType) -> bool:
    """Returns whether a type needs :data:`DTYPE`."""
    return dtype.is_int and not dtype.is_signed


def signed_like(found: DType, attributes: Mapping[str, Attribute]) -> DType:
    """Returns the data type of a value, as the attributes beside it say."""
    wanted = attributes.get(DTYPE)
    if wanted is None:
        return found
    dtype = dtype_of(wanted)
    if dtype.is_bool and found.bits == 8:
        return dtype.with_lanes(found.lanes)
    if dtype.bits != found.bits or dtype.kind.lstrip("u") != found.kind.lstrip("u"):
        raise MlirError(f"{DTYPE} = {wanted} does not fit values of type {found}")
    return dtype.with_lanes(found.lanes)


def dimensions(shape: tuple[Any, ...]) -> list[int]:
    """Returns the sizes of a shape, with MLIR's number for those that are not constant."""
    return [e.value if isinstance(e, IntImm) else _DYNAMIC for e in shape]


def is_dynamic(size: int) -> bool:
    """Returns whether a size of a type is not constant."""
    return size == _DYNAMIC


def attribute(value: Any) -> Attribute:
    """Returns a plain value, a list or a mapping as an attribute."""
    value = plain(value)
    if isinstance(value, bool):
        return B.BoolAttr.from_bool(value)
    if isinstance(value, int):
        return B.IntegerAttr(value, 64)
    if isinstance(value, float):
        return B.FloatAttr(value, B.f64)
    if isinstance(value, str):
        return B.StringAttr(value)
    if isinstance(value, list):
        return B.ArrayAttr([attribute(v) for v in value])
    if isinstance(value, dict):
        return B.DictionaryAttr({k: attribute(v) for k, v in value.items()})
    raise MlirError(f"an attribute holds {value!r}, which is no number, text, list or mapping")


def plain_value(attr: Attribute) -> Any:
    """Returns what :func:`attribute` made an attribute of."""
    if isinstance(attr, B.IntegerAttr):
        is_bool = attr.type == B.i1
        return bool(attr.value.data) if is_bool else attr.value.data
    if isinstance(attr, B.FloatAttr):
        return attr.value.data
    if isinstance(attr, B.StringAttr):
        return attr.data
    if isinstance(attr, B.ArrayAttr):
        return [plain_value(a) for a in attr.data]
    if isinstance(attr, B.DictionaryAttr):
        return {k: plain_value(a) for k, a in attr.data.items()}
    raise MlirError(f"the attribute {attr} is no number, text, list or dictionary")


def text_attribute(text: str) -> Attribute:
    """Returns a text in ASCII, which is what xDSL reads back."""
    return B.StringAttr(text.replace("…", "...").encode("ascii", "replace").decode())


def hint(value: SSAValue, name: str) -> SSAValue:
    """Give a value a name, where the name may stand in MLIR; returns the value."""
    if name and SSAValue.is_valid_name(name):
        value.name_hint = name
    return value


def affine_map(indices: Sequence[Expr], dims: Sequence[Var], symbols: Sequence[Var] = ()) -> AffineMap | None:
    """Returns the map of indices over variables; None where :func:`from_affine` would not give the same indices back."""
    places: dict[Var, AffineExpr] = {v: AffineExpr.dimension(n) for n, v in enumerate(dims)}
    places.update({v: AffineExpr.symbol(n) for n, v in enumerate(symbols)})
    out = []
    for index in indices:
        found = _affine(index, places)
        if found is None or not same(from_affine(found, dims, symbols, index.dtype), index):
            return None
        out.append(found)
    return AffineMap(len(dims), len(symbols), tuple(out))


def _affine(e: Expr, places: Mapping[Var, AffineExpr]) -> AffineExpr | None:
    if isinstance(e, Var):
        return places.get(e)
    if isinstance(e, IntImm):
        return AffineExpr.constant(e.value)
    if not isinstance(e, (Add, Sub, Mul)):
        return None
    a, b = _affine(e.a, places), _affine(e.b, places)
    if a is None or b is None:
        return None
    if isinstance(e, Add):
        return a + b
    if isinstance(b, AffineConstantExpr):
        return a * b if isinstance(e, Mul) else a + -b.value
    return None


def from_affine(e: AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr], dtype: DType) -> Expr:
    """Returns an affine expression over values of its dimensions and symbols."""
    if isinstance(e, AffineConstantExpr):
        return const(e.value, dtype)
    if isinstance(e, AffineDimExpr):
        return dims[e.position]
    if isinstance(e, AffineSymExpr):
        return symbols[e.position]
    assert isinstance(e, AffineBinaryOpExpr)
    a = from_affine(e.lhs, dims, symbols, dtype)
    if e.kind is AffineBinaryOpKind.Add and isinstance(e.rhs, AffineConstantExpr) and e.rhs.value < 0:
        return restored(a, -e.rhs.value, Sub)
    if e.kind is AffineBinaryOpKind.Add and isinstance(e.rhs, AffineConstantExpr):
        return restored(a, e.rhs.value, Add)
    b = from_affine(e.rhs, dims, symbols, dtype)
    if e.kind is AffineBinaryOpKind.CeilDiv:
        return FloorDiv(Add(a, Sub(b, const(1, b.dtype))), b)
    nodes = {
        AffineBinaryOpKind.Add: Add,
        AffineBinaryOpKind.Mul: Mul,
        AffineBinaryOpKind.FloorDiv: FloorDiv,
        AffineBinaryOpKind.Mod: FloorMod,
    }
    return nodes[e.kind](a, b)


def restored(a: Expr, number: int, node: type[Add] | type[Sub]) -> Expr:
    """Returns ``a + number`` or ``a - number``; ``x`` where ``a`` is ``x`` with the number taken away or added."""
    opposite = Sub if node is Add else Add
    if isinstance(a, opposite) and isinstance(a.b, IntImm) and a.b.value == number:
        return a.a
    return node(a, const(number, a.dtype))


def plain_dim(e: AffineExpr) -> int | None:
    """Returns the number of the dimension that an expression is, None for any other expression."""
    return e.position if isinstance(e, AffineDimExpr) else None


def evaluated(map_: AffineMap, dims: Sequence[Expr], symbols: Sequence[Expr], dtype: DType) -> tuple[Expr, ...]:
    """Returns the results of a map. MlirError when it takes another number of values."""
    if len(dims) != map_.num_dims or len(symbols) != map_.num_symbols:
        raise MlirError(
            f"{map_} takes {map_.num_dims} and {map_.num_symbols} values, not {len(dims)} and {len(symbols)}"
        )
    return tuple([from_affine(e, dims, symbols, dtype) for e in map_.results])


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
