"""Compiles every kernel of te.ops' tests for another machine, runs it there, and compares with this machine's results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from tilewright.codegen import Target, compile
from tilewright.codegen.machine.cpu_features import TargetError
from tilewright.tir.parser import parse
from tilewright.tuner import default_schedule

from .kernels_of_ops import Kernel, kernels_of_ops
from .machines import MACHINES, Machine
from .standalone import run_module
from .table import table

TOGETHER = 40
"""The number of kernels in one program."""


def run_kernels(kernels: list[Kernel], machine: Machine, scheduled: bool) -> tuple[int, list[str]]:
    """Return how many kernels computed what they should, and a line for each that did not, or was refused."""
    functions, arrays, problems = {}, {}, []
    for n, kernel in enumerate(kernels):
        func = parse(kernel.text)
        try:
            functions[f"kernel{n}"] = default_schedule(func, Target(machine.target)).func if scheduled else func
            compile(functions[f"kernel{n}"], machine.target, f"kernel{n}")
        except TargetError as error:
            del functions[f"kernel{n}"]
            problems.append(f"refused: {kernel.test}: {error}")
            continue
        arrays[f"kernel{n}"] = [np.array(a) if isinstance(a, np.ndarray) else a for a in kernel.before]
    if not functions:
        return 0, problems
    run_module(compile(functions, machine.target), machine, arrays)
    right = 0
    for name, got in arrays.items():
        kernel = kernels[int(name.removeprefix("kernel"))]
        try:
            for a, b in zip(got, kernel.after, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
            right += 1
        except AssertionError as error:
            problems.append(f"wrong: {kernel.test}: {str(error).strip().splitlines()[:4]}")
    return right, problems


def main() -> int:
    """Returns 0 when every kernel that the target takes computes what it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.cross", description=__doc__)
    parser.add_argument("--target", choices=sorted(MACHINES))
    parser.add_argument(
        "--table", action="store_true", help="print ten kernels on all targets, for docs/guides/targets.md"
    )
    parser.add_argument(
        "--plain", action="store_true", help="te's own loops, without the schedule of the analytic model"
    )
    parser.add_argument("--every", type=int, default=1, help="one kernel in so many")
    parser.add_argument("--kernels", type=Path, default=Path(tempfile.gettempdir()) / "tilewright-kernels-of-ops")
    given = parser.parse_args()
    if given.table or not given.target:
        print(table())
        return 0
    machine = MACHINES[given.target]
    if machine.missing:
        print(f"{given.target}: {machine.missing} is not installed, so nothing runs")
        return 2
    kernels = kernels_of_ops(given.kernels)[:: given.every]
    right, failed = 0, 0
    for first in range(0, len(kernels), TOGETHER):
        part = kernels[first : first + TOGETHER]
        try:
            good, problems = run_kernels(part, machine, not given.plain)
        except RuntimeError as error:
            good, problems = 0, [f"wrong: {part[0].test} … {part[-1].test}: {error}"]
        right, failed = right + good, failed + sum(line.startswith("wrong") for line in problems)
        print("\n".join([*problems, f"{given.target}: {right} of {min(first + TOGETHER, len(kernels))}"]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
