"""This module rewrites a trace for another program that differs from the recorded one in names only.

A trace refers to blocks, buffers and sizes by name, and steps derive new names from existing ones (``cache_read`` of
``A`` makes ``A_local``). So the steps are replayed on both programs at once. At each step a name in one program stands
for the item with the same position in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..tir.analysis.tree import Tree, symbols_of
from ..tir.expr import structural_equal
from ..tir.stmt import Block, PrimFunc
from .errors import ScheduleError
from .handles import BlockRV
from .primitive import BLOCK_PARAMETERS, BUFFER_PARAMETERS, buffer_number
from .schedule import Schedule
from .trace import Instruction, Ref, Trace, apply_instruction


def retarget(trace: Trace, recorded: PrimFunc, func: PrimFunc) -> Trace:
    """Return the steps of ``trace``, which was recorded on ``recorded``, in the names of ``func``.

    ScheduleError is raised when the two functions differ in more than names, and when a step does not apply to
    ``recorded``. The result is ``trace`` itself when all names are the same.
    """
    if _names(recorded) == _names(func):
        return trace
    if not structural_equal(recorded, func):
        raise ScheduleError(
            f"the trace was recorded on {recorded.name}, which differs from {func.name} in more than names",
            primitive="retarget",
            hint="tune the function anew",
        )
    there, here = Schedule(recorded), Schedule(func)
    handles: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for number, inst in enumerate(trace.insts):
        said = _translated(inst, there, here, handles[0])
        apply_instruction(there, inst, number, handles[0])
        apply_instruction(here, said, number, handles[1])
    if not structural_equal(there.func, here.func):
        raise ScheduleError(
            f"the steps give another program on {func.name} than on {recorded.name}, although the two differ in names only",
            primitive="retarget",
            hint="tune the function anew",
        )
    return here.trace


def _names(func: PrimFunc) -> list[str]:
    tree = Tree(func)
    buffers = list(func.buffers)
    for found in tree.blocks.values():
        for realize in found:
            buffers += [*realize.block.alloc_buffers, *[m.buffer for m in realize.block.match_buffers]]
    return [*tree.blocks, *[b.name for b in buffers], *[v.name for v in symbols_of(func)]]


def _translated(inst: Instruction, there: Schedule, here: Schedule, handles: dict[str, Any]) -> Instruction:
    """Return the instruction, recorded where ``there`` is, in the names that ``here`` has."""
    arguments = dict(inst.arguments)

    def change(name: str, f: Callable[[str], Any]) -> None:
        value = arguments.get(name)
        if isinstance(value, str):
            arguments[name] = f(value)
        elif isinstance(value, list):
            arguments[name] = [f(item) if isinstance(item, str) else item for item in value]

    def block(name: str) -> str:
        return _same_block(name, there, here)

    if inst.name == "get_block":
        change("name", block)
    elif inst.name == "get_symbol":
        change("name", lambda name: _same_symbol(name, there, here))
    change("func_name", lambda function: _same_function(function, there, here))
    for name in BUFFER_PARAMETERS:  # only older traces hold names of buffers
        of = _block_of(arguments.get("block"), there, handles)
        if of is not None and isinstance(arguments.get(name), str):
            arguments[name] = buffer_number(name, arguments[name], of, arguments.get("buf_type"))
    for name in BLOCK_PARAMETERS:
        change(name, block)
    return replace(inst, arguments=arguments)


def _same_block(name: str, there: Schedule, here: Schedule) -> str:
    try:
        wanted = there.get(BlockRV(name))
    except ScheduleError:
        return name  # the step will be refused with a message of its own
    blocks, others = Tree(there.func).blocks, Tree(here.func).blocks
    pairs = zip(blocks.values(), others, strict=False)
    return next((mine for found, mine in pairs if any(r.block is wanted for r in found)), name)


def _same_symbol(name: str, there: Schedule, here: Schedule) -> str:
    pairs = zip(symbols_of(there.func), symbols_of(here.func), strict=True)
    return next((mine.name for old, mine in pairs if old.name == name), name)


def _same_function(name: str, there: Schedule, here: Schedule) -> str:
    return next((mine for old, mine in zip(there.mod, here.mod, strict=True) if old == name), name)


def _block_of(value: Any, there: Schedule, handles: dict[str, Any]) -> Block | None:
    rv = handles.get(value.name) if isinstance(value, Ref) else BlockRV(value) if isinstance(value, str) else None
    try:
        return None if rv is None else there.get(rv)
    except ScheduleError:
        return None
