"""This module measures the limits of this machine: the multiply-add peak, the bandwidths, and the clock.

Shares of the peak and of the roofline are relative to these figures, and they reach the tuner's analytic model
(:func:`model_of`). They are the best of many short runs, because other processes can only reduce them. They are kept in
the cache directory under the target's fingerprint; ``refresh=True`` measures again.

The roofline (:func:`bound_for`) is the least seconds that a kernel can take: the larger of operations over peak and bytes over
bandwidth (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009). :func:`library_versions` are kept with each tuning session.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import time
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..codegen.late_tables import is_simulated
from ..codegen.llvm.jit import llvm_version
from ..codegen.llvm.microbenchmarks import CLOCK_STEPS, clock_ir, fma_flops, fma_ir, sweep_block_bytes
from ..codegen.machine.target import Target
from ..codegen.machine.target_text import TargetError
from ..codegen.object_cache import cache_directory
from ..pages.written_files import write_file
from ..tir.cost import count_bytes, count_flops
from ..tir.expr import DType
from ..tir.stmt import PrimFunc
from ..tuner import MachineModel
from ..tuner.cost.gpu_model import GpuModel, measured
from .machine_probes import (
    AS_COMPUTED,
    BUSY_BELOW,
    ROUNDS,
    PeakProbe,
    Probe,
    address_of,
    peak_dtypes,
    processor_share,
    room_of,
    sweeps,
)


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Returns the versions of Tilewright, LLVM, llvmlite and xgboost (either distribution), as far as installed."""
    found = {"tilewright": __version__, "llvm": llvm_version()}
    for name in ("llvmlite", "xgboost", "xgboost-cpu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


FORMAT = 4

SWEEPS = {"read": 1, "copy": 2, "triad": 3}
"""The number of arrays that each sweep of the report moves."""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """A report holds the measured limits of a machine. ``peak_flops[dtype]`` holds operations per second for ``one``
    thread and for ``all`` of the target's (a multiply-add is two; int8 and bfloat16 by the matrix unit or dot products,
    where there are any); ``bandwidth[kind]`` bytes per second from memory likewise (the bytes that the program moves;
    the read of a line before a store is not counted); ``cache_read[level]`` bytes per second read by one thread;
    ``clock_hz`` of one busy core; ``processor_share`` the part of its threads' time in which the process had a processor
    while it measured (see :func:`.machine_probes.processor_share`): clearly less than 1 on a busy machine.
    """

    target: str
    key: str
    cpu: str
    model: str
    vector_bits: int
    num_cores: int
    caches: dict[str, int]
    clock_hz: float
    peak_flops: dict[str, dict[str, float]]
    bandwidth: dict[str, dict[str, float]]
    cache_read: dict[str, float]
    array_bytes: int
    measured_at: float
    measure_seconds: float
    processor_share: float = 1.0
    format: int = field(default=FORMAT)

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as plain values, for JSON."""
        return asdict(self)


def measure_machine(
    target: str | Target = "native", *, refresh: bool = False, keep: bool = True, effort: float = 1.0
) -> MachineReport:
    """Returns the report for ``target``, which must be able to run here. It comes from this process, from the cache
    directory, or is measured now (some seconds). ``refresh`` always measures; ``keep`` False writes no file; ``effort``
    scales the time spent and the memory swept (a report with less than 1 is not kept).

    A report from the cache directory is tried first: when a short run beats its peak, it was measured on a busy machine
    and is made anew. ValueError for a target that this machine cannot run, and for GPUs.
    """
    t = Target.of(target)
    if t.is_gpu:
        raise TargetError(f"{t}: the limits of GPUs are not measured; data sheets and the driver say what they are")
    missing = t.missing_here()
    if missing:
        raise ValueError(f"cannot measure {t}: this machine lacks {', '.join(missing)}")
    require_few_threads(t)
    known = None if refresh else known_report(t)
    if known is not None and (t.key in _in_process or not _is_beaten(known, t)):
        _in_process[t.key] = known
        return known
    report = _measure(t, effort)
    if effort >= 1:
        _in_process[t.key] = report
        if keep:
            _write(t, report)
    return report


def require_few_threads(target: Target) -> None:
    """Raise TargetError when ``target`` has far more threads than this machine has processors: a run would take
    minutes."""
    here = os.cpu_count() or 1
    most = max(64, 4 * here)
    if target.num_cores > most:
        raise TargetError(f"{target}: this machine has {here} processors, so at most {most} threads are measured")


def _is_beaten(report: MachineReport, target: Target) -> bool:
    """Returns whether the report is too low: a run of about 30 ms is clearly faster than its peak. It is made anew as well
    where the machine was busy then and no longer is."""
    if report.processor_share < BUSY_BELOW <= processor_share(target):
        return True
    probe = PeakProbe(target)
    best = min(probe.seconds(1) for _ in range(100))
    known = report.peak_flops.get("float32")
    return known is None or probe.flops_per_call / best > 1.03 * known["all"]


def known_report(target: Target) -> MachineReport | None:
    """Returns the report that was made earlier for ``target``, in this process or on disk; measures nothing."""
    return _in_process.get(target.key) or _read(target)


def model_of(report: MachineReport | None, target: Target) -> MachineModel:
    """Returns the analytic model of ``target``, with the measured clock and rates where there is a report. A model of a
    GPU has the figures of the device, which has to be here."""
    model = MachineModel.of(target)
    if isinstance(model, GpuModel):
        if is_simulated(target.kind):
            return model
        from ..gpu.ptx import cuda_driver  # loads with the first GPU

        return measured(model, cuda_driver().attribute)
    if report is None:
        return model
    cycles = report.clock_hz
    memory = (bandwidth_of(report, 1, "read") or 0.0) / cycles
    second = report.cache_read.get("l2", 0.0) / cycles
    return replace(
        model, cycles_per_second=cycles,
        l2_bytes_per_cycle=second or model.l2_bytes_per_cycle,
        memory_bytes_per_cycle=min(memory, model.l3_bytes_per_cycle) or model.memory_bytes_per_cycle,
    )  # fmt: skip


def peak_of(report: MachineReport, dtype: str = "float32", threads: int | None = None) -> float | None:
    """Returns the operations per second that ``threads`` threads (default: the target's) can do on ``dtype``. None
    stands for a type that was not measured. The type float16 computes as float32, and so does bfloat16 without
    instructions of its own."""
    name = dtype if dtype in report.peak_flops else AS_COMPUTED.get(dtype, dtype)
    return _scaled(report.peak_flops.get(name), report.num_cores, threads)


def bandwidth_of(report: MachineReport, threads: int | None = None, kind: str = "triad") -> float | None:
    """Returns the bytes per second that ``threads`` threads (default: the target's) move to and from memory."""
    return _scaled(report.bandwidth.get(kind), report.num_cores, threads)


def _scaled(figures: dict[str, float] | None, cores: int, threads: int | None) -> float | None:
    if figures is None:
        return None
    if threads == 1:
        return figures["one"]
    if threads is None or threads >= cores:
        return figures["all"]
    return min(figures["all"], threads * figures["one"])


_SWEPT_BYTES = 8 << 20
"""The bytes that one call reads from a cache: they take a hundred microseconds."""

_in_process: dict[str, MachineReport] = {}


def _measure(target: Target, effort: float) -> MachineReport:
    start = time.monotonic()
    had = processor_share(target)
    teams = {"one": 1, "all": target.num_cores}
    clock = Probe("clock", clock_ir(target), target)
    seconds, _ = clock.best([0, 4096, 0, 1, 1], 1e-3, 0.05 * effort)
    clock_hz = 4096 * CLOCK_STEPS / seconds
    peaks: dict[str, dict[str, float]] = {}
    room = mmap.mmap(-1, 1 << 16)
    for dtype in peak_dtypes(target):
        probe = Probe("fma", fma_ir(target, DType(dtype)), target)
        work = fma_flops(target, dtype) * ROUNDS
        peaks[dtype] = {
            name: work * n / probe.best([address_of(room), ROUNDS, 0, n, n], 5e-4, 0.15 * effort, 10)[0]
            for name, n in teams.items()
        }
        peaks[dtype]["all"] = max(
            peaks[dtype].values()
        )  # where other processes use the cores, one thread may be faster
    bandwidth, cache_read, array_bytes = _measure_memory(target, teams, effort)
    caches = target.caches
    return MachineReport(
        str(target), target.key, target.mcpu, target.model, target.vector_bits, target.num_cores,
        {name: getattr(caches, name) for name in type(caches).__slots__},
        clock_hz, peaks, bandwidth, cache_read, array_bytes, time.time(), time.monotonic() - start,
        min(had, processor_share(target)),
    )  # fmt: skip


def _measure_memory(
    target: Target, teams: dict[str, int], effort: float
) -> tuple[dict[str, dict[str, float]], dict[str, float], int]:
    block = sweep_block_bytes(target)
    caches = target.caches
    # Three arrays, together twice the last level, within reason and within a quarter of the free memory.
    total = min(max(2 * caches.l3, 192 << 20), 768 << 20, max(_free_bytes() // 4, 48 << 20))
    units = max(1, int(total * effort) // 3 // block)
    arrays = [room_of(units * block) for _ in range(3)]
    pointers = [address_of(a) for a in arrays]
    probes = {kind: sweeps(target, kind) for kind in SWEEPS}
    cache_read = {}
    for level, size in (("l1", caches.l1), ("l2", caches.l2)):
        n = max(1, size * 3 // 4 // block)
        times = max(1, _SWEPT_BYTES // (n * block))  # in one call, whose own cost then does not count
        slots = [*pointers, n, 1, 0, times]
        cache_read[level] = times * n * block / probes["read"][0].best(slots, 1e-3, 0.05 * effort)[0]
    bandwidth = {
        kind: {
            name: SWEEPS[kind]
            * units
            * block
            / min(p.best([*pointers, units, threads], 1e-3, 0.25 * effort / len(ways))[0] for p in ways)
            for name, threads in teams.items()
        }
        for kind, ways in probes.items()
    }
    return bandwidth, cache_read, units * block


def _free_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 30


def _path(target: Target) -> Path:
    return cache_directory() / f"machine-{target.key}.json"


def _read(target: Target) -> MachineReport | None:
    try:
        found = json.loads(_path(target).read_text())
        if found.get("format") != FORMAT or found.get("key") != target.key:
            return None
        return MachineReport(**found)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _write(target: Target, report: MachineReport) -> None:
    """Write the report where possible; one that cannot be written is measured again."""
    path = _path(target)
    with contextlib.suppress(OSError):
        write_file(path, json.dumps(report.as_dict(), indent=1))


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound is the least ``seconds`` that a run could take (None: not known), and their cause. The cause, ``limit``,
    is ``peak``, or the memory or cache that the arguments come from."""

    seconds: float | None
    limit: str


def bound_for(report: MachineReport, func: PrimFunc, target: Target) -> Bound:
    """Returns the roofline of ``func``: each operation done once at the peak, each argument moved once."""
    peak = peak_for(report, func, target)
    bandwidth, source = bandwidth_for(report, func, target)
    flops, size = count_flops(func), count_bytes(func)
    compute = flops / peak if flops and peak else 0.0
    move = size / bandwidth if size and bandwidth else 0.0
    return Bound(max(compute, move) or None, "peak" if compute >= move else source)


def limits_of(report: MachineReport, func: PrimFunc, target: Target) -> dict[str, Any]:
    """Returns what a database keeps of the machine's limits for ``func``; see
    :class:`~tilewright.tuning_db.SessionRecord`."""
    bound = bound_for(report, func, target)
    return {
        "peak_flops": peak_for(report, func, target), "bandwidth": bandwidth_for(report, func, target)[0],
        "roofline_seconds": bound.seconds, "limited_by": bound.limit,
    }  # fmt: skip


def peak_for(report: MachineReport, func: PrimFunc, target: Target) -> float | None:
    """Returns the operations per second that the target's threads can do on the data type of :func:`peak_dtype`."""
    narrow = any(b.dtype.is_int and b.dtype != "bool" and b.dtype.element.bytes < 4 for b in func.buffers)
    if narrow and peak_dtype(func, report) == "float32":
        return None  # more small integers than floats fit into a vector, and their peak was not measured
    return peak_of(report, peak_dtype(func, report), target.num_cores)


def peak_dtype(func: PrimFunc, report: MachineReport) -> str:
    """Returns the measured data type whose peak bounds ``func``: its first argument's, where that was measured."""
    dtype = func.buffers[0].dtype if func.buffers else "float32"
    dtype = {"uint8": "int8"}.get(dtype, dtype)
    return dtype if dtype in report.peak_flops else "float32"


def bandwidth_for(report: MachineReport, func: PrimFunc, target: Target) -> tuple[float | None, str]:
    """Returns the bytes per second that bound a repeated run, and where its arguments come from. They stay where the
    last run left them.

    Arguments that fit into the threads' level-1 or level-2 caches come from there. From the last level, which is not
    measured, they come no faster than from level 2. Of larger ones that level may hold as much as it is large, so that
    only the rest is sure to come from memory, at the rate of the fastest sweep.
    """
    size = count_bytes(func)
    if size is None:
        return None, ""
    threads = target.num_cores
    share = size / threads
    if share <= 0.75 * target.l1_bytes and "l1" in report.cache_read:
        return report.cache_read["l1"] * threads, "level-1 cache"
    if size <= 0.75 * max(target.l3_bytes, target.l2_bytes * threads) and "l2" in report.cache_read:
        return report.cache_read["l2"] * threads, "level-2 cache"
    rates = [rate for kind in report.bandwidth if (rate := bandwidth_of(report, threads, kind))]
    if not rates:
        return None, "memory"
    seconds = (size - max(target.l3_bytes, target.l2_bytes * threads)) / max(rates)
    if "l2" in report.cache_read:
        near = size / (report.cache_read["l2"] * threads)
        if near >= seconds:
            return size / near, "level-2 cache"
    return (size / seconds if seconds > 0 else None), "memory"
