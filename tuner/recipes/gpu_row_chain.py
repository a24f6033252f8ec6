"""This recipe computes a product, stages of its rows and a second product (attention) by one kernel of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import fuse_all, loops_within, unroll_factor

LANES = 32
"""The threads of a team: those of a warp."""


@dataclass(frozen=True)
class RowChain:
    """How blocks share rows. ``rows``: of a block, which divide all rows; ``teams`` of 32 threads, which divide ``rows``."""

    rows: int = 8
    teams: int = 4


def row_chain(sch: Schedule, stages: Sequence[str], first: str, rank: int, how: RowChain) -> None:
    """Compute ``stages``, in program order, of which the last is the second product and ``first`` the first one.

    Their first ``rank`` loops are shared; the last of these are the rows. All results but the last stay in shared memory.
    """
    result = sch.cache_write(stages[-1], 0, "local")
    scores = sch.cache_write(first, 0, "local")
    loops = list(sch.get_loops(result))
    block, _ = sch.split(loops[rank - 1], [None, how.rows])
    if rank > 1:
        sch.bind(fuse_all(sch, loops[: rank - 1]), "blockIdx.y")
    sch.bind(block, "blockIdx.x")
    _second(sch, stages[-1], result, block, how)
    for name in reversed(stages[:-1]):
        if name == first:
            sch.compute_at(scores, block)
            _first(sch, first, scores, block, how)
            sch.set_scope(scores, 0, "shared")
            continue
        stage = sch.get_block(name)
        sch.compute_at(stage, block)
        _rows(sch, stage, block, how)
        sch.set_scope(stage, 0, "shared")


def _second(sch: Schedule, name: str, result: Any, block: Any, how: RowChain) -> None:
    """Let each team sum some rows of the result, and neighbouring threads neighbouring columns."""
    own = loops_within(sch, result, block)
    (team, rows), (lane, columns) = sch.split(own[0], [how.teams, None]), sch.split(own[-1], [LANES, None])
    sch.reorder(team, lane, rows, *own[1:-1], columns)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    for loop in loops_within(sch, result, lane):
        sch.unroll(loop)


def _first(sch: Schedule, name: str, scores: Any, block: Any, how: RowChain) -> None:
    """Let each thread compute all rows of some columns of the first product."""
    row, column = loops_within(sch, scores, block)
    turns, team, lane = sch.split(column, [None, how.teams, LANES])
    sch.reorder(turns, team, lane, row)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    sch.unroll(row)


def _sum_in_registers(sch: Schedule, name: str, lane: Any) -> None:
    """Compute the product ``name`` in the thread ``lane``: the loops of its sums inside, unrolled."""
    product = sch.get_block(name)
    sch.compute_at(product, lane)
    inner = loops_within(sch, product, lane)
    kinds = [iv.kind for iv in sch.get(product).iter_vars][-len(inner) :]
    reduced = [loop for loop, kind in zip(inner, kinds, strict=True) if kind == "reduce"]
    spatial = [loop for loop in inner if loop not in reduced]
    sch.reorder(*reduced, *spatial)
    unroll_factor(sch, reduced[-1], 4)
    for loop in spatial:
        sch.unroll(loop)


def _rows(sch: Schedule, stage: Any, block: Any, how: RowChain) -> None:
    """Give each row of a stage to a team, whose lanes divide its columns."""
    own = loops_within(sch, stage, block)
    team, _ = sch.split(own[0], [how.teams, None])
    sch.bind(team, "threadIdx.y")
    if own[1:]:
        _, lane = sch.split(fuse_all(sch, own[1:]), [None, LANES])
        sch.bind(lane, "threadIdx.x")
