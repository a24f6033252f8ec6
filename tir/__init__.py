"""This package defines the loop IR, on which every other layer is built.

A program is made of expressions (:mod:`.expr`, with data types, operations and reductions), and of buffers, statements
and functions (:mod:`.stmt`). All of them are immutable, and :mod:`.walk` visits and rewrites them.

The other modules work on programs. They print them (:mod:`.printer`), parse them (:mod:`.parser`; :mod:`.script` is the
``T`` of programs written by hand), compute their keys (:mod:`.program_key`), check them (:mod:`.verify`), run them with
a slow, simple interpreter (:mod:`.interpret`), reason about indices (:mod:`.arith`), tell what statements access, in
which order and under which conditions (:mod:`.analysis`), and count operations and bytes (:mod:`.cost`).
"""

# isort: skip_file
from typing import TYPE_CHECKING, Any

from . import arith, walk
from .annotations import register_annotation
from .difference import assert_structural_equal
from .expr import (
    EQ, GE, GT, LE, LT, NE, Add, And, BinaryOp, Broadcast, BufferLoad, Call, Cast, CmpOp, CommReducer, Div,
    Expr, ExprLike, FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, LogicalOp, Max, Min, Mul, Not, Or,
    PrimExpr, Ramp, Range, Reduce, Select, Shuffle, StringImm, Sub, TruncDiv, TruncMod, Var, const, convert,
    intrinsics, is_const_int, reducers, structural_equal,
)  # fmt: skip
from .expr.nodes import op
from .interpret import InterpretError, interpret
from .parser import ParseError, parse
from .printer.printer_expr import register_printer
from .program_key import structural_hash, workload_key
from .stmt import (
    FOR_KINDS, Allocate, AssertStmt, AttrStmt, Block, BlockRealize, Buffer, BufferRegion, BufferStore, Evaluate,
    For, IfThenElse, IRModule, LetStmt, MatchBufferRegion, PrimFunc, SeqStmt, Stmt, While, decl_buffer, seq,
)  # fmt: skip
from .verify import VerifyError, verify

__all__ = [
    "Add", "Allocate", "And", "AssertStmt", "AttrStmt", "BinaryOp", "Block", "BlockRealize", "Broadcast", "Buffer",
    "BufferLoad", "BufferRegion", "BufferStore", "Call", "Cast", "CmpOp", "CommReducer", "Div", "EQ", "Evaluate",
    "Expr", "ExprLike", "FOR_KINDS", "FloatImm", "FloorDiv", "FloorMod", "For", "GE", "GT", "IRModule",
    "IfThenElse", "IntImm", "InterpretError", "IterVar", "LE", "LT", "Let", "LetStmt", "LogicalOp",
    "MatchBufferRegion", "Max", "Min", "Mul", "NE", "Not", "Or", "ParseError", "PrimExpr", "PrimFunc", "Ramp",
    "Range", "Reduce", "Select", "SeqStmt", "Shuffle", "Stmt", "StringImm", "Sub", "TruncDiv", "TruncMod", "Var",
    "VerifyError", "While", "arith", "assert_structural_equal", "const", "convert", "decl_buffer", "interpret", "intrinsics",
    "is_const_int", "op", "parse", "reducers", "register_annotation", "register_printer", "seq", "structural_equal", "structural_hash", "verify",
    "walk", "workload_key"
]  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Programs for TVM look here for names of upper layers, such as ``tir.Schedule``; they load when asked for."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from ..tvm_names import tir_names
        except ModuleNotFoundError as error:  # a part of the library without its upper layers
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
        return tir_names.word(name)
