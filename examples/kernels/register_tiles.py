"""This module has the schedule steps that products and convolutions share: the end of a register tile, and packing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tilewright as tw


def finish_tile(sch: tw.Schedule, stage: Any, at: Any, rank: int, tile: Sequence[Any], lane: Any, lanes: int) -> None:
    """Compute ``stage``, which reads the tile from its registers, in loop ``at`` when the tile is complete. Unroll the
    loops of both, and vectorize their last loops.

    ``rank``: how many loops of ``stage`` go over the tile; ``tile``, ``lane``: the loops of the tile itself.
    """
    sch.reverse_compute_at(stage, at, preserve_unit_loops=True)
    *rest, last = sch.get_loops(stage)[-rank:]
    vector, inner = sch.split(last, [None, lanes])
    for loop in (*rest, vector, *tile):
        sch.unroll(loop)
    sch.vectorize(inner)
    sch.vectorize(lane)


def pack_steps(sch: tw.Schedule, cols: int, steps: int) -> None:
    """Copy B of product ``C`` into panels of ``cols`` columns, in which ``steps`` steps of k are neighbours:
    ``[panel, k // steps, column, k % steps]``."""
    pack = sch.cache_read("C", 1, "global")
    sch.transform_layout("C", ("read", 1), lambda q, j: (j // cols, q // steps, j % cols, q % steps))
    q, j = sch.get_loops(pack)
    q0, q1 = sch.split(q, [None, steps])
    panel, j1 = sch.split(j, [None, cols])
    sch.reorder(panel, q0, j1, q1)
