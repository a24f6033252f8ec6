"""This script times programs that no recipe names: tuned or by the default schedule, with NumPy and numba.

    python benchmarks/any_program.py                    # all, default schedules
    python benchmarks/any_program.py --trials 64 blur   # tuned; those whose names hold one of the words
    python benchmarks/any_program.py --small --cores 1  # the sizes of the tests

The contenders of a program take turns; a figure is the median of ``--rounds`` turns. NumPy computes the reference, in
float64. numba is left out where it is not
installed, or where ``affine_numba.py`` does not have the program.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from affine_programs import PROGRAMS, SIZES

from tilewright import Target
from tilewright.codegen import compile
from tilewright.tuner import Space, choose_default, tune


def options() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only programs whose names hold one of these")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0, help="candidates to measure; 0: the default schedule")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--busy", action="store_true", help="the least processor time, for a machine that is not quiet")
    return parser.parse_args()


def numba_kernels(cores: int) -> dict[str, Any]:
    """Returns numba's programs; none where it is not installed."""
    try:
        importlib.import_module("numba").set_num_threads(cores)
        kernels: dict[str, Any] = importlib.import_module("affine_numba").KERNELS
    except ImportError:
        return {}
    return kernels


def scheduled(func: Any, target: Target, trials: int) -> tuple[Any, str]:
    """Returns the scheduled function, and where the schedule comes from."""
    if trials:
        result = tune(func, target, trials=trials)
        if result.best_schedule is not None and result.best is not None:
            return result.best_schedule.func, result.best.sketch
    made = choose_default(Space(func, target))
    return made.schedule.func, "default"


def take_turns(contenders: dict[str, Callable[[], Any]], rounds: int, busy: bool = False) -> dict[str, float]:
    """Returns the median seconds of each; on a busy machine the least processor time."""
    clock = time.process_time if busy else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    return {name: min(found) if busy else statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Print a line for each program."""
    chosen = options()
    target = Target(f"native -num-cores={chosen.cores}")
    kernels = numba_kernels(chosen.cores)
    print(f"{'program':18} {'ours':>10} {'NumPy':>8} {'numba':>8}  schedule")
    for name, make in PROGRAMS.items():
        if chosen.words and not any(word in name for word in chosen.words):
            continue
        sizes = SIZES[name][0 if chosen.small else 1]
        program = make(*sizes)
        func, origin = scheduled(program.func, target, chosen.trials)
        expected = program.expected()
        outputs = [np.zeros(e.shape, "float32" if e.dtype.kind == "f" else e.dtype) for e in expected]
        contenders = {
            "ours": compile(func, target, name).bind(*program.inputs, *outputs),
            "NumPy": lambda program=program: program.reference(*program.inputs),
        }
        if name in kernels:
            kernel = kernels[name](*sizes)
            contenders["numba"] = lambda kernel=kernel, p=program, o=outputs: kernel(*p.inputs, *o)
            contenders["numba"]()
        contenders["ours"]()
        wrong = max(float(np.max(np.abs(a - b) / (1 + np.abs(b)))) for a, b in zip(outputs, expected, strict=True))
        found = take_turns(contenders, chosen.rounds, chosen.busy)
        shares = [f"{found[k] / found['ours']:7.2f}x" if k in found else " " * 8 for k in ("NumPy", "numba")]
        print(f"{name:18} {found['ours'] * 1e3:7.3f} ms {' '.join(shares)}  {origin}, error {wrong:.1e}", flush=True)


if __name__ == "__main__":
    main()
