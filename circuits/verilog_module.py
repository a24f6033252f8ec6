"""Functions as modules of Verilog: their texts, their test benches, and calls, which a simulator runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..codegen.lower.loop_annotations import partition_of
from ..codegen.lower.pipeline import run_passes
from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..codegen.machine.target_kinds import TargetKind
from ..codegen.runtime.arguments import Arguments, completed
from ..codegen.runtime.functions_by_name import FunctionsByName
from ..tir.stmt import PrimFunc
from .hardware_passes import HARDWARE_PASSES
from .memories import HardwareError
from .module_text import Circuit, circuit_of
from .simulators import simulate, testbench


class VerilogModule(FunctionsByName["VerilogFunction"]):
    """Functions as circuits, by name. A call of the module simulates the only one, or the one named ``main``."""

    def __init__(self, circuits: Mapping[str, Circuit], target: Target) -> None:
        self.circuits = dict(circuits)
        self.target = target
        self.origin = ""

    def __repr__(self) -> str:
        return f"<VerilogModule {', '.join(self.circuits)}>"

    @property
    def named(self) -> Mapping[str, Circuit]:
        """Return the circuits by name."""
        return self.circuits

    def made(self, name: str) -> VerilogFunction:
        """Return the circuit of a name as a function."""
        return VerilogFunction(self.circuits[name])

    def simulate(self, *args: Any, simulator: str | None = None) -> int:
        """Return the cycles of a run of the only function on complete arguments (:meth:`VerilogFunction.simulate`)."""
        return self.entry.simulate(*args, simulator=simulator)

    def get_source(self, fmt: str = "verilog") -> str:
        """Return the program as text: ``tir`` or ``scheduled`` (before lowering), ``lowered``, ``verilog``, or ``bench``,
        the test bench. ValueError for another word."""
        writers = {
            "tir": lambda c: (c.lowered.scheduled or c.lowered.func).script(),
            "scheduled": lambda c: (c.lowered.scheduled or c.lowered.func).script(),
            "lowered": lambda c: c.lowered.script(),
            "verilog": lambda c: c.text,
            "bench": testbench,
        }
        if fmt not in writers:
            raise ValueError(f"no source {fmt!r} of a module for verilog; there are {', '.join(writers)}")
        return "\n".join([writers[fmt](circuit) for circuit in self.circuits.values()])

    def export(self, path: str | Path) -> list[Path]:
        """Write the modules to ``NAME.v`` and their test benches to ``NAME_bench.v`` beside it. Return the files."""
        place = Path(path)
        if place.suffix != ".v":
            raise HardwareError(f"{place.name}: modules in Verilog are written to files with the suffix .v")
        bench = place.with_name(f"{place.stem}_bench.v")
        place.write_text(self.get_source("verilog"))
        bench.write_text(self.get_source("bench"))
        return [place, bench]


class VerilogFunction:
    """One function of a module. ``cycles`` are those of the last call."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit, self.name = circuit, circuit.lowered.name
        self.cycles: int | None = None
        self._arguments = Arguments(self.name, circuit.lowered.params)

    def __repr__(self) -> str:
        return f"<verilog {self._arguments.signature()}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        complete, fresh = completed(self._arguments, args, named)
        self.cycles = self.simulate(*complete)
        return None if not fresh else fresh[0] if len(fresh) == 1 else tuple(fresh)

    def simulate(self, *args: Any, simulator: str | None = None) -> int:
        """Run the module on complete arguments in a simulator, and return the cycles from the start to the results. The
        simulator is ``icarus`` or ``verilator`` (None: the first that is installed). HardwareError when the simulator
        is not installed."""
        self._arguments.prepare(args)
        return simulate(self.circuit, args, simulator)


def compile_verilog(functions: Mapping[str, Any], target: Target) -> VerilogModule:
    """Returns the module of functions, each as it was scheduled."""
    circuits = {}
    for name, func in functions.items():
        if not isinstance(func, PrimFunc):
            raise HardwareError(f"{name}: circuits are made of scheduled functions, not of {type(func).__name__}")
        with warnings.catch_warnings():
            made = run_passes(func, target, HARDWARE_PASSES)
        circuits[name] = circuit_of(LoweredFunc.of(made, target, name, func), partition_of(func))
    return VerilogModule(circuits, target)


VERILOG = TargetKind("verilog", compile_verilog, as_written=True, summary="a circuit in Verilog")
"""Circuits: ``target="verilog"``."""
