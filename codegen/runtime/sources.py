"""This module gives the source of a module as text, at each stage and in each back end's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backend.registry import BACKENDS
from ..machine.installed_targets import load_installed

if TYPE_CHECKING:
    from .module import Module

SOURCES = ("tir", "scheduled", "lowered", "ll", "ir", "asm")


def source_of(module: Module, fmt: str) -> str:
    """Returns the program as text: see :meth:`.module.Module.get_source`."""
    functions = list(module._lowered.values())
    if fmt in ("tir", "scheduled"):
        return "\n".join((f.scheduled or f.func).script() for f in functions)
    if fmt == "lowered":
        return "\n".join(f.script() for f in functions)
    if fmt == "ir":
        return module.code.ir
    if fmt == "ll":
        return module.code.optimized_ll()
    if fmt in ("asm", "s"):
        return module.code.asm()
    if fmt not in BACKENDS:
        load_installed()
    if fmt in BACKENDS:
        return BACKENDS[fmt].emit(functions)
    raise ValueError(f"no source {fmt!r}; there are {', '.join((*SOURCES, *BACKENDS))}")
