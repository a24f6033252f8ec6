"""This module times whole models in turns, and writes a table of them: the first contender against the others."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Run = Callable[[], Any]


def medians(runs: Mapping[str, Run], rounds: int, pause: float = 0.0) -> dict[str, float]:
    """Returns the median milliseconds of each contender: in each round each has its turn of one run and three timed ones.
    A turn begins after a pause, in seconds, in which the waiting threads of the contender before it go to sleep."""
    times: dict[str, list[float]] = {label: [] for label in runs}
    for _ in range(rounds):
        for label, run in runs.items():
            time.sleep(pause)
            run()
            for _ in range(3):
                start = time.perf_counter()
                run()
                times[label].append(time.perf_counter() - start)
    return {label: statistics.median(seconds) * 1e3 for label, seconds in times.items()}


def show(
    names: Iterable[str], compare: Callable[[str], dict[str, Any]], every: Sequence[str], options: argparse.Namespace
) -> None:
    """Prints each row as ``compare`` makes it, then the table; ``options`` has ``json``, a file for the rows, and
    ``markdown``. A model that fails is told and left out."""
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            rows.append(compare(name))
        except Exception as error:  # one model must not end the table
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
            continue
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    if rows:
        print(text(rows, every, options.markdown))


def text(rows: Sequence[Mapping[str, Any]], every: Sequence[str], markdown: bool) -> str:
    """Returns the table. A row has ``model``, and for each contender ``ms``, ``difference`` and ``first_seconds``, perhaps
    ``peak_mb``; a column has how many times as long as the first contender another one takes, with the geometric mean of
    all rows below."""
    labels = [label for label in every if any(label in r for r in rows)]
    first, others = labels[0], labels[1:]
    peaks = [x for x in labels if any("peak_mb" in r.get(x, {}) for r in rows)]
    lines = [["model", *(f"{x} ms" for x in labels), *(f"vs {x}" for x in others), "difference", "build s"]]
    lines[0] += [f"{x} MB" for x in peaks]
    for r in rows:
        ratios = [f"{r[x]['ms'] / r[first]['ms']:.2f}" if x in r else "" for x in others]
        cells = [r["model"], *(f"{r[x]['ms']:.2f}" if x in r else "" for x in labels), *ratios]
        lines.append([*cells, f"{r[first]['difference']:.0e}", f"{r[first]['first_seconds']:.1f}"])
        lines[-1] += [f"{r[x]['peak_mb']:.0f}" if x in r else "" for x in peaks]
    means = [geometric_mean([r[x]["ms"] / r[first]["ms"] for r in rows if x in r]) for x in others]
    lines.append(["geometric mean", *("" for _ in labels), *(f"{m:.2f}" for m in means), "", "", *["" for _ in peaks]])
    if markdown:
        return "\n".join(f"| {' | '.join(cells)} |" for cells in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
    widths = [max(len(cells[n]) for cells in lines) for n in range(len(lines[0]))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)) for cells in lines)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Returns the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))
