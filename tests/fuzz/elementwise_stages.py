"""Stages of a random program that compute each element on its own: arithmetic, stencils, padding, moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.expr import DType, Expr, IntImm, Var, const, max_, max_value, min_, min_value
from tilewright.tir.walk import substitute

LIMITS = {
    "float32": 1 << 22, "float64": 1 << 40, "int32": 1 << 22, "int8": 127, "float16": 2047, "bfloat16": 255,
    "uint8": 255, "int16": 32767, "uint16": 65535, "uint32": 1 << 22, "int64": 1 << 40, "uint64": 1 << 40, "bool": 0,
}  # fmt: skip
"""Values and their partial sums stay within, so that the type holds them whatever the order of summation."""


def full_bound(dtype: str) -> int:
    """The largest magnitude of an integer type: that of a stage whose values may wrap."""
    return max(int(max_value(dtype)), -int(min_value(dtype)))


def constant(dtype: str, value: int) -> Any:
    """A constant, without its sign where the type has none."""
    return te.const(abs(value) if dtype.startswith("uint") or dtype == "bool" else value, dtype)


def value_of(e: Any, sizes: Mapping[Var, int]) -> int:
    """A size, once the sizes that are variables are known."""
    found = simplify(substitute(e, {v: const(n, v.dtype) for v, n in sizes.items()})) if isinstance(e, Expr) else e
    return found.value if isinstance(found, IntImm) else int(found)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Stage:
    """A tensor, the largest magnitude that it holds, and the values of the variables in its shape."""

    tensor: Any
    bound: int
    sizes: Mapping[Var, int]

    @property
    def dims(self) -> list[Any]:
        """The shape as it is declared: whole numbers, and expressions of the variables."""
        return [e.value if isinstance(e, IntImm) and e.dtype == "int32" else e for e in self.tensor.shape]

    @property
    def shape(self) -> list[int]:
        """The shape at run time."""
        return [value_of(e, self.sizes) for e in self.tensor.shape]

    @property
    def dtype(self) -> DType:
        """The type of an element."""
        return self.tensor.dtype

    def holds(self, bound: int) -> bool:
        """Whether the type holds whole numbers up to ``bound`` exactly."""
        return bound <= LIMITS[self.dtype]

    def made(self, dims: Sequence[Any], f: Callable[..., Any], name: str, bound: int) -> Stage:
        """One more stage with the same variables."""
        return Stage(te.compute(tuple(dims), f, name=name), bound, self.sizes)


Maker = Callable[[np.random.Generator, str, Stage, list[Stage]], "Stage | list[Stage] | None"]
"""(rng, name, source, all stages) -> the new stage or stages, or None where it does not fit."""


def one_of(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    """Any of them."""
    return items[int(rng.integers(len(items)))]


def scale(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Times and plus a constant."""
    if not s.holds(s.bound * 3 + 2):
        return None
    by, plus = constant(s.dtype, int(rng.integers(-3, 4))), constant(s.dtype, int(rng.integers(-2, 3)))
    return s.made(s.dims, lambda *i: s.tensor[i] * by + plus, name, s.bound * 3 + 2)


def _clip(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    top, low = int(rng.integers(1, 9)), -int(rng.integers(0, 9)) * (not s.dtype.startswith("uint"))
    if s.dtype == "bool":
        return None
    return s.made(s.dims, lambda *i: max_(min_(s.tensor[i], top), low), name, max(top, -low))


def _two(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> list[Stage] | None:
    """One computation with two results."""
    if not s.holds(s.bound * 2 + 1):
        return None
    pair = te.compute(tuple(s.dims), lambda *i: (s.tensor[i] + 1, s.tensor[i] * 2), name=name)
    return [Stage(pair[0], s.bound + 1, s.sizes), Stage(pair[1], s.bound * 2, s.sizes)]


def _cast(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    to = one_of(rng, [t for t in LIMITS if t != s.dtype])
    if s.bound > LIMITS[to] or to.startswith("uint"):  # below zero it would wrap
        return None
    return s.made(s.dims, lambda *i: te.cast(to, s.tensor[i]), name, s.bound)


def _add(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    dims = s.dims
    fitting = [o for o in stages if o.dtype == s.dtype and o.dims in (dims, dims[-1:], dims[:-1])]
    o = one_of(rng, fitting)
    if not s.holds(s.bound + o.bound):
        return None

    def at(*i: Any) -> Any:
        if o.dims == dims:
            return s.tensor[i] + o.tensor[i]
        return s.tensor[i] + (o.tensor[i[-1]] if o.dims == dims[-1:] else o.tensor[i[:-1]])

    return s.made(dims, at, name, s.bound + o.bound)


def _transpose(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    if len(s.dims) < 2:
        return None
    order = [int(x) for x in rng.permutation(len(s.dims))]
    dims = [s.dims[d] for d in order]

    def at(*i: Any) -> Any:
        back = {d: v for d, v in zip(order, i, strict=True)}
        return s.tensor[tuple([back[d] for d in range(len(order))])]

    return s.made(dims, at, name, s.bound)


def stencil(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A sum of a few neighbours along a dimension."""
    if not s.dims:
        return None
    d, taps, step = int(rng.integers(len(s.dims))), int(rng.integers(2, 4)), int(rng.integers(1, 3))
    if s.shape[d] < taps or not s.holds(s.bound * taps):
        return None
    dims = [(e - taps) // step + 1 if k == d else e for k, e in enumerate(s.dims)]

    def at(*i: Any) -> Any:
        terms = [s.tensor[tuple([v * step + t if k == d else v for k, v in enumerate(i)])] for t in range(taps)]
        return sum(terms[1:], terms[0])

    return s.made(dims, at, name, s.bound * taps)


def upscale(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Each place two or three times, with the sum of a few neighbours of its source."""
    if not s.dims:
        return None
    d, taps, up = int(rng.integers(len(s.dims))), int(rng.integers(1, 4)), int(rng.integers(2, 4))
    shift = int(rng.integers(up))
    if s.shape[d] <= taps or not s.holds(s.bound * taps) or int(np.prod(s.shape)) * up > 600:
        return None
    dims = [(e - taps) * up if k == d else e for k, e in enumerate(s.dims)]

    def at(*i: Any) -> Any:
        def tap(t: int) -> Any:
            return s.tensor[tuple([(v + shift) // up + t if k == d else v for k, v in enumerate(i)])]

        return sum([tap(t) for t in range(1, taps)], tap(0))

    return s.made(dims, at, name, s.bound * taps)


def copy(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage:
    """The same, as it is or with its dimensions in another order."""
    order = [int(x) for x in rng.permutation(len(s.dims))] if rng.random() < 0.5 else list(range(len(s.dims)))

    def at(*i: Any) -> Any:
        back = {d: v for d, v in zip(order, i, strict=True)}
        return s.tensor[tuple([back[d] for d in range(len(order))])]

    return s.made([s.dims[d] for d in order], at, name, s.bound)


def pad(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Margins of zeros or ones."""
    before = [int(rng.integers(0, 3)) for _ in s.dims]
    after = [int(rng.integers(0, 3)) for _ in s.dims]
    if not any(before) and not any(after):
        return None
    dims = [a + e + b for a, e, b in zip(before, s.dims, after, strict=True)]
    fill = int(rng.integers(0, 2))

    def at(*i: Any) -> Any:
        tests = []
        for v, a, e, b in zip(i, before, s.dims, after, strict=True):
            tests += [v >= a] if a else []
            tests += [v < a + e] if b else []
        inside = s.tensor[tuple([v - a for v, a in zip(i, before, strict=True)])]
        return te.if_then_else(te.all(*tests), inside, te.const(fill, s.dtype))

    return s.made(dims, at, name, max(s.bound, 1))


def flatten(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """The elements of a matrix one after the other."""
    if len(s.dims) != 2 or s.shape[1] == 0:
        return None
    m, n = s.dims
    return s.made((m * n,), lambda f: s.tensor[f // n, f % n], name, s.bound)


def _reverse(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    if not s.dims:
        return None
    d = int(rng.integers(len(s.dims)))
    last = s.dims[d] - 1
    return s.made(
        s.dims, lambda *i: s.tensor[tuple([last - v if k == d else v for k, v in enumerate(i)])], name, s.bound
    )


def _gather(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Rows that another stage names."""
    names = [o for o in stages if len(o.dims) == 1 and o.dtype.is_int and o.bound <= 127]
    if not s.dims or s.shape[0] == 0 or not names:
        return None
    o = one_of(rng, names)

    def at(*i: Any) -> Any:
        row = te.max(te.min(te.cast("int32", o.tensor[i[0]]), te.cast("int32", s.tensor.shape[0]) - 1), 0)
        return s.tensor[(row, *i[1:])]

    return s.made((o.dims[0], *s.dims[1:]), at, name, s.bound)


def _select(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Another value where the place or the value says so."""
    if not s.dims or s.dtype == "bool":
        return None
    other = constant(s.dtype, int(rng.integers(-2, 3)))
    kind, at_most = int(rng.integers(3)), int(rng.integers(4))

    def at(*i: Any) -> Any:
        if kind == 0:
            return te.select(i[-1] % 3 == 1, s.tensor[i], other)
        if kind == 1:
            return te.if_then_else(i[0] <= at_most, s.tensor[i], other)
        return te.select(s.tensor[i] > te.const(0, s.dtype), other, s.tensor[i])

    return s.made(s.dims, at, name, max(s.bound, 2))


def _abs(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Functions that are exact on whole numbers."""
    if not s.holds(s.bound):
        return None
    if not s.dtype.is_float or s.dtype == "float16":
        return s.made(s.dims, lambda *i: te.abs(s.tensor[i]), name, s.bound)
    f = one_of(rng, [te.floor, te.abs, te.round])
    return s.made(s.dims, lambda *i: f(s.tensor[i]), name, s.bound)


ELEMENTWISE: tuple[Maker, ...] = (
    scale, _clip, _two, _cast, _add, _add, _transpose, stencil, stencil, upscale, pad, pad, flatten, _reverse, _gather,
    _select, _abs, copy,
)  # fmt: skip
