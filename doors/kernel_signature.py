"""This module says what a kernel takes and returns when it is called as a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen.lowered import Param
from ..driver.building import build
from ..tir.analysis.known_ranges import evaluate
from ..tir.expr import Var


class SignatureError(ValueError):
    """Raised for a workload that is not a function of tensors, and for arguments that do not fit it."""


@dataclass(frozen=True)
class KernelSignature:
    """A kernel with its parameters in order; those that are written are its results."""

    function: Any
    params: Sequence[Param]

    @staticmethod
    def of(name: str, workload: Any, target: Any, db: Any) -> KernelSignature:
        """Returns the kernel of what :func:`tilewright.build` takes, of one compiled already too. SignatureError for
        arguments that are no tensors."""
        compiled = callable(workload) and (hasattr(workload, "params") or hasattr(workload, "get_source"))
        kernel = workload if compiled else build(workload, target, db=db)
        function = kernel if hasattr(kernel, "params") else kernel[next(iter(kernel))]
        if any(p.buffer is None for p in function.params):
            raise SignatureError(f"{name}: the workload has arguments that are not tensors")
        return KernelSignature(function, function.params)

    @property
    def inputs(self) -> list[Param]:
        """Returns the parameters that are only read."""
        return [p for p in self.params if not p.writes]

    @property
    def outputs(self) -> list[Param]:
        """Returns the parameters that are written."""
        return [p for p in self.params if p.writes]

    def results(self, given: Sequence[tuple[Sequence[int], str]]) -> list[tuple[tuple[int, ...], str]]:
        """Returns shape and data type of the outputs for inputs of these shapes and data types."""
        known: dict[Var, Any] = {}
        expected: list[tuple[Param, int, Any, int]] = []
        if len(given) != len(self.inputs):
            raise SignatureError(f"{len(given)} arguments for {', '.join(p.name for p in self.inputs)}")
        for p, (shape, dtype) in zip(self.inputs, given, strict=True):
            assert p.buffer is not None
            if len(shape) != len(p.buffer.shape) or dtype != str(p.buffer.dtype):
                raise SignatureError(f"{p.name} is {dtype}{list(shape)}; {p.buffer.dtype}{p.buffer.shape} is expected")
            known.update({e: d for e, d in zip(p.buffer.shape, shape, strict=True) if isinstance(e, Var)})
            expected += [(p, d, e, got) for d, (e, got) in enumerate(zip(p.buffer.shape, shape, strict=True))]
        for p, d, extent, got in expected:
            if evaluate(extent, known) not in (None, got):
                raise SignatureError(f"{p.name}: expected {evaluate(extent, known)} in dimension {d}, got {got}")
        out = []
        for p in self.outputs:
            assert p.buffer is not None
            out.append((tuple(_size(p, e, known) for e in p.buffer.shape), str(p.buffer.dtype)))
        return out

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call the kernel on arrays."""
        fed, fresh = iter(inputs), iter(outputs)
        self.function(*[next(fresh if p.writes else fed) for p in self.params])


def _size(p: Param, extent: Any, known: dict[Var, Any]) -> Any:
    found = evaluate(extent, known)
    if found is None:
        raise SignatureError(f"the inputs do not tell the size {extent} of {p.name}")
    return found
