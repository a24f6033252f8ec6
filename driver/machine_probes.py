"""What this machine can do, measured by code that Tilewright generates: the peak of multiply-adds, the bandwidth of
memory and caches, the clock. Shares of the peak and of the roofline are shares of these figures.

The figures are the best of many short runs, since anything else on the machine only ever takes away. They are kept in
the cache directory under the target's fingerprint; ``refresh=True`` measures again.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..codegen.cache_directory import cache_directory
from ..codegen.llvm.jit import load, optimize_and_compile
from ..codegen.llvm.microbenchmarks import (
    CLOCK_STEPS,
    clock_ir,
    driver_ir,
    fma_flops,
    fma_ir,
    sweep_block_bytes,
    sweep_ir,
)
from ..codegen.runtime.loader import runtime_symbols
from ..codegen.target import Target

FORMAT = 3
SWEEPS = {"read": 1, "copy": 2, "triad": 3}
"""Arrays that each sweep of the report moves."""
ARRAYS = {**SWEEPS, "quad": 4}
"""The same for all sweeps that :class:`BandwidthProbe` has."""
ROUNDS = 1 << 14
"""Rounds of multiply-adds in one call of one thread: long enough that forking and joining do not count."""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The measured machine. ``peak_flops[dtype]`` holds operations per second for ``one`` thread and for ``all`` of the
    target's (a multiply-add is two; int8 and bfloat16 by the matrix unit or dot products, where there are any);
    ``bandwidth[kind]`` bytes per second from memory likewise (what the program moves; a store's read of its line not
    counted); ``cache_read[level]`` bytes per second read by one thread; ``clock_hz`` of one busy core.
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
    format: int = field(default=FORMAT)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return asdict(self)


def measure_machine(
    target: str | Target = "native", *, refresh: bool = False, keep: bool = True, effort: float = 1.0
) -> MachineReport:
    """Returns the report for ``target``, which must be able to run here: from this process, from the cache directory,
    or measured now (some seconds). ``refresh`` measures anyway; ``keep`` False writes no file; ``effort`` scales the
    time spent and the memory swept (a report with less than 1 is not kept).

    A report from the cache directory is tried first: when a short run beats its peak, it was measured on a busy machine
    and is made anew. ValueError for a target that this machine cannot run.
    """
    t = target if isinstance(target, Target) else Target(target)
    missing = t.missing_here()
    if missing:
        raise ValueError(f"cannot measure {t}: this machine lacks {', '.join(missing)}")
    if not refresh:
        known = _in_process.get(t.key)
        if known is not None:
            return known
        known = _read(t)
        if known is not None and not _is_beaten(known, t):
            _in_process[t.key] = known
            return known
    report = _measure(t, effort)
    if effort >= 1:
        _in_process[t.key] = report
        if keep:
            _write(t, report)
    return report


def _is_beaten(report: MachineReport, target: Target) -> bool:
    """Returns whether a run of some 30 ms does clearly better than the report says is possible."""
    probe = PeakProbe(target)
    best = min(probe.seconds(1) for _ in range(100))
    known = report.peak_flops.get("float32")
    return known is None or probe.flops_per_call / best > 1.03 * known["all"]


_AS_COMPUTED = {"float16": "float32", "bfloat16": "float32"}
"""What stands in for types without instructions of their own."""


def peak_of(report: MachineReport, dtype: str = "float32", threads: int | None = None) -> float | None:
    """Operations per second that ``threads`` threads (default: the target's) can do on ``dtype``; None when it was not
    measured. float16 computes as float32, and so does bfloat16 without instructions of its own."""
    name = dtype if dtype in report.peak_flops else _AS_COMPUTED.get(dtype, dtype)
    return _scaled(report.peak_flops.get(name), report.num_cores, threads)


def bandwidth_of(report: MachineReport, threads: int | None = None, kind: str = "triad") -> float | None:
    """Bytes per second that ``threads`` threads (default: the target's) move to and from memory."""
    return _scaled(report.bandwidth.get(kind), report.num_cores, threads)


def _scaled(figures: dict[str, float] | None, cores: int, threads: int | None) -> float | None:
    if figures is None:
        return None
    if threads == 1:
        return figures["one"]
    if threads is None or threads >= cores:
        return figures["all"]
    return min(figures["all"], threads * figures["one"])


_in_process: dict[str, MachineReport] = {}


class _Probe:
    """One kernel, loaded, with its context; ``best`` gives the least seconds of a call."""

    def __init__(self, name: str, body: str, target: Target) -> None:
        code = optimize_and_compile(body + driver_ir(name), target)
        symbols = runtime_symbols()
        self.loaded = load(code.object, ["run"], symbols)
        self.time = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            symbols["tw_time"]
        )
        self.context = (ctypes.c_int64 * 8)()

    def best(
        self, slots: list[int], goal_seconds: float, budget_seconds: float, least_runs: int = 3
    ) -> tuple[float, int]:
        """Least seconds per call, in runs of about ``goal_seconds``, until the budget is spent; and the calls a run."""
        for i, value in enumerate(slots):
            self.context[i] = value
        address, where = self.loaded.address("run"), ctypes.addressof(self.context)
        number = 1
        while (taken := self.time(address, where, number) * 1e-9) < goal_seconds / 2 and number < 1 << 24:
            number = min(number * 8, max(number + 1, int(number * goal_seconds / max(taken, 1e-9))))
        least, runs, end = taken / number, 1, time.monotonic() + budget_seconds
        while runs < least_runs or time.monotonic() < end:
            least = min(least, self.time(address, where, number) * 1e-9 / number)
            runs += 1
        return least, number

    def seconds(self, number: int) -> float:
        """Seconds per call, over ``number`` calls with the context as it is."""
        where = ctypes.addressof(self.context)
        return float(self.time(self.loaded.address("run"), where, number)) * 1e-9 / number


class PeakProbe:
    """The multiply-add peak as something to run in turns with kernels: the clock of a shared machine drifts, and a share
    of the peak means most when both were measured in the same moment."""

    def __init__(self, target: Target, dtype: str = "float32") -> None:
        """The fastest instruction that ``target`` has for ``dtype``; half floats without one count as float32. ValueError
        where there is none, as for int8 on a machine without dot products."""
        known = _peak_dtypes(target)
        dtype = dtype if dtype in known else _AS_COMPUTED.get(dtype, dtype)
        if dtype not in known:
            raise ValueError(f"{target} has no multiply-add of {dtype} to measure; there are {', '.join(known)}")
        self._probe = _Probe("fma", fma_ir(target, dtype), target)
        self._room = mmap.mmap(-1, 1 << 16)
        threads = target.num_cores
        self.flops_per_call = fma_flops(target, dtype) * ROUNDS * threads
        for slot, value in enumerate([_address(self._room), ROUNDS, 0, threads, threads]):
            self._probe.context[slot] = value

    def seconds(self, number: int) -> float:
        """Seconds per call, over ``number`` calls of ``flops_per_call`` operations each."""
        return self._probe.seconds(number)


class BandwidthProbe:
    """A sweep over as much memory as a kernel moves, to run in turns with it; ``kind`` is ``read``, ``copy``,
    ``triad`` or ``quad`` (d = a b + c), ``size`` the bytes of all its arrays together. Its stores go past the caches where that is faster.

    ``places``: addresses of that many arrays, multiples of 64, to sweep instead of memory of its own. Over a kernel's own
    arrays it finds in the caches what the kernel finds there.
    """

    def __init__(self, target: Target, kind: str, size: int, places: Sequence[int] = ()) -> None:
        block = sweep_block_bytes(target)
        threads = target.num_cores
        units = max(threads, size // ARRAYS[kind] // block)
        self._arrays = [] if places else [_room(units * block) for _ in range(ARRAYS[kind])]
        pointers = (4 * [*places, *map(_address, self._arrays)])[:4]
        self.bytes_per_call = ARRAYS[kind] * units * block
        best = []
        for probe in _sweeps(target, kind):
            slots = [*pointers[:3], units, threads, pointers[3]]
            best.append((probe.best(slots, 1e-3, 0.02)[0], probe))
        self._probe = min(best, key=lambda pair: pair[0])[1]

    def seconds(self, number: int) -> float:
        """Seconds per call, over ``number`` calls that move ``bytes_per_call`` bytes each."""
        return self._probe.seconds(number)


def _measure(target: Target, effort: float) -> MachineReport:
    start = time.monotonic()
    teams = {"one": 1, "all": target.num_cores}
    clock = _Probe("clock", clock_ir(target), target)
    seconds, _ = clock.best([0, 4096, 0, 1, 1], 1e-3, 0.05 * effort)
    clock_hz = 4096 * CLOCK_STEPS / seconds
    peaks: dict[str, dict[str, float]] = {}
    room = mmap.mmap(-1, 1 << 16)
    for dtype in _peak_dtypes(target):
        probe = _Probe("fma", fma_ir(target, dtype), target)
        work = fma_flops(target, dtype) * ROUNDS
        peaks[dtype] = {
            name: work * n / probe.best([_address(room), ROUNDS, 0, n, n], 5e-4, 0.15 * effort, 10)[0]
            for name, n in teams.items()
        }
        peaks[dtype]["all"] = max(peaks[dtype].values())  # where others keep the cores busy, one may do better
    bandwidth, cache_read, array_bytes = _measure_memory(target, teams, effort)
    caches = target.caches
    return MachineReport(
        str(target), target.key, target.mcpu, target.model, target.vector_bits, target.num_cores,
        {name: getattr(caches, name) for name in type(caches).__slots__},
        clock_hz, peaks, bandwidth, cache_read, array_bytes, time.time(), time.monotonic() - start,
    )  # fmt: skip


def _peak_dtypes(target: Target) -> list[str]:
    out = ["float32", "float64"]
    wide = target.vector_bits == 512
    if target.has_amx_int8 or (wide and target.has_vnni):
        out.append("int8")
    if target.has_amx_bf16 or (wide and target.has("avx512bf16")):
        out.append("bfloat16")
    return out


def _measure_memory(
    target: Target, teams: dict[str, int], effort: float
) -> tuple[dict[str, dict[str, float]], dict[str, float], int]:
    block = sweep_block_bytes(target)
    caches = target.caches
    # Three arrays, together twice the last level, within reason and within a quarter of the free memory.
    total = min(max(2 * caches.l3, 192 << 20), 768 << 20, max(_free_bytes() // 4, 48 << 20))
    units = max(1, int(total * effort) // 3 // block)
    arrays = [_room(units * block) for _ in range(3)]
    pointers = [_address(a) for a in arrays]
    probes = {kind: _sweeps(target, kind) for kind in SWEEPS}
    cache_read = {}
    for level, size in (("l1", caches.l1), ("l2", caches.l2)):
        n = max(1, size * 3 // 4 // block)
        cache_read[level] = n * block / probes["read"][0].best([*pointers, n, 1], 1e-3, 0.05 * effort)[0]
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


def _sweeps(target: Target, kind: str) -> list[_Probe]:
    """Returns the ways to sweep: one stream of each array or eight, what stores also past the caches."""
    past_caches = (False, True) if kind != "read" else (False,)
    ways = [(past, apart) for apart in (False, True) for past in past_caches]
    return [_Probe(kind, sweep_ir(target, kind, past, apart), target) for past, apart in ways]


def _room(size: int) -> mmap.mmap:
    """Memory in large pages where the system has them, as NumPy's large arrays are. Every page gets memory of its own:
    untouched pages are one page of zeros."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    room = mmap.mmap(-1, size, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # given to private memory only
        with contextlib.suppress(OSError):
            room.madvise(mmap.MADV_HUGEPAGE)
    ctypes.memset(_address(room), 0, size)
    return room


def _address(room: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(room))


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
    """Best effort: a report that cannot be kept is measured again."""
    path = _path(target)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(report.as_dict(), indent=1))
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
