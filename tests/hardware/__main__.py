"""Prints the table of docs/guides/hardware.md: kernels and schedules with the cycles that a simulator counts."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.circuits import installed_simulators

from .int8_kernels import KERNELS, SCHEDULES, arrays_of


def cycle_table(titles=tuple(KERNELS)):
    """The rows of kernels, from simulations whose results are compared with the interpreter's."""
    lines = ["| kernel | schedule | cycles | interval of the pipeline | memories |", "|---|---|---|---|---|"]
    for title in titles:
        make, sizes, block = KERNELS[title]
        for name, schedule in SCHEDULES.items():
            func = schedule(make(*sizes), block).func
            module = tw.build(func, "verilog")
            got, want = arrays_of(func), arrays_of(func)
            cycles = module.simulate(*got, simulator=installed_simulators()[0])
            tw.tir.interpret(func, *want)
            assert all(np.array_equal(one, two) for one, two in zip(got, want, strict=True))
            circuit = module.entry.circuit
            intervals = ", ".join(str(p.interval) for p in circuit.pipelines) or "-"
            banks = sum(len(memory.banks) for memory in circuit.memories)
            lines.append(f"| {title} | {name} | {cycles} | {intervals} | {banks} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(cycle_table())
