"""A library in a process that runs for long: memory over many calls of random sizes, and the time to load 500 MB.

``python benchmarks/soak.py`` makes 100,000 calls of two models and loads a library with 500 MB of weights; ``--calls`` and ``--megabytes`` choose
others. The processes that call and load have no compiler in them, as those that serve. Loading is timed in fresh processes, the least of
several; the file is in the system's page cache, as after it was copied.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.graph import Builder
from tilewright.tir import Var

CALLS = """
import sys
import numpy as np
from tilewright.exported import load_module

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

nets, rng = [load_module(path) for path in sys.argv[2:]], np.random.default_rng(0)
x = np.ones((64, 256), np.float32)
for done in range(11):
    for n in rng.integers(1, 65, 1000 if done == 0 else int(sys.argv[1]) // 10):
        nets[n % 2](x[:n])
    print(done * (int(sys.argv[1]) // 10), resident(), flush=True)
"""

LOAD = """
import ctypes, sys, time
start = time.perf_counter()
library = ctypes.CDLL(sys.argv[1])
print(time.perf_counter() - start)
"""


def network(name: str, rows: object, columns: int, depth: int) -> tw.graph.Graph:
    """Returns ``relu(x @ w.T)`` with random weights."""
    b = Builder(name)
    weights = np.random.default_rng(0).standard_normal((columns, depth), np.float32)
    return b.graph([b.op("relu", b.op("dense", b.input("x", (rows, depth)), b.constant(weights, "w")))])


def soak(folder: Path, calls: int) -> None:
    """Print the resident memory after each tenth of the calls."""
    paths = []
    for name, columns in (("first", 300), ("second", 500)):
        paths.append(folder / f"{name}.so")
        tw.build(network(name, Var("n", "int64"), columns, 256), "native", bounds={"n": 64}).export(paths[-1])
    done = subprocess.run([sys.executable, "-c", CALLS, str(calls), *map(str, paths)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    for count, kilobytes in rows:
        print(f"{count:>9,} calls: {kilobytes:,} KiB")
    print(f"growth over {calls:,} calls: {rows[-1][1] - rows[0][1]:,} KiB")


def loading(folder: Path, megabytes: int) -> None:
    """Print how long the system takes to load a library with that many weights."""
    columns = megabytes * 1_000_000 // (4 * 4096)
    path = folder / "large.so"
    tw.build(network("large", 1, columns, 4096), "native -num-cores=1").export(path)
    times = []
    for _ in range(9):
        done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
    print(
        f"a library of {path.stat().st_size / 1e6:.0f} MB is loaded in {min(times) * 1e3:.2f} ms (worst of 9: {max(times) * 1e3:.2f})"
    )


def main() -> None:
    """Run both parts with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--megabytes", type=int, default=500)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        soak(Path(folder), chosen.calls)
        loading(Path(folder), chosen.megabytes)


if __name__ == "__main__":
    main()
