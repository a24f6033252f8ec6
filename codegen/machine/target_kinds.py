"""The table of kinds of targets that compile in a way of their own, such as GPUs.

Processors are the kinds ``native``, ``llvm`` and ``c``, which :mod:`.described_targets` knows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..late_table import LateTable, Place


@dataclass(frozen=True)
class TargetKind:
    """A kind of target: the first word of its text.

    ``compile(functions, target)`` returns the module of functions by name, each as it was scheduled. ``triple`` and
    ``cpu`` are LLVM's words for the machine (an empty triple: this machine), ``words`` other names of options, as
    ``arch`` for ``mcpu``. ``as_written``: programs that nobody scheduled stay as they are.
    """

    name: str
    compile: Callable[[Mapping[str, Any], Any], Any] = field(repr=False)
    triple: str = ""
    cpu: str = "generic"
    words: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False
    as_written: bool = False
    simulated: bool = False
    """Whether programs run on a simulated device, which has no clock."""
    missing: Callable[[Any], list[str]] | None = None
    """Returns what this machine lacks to run code for a target; None: what is known of its processor."""
    summary: str = ""
    """What the targets of the kind are, in some words, for lists."""


TARGET_KINDS: LateTable[TargetKind] = LateTable(
    {
        "cuda": Place("gpu", "CUDA"),
        "gpu-sim": Place("gpu", "GPU_SIM"),
        "verilog": Place("circuits", "VERILOG"),
    }
)
"""The kinds by name. Those of this library stand in packages of their own, which load with the first target of the kind."""


def register_target_kind(kind: TargetKind) -> TargetKind:
    """Add a kind of target, and return it. ValueError when there is one of this name."""
    if kind.name in TARGET_KINDS or kind.name in ("native", "llvm", "c"):
        raise ValueError(f"there is a kind of target named {kind.name} already")
    TARGET_KINDS[kind.name] = kind
    return kind


def is_simulated(kind: str) -> bool:
    """Returns whether programs for targets of a kind run on a simulated device, which has no clock."""
    return kind in TARGET_KINDS and TARGET_KINDS[kind].simulated
