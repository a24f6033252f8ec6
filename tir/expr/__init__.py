"""This package defines expressions, and what holds for all nodes of the IR.

:mod:`.dtype` has data types, and :mod:`.node` says what a node declares. :mod:`.nodes` has the classes of
expressions, :mod:`.op` ranges, axes and the functions that build expressions. :mod:`.intrinsics` has one row for each
operation that a call names, :mod:`.reducers` one for each reduction. :mod:`.traversal` visits and rewrites nodes of all
kinds, and :mod:`.equal` compares them.
"""

# isort: skip_file
from .dtype import INDEX, INT64, DType, array_bytes, max_identity, max_value, min_identity, min_value, promote, to_numpy
from .node import Reason
from .equal import BUFFER_VALUES, Comparison, plain, same, structural_equal, value_key
from .op import FOLDED, make_binary, match_types
from .op import conjuncts, logical_not, negate
from .op import as_exprs, cast, const, convert, is_const_int
from .nodes import EQ, GE, GT, LE, LT, NE, Add, And, BinaryOp, Broadcast, BufferLoad, Call, Cast, CmpOp, Div, Expr, ExprLike, FloatImm, FloorDiv, FloorMod, IntImm, Let, LogicalOp, Max, Min, Mul, Not, Or, PrimExpr, Ramp, Select, Shuffle, StringImm, Sub, TruncDiv, TruncMod, Var  # fmt: skip
from .op import INDEX_TYPES, index_like
from .op import all_, any_, ceildiv, div, floordiv, floormod, infinity, max_, max_value_of, min_, min_value_of, not_, select, truncdiv, truncmod  # fmt: skip
from .op import CommReducer, IterVar, Range, Reduce
from .op import WIDE, index_dtype, product, shape_text
from .traversal import distinct, pre_order, reads_memory, substitute, transform, uses_var, vars_in

__all__ = [
    "Add", "And", "BUFFER_VALUES", "BinaryOp", "Broadcast", "BufferLoad", "Call", "Cast", "CmpOp",
    "CommReducer", "Comparison", "DType", "Div", "EQ", "Expr", "ExprLike", "FOLDED", "FloatImm", "FloorDiv",
    "FloorMod", "GE", "GT", "INDEX", "INDEX_TYPES", "INT64", "IntImm", "IterVar", "LE", "LT", "Let",
    "LogicalOp", "Max", "Min", "Mul", "NE", "Not", "Or", "PrimExpr", "Ramp", "Range", "Reason", "Reduce",
    "Select", "Shuffle", "StringImm", "Sub", "TruncDiv", "TruncMod", "Var", "WIDE", "all_", "any_", "array_bytes", "as_exprs",
    "cast", "ceildiv", "conjuncts", "const", "convert", "distinct", "div", "floordiv", "floormod",
    "index_dtype", "index_like", "infinity", "is_const_int", "logical_not", "make_binary", "match_types",
    "max_", "max_identity", "max_value", "max_value_of", "min_", "min_identity", "min_value", "min_value_of", "negate", "not_", "plain",
    "pre_order", "product", "promote", "reads_memory", "same", "select", "shape_text", "structural_equal",
    "substitute", "to_numpy", "transform", "truncdiv", "truncmod", "uses_var", "value_key", "vars_in",
]  # fmt: skip
