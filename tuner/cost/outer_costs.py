"""This module computes the costs of the recipe :mod:`..recipes.outer_sums`, and says which reductions it is for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...tir.expr import Var
from ..program import BlockInfo
from .cost_features import Costs
from .machine_model import MachineModel, crowding
from .step_sizes import ceil_div
from .vector_choice import moving_loads

_FAR = 1024
"""The bytes between rows from which on reading them one after the other pays."""


def rows_apart(block: BlockInfo, vector: Var) -> bool:
    """Returns whether the block is a product of one row whose matrix has its rows far apart in memory. Such a product
    is ``y[j] = sum of x[k] * B[k, j]`` with j the axis ``vector``; a tile of results jumps from one row of B to the
    next."""
    wide = [v for v in block.spatial if block.extents[v] > 1]
    if wide != [vector] or len(block.reduce) != 1 or block.axes[-1] not in block.reduce or block.keeps_order:
        return False
    (step,) = block.reduce
    moving = moving_loads(block, vector)
    if len(moving) != 1 or moving[0].buffer in block.packed_ahead or block.stores[0].stride(vector) != 1:
        return False
    stride = moving[0].stride(step)
    return moving[0].stride(vector) == 1 and stride is not None and abs(stride) * moving[0].buffer.dtype.bytes >= _FAR


def outer_costs(
    block: BlockInfo, vector: Var, machine: MachineModel, columns: Mapping[str, np.ndarray], rows: int, *, parallel: bool
) -> Costs:  # fmt: skip
    """Returns the costs of ``rows`` candidates with the decisions ``vectors`` and ``steps``."""
    (moving,) = moving_loads(block, vector)
    (step,) = block.reduce
    steps, size, depth, lanes = (
        columns["steps"],
        block.extents[vector],
        block.extents[step],
        machine.lanes(block.itemsize),
    )
    vectors = ceil_div(size, columns["vectors"] * lanes) * columns["vectors"]
    passes = ceil_div(depth, steps)
    results = size * block.itemsize
    moved = float(moving.buffer.num_bytes() or 0)
    stride = abs(moving.stride(step) or 0) * moving.buffer.dtype.bytes
    streams = (0.6 + 0.4 / steps) * (1.0 + crowding(steps, stride, machine))  # several rows, whose lines may collide
    trips = vectors / columns["vectors"] * passes
    return Costs(rows).put(
        core_cycles=vectors * depth * max(1.0, block.operations / 2) / machine.fma_pipes,
        load_cycles=(vectors * (depth + passes) + depth * trips / passes) / machine.loads_per_cycle,
        store_cycles=vectors * passes / machine.stores_per_cycle,
        loop_cycles=trips * 2.0 + passes * 5.0,
        l2_bytes=streams * moved + passes * 2.0 * results * (results > machine.l1_bytes / 2),
        l3_bytes=streams * moved * (moved > machine.l2_bytes),
        memory_bytes=streams * moved * (moved > machine.l3_bytes),
        flops=block.flops,
        regions=float(parallel),
        lanes_used=float(lanes),
        columns=columns["vectors"],
        unroll=steps,
        reduction=float(depth),
        column_extent=float(size),
        tasks=float(machine.cores) if parallel else 1.0,
    )
