"""This module prints results on stdout: tables for people, one JSON document for programs. It has the exit codes, and the error
that ends a command with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

EXIT_CODES = {
    0: "done",
    1: "a check failed, or the file cannot be used",
    2: "usage: an unknown option, workload or target, a bad value",
    3: "no record in the database under --require-tuned",
    4: "nothing could be measured",
    130: "interrupted (143: terminated); what was measured is saved",
}


class CommandError(Exception):
    """This error ends the command with a message, a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def check_results(contenders: Iterable[Any]) -> None:
    """Raise CommandError for the first contender of a benchmark whose result is wrong, which its ``error`` says."""
    for row in contenders:
        if row.error:
            raise CommandError(f"{row.name}: {row.error}", "this may be a bug in Tilewright; please report it")


SCHEMA = 1
"""The version of every JSON document that a command prints."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def echo_json(**content: Any) -> None:
    """Print one JSON document: ``{"schema": 1, …}``."""
    clear_sign()
    click.echo(json.dumps({"schema": SCHEMA, **content}, default=str, indent=2, ensure_ascii=False))


def column(title: str, text: Callable[[Mapping[str, Any]], str], right: bool = False) -> tuple[Any, ...]:
    """Returns a column of :func:`echo_table`."""
    return title, text, right


def echo_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[Any, ...]], empty: str = "nothing") -> None:
    """Print rows as aligned text. On a narrow terminal the texts of the last column are broken into lines, and those of
    others shortened in their middle; where that is not enough, each row becomes lines of its own. Nothing is shortened
    when the output goes elsewhere."""
    clear_sign()
    if not rows:
        click.echo(empty)
        return
    cells = [[text(row) for _, text, _ in columns] for row in rows]
    titles, rights = [title for title, _, _ in columns], [right for _, _, right in columns]
    widths: Sequence[int] | None = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(columns))]
    limit = _width()
    if limit is not None and widths is not None:
        widths = _shortened(widths, rights, limit)
    if widths is None:
        _echo_blocks(titles, cells, limit or 80)
        return
    for number, line in enumerate([titles, *cells]):
        text = "\n".join(_lines(line, widths, rights))
        click.echo(click.style(text, bold=True) if number == 0 and style_ok(sys.stdout) else text)


_SHORTEST = 24
"""A column of texts is not made narrower than this many characters."""


def _shortened(widths: Sequence[int], rights: Sequence[bool], limit: int) -> list[int] | None:
    """Returns widths with which a line fits, the widest columns of texts made narrower; None when that is not enough."""
    out = list(widths)
    while sum(out) + 2 * (len(out) - 1) > limit:
        texts = [n for n, width in enumerate(out) if not rights[n] and width > _SHORTEST]
        if not texts:
            return None
        out[max(texts, key=lambda n: out[n])] -= 1
    return out


def _lines(line: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> list[str]:
    """Returns the lines of one row: one, or several where the text of the last column is broken."""
    *cells, last = [
        cell.rjust(width) if right else cell for cell, width, right in zip(line, widths, rights, strict=True)
    ]
    start = "".join([_cut(cell, width).ljust(width) + "  " for cell, width in zip(cells, widths[:-1], strict=True)])
    parts = textwrap.wrap(last, widths[-1], break_on_hyphens=False) if len(last) > widths[-1] else [last]
    return [((start if number == 0 else " " * len(start)) + part).rstrip() for number, part in enumerate(parts)]


def _cut(text: str, width: int) -> str:
    """Returns the text with its middle left out where it is longer than ``width``."""
    if len(text) <= width:
        return text
    end = (width - 1) // 3
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _echo_blocks(titles: Sequence[str], cells: Sequence[Sequence[str]], limit: int) -> None:
    """Print each row as a block: its first cell, and below it the other cells with their titles. Lines have at most
    ``limit`` characters."""
    for first, *others in cells:
        for line in textwrap.wrap(first, limit, break_on_hyphens=False):
            click.echo(click.style(line, bold=True) if style_ok(sys.stdout) else line)
        told = [f"{title} {cell}".strip() for title, cell in zip(titles[1:], others, strict=True)]
        text = " · ".join([cell.replace(" ", _JOINED) for cell in told])
        lines = textwrap.wrap(text, limit, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        click.echo("\n".join(lines).replace(_JOINED, " "))


_JOINED = "\N{NO-BREAK SPACE}"


def style_ok(stream: Any) -> bool:
    """Returns whether to use colours and bold: on a terminal that has them, without NO_COLOR."""
    return moves(stream) and not os.environ.get("NO_COLOR")


def moves(stream: Any) -> bool:
    """Returns whether the stream is a terminal on which a line can be drawn over again."""
    return stream is not None and bool(stream.isatty()) and os.environ.get("TERM") not in ("dumb", "unknown")


_signs: list[str] = []
"""What :func:`first_sign` shows at the moment."""


def first_sign(text: str, lasting: bool = False) -> None:
    """Show on a terminal at once that a command has begun; :func:`clear_sign` takes it away before the first output.
    Elsewhere a sign that is ``lasting`` is a line, for commands that show progress."""
    if moves(sys.stderr):
        _signs.append(text)
        room = _terminal_width() - 1  # a line that wraps could not be taken away
        sign = f"{text}: loading the compiler"
        sys.stderr.write((sign if len(sign) <= room else f"{sign[: room - 1]}…") + "\r")
        sys.stderr.flush()
    elif lasting:
        click.echo(f"{text}: loading the compiler", err=True)


def clear_sign() -> None:
    """Take away what :func:`first_sign` showed."""
    if _signs:
        _signs.clear()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _terminal_width() -> int:
    """Returns the letters in a line of the terminal of stderr; 80 where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def _width() -> int | None:
    if os.environ.get("COLUMNS", "").isdigit():
        return max(int(os.environ["COLUMNS"]), 20)
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
