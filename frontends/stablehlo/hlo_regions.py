"""This module looks at the small functions that reductions, windows, scatters and sorts carry."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value, same_shape
from ...tir.expr import DType, max_identity, min_identity
from .hlo_call import Given, HloCall
from .known_arrays import Known

COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def meaning(region: Any) -> str:
    """Returns the name of the one operation that a region applies to its two arguments. It is ``second`` where the
    region returns its second argument, and an empty text for other regions."""
    (block,) = region.blocks
    *items, end = [item.operation for item in block.operations]
    if len(block.arguments) != 2 or len(end.operands) != 1:
        return ""
    if not items:
        return "second" if end.operands[0] == block.arguments[1] else ""
    (only, *more) = items
    name = str(only.name).removeprefix("stablehlo.")
    if more or name not in COMMUTATIVE or end.operands[0] != only.results[0]:
        return ""
    straight = list(only.operands) in (list(block.arguments), list(reversed(list(block.arguments))))
    return name if straight else ""


def neutral(name: str, dtype: str) -> Any:
    """Returns the number that does not change the other operand; None where there is none."""
    kind = DType(dtype)
    if name in ("add", "or", "xor"):
        return 0
    if name == "multiply":
        return 1
    if name == "and":
        return 1 if kind.is_bool else -1
    if name not in ("maximum", "minimum"):
        return None
    return max_identity(dtype) if name == "maximum" else min_identity(dtype)


def is_neutral(c: HloCall, name: str, given: Given) -> bool:
    """Returns whether a start value is known to be the neutral one."""
    data = given.data if isinstance(given, Known) else c.builder.constants.get(given)
    if data is None or data.dtype == object or data.size != 1 or given.dtype == "bfloat16":
        return False
    wanted = neutral(name, given.dtype)
    number = data.item()
    return wanted is not None and (number == wanted or (name == "and" and number in (wanted, True)))


def applied(c: HloCall, region: Any, args: list[Value]) -> list[Value]:
    """Returns the results of a region of single elements, applied to arrays of one shape element by element."""
    shape = args[0].shape
    out = []
    for r in c.run(region, *args):
        v = c.value(r)
        out.append(v if same_shape(v.shape, shape) else c.broadcast(v, shape))
    return out
