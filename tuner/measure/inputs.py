"""This module makes the arguments that a candidate is run on, and compares its results with the reference.

Inputs follow from the function and a seed alone, so every process makes the same ones. Outputs lie between guard bytes
and are filled with NaN (integers: a pattern) before each check. This detects elements that were not written, and bytes
that were written outside the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...tir.expr import BufferLoad, DType, IntImm, array_bytes, to_numpy
from ...tir.expr.dtype import float8_from_bits, float8_to_bits
from ...tir.stmt import Block, Buffer, BufferStore, PrimFunc
from ...tir.storage_types import byte_shape
from ...tir.walk import pre_order

_GUARD = 64
_GUARD_BYTE = 0xA5
_PLACE = 16
"""Arrays begin so many bytes behind a multiple of 64. Large arrays of NumPy and PyTorch do, and others anywhere."""

_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}


@dataclass
class KernelInputs:
    """The arrays and scalars of one function, in the order of its parameters.

    ``outputs`` are the positions of what it writes; ``in_out`` those of them whose old contents it also reads.
    """

    values: list[Any]
    outputs: tuple[int, ...]
    in_out: tuple[int, ...]
    dtypes: tuple[str, ...]
    _backing: list[np.ndarray] = field(default_factory=list)
    _initial: dict[int, np.ndarray] = field(default_factory=dict)
    _untouched: dict[int, np.ndarray] = field(default_factory=dict)

    def reset_outputs(self) -> None:
        """Fill the outputs with NaN or a pattern; outputs that are also read get their original contents back."""
        for position in self.outputs:
            if position in self._initial:
                self.values[position][...] = self._initial[position]
            else:
                _poison(self.values[position], self.dtypes[position])

    def results(self) -> list[np.ndarray]:
        """Returns the outputs, as views."""
        return [self.values[position] for position in self.outputs]

    def damage(self) -> str | None:
        """Returns what was written outside the outputs since the arguments were made, in words, or None."""
        for position, backing in enumerate(self._backing):
            if backing.size and not (_guards_intact(backing)):
                return f"argument {position} was written out of bounds"
        for position, original in self._untouched.items():
            if not np.array_equal(_bytes(self.values[position]), _bytes(original)):
                return f"argument {position} is an input but was written"
        return None


FILLS = ("plain", "positive", "small", "dominant")
"""How floats are chosen, see :func:`make_arguments`. Recurrences try all."""


def make_arguments(func: PrimFunc, seed: int, *, fill: str = "plain") -> KernelInputs:
    """Returns arrays for ``func``: floats by ``fill``, integers small, indices in range.

    ``plain``: uniform in [-1, 1). ``positive``: in [0.1, 1). ``small``: plain over the root of the longest extent, so
    that products of matrices do not grow. ``dominant``: the same with 2 more on the diagonals of square matrices, by
    which one may divide.

    Buffers have constant shapes. Scalars are 1.
    """
    rng = np.random.default_rng(seed)
    written, read_first = _access_order(func)
    index_limits = _index_limits(func)
    values: list[Any] = []
    backing: list[np.ndarray] = []
    outputs: list[int] = []
    in_out: list[int] = []
    dtypes: list[str] = []
    for position, param in enumerate(func.params):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            values.append(1.0 if param.dtype.is_float else 1)
            backing.append(np.empty(0, np.uint8))
            dtypes.append(param.dtype)
            continue
        raw, array = _guarded(buffer)
        if buffer in written:
            outputs.append(position)
            if buffer in read_first:
                in_out.append(position)
        _fill(array, buffer, rng, fill, index_limits.get(buffer))
        values.append(array)
        backing.append(raw)
        dtypes.append(buffer.dtype)
    arguments = KernelInputs(values, tuple(outputs), tuple(in_out), tuple(dtypes), backing)
    arguments._initial = {p: values[p].copy() for p in in_out}
    arguments._untouched = {
        p: v.copy() for p, v in enumerate(values) if isinstance(v, np.ndarray) and p not in arguments.outputs
    }
    arguments.reset_outputs()
    return arguments


_FEW, _CHANGE, _MOST = 64, 2.0**-8, 1e3
_CHANGE_SEED = [0x6368616E, 0x67655F]
"""Not a seed of inputs, of which the same numbers would make changes with the signs of the inputs themselves."""


def scales_of(arguments: KernelInputs, run: Callable[[], object]) -> list[float]:
    """Returns the magnitude of the terms that each small output is summed up from.  The terms of a sum may cancel,
    while their rounding errors do not: so the few elements of a small output do not tell the tolerance that they need.

    ``run`` computes the outputs. It is called with slightly changed inputs, and the magnitude is the change of the
    output over the relative change of the inputs, at most a thousand times the root mean square of the output. It is 0
    for outputs of 64 elements and more.
    """
    few = [p for p in arguments.outputs if DType(arguments.dtypes[p]).is_float and arguments.values[p].size < _FEW]
    if not few:
        return [0.0] * len(arguments.outputs)
    before = {p: _numeric(arguments.values[p], arguments.dtypes[p]).copy() for p in few}
    rng = np.random.default_rng(_CHANGE_SEED)
    inputs = [p for p in arguments._untouched if arguments.dtypes[p] in ("float16", "float32", "float64")]
    for p in inputs:
        signs = rng.choice((-_CHANGE, _CHANGE), arguments.values[p].shape)
        arguments.values[p][...] = arguments._untouched[p] * (1 + signs)
    arguments.reset_outputs()
    run()
    scales = dict.fromkeys(arguments.outputs, 0.0)
    for p in few:
        changed = _numeric(arguments.values[p], arguments.dtypes[p]) - before[p]
        size = _root_mean_square(before[p], "float64")
        scales[p] = min(_root_mean_square(changed, "float64") / _CHANGE, _MOST * size)
    for p in inputs:
        arguments.values[p][...] = arguments._untouched[p]
    return [scales[p] for p in arguments.outputs]


def tolerance(func: PrimFunc, *, exact: bool = False) -> tuple[float, float]:
    """Returns ``(relative, absolute)`` tolerance for float outputs; the absolute one is in units of their root mean
    square.

    The rounding errors of a sum in another order grow like the root of its length (Higham, "Accuracy and Stability
    of Numerical Algorithms", 2002, section 4.2, the statistical estimate); lengths of all reductions are added up,
    and the coarsest float type in the function sets the unit. ``exact``: the reference was computed in a wider type,
    so that only the candidate's own errors count, and the steps of a sum are at most half a unit off.
    """
    kinds = {buffer.dtype for buffer in func.buffers}
    for node in pre_order(func.body):
        if isinstance(node, Block):
            kinds.update(buffer.dtype for buffer in node.alloc_buffers)
    epsilon = max((_EPSILON.get(kind.split("x")[0], 0.0) for kind in kinds), default=0.0)
    relative = epsilon * (64.0 + (2.0 if exact else 8.0) * math.sqrt(reduction_length(func)))
    return relative, relative


def reduction_length(func: PrimFunc) -> int:
    """Returns one more than the lengths of all reductions added up."""
    length = 1
    for node in pre_order(func.body):
        if isinstance(node, Block):
            extents = [iv.dom.extent for iv in node.iter_vars if iv.kind == "reduce"]
            if extents:
                length += math.prod(e.value if isinstance(e, IntImm) else 1 for e in extents)
    return length


def compare(
    results: Sequence[np.ndarray], reference: Sequence[np.ndarray], dtypes: Sequence[str], limits: tuple[float, float],
    scales: Sequence[float] = (), spreads: Sequence[np.ndarray] = (),
) -> str | None:  # fmt: skip
    """Returns a sentence about the first difference of ``results`` from ``reference``, or None when they agree within
    ``limits``. ``scales`` (one per output) replace smaller root mean squares in the absolute tolerance; see
    :func:`scales_of`. ``spreads`` (one array per output) are added to the tolerance element by element."""
    for number, (result, expected, dtype) in enumerate(zip(results, reference, dtypes, strict=True)):
        spread = spreads[number] if len(spreads) else None
        difference = _difference(result, expected, dtype, limits, scales[number] if scales else 0.0, spread)
        if difference is not None:
            return f"output {number}: {difference}"
    return None


_CHUNK = 1 << 18


def _difference(
    result: np.ndarray, reference: np.ndarray, dtype: str, limits: tuple[float, float], least: float,
    spread: np.ndarray | None,
) -> str | None:  # fmt: skip
    """Compare in chunks that stay in the cache: outputs may be large, and every candidate is compared."""
    got, expected = result.reshape(-1), reference.reshape(-1)
    scale = max(_root_mean_square(expected, dtype), least) if DType(dtype).is_float else 0.0
    count, first = 0, -1
    for start in range(0, got.size, _CHUNK):
        a, b = got[start : start + _CHUNK], expected[start : start + _CHUNK]
        if np.array_equal(a, b):
            continue
        more = 0.0 if spread is None else spread.reshape(-1)[start : start + _CHUNK]
        wrong = _wrong(_numeric(a, dtype), _numeric(b, dtype), DType(dtype).is_float, limits, scale, more)
        here = int(np.count_nonzero(wrong))
        if here and first < 0:
            first = start + int(np.argmax(wrong))
        count += here
    if count == 0:
        return None
    where = [int(i) for i in np.unravel_index(first, result.shape)] if result.shape else [0]
    values = [_numeric(array[first : first + 1], dtype)[0] for array in (got, expected)]
    return f"{count} of {got.size} elements are wrong, first at {where}: {values[0]} in place of {values[1]}"


def _wrong(
    a: np.ndarray, b: np.ndarray, floating: bool, limits: tuple[float, float], scale: float, spread: Any
) -> np.ndarray:
    if not floating:
        return np.asarray(a != b)
    with np.errstate(all="ignore"):
        allowed = limits[0] * np.abs(b) + limits[1] * scale + spread
        return np.asarray(~(np.abs(a - b) <= allowed) & ~(a == b) & ~(np.isnan(a) & np.isnan(b)))


def _root_mean_square(array: np.ndarray, dtype: str) -> float:
    """Returns the root mean square of the finite elements."""
    total, count = 0.0, 0
    array = array.reshape(-1)
    for start in range(0, array.size, _CHUNK):
        piece = _numeric(array[start : start + _CHUNK], dtype)
        piece = piece[np.isfinite(piece)]
        total, count = total + float(np.dot(piece, piece)), count + piece.size
    return math.sqrt(total / count) if count else 0.0


def _numeric(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if DType(dtype).is_storage and DType(dtype).is_float:
        return float8_from_bits(array, dtype).astype(np.float64)
    return array.astype(np.float64) if DType(dtype).is_float else array


def _access_order(func: PrimFunc) -> tuple[set[Buffer], set[Buffer]]:
    """Returns the buffers written, and those of them read before anything writes them."""
    written = {node.buffer for node in pre_order(func.body) if isinstance(node, BufferStore)}
    seen: set[Buffer] = set()
    read_first: set[Buffer] = set()
    for node in pre_order(func.body):
        if isinstance(node, Block) and node.iter_vars:
            own = {region.buffer for region in node.writes} if node.init is not None else set()
            read_first.update(r.buffer for r in node.reads if r.buffer not in seen and r.buffer not in own)
            seen.update(region.buffer for region in node.writes)
    return written, read_first & written


def _index_limits(func: PrimFunc) -> dict[Buffer, int]:
    """Returns, for buffers whose values index other buffers, the smallest extent that they index."""
    limits: dict[Buffer, int] = {}
    loads = [node for node in pre_order(func.body) if isinstance(node, BufferLoad)]
    pairs = [pair for load in loads for pair in zip(load.indices, load.buffer.shape, strict=True)]
    for index, extent in pairs:
        for inner in pre_order(index):
            if isinstance(inner, BufferLoad) and isinstance(extent, IntImm):
                limits[inner.buffer] = min(extent.value, limits.get(inner.buffer, extent.value))
    return limits


def _guarded(buffer: Buffer) -> tuple[np.ndarray, np.ndarray]:
    """Returns bytes with guards at both ends, and the array between them, which begins where NumPy's begin."""
    packed = buffer.dtype.per_byte > 1
    extents = byte_shape(buffer.shape, buffer.dtype) if packed else buffer.shape
    shape = tuple(e.value for e in extents if isinstance(e, IntImm))
    dtype = np.dtype(np.uint8) if packed else to_numpy(buffer.dtype)
    size = math.prod(shape) if packed else array_bytes(shape, buffer.dtype.element)
    raw = np.empty(size + 2 * _GUARD + 64, np.uint8)
    start = _GUARD + (_PLACE - (raw.ctypes.data + _GUARD)) % 64
    raw = raw[start - _GUARD : start + size + _GUARD]
    raw[:_GUARD] = _GUARD_BYTE
    raw[_GUARD + size :] = _GUARD_BYTE
    return raw, raw[_GUARD : _GUARD + size].view(dtype).reshape(shape)


def _guards_intact(raw: np.ndarray) -> bool:
    return bool((raw[:_GUARD] == _GUARD_BYTE).all() and (raw[-_GUARD:] == _GUARD_BYTE).all())


def _fill(array: np.ndarray, buffer: Buffer, rng: np.random.Generator, fill: str, limit: int | None) -> None:
    kind = buffer.dtype.kind
    if buffer.dtype.is_float:
        data = rng.random(array.shape, np.float32)
        data = data * np.float32(0.9) + np.float32(0.1) if fill == "positive" else data * 2 - 1
        if fill in ("small", "dominant"):
            data = data / np.sqrt(np.float32(max(1, *array.shape, 1)))
        if fill == "dominant" and array.ndim >= 2 and array.shape[-1] == array.shape[-2]:
            data = data + 2 * np.eye(array.shape[-1], dtype=np.float32)
        if buffer.dtype.is_storage:
            array[...] = float8_to_bits(data, buffer.dtype.element)
        elif kind == "bfloat":
            array[...] = (np.asarray(data, order="C").view(np.uint32) >> 16).astype(np.uint16)
        else:
            array[...] = data
    elif kind == "bool":
        array[...] = rng.integers(0, 2, array.shape).astype(bool)
    elif buffer.dtype.is_storage:
        array[...] = rng.integers(0, 256, array.shape)
    elif limit is not None:
        array[...] = rng.integers(0, max(1, min(limit, np.iinfo(array.dtype).max)), array.shape)
    else:
        array[...] = rng.integers(0 if kind == "uint" else -8, 8, array.shape).astype(array.dtype)


def _poison(array: np.ndarray, dtype: str) -> None:
    if DType(dtype).kind == "float":
        array[...] = np.nan
    elif dtype == "bfloat16":
        array[...] = 0x7FC0
    elif DType(dtype).is_storage:
        array[...] = 0x7F
    elif dtype == "bool":
        array[...] = True
    else:
        array[...] = np.iinfo(array.dtype).max - 12


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
