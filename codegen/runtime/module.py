"""Compiled code as Python objects: a :class:`Module` of callable :class:`Function` objects."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...tir.expr import to_numpy
from ...tir.stmt import AssertStmt
from ...tir.walk import pre_order
from ..backend.registry import BACKENDS
from ..backend.storage import CACHE_LINE
from ..llvm.emit import NO_TILES
from ..llvm.jit import CompiledCode, JITError, Loaded, load
from ..llvm.llvm_stmt import OUT_OF_MEMORY
from ..lowered import LoweredFunc, Param
from ..machine.target_kinds import load_installed
from .arguments import Arguments, c_types
from .array_libraries import TensorCalls, as_numpy, new_arrays, returned, static_shape
from .export import export_module
from .line_tables import with_line_tables
from .loader import runtime_symbols
from .native_glue import UNUSUAL, glue_for
from .timing import TimingResult, native_seconds, time_packed

SOURCES = ("tir", "scheduled", "lowered", "ll", "ir", "asm")


class Function:
    """A ``Function`` is one compiled function. Calling it takes the arguments of the PrimFunc in order, outputs included (NumPy arrays
    or anything with ``__dlpack__``; nothing is copied), and writes the outputs in place. Arguments may be given by name.
    Written arrays that are left out are made, filled with zeros before the call, and returned in the library of the
    first array: one as it is, several as a tuple.

    Raises :class:`ArgumentError` for arguments that do not fit, RuntimeError when an assertion in the program fails.
    """

    def __init__(self, lowered: LoweredFunc, address: int, keep: Any) -> None:
        self.name = lowered.name
        self.params: tuple[Param, ...] = lowered.params
        self.address = address
        self._lowered = lowered
        self._keep = keep  # the code is unloaded when this is no longer referenced
        self._arguments = Arguments(self.name, self.params)
        self._glue = glue_for(self.params)
        self._arity = len(self._arguments.given)
        self._tensors = TensorCalls(self._arguments.given)
        self._raw = ctypes.CFUNCTYPE(ctypes.c_int32, *c_types(self.params))(address)
        self._quick: Callable[..., int] = self._glue.call or _never

    def __repr__(self) -> str:
        return f"<compiled {self.signature}>"

    @property
    def signature(self) -> str:
        """Return the parameters as text: ``f(A: float32[4, 8], B: float32[4, 8] (written))``."""
        return self._arguments.signature()

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) < self._arity:
            return self._completed(args, named)
        code = UNUSUAL
        if len(args) == self._arity:
            try:
                if args and type(args[0]) is not np.ndarray:
                    code = self._of_others(args)
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
                raise RuntimeError(self._message(code))
        return None

    def at_addresses(self, *values: int) -> None:
        """Call the function on the addresses of arrays, and sizes after them; nothing is checked."""
        code = self._raw(*values)
        if code:
            raise RuntimeError(self._message(code))

    def _of_others(self, args: Sequence[Any]) -> int:
        """Call the function on arrays of another library; UNUSUAL where the careful path has to decide."""
        addresses = self._tensors.addresses(args)
        if addresses is not None:
            return int(self._raw(*addresses))
        arrays = as_numpy(args)
        return UNUSUAL if arrays is None else self._quick(self.address, *arrays)

    def _completed(self, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call the function with new arrays for those that are left out, and return them in the first argument's library."""
        missing = self._arguments.given[len(args) :]
        if not named and all(p.writes and static_shape(p) is not None for p in missing):
            fresh = new_arrays(missing, args)
            self(*args, *fresh)
        else:
            complete, fresh = self._arguments.completed(args, named)
            self(*complete)
        if not fresh:
            return None
        out = returned(fresh, [*args, *named.values()])
        return out[0] if len(out) == 1 else tuple(out)

    def bind(self, *args: Any) -> BoundCall:
        """Check the arguments now, and return an object that calls the function on them repeatedly without checks."""
        values, alive = self._arguments.prepare(args)
        return BoundCall(self, self._slots(values), alive)

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

        def evaluate(*args: Any) -> TimingResult:
            bound = self.bind(*args)
            bound()  # a failed assertion raises an error here, it does not count as a fast run
            caches = self._lowered.target.caches
            flush = min(max(caches.l3, 2 * caches.l2), 256 << 20) if cold is True else int(cold)
            return time_packed(
                self._glue.packed_address,
                bound.slots,
                repeat=repeat,
                number=number,
                min_repeat_ms=min_repeat_ms,
                warmup=warmup,
                cold_bytes=flush,
            )

        return evaluate

    def _slots(self, values: Sequence[int | float]) -> Any:
        slots = (ctypes.c_int64 * (len(values) + 1))()
        start = ctypes.addressof(slots)
        slots[0] = self.address
        for i, (ctype, value) in enumerate(zip(c_types(self.params), values, strict=True)):
            ctype.from_address(start + 8 * (i + 1)).value = value
        return slots

    def _message(self, code: int) -> str:
        if code == OUT_OF_MEMORY:
            return f"{self.name}: no memory for its scratch buffers"
        if code == NO_TILES:
            return (
                f"{self.name}: the operating system does not let this process use AMX's tile registers "
                "(arch_prctl refused); build for a target with -mattr=-amx-tile"
            )
        assertions = {id(n): n for n in pre_order(self._lowered.func.body) if isinstance(n, AssertStmt)}
        messages = [n.message for n in assertions.values()]
        if 0 < code <= len(messages):
            return f"{self.name}: {messages[code - 1]}"
        return f"{self.name} failed with code {code}"


class BoundCall:
    """A ``BoundCall`` is a function with its arguments: calling it costs one foreign call. It keeps function and arrays alive."""

    __slots__ = ("_alive", "_call", "_function", "_where", "slots")

    def __init__(self, function: Function, slots: Any, alive: Any) -> None:
        self._function, self.slots, self._alive = function, slots, alive
        self._where = ctypes.c_void_p(ctypes.addressof(slots))
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(function._glue.packed_address)

    def __call__(self) -> None:
        code = self._call(self._where)
        if code:
            raise RuntimeError(self._function._message(code))

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, made by a loop in native code; outputs are written."""
        return native_seconds(self._function._glue.packed_address, self.slots, number)


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
        """``packing``: for each function and each parameter that may be packed ahead, the function that packs it, or an
        empty name where the parameter is used as it is."""
        self._lowered = dict(functions)
        self._packing = {name: dict(steps) for name, steps in (packing or {}).items()}
        self.code = code
        self.target = code.target
        self.origin = ""  # the origin of the schedule as text, when it is known
        self.plan: Any = None  # how it was scheduled, when the driver built it
        self._functions: dict[str, Function] = {}
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Module {', '.join(self._lowered)} for {self.target}{f'; {self.origin}' if self.origin else ''}>"

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
        name = self._main() if function is None else function
        steps = self._packing.get(name, {})
        if not steps:
            raise ValueError(
                f"{name} has no layout-free parameters; its PrimFunc's layout_free_buffers would name them"
            )
        if len(weights) != len(steps):
            own = self._lowered[name].params
            which = ", ".join(
                self._lowered[step].params[0].name if step else own[n].name for n, step in sorted(steps.items())
            )
            raise ValueError(f"{name} packs {len(steps)} arrays ({which}), not {len(weights)}")
        packed = [self._packed(steps[n], w) for n, w in zip(sorted(steps), weights, strict=True)]
        return packed[0] if len(packed) == 1 else tuple(packed)

    def _packed(self, step: str, weight: Any) -> Any:
        if not step:
            return weight
        made = self._lowered[step].params[1].buffer
        assert made is not None
        shape, dtype = [int(e) for e in made.shape], to_numpy(made.dtype)  # type: ignore[call-overload]
        size = math.prod(shape) * dtype.itemsize
        room = np.zeros(size + CACHE_LINE, np.uint8)  # panels that begin at a cache line need no reads across lines
        out = room[-room.ctypes.data % CACHE_LINE :][:size].view(dtype).reshape(shape)
        self[step](weight, out)
        return out

    def packed_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments of the only function with its layout-free parameters packed."""
        steps = self._packing.get(self._main(), {})
        return [self._packed(steps[n], a) if n in steps else a for n, a in enumerate(arguments)]

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
        """Return the program as text: ``tir`` or ``scheduled`` (before lowering), ``lowered``, ``ir`` (LLVM IR as
        emitted), ``ll`` (after LLVM's passes), ``asm``, portable ``c``, or the name of another back end of the table.
        ValueError for another word."""
        if fmt in ("tir", "scheduled"):
            return "\n".join((f.scheduled or f.func).script() for f in self._lowered.values())
        if fmt == "lowered":
            return "\n".join(f.script() for f in self._lowered.values())
        if fmt == "ir":
            return self.code.ir
        if fmt == "ll":
            return self.code.optimized_ll()
        if fmt in ("asm", "s"):
            return self.code.asm()
        if fmt not in BACKENDS:
            load_installed()
        if fmt in BACKENDS:
            return BACKENDS[fmt].emit(list(self._lowered.values()))
        raise ValueError(f"no source {fmt!r}; there are {', '.join((*SOURCES, *BACKENDS))}")

    def export(self, path: str | Path, *, debug_info: bool = False) -> list[Path]:
        """Write the module to a file, by its suffix: ``.o``, ``.so``, ``.ll``, ``.s``, ``.c``; beside code a C header.
        Back ends of the table have suffixes of their own.

        With ``debug_info`` the code has line tables, and the lowered program to which they refer is written beside it as
        ``.tir``: ``objdump -dlS``, gdb and perf then show the program's lines. The machine code is the same.
        Returns the files written. See :mod:`tilewright.codegen.runtime.export`."""
        return export_module(list(self._lowered.values()), self.code, Path(path), debug_info)

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
        return load(self.code.object, [f.name for f in self._lowered.values()], runtime_symbols())


def _never(*_: Any) -> int:
    return UNUSUAL
