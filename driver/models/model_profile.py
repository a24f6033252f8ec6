"""This module sums up how long the kernels of a model take. It also says what share of the machine's limits they
reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen import Target
from ...pages.short_repr import short_repr
from ...tir.cost import count_bytes, count_flops
from ...tir.expr import Var
from ...tir.stmt import PrimFunc
from ..machine_report import MachineReport, bound_for, known_report


@dataclass(frozen=True)
class KernelRow:
    """One call of a kernel, or several calls of one kernel together: ``seconds`` of all ``calls``.

    ``flops`` and ``share`` (of the least time that the machine allows) are None when they are not known.
    """

    name: str
    symbol: str
    seconds: float
    kind: str
    origin: str
    func: PrimFunc = field(repr=False)
    calls: int = 1
    flops: float | None = None
    share: float | None = None

    @property
    def gflops(self) -> float | None:
        """Returns billions of operations per second."""
        return self.calls * self.flops / self.seconds / 1e9 if self.flops and self.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {
            "name": self.name, "symbol": self.symbol, "calls": self.calls, "seconds": self.seconds,
            "gflops": self.gflops, "share_of_roofline": self.share, "kind": self.kind, "origin": self.origin,
        }  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """The kernels of a model, those that take longest first. ``str(profile)`` is a table."""

    model: str
    rows: Sequence[KernelRow]

    __repr__ = short_repr("model", "seconds", "rows")

    @property
    def seconds(self) -> float:
        """Returns the time of all kernels together."""
        return sum(row.seconds for row in self.rows)

    def __str__(self) -> str:
        head = f"{'kernel':48} {'calls':>5} {'µs':>10} {'%':>5} {'GFLOP/s':>8} {'roofline':>8}  schedule"
        whole = self.seconds or 1.0
        lines = []
        for row in self.rows:
            gflops = "–" if row.gflops is None else f"{row.gflops:.1f}"
            share = "–" if row.share is None else f"{row.share:.0%}"
            part = f"{100 * row.seconds / whole:.1f}"
            lines.append(
                f"{row.name:48} {row.calls:5} {row.seconds * 1e6:10.1f} {part:>5} {gflops:>8} {share:>8}  {row.origin}"
            )
        total = f"{self.model}: {sum(row.calls for row in self.rows)} calls of kernels, {self.seconds * 1e6:.1f} µs"
        return "\n".join([head, *lines, total])


def profile_of(name: str, rows: Sequence[KernelRow], target: Target, sizes: Mapping[Var, int]) -> Profile:
    """Returns the profile of a run: calls of one kernel together, with shares where the machine was measured."""
    groups: dict[str, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.symbol, []).append(row)
    report = known_report(target)
    out = [_together(group, report, target, sizes) for group in groups.values()]
    return Profile(name, sorted(out, key=lambda row: -row.seconds))


def _together(
    group: Sequence[KernelRow], report: MachineReport | None, target: Target, sizes: Mapping[Var, int]
) -> KernelRow:
    first = group[0]
    seconds = sum(row.seconds for row in group)
    flops = count_flops(first.func)
    bound = None
    if report is not None and count_bytes(first.func) is not None:
        bound = bound_for(report, first.func, target).seconds
    calls = sum(row.calls for row in group)
    share = calls * bound / seconds if bound and seconds else None
    return KernelRow(first.name, first.symbol, seconds, first.kind, first.origin, first.func, calls, flops, share)
