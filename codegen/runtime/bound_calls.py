"""Functions with their arguments, which are called and timed without Python between the calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...pages.short_repr import short_repr
from .arguments import in_slots
from .timing import TimingResult, native_seconds, time_packed

if TYPE_CHECKING:
    from .module import Function


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
