"""This package defines the loop IR, on which every other layer is built.

A program is made of expressions (:mod:`.expr`, their operations in :mod:`.op`, data types in :mod:`.dtype`), buffers
(:mod:`.buffer`), statements (:mod:`.stmt`), functions and modules (:mod:`.function`). All of them are immutable, and
:mod:`.walk` visits and rewrites them.

The other modules work on programs. They print them (:mod:`.printer`), parse them (:mod:`.parser`; :mod:`.script` is the
``T`` of programs written by hand), compare them and compute their keys (:mod:`.equal`), check them (:mod:`.verify`),
run them with a slow, simple interpreter (:mod:`.interpret`), reason about indices (:mod:`.arith`), tell what statements
access, in which order and under which conditions (:mod:`.analysis`), and count operations and bytes (:mod:`.cost`).
"""

from . import arith, op, walk
from .annotations import register_annotation
from .buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from .constants import const, convert, is_const_int
from .difference import assert_structural_equal
from .equal import structural_equal
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    Expr,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    LogicalOp,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from .function import IRModule, PrimFunc
from .interpret import InterpretError, interpret
from .parser import ParseError, parse
from .printer_expr import register_printer
from .program_key import structural_hash, workload_key
from .ranges import CommReducer, IterVar, Range, Reduce
from .stmt import (
    FOR_KINDS,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from .verify import VerifyError, verify

__all__ = [
    "Add", "Allocate", "And", "AssertStmt", "AttrStmt", "BinaryOp", "Block", "BlockRealize", "Broadcast", "Buffer",
    "BufferLoad", "BufferRegion", "BufferStore", "Call", "Cast", "CmpOp", "CommReducer", "Div", "EQ", "Evaluate",
    "Expr", "ExprLike", "FOR_KINDS", "FloatImm", "FloorDiv", "FloorMod", "For", "GE", "GT", "IRModule",
    "IfThenElse", "IntImm", "InterpretError", "IterVar", "LE", "LT", "Let", "LetStmt", "LogicalOp",
    "MatchBufferRegion", "Max", "Min", "Mul", "NE", "Not", "Or", "ParseError", "PrimExpr", "PrimFunc", "Ramp",
    "Range", "Reduce", "Select", "SeqStmt", "Shuffle", "Stmt", "StringImm", "Sub", "TruncDiv", "TruncMod", "Var",
    "VerifyError", "While", "arith", "assert_structural_equal", "const", "convert", "decl_buffer", "interpret",
    "is_const_int", "op", "parse", "register_annotation", "register_printer", "seq", "structural_equal", "structural_hash", "verify",
    "walk", "workload_key"
]  # fmt: skip
