"""This module writes the signatures of the schedule's methods, which type checkers read, from the registered primitives.

``python -m tests.house.method_signatures`` writes ``schedule/method_signatures.py``; a test compares it.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import tilewright.schedule  # noqa: F401  registers the primitives
from tilewright.schedule.primitive import REGISTRY, Primitive

PLACE = Path(__file__).parents[2] / "schedule" / "method_signatures.py"

HEAD = '''"""The signatures of the schedule's methods, for type checkers; the methods are made from the primitives.

Written by ``python -m tests.house.method_signatures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.expr import Expr
from .handles import BlockRV, ExprRV, LoopRV

Block = BlockRV | str
Factor = int | Expr | None


class MethodSignatures:
    """The methods that registered primitives give to ``Schedule``."""
'''

BLOCKS = ("block", "scope_block", "reduction_block", "epilogue_block")
PARAMETERS = {
    "blocks": "Block",
    "consumer_blocks": "Sequence[Block] | Block | None",
    "target": "LoopRV | Block | Sequence[Block]",
    "block_or_loop": "Block | LoopRV",
    "candidates": "Sequence[int | float | Expr]",
}


def parameter_type(name: str, annotation: str) -> str:
    """Returns what a method takes where its primitive takes ``annotation``."""
    if name in PARAMETERS:
        return PARAMETERS[name]
    if name in BLOCKS:
        return "Block"
    return re.sub(r"\bVar\b", "LoopRV", annotation)


def returned_type(step: Primitive, annotation: str) -> str:
    """Returns what a method returns where its primitive returns ``annotation``."""
    if step.kind == "sample":
        out = _parts(annotation)[1]
        return "LoopRV" if out == "Var" else "list[ExprRV]" if out.startswith("list") else "ExprRV"
    if step.kind == "rewrite":
        annotation = "None" if annotation == "PrimFunc" else _parts(annotation)[1]
    return "ExprRV" if step.name == "get_symbol" else re.sub(r"\bVar\b", "LoopRV", annotation)


def _parts(annotation: str) -> list[str]:
    inner = annotation[annotation.index("[") + 1 : -1]
    return [part.strip() for part in re.split(r",(?![^\[]*\])", inner)]


def method(step: Primitive) -> str:
    """Returns the text of one method."""
    words = ["self"]
    starred = False
    for p in step.signature.parameters.values():
        kind = parameter_type(p.name, str(p.annotation))
        if p.kind is p.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        if p.kind is p.VAR_POSITIONAL:
            words.append(f"*{p.name}: {kind}")
            starred = True
        else:
            default = "" if p.default is p.empty else f" = {p.default!r}"
            words.append(f"{p.name}: {kind}{default}")
    first = (inspect.getdoc(step.function) or "").split("\n\n")[0].split("``. ")[0]
    sentence = re.split(r"(?<=\.)\s", " ".join(first.split()))[0]
    returned = returned_type(step, str(inspect.signature(step.function).return_annotation))
    return f'    def {step.name}({", ".join(words)}) -> {returned}:\n        """{sentence}"""\n        raise NotImplementedError\n'


def text() -> str:
    """Returns the whole module, formatted."""
    raw = HEAD + "\n" + "\n".join(method(step) for _, step in sorted(REGISTRY.items()))
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    return subprocess.run(command, input=raw, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    PLACE.write_text(text())
