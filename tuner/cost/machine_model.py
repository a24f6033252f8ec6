"""The analytic model's constants of a machine, and the names of the columns of costs and features.

The constants are vector width, registers, caches, and bytes per cycle between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from ...codegen.machine.target import Target
from ...pages.messages import short_repr
from ..program import BlockInfo
from .dot_forms import DotForm, dot_forms


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


class CostColumns(Protocol):
    """Columns of costs by name, with an entry for each candidate."""

    def __getitem__(self, name: str) -> np.ndarray: ...


@dataclass(frozen=True)
class MachineModel:
    """A machine model holds the constants of the roofline model, and predicts times from costs. Widths in bytes, rates per
    core and cycle. Other kinds of machines are subclasses (:func:`register_model`).

    The rates are typical of server cores since 2019 (two FMA pipes of four cycles' latency, two loads and one store a
    cycle); the model only ranks candidates, so ratios matter and errors of a few percent do not.
    """

    vector_bytes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    fma_pipes: float = 2.0
    fma_latency: float = 4.0
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 1.0
    issue_width: float = 4.0
    l2_bytes_per_cycle: float = 48.0
    l3_bytes_per_cycle: float = 9.0
    memory_bytes_per_cycle: float = 4.0
    cycles_per_second: float = 3.0e9
    fork_join_cycles: float = 4_000.0
    l1_ways: int = 12
    line_bytes: int = 64
    jump_cycles: float = 18.0
    masked_store_cycles: float = 1.0
    """Cycles of a store under a mask that is not known before."""
    dots: tuple[DotForm, ...] = ()
    """Ways to multiply and add several numbers in each lane, one for each pair of types."""
    int8_tiles: bool = False
    """Whether one instruction multiplies tiles of int8."""
    bf16_tiles: bool = False
    """Whether one instruction multiplies tiles of bfloat16."""
    blas: bool = False
    """Whether programs may call a BLAS library."""
    loads_first: bool = False
    """Whether all loads of a loop's body run before its arithmetic, as engines of WebAssembly compile it: what is loaded
    waits in registers."""

    broadcasts_operands: bool = True
    """Whether arithmetic broadcasts an operand by itself, as AVX-512 and NEON do. Else it takes a register."""

    features: ClassVar[Features] = PROCESSOR

    __repr__ = short_repr()

    @staticmethod
    def of(target: Target | str) -> MachineModel:
        """Returns the model of ``target``."""
        target = Target.of(target)
        made = _MODELS.get(target.kind)
        if made is not None:
            return made(target)
        return MachineModel(
            vector_bytes=target.vector_bits // 8,
            registers=target.num_vector_registers,
            cores=max(1, target.num_cores),
            l1_bytes=target.l1_bytes,
            l2_bytes=target.l2_bytes,
            l3_bytes=max(target.l3_bytes, target.l2_bytes),
            dots=dot_forms(target),
            int8_tiles=target.has_amx_int8,
            bf16_tiles=target.has_amx_bf16,
            blas=bool(target.blas),
            loads_first=target.is_wasm,
            broadcasts_operands=target.arch != "x86_64" or target.has("avx512f"),
            masked_store_cycles=1.0 if target.has_masks else 20.0,
        )

    def dot(self, left: str, right: str) -> DotForm | None:
        """Returns the way of products of these types by instructions for dot products, or None."""
        return next((form for form in self.dots if (form.left, form.right) == (left, right)), None)

    def multiplies_tiles(self, dtype: str) -> bool:
        """Returns whether a matrix unit multiplies tiles of ``dtype``, int8 (of either sign) or bfloat16."""
        return self.bf16_tiles if dtype == "bfloat16" else self.int8_tiles

    def lanes(self, itemsize: int) -> int:
        """Returns how many elements of ``itemsize`` bytes fit in one vector register."""
        return max(1, self.vector_bytes // itemsize)

    def cycles_by_cause(self, costs: CostColumns) -> dict[str, np.ndarray]:
        """Returns the cycles of each row by cause: core, second- and third-level cache, memory."""
        core = np.maximum(np.maximum(costs["core_cycles"], costs["load_cycles"]), costs["store_cycles"])
        core = core + 0.3 * np.minimum(
            costs["core_cycles"], costs["load_cycles"]
        )  # arithmetic and loads compete for issue slots
        core = core + costs["loop_cycles"] + costs["spill_cycles"]
        return {
            "core": core,
            "l2": costs["l2_bytes"] / self.l2_bytes_per_cycle,
            "l3": np.maximum(costs["l3_bytes"] / self.l3_bytes_per_cycle, costs["jump_cycles"]),
            "memory": costs["memory_bytes"] / self.memory_bytes_per_cycle,
        }

    def seconds(self, costs: CostColumns) -> np.ndarray:
        """Returns the predicted seconds of each row.

        They are the slowest cause and a quarter of the others (they overlap imperfectly), times the busiest core's share of
        the tasks; plus packing, which the cores share, and a fork and join per parallel region.
        """
        cycles = overlapped(self.cycles_by_cause(costs))
        tasks = np.maximum(costs["tasks"], 1.0)
        share = np.ceil(tasks / self.cores) / tasks
        cycles = cycles * share
        packing = costs["pack_bytes"] / self.l3_bytes_per_cycle / np.minimum(tasks, self.cores)
        cycles = cycles + packing + costs["extra_cycles"]
        if self.cores > 1:
            cycles = cycles + costs["regions"] * self.fork_join_cycles
        return np.maximum(cycles, 1.0) / self.cycles_per_second


_MODELS: dict[str, Callable[[Target], MachineModel]] = {}


def register_model(kind: str, make: Callable[[Target], MachineModel]) -> None:
    """Let ``make`` be the model of targets of a kind, the first word of their text."""
    _MODELS[kind] = make


def overlapped(causes: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the cycles of causes that overlap imperfectly: the slowest one and a quarter of the others."""
    terms = np.stack(list(causes.values()))
    slowest = terms.max(axis=0)
    return np.asarray(slowest + 0.25 * (terms.sum(axis=0) - slowest))


EVICTED = 3.0
"""How much longer an element that is loaded by itself takes where its line was evicted from the first-level cache, in
times of a load. Many are on the way at once."""


def crowding(lines: np.ndarray, stride: int, machine: MachineModel) -> np.ndarray:
    """Returns how likely lines that are ``stride`` bytes apart evict each other from the first-level cache, 0 to 1.
    Those a multiple of 4 KiB apart share the ways of one set."""
    room = machine.l1_ways * 4096 / math.gcd(stride, 4096)
    return np.asarray(1.0 / (1.0 + np.exp2(np.clip(2.5 - 14.0 * np.log2(lines / room), -60, 60))))


def one_by_one(lanes: np.ndarray, stride: int, machine: MachineModel, cycles: float) -> np.ndarray:
    """Returns the cycles of each of ``lanes`` elements that are ``stride`` bytes apart.

    They are ``cycles``, and ``EVICTED`` times that more where its line was evicted.
    """
    return np.asarray(cycles * (1.0 + EVICTED * crowding(lanes, stride, machine)))


def worth_threads(machine: MachineModel, blocks: Sequence[BlockInfo]) -> bool:
    """Returns whether the blocks have enough work for several threads: twice what a fork and a join cost."""
    if machine.cores < 2:
        return False
    cycles = sum(b.flops / machine.lanes(b.itemsize) / machine.fma_pipes for b in blocks)
    moved = sum(use.buffer.num_bytes() or 0 for b in blocks for use in (*b.loads, *b.stores))
    return max(cycles, moved / machine.l2_bytes_per_cycle) > 2 * machine.fork_join_cycles
