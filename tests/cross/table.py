"""The table of targets and kernels: what is built, runs and agrees with NumPy. ``python -m tests.cross --table``"""

from __future__ import annotations

import numpy as np

from tilewright.codegen import Target, compile
from tilewright.codegen.machine.cpu_features import TargetError
from tilewright.tuner import default_schedule

from .machines import MACHINES, Machine
from .standalone import run_module
from .ten_kernels import KERNELS


def kernels_on(machine: Machine, scheduled: bool = True) -> dict[str, str]:
    """Return a word for each kernel: ``equal`` to NumPy, ``differs``, or ``refused`` by the target.

    ``scheduled``: by the analytic model; otherwise te's own loops, which make short programs.

    RuntimeError when the program of all kernels is not built, or fails.
    """
    target, words, functions, arrays = Target(machine.target), {}, {}, {}
    examples = {name: make() for name, make in KERNELS.items()}
    for name, example in examples.items():
        func = default_schedule(example.func, target).func if scheduled else example.func
        try:
            compile(func, target, name)
        except TargetError:
            words[name] = "refused"
            continue
        functions[name] = func
        arrays[name] = [*example.inputs, np.full_like(example.expected, 77)]
    run_module(compile(functions, target), machine, arrays)
    for name, (*_, got) in arrays.items():
        equal = np.allclose(got, examples[name].expected, rtol=2e-5, atol=1e-5)
        words[name] = "equal" if equal else "differs"
    return words


def table() -> str:
    """Return the table in Markdown; a target whose tools are not installed has a row that names the missing one."""
    rows = [f"| target | runs in | {' | '.join(KERNELS)} |", f"|---|---|{'---|' * len(KERNELS)}"]
    for name, machine in MACHINES.items():
        where = " ".join(machine.runner[:1]) or "this machine"
        if machine.missing:
            rows.append(f"| {name} | {machine.missing} is not installed |{' – |' * len(KERNELS)}")
            continue
        words = kernels_on(machine)
        rows.append(f"| {name} | {where} | {' | '.join([words[kernel] for kernel in KERNELS])} |")
    return "\n".join(rows)
