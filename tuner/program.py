"""A function as the schedule rules see it: its blocks, their axes, what they read and write, and who feeds whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..tir.buffer import Buffer
from ..tir.dtype import bytes_of
from ..tir.expr import Add, BinaryOp, BufferLoad, Call, Cast, CmpOp, Div, Expr, IntImm, LogicalOp, Mul, Sub, Var
from ..tir.function import PrimFunc
from ..tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt
from ..tir.walk import pre_order

__all__ = ["BlockInfo", "Program", "Use", "affine"]


def affine(expr: Expr) -> dict[Var, int] | None:
    """The coefficients of an affine index, without its constant; None when it is not affine.

    >>> i = Var("i")
    >>> list(affine(i * 2 + 1).values())
    [2]
    """
    if isinstance(expr, Var):
        return {expr: 1}
    if isinstance(expr, IntImm):
        return {}
    if isinstance(expr, Cast):
        return affine(expr.value)
    if isinstance(expr, (Add, Sub)):
        a, b = affine(expr.a), affine(expr.b)
        if a is None or b is None:
            return None
        sign = 1 if isinstance(expr, Add) else -1
        out = dict(a)
        for var, factor in b.items():
            out[var] = out.get(var, 0) + sign * factor
        return out
    if isinstance(expr, Mul):
        for constant, other in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(constant, IntImm):
                inner = affine(other)
                return None if inner is None else {v: c * constant.value for v, c in inner.items()}
    return None


@dataclass(frozen=True)
class Use:
    """A load or store: the buffer and, per dimension, the coefficients of the block's axes (None: not affine)."""

    buffer: Buffer
    dims: tuple[Mapping[Var, int] | None, ...]

    @property
    def affine(self) -> bool:
        """Whether every index is affine."""
        return all(dim is not None for dim in self.dims)

    def axes(self) -> set[Var]:
        """The axes in the indices; those of a non-affine index are not known."""
        return {var for dim in self.dims if dim for var, factor in dim.items() if factor}

    def stride(self, axis: Var) -> int | None:
        """How many elements one step of ``axis`` moves; None when that is not known."""
        total, stride = 0, 1
        for dim, extent in zip(reversed(self.dims), reversed(self.buffer.shape), strict=True):
            if dim is None or not isinstance(extent, IntImm):
                return None
            total += dim.get(axis, 0) * stride
            stride *= extent.value
        return total

    def dim_of(self, axis: Var) -> int | None:
        """The dimension whose index is exactly ``axis`` and where alone it appears, or None."""
        where = [n for n, dim in enumerate(self.dims) if dim is not None and dim.get(axis)]
        if len(where) == 1 and dict(self.dims[where[0]] or {}) == {axis: 1}:
            return where[0]
        return None


class BlockInfo:
    """A leaf block of the program."""

    def __init__(self, realize: BlockRealize) -> None:
        self.realize = realize
        self.block: Block = realize.block
        self.name = self.block.name_hint
        self.axes = tuple(iv.var for iv in self.block.iter_vars)
        self.extents = {
            iv.var: iv.dom.extent.value if isinstance(iv.dom.extent, IntImm) else 0 for iv in self.block.iter_vars
        }
        self.spatial = tuple(iv.var for iv in self.block.iter_vars if iv.kind == "spatial")
        self.reduce = tuple(iv.var for iv in self.block.iter_vars if iv.kind == "reduce")

    def __repr__(self) -> str:
        return f"BlockInfo({self.name})"

    @property
    def is_reduction(self) -> bool:
        """Whether the block reduces."""
        return bool(self.reduce)

    @cached_property
    def stores(self) -> tuple[Use, ...]:
        """What the body writes."""
        return tuple(
            Use(n.buffer, tuple(affine(i) for i in n.indices))
            for n in pre_order(self.block.body) if isinstance(n, BufferStore)
        )  # fmt: skip

    @cached_property
    def loads(self) -> tuple[Use, ...]:
        """What the body reads, the accumulator of a reduction left out; a buffer read twice alike counts once."""
        own = {use.buffer for use in self.stores} if self.is_reduction else set()
        seen: set[object] = set()
        out: list[Use] = []
        for node in pre_order(self.block.body):
            if isinstance(node, BufferLoad) and node.buffer not in own:
                key = (node.buffer, str(node.indices))
                if key not in seen:
                    seen.add(key)
                    out.append(Use(node.buffer, tuple(affine(i) for i in node.indices)))
        return tuple(out)

    @cached_property
    def operations(self) -> int:
        """Arithmetic operations of one instance; functions such as exp, divisions and roots count as what their code
        comes to, conditions (which masks or hoisted tests take care of) not at all."""
        count = 0
        for node in self._value_nodes():
            if isinstance(node, Call):
                count += _OPERATIONS.get(node.op.split(".")[-1], 1)
            elif isinstance(node, Div):
                count += 12
            elif isinstance(node, BinaryOp) and not isinstance(node, (CmpOp, LogicalOp)):
                count += 1
        return max(1, count)

    def _value_nodes(self) -> Iterator[object]:
        for node in pre_order(self.block.body):
            if isinstance(node, BufferStore):
                yield from _computed(node.value)

    @cached_property
    def spatial_size(self) -> int:
        """Instances per reduction step."""
        return math.prod(self.extents[v] for v in self.spatial)

    @cached_property
    def reduce_size(self) -> int:
        """Reduction steps per output element."""
        return math.prod(self.extents[v] for v in self.reduce)

    @property
    def flops(self) -> float:
        """Operations of the whole block."""
        return float(self.operations) * self.spatial_size * self.reduce_size

    @cached_property
    def itemsize(self) -> int:
        """Bytes of the widest element it touches: by loads and stores, else (as functions that it calls do) in its regions."""
        touched = [use.buffer for use in (*self.stores, *self.loads)]
        named = [region.buffer for region in (*self.block.writes, *self.block.reads)]
        return max([bytes_of(buffer.dtype) for buffer in touched or named], default=1)

    @cached_property
    def writes_in_order(self) -> bool:
        """Whether it writes one buffer at exactly its spatial axes, in order."""
        if len({use.buffer for use in self.stores}) != 1:
            return False
        dims = self.stores[0].dims
        return len(dims) == len(self.spatial) and all(
            dim is not None and dict(dim) == {axis: 1} for dim, axis in zip(dims, self.spatial, strict=True)
        )


_OPERATIONS = {
    "sqrt": 12, "rsqrt": 12, "exp": 20, "exp2": 20, "exp10": 24, "log": 24, "log2": 24, "log10": 26, "log1p": 32,
    "expm1": 32, "sin": 36, "cos": 36, "tan": 48, "tanh": 34, "sinh": 40, "cosh": 40, "erf": 36, "sigmoid": 42,
    "pow": 60, "atan": 32, "atan2": 40, "asin": 36, "acos": 36,
}  # fmt: skip
"""Vector instructions that a function of float32 is lowered to, about."""


def _computed(value: Expr) -> Iterator[object]:
    """The nodes of ``value`` that cost arithmetic: no indices, no conditions."""

    def inside(node: object) -> bool:
        return not isinstance(node, BufferLoad) and not (isinstance(node, Call) and node.op == "tir.if_then_else")

    for node in pre_order(value, inside):
        yield node
        if isinstance(node, Call) and node.op == "tir.if_then_else":
            for chosen in node.args[1:]:
                yield from _computed(chosen)


class Program:
    """The leaf blocks of ``func`` in program order, under plain loop nests of their own."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.blocks: tuple[BlockInfo, ...] = ()
        self.regular = True
        root = func.body
        if not isinstance(root, BlockRealize) or root.block.iter_vars:
            self.regular = False
            return
        blocks: list[BlockInfo] = []
        body = root.block.body
        for stmt in body.seq if isinstance(body, SeqStmt) else (body,):
            loops = []
            while isinstance(stmt, For):
                loops.append(stmt)
                stmt = stmt.body
            if not isinstance(stmt, BlockRealize) or any(
                isinstance(n, BlockRealize) for n in pre_order(stmt.block.body)
            ):
                self.regular = False
                return
            info = BlockInfo(stmt)
            plain = all(v is loop.loop_var for v, loop in zip(stmt.iter_values, loops, strict=False))
            constant = all(info.extents[v] > 0 for v in info.axes)
            if len(loops) != len(info.axes) or not plain or not constant:
                self.regular = False
            blocks.append(info)
        self.blocks = tuple(blocks)
        self.regular = self.regular and len({b.name for b in blocks}) == len(blocks)

    @cached_property
    def writer(self) -> dict[Buffer, BlockInfo]:
        """Who writes each buffer (the last one, when several do)."""
        return {use.buffer: b for b in self.blocks for use in b.stores}

    @cached_property
    def outputs(self) -> set[Buffer]:
        """Parameters that are written."""
        return {buffer for buffer in self.func.buffers if buffer in self.writer}

    def producers(self, block: BlockInfo) -> list[BlockInfo]:
        """The blocks whose results ``block`` reads, in program order."""
        read = {use.buffer for use in block.loads}
        return [b for b in self.blocks if b is not block and any(use.buffer in read for use in b.stores)]

    def consumers(self, block: BlockInfo) -> list[BlockInfo]:
        """The blocks that read what ``block`` writes, in program order."""
        written = {use.buffer for use in block.stores}
        return [b for b in self.blocks if b is not block and any(use.buffer in written for use in b.loads)]

    def is_output(self, block: BlockInfo) -> bool:
        """Whether the block writes a parameter."""
        return any(use.buffer in self.outputs for use in block.stores)
