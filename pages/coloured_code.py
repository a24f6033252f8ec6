"""This module colours a program written in Python's syntax, and lets its blocks fold."""

from __future__ import annotations

import keyword
import re
from html import escape

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
