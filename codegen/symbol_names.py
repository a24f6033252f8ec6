"""Names that compiled functions may have where C and C++ programs call them."""

from __future__ import annotations

import re

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool "
    "class new delete this template typename namespace operator private public protected virtual".split()
)
"""The words of C and C++ that no function can have as its name."""


def symbol_problem(name: str) -> str:
    """Returns what speaks against a function of that name in a C program; empty when nothing does."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return f"{name!r} is not a C identifier, so it cannot name a compiled function"
    if name in KEYWORDS:
        return f"{name!r} is a word of C or C++, so no function can have that name there"
    if name.startswith("tw_"):
        return f"{name!r} begins with tw_, as the names of the runtime do"
    return f"{name!r} is where a C program starts, so no library may have it" if name == "main" else ""


def usable_symbol(name: str) -> str:
    """Returns ``name`` as far as it is a C identifier and no word of C: other letters become ``_``.

    >>> usable_symbol("double"), usable_symbol("größe"), usable_symbol("relu")
    ('double_', 'gr__e', 'relu')
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
    return f"{plain}_" if plain in KEYWORDS else plain
