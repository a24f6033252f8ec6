"""Timing of kernels and other functions, and tables of it, under the names of ``triton.testing``."""

from __future__ import annotations

import csv
import functools
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median,
}  # fmt: skip


def do_bench(
    fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None, return_mode: str = "mean",
) -> Any:  # fmt: skip
    """Return the time that a function takes, in milliseconds.

    It runs for about ``warmup`` ms, and then for about ``rep`` ms, each run timed by the clock on the wall and with the caches as
    the run before left them. ``quantiles`` asks for these quantiles of the times (a list, of one a number), else ``return_mode``
    says ``mean``, ``median``, ``min``, ``max`` or ``all``. The gradients of the tensors in ``grad_to_none`` are dropped before each run.
    """
    if return_mode not in (*_MODES, "all"):
        raise ValueError(f"return_mode {return_mode!r}; there are {', '.join([*_MODES, 'all'])}")
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise ValueError(f"quantiles {list(quantiles)}; they lie between 0 and 1")

    def run() -> float:
        for x in grad_to_none or ():
            x.grad = None
        start = time.perf_counter()
        fn()
        return (time.perf_counter() - start) * 1e3

    run()
    about = max(1e-4, min(run() for _ in range(3)))
    for _ in range(int(warmup / about)):
        run()
    times = [run() for _ in range(max(1, int(rep / about)))]
    if quantiles is not None:
        found = np.quantile(times, list(quantiles)).tolist()
        return found[0] if len(found) == 1 else found
    return times if return_mode == "all" else float(_MODES[return_mode](times))


@dataclass
class Benchmark:
    """What a benchmark goes through: values along x, one line per value of ``line_arg``, and the words of its figure.

    ``x_names`` are arguments of the function that all get a value of ``x_vals`` (or each its part of a tuple); ``args`` are
    arguments that stay the same.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: dict[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.line_vals) != len(self.line_names):
            raise ValueError(f"{len(self.line_vals)} lines and {len(self.line_names)} names of lines")
        if self.styles is not None and len(self.styles) < len(self.line_vals):
            raise ValueError(f"{len(self.line_vals)} lines and {len(self.styles)} styles")

    def arguments_at(self, x: Any) -> dict[str, Any]:
        """Return the arguments of the function for one value along x."""
        parts = x if isinstance(x, (tuple, list)) else (x,) * len(self.x_names)
        if len(parts) != len(self.x_names):
            raise ValueError(f"{x!r} for the arguments {', '.join(self.x_names)}")
        return dict(zip(self.x_names, parts, strict=True))


class BenchmarkedFunction:
    """A function with ``@perf_report``: :meth:`run` measures it for each line and each value along x."""

    def __init__(self, function: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.benchmarks = benchmarks

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def run(
        self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False,
        save_precision: int = 6, **named: Any,
    ) -> Any:  # fmt: skip
        """Measure, and print the table, show the figure or save both (CSV and PNG) in a folder, as asked.

        With ``return_df`` the tables come back as data frames of pandas. ``named`` are more arguments of the function.
        """
        one = isinstance(self.benchmarks, Benchmark)
        marks = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        frames = []
        for mark in marks:
            rows = self.rows(mark, named)
            head = [*mark.x_names, *mark.line_names]
            if print_data:
                print(f"{mark.plot_name}:\n{_table(head, [row[: len(head)] for row in rows])}")
            if show_plots or save_path:
                self.draw(mark, rows, show_plots, save_path)
            if save_path:
                with open(Path(save_path) / f"{mark.plot_name}.csv", "w", newline="") as out:
                    writer = csv.writer(out)
                    writer.writerow(head)
                    writer.writerows([[_rounded(x, save_precision) for x in row[: len(head)]] for row in rows])
            if return_df:
                import pandas

                frames.append(pandas.DataFrame([row[: len(head)] for row in rows], columns=head))
        if not return_df:
            return None
        return frames[0] if one else frames

    def rows(self, mark: Benchmark, named: dict[str, Any]) -> list[list[Any]]:
        """Return a row for each value along x: it, what the lines gave, and their bounds."""
        out = []
        for x in mark.x_vals:
            given = mark.arguments_at(x)
            row: list[Any] = list(given.values())
            bounds: list[Any] = []
            for line in mark.line_vals:
                found = self.function(**given, **{mark.line_arg: line}, **mark.args, **named)
                y, low, high = found if isinstance(found, (tuple, list)) else (found, None, None)
                row.append(y)
                bounds += [low, high]
            out.append(row + bounds)
        return out

    def draw(self, mark: Benchmark, rows: list[list[Any]], show: bool, folder: str) -> None:
        """Draw the lines of a benchmark with matplotlib; it says so where that is not installed."""
        if importlib.util.find_spec("matplotlib") is None:
            print(f"{mark.plot_name}: there is no figure, since matplotlib is not installed")
            return
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots()
        x = [row[0] for row in rows]
        first, count = len(mark.x_names), len(mark.line_vals)
        for n, name in enumerate(mark.line_names):
            color, style = mark.styles[n] if mark.styles else (None, None)
            axes.plot(x, [row[first + n] for row in rows], label=name, color=color, linestyle=style)
            low, high = ([row[first + count + 2 * n + k] for row in rows] for k in range(2))
            if None not in (*low, *high):
                axes.fill_between(x, low, high, alpha=0.15, color=color)
        axes.legend()
        axes.set(xlabel=mark.xlabel or mark.x_names[0], ylabel=mark.ylabel, title=mark.plot_name)
        axes.set_xscale("log" if mark.x_log else "linear")
        axes.set_yscale("log" if mark.y_log else "linear")
        if folder:
            figure.savefig(Path(folder) / f"{mark.plot_name}.png")
        if show:
            plt.show()
        plt.close(figure)


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], BenchmarkedFunction]:
    """Return a decorator that gives a function a :meth:`~BenchmarkedFunction.run` over benchmarks."""
    return lambda function: BenchmarkedFunction(function, benchmarks)


def _rounded(x: Any, digits: int) -> Any:
    return round(x, digits) if isinstance(x, float) else x


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = [list(head), *[[f"{x:.6g}" if isinstance(x, float) else str(x) for x in row] for row in rows]]
    widths = [max(len(line[n]) for line in text) for n in range(len(head))]
    return "\n".join(["  ".join([cell.rjust(w) for cell, w in zip(line, widths, strict=True)]) for line in text])
