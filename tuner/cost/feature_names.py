"""This module names the columns of costs and features: those of processors here, those of other machines in their models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Features:
    """The columns that describe candidates on a kind of machine.

    ``extensive``: amounts for a whole run, which are added over the parts of a program. ``intensive``: properties of the
    schedule, which are averaged, weighted by the parts' share of the time. ``raw``: those that are not turned into
    logarithms. ``causes``: what the prior's time is made of.
    """

    extensive: tuple[str, ...]
    intensive: tuple[str, ...]
    raw: frozenset[str]
    causes: tuple[str, ...]

    @cached_property
    def columns(self) -> frozenset[str]:
        """Returns the names of what a part says of its candidates."""
        return frozenset((*self.extensive, *self.intensive))

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns of the feature matrix, in order."""
        return (*self.extensive, *self.intensive, *[f"{cause}_share" for cause in self.causes], "log_prior")


PROCESSOR = Features(
    extensive=(
        "core_cycles", "load_cycles", "store_cycles", "loop_cycles", "spill_cycles", "l2_bytes", "l3_bytes",
        "memory_bytes", "pack_bytes", "extra_cycles", "jump_cycles", "flops", "regions",
    ),
    intensive=(
        "lanes_used", "rows", "columns", "accumulators", "registers", "loads_per_fma", "latency_bound", "waste", "tail",
        "unroll", "body_size", "inner_trips", "reduction", "panel_bytes", "l1_gap", "l2_gap", "conflict", "packed",
        "strided", "tasks", "tasks_per_core", "imbalance", "variant", "tile_a", "tile_b", "tile_c", "row_extent",
        "column_extent", "epilogue",
    ),
    raw=frozenset(
        ("latency_bound", "waste", "l1_gap", "l2_gap", "packed", "strided", "imbalance", "variant", "epilogue")
    ),
    causes=("core", "l2", "l3", "memory"),
)  # fmt: skip
"""The columns of processors. Amounts are those before the work is divided among threads."""
