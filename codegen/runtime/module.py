"""A Module holds compiled functions that NumPy arrays are passed to, and times them.

The runtime's ``tw_time`` calls the function and reads the clock in native code.

Modules of all kinds have functions by name, of which one is called when none is named.
"""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ...pages import card, table
from ...pages.messages import short_repr
from ...tir.expr import Var, array_bytes, to_numpy
from ...tir.walk import free_vars, pre_order, reads_memory
from ..backend.emitter import CACHE_LINE
from ..late_tables import BACKENDS
from ..llvm.jit import CompiledCode, JITError, Loaded, load
from ..lowered import FAILURES, LoweredFunc, Param
from .arguments import MOST_ARGUMENTS, Arguments, SizeError, c_types, in_slots
from .export import export_module
from .line_tables import with_line_tables
from .loader import runtime_symbols
from .native_glue import UNUSUAL, array_call, completed_call, glue_for


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


F = TypeVar("F")


class FunctionsByName(ABC, Generic[F]):
    """Functions by name. A call calls the only one, or the one named ``main``."""

    @property
    @abstractmethod
    def named(self) -> Mapping[str, Any]:
        """Return what functions are made of, by their names."""

    @abstractmethod
    def made(self, name: str) -> F:
        """Return the function of a name that is there."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)

    def __contains__(self, name: object) -> bool:
        return name in self.named

    def __getitem__(self, name: str) -> F:
        """Return a function. KeyError lists the available names."""
        if name not in self.named:
            raise KeyError(f"no function {name!r} in this module; there are {sorted(self.named)}")
        return self.made(name)

    @property
    def entries(self) -> list[str]:
        """Return the names that a call may mean."""
        return list(self.named)

    @property
    def entry_name(self) -> str:
        """Return the name of the only function, or ``main``. ValueError when there are several and none of that name."""
        names = self.entries
        if len(names) != 1 and "main" not in names:
            raise ValueError(f"this module has several functions, {sorted(names)}: pick one, module[name]")
        return names[0] if len(names) == 1 else "main"

    @property
    def entry(self) -> F:
        """Return the function :attr:`entry_name`."""
        return self[self.entry_name]

    def __call__(self, *args: Any, **named: Any) -> Any:
        function: Any = self.entry
        return function(*args, **named)


class Function:
    """A ``Function`` is one compiled function. Calling it takes the arguments of the PrimFunc in order, outputs included (NumPy arrays
    or anything with ``__dlpack__``; nothing is copied), and writes the outputs in place. Arguments may be given by name.
    Written arrays that are left out are made, filled with zeros before the call, and returned in the library of the
    first array: one as it is, several as a tuple.

    Raises :class:`ArgumentError` for arguments that do not fit, RuntimeError when an assertion in the program fails
    (:class:`SizeError`, which is both, for one about sizes).
    """

    def __init__(self, lowered: LoweredFunc, address: int, keep: Any) -> None:
        self.name = lowered.name
        self.params: tuple[Param, ...] = lowered.params
        self.address = address
        self._lowered = lowered
        self._keep = keep  # the code is unloaded when this is no longer referenced
        self._arguments = Arguments(self.name, self.params)
        self._arity = len(self._arguments.given)
        self._glue: Any = glue_for(self.params)
        direct = len(self.params) <= MOST_ARGUMENTS or self._glue is None
        self._raw: Callable[..., int] = (
            ctypes.CFUNCTYPE(ctypes.c_int32, *c_types(self.params))(address) if direct else self._through_slots
        )
        self._quick: Callable[..., int] = (self._glue and self._glue.call) or _never
        self._others: Callable[[Sequence[Any]], int] = array_call(self)

    def __repr__(self) -> str:
        return f"<compiled {self.signature}>"

    @property
    def signature(self) -> str:
        """Return the parameters as text: ``f(A: float32[4, 8], B: float32[4, 8] (written))``."""
        return self._arguments.signature()

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) < self._arity:
            return completed_call(self, args, named)
        code = UNUSUAL
        if len(args) == self._arity:
            try:
                if args and type(args[0]) is not np.ndarray:
                    code = self._others(args)
                else:
                    code = self._quick(self.address, *args)
            except (TypeError, ctypes.ArgumentError):  # a scalar that is not a number
                pass
        if code:
            if code == UNUSUAL:
                values, alive = self._arguments.prepare(args)
                code = self._raw(*values)
                del alive
            if code:
                raise self.failure(code, args)
        return None

    def tried(self) -> Callable[..., int]:
        """Return a function that calls this one where all arguments fit at once, and returns UNUSUAL without a call elsewhere.

        Else it returns 0, or the code of :meth:`failure`. Arrays are NumPy's.
        """
        return functools.partial(self._quick, self.address)

    def at_addresses(self, *values: int) -> None:
        """Call the function on the addresses of arrays, and sizes after them; nothing is checked."""
        code = self._raw(*values)
        if code:
            raise self.failure(code)

    def _through_slots(self, *values: int | float) -> int:
        slots = in_slots(self.address, self.params, values)
        packed = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._glue.packed_address)
        return int(packed(ctypes.addressof(slots)))

    def bind(self, *args: Any) -> BoundCall:
        """Check the arguments now, and return an object that calls the function on them repeatedly without checks."""
        return bind(self, args)

    def time_evaluator(
        self,
        repeat: int = 10,
        number: int = 1,
        min_repeat_ms: float = 0.0,
        *,
        cold: bool | int = False,
        warmup: int = 1,
    ) -> Callable[..., TimingResult]:
        """Return a function of the arguments that times calls of this one, in native code.

        ``repeat`` results, each the mean over ``number`` calls; ``number`` grows until a result takes
        ``min_repeat_ms``. ``cold`` fills the caches with other data before each call (True: the last level's size, at
        most 256 MiB; or a number of bytes). Every call writes the outputs.
        """

        return time_evaluator(self, repeat, number, min_repeat_ms, cold=cold, warmup=warmup)

    def failure(self, code: int, args: Sequence[Any] = ()) -> RuntimeError:
        """Returns the error of a call that returned ``code``. Where the function asserts something of sizes, it tells
        those of ``args``."""
        if code in FAILURES:
            return RuntimeError(f"{self.name}: {FAILURES[code]}")
        assertions = self._lowered.assertions()
        if not 0 < code <= len(assertions):
            return RuntimeError(f"{self.name} failed with code {code}")
        failed = assertions[code - 1]
        free = free_vars(failed.condition)
        told = self._arguments.told_sizes(args)
        if not free or reads_memory(failed.condition):
            return RuntimeError(f"{self.name}: {failed.message}")
        if not free <= {p.var for p in self.params}:  # what a kernel returned
            values = "; ".join([text for v, text in told.items() if isinstance(v, Var)])
            return RuntimeError(f"{self.name}: {failed.message}{f' ({values})' if values else ''}")
        variables = dict.fromkeys([n for n in pre_order(failed.condition) if isinstance(n, Var)])
        values = "; ".join([told[v] for v in variables if v in told])
        return SizeError(f"{self.name}: {failed.message}{f' ({values})' if values else ''}")


class Module:
    """A ``Module`` is the result of :func:`tilewright.codegen.compile`: functions by name, their sources, and export.

    Calling a module of one function calls that function; of several, the one named ``main``. The machine code is loaded
    at the first call, so that a module for another machine can be inspected and exported.
    """

    def __init__(
        self,
        functions: Mapping[str, LoweredFunc],
        code: CompiledCode,
        packing: Mapping[str, Mapping[int, str]] | None = None,
    ) -> None:
        """Keep the functions and what packs their parameters. ``packing`` has, for each function and each parameter
        that may be packed ahead, the function that packs it, or an empty name where the parameter is used as it is."""
        self._lowered = dict(functions)
        self._packing = {name: dict(steps) for name, steps in (packing or {}).items()}
        self.code = code
        self.target = code.target
        self.origin = ""  # the origin of the schedule as text, when it is known
        self.plan: Any = None  # how it was scheduled, when the driver built it; ``plan.shown`` shows it in notebooks
        self._functions: dict[str, Function] = {}
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Module {', '.join(self._lowered)} for {self.target}{f'; {self.origin}' if self.origin else ''}>"

    def _repr_html_(self) -> str:
        calls = table(("call",), [(self[name].signature,) for name in self])
        if self.plan is not None:
            return str(self.plan.shown(calls))

        return card(", ".join(self), calls, note=f"for {self.target}. {self.origin}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._lowered)

    def __len__(self) -> int:
        return len(self._lowered)

    def __contains__(self, name: object) -> bool:
        return name in self._lowered or any(one.name == name for one in self._lowered.values())

    def __getitem__(self, name: str) -> Function:
        """Return the function of that name in the module, or of that C symbol. KeyError lists the available names."""
        if name not in self._lowered:
            name = next((key for key, one in self._lowered.items() if one.name == name), name)
        found = self._functions.get(name)
        if found is not None:
            return found
        if name not in self._lowered:
            raise KeyError(f"no function {name!r} in this module; there are {sorted(self._lowered)}")
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            lowered = self._lowered[name]
            function = Function(lowered, self._loaded.address(lowered.name), self._loaded)
            self._functions[name] = function
            return function

    get_function = __getitem__

    @property
    def entry(self) -> Function:
        """Returns the only function, without those that pack its parameters, or of several functions ``main``. ValueError when
        there is none of that name."""
        return self[self._main()]

    @property
    def entry_name(self) -> str:
        """Returns the name of :attr:`entry`."""
        return self._main()

    def _main(self) -> str:
        steps = {step for packs in self._packing.values() for step in packs.values()}
        names = [name for name in self._lowered if name not in steps]
        if len(names) != 1 and "main" in names:
            return "main"
        if len(names) != 1:
            raise ValueError(f"this module has several functions, {sorted(names)}: pick one, module[name]")
        return names[0]

    def pack_weights(self, *weights: Any, function: str | None = None) -> Any:
        """Return the layout-free parameters of a function in the layout that it takes, to be passed in their place.

        ``weights``: the arrays, in the order of the parameters that the attribute ``layout_free_buffers`` names.
        Returns a new array for one, a tuple for several; where the schedule packs nothing ahead, the array itself.
        ValueError for another number of arrays, and for a function without such parameters.
        """
        return pack_weights(self, weights, self._main() if function is None else function)

    def packed_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments of the only function with its layout-free parameters packed."""
        return packed_arguments(self, arguments)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.entry(*args, **named)

    def bind(self, *args: Any) -> BoundCall:
        """Return :meth:`Function.bind` of the only function."""
        return self.entry.bind(*args)

    def time_evaluator(
        self,
        func_name: str | None = None,
        dev: object = None,
        *,
        repeat: int = 10,
        number: int = 1,
        min_repeat_ms: float = 0.0,
        cold: bool | int = False,
        warmup: int = 1,
    ) -> Callable[..., TimingResult]:
        """Return :meth:`Function.time_evaluator` of the function named, or of the only one. ``dev`` is there for TVM's
        sake."""
        function = self.entry if func_name is None else self[func_name]
        return function.time_evaluator(repeat, number, min_repeat_ms, cold=cold, warmup=warmup)

    def get_source(self, fmt: str = "ll") -> str:
        """Return the program as text, at a stage or in the words of a back end. That is ``tir`` or ``scheduled``
        (before lowering), ``lowered``, ``ir`` (LLVM IR as emitted), ``ll`` (after LLVM's passes), ``asm``, portable
        ``c``, or the name of another back end of the table. ValueError for another word."""
        return source_of(self, fmt)

    def export(self, path: str | Path, *, debug_info: bool = False, version: str | None = None) -> list[Path]:
        """Write the module to a file, by its suffix: ``.o``, ``.so``, ``.ll``, ``.s``, ``.c``. Headers for C
        and C++ lie beside code. Back ends of the table have suffixes of their own. ``version`` is that of a shared library, which its
        packages for pkg-config and CMake tell; without one they tell Tilewright's.

        With ``debug_info`` the code has line tables, and the lowered program to which they refer is written beside it as
        ``.tir``: ``objdump -dlS``, gdb and perf then show the program's lines. The machine code is the same.
        Returns the files written. See :mod:`tilewright.codegen.runtime.export`."""
        steps = {step for packs in self._packing.values() for step in packs.values() if step}
        packing = [self._lowered[step].name for step in steps]
        return export_module(list(self._lowered.values()), self.code, Path(path), debug_info, packing, version)

    export_library = save = export  # TVM's names

    def with_line_tables(self) -> tuple[CompiledCode, str]:
        """Return the code with line tables, and the lowered programs as the text to whose lines they refer."""
        return with_line_tables(list(self._lowered.values()), self.code, Path("program.tir"))

    def _load(self) -> Loaded:
        missing = self.target.missing_here()
        if missing:
            raise JITError(
                f"this module is for {self.target}, which this machine cannot run (it lacks {', '.join(missing)}); "
                "export it, or build for another target"
            )
        return load(self.code.object, [f.name for f in self._lowered.values()], runtime_symbols(self.target))


def _never(*_: Any) -> int:
    return UNUSUAL


# Gives the source of a module as text, at each stage and in each back end's words.

SOURCES = ("tir", "scheduled", "lowered", "ll", "ir", "asm")


def source_of(module: Module, fmt: str) -> str:
    """Returns the program as text: see :meth:`.module.Module.get_source`."""
    functions = list(module._lowered.values())
    if fmt in ("tir", "scheduled"):
        return "\n".join((f.scheduled or f.func).script() for f in functions)
    if fmt == "lowered":
        return "\n".join(f.script() for f in functions)
    if fmt == "ir":
        return module.code.ir
    if fmt == "ll":
        return module.code.optimized_ll()
    if fmt in ("asm", "s"):
        return module.code.asm()
    backend = BACKENDS.find(fmt)
    if backend is not None:
        return backend.emit(functions)
    raise ValueError(f"no source {fmt!r}; there are {', '.join((*SOURCES, *BACKENDS))}")


# Packs the layout-free parameters of compiled functions ahead of calls.


def pack_weights(module: Module, weights: Sequence[Any], name: str) -> Any:
    """Returns the weights of the function ``name`` in the layout that it takes: see :meth:`.module.Module.pack_weights`."""
    steps = module._packing.get(name, {})
    if not steps:
        raise ValueError(f"{name} has no layout-free parameters; its PrimFunc's layout_free_buffers would name them")
    if len(weights) != len(steps):
        own = module._lowered[name].params
        which = ", ".join(
            module._lowered[step].params[0].name if step else own[n].name for n, step in sorted(steps.items())
        )
        raise ValueError(f"{name} packs {len(steps)} arrays ({which}), not {len(weights)}")
    packed = [_packed(module, steps[n], w) for n, w in zip(sorted(steps), weights, strict=True)]
    return packed[0] if len(packed) == 1 else tuple(packed)


def _packed(module: Module, step: str, weight: Any) -> Any:
    if not step:
        return weight
    made = module._lowered[step].params[1].buffer
    assert made is not None
    shape = [int(e) for e in made.shape]  # type: ignore[call-overload]
    size = array_bytes(shape, made.dtype.element)
    room = np.zeros(size + CACHE_LINE, np.uint8)  # panels that begin at a cache line need no reads across lines
    out = room[-room.ctypes.data % CACHE_LINE :][:size].view(to_numpy(made.dtype)).reshape(shape)
    module[step](weight, out)
    return out


def packed_arguments(module: Module, arguments: Sequence[Any]) -> list[Any]:
    """Returns the arguments of the only function with its layout-free parameters packed."""
    steps = module._packing.get(module._main(), {})
    return [_packed(module, steps[n], a) if n in steps else a for n, a in enumerate(arguments)]
