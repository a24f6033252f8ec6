"""Functions as modules of Verilog: their lowering, their texts, their test benches, and calls, which a simulator runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..codegen.late_tables import TargetKind
from ..codegen.lower.assumptions import drop_assumptions
from ..codegen.lower.check_accesses import check_accesses
from ..codegen.lower.choose_unrolled import choose_unrolled
from ..codegen.lower.compact_buffers import compact_buffers
from ..codegen.lower.cut_idle_iterations import cut_idle_iterations
from ..codegen.lower.flatten_blocks import flatten_blocks
from ..codegen.lower.legalize_loops import remove_unit_loops
from ..codegen.lower.loop_annotations import partition_of, without_partition
from ..codegen.lower.pipeline import Pass, run_passes
from ..codegen.lower.place_init import place_init
from ..codegen.lower.promote_registers import promote_registers
from ..codegen.lower.split_unroll_factors import split_unroll_factors
from ..codegen.lower.unroll_loops import unroll_loops
from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..codegen.runtime.arguments import Arguments, completed
from ..codegen.runtime.module import FunctionsByName
from ..tir.analysis.simplify import simplify
from ..tir.expr import BinaryOp, Call, Cast, CmpOp
from ..tir.expr.node import Node
from ..tir.index_width import unified
from ..tir.stmt import For, PrimFunc
from ..tir.walk import distinct, transform_statements
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


# The lowering of functions for hardware: blocks become loops, and unrolled loops are written out.


def _pass(rewrite: Callable[..., PrimFunc]) -> Pass:
    return Pass(rewrite.__name__, lambda func, _: rewrite(func))


def refuse_floats(func: PrimFunc) -> PrimFunc:
    """Return the function. HardwareError when it computes with floats, naming the operation."""
    for n in distinct(func.body):
        if isinstance(n, (BinaryOp, Call, Cast, CmpOp)) and (_is_float(n) or any(map(_is_float, n.children()))):
            what = n.op if isinstance(n, Call) else type(n).__name__
            dtype = n.dtype if _is_float(n) else next(c.dtype for c in n.children() if _is_float(c))
            raise HardwareError(
                f"{func.name}: {what} of {dtype} has no meaning in hardware, which computes with integers: {n}; "
                "fixed-point numbers are integers (T.q_multiply_shift)"
            )
    return func


def _is_float(n: Any) -> bool:
    dtype = getattr(n, "dtype", None)
    return dtype is not None and dtype.is_float


def lanes_as_units(func: PrimFunc) -> PrimFunc:
    """Return the function with vector loops as unrolled ones: each lane is a unit of its own."""

    def post(n: Node) -> Node | None:
        return n.with_(kind="unrolled") if isinstance(n, For) and n.kind == "vectorized" else None

    return func.with_body(transform_statements(func.body, post))


HARDWARE_PASSES: tuple[Pass, ...] = tuple([
    _pass(rewrite)
    for rewrite in (
        refuse_floats, unified, drop_assumptions, without_partition, place_init, flatten_blocks, check_accesses,
        compact_buffers,
        lanes_as_units, split_unroll_factors, remove_unit_loops, cut_idle_iterations, simplify, choose_unrolled,
        unroll_loops, promote_registers, simplify,
    )
])  # fmt: skip
"""From blocks to loops, stores and registers of single elements."""
