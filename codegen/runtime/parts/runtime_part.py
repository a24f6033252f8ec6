"""This module defines a part of the runtime: its text in LLVM IR, and what the text depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...machine.target import Target


def _nothing(target: Target) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class RuntimePart:
    """A part of the runtime, which may call functions of the parts before it.

    ``text`` is IR in which ``$link`` and ``$data`` stand for the linkage of functions and of variables; ``symbols`` are the functions that
    generated code and the call path use; ``words`` gives further words of the text, which depend on the target.
    """

    text: str
    symbols: tuple[str, ...]
    words: Callable[[Target], Mapping[str, str]] = _nothing


def is_mac(target: Target) -> bool:
    """Returns whether the target's system is macOS, whose constants of POSIX differ."""
    return "darwin" in target.triple or "macos" in target.triple


def is_linux(target: Target) -> bool:
    """Returns whether the target's system is Linux."""
    return "linux" in target.triple
