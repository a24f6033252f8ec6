"""This module reads what functions on tensors and on memory have in common: parameters, sizes, attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func
from xdsl.ir import Attribute, SSAValue

from ....tir.expr import DType, Expr, Var, const
from ....tir.stmt import Buffer
from ..words.affine_indices import evaluated
from ..words.mlir_error import MlirError
from ..words.mlir_types import dtype_of, is_dynamic, plain_value, signed_like
from ..words.signatures import ATTRIBUTES, INDEX_TYPE, SHAPE, SYMBOL, USUAL


@dataclass
class Arguments:
    """The arguments of a function as buffers and scalars, by their values, and the names that are taken."""

    op: func.FuncOp
    index: DType
    found: dict[SSAValue, Any] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def where(self) -> str:
        """What errors call the function."""
        return f"function {self.op.sym_name.data}"

    def name(self, value: SSAValue, usual: str) -> str:
        """Returns a name for a value that nothing else has: its own in the text, or ``usual``."""
        wish = value.name_hint or usual
        out, n = wish, 1
        while out in self.taken:
            out, n = f"{wish}_{n}", n + 1
        self.taken.add(out)
        return out

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes that the function has in TIR."""
        given = self.op.attributes.get(ATTRIBUTES)
        return {"global_symbol": self.op.sym_name.data, **(USUAL if given is None else plain_value(given))}


def read_arguments(op: func.FuncOp, same_size: Callable[[tuple[SSAValue, int]], Any]) -> Arguments:
    """Returns the arguments. ``same_size`` returns a key that is equal for sizes that are known to be equal."""
    index = DType("int64") if op.attributes.get(INDEX_TYPE) == B.i64 else DType("int32")
    out = Arguments(op, index)
    given: Any = op.arg_attrs.data if op.arg_attrs is not None else ()
    attrs: list[Mapping[str, Attribute]] = [d.data for d in given] or [{} for _ in op.body.block.args]
    symbols: dict[int, Var] = {}
    for value, own in zip(op.body.block.args, attrs, strict=True):
        if not isinstance(value.type, (B.TensorType, B.MemRefType)):
            var = Var(out.name(value, "n"), signed_like(dtype_of(value.type), own))
            out.found[value] = var
            if SYMBOL in own:
                symbols[plain_value(own[SYMBOL])] = var
    sizes: dict[Any, Var] = {}

    def size(value: SSAValue, n: int) -> Expr:
        key = same_size((value, n))
        if key not in sizes:
            sizes[key] = Var(f"{'mnpqrstuvw'[len(sizes) % 10]}{len(sizes) // 10 or ''}", index)
        return sizes[key]

    for value, own in zip(op.body.block.args, attrs, strict=True):
        kind = value.type
        if not isinstance(kind, (B.TensorType, B.MemRefType)):
            continue
        if SHAPE in own:
            map_: Any = own[SHAPE]
            for n in range(map_.data.num_symbols):
                symbols.setdefault(n, Var(f"n{n}", index))
            shape = evaluated(map_.data, (), [symbols[n] for n in range(map_.data.num_symbols)], index)
        else:
            shape = tuple([size(value, n) if is_dynamic(s) else const(s, index) for n, s in enumerate(kind.get_shape())])  # fmt: skip
        if len(shape) != len(kind.get_shape()):
            raise MlirError(f"{out.where}: {SHAPE} of an argument has {len(shape)} sizes for the type {kind}")
        out.found[value] = Buffer(out.name(value, "A"), shape, signed_like(dtype_of(kind.element_type), own))
    return out
