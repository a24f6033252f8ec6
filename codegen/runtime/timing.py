"""Times calls without Python in the loop, and binds functions to their arguments for such calls.

The runtime's ``tw_time`` calls the function and reads the clock in native code.
"""

from __future__ import annotations

import ctypes
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...pages.short_repr import short_repr
from .arguments import in_slots
from .loader import runtime_symbols

if TYPE_CHECKING:
    from .module import Function


@dataclass(frozen=True, slots=True)
class TimingResult:
    """A timing result has the seconds per call. Each of ``results`` is the mean over ``number`` consecutive calls."""

    results: tuple[float, ...]
    number: int
    unit: str = field(default="s", repr=False)

    @property
    def mean(self) -> float:
        """Returns the mean in seconds."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """Returns the median in seconds."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """Returns the least time in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """Returns the greatest time in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Returns the standard deviation in seconds; 0 for a single result."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        scale, unit = (1e6, "us") if self.median < 1e-3 else (1e3, "ms")
        return (
            f"median {self.median * scale:.3f} {unit}, min {self.min * scale:.3f}, mean {self.mean * scale:.3f}, "
            f"max {self.max * scale:.3f} ({len(self.results)} x {self.number})"
        )


def native_seconds(packed_address: int, slots: Any, number: int) -> float:
    """Return the seconds of ``number`` calls of ``tw_packed(slots)``, between two readings of the clock."""
    return float(_tw_time()(packed_address, ctypes.addressof(slots), number)) * 1e-9


@lru_cache(maxsize=1)
def _tw_time() -> Any:
    loop = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return loop(runtime_symbols()["tw_time"])


def time_packed(
    packed_address: int,
    slots: Any,
    *,
    repeat: int,
    number: int,
    min_repeat_ms: float,
    warmup: int,
    cold_bytes: int,
) -> TimingResult:
    """Time ``tw_packed(slots)``: ``repeat`` results of ``number`` calls each, after ``warmup`` untimed calls.

    ``number`` grows until one result takes ``min_repeat_ms``. With ``cold_bytes`` the caches are filled with other data
    before each call (which is not timed), so that each timed unit is a single call even for a small ``number``.
    """
    if repeat < 1 or number < 1:
        raise ValueError(f"repeat = {repeat}, number = {number}: both must be at least 1")
    cold = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
    )(runtime_symbols()["tw_time_cold"])
    flush = np.zeros(max(cold_bytes, 1), np.uint8)
    where = ctypes.addressof(slots)

    def run(count: int) -> float:
        if cold_bytes:
            return float(cold(packed_address, where, count, flush.ctypes.data, cold_bytes)) * 1e-9
        return native_seconds(packed_address, slots, count)

    if warmup:
        run(warmup)
    if min_repeat_ms > 0:
        goal = min_repeat_ms * 1e-3
        while (taken := run(number)) < goal:
            number = max(number + 1, min(number * 10, math.ceil(1.1 * number * goal / max(taken, 1e-9))))
    return TimingResult(tuple([run(number) / number for _ in range(repeat)]), number)


# Functions with their arguments, which are called and timed without Python between the calls.


class BoundCall:
    """A ``BoundCall`` is a function with its arguments: calling it costs one foreign call. It keeps function and arrays alive."""

    __slots__ = ("_alive", "_call", "_function", "_where", "slots")

    __repr__ = short_repr("_function")

    def __init__(self, function: Function, slots: Any, alive: Any) -> None:
        self._function, self.slots, self._alive = function, slots, alive
        self._where = ctypes.c_void_p(ctypes.addressof(slots))
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(function._glue.packed_address)

    def __call__(self) -> None:
        code = self._call(self._where)
        if code:
            raise self._function.failure(code)

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, made by a loop in native code; outputs are written."""
        return native_seconds(self._function._glue.packed_address, self.slots, number)


def bind(function: Function, args: Sequence[Any]) -> BoundCall:
    """Returns a function with checked arguments."""
    values, alive = function._arguments.prepare(args)
    slots = in_slots(function.address, function.params, values)
    return BoundCall(function, slots, alive)


def time_evaluator(
    function: Function, repeat: int, number: int, min_repeat_ms: float, *, cold: bool | int, warmup: int
) -> Callable[..., TimingResult]:
    """Returns a function of the arguments that times calls: see :meth:`.module.Function.time_evaluator`."""

    def evaluate(*args: Any) -> TimingResult:
        bound = function.bind(*args)
        bound()  # a failed assertion raises an error here, it does not count as a fast run
        caches = function._lowered.target.caches
        flush = min(max(caches.l3, 2 * caches.l2), 256 << 20) if cold is True else int(cold)
        return time_packed(
            function._glue.packed_address,
            bound.slots,
            repeat=repeat,
            number=number,
            min_repeat_ms=min_repeat_ms,
            warmup=warmup,
            cold_bytes=flush,
        )

    return evaluate
