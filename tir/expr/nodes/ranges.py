"""This module defines ranges and axes, and the reductions over axes that te's expressions hold."""

from __future__ import annotations

from ..base.dtype import DType
from ..base.node import Part, apart, binds, counts, holds, node, nodes
from ..base.operators import Operators
from .constants import const, convert
from .expr import Expr, ExprLike, Var


@node
class Range(Part):
    """Represents the half-open interval ``[min, min + extent)``."""

    min: Expr
    extent: Expr

    parts = counts("min", "extent")

    @staticmethod
    def from_extent(extent: ExprLike) -> Range:
        """Return the range ``[0, extent)``."""
        extent = convert(extent)
        return Range(const(0, extent.dtype), extent)

    @staticmethod
    def from_min_extent(minimum: ExprLike, extent: ExprLike) -> Range:
        """Return the range ``[minimum, minimum + extent)``."""
        return Range(convert(minimum), convert(extent))


@node
class IterVar(Operators, Part):
    """Represents an axis: a variable, its domain, and its kind (spatial, reduce, opaque, scan or thread)."""

    dom: Range
    var: Var
    kind: str = "spatial"
    thread_tag: str = ""

    parts = holds("dom") + binds("var")

    SPATIAL = "spatial"
    REDUCE = "reduce"
    OPAQUE = "opaque"
    SCAN = "scan"
    THREAD = "thread"

    def __tir_expr__(self) -> Var:
        """Return the variable, for which the axis may stand, as in TVM's te: ``A[i, k]`` with ``k`` a reduce_axis."""
        return self.var


@node
class CommReducer(Part):
    """Represents a commutative, associative operation on tuples: ``result`` of ``lhs`` and ``rhs``, and its identity
    element."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity_element: tuple[Expr, ...]

    parts = binds("lhs", "rhs") + nodes("result", "identity_element")


@node
class Reduce(Expr):
    """Represents a reduction inside a te expression; ``create_prim_func`` turns it into a block with an init.

    ``source`` is a tuple (one element for a plain reduction); the value of the expression is the result number
    ``value_index``.
    """

    combiner: CommReducer
    source: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int = 0
    init: tuple[Expr, ...] = ()

    parts = apart("combiner", "axis") + nodes("source", "condition", "init")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.source[self.value_index].dtype
