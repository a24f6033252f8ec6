"""Checks PTX with NVIDIA's assembler, which needs no GPU, and reads what it says of registers and spills."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PtxasReport:
    """What the assembler says of one kernel: registers of a thread, bytes of shared memory and of spilled registers. ``warnings``
    are those of all kernels of a text."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int
    warnings: tuple[str, ...] = ()


def find_ptxas() -> str | None:
    """Returns the path of ``ptxas``, or None when there is none. It is ``TILEWRIGHT_PTXAS``, that of the packages
    nvidia-cuda-nvcc or nvidia-cuda-nvcc-cu12, or the one on the PATH."""
    named = os.environ.get("TILEWRIGHT_PTXAS")
    if named:
        return named
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for place in sorted(Path(folder).glob("*/bin/ptxas")):
            return str(place)
    return shutil.which("ptxas")


def run_ptxas(ptx: str, arch: str, ptxas: str | None = None) -> tuple[list[PtxasReport], bytes]:
    """Returns what the assembler says of each kernel, and the machine code.

    FileNotFoundError when there is no assembler, ValueError with its words when it refuses the text.
    """
    program = ptxas or find_ptxas()
    if program is None:
        raise FileNotFoundError("ptxas is not installed; pip install nvidia-cuda-nvcc-cu12 has it")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        done = subprocess.run(
            [program, "-v", f"-arch={arch}", str(source), "-o", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"ptxas refuses the text for {arch}: {done.stderr.strip()}")
        return _reports(done.stderr, arch), made.read_bytes()


def _reports(words: str, arch: str) -> list[PtxasReport]:
    out = []
    warnings = tuple(
        [line.strip() for line in words.split("\n") if "warning" in line or "Potential Performance Loss" in line]
    )
    for part in words.split("Compiling entry function '")[1:]:
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill", part)]
        out.append(
            PtxasReport(
                part.split("'")[0],
                arch,
                _number(r"Used (\d+) registers", part),
                _number(r"(\d+) bytes smem", part),
                _number(r"(\d+) bytes stack frame", part),
                sum(spills),
                warnings,
            )  # fmt: skip
        )
    return out


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
