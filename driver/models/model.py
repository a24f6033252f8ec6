"""A model that is compiled: it is called with arrays, timed kernel by kernel, and exported as a library.

A :class:`Profile` sums up the times of the kernels, and says what share of the machine's limits they reach.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen import ExportError, LoweredFunc, Target, TargetError, lower
from ...codegen.backend.emitter import EmitError
from ...codegen.llvm.emit import emit
from ...codegen.llvm.jit import JITError, Loaded, load, optimize_and_compile
from ...codegen.lowered import Param
from ...codegen.packing import split_packing
from ...codegen.runtime.arguments import ArgumentError, SizeError, aligned_array, aligned_bytes, check_not_negative
from ...codegen.runtime.export import Entry, LinkedLibrary, ModelSource, entry_ir, export_library, write_model_source
from ...codegen.runtime.line_tables import modules_with_lines
from ...codegen.runtime.loader import runtime_symbols
from ...codegen.runtime.module import Function
from ...codegen.runtime.native_glue import returned
from ...graph.graph import Value
from ...graph.kernels import Kernel
from ...graph.value_dependent import OpenInput
from ...pages.messages import short_repr
from ...pages.written_files import write_file
from ...te.tensor import Requirement
from ...tir.analysis.known_ranges import asserted_sizes, evaluate
from ...tir.cost import count_bytes, count_flops
from ...tir.expr import Var, to_numpy
from ...tir.expr.dtype import kept_as_bits
from ...tir.parser import parse
from ...tir.stmt import PrimFunc
from ..building import BuildError
from ..machine_report import MachineReport, bound_for, known_report
from .kernel_building import BuiltKernel


@dataclass(frozen=True)
class KernelRow:
    """One call of a kernel, or several calls of one kernel together: ``seconds`` of all ``calls``.

    ``flops`` and ``share`` (of the least time that the machine allows) are None when they are not known.
    """

    name: str
    symbol: str
    seconds: float
    kind: str
    origin: str
    func: PrimFunc = field(repr=False)
    calls: int = 1
    flops: float | None = None
    share: float | None = None

    @property
    def gflops(self) -> float | None:
        """Returns billions of operations per second."""
        return self.calls * self.flops / self.seconds / 1e9 if self.flops and self.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {
            "name": self.name, "symbol": self.symbol, "calls": self.calls, "seconds": self.seconds,
            "gflops": self.gflops, "share_of_roofline": self.share, "kind": self.kind, "origin": self.origin,
        }  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """The kernels of a model, those that take longest first. ``str(profile)`` is a table."""

    model: str
    rows: Sequence[KernelRow]

    __repr__ = short_repr("model", "seconds", "rows")

    @property
    def seconds(self) -> float:
        """Returns the time of all kernels together."""
        return sum(row.seconds for row in self.rows)

    def __str__(self) -> str:
        head = f"{'kernel':48} {'calls':>5} {'µs':>10} {'%':>5} {'GFLOP/s':>8} {'roofline':>8}  schedule"
        whole = self.seconds or 1.0
        lines = []
        for row in self.rows:
            gflops = "–" if row.gflops is None else f"{row.gflops:.1f}"
            share = "–" if row.share is None else f"{row.share:.0%}"
            part = f"{100 * row.seconds / whole:.1f}"
            lines.append(
                f"{row.name:48} {row.calls:5} {row.seconds * 1e6:10.1f} {part:>5} {gflops:>8} {share:>8}  {row.origin}"
            )
        total = f"{self.model}: {sum(row.calls for row in self.rows)} calls of kernels, {self.seconds * 1e6:.1f} µs"
        return "\n".join([head, *lines, total])


def profile_of(name: str, rows: Sequence[KernelRow], target: Target) -> Profile:
    """Returns the profile of a run: calls of one kernel together, with shares where the machine was measured."""
    groups: dict[str, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.symbol, []).append(row)
    report = known_report(target)
    out = [_together(group, report, target) for group in groups.values()]
    return Profile(name, sorted(out, key=lambda row: -row.seconds))


def _together(group: Sequence[KernelRow], report: MachineReport | None, target: Target) -> KernelRow:
    first = group[0]
    seconds = sum(row.seconds for row in group)
    flops = count_flops(first.func)
    bound = None
    if report is not None and count_bytes(first.func) is not None:
        bound = bound_for(report, first.func, target).seconds
    calls = sum(row.calls for row in group)
    share = calls * bound / seconds if bound and seconds else None
    return KernelRow(first.name, first.symbol, seconds, first.kind, first.origin, first.func, calls, flops, share)


CLOCK = "tw_now"
"""The runtime's function that tells the time, in nanoseconds."""


@dataclass(frozen=True)
class Version:
    """A compiled kernel, and the largest symbolic sizes that it is for."""

    up_to: Mapping[Var, int]
    built: BuiltKernel


@dataclass(frozen=True)
class Step:
    """A place where a kernel is called: its name in the graph, and what was built for it. It also has the first kernel
    equal to it, and how often one run calls it there. Symbolic sizes are built for up to several ends, those of smaller
    sizes first."""

    name: str
    kernel: Kernel
    versions: Sequence[Version]
    calls: int = 1

    @property
    def built(self) -> BuiltKernel:
        """Returns what was built, for the largest sizes where there are several."""
        return self.versions[-1].built

    def at(self, sizes: Mapping[Var, int]) -> BuiltKernel:
        """Returns what runs for these sizes."""
        fits = (v.built for v in self.versions if all(sizes.get(var, 1) <= end for var, end in v.up_to.items()))
        return next(fits, self.built)

    @property
    def origin(self) -> str:
        """Returns where the schedules come from, with the sizes where there are several."""
        if len(self.versions) == 1:
            return self.built.origin
        ends = [", ".join([f"{var.name} <= {end}" for var, end in v.up_to.items()]) for v in self.versions]
        return "; ".join([f"{end}: {v.built.origin}" for end, v in zip(ends, self.versions, strict=True)])

    @property
    def func(self) -> PrimFunc:
        """Returns the kernel's function before scheduling."""
        return self.kernel.func


@dataclass(frozen=True)
class Parts:
    """The parts of a compiled model: its inputs and outputs, the calls in order, and what makes them. That is the
    function that makes the calls (and the one that notes the time after each), the size of the workspace, and the bytes
    of the constants. ``held``: the graph's, types of ``ml_dtypes`` by the names of inputs and outputs; so are ``lists``, how many outputs make up each result. ``computed``: the sizes that a call computes. ``written``: the arrays that
    the function writes, with room for the largest ones: outputs, and then the computed sizes."""

    name: str
    target: Target
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    steps: Sequence[Step]
    entry: PrimFunc
    timed_entry: PrimFunc
    workspace: int
    constants: Any
    held: Mapping[str, str] = field(default_factory=dict)
    lists: tuple[int | None, ...] = ()
    computed: tuple[Var, ...] = ()
    written: Sequence[Value] = ()


class Model:
    """A ``Model`` is a compiled graph. Calling it takes the inputs, in order or by name, and returns the outputs in the
    library of the first input: an array, or a tuple where there are several. Outputs of bfloat16 and float8 are the bits
    as uint16 and uint8 in NumPy, and of the types of ``ml_dtypes`` where an input is of such a type.

    ``out=``: the arrays to write instead of new ones. Several threads may call it at the same time.
    """

    def __init__(self, parts: Parts) -> None:
        self.name, self.target = parts.name, parts.target
        self.inputs, self.outputs = tuple(parts.inputs), tuple(parts.outputs)
        self.steps = tuple(parts.steps)
        self.origins = {step.name: step.origin for step in reversed(self.steps)}
        self._parts, self._held, self._lists = parts, parts.held, parts.lists
        self._lowered = self._lowered_calls(parts.entry, f"tw_{parts.name}_calls")
        self._computed, self._written = parts.computed, tuple(parts.written or parts.outputs)
        count = len(self.inputs) + len(self._written)
        params = self._lowered.params
        self._entry = self._entry_of(self.name, (*params[:count], *params[count + 2 :]))
        self._loaded: Loaded | None = None
        self._run: Callable[..., None] = self._load_and_run
        self._names = [v.name for v in self.inputs]
        self._has_bits = any(kept_as_bits(v.dtype) for v in self.outputs)
        self._shapes = OutputShapes(self.name, self.inputs, self._written, [*asserted_sizes(parts.entry)])
        self._static_bytes = self._checked_source() if self.target.is_c_only else None

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, self.inputs))
        outputs = ", ".join([v.type_text for v in self.outputs])
        return f"<Model {self.name}({inputs}) -> {outputs}: {self.origin} for {self.target}>"

    @property
    def origin(self) -> str:
        """Returns how many kernels there are, and where the schedules of the distinct ones come from."""
        found = [built.kind for built in self._distinct()]
        told = ", ".join([f"{found.count(kind)} {kind}" for kind in ("tuned", "default", "given") if kind in found])
        return f"{len(self.steps)} kernels ({told})"

    @property
    def symbol(self) -> str:
        """Returns the C symbol that the exported function has unless it is given another."""
        return self.name if self.name != "main" else "model"

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        if named or len(inputs) != len(self.inputs):
            if not inputs and [*named] == self._names:
                inputs = tuple(named.values())
            else:
                inputs = inputs_in_order(self.name, self.inputs, inputs, named)
        if (self._held or self._lists) and out is None:
            return self._called_with_other_types(inputs)
        if out is not None:
            self._require_known_sizes()
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            if len(outs) != len(self.outputs):
                raise ArgumentError(f"{self.name} has {len(self.outputs)} outputs; out= has {len(outs)} arrays")
        else:
            outs = [aligned_array(shape, dtype) for shape, dtype in self._shapes.of(inputs)]
        self._run(*inputs, *outs)
        outs = self._cut_off(inputs, outs) if self._computed else outs
        if out is None and inputs and (self._has_bits or type(inputs[0]) is not np.ndarray):
            outs = returned(outs, inputs, [v.dtype for v in self.outputs])
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _called_with_other_types(self, inputs: tuple[Any, ...]) -> Any:
        """Returns the results where some have types that kernels do not have: of ``ml_dtypes``, or lists.

        Outputs have those of ``ml_dtypes`` where an input has one of them.
        """
        taken = [held_numbers(x, self._held.get(v.name)) for v, x in zip(self.inputs, inputs, strict=True)]
        typed = any(a is not b for a, b in zip(taken, inputs, strict=True))
        outs = [aligned_array(shape, dtype) for shape, dtype in self._shapes.of(taken)]
        self._run(*taken, *outs)
        outs = self._cut_off(taken, outs) if self._computed else outs
        outs = returned(outs, inputs, [v.dtype for v in self.outputs])
        if typed:
            outs = [with_held_type(a, self._held.get(v.name)) for v, a in zip(self.outputs, outs, strict=True)]
        made = iter(outs)
        results: list[Any] = [] if self._lists else [*outs]
        for count in self._lists:
            results.append(next(made) if count is None else [next(made) for _ in range(count)] if count >= 0 else None)
        return results[0] if len(results) == 1 else tuple(results)

    def _require_known_sizes(self) -> None:
        if self._computed:
            names = ", ".join([size.name for size in self._computed])
            raise ArgumentError(
                f"{self.name} computes sizes of its outputs ({names}), so out= has no arrays of their shapes; leave it out"
            )

    def _cut_off(self, inputs: Sequence[Any], written: Sequence[Any]) -> list[Any]:
        """Returns the outputs without the room that the sizes that were computed leave."""
        numbers = written[len(self.outputs) :]
        sizes = self._shapes.sizes(inputs) | {v: int(n) for v, n in zip(self._computed, numbers, strict=True)}
        outs = []
        for v, array in zip(self.outputs, written, strict=False):
            shape = [d if isinstance(d, int) else evaluate(d, sizes) for d in v.shape]
            known = [e for e in shape if e is not None]
            assert len(known) == len(shape), f"the size of {v.name} is not known"
            used = math.prod(known)
            outs.append((array if used == array.size else array.reshape(-1)[:used].copy()).reshape(known))
        return outs

    @property
    def address_call(self) -> Callable[..., None]:
        """Returns a function of the addresses of inputs and outputs (and of symbolic sizes after them) that checks nothing.
        The caller sees to it that they are arrays of the model's types, in row-major order, that do not overlap."""
        if self._loaded is None:
            self._load()
        return self._function.at_addresses

    def sizes_of(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """Returns the symbolic sizes that :attr:`address_call` takes after the addresses of such inputs and outputs.

        The arrays are checked as those of a call are.
        """
        if self._loaded is None:
            self._load()
        values, _ = self._function._arguments.prepare(arrays)
        return tuple([int(v) for v in values[len(arrays) :]])

    @property
    def workspace_bytes(self) -> int:
        """Returns the bytes that one call uses for intermediate results; on a microcontroller, all static memory."""
        return self._parts.workspace if self._static_bytes is None else self._static_bytes

    @property
    def constant_bytes(self) -> int:
        """Returns the bytes of the constants, in the layouts of the kernels."""
        return int(self._parts.constants.nbytes)

    def profile(self, *inputs: Any, repeat: int = 10, **named: Any) -> Profile:
        """Returns how long each kernel takes when the model runs with ``inputs``: the median of ``repeat`` runs."""
        arrays = inputs_in_order(self.name, self.inputs, inputs, named)
        lowered = self._lowered_calls(self._parts.timed_entry, f"tw_{self.name}_timed")
        loaded = self._link([self._machine_code(lowered)], [lowered.name])
        function = Function(lowered, loaded.address(lowered.name), loaded)
        outs = [aligned_array(shape, dtype) for shape, dtype in self._shapes.of(arrays)]
        times = np.zeros(len(self.steps) + 2, np.int64)
        workspace = aligned_bytes(max(self._parts.workspace, 1))
        runs = []
        for _ in range(repeat + 1):  # the first run is not counted
            times[:] = 0
            function(*arrays, *outs, self._constants(), workspace, times)
            runs.append(times[:-2].copy())
        seconds = np.median(np.array(runs[1:]), axis=0) * 1e-9 if self.steps else []
        sizes = self._shapes.sizes(arrays)
        ran = [step.at(sizes) for step in self.steps]
        rows = [
            KernelRow(step.name, built.symbol, float(s), built.kind, built.origin, step.func, step.calls)
            for step, built, s in zip(self.steps, ran, seconds, strict=True)
        ]
        return profile_of(self.name, rows, self.target)

    def export(
        self,
        path: str | Path,
        name: str | None = None,
        *,
        constants: str = "inside",
        debug_info: bool = False,
        version: str | None = None,
    ) -> list[Path]:
        """Write the model as a library with headers for C and C++; return the files. Packages for pkg-config and CMake
        are among them.

        ``name``: the C function, ``int32_t NAME(inputs…, outputs…, sizes…, void* workspace)``. ``constants``: ``inside``
        (a section of the library), or ``beside`` (a file ``.weights``, which ``NAME_load(path)`` maps). With the suffix
        ``.a`` it is a static library; with ``.c`` one C file and its headers, for a microcontroller, whose memory is static, without the workspace.
        ``version``: the model's, which the packages tell. Several models go into one program: only the function's name is
        seen outside a shared library and a C file, and static libraries share kernels that are the same.
        ``debug_info``: the library has line tables, which refer to the lowered kernels; they are written beside it as
        ``.tir``.
        """
        if constants not in ("inside", "beside"):
            raise ValueError(f"constants={constants!r}: inside (the library) or beside (it)")
        symbol, path = name or self.symbol, Path(path)
        if path.suffix == ".c":
            if constants == "beside":
                raise ValueError("constants='beside' is for shared libraries; a C file has its constants inside")
            if debug_info:
                raise ExportError(f"cannot export {path.name!r} with line tables: a model has them as a library, .so")
            if version is not None:
                raise ExportError(f"cannot give {path.name!r} a version: libraries, .so and .a, have one")
            return write_model_source(self._source(), path, symbol)
        if self.target.is_c_only:
            raise ExportError(f"cannot export a model for {self.target} to {path.name!r}: it becomes a C file, .c")
        run = replace(self._lowered, name=f"tw_{symbol}_calls")
        entry = replace(self._entry, name=symbol, inner=run.name, in_file=constants == "beside")
        objects, program = [*self._objects(), self._machine_code(run)], path.with_suffix(".tir")
        if debug_info:
            modules, text = modules_with_lines([run, *self._lowered_kernels()], program)
            objects = [optimize_and_compile(module, self.target, cache=False).object for module in modules]
        files = export_library(LinkedLibrary(objects, run, entry, self._parts.constants), path, version)
        if debug_info:
            write_file(program, text)
        return [*files, program] if debug_info else files

    # -- inside --

    def _source(self) -> ModelSource:
        """Returns what becomes a C file. EmitError names an operation that the target lacks."""
        data = self._constants().tobytes()
        return ModelSource(self._lowered_kernels(), self._lowered, self._entry.params, data, self._parts.workspace)

    def _lowered_kernels(self) -> list[LoweredFunc]:
        """Returns the distinct kernels, lowered from the programs that they were scheduled to."""
        kernels = []
        for built in self._distinct():
            scheduled = parse(built.scheduled)
            assert isinstance(scheduled, PrimFunc)
            main = split_packing(scheduled.with_attr("global_symbol", built.symbol)).main
            kernels.append(lower(main, self.target, built.symbol))
        return kernels

    def _checked_source(self) -> int:
        """Returns the bytes of static memory. BuildError names the kernel and the operation that C for the target lacks."""
        try:
            return self._source().static_bytes
        except (EmitError, TargetError) as error:
            text = str(error)
            for step in self.steps:
                for one in step.versions:
                    text = text.replace(one.built.symbol, f"the kernel {step.name}")
            raise BuildError(f"{self.name} cannot be built for {self.target}: {text}") from error

    def _distinct(self) -> list[BuiltKernel]:
        return list({one.built.symbol: one.built for step in self.steps for one in step.versions}.values())

    def _objects(self) -> list[bytes]:
        return [built.object for built in self._distinct()]

    def _constants(self) -> Any:
        return self._parts.constants

    def _lowered_calls(self, func: PrimFunc, symbol: str) -> LoweredFunc:
        """Returns a function that calls the kernels, lowered. It only reads inputs and constants."""
        lowered = lower(func, self.target, symbol)
        count = len(self.inputs)
        read = [n < count or p.name == "constants" for n, p in enumerate(lowered.params)]
        params = [replace(p, writes=False) if r else p for p, r in zip(lowered.params, read, strict=True)]
        return replace(lowered, params=tuple(params))

    def _machine_code(self, lowered: LoweredFunc) -> bytes:
        return optimize_and_compile(emit(lowered), self.target, 1).object

    def _entry_of(self, name: str, params: tuple[Param, ...]) -> Entry:
        return Entry(name, self._lowered.name, params, self._parts.workspace, self.constant_bytes)

    def _load_and_run(self, *arguments: Any) -> None:
        self._load()
        self._run(*arguments)

    def _load(self) -> None:
        missing = self.target.missing_here()
        if missing:
            raise JITError(
                f"this model is for {self.target}, which this machine cannot run (it lacks {', '.join(missing)}); "
                "export it, or build for another target"
            )
        wrapper = optimize_and_compile(entry_ir(self._entry, self.target), self.target, 1).object
        own = self._entry.own
        self._loaded = self._link(
            [self._machine_code(self._lowered), wrapper], [self._lowered.name, self._entry.name, own]
        )
        shown = replace(self._lowered, name=self.name, params=tuple(self._entry.params))
        self._run = self._function = Function(shown, self._loaded.address(own), self._loaded)

    def _link(self, objects: Sequence[bytes], symbols: Sequence[str]) -> Loaded:
        """Load code that calls the kernels, together with them."""
        symbols = [*symbols, *[built.symbol for built in self._distinct()]]
        imports = {**runtime_symbols(self.target), self._entry.data: self._constants().ctypes.data}
        return load([*objects, *self._objects()], symbols, imports)


def held_numbers(array: Any, held: str | None) -> Any:
    """Returns an array of the type ``held`` of ``ml_dtypes`` as kernels have it, other arrays as they are.

    Integers become int8 or uint8, floats their codes.
    """
    if held is None or not isinstance(array, np.ndarray) or array.dtype.name != held:
        return array
    return array.view(np.uint8) if "float" in held else array.astype(np.uint8 if held.startswith("u") else np.int8)


def with_held_type(array: Any, held: str | None) -> Any:
    """Returns an array of such numbers or codes with the type ``held`` of ``ml_dtypes``."""
    if held is None:
        return array
    kind = getattr(importlib.import_module("ml_dtypes"), held)
    return array.view(kind) if "float" in held else array.astype(kind)


_KEPT = 256
"""For how many combinations of sizes the shapes are kept."""

Shaped = list[tuple[tuple[int, ...], Any]]
"""Shape and data type, in NumPy's terms, of each output."""


class OutputShapes:
    """The shapes of ``outputs``, which the symbolic sizes in the shapes of ``inputs`` tell. ``requires``: what has to hold
    of sizes, for errors."""

    def __init__(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], requires: Sequence[Requirement] = ()
    ) -> None:
        self._name = name
        self._inputs, self._outputs, self._requires = inputs, outputs, requires
        told = {d: (n, axis) for n, v in enumerate(inputs) for axis, d in enumerate(v.shape) if isinstance(d, Var)}
        self._where, self._told = told, [*told.values()]
        self._is_static = all(v.is_static for v in outputs)
        self._fixed: Shaped = [(v.shape, to_numpy(v.dtype)) for v in outputs] if self._is_static else []
        self._found: dict[tuple[int, ...], Shaped] = {}

    def of(self, inputs: Sequence[Any]) -> Shaped:
        """Returns shape and data type of each output; ArgumentError when the inputs do not tell them."""
        if self._is_static:
            return self._fixed
        try:
            key = tuple([inputs[n].shape[axis] for n, axis in self._told])
            found = self._found.get(key)
        except (AttributeError, LookupError, TypeError):  # what has no shape, or too few dimensions
            return self._evaluated(inputs)
        if found is None:
            found = self._evaluated(inputs)
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = found
        return found

    def sizes(self, inputs: Sequence[Any]) -> dict[Var, int]:
        """Returns the symbolic sizes that the shapes of the inputs tell."""
        sizes: dict[Var, int] = {}
        for v, data in zip(self._inputs, inputs, strict=True):
            if len(getattr(data, "shape", ())) == v.ndim:
                sizes.update((d, int(e)) for d, e in zip(v.shape, data.shape, strict=True) if isinstance(d, Var))
        return sizes

    def _evaluated(self, inputs: Sequence[Any]) -> Shaped:
        sizes = self.sizes(inputs)
        told = {
            d: f"{d.name} = {sizes[d]}, dimension {axis} of {self._inputs[n].name}"
            for d, (n, axis) in self._where.items()
            if d in sizes
        }
        out: Shaped = []
        for v in self._outputs:
            shape = [d if isinstance(d, int) else evaluate(d, sizes) for d in v.shape]
            if None in shape or any(e is not None and e < 0 for e in shape):
                missed = next((text for holds, text in self._requires if evaluate(holds, sizes) == 0), None)
                if missed is not None:
                    raise SizeError(f"{missed} ({'; '.join(told.values())})")
                if None in shape:
                    raise ArgumentError(f"the inputs do not tell the shape of the output {v}; give it with out=")
                check_not_negative(self._name, v.name, v.shape, [e for e in shape if e is not None], told)
            out.append((tuple([int(e) for e in shape if e is not None]), to_numpy(v.dtype)))
        return out


def inputs_in_order(name: str, values: Sequence[Value | OpenInput], inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:  # fmt: skip
    """Returns the inputs of the model ``name``, which takes ``values``. TypeError when there are too few, too many, or
    unknown ones."""
    names = [v.name for v in values]
    if len(inputs) + len(named) == len(names) and all([n in named for n in names[len(inputs) :]]):
        return (*inputs, *[named[n] for n in names[len(inputs) :]])
    unknown = sorted(set(named) - set(names))
    twice = [n for n in names[: len(inputs)] if n in named]
    absent = [n for n in names[len(inputs) :] if n not in named]
    takes = f"{name} takes {len(names)} inputs ({', '.join(map(repr, values))})"
    if unknown:
        raise TypeError(f"{takes}; none is called {', '.join(unknown)}")
    if twice:
        raise TypeError(f"{takes}; {twice[0]} is given by position and by name")
    if len(inputs) > len(names):
        raise TypeError(f"{takes}, not {len(inputs)}")
    raise TypeError(f"{takes}, not {len(inputs) + len(named)}: {', '.join(absent)} is not given")
