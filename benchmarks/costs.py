"""This script measures what Tilewright itself costs: importing, calling, compiling, tuning.

``python benchmarks/costs.py [--tuning]`` (with ``--tuning``: also 64 trials of matmul 1024³, a fresh database)
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from table import print_table

import tilewright as tw
from tilewright import te
from tilewright.codegen import compile as compile_function
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.llvm.jit import optimize_and_compile
from tilewright.codegen.lower import PassReport, lower
from tilewright.tir import parse

TARGET = "native -num-cores=1"


def started(code: str) -> float:
    """Median seconds of a fresh interpreter that runs ``code``."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def called() -> float:
    """Seconds of a call with three arrays, the least of many runs."""
    x, y = te.placeholder((16,), name="X"), te.placeholder((16,), name="Y")
    z = te.compute((16,), lambda i: x[i] + y[i], name="Z")
    f = tw.build([x, y, z], target=TARGET)
    a, b, c = (np.zeros(16, "float32") for _ in range(3))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(10_000):
            f(a, b, c)
        best = min(best, (time.perf_counter() - start) / 10_000)
    return best


def compiled(func: object) -> float:
    """Median seconds from a function, scheduled or not, to a callable, without the cache on the disk."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        tw.build(func, target=TARGET)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matmul() -> tw.Schedule:
    """Returns the matmul 1024³ of the examples, scheduled by hand."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from matmul_by_hand import declare, schedule

    return schedule(declare(1024, 1024, 1024), tw.Target(TARGET))


def chain(blocks: int = 30, rows: int = 128, columns: int = 256) -> tw.PrimFunc:
    """Stages one after the other: element-wise functions, and for every third two stages that subtract the mean of a
    row."""
    x = te.placeholder((rows, columns), name="X")
    t = x
    stage = 0
    while stage < blocks:
        if stage % 3 == 2 and stage + 1 < blocks:
            r = te.reduce_axis((0, columns), name=f"r{stage}")
            s = te.compute((rows,), lambda i, t=t, r=r: te.sum(t[i, r], axis=r), name=f"S{stage}")
            t = te.compute((rows, columns), lambda i, j, t=t, s=s: t[i, j] - s[i] / columns, name=f"D{stage}")
            stage += 2
        else:
            f = (te.exp, te.tanh, te.sqrt)[stage % 3]
            t = te.compute((rows, columns), lambda i, j, t=t, f=f: f(t[i, j] * 0.5 + 1.0), name=f"E{stage}")
            stage += 1
    return te.create_prim_func([x, t])


def passes(sch: tw.Schedule) -> list[list[str]]:
    """Returns the parts of the compile time: the medians of each lowering pass, of writing the IR, and of LLVM."""
    target = tw.Target(TARGET)
    rows: dict[str, list[float]] = {}
    for _ in range(7):
        report = PassReport()
        lowered = lower(sch, target, report=report)
        start = time.perf_counter()
        text = emit(lowered)
        written = time.perf_counter()
        optimize_and_compile(text, target, cache=False)
        report.seconds |= {"writing LLVM IR": written - start, "LLVM": time.perf_counter() - written}
        for name, seconds in report.seconds.items():
            rows.setdefault(name, []).append(seconds)
    return [[name, f"{1e3 * statistics.median(seconds):.2f} ms"] for name, seconds in rows.items()]


def forked() -> float:
    """Median seconds of fork and join of a parallel loop of two iterations, measured inside compiled code."""
    turns = 1000
    func = parse(f"""
@T.prim_func
def turns(B: T.Buffer((2, 64), "float32")):
    for r in range({turns}):
        for i in T.parallel(2):
            B[i, 0] = B[i, 0] + T.float32(1)
""")
    f = compile_function(func, "native -num-cores=2")
    b = np.zeros((2, 64), "float32")
    times = []
    for _ in range(200):
        start = time.perf_counter()
        f(b)
        times.append((time.perf_counter() - start) / turns)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    os.environ["TILEWRIGHT_CACHE"] = "0"
    bare = started("pass")
    lines = [
        ["import tilewright", f"{1e3 * (started('import tilewright') - bare):.0f} ms", "200 ms"],
        ["import numpy, for comparison", f"{1e3 * (started('import numpy') - bare):.0f} ms", "–"],
        ["a call with three arrays", f"{1e6 * called():.1f} µs", "3 µs"],
        ["compiling matmul 1024³, scheduled", f"{1e3 * compiled(matmul()):.0f} ms", "80 ms"],
        ["compiling 30 blocks, unscheduled", f"{compiled(chain()):.2f} s", "1 s"],
        ["fork and join on two threads", f"{1e6 * forked():.1f} µs", "5 µs"],
    ]
    if options.tuning:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            tw.tune("matmul:M=1024,N=1024,K=1024", target=TARGET, trials=64, db=str(Path(folder) / "tuning.db"))
            lines.append(["64 trials of matmul 1024³", f"{time.perf_counter() - start:.1f} s", "60 s"])
    print_table("costs", ["what", "measured", "goal"], lines)
    print_table("compiling matmul 1024³", ["pass", "median"], passes(matmul()))


if __name__ == "__main__":
    main()
