"""The table of targets and kernels: what is built, where it runs, and whether it equals NumPy's results."""

from __future__ import annotations

from collections.abc import Mapping

from .machines import MACHINES

DASH = "–"


def table(words: Mapping[tuple[str, str], str], kernels: Mapping[str, str]) -> str:
    """Return the table in Markdown, from the word for each machine and key; ``kernels``: the keys by name.

    A target whose tools are not installed has a row that names the missing one.
    """
    rows = [f"| target | runs in | {' | '.join(kernels)} |", f"|---|---|{'---|' * len(kernels)}"]
    for name, machine in MACHINES.items():
        where = " ".join(machine.runner[:1]) or "this machine"
        if machine.missing:
            where = f"{machine.missing} is not installed"
        cells = [words.get((name, key), DASH).partition(":")[0] for key in kernels.values()]
        rows.append(f"| {name} | {where} | {' | '.join(cells)} |")
    return "\n".join(rows)
