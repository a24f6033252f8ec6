"""This module prints results on stdout: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

SCHEMA = 1
"""The version of every JSON document that a command prints."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def echo_json(**content: Any) -> None:
    """One JSON document: ``{"schema": 1, …}``."""
    clear_sign()
    click.echo(json.dumps({"schema": SCHEMA, **content}, default=str, indent=2, ensure_ascii=False))


def column(title: str, text: Callable[[Mapping[str, Any]], str], right: bool = False) -> tuple[Any, ...]:
    """Returns a column of :func:`echo_table`."""
    return title, text, right


def echo_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[Any, ...]], empty: str = "nothing") -> None:
    """Rows as aligned text; cut at the terminal's width, never when the output goes elsewhere."""
    clear_sign()
    if not rows:
        click.echo(empty)
        return
    cells = [[text(row) for _, text, _ in columns] for row in rows]
    titles = [title for title, _, _ in columns]
    widths = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(columns))]
    limit = _width()
    for number, line in enumerate([titles, *cells]):
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, (_, _, right) in zip(line, widths, columns, strict=True)
        ]
        text = "  ".join(parts).rstrip()
        if limit is not None and len(text) > limit:
            text = text[: limit - 1] + "…"
        click.echo(click.style(text, bold=True) if number == 0 and style_ok(sys.stdout) else text)


def style_ok(stream: Any) -> bool:
    """Returns whether to use colours and bold: on a terminal that has them, without NO_COLOR."""
    return moves(stream) and not os.environ.get("NO_COLOR")


def moves(stream: Any) -> bool:
    """Returns whether the stream is a terminal on which a line can be drawn over again."""
    return stream is not None and bool(stream.isatty()) and os.environ.get("TERM") not in ("dumb", "unknown")


_signs: list[str] = []
"""What :func:`first_sign` shows at the moment."""


def first_sign(text: str) -> None:
    """Show on a terminal at once that a command has begun; :func:`clear_sign` takes it away before the first output."""
    if moves(sys.stderr):
        _signs.append(text)
        sys.stderr.write(f"{text}: starting\r")
        sys.stderr.flush()


def clear_sign() -> None:
    """Take away what :func:`first_sign` showed."""
    if _signs:
        _signs.clear()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _width() -> int | None:
    if os.environ.get("COLUMNS", "").isdigit():
        return max(int(os.environ["COLUMNS"]), 20)
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
