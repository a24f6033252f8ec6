"""Notebooks show programs in colours, with loops and blocks that fold."""

from __future__ import annotations

from ..pages import card, code_html, shown_in_notebooks
from .stmt import IRModule, PrimFunc


@shown_in_notebooks(PrimFunc)
def program_html(func: PrimFunc) -> str:
    """Returns the program as HTML."""
    return card(func.name, code_html(func.script()), note="a click on a loop or block folds it")


@shown_in_notebooks(IRModule)
def module_html(module: IRModule) -> str:
    """Returns the programs of a module as HTML."""
    return card(", ".join(sorted(module.functions)), code_html(module.script()))
