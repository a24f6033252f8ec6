"""This script measures what a call of a built model costs beside its kernels.

``python benchmarks/call_overhead.py`` builds a model of three tiny kernels and calls it in several ways: with one size,
with a symbolic size, by name, into arrays of the caller. *Kernels* is the time of the compiled function in a loop of
native code; the other columns are what a call from Python takes beyond that. All are the shortest of many short runs,
in microseconds, so that other programs on the machine matter little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from table import print_table

import tilewright as tw
from tilewright.graph import Builder

CALLS, RUNS = 200, 500


def network(rows: Any, inputs: int = 1) -> Any:
    """Returns a graph of a product, a softmax and a sum."""
    b = Builder("net")
    given = [b.input(f"x{n}", (rows, 16)) for n in range(inputs)]
    x = given[0]
    for other in given[1:]:
        x = b.op("add", x, other)
    w = b.constant(np.ones((8, 16), np.float32))
    y = b.op("softmax", b.op("relu", b.op("dense", x, w)))
    return b.graph([b.op("sum", y, axis=1), y])


def shortest(call: Callable[[], object]) -> float:
    """Returns the seconds of one call."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def row(name: str, extent: Any, count: int) -> list[str]:
    """Returns the line of one model."""
    options = {} if isinstance(extent, int) else {"bounds": {"n": 64}}
    run = tw.build(network(extent, count), "native -num-cores=1", **options)
    given = [np.zeros((4, 16), np.float32) for _ in range(count)]
    outs = run(*given)
    named = {v.name: a for v, a in zip(run.inputs, given, strict=True)}
    compiled: Any = run.address_call.__self__  # the compiled function behind it
    kernels = compiled.time_evaluator(repeat=RUNS, number=CALLS)(*given, *outs).min
    calls = [lambda: run(*given), lambda: run(*given, out=outs), lambda: run(**named)]
    return [name, f"{kernels * 1e6:.2f}", *[f"{(shortest(call) - kernels) * 1e6:.2f}" for call in calls]]


def main() -> None:
    models = (("one size", 4, 1), ("symbolic size", tw.te.var("n"), 1), ("four inputs", 4, 4))
    head = ["model", "kernels", "run(x)", "run(x, out=y)", "run(x=x)"]
    print_table("Beyond the kernels, in microseconds", head, [row(*model) for model in models])


if __name__ == "__main__":
    main()
