"""This module computes the roofline, the least seconds that a kernel can take. That is the larger of operations over
peak and bytes over bandwidth (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..codegen import Target
from ..tir.cost import count_bytes, count_flops
from ..tir.stmt import PrimFunc
from .machine_report import MachineReport, bandwidth_of, peak_of


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
