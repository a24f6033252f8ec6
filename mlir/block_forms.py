"""This module takes apart the blocks that te makes: axes, and for each result its init and its value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..tir.expr import Expr, IntImm, IterVar, Var, is_const_int, same, substitute
from ..tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
    children_of,
)
from .mlir_error import MlirError


@dataclass(frozen=True)
class Result:
    """One result of a block: ``buffer[indices] = value``, beginning with ``init``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    init: Expr | None


@dataclass(frozen=True)
class BlockForm:
    """A block over ``axes``, or several blocks of one nest, with their results. ``lets`` are computed first."""

    name: str
    axes: tuple[IterVar, ...]
    lets: tuple[tuple[Var, Expr], ...]
    results: tuple[Result, ...]
    annotations: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """A function as te makes it: conditions that have to hold, and blocks in order."""

    checks: tuple[AssertStmt, ...]
    blocks: tuple[BlockForm, ...]


def program_of(func: PrimFunc) -> Program:
    """Returns the blocks of a function. MlirError names the first one that is not as te makes it."""
    root = func.body
    if not isinstance(root, BlockRealize) or root.block.iter_vars:
        raise MlirError(f"{func.name} has no blocks; form='loops' writes loops")
    body: Stmt = root.block.body
    checks = []
    while isinstance(body, AssertStmt):
        checks.append(body)
        body = body.body
    nests = children_of(body)
    return Program(tuple(checks), tuple([_nest(s) for s in nests if not isinstance(s, Evaluate)]))


def _nest(stmt: Stmt) -> BlockForm:
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    parts = children_of(stmt)
    forms = []
    for part in parts:
        if not isinstance(part, BlockRealize):
            raise MlirError(f"a nest of loops holds {type(part).__name__} where te has a block; form='loops' writes it")
        forms.append(_form(part, loops))
    return forms[0] if len(forms) == 1 else _joined(forms)


def _form(realize: BlockRealize, loops: list[For]) -> BlockForm:
    block = realize.block
    where = f"block {block.name}"
    if block.alloc_buffers or block.match_buffers or not is_const_int(realize.predicate, 1):
        raise MlirError(f"{where} has a predicate or buffers of its own; linalg has neither, form='loops' writes it")
    if not loops and len(block.iter_vars) == 1 and is_const_int(realize.iter_values[0], 0):
        block = _without_axis(block)
    elif len(loops) != len(block.iter_vars):
        raise MlirError(f"{where} has {len(block.iter_vars)} axes in {len(loops)} loops; form='loops' writes it")
    for loop, axis, value in zip(loops, block.iter_vars, realize.iter_values, strict=False):
        if value is not loop.loop_var or loop.kind != "serial" or loop.annotations:
            raise MlirError(f"{where}: the loop {loop.loop_var.name} was scheduled; form='loops' writes it")
        if not (same(loop.min, axis.dom.min) and same(loop.extent, axis.dom.extent)):
            raise MlirError(f"{where}: the loop {loop.loop_var.name} does not run over the axis {axis.var.name}")
        if not isinstance(axis.dom.min, IntImm) or any(not isinstance(e, (IntImm, Var)) and _inner(e, block) for e in (axis.dom.extent,)):  # fmt: skip
            raise MlirError(f"{where}: the domain of {axis.var.name} depends on other axes; linalg has only boxes")
        if axis.kind not in (IterVar.SPATIAL, IterVar.REDUCE):
            raise MlirError(
                f"{where}: {axis.var.name} is a {axis.kind} axis, whose order counts; linalg has none, form='loops' writes it"
            )
    return BlockForm(block.name, block.iter_vars, *_body(block, where), block.annotations)


def _inner(e: Expr, block: Block) -> bool:
    own = {axis.var for axis in block.iter_vars}
    return any(v in own for v in _vars(e))


def _vars(e: Expr) -> list[Var]:
    return [e] if isinstance(e, Var) else [v for child in e.children() for v in _vars(child)]


def _without_axis(block: Block) -> Block:
    """Returns the block of a tensor of rank 0 without the one axis, of extent 1, that te gives it."""
    zero = {block.iter_vars[0].var: IntImm(0)}
    init = None if block.init is None else substitute(block.init, zero)
    return block.with_(iter_vars=(), body=substitute(block.body, zero), init=init)


def _body(block: Block, where: str) -> tuple[tuple[tuple[Var, Expr], ...], tuple[Result, ...]]:
    lets = []
    body: Stmt = block.body
    while isinstance(body, LetStmt):
        lets.append((body.var, body.value))
        body = body.body
    stores = _stores(body, where)
    inits = {} if block.init is None else {s.buffer: s for s in _stores(block.init, where)}
    results = []
    for store in stores:
        start = inits.get(store.buffer)
        if start is not None and not all(map(same, start.indices, store.indices)):
            raise MlirError(f"{where}: the init writes another place than the update")
        results.append(Result(store.buffer, store.indices, store.value, None if start is None else start.value))
    if len({r.buffer for r in results}) < len(results):
        raise MlirError(f"{where} writes {results[0].buffer.name} twice; form='loops' writes it")
    return tuple(lets), tuple(results)


def _stores(stmt: Stmt, where: str) -> list[BufferStore]:
    out = []
    for s in children_of(stmt):
        if not isinstance(s, BufferStore) or s.predicate is not None:
            raise MlirError(
                f"{where} holds {type(s).__name__}; a body of linalg has only values, form='loops' writes it"
            )
        out.append(s)
    return out


def _joined(forms: list[BlockForm]) -> BlockForm:
    """Returns several blocks of one nest as one block with several results."""
    first = forms[0]
    results = list(first.results)
    for form in forms[1:]:
        mapping = {a.var: b.var for a, b in zip(form.axes, first.axes, strict=True)}
        for r in form.results:
            indices = tuple([substitute(i, mapping) for i in r.indices])
            results.append(Result(r.buffer, indices, substitute(r.value, mapping), r.init))
        if form.lets or first.lets or any(r.init is not None for r in form.results):
            raise MlirError(f"block {form.name} stands beside {first.name} in one nest; form='loops' writes it")
    return BlockForm(first.name, first.axes, (), tuple(results), first.annotations)
