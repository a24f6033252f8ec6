"""This module defines errors of the parser and their place in the text."""

from __future__ import annotations

import ast

_WIDTH = 160
"""The most columns of the excerpt."""


class Source:
    """Represents a text with its file name and its first line number in that file."""

    def __init__(self, text: str, filename: str = "<text>", first_line: int = 1) -> None:
        self.text = text
        self.filename = filename
        self.first_line = first_line
        self._lines: list[str] | None = None

    def line(self, number: int) -> str:
        """Return a line of the text, counted from 1."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def error(self, message: str, node: ast.AST | None) -> ParseError:
        """Return a ParseError with ``message`` at ``node``."""
        return ParseError(
            message,
            self,
            getattr(node, "lineno", 1),
            getattr(node, "col_offset", 0),
            getattr(node, "end_lineno", None),
            getattr(node, "end_col_offset", None),
        )


class ParseError(ValueError):
    """Raised for a text that is not a TIR program.

    It has ``message``, ``line`` and ``column`` (both from 1), and an excerpt with a caret.
    """

    def __init__(
        self,
        message: str,
        source: Source,
        lineno: int,
        col_offset: int,
        end_lineno: int | None = None,
        end_col_offset: int | None = None,
    ) -> None:
        text = source.line(lineno).encode(errors="replace").decode()  # a lone surrogate has no encoding
        # The offsets of Python's ast count bytes.
        start = len(text.encode()[:col_offset].decode(errors="ignore"))
        end = len(text)
        if end_lineno == lineno and end_col_offset is not None:
            end = len(text.encode()[:end_col_offset].decode(errors="ignore"))
        self.message = message
        self.line = lineno + source.first_line - 1
        self.column = start + 1
        shift = max(0, min(start - _WIDTH // 2, len(text) - _WIDTH))  # the part of a long line that is shown
        text = text[shift : shift + _WIDTH]
        start, end = start - shift, min(end - shift, len(text))
        number = str(self.line)
        super().__init__(
            f"{message}\n"
            f"  --> {source.filename}:{self.line}:{self.column}\n"
            f"{' ' * len(number)} |\n"
            f"{number} | {text}\n"
            f"{' ' * len(number)} | {' ' * start}{'^' * max(end - start, 1)}"
        )
