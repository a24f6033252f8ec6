"""The loop IR: the ground that every other layer stands on.

What a program is made of: expressions (:mod:`.expr`, their operations in :mod:`.op`, data types in :mod:`.dtype`),
buffers (:mod:`.buffer`), statements (:mod:`.stmt`), functions and modules (:mod:`.function`). All of them are immutable
and walked in one way (:mod:`.walk`).

What can be done with it: print (:mod:`.printer`) and parse (:mod:`.parser`; :mod:`.script` is the ``T`` of programs
written by hand), compare and identify (:mod:`.equal`), check (:mod:`.verify`), run slowly and obviously
(:mod:`.interpret`), reason about indices (:mod:`.arith`), find what a block touches (:mod:`.regions`), count its work
(:mod:`.cost`).
"""

from . import arith, op, walk
from .annotations import register_annotation
from .buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from .equal import assert_structural_equal, structural_equal, structural_hash, workload_key
from .expr import *  # noqa: F403
from .function import IRModule, PrimFunc
from .interpret import InterpretError, interpret
from .parser import ParseError, parse
from .printer import register_printer
from .stmt import *  # noqa: F403
from .verify import VerifyError, verify

__all__ = [  # noqa: F405
    "Add", "Allocate", "And", "AssertStmt", "AttrStmt", "BinaryOp", "Block", "BlockRealize", "Broadcast", "Buffer",
    "BufferLoad", "BufferRegion", "BufferStore", "Call", "Cast", "CmpOp", "CommReducer", "Div", "EQ", "Evaluate",
    "Expr", "ExprLike", "FOR_KINDS", "FloatImm", "FloorDiv", "FloorMod", "For", "GE", "GT", "IRModule",
    "IfThenElse", "IntImm", "InterpretError", "IterVar", "LE", "LT", "Let", "LetStmt", "LogicalOp",
    "MatchBufferRegion", "Max", "Min", "Mul", "NE", "Not", "Or", "ParseError", "PrimExpr", "PrimFunc", "Ramp",
    "Range", "Reduce", "Select", "SeqStmt", "Shuffle", "Stmt", "StringImm", "Sub", "TruncDiv", "TruncMod", "Var",
    "VerifyError", "arith", "assert_structural_equal", "const", "convert", "decl_buffer", "interpret",
    "is_const_int", "op", "parse", "register_annotation", "register_printer", "seq", "structural_equal", "structural_hash", "verify",
    "walk", "workload_key"
]  # fmt: skip
