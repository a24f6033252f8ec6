"""The text that is parsed: :class:`Source`, errors that show a place in it, and limits on size and nesting.

``ast.parse`` may overflow the C stack on deeply nested text (CPython issues 95185 and 126711), so :func:`check_text`
counts length, nesting, operators per logical line and chains of ``elif`` before Python's own parser reads the text."""

from __future__ import annotations

import ast
import re

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


MAX_CHARACTERS = 8_000_000
MAX_NESTING = 80
MAX_INDENT = 400
MAX_OPERATORS = 60_000
USUAL_OPERATORS = 4_000
"""A text with more operators in one line is parsed on a large stack."""
MAX_PREFIXES = 60
MAX_ELIFS = 200

_TOKEN = re.compile(
    r"""
      (?P<string>\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<comment>\#[^\n]*)
    | (?P<join>\\\n)
    | (?P<line>\n[ \t\f]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<prefix>~|\b(?:not|lambda|await)\b)
    | (?P<operator>[-+*/%@&|^<>=!.,:]+|\b(?:and|or|if|else|for|in|is)\b)
    | (?P<elif>\belif\b)
    | (?P<word>\w+)
    """,
    re.VERBOSE | re.DOTALL,
)


def check_text(source: Source) -> int:
    """Return the largest number of operators in one line; ParseError when the text exceeds a limit."""
    text = source.text

    def fail(what: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        raise ParseError(f"the text is refused: {what}", source, line, at - (text.rfind("\n", 0, at) + 1))

    if len(text) > MAX_CHARACTERS:
        fail(f"{len(text)} characters, at most {MAX_CHARACTERS} are allowed", 0)
    if "\0" in text:
        fail("it holds a NUL character", text.index("\0"))
    depth = operators = prefixes = most = 0
    elifs: dict[int, int] = {}
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            prefixes = 0
        elif kind == "operator":
            operators += 1
            token = match[0]
            # "- - - x" nests like "not not not x", and so do lambdas.
            prefixes = prefixes + len(token) if token[-1] in "+-" else prefixes if token == ":" else 0
        elif kind == "open":
            depth += 1
            operators += 1
            prefixes = 0
            if depth > MAX_NESTING:
                fail(f"more than {MAX_NESTING} brackets inside one another", match.start())
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "prefix":
            prefixes += 1
            operators += 1
        elif kind == "line" and depth == 0:
            operators = prefixes = 0
            problem = _line_problem(elifs, len(match[0]) - 1, text[match.end() : match.end() + 4])
            if problem:
                fail(problem, match.end())
        most = max(most, operators)
        if operators > MAX_OPERATORS:
            fail(f"more than {MAX_OPERATORS} operators in one line", match.start())
        if prefixes > MAX_PREFIXES:
            fail(f"more than {MAX_PREFIXES} prefix operators in a row", match.start())
    return most


def _line_problem(elifs: dict[int, int], indent: int, beginning: str) -> str:
    """Return why a line that begins so is refused, or ""; count its ``elif`` in ``elifs``, by indent."""
    if beginning[:1] in ("\n", "#", ""):
        return ""
    for other in [k for k in elifs if k > indent]:
        del elifs[other]
    if beginning == "elif":
        elifs[indent] = elifs.get(indent, 0) + 1
    elif beginning != "else":
        elifs.pop(indent, None)
    if indent > MAX_INDENT:
        return f"indented by more than {MAX_INDENT}"
    return f"more than {MAX_ELIFS} elif in a row" if elifs.get(indent, 0) > MAX_ELIFS else ""
