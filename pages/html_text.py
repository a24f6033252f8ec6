"""Tables, cards, programs and exceptions as HTML.

Programs are coloured, alone or side by side with lines that are linked. The styles of pages stand here too.
"""

from __future__ import annotations

import keyword
import re
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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


MOST_LINES = 4000
"""Longer listings are cut."""


@dataclass(frozen=True)
class Listing:
    """A program at one stage: its lines, and for each line the numbers to which it is linked.

    Lines of two listings belong together where they have a number in common. ``note`` says what the stage is; ``plain``
    listings are not Python and stay without colours.
    """

    title: str
    note: str
    lines: Sequence[str]
    links: Sequence[Collection[int]]
    plain: bool = False


LISTING_STYLE = (
    ".panes{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);grid-template-rows:auto auto 1fr;gap:0 1rem}.pane{min-width:0;display:grid;grid-template-columns:minmax(0,1fr);grid-row:span 3;grid-template-rows:subgrid}"
    ".stages{display:flex;flex-wrap:wrap;align-items:flex-start;align-content:flex-end;gap:.3rem;margin:.2rem 0 .5rem}"
    "output{position:fixed;bottom:1rem;left:50%;translate:-50%;background:var(--ink);color:var(--paper);border-radius:6px;padding:.3rem .9rem;font-size:.9em}output:empty{display:none}"
    ".stages button{font:inherit;font-size:.85em;color:var(--ink);background:var(--raised);border:1px solid var(--line);border-radius:1rem;padding:.1rem .7rem;cursor:pointer;white-space:nowrap}"
    ".stages button small{color:var(--soft);margin-left:.35em;font-variant-numeric:tabular-nums}.stages button:hover{border-color:var(--accent)}"
    ".stages button[aria-pressed=true]{background:var(--accent);border-color:var(--accent);color:var(--paper)}.stages button[aria-pressed=true] small{color:inherit}"
    ".stages button:focus-visible,.listing:focus-visible{outline:2px solid var(--accent);outline-offset:1px}"
    ".listing{font:12px/1.5 ui-monospace,'SF Mono',Menlo,Consolas,monospace;overflow:auto;height:72vh;min-height:16rem;background:var(--raised);border:1px solid var(--line);border-radius:6px;counter-reset:line}"
    ".listing>div{width:max-content;min-width:100%;padding:.4rem 0}"
    ".listing .l{display:block;white-space:pre;padding:0 .8rem 0 .3rem;border-left:4px solid transparent;counter-increment:line}"
    ".listing .l::before{content:counter(line);display:inline-block;width:2.6rem;margin-right:.8rem;text-align:right;color:var(--soft);opacity:.7;user-select:none}"
    ".listing .new::before{color:var(--good);opacity:1;font-weight:700}"
    ".listing [data-l]{cursor:pointer}.listing .on{background:color-mix(in srgb,var(--accent) 20%,transparent)}"
    ".listing i{font-style:normal;color:var(--word)}.listing b{font-weight:400;color:var(--number)}.listing q{quotes:none;color:var(--text)}.listing s{text-decoration:none;color:var(--soft)}"
    + "".join([f".k{n}{{border-left-color:hsl({hue} 70% 55%)!important}}" for n, hue in enumerate((210, 25, 140, 290, 55, 340, 175, 0))])
    + ".pane p{margin:0 0 .4rem;font-size:.9em}"
    "@media(max-width:56rem){.panes,.pane{display:block}.listing{height:44vh;min-height:12rem}.stages{flex-wrap:nowrap;overflow-x:auto;padding-bottom:.3rem;margin-top:.7rem}"
    ".listing .l::before{width:1.9rem;margin-right:.5rem}}"
    "@media print{.listing{height:auto;overflow:visible;border:0}.listing .l,.listing>div{white-space:pre-wrap;width:auto}.stages,output{display:none}}"
)  # fmt: skip

_SCRIPT = """
const panes=[...document.querySelectorAll('.pane')];let pinned=null;
const ranges=e=>e._r??=(e.dataset.l||'').split(',').filter(Boolean).map(p=>{const[a,b]=p.split('-').map(Number);return[a,b??a]});
const meet=(a,b)=>a.some(([s,t])=>b.some(([u,v])=>s<=v&&u<=t));
const shown=p=>p.querySelector('.listing:not([hidden])');
const say=document.querySelector('output');
function mark(line,jump){const want=line?ranges(line):[];say.textContent='';
 for(const p of panes){const list=shown(p);if(!list)continue;let first=null;
  for(const e of list.querySelectorAll('.l')){const on=line&&(e===line||(!list.contains(line)&&e.dataset.l&&meet(want,ranges(e))));
   e.classList.toggle('on',!!on);if(on&&!first)first=e}
  if(jump&&line&&!first)say.textContent='No line there comes from this one alone.';
  if(jump&&first&&!list.contains(line)){const at=first.offsetTop-list.offsetTop;list.scrollTo({top:at-list.clientHeight/3})}}}
document.addEventListener('mouseover',e=>{if(pinned)return;const l=e.target.closest('.l[data-l]');mark(l,false)});
document.addEventListener('click',e=>{const b=e.target.closest('.stages button');
 if(b){const pane=b.closest('.pane');for(const o of pane.querySelectorAll('.stages button'))o.setAttribute('aria-pressed',o===b);
  for(const l of pane.querySelectorAll('[data-stage]'))l.hidden=l.dataset.stage!==b.value;pinned=null;mark(null);return}
 const l=e.target.closest('.l[data-l]');pinned=l===pinned?null:l;mark(pinned,true)});
document.addEventListener('keydown',e=>{if(e.key==='Escape'){pinned=null;mark(null)}});
"""


def side_by_side(left: Sequence[Listing], right: Sequence[Listing], first: int = 0) -> str:
    """Returns two panes as HTML, each with buttons for its listings; the left one begins with listing ``first``."""
    return f'<div class="panes">{_pane(left, first)}{_pane(right, 0)}</div><output></output><script>{_SCRIPT}</script>'


def _pane(listings: Sequence[Listing], first: int) -> str:
    buttons, bodies = [], []
    before: set[str] = set()
    for number, listing in enumerate(listings):
        hidden = "" if number == first else " hidden"
        pressed = "true" if number == first else "false"
        buttons.append(
            f'<button type="button" value="{number}" aria-pressed="{pressed}">{escape(listing.title)}<small>{len(listing.lines)}</small></button>'
        )
        bodies.append(f'<p class="note" data-stage="{number}"{hidden}>{escape(listing.note)}</p>')
        bodies.append(
            f'<div class="listing" data-stage="{number}"{hidden} tabindex="0" role="region" aria-label="{escape(listing.title)}">'
            f"<div>{_lines(listing, before)}</div></div>"
        )
        before = set() if listing.plain else {line.strip() for line in listing.lines}
    strip = f'<div class="stages">{"".join(buttons)}</div>'
    return f'<section class="pane">{strip}{"".join(bodies)}</section>'


def _lines(listing: Listing, before: Collection[str]) -> str:
    """Returns the lines as HTML; those that the listing before does not have are marked as new."""
    out = []
    for line, links in list(zip(listing.lines, listing.links, strict=True))[:MOST_LINES]:
        kinds = ["l"]
        if len(links) == 1:
            kinds.append(f"k{next(iter(links)) % 8}")
        if before and not listing.plain and line.strip() and line.strip() not in before:
            kinds.append("new")
        linked = f' data-l="{ranges_text(links)}"' if links else ""
        text = escape(line, quote=False) if listing.plain else coloured_line(line)
        out.append(f'<span class="{" ".join(kinds)}"{linked}>{text or " "}</span>')
    if len(listing.lines) > MOST_LINES:
        out.append(f'<span class="l"><s># {len(listing.lines) - MOST_LINES} more lines</s></span>')
    return "".join(out)


def ranges_text(numbers: Collection[int]) -> str:
    """Returns numbers in order, runs of them as ranges.

    >>> ranges_text({7, 1, 2, 3})
    '1-3,7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join([f"{a}-{b}" if b > a else f"{a}" for a, b in runs])


_TOKEN = re.compile(
    r"(?P<s>#.*)|(?P<q>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')|(?P<b>(?<![\w.])\d[\w.]*(?:[eE][-+]\d+)?)|(?P<w>[A-Za-z_]\w*)"
)
_OPENS = re.compile(r"\s*(for|with|if|else|while|def|class)\b.*:\s*(#.*)?$")
_MOST_LINES = 2000


def code_html(text: str, fold: bool = True) -> str:
    """Returns ``text`` as HTML in colours; with ``fold`` a loop or block closes at a click on its first line.

    >>> code_html("for i in T.serial(7):\\n    A[i] = 1")
    '<pre class="code"><details open><summary><i>for</i> i <i>in</i> T.serial(<b>7</b>):</summary>    A[i] = <b>1</b>\\n</details></pre>'
    """
    lines = text.rstrip("\n").split("\n")
    cut = lines[_MOST_LINES:]
    lines = lines[:_MOST_LINES]
    out: list[str] = []
    open_at: list[int] = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        while line.strip() and open_at and depth <= open_at[-1]:
            open_at.pop()
            out.append("</details>")
        following = next((one for one in lines[number + 1 :] if one.strip()), "")
        deeper = len(following) - len(following.lstrip()) > depth
        if fold and deeper and _OPENS.match(line):
            open_at.append(depth)
            out.append(f"<details open><summary>{coloured_line(line)}</summary>")
        else:
            out.append(coloured_line(line) + "\n")
    out += ["</details>"] * len(open_at)
    rest = f"<s># {len(cut)} more lines</s>" if cut else ""
    return f'<pre class="code">{"".join(out)}{rest}</pre>'


def coloured_line(line: str) -> str:
    """Returns a line as HTML in colours."""
    out, at = [], 0
    for token in _TOKEN.finditer(line):
        kind, text = token.lastgroup, escape(token.group(), quote=False)
        out.append(escape(line[at : token.start()], quote=False))
        at = token.end()
        if kind == "w":
            out.append(f"<i>{text}</i>" if keyword.iskeyword(text) else text)
        else:
            out.append(f"<{kind}>{text}</{kind}>")
    return "".join(out) + escape(line[at:], quote=False)


_HIDDEN = (__name__.partition(".")[0], "IPython")
"""The packages whose frames are not shown."""


def user_traceback(error: BaseException, kind: str) -> list[str]:
    """Returns the lines of a traceback without the frames of this library, and the message under the name ``kind``.

    IPython asks an exception for it by the method ``_render_traceback_``.
    """
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _HIDDEN
    ]
    summary = traceback.StackSummary.extract(iter(frames))
    lines = "".join(["Traceback (most recent call last):\n", *summary.format()]) if frames else ""
    return [*lines.splitlines(), f"{kind}: {error}"]
