"""This module tunes workloads without a record, times all of them alternately, and prints a table of ratios."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import tilewright as tw
from tilewright.driver.building import request

Row = tuple[str, str, float | None]
"""A label, a workload's spec, and the share of the peak (or, for ``over NumPy``, the ratio) to reach; None for none."""


def arguments(description: str) -> argparse.ArgumentParser:
    """Returns the options that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--trials", type=int, default=64, help="trials for each workload without enough records")
    parser.add_argument("--db", default="benchmarks.db", help="where records are kept")
    parser.add_argument("--target", default="native -num-cores=1")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender")
    return parser


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table, the first column left, the others right."""
    widths = [max(len(line[c]) for line in (head, *rows)) for c in range(len(head))]
    print(title)
    for line in (head, *rows):
        print("  ".join([line[0].ljust(widths[0]), *[t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True)]]))


def run(title: str, rows: Sequence[Row], options: argparse.Namespace, *, versus: str = "peak") -> bool:
    """Tune, time and print; True when every goal is reached.

    ``versus``: what the goal is a ratio to, ``peak`` (multiply-adds measured in the same run) or ``NumPy``.
    """
    lines: list[list[str]] = []
    reached = True
    for label, spec, goal in rows:
        with tw.Database(options.db) as db:
            done = len(db.records(request(spec).func, tw.Target(options.target)))
        if done < options.trials:
            tw.tune(spec, target=options.target, trials=options.trials - done, db=options.db)
        result = tw.bench(spec, target=options.target, db=options.db, rounds=options.rounds)
        figures = {row.name: (row.seconds, result.figures(row)) for row in result.rows}
        tuned = figures.get("tuned", figures["default"])
        ratio = tuned[1]["share_of_peak" if versus == "peak" else "speedup_over_numpy"]
        fine = goal is None or (ratio is not None and ratio >= goal)
        reached &= fine
        lines.append(
            [
                label,
                *[_time(figures[n][0]) if n in figures else "–" for n in ("default", "tuned", "numpy")],
                _number(tuned[1]["gflops"], ".0f"),
                _number(tuned[1]["share_of_peak"], ".2f"),
                _number(tuned[1]["speedup_over_numpy"], ".2f"),
                "–" if goal is None else f"{goal:.2f} of {versus}" if versus == "peak" else f"{goal:.1f}x {versus}",
                "yes" if fine else "NO",
            ]
        )
    head = ["workload", "default", "tuned", "NumPy", "GFLOP/s", "of peak", "vs NumPy", "goal", "reached"]
    print_table(title, head, lines)
    return reached


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
