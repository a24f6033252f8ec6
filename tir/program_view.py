"""Notebooks show programs in colours, with loops and blocks that fold."""

from __future__ import annotations

from ..pages import card, code_html
from .stmt import IRModule, PrimFunc


def program_html(func: PrimFunc) -> str:
    """Returns the program as HTML."""
    return card(func.name, code_html(func.script()), note="a click on a loop or block folds it")


def module_html(module: IRModule) -> str:
    """Returns the programs of a module as HTML."""
    return card(", ".join(sorted(module.functions)), code_html(module.script()))
