"""Converters of operations between devices, in programs for one device: each is alone in its group."""

from __future__ import annotations

import numpy as np

from ...graph.graph import Value
from .hlo_call import Given, HloCall
from .hlo_table import hlo
from .jaxlib_package import elements
from .known_arrays import known


@hlo("replica_id", "partition_id")
def alone(c: HloCall) -> Given:
    return known(0, c.dtype)


def _require_one(c: HloCall) -> None:
    if list(c.operation.attributes["replica_groups"].type.shape) != [1, 1]:
        raise c.error("programs for several devices are not supported; this one has groups of them")


@hlo("all_reduce", "all_gather", "all_to_all", "collective_broadcast", "cross-replica-sum", "reduce_scatter")
def of_one_device(c: HloCall) -> tuple[Value, ...]:
    """Returns the operands: what a group of one reduces, gathers or exchanges."""
    _require_one(c)
    return tuple(c.op("identity", v) for v in c.values)


@hlo("collective_permute")
def permuted(c: HloCall) -> Value:
    """Returns the operand where the device sends to itself, else zeros."""
    given = c.operation.attributes["source_target_pairs"]
    pairs = np.broadcast_to(elements(given), tuple(given.type.shape)).tolist()
    if pairs not in ([], [[0, 0]]):
        raise c.error("programs for several devices are not supported; this one sends between them")
    return c.op("identity", c.x) if pairs else c.full(c.x.shape, 0, c.x.dtype)
