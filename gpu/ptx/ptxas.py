"""Checks PTX with NVIDIA's assembler, which needs no GPU, and reads what it says of registers and spills."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
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


def find_ptxas(arch: str | None = None) -> str | None:
    """Returns the path of a ``ptxas`` that knows the architecture, or None when there is none. It is ``TILEWRIGHT_PTXAS``, that of
    the packages nvidia-cuda-nvcc or nvidia-cuda-nvcc-cu12, or the one on the PATH: CUDA 13, for one, knows none before sm_75."""
    return next((p for p in _installed() if arch is None or arch in _architectures(p)), None)


def _installed() -> list[str]:
    named = os.environ.get("TILEWRIGHT_PTXAS")
    if named:
        return [named]
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    packaged = [str(place) for folder in folders for place in sorted(Path(folder).glob("*/bin/ptxas"))]
    on_path = shutil.which("ptxas")
    return packaged + ([on_path] if on_path else [])


@cache
def _architectures(program: str) -> frozenset[str]:
    """Returns the names that the assembler's help lists."""
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    return frozenset(re.findall(r"'(sm_\w+)'", help_text))


def run_ptxas(ptx: str, arch: str, ptxas: str | None = None) -> tuple[list[PtxasReport], bytes]:
    """Returns what the assembler says of each kernel, and the machine code.

    FileNotFoundError when there is no assembler, ValueError when none knows ``arch``, or with its words when it refuses the text.
    """
    program = ptxas or find_ptxas(arch) or find_ptxas()
    if program is None:
        raise FileNotFoundError("ptxas is not installed; pip install nvidia-cuda-nvcc-cu12 has it")
    if arch not in _architectures(program):
        raise ValueError(
            f"{program} doesn't know {arch}; the ptxas of pip install nvidia-cuda-nvcc-cu12 knows sm_50 to sm_121"
        )
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
