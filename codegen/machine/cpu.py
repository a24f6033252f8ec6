"""This module describes the machine that this process runs on; :mod:`.host_details` knows more of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...tir.expr.base.slot import Slot


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


HOST_DETAILS: Slot[Callable[[Host], Host]] = Slot(lambda known: known)
"""Completes what LLVM knows of this machine."""


@lru_cache(maxsize=1)
def host() -> Host:
    """Return the properties of this machine, which are determined once. LLVM names the CPU and its features."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    listed = [f"+{name}" if features[name] else f"-{name}" for name in sorted(features)]
    return HOST_DETAILS.value(Host(llvm.get_process_triple(), cpu, cpu, tuple(listed)))


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
