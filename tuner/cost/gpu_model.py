"""The analytic model's figures of GPUs, and what it predicts of a kernel. Its causes are issue slots, shared memory,
caches, and waves of blocks.

The figures are those of NVIDIA's data sheets and of the tables of compute capabilities in the CUDA programming guide.

It also says which axes of a block have which role on a GPU, and what accesses of threads move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...codegen.machine.target import (
    BLOCK_SHARED,
    FETCH_CYCLES,
    SECTOR,
    WARP,
    Target,
    block_shared_bytes,
    compute_capability,
    shared_bytes,
)
from ...tir.expr import Cast, Var
from ...tir.stmt import BufferStore
from ..program import BlockInfo, ProgramInfo, Use, pads
from .axis_roles import ProductRoles, element_epilogue, product_axes
from .cost_features import Costs
from .machine_model import CostColumns, Features, MachineModel, overlapped, register_model


@dataclass(frozen=True, eq=False)
class GpuProduct:
    """A product with the roles of its axes, and the stages around it. One stage each may pad an operand, and one
    takes the result."""

    block: BlockInfo
    roles: ProductRoles
    padding: tuple[BlockInfo, ...] = ()
    epilogue: BlockInfo | None = None

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Returns the blocks that are scheduled together, in program order."""
        return (*self.padding, self.block, *([self.epilogue] if self.epilogue is not None else []))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of the batch, the rows, the columns and the steps."""
        return self.roles.sizes(self.block)


def gpu_product(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> GpuProduct | None:
    """Returns the roles in a product, with neighbours among the blocks of ``free``; None for other blocks."""
    roles = product_axes(block)
    if roles is None:
        return None
    padding = [b for b in program.producers(block) if b in free and is_padding(b) and program.consumers(b) == [block]]
    return GpuProduct(block, roles, tuple(padding), element_epilogue(program, block, free))


def is_padding(block: BlockInfo) -> bool:
    """Returns whether a block pads or converts: each thread that needs an element can compute it from fewer bytes."""
    return (pads(block) or _converts(block)) and not block.is_reduction and block.writes_in_order


def _converts(block: BlockInfo) -> bool:
    """Returns whether each element is one of another, no wider type, converted by few operations."""
    body = block.block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Cast) or len(block.loads) != 1:
        return False
    narrow, wide = block.loads[0].buffer.dtype, body.value.dtype
    return narrow != wide and narrow.bits <= wide.bits and block.operations <= _FEW_OPERATIONS


_FEW_OPERATIONS = 4
"""The most operations of an element that is converted again in each tile that has it."""


def type_on_matrix_units(block: BlockInfo, machine: GpuModel) -> str | None:
    """Returns the type in which matrix units multiply all factors of a product, of which some have 8 bits.

    It holds their numbers. None for other blocks, and where sums are no float32 or factors are multiplied as they are.
    """
    if not machine.matrix_flops or product_axes(block) is None or block.stores[0].buffer.dtype != "float32":
        return None
    types = {use.buffer.dtype for use in block.loads}
    narrow = {t for t in types if t.bits == 8 and not t.is_bool}
    wide = [str(t) for t in types - narrow]
    found = wide[0] if wide else "float16"
    fits = narrow and len(wide) <= 1 and found in ("float16", "bfloat16") and found in machine.matrix_types
    return found if fits else None


def sectors_used(use: Use, fast: Var | None, lanes: np.ndarray | float = 1.0) -> np.ndarray:
    """Returns the share of the bytes moved that is used when neighbouring threads are neighbours along ``fast``. Each
    thread takes ``lanes`` elements."""
    size = use.buffer.dtype.bytes
    stride = None if fast is None else _distance(use, fast)
    if stride == 0:
        return np.ones(1)
    if stride is None:
        return np.full(1, size / SECTOR)
    return np.asarray(
        np.minimum(1.0, np.maximum(size * np.asarray(lanes), size) / np.minimum(abs(stride) * size, SECTOR))
    )


def share_used(block: BlockInfo, fast: Var | None, lanes: np.ndarray | float = 1.0) -> np.ndarray:
    """Returns the share of the bytes moved by a block that is used, the mean over its loads and stores."""
    shares = [np.atleast_1d(sectors_used(use, fast, lanes)) for use in (*block.loads, *block.stores) if use.dims]
    return np.asarray(len(shares) / sum(1 / s for s in shares)) if shares else np.ones(1)


def _distance(use: Use, axis: Var) -> int | None:
    """Returns how far a step of ``axis`` moves; where other indices come from memory, the last one alone is known."""
    if use.affine:
        return use.stride(axis)
    last = use.dims[-1] if use.dims else None
    return 1 if last is not None and dict(last) == {axis: 1} else None


def touched_bytes(blocks: Sequence[BlockInfo]) -> float:
    """Returns the bytes of the buffers that blocks read from outside and write for others or as results."""
    inside = {use.buffer for b in blocks[:-1] for use in b.stores}
    seen = {use.buffer for b in blocks for use in (*b.loads, *b.stores)} - inside
    return float(sum(b.num_bytes() or 0 for b in seen))


def special_operations(block: BlockInfo) -> float:
    """Returns about how many of a block's operations are those of functions such as exp."""
    return max(0.0, block.operations - 6.0) / 8


GPU = Features(
    extensive=(
        "flops", "issue_slots", "fma_lanes", "special_lanes", "matrix_flops", "shared_wavefronts", "l2_bytes",
        "memory_bytes", "kernels",
    ),
    intensive=(
        "blocks", "threads", "registers", "shared_bytes", "chain_cycles", "coalescing", "conflicts", "versions", "lanes",
        "rows", "columns", "step", "steps", "bytes_in_flight", "reduction", "row_extent", "column_extent", "variant",
        "occupancy", "waves",
    ),
    raw=frozenset(("coalescing", "variant", "occupancy")),
    causes=("core", "shared", "l2", "memory", "latency"),
)  # fmt: skip
"""The columns of GPUs. ``issue_slots``: instructions of warps; ``fma_lanes`` and ``special_lanes``: multiply-adds and
functions such as exp2 of threads; ``shared_wavefronts``: turns of the shared memory's banks. ``chain_cycles``: what one block
takes when nothing but latencies hold it up; ``coalescing``: the share of the bytes moved that are used; ``bytes_in_flight``: of one
thread. ``occupancy`` and ``waves`` follow from the others (:meth:`GpuModel.completed`)."""


@dataclass(frozen=True)
class GpuModel(MachineModel):
    """A model of a GPU. ``cores`` are its multiprocessors; rates are per cycle, of one of them unless they say otherwise.

    ``matrix_flops`` is the rate of ``mma.sync`` on float16 (half of it on tf32, twice on int8; 0: there are none); ``l2_bytes_per_cycle`` and
    ``memory_bytes_per_cycle`` are rates of the whole device.
    """

    warps: int = 64
    blocks: int = 32
    register_file: int = 65_536
    shared_bytes: int = 164 << 10
    block_shared_bytes: int = 163 << 10
    fma_lanes: float = 64.0
    special_lanes: float = 16.0
    matrix_flops: float = 2048.0
    matrix_types: tuple[str, ...] = ("float16", "int8", "uint8", "bfloat16", "float32")
    """The types of operands that matrix units take; float32 stands for tf32."""
    launch_seconds: float = 2.5e-6
    warp_groups: bool = False
    """Whether four warps can multiply together (``wgmma``)."""
    block_threads: int = 1024
    """The most threads of a block."""

    features: ClassVar[Features] = GPU

    def fits(self, threads: np.ndarray, shared_bytes: np.ndarray, registers: np.ndarray) -> np.ndarray:
        """Returns which blocks can run: their threads, shared memory and registers of a thread (an estimate) are there."""
        whole = -(-threads // WARP) * WARP
        enough = (threads <= self.block_threads) & (shared_bytes <= self.block_shared_bytes) & (registers <= 255)
        return np.asarray(enough & (whole * np.maximum(registers, 16) <= self.register_file))

    def resident(self, costs: CostColumns) -> np.ndarray:
        """Returns how many blocks run on a multiprocessor at a time."""
        warps = np.ceil(np.maximum(costs["threads"], 1) / WARP)
        registers = np.ceil(np.maximum(costs["registers"], 16) / 8) * 8 * WARP * warps
        least = np.minimum(self.warps // warps, self.register_file // registers)
        least = np.minimum(least, self.shared_bytes // (costs["shared_bytes"] + BLOCK_SHARED))
        return np.clip(least, 1, self.blocks)

    def cycles_by_cause(self, costs: CostColumns) -> dict[str, np.ndarray]:
        """Returns the cycles of each row by cause. Causes are instructions, banks of shared memory, second-level cache,
        memory, and latencies of one block after the other."""
        blocks = np.maximum(costs["blocks"], 1.0)
        share = np.ceil(blocks / self.cores) / blocks  # of the multiprocessor that has the most blocks
        resident = np.minimum(self.resident(costs), np.ceil(blocks / self.cores))
        arithmetic = np.maximum(costs["fma_lanes"] / self.fma_lanes, costs["special_lanes"] / self.special_lanes)
        matrix = costs["matrix_flops"] / max(self.matrix_flops, 1.0)
        issue = costs["issue_slots"] / 4
        core = np.maximum(np.maximum(issue, arithmetic), matrix) + 0.25 * np.minimum(issue, arithmetic + matrix)
        flying = resident * np.minimum(blocks, self.cores) * np.maximum(costs["threads"], 1) * costs["bytes_in_flight"]
        reached = np.minimum(1.0, flying / (FETCH_CYCLES * self.memory_bytes_per_cycle))
        reached = np.where(costs["bytes_in_flight"] > 0, np.maximum(reached, 1e-3), 1.0)
        return {
            "core": core * share,
            "shared": costs["shared_wavefronts"] * share,
            "l2": np.maximum(costs["l2_bytes"] / self.l2_bytes_per_cycle, costs["l2_bytes"] * share / 64),
            "memory": costs["memory_bytes"] / self.memory_bytes_per_cycle / reached,
            "latency": costs["chain_cycles"] * np.ceil(blocks / (resident * self.cores)),
        }

    def memory_bytes(self, touched: float, moved: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        """Returns the bytes that come from memory when ``blocks`` move ``moved`` bytes, of ``touched`` different ones.

        Blocks that run at a time share what they read. What later ones read again is in the second-level cache, but for a
        twentieth, where that holds all of it.
        """
        again = np.clip((moved - touched) / np.maximum(1.0, blocks / self.cores), 0.0, None)
        return np.asarray(touched + (again if touched > self.l2_bytes else 0.05 * again))

    def seconds(self, costs: CostColumns) -> np.ndarray:
        """Returns the predicted seconds of each row: the slowest cause, a quarter of the others, and the launches."""
        cycles = overlapped(self.cycles_by_cause(costs))
        return np.maximum(cycles, 1.0) / self.cycles_per_second + costs["kernels"] * self.launch_seconds

    def costs(self, count: int, /, **columns: np.ndarray | float) -> Costs:
        """Returns the costs of ``count`` candidates of a kernel, with the share of the warps that run (``occupancy``) and ``waves``."""
        costs = Costs(count, features=GPU).put(**{"kernels": 1.0, **columns})
        warps = np.ceil(np.maximum(costs["threads"], 1) / WARP)
        resident = self.resident(costs)
        waves = np.maximum(costs["blocks"], 1.0) / (resident * self.cores)
        return costs.put(occupancy=resident * warps / self.warps, waves=waves)


@dataclass(frozen=True)
class _Sheet:
    """A line of the data sheets. Its columns are multiprocessors, cycles per second, bytes per second of the memory,
    MiB of second-level cache and its bytes per cycle, warps and blocks of a multiprocessor,
    multiply-adds per cycle, and operations per cycle of ``mma.sync`` on float16."""

    device: str
    cores: int
    hertz: float
    memory: float
    l2_mib: int
    l2_rate: float
    warps: int
    blocks: int
    fma: int
    matrix: float


SHEETS: dict[int, _Sheet] = {
    70: _Sheet("V100", 80, 1.53e9, 0.90e12, 6, 2048, 64, 32, 64, 1024),
    75: _Sheet("T4", 40, 1.59e9, 0.32e12, 4, 1024, 32, 16, 64, 1024),
    80: _Sheet("A100", 108, 1.41e9, 1.555e12, 40, 5120, 64, 32, 64, 2048),
    86: _Sheet("A10", 72, 1.70e9, 0.60e12, 6, 2048, 48, 16, 128, 512),
    89: _Sheet("L40S", 142, 2.52e9, 0.864e12, 96, 3072, 48, 24, 128, 1024),
    90: _Sheet("H100", 132, 1.83e9, 3.35e12, 50, 5120, 64, 32, 128, 2560),
    100: _Sheet("B200", 148, 1.85e9, 8.0e12, 126, 8192, 64, 32, 128, 2048),
    120: _Sheet("RTX 5090", 170, 2.41e9, 1.79e12, 96, 4096, 48, 24, 128, 1024),
}
"""The device that stands for each architecture, by the number of its compute capability."""


def gpu_model(target: Target) -> GpuModel:
    """Returns the model of a target by its architecture. That is the newest one below it where it is unknown, and
    ``sm_80`` where the target names none."""
    wanted = compute_capability(target.mcpu)
    shared = shared_bytes(wanted)
    sheet = SHEETS[max([n for n in SHEETS if n <= wanted], default=min(SHEETS))]
    return GpuModel(
        vector_bytes=16, registers=255, cores=sheet.cores, l1_bytes=shared, l2_bytes=sheet.l2_mib << 20,
        l3_bytes=sheet.l2_mib << 20, l2_bytes_per_cycle=sheet.l2_rate,
        memory_bytes_per_cycle=0.92 * sheet.memory / sheet.hertz, cycles_per_second=sheet.hertz, warps=sheet.warps,
        blocks=sheet.blocks, shared_bytes=shared,
        block_shared_bytes=block_shared_bytes(wanted), fma_lanes=sheet.fma,
        matrix_flops=sheet.matrix if wanted >= 70 else 0.0, warp_groups=target.mcpu == "sm_90a",
        matrix_types=GpuModel.matrix_types if wanted >= 80 else ("float16", "int8", "uint8") if wanted >= 72 else ("float16",),
    )  # fmt: skip


_KILOHERTZ, _CORES, _MEMORY_KILOHERTZ, _MEMORY_BITS, _L2_BYTES, _THREADS = 13, 16, 36, 37, 38, 39
_SHARED_BYTES, _REGISTERS, _BLOCK_SHARED_BYTES, _BLOCKS = 81, 82, 97, 106
"""Numbers of attributes of devices (``CUdevice_attribute``). Those from the threads on, but for the shared memory of a block,
are of a multiprocessor."""


def measured(model: GpuModel, attribute: Callable[[int], int]) -> GpuModel:
    """Returns ``model`` with the figures of a device, by the driver's attributes; what it does not say stays."""
    hertz = 1e3 * attribute(_KILOHERTZ) or model.cycles_per_second
    memory = (
        2e3 * attribute(_MEMORY_KILOHERTZ) * attribute(_MEMORY_BITS) / 8
        or model.memory_bytes_per_cycle * model.cycles_per_second / 0.92
    )
    return replace(
        model, cores=attribute(_CORES) or model.cores, cycles_per_second=hertz,
        memory_bytes_per_cycle=0.92 * memory / hertz, l2_bytes=attribute(_L2_BYTES) or model.l2_bytes,
        warps=attribute(_THREADS) // WARP or model.warps, shared_bytes=attribute(_SHARED_BYTES) or model.shared_bytes,
        register_file=attribute(_REGISTERS) or model.register_file,
        block_shared_bytes=attribute(_BLOCK_SHARED_BYTES) or model.block_shared_bytes, blocks=attribute(_BLOCKS) or model.blocks,
    )  # fmt: skip


def portable_gpu_model(target: Target) -> GpuModel:
    """Returns the model of a GPU of any maker. It has the limits that nearly all of them have, the rates of a middling one,
    and no matrix units."""
    return GpuModel(
        vector_bytes=16, registers=128, cores=32, l1_bytes=64 << 10, l2_bytes=4 << 20, l3_bytes=4 << 20,
        l2_bytes_per_cycle=1024.0, memory_bytes_per_cycle=200.0, cycles_per_second=1.5e9, warps=32, blocks=16,
        shared_bytes=64 << 10, block_shared_bytes=32 << 10, matrix_flops=0.0, launch_seconds=1e-5, block_threads=256,
    )  # fmt: skip


AMD_SHEETS: dict[str, tuple[int, float, float, int]] = {
    "gfx900": (64, 1.55e9, 0.48e12, 4),
    "gfx906": (60, 1.80e9, 1.02e12, 4),
    "gfx908": (120, 1.50e9, 1.23e12, 8),
    "gfx90a": (110, 1.70e9, 1.64e12, 8),
    "gfx942": (304, 2.10e9, 5.30e12, 32),
    "gfx950": (256, 2.40e9, 8.00e12, 32),
    "gfx1030": (80, 2.25e9, 0.51e12, 4),
    "gfx1100": (96, 2.50e9, 0.96e12, 6),
    "gfx1201": (64, 2.97e9, 0.64e12, 8),
}
"""AMD's data sheets of one device for a processor: compute units, cycles per second, bytes per second of the memory, MiB of
second-level cache. They are Vega 64, MI50, MI100, a half of MI250X, MI300X, MI355X, RX 6900 XT, 7900 XTX and 9070 XT."""


def amd_model(target: Target) -> GpuModel:
    """Returns the model of a GPU of AMD by its processor, or by the last known one before it."""

    def order(cpu: str) -> tuple[int, int]:
        digits = cpu.removeprefix("gfx")
        return int(digits[:-2] or 0), int(digits[-2:] or "0", 16)

    before = [cpu for cpu in AMD_SHEETS if order(cpu) <= order(target.mcpu)]
    cores, hertz, memory, l2_mib = AMD_SHEETS[max(before, key=order, default="gfx900")]
    return replace(
        portable_gpu_model(target), cores=cores, cycles_per_second=hertz, memory_bytes_per_cycle=0.8 * memory / hertz,
        l2_bytes=l2_mib << 20, l3_bytes=l2_mib << 20, l2_bytes_per_cycle=32.0 * cores, block_shared_bytes=64 << 10,
    )  # fmt: skip


for _kind in ("cuda", "gpu-sim"):
    register_model(_kind, gpu_model)
register_model("opencl", portable_gpu_model)
register_model("rocm", amd_model)
register_model("webgpu", lambda target: replace(portable_gpu_model(target), block_shared_bytes=16 << 10))
