"""This script counts the calls of functions, Python's and built-in ones, that scheduling, lowering and compiling take.

``python benchmarks/count_calls.py [--top 12]`` (``--top``: also the functions that make most calls)

The counts are the same on every machine and however busy it is, so that they show what a change saves where times do not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any

import schedule_speed
from costs import TARGET, matmul
from table import print_table

import tilewright as tw
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.lower import lower
from tilewright.tuner import Space, default_schedule


def calls_of(run: Callable[[], Any]) -> Counter[CodeType]:
    """Returns how many calls each function makes itself, its own included, while ``run`` runs for the second time."""
    run()
    found: Counter[CodeType] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event in ("call", "c_call"):
            found[frame.f_code] += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--top", type=int, default=0)
    options = parser.parse_args()
    os.environ["TILEWRIGHT_CACHE"] = "0"
    func, product, target = schedule_speed.matmul(), matmul(), tw.Target(TARGET)
    lowered = lower(product, target)
    runs: dict[str, Callable[[], Any]] = {
        "25 steps on a matmul": lambda: schedule_speed.twenty_five_steps(func),
        "lowering matmul 1024³": lambda: lower(product, target),
        "writing its LLVM IR": lambda: emit(lowered),
        "building it": lambda: tw.build(product, target=TARGET),
        "the space of matmul 512³, scored": lambda: Space(func, target).best_rows(Space(func, target).sketches[0], 1),
        "its default schedule": lambda: default_schedule(func.with_attr("fresh", 1), target),
    }
    found = {name: calls_of(run) for name, run in runs.items()}
    print_table("calls", ["", "calls"], [[name, f"{counts.total():,}"] for name, counts in found.items()])
    for name, counts in found.items() if options.top else ():
        rows = [
            [f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}", n]
            for code, n in counts.most_common(options.top)
        ]
        print_table(name, ["function", "calls"], [[where.split("/tilewright/")[-1], f"{n:,}"] for where, n in rows])


if __name__ == "__main__":
    main()
