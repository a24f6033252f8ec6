"""Functions as modules of Verilog: their lowering, their texts, their test benches, and calls, which a simulator runs.

The installed simulators of Verilog run a test bench of memories around the module.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.late_tables import TargetKind
from ..codegen.lower.check_accesses import check_accesses
from ..codegen.lower.compact_buffers import compact_buffers
from ..codegen.lower.flatten_blocks import drop_assumptions, flatten_blocks, place_init
from ..codegen.lower.hoist_guards import cut_idle_iterations
from ..codegen.lower.legalize_loops import remove_unit_loops
from ..codegen.lower.loop_annotations import partition_of, without_partition
from ..codegen.lower.pipeline import Pass, run_passes
from ..codegen.lower.promote_registers import promote_registers
from ..codegen.lower.unroll_loops import choose_unrolled, split_unroll_factors, unroll_loops
from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..codegen.runtime.arguments import Arguments, completed
from ..codegen.runtime.module import FunctionsByName
from ..tir.analysis.simplify import simplify
from ..tir.expr import BinaryOp, Call, Cast, CmpOp
from ..tir.expr.node import IRNode
from ..tir.index_width import unified
from ..tir.stmt import For, PrimFunc
from ..tir.storage_types import lower_storage_types
from ..tir.walk import distinct, transform_statements
from .blocks import Bank, BankedMemory, HardwareError
from .module_text import Circuit, circuit_of, port_wires

SIMULATORS = {"icarus": ("iverilog", "vvp"), "verilator": ("verilator", "g++", "make")}
"""The programs that each simulator needs."""


def installed_simulators() -> list[str]:
    """Returns the simulators whose programs this machine has."""
    return [name for name, programs in SIMULATORS.items() if all([shutil.which(p) for p in programs])]


def simulate(circuit: Circuit, args: Sequence[Any], simulator: str | None = None) -> int:
    """Run a circuit on arrays, which get its results; return the cycles. ``simulator``: a word of :data:`SIMULATORS`, or
    None for the first that is installed. HardwareError when it is not."""
    found = installed_simulators()
    if simulator is not None and simulator not in SIMULATORS:
        raise HardwareError(f"no simulator {simulator!r}; there are {', '.join(SIMULATORS)}")
    if not found or simulator not in (None, *found):
        missing = " or ".join([" and ".join(SIMULATORS[name]) for name in ([simulator] if simulator else SIMULATORS)])
        raise HardwareError(f"a module in Verilog runs in a simulator, and this machine lacks {missing}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        name = circuit.lowered.name
        (folder / f"{name}.v").write_text(circuit.text)
        (folder / f"{name}_bench.v").write_text(testbench(circuit))
        write_inputs(circuit, folder, args)
        for command in _commands(simulator or found[0], name):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise HardwareError(f"{command[0]} failed on {name}: {(done.stdout + done.stderr)[-2000:]}")
        cycles = re.search(r"^cycles (\d+)$", done.stdout, re.MULTILINE)
        if cycles is None:
            raise HardwareError(f"the simulation of {name} did not end: {done.stdout[-500:]}")
        read_outputs(circuit, folder, args)
    return int(cycles[1])


def _commands(simulator: str, name: str) -> list[list[str]]:
    files = [f"{name}_bench.v", f"{name}.v"]
    if simulator == "icarus":
        return [["iverilog", "-g2005", "-o", "run.vvp", *files], ["vvp", "run.vvp"]]
    make = ["verilator", "--binary", "-Wno-fatal", "--top-module", f"{name}_bench", "-o", "run", "-O1"]
    return [[*make, *files], ["obj_dir/run"]]


# Writes a test bench: memories around a module, filled from files, and written to files when it is done.

MOST_CYCLES = 1 << 30
"""After so many cycles a test bench gives up."""


def banks_outside(circuit: Circuit) -> list[Bank]:
    """Returns the banks that the module's user has."""
    return [bank for memory in circuit.memories for bank in memory.banks.values()]


def testbench(circuit: Circuit) -> str:
    """Returns the module ``NAME_bench``. It reads ``BANK.in`` for each bank and ``NAME.in`` for each number, hexadecimal
    words for ``$readmemh``; it writes ``BANK.out`` for each bank that the module writes, and prints the cycles from the
    start to the result."""
    name, banks = circuit.lowered.name, banks_outside(circuit)
    lines = ["`timescale 1ns/1ps", f"module {name}_bench;", "  reg clk = 0, rst = 1, start = 0;", "  wire done;",
             "  integer cycles = 0;", "  always #5 clk = ~clk;"]  # fmt: skip
    pins = ["clk", "rst", "start", "done"]
    reads, writes = [], []
    for scalar, width in circuit.scalars:
        lines.append(f"  reg [{width - 1}:0] {scalar}_value [0:0];")
        reads.append(f'    $readmemh("{scalar}.in", {scalar}_value);')
        pins.append(f"{scalar}({scalar}_value[0])")
    for bank in banks:
        memory = f"{bank.name}_memory"
        lines.append(f"  reg [{bank.width - 1}:0] {memory} [0:{bank.words - 1}];")
        for way, width, pin in port_wires(bank):
            lines.append(f"  {'reg ' if way == 'input' else 'wire'} [{width - 1}:0] {pin};")
            pins.append(pin)
        lines.append("  always @(posedge clk) begin")
        if bank.writes:
            lines.append(
                f"    if ({bank.name}_write_enable) {memory}[{bank.name}_write_address] <= {bank.name}_write_data;"
            )
            writes.append(f'    $writememh("{bank.name}.out", {memory});')
        lines += [f"    {bank.name}_read_data <= {memory}[{bank.name}_read_address];"] if bank.reads else []
        lines.append("  end")
        reads.append(f'    $readmemh("{bank.name}.in", {memory});')
    ports = ", ".join([f".{pin}" if "(" in pin else f".{pin}({pin})" for pin in pins])
    return "\n".join([
        *lines, f"  {name} unit ({ports});", "  initial begin", *reads,
        "    @(negedge clk) @(negedge clk) rst = 0; start = 1;", "    @(negedge clk) start = 0;",
        f"    while (!done && cycles < {MOST_CYCLES}) @(negedge clk) cycles = cycles + 1;",
        *writes, '    $display("cycles %0d", cycles);', "    $finish;", "  end", "endmodule", "",
    ])  # fmt: skip


def _bank_part(memory: BankedMemory, numbers: Sequence[int]) -> tuple[Any, ...]:
    """Returns the indices of a bank's elements in the array, a view also where it has no dimensions."""
    return (*[slice(n, None, f) for n, f in zip(numbers, memory.factors, strict=True)], ...)


def write_inputs(circuit: Circuit, folder: Path, args: Sequence[Any]) -> None:
    """Write the files that the test bench reads, from the arrays and numbers of a call."""
    memories, scalars = iter(circuit.memories), iter(circuit.scalars)
    for param, arg in zip(circuit.lowered.params, args, strict=True):
        if param.buffer is None:
            scalar, width = next(scalars)
            (folder / f"{scalar}.in").write_text(f"{int(arg) & ((1 << width) - 1):x}\n")
            continue
        memory = next(memories)
        array = np.asarray(arg).reshape(memory.shape)
        for numbers, bank in memory.banks.items():
            part = array[_bank_part(memory, numbers)]
            words = np.zeros(memory.bank_shape, part.dtype)
            words[tuple([slice(n) for n in part.shape])] = part
            mask = (1 << bank.width) - 1
            values = words.reshape(-1).tolist() or [0]
            (folder / f"{bank.name}.in").write_text("".join([f"{int(v) & mask:x}\n" for v in values]))


def read_outputs(circuit: Circuit, folder: Path, args: Sequence[Any]) -> None:
    """Read the files that the test bench wrote into the arrays of a call."""
    arrays = [arg for param, arg in zip(circuit.lowered.params, args, strict=True) if param.buffer is not None]
    for memory, array in zip(circuit.memories, arrays, strict=True):
        if not any(bank.writes for bank in memory.banks.values()):
            continue
        view = array.reshape(memory.shape)
        for numbers, bank in memory.banks.items():
            part = view[_bank_part(memory, numbers)]
            lines = (folder / f"{bank.name}.out").read_text().splitlines()
            words = itertools.chain.from_iterable([line.split() for line in lines if not line.startswith("//")])
            values = [_number(word, bank) for word in words]
            if part.size:
                box = np.array(values[: int(np.prod(memory.bank_shape))], object).reshape(memory.bank_shape)
                inside: Any = (*[slice(n) for n in part.shape], ...)
                part[...] = box[inside].astype(part.dtype)


def _number(word: str, bank: Bank) -> int:
    if set(word.lower()) & set("xz"):
        raise HardwareError(
            f"the simulation left a word of {bank.name} undefined: the function reads what it never wrote"
        )
    value = int(word, 16)
    return value - (1 << bank.width) if bank.low < 0 and value >> (bank.width - 1) else value


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

    def post(n: IRNode) -> IRNode | None:
        return n.with_(kind="unrolled") if isinstance(n, For) and n.kind == "vectorized" else None

    return func.with_body(transform_statements(func.body, post))


HARDWARE_PASSES: tuple[Pass, ...] = tuple([
    _pass(rewrite)
    for rewrite in (
        refuse_floats, unified, drop_assumptions, without_partition, place_init, flatten_blocks, check_accesses,
        lower_storage_types, compact_buffers,
        lanes_as_units, split_unroll_factors, remove_unit_loops, cut_idle_iterations, simplify, choose_unrolled,
        unroll_loops, promote_registers, simplify,
    )
])  # fmt: skip
"""From blocks to loops, stores and registers of single elements."""
