"""This script compares the schedules of ``examples/kernels`` with the machine's limit and other libraries in one run.

    python benchmarks/kernels.py                      # all, on one thread
    python benchmarks/kernels.py "matmul 512" softmax # those whose names hold one of the words
    python benchmarks/kernels.py --cores 2 matmul     # on two threads
    python benchmarks/kernels.py --scaling matmul     # two threads over one

A share is of the multiply-add peak, or of the bandwidth of a sweep over as many bytes, measured between the kernels,
over the turns in which no other process used the core (``interleaved_timing.py``); the next column is their number. The
last columns say how many times as long NumPy and the others take, over all turns; those that are not installed are left
out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interleaved_timing import ENOUGH, Judge, native, share, take_turns

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples" / "kernels"))


def options() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only kernels whose names hold one of these")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender")
    parser.add_argument("--round-seconds", type=float, default=0.02)
    parser.add_argument(
        "--best", action="store_true", help="the best time of each instead of the median of the faster half"
    )
    parser.add_argument(
        "--patience", type=float, default=15.0, help="seconds to wait for turns with the core to ourselves, per kernel"
    )
    parser.add_argument("--scaling", action="store_true", help="ours on --cores 2 over ours on one")
    parser.add_argument("--no-peers", action="store_true", help="ours, the limit and NumPy only")
    parser.add_argument(
        "--share-cores", action="store_true", help="let other processes take turns; else ours comes first where it may"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = options()
    cores = max(2, asked.cores) if asked.scaling else asked.cores
    if hasattr(os, "sched_setaffinity"):  # before a library counts the processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    if not asked.share_cores:
        come_first()
    from kernel import pick
    from table import print_table

    rows = []
    judge, witness = Judge(), witness_of() if cores == 1 else None
    for path in sorted((HERE.parent / "examples" / "kernels").glob("*.py")):
        for kernel in pick(getattr(importlib.import_module(path.stem), "KERNELS", ()), asked.words):
            rows.append(scaling(kernel, cores, asked) if asked.scaling else measure(kernel, asked, judge, witness))
            if sys.stderr.isatty():
                print(f"{kernel.name} …", file=sys.stderr)
    if asked.json:
        print(json.dumps(rows, indent=1))
        return
    head = list(dict.fromkeys(key for row in rows for key in row))
    if asked.markdown:
        for line in (
            head,
            ["---", *["--:"] * (len(head) - 1)],
            *([_text(row.get(key)) for key in head] for row in rows),
        ):
            print("| " + " | ".join(line) + " |")
        return
    title = f"schedules by hand on {cores} thread{'s' if cores > 1 else ''}"
    print_table(title, head, [[_text(row.get(key)) for key in head] for row in rows])


def come_first() -> None:
    """Raise the priority of this process, where the system allows it."""
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))


def witness_of() -> Callable[[int], float]:
    """Seconds per call of a product that needs nothing but the core."""
    from matmul import KERNELS

    small = next(kernel for kernel in KERNELS if kernel.name == "matmul 64³")
    return native(small.build(small.target(1)), small.arrays())


def measure(
    kernel: Any, asked: argparse.Namespace, judge: Judge, witness: Callable[[int], float] | None
) -> dict[str, Any]:
    """Returns one kernel: its time, its share of the limit, and the ratios."""
    import numpy as np
    from peers import peers_of

    from tilewright.driver.benching import numpy_threads, timed
    from tilewright.driver.machine_report import PeakProbe
    from tilewright.tuner.measure import estimate

    target = kernel.target(asked.cores)
    module = kernel.build(target)
    arrays = kernel.arrays()
    kernel.check(module, arrays)
    given = kernel.call_arrays(module, arrays)
    bound = module.bind(*given)
    plain = kernel.plain([*arrays[:-1], arrays[-1].copy()])  # sweeps write to the result
    scratch = np.empty_like(arrays[-1])
    key: Any = kernel.name
    if kernel.yardstick == "peak":
        dtype = str(kernel.func.buffers[0].dtype)
        probe: Any = PeakProbe(target, dtype)
        key = (dtype, kernel.without)
        work, done = kernel.flops, probe.flops_per_call
    else:
        probe = sweep_of(kernel.yardstick, arrays, target)
        work, done = kernel.bytes, probe.bytes_per_call
    contenders: list[tuple[str, Callable[[int], float]]] = [
        ("limit", probe.seconds),
        ("ours", native(module, given)),
        ("call", timed(bound)),
        ("NumPy", timed(lambda: kernel.reference(*arrays[:-1], out=scratch))),
    ]
    if witness is not None:
        contenders.append(("witness", witness))
    if kernel.operation and not asked.no_peers:
        rivals = peers_of(kernel.operation, plain, kernel.options, plain[-1].astype("float64"), asked.cores)
        contenders += [(name, timed(run)) for name, run in rivals.items()]
    with numpy_threads(asked.cores):
        times = take_turns(contenders, asked.rounds, asked.round_seconds)
        judge.look(times, key)
        needed = [pair for pair in contenders if pair[0] in ("witness", "limit", "ours")]
        until = time.perf_counter() + asked.patience
        while len(judge.alone(times, key)) < ENOUGH and time.perf_counter() < until:
            for name, more in take_turns(needed, 2, asked.round_seconds).items():
                times[name] += more
            judge.look(times, key)
    seconds = {name: min(taken) if asked.best else estimate(taken) for name, taken in times.items()}
    found, number = share(times, judge, key)
    row: dict[str, Any] = {
        "kernel": kernel.name,
        "µs": seconds["ours"] * 1e6,
        "GFLOP/s or GB/s": work / seconds["ours"] * 1e-9,
        "share": found * work / done,
        "turns": str(number or "–"),
        "of": kernel.yardstick,
        "goal": kernel.goal,
    }
    for name in seconds:
        if name not in ("ours", "limit", "witness", "call"):
            row[name] = seconds[name] / seconds["call"]
    return row


def sweep_of(kind: str, arrays: list[Any], target: Any) -> Any:
    """Returns a sweep over the kernel's own arrays: so that both find the same data in the caches."""
    from tilewright.driver.machine_report import ARRAYS, BandwidthProbe

    largest = sorted(arrays[:-1], key=lambda a: -a.nbytes)
    swept = largest[:1] if kind == "read" else [*largest[: ARRAYS[kind] - 1], arrays[-1]]
    size = min(a.nbytes for a in swept)
    return BandwidthProbe(target, kind, size * len(swept), [a.ctypes.data for a in swept])


def scaling(kernel: Any, cores: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the row of one kernel that is timed alternately on one thread and on several."""
    from tilewright.driver.benching import BenchRow, race
    from tilewright.driver.machine_report import PeakProbe

    runs: list[tuple[BenchRow, Callable[[int], float]]] = []
    for n in (1, cores):
        target = kernel.target(n)
        module, arrays = kernel.build(target), kernel.arrays()
        kernel.check(module, arrays)
        given = kernel.call_arrays(module, arrays)
        runs.append((BenchRow(str(n), ""), native(module, given)))
        runs.append((BenchRow(f"peak {n}", ""), PeakProbe(target, "float32").seconds))
    race(runs, asked.rounds, asked.round_seconds)
    one, peak_one, many, peak_many = (row.seconds or 0.0 for row, _ in runs)
    return {
        "kernel": kernel.name,
        "µs on 1": one * 1e6,
        f"µs on {cores}": many * 1e6,
        "speed-up": one / many,
        "of the peak": cores * peak_one / peak_many,
    }


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


if __name__ == "__main__":
    main()
