"""The table of kinds of targets that compile in a way of their own, such as GPUs.

Processors are the kinds ``native``, ``llvm`` and ``c``, which :mod:`.described_targets` knows itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any


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


TARGET_KINDS: dict[str, TargetKind] = {}
"""The kinds by name."""


def register_target_kind(kind: TargetKind) -> TargetKind:
    """Add a kind of target, and return it. ValueError when there is one of this name."""
    if kind.name in TARGET_KINDS or kind.name in ("native", "llvm", "c"):
        raise ValueError(f"there is a kind of target named {kind.name} already")
    TARGET_KINDS[kind.name] = kind
    return kind


def is_simulated(kind: str) -> bool:
    """Returns whether programs for targets of a kind run on a simulated device, which has no clock."""
    return kind in TARGET_KINDS and TARGET_KINDS[kind].simulated


# Loads what installed packages add to the kinds of targets and to the back ends.

GROUP = "tilewright.targets"
"""The group of entry points by which installed packages add targets."""


@cache
def load_installed() -> tuple[str, ...]:
    """Call the entry points of the group ``tilewright.targets``, once, and return their names.

    Each is a function without parameters of an installed package, which registers kinds of targets and back ends. It is
    called when a target or a file names what is not known yet. One that fails is a warning, and the others go on.
    """
    found = []
    for point in entry_points(group=GROUP):
        try:
            point.load()()
            found.append(point.name)
        except Exception as error:  # a stranger's code may raise anything
            warnings.warn(f"the entry point {point.name} = {point.value} of {GROUP} failed: {error}", stacklevel=2)
    return tuple(found)
