"""This module finds the shapes of a model's outputs for the inputs of a call. It does so once for each combination of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen.runtime.arguments import ArgumentError, SizeError, check_not_negative
from ...graph.graph import Value
from ...te.operation import Requirement
from ...tir.analysis.known_sizes import evaluate
from ...tir.expr import Var, to_numpy

_KEPT = 256
"""For how many combinations of sizes the shapes are kept."""

Shaped = list[tuple[tuple[int, ...], Any]]
"""Shape and data type, in NumPy's terms, of each output."""


class OutputShapes:
    """The shapes of ``outputs``, which the symbolic sizes in the shapes of ``inputs`` tell. ``requires``: what has to hold
    of sizes, for errors."""

    def __init__(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], requires: Sequence[Requirement] = ()
    ) -> None:
        self._name = name
        self._inputs, self._outputs, self._requires = inputs, outputs, requires
        told = {d: (n, axis) for n, v in enumerate(inputs) for axis, d in enumerate(v.shape) if isinstance(d, Var)}
        self._where, self._told = told, [*told.values()]
        self._is_static = all(v.is_static for v in outputs)
        self._fixed: Shaped = [(v.shape, to_numpy(v.dtype)) for v in outputs] if self._is_static else []
        self._found: dict[tuple[int, ...], Shaped] = {}

    def of(self, inputs: Sequence[Any]) -> Shaped:
        """Returns shape and data type of each output; ArgumentError when the inputs do not tell them."""
        if self._is_static:
            return self._fixed
        try:
            key = tuple([inputs[n].shape[axis] for n, axis in self._told])
            found = self._found.get(key)
        except (AttributeError, LookupError, TypeError):  # what has no shape, or too few dimensions
            return self._evaluated(inputs)
        if found is None:
            found = self._evaluated(inputs)
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = found
        return found

    def sizes(self, inputs: Sequence[Any]) -> dict[Var, int]:
        """Returns the symbolic sizes that the shapes of the inputs tell."""
        sizes: dict[Var, int] = {}
        for v, data in zip(self._inputs, inputs, strict=True):
            if len(getattr(data, "shape", ())) == v.ndim:
                sizes.update((d, int(e)) for d, e in zip(v.shape, data.shape, strict=True) if isinstance(d, Var))
        return sizes

    def _evaluated(self, inputs: Sequence[Any]) -> Shaped:
        sizes = self.sizes(inputs)
        told = {
            d: f"{d.name} = {sizes[d]}, dimension {axis} of {self._inputs[n].name}"
            for d, (n, axis) in self._where.items()
            if d in sizes
        }
        out: Shaped = []
        for v in self._outputs:
            shape = [d if isinstance(d, int) else evaluate(d, sizes) for d in v.shape]
            if None in shape or any(e is not None and e < 0 for e in shape):
                missed = next((text for holds, text in self._requires if evaluate(holds, sizes) == 0), None)
                if missed is not None:
                    raise SizeError(f"{missed} ({'; '.join(told.values())})")
                if None in shape:
                    raise ArgumentError(f"the inputs do not tell the shape of the output {v}; give it with out=")
                check_not_negative(self._name, v.name, v.shape, [e for e in shape if e is not None], told)
            out.append((tuple([int(e) for e in shape if e is not None]), to_numpy(v.dtype)))
        return out
