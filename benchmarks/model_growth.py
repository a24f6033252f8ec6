"""This module shows how the time to build a model grows with the number of its kernels, all of them different.

    python benchmarks/model_growth.py [--layers 10 50 200] [--rounds 3]

A model is a chain of dense layers of different widths with a ReLU each. A row has the number of kernels, the seconds from
the graph to the running function with nothing cached and with everything on the disk, and milliseconds per kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from table import print_table

import tilewright as tw
from tilewright.graph import Builder, Graph


def chain(layers: int) -> tuple[Graph, np.ndarray]:
    """Returns a graph of that many dense layers, no two of one shape, and an input."""
    rng = np.random.default_rng(0)
    builder = Builder("chain")
    value = builder.input("x", (16, 64))
    for n in range(layers):
        width = 64 + 8 * ((n * 37 + 8) % 211)
        weight = builder.constant(rng.standard_normal((width, value.shape[1]), np.float32) / 32, f"w{n}")
        value = builder.op("relu", builder.op("dense", value, weight))
    return builder.graph([value]), np.ones((16, 64), np.float32)


def seconds(layers: int) -> float:
    """Returns the seconds from the graph to the first result, in this process and with this cache."""
    graph, x = chain(layers)
    start = time.perf_counter()
    tw.build(graph)(x)
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="The time to build a model by the number of its kernels.")
    parser.add_argument("--layers", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(seconds(options.one)))
        return
    rows = []
    for layers in options.layers:
        found: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for times in found:
                    done = subprocess.run(
                        [sys.executable, __file__, "--one", str(layers)],
                        env={**os.environ, "TILEWRIGHT_CACHE_DIR": cache}, capture_output=True, text=True, check=True,
                    )  # fmt: skip
                    times.append(json.loads(done.stdout))
        new, again = [statistics.median(times) for times in found]
        rows.append(
            [str(layers), f"{new:.2f}", f"{again:.2f}", f"{new / layers * 1e3:.0f}", f"{again / layers * 1e3:.1f}"]
        )
    print_table(
        "Seconds to build a chain of layers",
        ["kernels", "new, s", "cached, s", "new, ms per kernel", "cached, ms per kernel"],
        rows,
    )


if __name__ == "__main__":
    main()
