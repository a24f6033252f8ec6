"""What using Tilewright costs: importing, calling, compiling, tuning.

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


def compiled() -> float:
    """Median seconds from a scheduled matmul 1024³ to a callable, nothing taken from the disk."""
    os.environ["TILEWRIGHT_CACHE"] = "0"
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from matmul_by_hand import declare, schedule

    sch = schedule(declare(1024, 1024, 1024), tw.Target(TARGET))
    times = []
    for _ in range(7):
        start = time.perf_counter()
        tw.build(sch, target=TARGET)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    bare = started("pass")
    lines = [
        ["import tilewright", f"{1e3 * (started('import tilewright') - bare):.0f} ms", "200 ms"],
        ["import numpy, for comparison", f"{1e3 * (started('import numpy') - bare):.0f} ms", "–"],
        ["a call with three arrays", f"{1e6 * called():.1f} µs", "3 µs"],
        ["compiling matmul 1024³, scheduled", f"{1e3 * compiled():.0f} ms", "80 ms"],
    ]
    if options.tuning:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            tw.tune("matmul:M=1024,N=1024,K=1024", target=TARGET, trials=64, db=str(Path(folder) / "tuning.db"))
            lines.append(["64 trials of matmul 1024³", f"{time.perf_counter() - start:.1f} s", "60 s"])
    print_table("costs", ["what", "measured", "goal"], lines)


if __name__ == "__main__":
    main()
