"""This module describes the machine that this process runs on: processor, caches, the permission to use tile
registers."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Caches:
    """The data caches that one core uses: sizes in bytes, associativity, and the line size in bytes."""

    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 8 << 20
    l1_ways: int = 8
    l2_ways: int = 8
    l3_ways: int = 16
    line: int = 64


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that this process runs on. ``model`` is the CPU's own name, ``features`` LLVM's full list, each
    ``+name`` or ``-name``, as measured (a virtual machine may mask some that the CPU's name implies)."""

    triple: str
    cpu: str
    model: str
    features: tuple[str, ...]
    caches: Caches = Caches()


def generic_caches(arch: str, wide: bool) -> Caches:
    """Returns assumed caches of an unknown machine: those of a modest core of the last ten years."""
    if arch == "aarch64":
        return Caches(64 << 10, 512 << 10, 8 << 20, 4, 8, 16)
    return Caches(32 << 10, (1 << 20) if wide else (256 << 10), 8 << 20, 8, 16 if wide else 4, 16)


@lru_cache(maxsize=1)
def host() -> Host:
    """Return the properties of this machine, which are determined once. LLVM names the CPU and its features."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    listed = [f"+{name}" if features[name] else f"-{name}" for name in sorted(features)]
    return _detailed(Host(llvm.get_process_triple(), cpu, cpu, tuple(listed)))


def available_cores() -> int:
    """Returns the number of cores that this process may use: the affinity mask, limited by a cgroup's CPU quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def tiles_allowed() -> bool:
    """Returns whether Linux lets this process use AMX's tile registers.

    The only way to know is to request them, as kernels do before they use them. The request costs nothing where they
    are not used, and some sandboxes refuse it.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0
    except (AttributeError, OSError):
        return False


def _detailed(known: Host) -> Host:
    """Returns a description of this machine with its model and its caches, without tile registers that must not be used."""
    features = known.features
    if "+amx-tile" in features and not tiles_allowed():
        features = tuple([f.replace("+", "-", 1) if f.startswith("+amx-") else f for f in features])
    caches = _read_caches(known.triple.split("-")[0], "+avx512f" in features)
    return dataclasses.replace(known, model=_model_name(), features=features, caches=caches)


def _model_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for key in ("model name", "Hardware", "CPU part"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.machine()


def _read_caches(arch: str, wide: bool) -> Caches:
    found: dict[str, int] = {}
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in sorted(base.glob("index*")) if base.is_dir() else ():
        try:
            level = (index / "level").read_text().strip()
            if (index / "type").read_text().strip() == "Instruction" or level not in "123":
                continue
            found[f"l{level}"] = _parse_size((index / "size").read_text().strip())
            ways = int((index / "ways_of_associativity").read_text() or 0)
            if ways > 0:
                found[f"l{level}_ways"] = ways
            found["line"] = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
    guess = generic_caches(arch, wide)
    return Caches(**{name: found.get(name, getattr(guess, name)) for name in Caches.__slots__})


def _parse_size(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
