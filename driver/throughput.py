"""This module asks llvm-mca, where it is installed, how many cycles the innermost loop of a compiled function takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from .planning import BuildError

_LABEL = re.compile(r"^(\.?[\w$.]+):")
_JUMP = re.compile(r"^\s+(?:j[a-z]+|b\.?[a-z]*|cbn?z|tbn?z)\s+(?:.*[\s,])?(\.?L[\w$.]+)\s*(?:#.*)?$")
_ARITHMETIC = re.compile(r"^\s+(?:vfn?m|vmul|vadd|vpdp|vpmadd|mul|fml|fmul|fadd)")


def innermost_loop(assembly: str) -> list[str]:
    """Returns the instructions of the innermost loop that has the most multiplications and additions. Where no loop has
    any, it is the longest one. The list is empty for code without loops.

    >>> innermost_loop(".LBB0_1:\\n\\tvmulps\\t%ymm0, %ymm1, %ymm2\\n\\tjne\\t.LBB0_1\\n")
    ['vmulps\\t%ymm0, %ymm1, %ymm2', 'jne\\t.LBB0_1']
    """
    lines = assembly.splitlines()
    places: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label, jump = _LABEL.match(line), _JUMP.match(line)
        if label:
            places[label.group(1)] = number
        elif jump and jump.group(1) in places:
            loops.append((places[jump.group(1)], number))
    inner = [(a, b) for a, b in loops if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)]
    found = [_instructions(lines[a : b + 1]) for a, b in inner]
    return max(
        found, key=lambda body: (sum(bool(_ARITHMETIC.match("\t" + one)) for one in body), len(body)), default=[]
    )


def _instructions(lines: Sequence[str]) -> list[str]:
    plain = [line.split("#")[0].strip() for line in lines if line[:1].isspace()]
    return [line for line in plain if line and not line.startswith(".")]


def throughput_report(assembly: str, cpu: str, triple: str) -> str:
    """Returns what llvm-mca says of the innermost loop. BuildError: it is not installed, does not know the CPU, or the code
    has no loop."""
    program = shutil.which("llvm-mca")
    if program is None:
        raise BuildError("llvm-mca is not installed; it is part of LLVM (apt install llvm, brew install llvm)")
    body = innermost_loop(assembly)
    if not body:
        raise BuildError("the machine code has no loop to analyse")
    text = "\n".join([line for line in body if not _JUMP.match("\t" + line)]) + "\n"
    words = [program, f"-mtriple={triple}", f"-mcpu={cpu}", "-iterations=100"]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60, check=False)
    unknown = "is not a recognized processor" in done.stderr
    if done.returncode or unknown:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BuildError(f"llvm-mca -mcpu={cpu}: {first}")
    return f"# the innermost loop, {len(body)} instructions\n{text}\n{done.stdout}"
