"""Random programs over arrays of more than 2**31 elements, of which they touch few.

The first stage reads a small window of the array: far behind its beginning, in large steps, through a view with tiny
strides, through a table, or by an index that the program flattens. Ordinary stages follow. The arrays are views of a
little memory, or mappings of which the untouched pages take none.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te
from tilewright.tir.arith import Analyzer
from tilewright.tir.expr import Expr, IntImm, Range, Var, const, to_numpy
from tilewright.tir.index_width import with_index_dtype
from tilewright.tir.stmt import Block, Buffer, For, PrimFunc, Stmt
from tilewright.tir.walk import pre_order, replace_buffers, substitute

from .elementwise_stages import ELEMENTWISE, Stage, one_of, value_of
from .random_programs import Program
from .reduction_stages import REDUCTIONS

_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: pages get memory when they are written
_ROUNDS = 1 << 15
_WINDOWS = ((7,), (13,), (16,), (17,), (3, 5), (4, 4), (2, 13), (8, 7))
_DTYPES = ("int8", "int8", "float32", "int32", "float16")
_SHAPES = ((50000, 60000), (46341, 46341), (3, 1 << 30), (1 << 31, 2), (70000, 65537))


@dataclass(frozen=True)
class _Huge:
    """The array: its declared shape and strides, and the window's indices, one array per dimension."""

    shape: tuple[int, ...]
    where: tuple[np.ndarray, ...]
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class HugeProgram(Program):
    """A program with one huge input, its first parameter, and perhaps an output whose rows lie far apart."""

    source: _Huge = field(default_factory=lambda: _Huge((), ()))

    def arrays(self) -> list[Any]:
        """Fresh arguments; outside the window the huge one holds zeros, or the same again and again."""
        rng = np.random.default_rng((self.seed, 1))
        out: list[Any] = []
        for number, buffer in enumerate(self.func.buffers):
            kind = to_numpy(buffer.dtype)
            if number == 0:
                out.append(_source(rng, self.source, kind))
                continue
            shape = [value_of(e, self.sizes) for e in buffer.shape]
            strides = [value_of(e, self.sizes) for e in buffer.strides]
            array = _view(shape, strides, kind) if strides else np.empty(shape, kind)
            array[...] = 77 if kind.kind != "f" else np.nan
            if buffer.name == "I":
                array[...] = rng.permutation(array.size).reshape(shape)
            out.append(array)
        return out


def huge_program(seed: int) -> HugeProgram:
    """The program of this seed."""
    rng = np.random.default_rng((seed, 4))
    window, dtype = list(one_of(rng, _WINDOWS)), one_of(rng, _DTYPES)
    sizes: dict[Var, int] = {}
    inputs, first, source = one_of(rng, (_corner, _corner, _deep, _steps, _flattened, _table))(
        rng, window, dtype, sizes
    )
    stages = [Stage(first, 3, sizes)]
    makers = [*ELEMENTWISE, *REDUCTIONS]
    for number in range(int(rng.integers(0, 4))):
        for place in rng.permutation(len(makers)):
            made = makers[place](rng, f"S{number}", one_of(rng, stages), stages)
            if made is not None:
                stages += made if isinstance(made, list) else [made]
                break
    func = te.create_prim_func([*inputs, stages[-1].tensor])
    if rng.random() < 0.3 and not sizes and all(n <= 2**31 - 1 for n in source.shape):
        func = with_index_dtype(func, "int32")
    if source.strides:
        func = _with_strides(func, func.buffers[0], source.strides)
    last = func.buffers[-1]
    if rng.random() < 0.3 and last.shape and all(isinstance(e, IntImm) for e in last.shape):
        apart = one_of(rng, (400_000_000, 2**31 + 7))
        func = _with_strides(func, last, [apart, *_compact([value_of(e, sizes) for e in last.shape])[1:]])
    return HugeProgram(func, seed, sizes, source=source)


def too_much(func: PrimFunc, sizes: dict[Var, int], most: int = _ROUNDS) -> bool:
    """Whether ``func`` takes too long to interpret, or too much memory: a step copies all of a huge array."""
    known = Analyzer()

    def rounds(s: Any, times: int) -> int:
        if isinstance(s, For):
            extent = substitute(s.extent, {v: const(n, v.dtype) for v, n in sizes.items()})
            times *= max(known.const_int_bound(extent).hi or 1, 1)
            known.bind(s.loop_var, Range(s.min, s.extent))
        elif isinstance(s, Block) and any(_elements(buffer, sizes) > 8 * most for buffer in s.alloc_buffers):
            return most + 1
        below = [rounds(child, times) for child in s.children() if isinstance(child, Stmt)]
        return max(sum(below), times)

    return rounds(func.body, 1) > most


def _elements(buffer: Buffer, sizes: dict[Var, int]) -> int:
    shape, strides = [[_known(e, sizes) for e in es] for es in (buffer.shape, buffer.strides)]
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if strides else math.prod(shape)


def _known(e: Expr, sizes: dict[Var, int]) -> int:
    if any(isinstance(n, Var) and n not in sizes for n in pre_order(e)):
        return 1
    return value_of(e, sizes)


# the stages that read the huge array: its te inputs, the stage, and what the array is


Made = tuple[list[Any], Any, _Huge]


def _read(window: list[int], at: Callable[..., tuple[Any, ...]], a: Any) -> Any:
    return te.compute(tuple(window), lambda *i: a(*at(*i)), name="W")


def _grid(window: list[int], at: Callable[..., tuple[Any, ...]]) -> tuple[np.ndarray, ...]:
    found = at(*np.indices(window, dtype=np.int64))
    return tuple([np.broadcast_to(np.asarray(x, np.int64), window) for x in found])


def _corner(rng: np.random.Generator, window: list[int], dtype: str, sizes: dict[Var, int]) -> Made:
    """A window at the end of a matrix, perhaps transposed; its sizes may be variables, and its strides tiny."""
    shape = one_of(rng, _SHAPES)
    dims: list[Any] = list(shape)
    if rng.random() < 0.4 and max(shape) < 2**31:
        for d in range(2):
            var = te.var(f"n{d}", one_of(rng, ("int32", "int64")))
            dims[d], sizes[var] = var, shape[d]
    turned = bool(rng.integers(2))

    def at(ends: list[Any]) -> Callable[..., tuple[Any, ...]]:
        def place(*i: Any) -> tuple[Any, ...]:
            one, other = (i[0], i[-1]) if len(i) > 1 else (i[0] * 0, i[0])
            one, other = (other, one) if turned else (one, other)
            return (ends[0] - 1 - one % shape[0] if shape[0] < 100 else ends[0] - 1 - one), (
                ends[1] - 1 - other if shape[1] > 100 else other % shape[1]
            )

        return place

    strides = one_of(rng, ((), (), (0, 1), (1, 0), (1, 1), (2, 3))) if max(shape) <= 70000 else ()
    a = te.placeholder(dims, dtype, name="A")
    return [a], _read(window, at(dims), a), _Huge(shape, _grid(window, at(list(shape))), strides)


def _steps(rng: np.random.Generator, window: list[int], dtype: str, sizes: dict[Var, int]) -> Made:
    """Elements of a flat array, far from each other."""
    total = one_of(rng, (3_000_000_000, 2**31 + 17, 2**32 + 13))
    step = total // math.prod(window) - 3

    def at(*i: Any) -> tuple[Any, ...]:
        return (i[0] * (step * (window[1] if len(window) > 1 else 1)) + (i[1] * step if len(i) > 1 else 0) + 5,)

    a = te.placeholder((total,), dtype, name="A")
    return [a], _read(window, at, a), _Huge((total,), _grid(window, at))


def _deep(rng: np.random.Generator, window: list[int], dtype: str, sizes: dict[Var, int]) -> Made:
    """A window of the last of three matrices, whose distance is beyond int32."""
    shape = (3, 50000, 60000)

    def at(*i: Any) -> tuple[Any, ...]:
        return 2 - i[0] % 2, 49999 - i[0], 59999 - i[-1] * 2

    a = te.placeholder(shape, dtype, name="A")
    return [a], _read(window, at, a), _Huge(shape, _grid(window, at))


def _flattened(rng: np.random.Generator, window: list[int], dtype: str, sizes: dict[Var, int]) -> Made:
    """A window of a matrix that is declared flat."""
    width = 60000

    def at(*i: Any) -> tuple[Any, ...]:
        one, other = (i[0], i[1]) if len(i) > 1 else (i[0] // 2, i[0] % 2)
        return ((one + 49000) * width + (other * 3 + 41),)

    a = te.placeholder((50000 * width,), dtype, name="A")
    return [a], _read(window, at, a), _Huge((50000 * width,), _grid(window, at))


def _table(rng: np.random.Generator, window: list[int], dtype: str, sizes: dict[Var, int]) -> Made:
    """Elements behind a large offset that a table of int32 names; any of the window's number of elements."""
    total, count = 3_000_000_000, math.prod(window)
    a, table = te.placeholder((total,), dtype, name="A"), te.placeholder(window, "int32", name="I")
    read = te.compute(tuple(window), lambda *i: a[table(*i) + const(2_400_000_000)], name="W")
    return [a, table], read, _Huge((total,), (np.arange(count, dtype=np.int64) + 2_400_000_000,))


# memory


def _compact(shape: list[int]) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _view(shape: Any, strides: Any, kind: np.dtype) -> np.ndarray:
    """A mapping whose pages take memory when they are written, with the given strides in elements."""
    elements = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = mmap.mmap(-1, elements * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    flat = np.frombuffer(memory, kind)
    return np.lib.stride_tricks.as_strided(flat, tuple(shape), [s * kind.itemsize for s in strides])


def _source(rng: np.random.Generator, huge: _Huge, kind: np.dtype) -> np.ndarray:
    if huge.strides:
        array = _view(huge.shape, huge.strides, kind)
        memory = np.lib.stride_tricks.as_strided(
            array, (1 + sum((n - 1) * s for n, s in zip(huge.shape, huge.strides, strict=True)),), (kind.itemsize,)
        )
        memory[...] = rng.integers(-3, 4, size=memory.shape)
        return array
    array = _view(huge.shape, _compact(list(huge.shape)), kind)
    array[huge.where] = rng.integers(-3, 4, size=huge.where[0].shape)
    return array


def _with_strides(func: PrimFunc, buffer: Buffer, strides: Any) -> PrimFunc:
    new = buffer.with_(strides=tuple([const(s, "int64") for s in strides]), data=buffer.data)
    buffers = {p: new if b is buffer else b for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, replace_buffers(func.body, {buffer: new}), buffers, func.attrs)
