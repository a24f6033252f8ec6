"""Compiles kernels for a machine, runs them there as one program, and says for each how its results compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen import Target, compile
from tilewright.codegen.backend.emitter import EmitError
from tilewright.codegen.machine.target_text import TargetError
from tilewright.tir.parser import parse
from tilewright.tuner import default_schedule

from .machines import Machine
from .standalone import run_module


@dataclass(frozen=True)
class Kernel:
    """A function as text, what it is called with, and what the arrays hold afterwards."""

    test: str
    text: str
    before: list[Any]
    after: list[Any]

    @property
    def key(self) -> str:
        """The name, and a hash of the program and its arguments."""
        said = hashlib.sha256(self.text.encode())
        for a in self.before:
            said.update(a.tobytes() if isinstance(a, np.ndarray) else repr(a).encode())
        return f"{self.test} {said.hexdigest()[:12]}"


def words_of(kernels: Sequence[Kernel], machine: Machine, scheduled: bool) -> list[str]:
    """Return ``equal``, ``differs: …`` or ``refused: …`` for each kernel. RuntimeError when the program fails.

    ``scheduled``: by the analytic model; otherwise the kernel's own loops, which make short programs.
    """
    target, words, functions, arrays = Target(machine.target), [""] * len(kernels), {}, {}
    for n, kernel in enumerate(kernels):
        func = parse(kernel.text)
        try:
            func = default_schedule(func, target).func if scheduled or target.is_gpu else func
            func = func.with_attr("global_symbol", f"kernel{n}")
            module = compile(func, target, f"kernel{n}")
            if machine.suffix in (".c", ".wgsl"):
                module.get_source(machine.suffix.removeprefix("."))
        except (TargetError, EmitError) as error:
            words[n] = f"refused: {error}"
            continue
        functions[f"kernel{n}"] = func
        arrays[f"kernel{n}"] = [np.array(a) if isinstance(a, np.ndarray) else a for a in kernel.before]
    if functions:
        run_module(compile(functions, target), machine, arrays)
    for name, got in arrays.items():
        n = int(name.removeprefix("kernel"))
        words[n] = _compared(got, kernels[n].after)
    return words


def _compared(got: Sequence[Any], want: Sequence[Any]) -> str:
    for n, (a, b) in enumerate(zip(got, want, strict=True)):
        if not isinstance(b, np.ndarray) or not b.size:
            continue
        right = a == b
        if a.dtype.kind == "f":
            with np.errstate(all="ignore"):
                largest = np.max(np.abs(b), where=np.isfinite(b), initial=1)
                right = np.isclose(a, b, 2e-5, 1e-6 * float(largest), equal_nan=True)
        if not right.all():
            at = int(np.argmin(right))
            return f"differs: argument {n}, element {at}: {a.ravel()[at]!r}, not {b.ravel()[at]!r}"
    return "equal"
