"""Random te programs of a few stages, small enough to interpret, with whole numbers that floats hold exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te
from tilewright.tir.expr import DType, Var, max_value, min_value, to_numpy
from tilewright.tir.expr.dtype import bfloat16_to_bits
from tilewright.tir.stmt import Block, PrimFunc
from tilewright.tir.walk import pre_order

from .condition_stages import CONDITIONS
from .elementwise_stages import ELEMENTWISE, Stage, full_bound, one_of, value_of
from .integer_stages import INTEGERS
from .recurrence_stages import RECURRENCES
from .reduction_stages import REDUCTIONS, SUMS, WINDOWS
from .script_programs import script_program

_SIZES = (1, 2, 3, 4, 4, 5, 7, 8, 8, 13, 16, 17)
_DTYPES = (
    "float32", "float32", "float32", "float32", "int32", "int32", "float64", "int8", "float16", "bfloat16", "uint8",
    "int64",
)  # fmt: skip
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_SCALARS = (0, 1, 3, 7, 17)
_ALL = (*ELEMENTWISE, *REDUCTIONS, *CONDITIONS)
_WHOLE = (*INTEGERS, *INTEGERS, *INTEGERS, *ELEMENTWISE, *REDUCTIONS)
_ORDERED = (*RECURRENCES, *RECURRENCES, *ELEMENTWISE, *REDUCTIONS)
_CHOICES = (*CONDITIONS, *CONDITIONS, *ELEMENTWISE, *REDUCTIONS)


@dataclass(frozen=True)
class Program:
    """A function, and the arrays to run it on: inputs filled, outputs marked as unwritten."""

    func: PrimFunc
    seed: int
    sizes: Mapping[Var, int] = field(default_factory=dict)
    """The sizes and scalar parameters that are variables, and their values."""

    extremes: int = 0
    """So many of the first buffers hold numbers near the ends of their types, too."""

    def arrays(self) -> list[Any]:
        """Fresh arguments, the same each time; outputs hold NaN, or 77 where there is none."""
        rng = np.random.default_rng((self.seed, 1))
        written = {r.buffer for b in pre_order(self.func.body) if isinstance(b, Block) for r in b.writes}
        out: list[Any] = []
        for p in self.func.params:
            buffer = self.func.buffer_map.get(p)
            if buffer is None:
                out.append(self.sizes[p])
                continue
            shape = [value_of(e, self.sizes) for e in buffer.shape]
            out.append(
                _unwritten(buffer.dtype, shape)
                if buffer in written
                else self._filled(rng, buffer.dtype, shape, len(out))
            )
        return out

    def _filled(self, rng: np.random.Generator, dtype: str, shape: list[int], number: int) -> np.ndarray:
        small = rng.integers(0 if dtype.startswith("uint") else -3, 4, size=shape)
        if number < self.extremes and DType(dtype).is_int:
            ends = np.array([int(min_value(dtype)), int(max_value(dtype)), int(max_value(dtype)) - 1, 0, 1], dtype)
            return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), small.astype(dtype))
        if dtype == "bfloat16":
            return np.asarray(bfloat16_to_bits(small.astype(np.float32))).reshape(shape)
        return small.astype(to_numpy(dtype))


def _unwritten(dtype: str, shape: list[int]) -> np.ndarray:
    if dtype == "bfloat16":
        return np.full(shape, 0x7FC0, np.uint16)
    kind = to_numpy(dtype)
    return np.full(shape, np.nan if kind.kind == "f" else 77, kind)


def random_program(seed: int, stage: str = "S", tensors: Sequence[str] = ("A", "B", "L")) -> Program:
    """The program of this seed: one or two inputs, up to five stages, one or two outputs. One in ten has sizes that are
    variables, one in twenty a size of 0, one in twenty sizes of 64 bits; one in eight takes a number.

    One in 25 is a script. Stages are called ``stage`` with a number, the inputs as ``tensors`` says.
    """
    rng = np.random.default_rng((seed, 0))
    if seed % 25 == 11:
        return Program(script_program(rng), seed)
    makers = one_of(rng, (_ALL, _ALL, _ALL, _ALL, _WHOLE, _CHOICES, _ORDERED, WINDOWS, SUMS))
    dtype = one_of(rng, _INTEGERS if makers is _WHOLE else _DTYPES)
    shape = _shape(rng, one_of(rng, (1, 2, 2, 2, 3)))
    dims, sizes = _declared(rng, shape)
    scalar = te.var("number") if rng.random() < 0.125 else None
    if scalar is not None:
        sizes[scalar] = one_of(rng, _SCALARS)
    extreme = makers is _WHOLE and rng.random() < 0.5
    bound = full_bound(dtype) if extreme else 3
    inputs = [Stage(te.placeholder(dims, dtype, name=tensors[0]), bound, sizes)]
    if rng.integers(2):
        inputs.append(
            Stage(te.placeholder(dims if rng.integers(2) else dims[-1:], dtype, name=tensors[1]), bound, sizes)
        )
    if makers in (_WHOLE, _CHOICES, _ORDERED) and rng.integers(2):
        inputs.append(Stage(te.placeholder(dims[:1], one_of(rng, _INTEGERS), name=tensors[2]), 3, sizes))
    extremes = min(len(inputs), 2) if extreme and inputs[-1].bound == bound else int(extreme)
    stages = list(inputs)
    for number in range(int(rng.integers(1, 6))):
        source = stages[-1] if rng.random() < 0.7 else one_of(rng, stages)
        for place in rng.permutation(len(makers)):
            made = makers[place](rng, f"{stage}{number}", source, stages)
            if made is not None:
                stages += made if isinstance(made, list) else [made]
                break
    outputs = [stages[-1].tensor]
    others = [s.tensor for s in stages[len(inputs) : -1]]
    if others and rng.random() < 0.15:
        outputs.append(one_of(rng, others))
    scalars = [] if scalar is None else [scalar]
    func = te.create_prim_func([s.tensor for s in inputs] + scalars + outputs)
    return Program(func, seed, _as_in(func, sizes), extremes)


def _as_in(func: PrimFunc, sizes: Mapping[Var, int]) -> dict[Var, int]:
    """The values by the variables of the function: sizes are other variables, of 64 bits, where some size is so wide."""
    inside = [e for b in func.buffer_map.values() for dim in b.shape for e in pre_order(dim) if isinstance(e, Var)]
    wide = {v: n for v in inside if v not in sizes for old, n in sizes.items() if old.name == v.name}
    return {**sizes, **wide}


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
