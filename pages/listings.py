"""Programs as coloured HTML, alone or side by side with lines that are linked."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

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
