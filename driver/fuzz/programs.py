"""Random te programs of a few stages, small enough to interpret, with whole numbers that floats hold exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import te
from ...tir.dtype import to_numpy
from ...tir.expr import Var
from ...tir.function import PrimFunc
from ...tir.stmt import Block
from ...tir.walk import pre_order
from .reductions import REDUCTIONS, SUMS, WINDOWS
from .stages import ELEMENTWISE, Stage, one_of, value_of

__all__ = ["Program", "random_program"]

_SIZES = (1, 2, 3, 4, 4, 5, 7, 8, 8, 13, 16, 17)
_DTYPES = ("float32", "float32", "float32", "float32", "int32", "int32", "float64", "int8", "float16")


@dataclass(frozen=True)
class Program:
    """A function, and the arrays to run it on: inputs filled, outputs marked as unwritten."""

    func: PrimFunc
    seed: int
    sizes: Mapping[Var, int] = field(default_factory=dict)
    """The sizes that are variables, and their values."""

    def arrays(self) -> list[np.ndarray]:
        """Fresh arguments, the same each time; outputs hold NaN, or 77 where there is none."""
        rng = np.random.default_rng((self.seed, 1))
        written = {r.buffer for b in pre_order(self.func.body) if isinstance(b, Block) for r in b.writes}
        out = []
        for buffer in self.func.buffers:
            shape = [value_of(e, self.sizes) for e in buffer.shape]
            kind = to_numpy(buffer.dtype)
            if buffer in written:
                out.append(np.full(shape, np.nan if kind.kind == "f" else 77, kind))
            else:
                out.append(rng.integers(-3, 4, size=shape).astype(kind))
        return out


def random_program(seed: int) -> Program:
    """The program of this seed: one or two inputs, up to five stages, one or two outputs. One in ten has sizes that are
    variables, one in twenty a size of 0, one in twenty sizes of 64 bits."""
    rng = np.random.default_rng((seed, 0))
    dtype = one_of(rng, _DTYPES)
    shape = _shape(rng, one_of(rng, (1, 2, 2, 2, 3)))
    dims, sizes = _declared(rng, shape)
    inputs = [Stage(te.placeholder(dims, dtype, name="A"), 3, sizes)]
    if rng.integers(2):
        inputs.append(Stage(te.placeholder(dims if rng.integers(2) else dims[-1:], dtype, name="B"), 3, sizes))
    stages = list(inputs)
    makers = one_of(rng, ([*ELEMENTWISE, *REDUCTIONS],) * 3 + (WINDOWS, SUMS))
    for number in range(int(rng.integers(1, 6))):
        source = stages[-1] if rng.random() < 0.7 else one_of(rng, stages)
        for place in rng.permutation(len(makers)):
            made = makers[place](rng, f"S{number}", source, stages)
            if made is not None:
                stages += made if isinstance(made, list) else [made]
                break
    outputs = [stages[-1].tensor]
    others = [s.tensor for s in stages[len(inputs) : -1]]
    if others and rng.random() < 0.15:
        outputs.append(one_of(rng, others))
    return Program(te.create_prim_func([s.tensor for s in inputs] + outputs), seed, sizes)


def _shape(rng: np.random.Generator, rank: int) -> list[int]:
    while True:
        shape = [int(rng.choice(_SIZES)) for _ in range(rank)]
        if np.prod(shape) <= 300:
            return shape


def _declared(rng: np.random.Generator, shape: list[int]) -> tuple[list[Any], dict[Var, int]]:
    """The shape as it is declared, and the values of the variables in it."""
    kind = rng.random()
    if kind < 0.1:
        names = [te.var(f"n{k}") if rng.integers(2) else None for k in range(len(shape))]
        dims = [e if v is None else v for v, e in zip(names, shape, strict=True)]
        return dims, {v: e for v, e in zip(names, shape, strict=True) if v is not None}
    if kind < 0.15:
        at = int(rng.integers(len(shape)))
        return [0 if k == at else e for k, e in enumerate(shape)], {}
    if kind < 0.2:
        return [te.const(e, "int64") for e in shape], {}
    return list(shape), {}
