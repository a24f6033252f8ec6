"""This module finds the first sentences of docstrings and counts their words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_CODE = re.compile(r"``.*?``|:\w+:`.*?`|`.*?`")
_END = re.compile(r"(?<!\bal)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|$)")


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring in one line: its first paragraph where that has no end of a sentence."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    end = _END.search(_CODE.sub(lambda code: "x" * len(code[0]), paragraph))
    return paragraph[: end.end()] if end else paragraph


def words(sentence: str) -> int:
    """Returns how many words a sentence has; a span of code is one word, and signs such as ``=`` are none."""
    return sum(any(c.isalnum() for c in word) for word in _CODE.sub("code", sentence).split())


def documented(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yields the line, the name and the docstring of a module and of its classes and functions, where they have one."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), getattr(node, "name", "the module"), text
