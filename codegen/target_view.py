"""Notebooks show a target as a table of what code is made for."""

from __future__ import annotations

from ..pages import card, folded, size_text, table
from .machine.target import Target


def target_html(target: Target) -> str:
    """Returns the properties of a target as HTML."""
    facts = target.describe()
    rows = [
        ("CPU", str(facts["model"])),
        ("LLVM's name", str(facts["cpu"])),
        ("triple", str(facts["triple"])),
        ("vectors", f"{facts['vector_registers']} of {facts['vector_bits']} bits"),
        ("threads", str(facts["num_cores"])),
        ("caches", ", ".join([f"L{n} {size_text(facts[f'l{n}_bytes'])}" for n in (1, 2, 3) if facts[f"l{n}_bytes"]])),
    ]
    features = table(("", ""), [("", ", ".join(facts["features"]))])
    return card(
        str(target), table(("", ""), rows), folded(f"{len(facts['features'])} features", features), note="target"
    )
