"""This module lays text out as HTML: tables, cards, parts that open."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .page_style import NOTEBOOK_STYLE


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Returns a table of plain text; the columns ``numbers`` are set to the right. Without rows it is empty text."""
    if not rows:
        return ""

    def line(cells: Sequence[str], tag: str) -> str:
        opening = [f'<{tag} class="n">' if i in numbers else f"<{tag}>" for i in range(len(cells))]
        return "".join([f"{start}{escape(cell)}</{tag}>" for start, cell in zip(opening, cells, strict=True)])

    head = f"<thead><tr>{line(titles, 'th')}</tr></thead>" if any(titles) else ""
    body = "".join([f"<tr>{line(row, 'td')}</tr>" for row in rows])
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def folded(title: str, content: str, open_: bool = False) -> str:
    """Returns a part that opens at a click on its title; ``content`` is HTML. Empty text where ``content`` is empty."""
    return (
        f"<details{' open' if open_ else ''}><summary>{escape(title)}</summary>{content}</details>" if content else ""
    )


def card(title: str, *parts: str, note: str = "") -> str:
    """Returns what a notebook shows for an object: a title, a note beside it and parts, which are HTML."""
    beside = f' <span class="note">{escape(note)}</span>' if note else ""
    return f'<div class="tilewright"><style>{NOTEBOOK_STYLE}</style><div><b>{escape(title)}</b>{beside}</div>{"".join(parts)}</div>'
