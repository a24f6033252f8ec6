"""This module shows how the time to build grows with the size of a program: its stages, its results, its kernels.

    python benchmarks/growth.py [--programs mixed results] [--rounds 3] [--rows rows.jsonl]

A row has the program and how many stages, results or kernels it has, the CPU seconds from its definition to the first
result with nothing cached and with everything on the disk, and milliseconds for each of them. Each is built in a process of
its own, for one thread; of several rounds the least counts. Rows are written as they come; those that the file has are not
measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from table import print_table

import tilewright as tw
from tilewright import te
from tilewright.graph import Builder

Program = tuple[Any, list[np.ndarray]]
"""A program, and arrays for its inputs."""

SIZE = 64


def _stages(count: int, product: Callable[[int], bool]) -> Program:
    """Returns a chain of stages, of which those with a number that ``product`` accepts are matrix products."""
    x, w = te.placeholder((SIZE, SIZE), name="x"), te.placeholder((SIZE, SIZE), name="w")
    value = x
    for n in range(count):
        if product(n):
            k = te.reduce_axis((0, SIZE), "k")
            value = te.compute(
                (SIZE, SIZE), lambda i, j, of=value, k=k: te.sum(of[i, k] * w[k, j], axis=k), name=f"stage{n}"
            )
        else:
            value = te.compute((SIZE, SIZE), lambda i, j, of=value: te.exp(of[i, j]) * 0.1, name=f"stage{n}")
    return te.create_prim_func([x, w, value]), [np.ones((SIZE, SIZE), np.float32)] * 2


def plain(count: int) -> Program:
    """Returns a chain of element-wise stages."""
    return _stages(count, lambda n: False)


def mixed(count: int) -> Program:
    """Returns a chain of stages, every fourth of them a matrix product."""
    return _stages(count, lambda n: n % 4 == 3)


def results(count: int) -> Program:
    """Returns a program of so many results."""
    x = te.placeholder((SIZE, SIZE), name="x")
    made = [te.compute((SIZE, SIZE), lambda i, j, n=n: x[i, j] * float(n + 1), name=f"result{n}") for n in range(count)]
    return te.create_prim_func([x, *made]), [np.ones((SIZE, SIZE), np.float32)]


def _layers(count: int, width: Callable[[int], int]) -> Program:
    """Returns a graph of dense layers with a ReLU each, the nth of ``width(n)`` columns."""
    rng = np.random.default_rng(0)
    builder = Builder("chain")
    value = builder.input("x", (16, SIZE))
    for n in range(count):
        weight = builder.constant(rng.standard_normal((width(n), value.shape[1]), np.float32) / 32, f"w{n}")
        value = builder.op("relu", builder.op("dense", value, weight))
    return builder.graph([value]), [np.ones((16, SIZE), np.float32)]


def layers(count: int) -> Program:
    """Returns a graph of dense layers, no two of one shape."""
    return _layers(count, lambda n: SIZE + 8 * ((n * 37 + 8) % 211))


def equal_layers(count: int) -> Program:
    """Returns a graph of dense layers of one shape."""
    return _layers(count, lambda n: SIZE)


PROGRAMS = {
    "plain": ("element-wise stages", plain, (100, 200, 400, 800)),
    "mixed": ("stages, every fourth a matrix product", mixed, (100, 200, 400, 800)),
    "results": ("results", results, (8, 64, 512)),
    "layers": ("dense layers, no two alike", layers, (10, 50, 200)),
    "equal_layers": ("dense layers, all alike", equal_layers, (10, 50, 200)),
}
"""The programs by name: what they have, the function that makes one, and how many of it."""


def seconds(name: str, count: int) -> float:
    """Returns the CPU seconds from the program to the first result, in this process and with this cache."""
    start = time.process_time()
    program, arrays = PROGRAMS[name][1](count)
    tw.build(program, "native -num-cores=1")(*arrays)
    return time.process_time() - start


def measured(name: str, count: int, rounds: int) -> list[float]:
    """Returns the least CPU seconds of several processes, with nothing cached and with everything on the disk."""
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for times in found:
                done = subprocess.run(
                    [sys.executable, __file__, "--one", name, str(count)],
                    env={**os.environ, "TILEWRIGHT_CACHE_DIR": cache}, capture_output=True, text=True, check=True,
                )  # fmt: skip
                times.append(json.loads(done.stdout))
    return [min(times) for times in found]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="The time to build by the size of the program.")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(seconds(options.one[0], int(options.one[1]))))
        return
    kept = options.rows.read_text().splitlines() if options.rows and options.rows.exists() else []
    known = {(name, count): times for name, count, times in map(json.loads, kept)}
    rows = []
    for name in options.programs:
        what, _, counts = PROGRAMS[name]
        for count in counts:
            if (name, count) not in known:
                known[name, count] = measured(name, count, options.rounds)
                if options.rows:
                    with options.rows.open("a") as file:
                        file.write(json.dumps([name, count, known[name, count]]) + "\n")
            new, again = known[name, count]
            rows.append([what, str(count), f"{new:.2f}", f"{again:.2f}", f"{new / count * 1e3:.1f}"])
    print_table("CPU seconds to build", ["program of", "how many", "new, s", "cached, s", "new, ms for each"], rows)


if __name__ == "__main__":
    main()
