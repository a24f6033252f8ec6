"""Random te programs of a few stages, small enough to interpret, with whole numbers that floats hold exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import te
from ...tir.dtype import to_numpy
from ...tir.function import PrimFunc
from ...tir.op import max_, min_
from ...tir.stmt import Block
from ...tir.walk import pre_order

__all__ = ["Program", "random_program"]

_SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17)
_EXACT = 1 << 22
"""Values and their partial sums stay below, so that a float32 holds them whatever the order of summation."""
_WORK = 1500
"""Iterations of one stage at most."""


@dataclass(frozen=True)
class Program:
    """A function, and the arrays to run it on: inputs filled, outputs marked as unwritten."""

    func: PrimFunc
    seed: int

    def arrays(self) -> list[np.ndarray]:
        """Fresh arguments, the same each time; outputs hold NaN, or 77 where there is none."""
        rng = np.random.default_rng((self.seed, 1))
        written = {r.buffer for b in pre_order(self.func.body) if isinstance(b, Block) for r in b.writes}
        out = []
        for buffer in self.func.buffers:
            shape = [e.value for e in buffer.shape]  # type: ignore[attr-defined]
            kind = to_numpy(buffer.dtype)
            if buffer in written:
                out.append(np.full(shape, np.nan if kind.kind == "f" else 77, kind))
            else:
                out.append(rng.integers(-3, 4, size=shape).astype(kind))
        return out


@dataclass(frozen=True)
class _Stage:
    """A tensor and the largest magnitude that it holds."""

    tensor: Any
    bound: int

    @property
    def shape(self) -> list[int]:
        return [int(e) for e in self.tensor.shape]


def random_program(seed: int) -> Program:
    """The program of this seed: one or two inputs, up to five stages, one or two outputs."""
    rng = np.random.default_rng((seed, 0))
    dtype = str(rng.choice(["float32", "float32", "float32", "int32", "float64"]))
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    shape = _shape(rng, rank)
    inputs = [_Stage(te.placeholder(shape, dtype, name="A"), 3)]
    if rng.integers(2):
        inputs.append(_Stage(te.placeholder(shape if rng.integers(2) else shape[-1:], dtype, name="B"), 3))
    stages = list(inputs)
    for number in range(int(rng.integers(1, 6))):
        source = stages[-1] if rng.random() < 0.7 else stages[int(rng.integers(len(stages)))]
        makers = list(_MAKERS)
        rng.shuffle(makers)
        for maker in makers:
            made = maker(rng, f"S{number}", source, stages)
            if made is not None:
                stages.append(made)
                break
    outputs = [stages[-1].tensor]
    others = [s for s in stages[len(inputs) : -1] if s.tensor is not outputs[0]]
    if others and rng.random() < 0.15:
        outputs.append(others[int(rng.integers(len(others)))].tensor)
    return Program(te.create_prim_func([s.tensor for s in inputs] + outputs), seed)


def _shape(rng: np.random.Generator, rank: int) -> list[int]:
    while True:
        shape = [int(rng.choice(_SIZES)) for _ in range(rank)]
        if np.prod(shape) <= 300:
            return shape


# -- stages: (rng, name, source, all stages) -> the new stage, or None where it does not fit --------------------------


def _scale(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    if s.bound * 3 + 2 > _EXACT:
        return None
    by, plus = int(rng.integers(-3, 4)), int(rng.integers(-2, 3))
    return _Stage(te.compute(s.shape, lambda *i: s.tensor[i] * by + plus, name=name), s.bound * 3 + 2)


def _relu(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    top = int(rng.integers(1, 9))
    low = -int(rng.integers(0, 9))
    return _Stage(
        te.compute(s.shape, lambda *i: max_(min_(s.tensor[i], top), low), name=name),
        max(top, -low),
    )


def _add(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    fitting = [o for o in stages if o.shape == s.shape or o.shape == s.shape[-1:] or o.shape == s.shape[:-1]]
    o = fitting[int(rng.integers(len(fitting)))]
    if s.bound + o.bound > _EXACT:
        return None

    def at(*i: Any) -> Any:
        if o.shape == s.shape:
            return s.tensor[i] + o.tensor[i]
        return s.tensor[i] + (o.tensor[i[-1]] if o.shape == s.shape[-1:] else o.tensor[i[:-1]])

    return _Stage(te.compute(s.shape, at, name=name), s.bound + o.bound)


def _transpose(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    if len(s.shape) < 2:
        return None
    order = [int(x) for x in rng.permutation(len(s.shape))]
    shape = [s.shape[d] for d in order]

    def at(*i: Any) -> Any:
        back = {d: v for d, v in zip(order, i, strict=True)}
        return s.tensor[tuple([back[d] for d in range(len(order))])]

    return _Stage(te.compute(shape, at, name=name), s.bound)


def _stencil(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    d = int(rng.integers(len(s.shape)))
    taps = int(rng.integers(2, 4))
    step = int(rng.integers(1, 3))
    size = (s.shape[d] - taps) // step + 1
    if s.shape[d] < taps or s.bound * taps > _EXACT:
        return None
    shape = [size if k == d else e for k, e in enumerate(s.shape)]

    def at(*i: Any) -> Any:
        terms = [s.tensor[tuple([v * step + t if k == d else v for k, v in enumerate(i)])] for t in range(taps)]
        return sum(terms[1:], terms[0])

    return _Stage(te.compute(shape, at, name=name), s.bound * taps)


def _pool(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    d = int(rng.integers(len(s.shape)))
    window, step = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    if s.shape[d] < window:
        return None
    shape = [(s.shape[d] - window) // step + 1 if k == d else e for k, e in enumerate(s.shape)]
    r = te.reduce_axis((0, window), name="w")
    kind = int(rng.integers(3))
    reduce = (te.sum, te.max, te.min)[kind]
    bound = s.bound * window if kind == 0 else s.bound
    if bound > _EXACT:
        return None

    def at(*i: Any) -> Any:
        return reduce(s.tensor[tuple([v * step + r if k == d else v for k, v in enumerate(i)])], axis=r)

    return _Stage(te.compute(shape, at, name=name), bound)


def _pad(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    before = [int(rng.integers(0, 3)) for _ in s.shape]
    after = [int(rng.integers(0, 3)) for _ in s.shape]
    if not any(before) and not any(after):
        return None
    shape = [a + e + b for a, e, b in zip(before, s.shape, after, strict=True)]
    fill = int(rng.integers(0, 2))

    def at(*i: Any) -> Any:
        tests = []
        for v, a, e, b in zip(i, before, s.shape, after, strict=True):
            tests += [v >= a] if a else []
            tests += [v < a + e] if b else []
        inside = s.tensor[tuple([v - a for v, a in zip(i, before, strict=True)])]
        return te.if_then_else(te.all(*tests), inside, te.const(fill, s.tensor.dtype))

    return _Stage(te.compute(shape, at, name=name), max(s.bound, 1))


def _reduce(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    if len(s.shape) < 2:
        return None
    d = int(rng.integers(len(s.shape)))
    kind = int(rng.integers(3))
    bound = s.bound * s.shape[d] if kind == 0 else s.bound
    if bound > _EXACT:
        return None
    r = te.reduce_axis((0, s.shape[d]), name="k")
    reduce = (te.sum, te.max, te.min)[kind]
    shape = [e for k, e in enumerate(s.shape) if k != d]

    def at(*i: Any) -> Any:
        index = list(i)
        index.insert(d, r)
        return reduce(s.tensor[tuple(index)], axis=r)

    return _Stage(te.compute(shape, at, name=name), bound)


def _matmul(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    if len(s.shape) != 2:
        return None
    fitting = [o for o in stages if len(o.shape) == 2 and o.shape[1] == s.shape[1]]
    o = fitting[int(rng.integers(len(fitting)))]
    m, n, depth = s.shape[0], o.shape[0], s.shape[1]
    bound = s.bound * o.bound * depth
    if bound > _EXACT or m * n * depth > _WORK:
        return None
    r = te.reduce_axis((0, depth), name="k")
    return _Stage(te.compute((m, n), lambda i, j: te.sum(s.tensor[i, r] * o.tensor[j, r], axis=r), name=name), bound)


def _conv(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    weights = [o for o in stages[:2] if len(o.shape) == 1 and o.shape[0] <= 5]
    if len(s.shape) != 2 or not weights:
        return None
    w = weights[0]
    taps = w.shape[0]
    bound = s.bound * w.bound * taps * min(taps, 3)
    if s.shape[0] < 3 or s.shape[1] < taps or bound * 3 > _EXACT:
        return None
    x, y = te.reduce_axis((0, 3), name="x"), te.reduce_axis((0, taps), name="y")
    shape = (s.shape[0] - 2, s.shape[1] - taps + 1)
    if shape[0] * shape[1] * 3 * taps > _WORK:
        return None
    return _Stage(
        te.compute(shape, lambda i, j: te.sum(s.tensor[i + x, j + y] * w.tensor[y], axis=[x, y]), name=name), bound * 3
    )


def _flatten(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    if len(s.shape) != 2:
        return None
    m, n = s.shape
    return _Stage(te.compute((m * n,), lambda f: s.tensor[f // n, f % n], name=name), s.bound)


def _reverse(rng: np.random.Generator, name: str, s: _Stage, stages: list[_Stage]) -> _Stage | None:
    d = int(rng.integers(len(s.shape)))
    last = s.shape[d] - 1
    return _Stage(
        te.compute(
            s.shape, lambda *i: s.tensor[tuple([last - v if k == d else v for k, v in enumerate(i)])], name=name
        ),
        s.bound,
    )


_MAKERS: tuple[Callable[..., _Stage | None], ...] = (
    _scale, _relu, _add, _add, _transpose, _stencil, _stencil, _pool, _pool, _pad, _pad, _reduce, _reduce, _matmul,
    _matmul, _conv, _flatten, _reverse,
)  # fmt: skip
