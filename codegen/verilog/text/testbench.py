"""Writes a test bench: memories around a module, filled from files, and written to files when it is done."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..circuit.memories import Bank, HardwareError, Memory
from .module_text import Circuit, port_wires

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


def _bank_part(memory: Memory, numbers: Sequence[int]) -> tuple[Any, ...]:
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
