"""This module computes the features of candidates: named columns that are the same for every sketch.  So one cost model
serves all sketches.

A sketch describes its rows with :class:`Costs`: cycles and bytes by cause, as arrays over the rows.
:func:`feature_table` turns them into the feature matrix; its last columns are the terms of the analytic prior and their
sum, so the cost model learns what the prior gets wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .machine_model import MachineModel

EXTENSIVE = (
    "core_cycles", "load_cycles", "store_cycles", "loop_cycles", "spill_cycles", "l2_bytes", "l3_bytes", "memory_bytes",
    "pack_bytes", "extra_cycles", "jump_cycles", "flops", "regions",
)  # fmt: skip
"""Amounts for a whole run, before the work is divided among threads. Those of the parts of a program are added."""

INTENSIVE = (
    "lanes_used", "rows", "columns", "accumulators", "registers", "loads_per_fma", "latency_bound", "waste", "tail",
    "unroll", "body_size", "inner_trips", "reduction", "panel_bytes", "l1_gap", "l2_gap", "conflict", "packed",
    "strided", "tasks", "tasks_per_core", "imbalance", "variant", "tile_a", "tile_b", "tile_c", "row_extent",
    "column_extent", "epilogue",
)  # fmt: skip
"""Properties of the schedule. Those of the parts of a program are averaged, weighted by their share of the time."""

_RAW = frozenset(
    ("latency_bound", "waste", "l1_gap", "l2_gap", "packed", "strided", "imbalance", "variant", "epilogue")
)
FEATURE_NAMES = (*EXTENSIVE, *INTENSIVE, "core_share", "l2_share", "l3_share", "memory_share", "log_prior")
"""The columns of the feature matrix, in order. Amounts and sizes are log2 of (1 + value)."""


@dataclass
class Costs:
    """The costs of the rows of a sketch: for each name an array over the rows (a missing one is zero)."""

    rows: int
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values.get(name, np.zeros(self.rows))

    def put(self, **columns: np.ndarray | float) -> Costs:
        """Set columns; a number stands for all rows."""
        for name, value in columns.items():
            if name not in EXTENSIVE and name not in INTENSIVE:
                raise KeyError(f"{name!r} is not a feature")
            self.values[name] = np.broadcast_to(np.asarray(value, dtype=np.float64), (self.rows,))
        return self


def _terms(costs: Costs, machine: MachineModel) -> dict[str, np.ndarray]:
    """Cycles by cause: core, second- and third-level cache, memory."""
    core = np.maximum(np.maximum(costs["core_cycles"], costs["load_cycles"]), costs["store_cycles"])
    core = core + 0.3 * np.minimum(
        costs["core_cycles"], costs["load_cycles"]
    )  # arithmetic and loads compete for issue slots
    core = core + costs["loop_cycles"] + costs["spill_cycles"]
    return {
        "core": core,
        "l2": costs["l2_bytes"] / machine.l2_bytes_per_cycle,
        "l3": np.maximum(costs["l3_bytes"] / machine.l3_bytes_per_cycle, costs["jump_cycles"]),
        "memory": costs["memory_bytes"] / machine.memory_bytes_per_cycle,
    }


def prior_seconds(costs: Costs, machine: MachineModel) -> np.ndarray:
    """Predicted seconds of each row: the slowest cause, a quarter of the others (they overlap imperfectly), packing,
    the uneven share of the busiest core, and a fork and join per parallel region."""
    terms = np.stack(list(_terms(costs, machine).values()))
    slowest = terms.max(axis=0)
    cycles = slowest + 0.25 * (terms.sum(axis=0) - slowest)
    tasks = np.maximum(costs["tasks"], 1.0)
    share = np.ceil(tasks / machine.cores) / tasks
    cycles = cycles * share
    packing = costs["pack_bytes"] / machine.l3_bytes_per_cycle / np.minimum(tasks, machine.cores)
    cycles = cycles + packing + costs["extra_cycles"]
    if machine.cores > 1:
        cycles = cycles + costs["regions"] * machine.fork_join_cycles
    return np.maximum(cycles, 1.0) / machine.cycles_per_second


def feature_table(costs: Costs, machine: MachineModel, seconds: np.ndarray) -> np.ndarray:
    """Returns the rows' features, ``rows x len(FEATURE_NAMES)`` float32; ``seconds`` is what the prior expects of
    them."""
    columns = []
    for name in (*EXTENSIVE, *INTENSIVE):
        value = costs[name]
        columns.append(value if name in _RAW else np.log2(1.0 + np.maximum(value, 0.0)))
    terms = _terms(costs, machine)
    total = np.maximum(sum(terms.values()), 1e-9)  # type: ignore[call-overload]
    columns.extend(terms[name] / total for name in ("core", "l2", "l3", "memory"))
    columns.append(np.log2(seconds))
    return np.stack(columns, axis=1).astype(np.float32)


def combine(parts: Sequence[Costs], machine: MachineModel) -> Costs:
    """Returns the costs of a program whose parts run one after the other."""
    if len(parts) == 1:
        return parts[0]
    out = Costs(parts[0].rows)
    weights = np.stack([prior_seconds(p, machine) for p in parts])
    weights = weights / weights.sum(axis=0)
    columns: dict[str, np.ndarray] = {n: np.sum([p[n] for p in parts], axis=0) for n in EXTENSIVE}
    for name in INTENSIVE:
        columns[name] = np.sum([w * p[name] for w, p in zip(weights, parts, strict=True)], axis=0)
    return out.put(**columns)
