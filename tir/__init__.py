"""This package defines the loop IR, on which every other layer is built.

A program is made of expressions (:mod:`.expr`, with data types, operations and reductions), and of buffers, statements
and functions (:mod:`.stmt`). All of them are immutable, and :mod:`.walk` visits and rewrites them.

The other modules work on programs. They print them (:mod:`.printer`), parse them (:mod:`.parser`; :mod:`.script` is the
``T`` of programs written by hand), compute their keys (:mod:`.program_key`), check them (:mod:`.verify`), run them with
a slow, simple interpreter (:mod:`.interpret`), reason about indices (:mod:`.arith`), tell what statements access, in
which order and under which conditions (:mod:`.analysis`), and count operations and bytes (:mod:`.cost`).

Nodes are compared by identity. Each class declares its parts: what it holds, uses and defines, in the order of evaluation and of
scopes; walks, copies, comparisons and the scopes of the verifier are made from that. ``structural_equal`` tells whether programs
differ only in names, ``same`` whether two expressions always have the same value, ``workload_key`` is a hash in which names do not
count, and ``program_key`` one in which the names of blocks do. Printed text is never compared. The docstring of :mod:`.verify`
numbers what is true of every valid program. :mod:`.index_width` makes a program int64 where int32 is too small for one index of it, :mod:`.storage_types`
turns int4 and float8 into bytes, and :mod:`.annotations` lists the annotations that a pass or a primitive reads. A recursive walk is written as a class, not as a closure:
a closure that refers to itself is freed only by the garbage collector.
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
from .expr import op
from .interpret import InterpretError, interpret
from .parser import ParseError, parse
from .printer_expr import register_printer
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
