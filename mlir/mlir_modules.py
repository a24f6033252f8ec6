"""Makes whole modules of MLIR from functions, and functions with blocks from texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from ..tir.analysis.regions import access_regions
from ..tir.expr import BufferLoad, Expr, FloatImm, IntImm, IterVar, Range, Var, const, same, substitute, uses_var
from ..tir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    root_block,
    seq,
)
from ..tir.verify import VerifyError, verify
from ..tir.walk import pre_order
from .linalg_reader import read_linalg
from .linalg_writer import linalg_function
from .loop_reader import read_loops
from .loop_writer import LOWERED, loop_function
from .mlir_error import MlirError
from .wider_operations import context

_DAMAGED = (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)
"""What xDSL and readers raise for texts that do not hang together."""


def linalg_module(functions: Sequence[PrimFunc], named: bool = False) -> B.ModuleOp:
    """Returns a verified module of functions on tensors, from functions as te makes them."""
    return _verified([linalg_function(f, named) for f in functions])


def loop_module(functions: Sequence[PrimFunc]) -> B.ModuleOp:
    """Returns a verified module of functions over memory, from lowered functions."""
    return _verified([loop_function(f) for f in functions])


def _verified(ops: list[func.FuncOp]) -> B.ModuleOp:
    module = B.ModuleOp(ops)
    module.verify()
    return module


def read_functions(source: Any, blocks: bool | None = None) -> list[PrimFunc]:
    """Returns the functions of a text or of a module of xDSL, in order.

    ``blocks`` says whether loops over memory become blocks, which a schedule needs; None: where they were not lowered here.
    """
    module = _parsed(source) if isinstance(source, str) else source
    if not isinstance(module, B.ModuleOp):
        raise TypeError(f"expected the text of an MLIR module, or a module of xDSL, not {type(source).__name__}")
    out = []
    for op in module.ops:
        if not isinstance(op, func.FuncOp):
            raise MlirError(f"the module holds {op.name}; functions of the dialect func are read")
        if op.body.blocks:
            out.append(_function(op, blocks))
    if not out:
        raise MlirError("the module has no function with a body")
    return out


def _parsed(text: str) -> B.ModuleOp:
    try:
        module = Parser(context(), text, "MLIR").parse_module()
        module.verify()
    except (ParseError, VerifyException) as error:
        raise MlirError(f"no valid MLIR of the dialects that are read here: {str(error).strip()}") from None
    except _DAMAGED as error:
        raise MlirError(f"no valid MLIR: {type(error).__name__}: {error}") from None  # xDSL's parser on damaged texts
    assert isinstance(module, B.ModuleOp)
    return module


def _function(op: func.FuncOp, blocks: bool | None) -> PrimFunc:
    kinds = [*op.function_type.inputs, *op.function_type.outputs]
    on_memory = any(isinstance(k, B.MemRefType) for k in kinds)
    name = op.sym_name.data
    try:
        out = read_loops(op) if on_memory else read_linalg(op)
        if on_memory and (LOWERED not in op.attributes if blocks is None else blocks):
            out = with_blocks(out)
        verify(out)
    except (MlirError, VerifyError) as error:
        text = str(error)
        raise MlirError(text if name in text else f"function {name}: {text}") from None
    except _DAMAGED as error:
        raise MlirError(f"function {name} does not hang together: {type(error).__name__}: {error}") from error
    return out


# Gives plain loops blocks, so that they can be scheduled: one block for each statement inside loops.
#
# An axis is spatial where every iteration writes another place, and reduces where the statement updates one place. A store
# of a constant before the loops that update the same place becomes the init.


def with_blocks(func: PrimFunc) -> PrimFunc:
    """Returns a function of plain loops with a block around each statement inside them."""
    maker = _Maker()
    body = maker.within(func.body, [])
    return func.with_body(root_block("root", body, tuple(maker.allocated)))


class _Maker:
    def __init__(self) -> None:
        self.allocated: list[Buffer] = []
        self.names: set[str] = {"root"}

    def within(self, s: Stmt, loops: list[For]) -> Stmt:
        """Returns a statement within loops, with blocks."""
        if isinstance(s, For):
            return s.with_(body=self.within(s.body, [*loops, s]))
        if isinstance(s, Allocate):
            self.allocated.append(s.buffer)
            return self.within(s.body, loops)
        if isinstance(s, AssertStmt) and not loops:
            return s.with_(body=self.within(s.body, loops))
        if isinstance(s, SeqStmt):
            return self.sequence(list(s.seq), loops)
        return self.block(s, loops, None)

    def sequence(self, parts: list[Stmt], loops: list[For]) -> Stmt:
        out: list[Stmt] = []
        while parts:
            first = parts.pop(0)
            update = _update_of(first, parts[0]) if parts else None
            if update is not None:
                nest, store = update
                made: Stmt = self.block(store, [*loops, *nest], first, len(loops))
                for loop in reversed(nest):
                    made = loop.with_(body=made)
                out.append(made)
                parts.pop(0)
            else:
                out.append(self.within(first, loops))
        return seq(*out)

    def block(self, s: Stmt, loops: list[For], init: Stmt | None, outer: int = 0) -> BlockRealize:
        """Returns the block of a statement; ``init`` runs anew in each iteration of the first ``outer`` loops."""
        kinds = _kinds(s, [loop.loop_var for loop in loops])
        kinds[:outer] = [IterVar.OPAQUE if kind == IterVar.REDUCE else kind for kind in kinds[:outer]]
        mine = {loop.loop_var: Var(f"v_{loop.loop_var.name}", loop.loop_var.dtype) for loop in loops}
        axes = tuple([
            IterVar(Range(loop.min, loop.extent), mine[loop.loop_var], kind)
            for loop, kind in zip(loops, kinds, strict=True)
        ])  # fmt: skip
        values: tuple[Expr, ...] = tuple([loop.loop_var for loop in loops])
        if not axes:
            axes, values = (IterVar(Range(const(0), const(1)), Var("vi")),), (const(0),)
        body, begin = substitute(s, mine), None if init is None else substitute(init, mine)
        reads, writes = access_regions(body, begin)
        name, n = (wish := writes[0].buffer.name if writes else "statement"), 1
        while name in self.names:
            name, n = f"{wish}_{n}", n + 1
        self.names.add(name)
        return BlockRealize(values, const(True, "bool"), Block(axes, reads, writes, name, body, begin))


def _update_of(first: Stmt, second: Stmt) -> tuple[list[For], BufferStore] | None:
    """Returns the loops and the update of a reduction that ``first`` begins and ``second`` is."""
    nest: list[For] = []
    while isinstance(second, For):
        nest.append(second)
        second = second.body
    if not (nest and isinstance(first, BufferStore) and isinstance(second, BufferStore)):
        return None
    if first.buffer is not second.buffer or not isinstance(first.value, (IntImm, FloatImm)):
        return None
    if not all(map(same, first.indices, second.indices)) or not all(n.kind == "serial" for n in nest):
        return None
    kinds = _kinds(second, [n.loop_var for n in nest])
    empty = any(not isinstance(n.extent, IntImm) or n.extent.value < 1 for n in nest)
    return None if empty or any(k != IterVar.REDUCE for k in kinds) else (nest, second)


def _kinds(s: Stmt, vars: list[Var]) -> list[str]:
    """Returns the kinds of the axes of a statement; opaque where nothing is known."""
    opaque = [IterVar.OPAQUE] * len(vars)
    if not isinstance(s, BufferStore):
        return opaque
    own = [n for n in pre_order(s.value) if isinstance(n, BufferLoad) and n.buffer.data is s.buffer.data]
    if any(not all(map(same, load.indices, s.indices)) for load in own):
        return opaque
    out = []
    for var in vars:
        if any(index is var for index in s.indices):
            out.append(IterVar.SPATIAL)
        elif own and not any(uses_var(index, var) for index in s.indices):
            out.append(IterVar.REDUCE)
        else:
            return opaque
    return out
