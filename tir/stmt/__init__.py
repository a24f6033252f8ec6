"""This package defines what programs are made of besides expressions: buffers, statements, functions and modules."""

# isort: skip_file
from .buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from .function import IRModule, PrimFunc, root_block
from .statement_walks import blocks_of, loads_and_stores, statements
from .stmt import (
    FOR_KINDS, Allocate, AssertStmt, AttrStmt, Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse,
    LetStmt, SeqStmt, Stmt, While, below_assertions, children_of, is_no_op, seq, statements_in,
)  # fmt: skip

__all__ = [
    "FOR_KINDS", "Allocate", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "Buffer", "BufferRegion", "BufferStore",
    "Evaluate", "For", "IRModule", "IfThenElse", "LetStmt", "MatchBufferRegion", "PrimFunc", "SeqStmt", "Stmt", "While",
    "below_assertions", "blocks_of", "children_of", "decl_buffer", "is_no_op", "loads_and_stores", "root_block", "seq", "statements",
    "statements_in",
]  # fmt: skip
