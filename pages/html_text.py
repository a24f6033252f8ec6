"""Tables, cards and folded parts as HTML, and the styles of pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


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


_LIGHT = (
    "--ink:#1c2128;--soft:#5b6570;--line:#d5dbe1;--paper:#fff;--raised:#f5f7f9;--accent:#0b62d6;--good:#14803c;"
    "--warn:#a15c00;--bad:#c8252c;--word:#8a2be2;--number:#0b62d6;--text:#14803c"
)
_DARK = (
    "--ink:#e4e9ef;--soft:#97a1ad;--line:#39414b;--paper:#0f1419;--raised:#191f27;--accent:#58a6ff;--good:#4cc26a;"
    "--warn:#e3a03c;--bad:#ff6b63;--word:#c792ea;--number:#79b8ff;--text:#8fd19e"
)

COLOURS = f":root{{color-scheme:light dark;{_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}@media print{{:root{{color-scheme:light;{_LIGHT}}}}}"
"""The colours by name, for pages of their own; paper takes the light ones."""

CODE_STYLE = (
    "pre,.code{font:12px/1.5 ui-monospace,'SF Mono',Menlo,Consolas,monospace;margin:.3rem 0;overflow-x:auto;white-space:pre}"
    ".code details{margin:0}.code summary{list-style:none;cursor:pointer}.code summary::-webkit-details-marker{display:none}"
    ".code details:not([open])>summary::after{content:' …';color:var(--soft)}"
    ".code i{font-style:normal;color:var(--word)}.code b{font-weight:400;color:var(--number)}"
    ".code q{quotes:none;color:var(--text)}.code s{text-decoration:none;color:var(--soft)}"
)

CHART_STYLE = (
    "svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}"
    "svg .end,svg .said{text-anchor:end}svg .mid{text-anchor:middle}svg text.said{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}svg .grid{stroke:var(--line);stroke-width:1;fill:none}svg .line{stroke:var(--accent);fill:none;stroke-width:2}"
    "svg .roof{stroke:var(--ink);fill:none;stroke-width:1.5}svg .mark{stroke:var(--soft);stroke-dasharray:3 3;fill:none}"
    "svg .dot{fill:var(--soft);fill-opacity:.55}svg .best{fill:var(--accent)}svg .default{fill:var(--warn)}"
    "svg .cloud{stroke:var(--soft);stroke-opacity:.5;stroke-width:4.5;stroke-linecap:round;fill:none}svg .failed{stroke:var(--bad);fill:none;stroke-width:1.3}svg .bar{fill:var(--accent)}svg .badbar{fill:var(--bad)}"
)

TABLE_STYLE = (
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{font-weight:600;color:var(--soft)}th.n,td.n{text-align:right;white-space:nowrap}"
)

NOTEBOOK_STYLE = "".join(
    [
        f".tilewright{{{_LIGHT};font:13px/1.5 system-ui,sans-serif;color:var(--ink)}}",
        f"[data-jp-theme-light=false] .tilewright,[data-theme=dark] .tilewright,.vscode-dark .tilewright{{{_DARK}}}",
        ".tilewright .note{color:var(--soft)}",
        *[
            ".tilewright " + rule.replace(",", ",.tilewright ", rule.split("{")[0].count(",")) + "}"
            for rule in (CODE_STYLE + CHART_STYLE + TABLE_STYLE).split("}")
            if rule
        ],
    ]
)
"""The style of what a notebook shows, which touches nothing else there."""
