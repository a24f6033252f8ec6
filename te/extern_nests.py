"""This module makes the block of an operation that is given by statements."""

from __future__ import annotations

from typing import Any

from ..tir.expr import const
from ..tir.stmt import Block, BlockRealize, Buffer, Stmt
from ..tir.walk import replace_buffers, transform
from .create_prim_func import NESTS, NestBuilder, unique_name
from .operation import ExternOp


def _with_unique_blocks(builder: NestBuilder, body: Stmt) -> Stmt:
    """Returns ``body`` with block names that are different from the existing ones."""

    def post(n: Any) -> Any:
        if isinstance(n, Block):
            name = unique_name(builder.block_names, n.name_hint)
            return None if name == n.name_hint else n.with_(name_hint=name)
        return None

    out: Stmt = transform(body, post=post)
    return out


def _extern(builder: NestBuilder, op: ExternOp) -> list[Stmt]:
    mapping = {
        inner: builder.buffers[t]
        for inner, t in zip(op.input_placeholders, op.inputs, strict=True)
        if inner is not builder.buffers[t]
    }
    for inner, t in zip(op.output_placeholders, op.outputs, strict=True):
        if inner is not builder.buffers[t]:
            mapping[inner] = builder.buffers[t]
    reads = tuple([builder.buffers[t].full_region() for t in op.inputs])
    writes = tuple([builder.buffers[t].full_region() for t in op.outputs])
    body: Any = replace_buffers(op.body, mapping)
    allocs: tuple[Buffer, ...] = ()
    if isinstance(body, BlockRealize) and not body.block.iter_vars and not body.block.reads + body.block.writes:
        body, allocs = body.block.body, body.block.alloc_buffers  # a function's root
    body = _with_unique_blocks(builder, body)
    name = builder.block_name(op, op.name)
    block = Block((), reads, writes, name, body, None, allocs, (), dict(op.attrs))
    return [BlockRealize((), const(True, "bool"), block)]


NESTS[ExternOp] = _extern
