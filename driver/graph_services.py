"""This module prepares graphs: it provides what their passes ask of the compiler and of the tuner's analytic model.

Predicted times are kept on the disk, beside object files: a model that is built again is prepared by the same numbers.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .. import codegen
from ..codegen import Target, compile
from ..codegen.object_cache import find_object, keep_object, object_key
from ..graph.graph import Graph
from ..graph.kernels import Kernel, Services
from ..graph.passes import prepare
from ..tir.stmt import PrimFunc
from ..tuner import Space, default_rules
from ..tuner.cost.machine_model import MachineModel
from ..tuner.rules.nbits_products import multiplies_codes

_MOST = 10_000
"""The number of predictions that are kept for a target."""


def prepared(graph: Graph, machine: Target, accuracy: float | None = None) -> Graph:
    """Returns the graph after all passes, which compile functions for this machine and predict times on ``machine``.
    ``accuracy``: see :class:`.models.model_building.GraphOptions`; ValueError for what is no number of 0 or more."""
    if accuracy is not None and not (isinstance(accuracy, (int, float)) and accuracy >= 0):
        raise ValueError(f"accuracy is a relative error of 0 or more, as 1e-6, or None for any, not {accuracy!r}")
    times = _Predictions(machine)
    winograd = machine.winograd if machine.kind in ("native", "llvm") and not machine.is_freestanding else 0
    services = Services(
        _run, times.seconds, winograd, accuracy, _packed_nbits(machine),
        fused_multiply_add=machine.kind in ("native", "llvm") and machine.has_fma,
    )  # fmt: skip
    after = prepare(graph, services=services)
    times.keep()
    return after


def _packed_nbits(machine: Target) -> frozenset[str]:
    """Returns the types of data by which a rule multiplies packed weights of a few bits on this machine."""
    if machine.is_gpu or machine.kind not in ("native", "llvm"):
        return frozenset()
    return frozenset(["float32", "int8"] if multiplies_codes(MachineModel.of(machine)) else ["float32"])


def choices_key(machine: Target) -> list[str]:
    """Returns texts that tell on what the choice of a schedule depends besides the kernel: code, target, and rules."""
    rules = [f"{type(rule).__module__}.{type(rule).__qualname__}" for rule in default_rules()]
    return [_code_key(), machine.key, str(machine), str(len(rules)), *rules]


def signature_key(kernel: Kernel) -> str | None:
    """Returns a key that kernels of one signature share in all processes; None where it has symbolic expressions."""
    signature = kernel.signature
    return object_key([repr(signature)]) if _is_plain(signature) else None


@lru_cache(maxsize=1)
def _code_key() -> str:
    """Returns a key of this package's code, on which its choices depend, and of LLVM's version."""
    root = Path(codegen.__file__).parents[1]
    layers = ("tir", "te", "schedule", "codegen", "gpu", "tuner", "graph", "driver")
    files = sorted(path for layer in layers for path in (root / layer).rglob("*.py"))
    states = [(path, path.stat()) for path in files]
    facts = [f"{path.relative_to(root)} {state.st_size} {state.st_mtime_ns}" for path, state in states]
    return object_key([version("llvmlite"), *facts])


def _run(func: PrimFunc, *arrays: Any) -> None:
    compile(func)(*arrays)


class _Predictions:
    """The predicted times of kernels on one target, by their signatures: those on the disk and new ones."""

    def __init__(self, machine: Target) -> None:
        self.machine = machine
        # what is fused is for the kernels, not for layouts
        self.rules = [rule for rule in default_rules() if not rule.fuses]
        self.place = object_key([*choices_key(machine), "predicted times"])
        kept = find_object(self.place)
        self.known: dict[str, float] = json.loads(kept) if kept is not None else {}
        self.fresh = 0

    def seconds(self, kernel: Kernel) -> float:
        """Returns the time of a kernel that is scheduled as well as possible; infinity when no rule takes it."""
        key = signature_key(kernel)
        if key is None:
            return self._predicted(kernel)
        if key not in self.known:
            self.known[key] = self._predicted(kernel)
            self.fresh += 1
        return self.known[key]

    def keep(self) -> None:
        """Write the predictions, if there are new ones."""
        if self.fresh:
            latest = list(self.known.items())[-_MOST:]
            keep_object(self.place, json.dumps(dict(latest)).encode())

    def _predicted(self, kernel: Kernel) -> float:
        space = Space(kernel.func, self.machine, rules=self.rules)
        return min((variant.seconds for variant in space.variants if not variant.measured_only), default=math.inf)


def _is_plain(part: Any) -> bool:
    """Returns whether a signature consists of names, numbers and tuples, and says the same in another process."""
    if isinstance(part, tuple):
        return all([_is_plain(p) for p in part])
    return isinstance(part, (str, int, float, type(None))) and part not in ("expression", "symbol")
