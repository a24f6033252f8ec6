"""This module reads and builds models: each distinct kernel is planned and compiled once, and one function calls them all.

:func:`load_model` has a front end read a file, or takes a graph. :func:`build_graph` then

1. prepares the graph (:mod:`..graph_services`: the passes, which predict times on the target), divides it into kernels
   (``graph/kernels.py``) and orders them, so that little memory is in use at a time;
2. looks up the schedules on record for each distinct kernel (:func:`kernel_jobs`); where sizes have several bounds, for each part
   of the sizes;
3. has the kernels built, many side by side, each one once (:mod:`.kernel_building`): by the first record that applies, else as
   :func:`..building.plan_request` plans any function. Those of earlier builds are on the disk;
4. plans the memory of intermediate results, packs the weights ahead, and writes the function that calls the kernels
   (``graph/entry.py``). The result is a :class:`~.model.Model`.

:class:`..building.BuildError` for a symbolic size without a bound; with ``require_tuned`` :class:`..building.NoRecordError` names the
kernel that has no record, and BuildError one whose records do not apply.

A front end is a function that returns a graph; it stands in the table by the suffix of its files. A package adds one by
an entry point of the group ``tilewright.frontends`` whose name is the suffix, as ``.onnx``.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import inspect
import mmap
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen import Target
from ...codegen.llvm.jit import load
from ...codegen.lowered import FAILURES, NULL_ARRAY, size_vars
from ...codegen.runtime.arguments import aligned_bytes
from ...codegen.runtime.loader import runtime_symbols, spread
from ...graph.computed_sizes import bounds_with_computed, limits, room, with_sizes_as_outputs
from ...graph.entry import Blob, KernelCall, entry_function, place
from ...graph.graph import Graph, GraphError, Value, copy_in_row_order, mapped_file, require_unchanged
from ...graph.kernels import Division, Kernel, each_once, fuse, requirements
from ...graph.memory_plan import order_kernels, plan_memory
from ...graph.value_dependent import ValueDependentGraph
from ...pages.messages import short_repr
from ...te.tensor import Requirement
from ...tir.analysis.known_ranges import evaluate
from ...tir.expr import Var
from ...tir.parser import collection_paused
from ...tir.walk import pre_order
from ...tuner.example_sizes import Bounds, ends_of, example_of, examples_of, largest_of, raised_to_usual, with_example
from ...tuning_db import Database, open_database
from ..building import BuildError, NoRecordError, recorded
from ..graph_services import prepared
from .kernel_building import BuiltKernel, KernelJob, PackedWeight, build_kernels, job_for
from .model import CLOCK, Model, Parts, Step, Version
from .specializing import SpecializingModel

FRONTENDS: dict[str, str] = {
    ".onnx": "frontends.onnx:from_onnx",
    ".pt2": "frontends.torch:from_torch",
    ".jax": "frontends.stablehlo:from_stablehlo",
    ".mlir": "frontends.stablehlo:from_stablehlo",
    ".mlirbc": "frontends.stablehlo:from_stablehlo",
    ".twgraph": "graph.graph_file:load_graph",
}
"""The front ends of this package: module and function, by the suffix of files."""

READING = ("shapes", "constants")
"""The options of building and tuning that front ends take."""

_OBJECTS = {
    ("onnx", "ModelProto"): ".onnx",
    ("torch", "ExportedProgram"): ".pt2",
    ("jax", "Exported"): ".jax",
    ("jaxlib", "Module"): ".mlir",
}
"""The classes whose objects are models, by package and name, and the suffix of their front end."""


def suffix_of(what: Any) -> str | None:
    """Returns the suffix of the front end that reads ``what``, or None when it is no model's file or object."""
    if isinstance(what, (str, os.PathLike)):
        suffix = Path(what).suffix.lower()
        return suffix if suffix in FRONTENDS or suffix in _plugins() else None
    return _OBJECTS.get((type(what).__module__.split(".")[0], type(what).__name__))


def is_model(what: Any) -> bool:
    """Returns whether :func:`load_model` takes ``what``."""
    return isinstance(what, (Graph, ValueDependentGraph)) or suffix_of(what) is not None


def load_model(what: Any, **options: Any) -> Graph:
    """Returns the graph of a model. ``options`` go to the front end, as ``shapes`` (of inputs, by name).

    TypeError for what is not a model, and for options with a graph. BuildError where the graph depends on values of inputs.
    """
    read = read_model(what, **options)
    if isinstance(read, ValueDependentGraph):
        raise BuildError(read.refusal())
    return read


def read_model(what: Any, **options: Any) -> Graph | ValueDependentGraph:
    """Returns what :func:`load_model` does, also where the graph depends on values of inputs."""
    if isinstance(what, (Graph, ValueDependentGraph)):
        if options:
            raise TypeError(f"a graph takes no {', '.join(options)}; they are for the file of a model")
        return what
    suffix = suffix_of(what)
    if suffix is None:
        raise TypeError(f"expected a Graph, or a model of {', '.join(FRONTENDS)}, not {type(what).__name__}")
    if isinstance(what, (str, os.PathLike)) and not os.path.exists(what):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", os.fspath(what))
    frontend = _frontend(suffix)
    taken = inspect.signature(frontend).parameters
    untaken = [name for name in options if name not in taken]
    if untaken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        raise TypeError(f"models of the kind {suffix} take no {', '.join(untaken)}")
    with collection_paused():
        graph = frontend(what, **options)
    assert isinstance(graph, (Graph, ValueDependentGraph))
    return graph


def _frontend(suffix: str) -> Callable[..., Any]:
    if suffix not in FRONTENDS:
        return _plugins()[suffix]
    module, function = FRONTENDS[suffix].split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"...{module}", __package__), function)
    return found


_found: list[Mapping[str, Callable[..., Any]]] = []


def _plugins() -> Mapping[str, Callable[..., Any]]:
    """Returns the front ends of installed packages by suffix."""
    if not _found:
        out = {}
        for entry in entry_points(group="tilewright.frontends"):
            try:
                out[entry.name] = entry.load()
            except Exception as error:  # a plugin that raises any exception is left out
                package = entry.dist.name if entry.dist is not None else "?"
                warnings.warn(f"front end {entry.name!r} of the package {package!r} is broken: {error}", stacklevel=2)
        _found.append(out)
    return _found[0]


@dataclass(frozen=True)
class GraphOptions:
    """These options say how a graph is built. ``bounds``: the largest values of symbolic sizes, by name (several
    ends: sizes up to each have schedules of their own). ``require_tuned``: no kernel may be without a record. ``processes``: how many build besides this one (by default, one for each further core).
    ``note(done, total)`` is called after each kernel.
    ``accuracy``: the largest error of a float32 convolution by Winograd's method, as a root mean square relative to that
    of the results. With 0 all are computed as written; None, the default, allows any.
    ``specializations``: how many builds are kept of a model whose graph depends on values of its inputs.
    """

    bounds: Bounds = field(default_factory=dict)
    require_tuned: bool = False
    processes: int | None = None
    note: Callable[[int, int], object] | None = None
    accuracy: float | None = None
    specializations: int = 32

    __repr__ = short_repr()


def build_graph(
    graph: Graph,
    target: str | Target = "native",
    *,
    db: Database | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Model:
    """Returns the compiled graph; kernels that ``db`` has records of get their fastest schedules.

    ``options`` are those of :class:`GraphOptions` by name; bounds that are not given are the graph's own.
    :class:`BuildError` for a symbolic size without a bound.
    """
    chosen = GraphOptions(**{**options, "bounds": {**graph.bounds, **(options.get("bounds") or {})}})
    with collection_paused():
        return _build_graph(graph, Target.of(target), db, chosen)


def build_for_values(
    source: ValueDependentGraph,
    target: str | Target = "native",
    *,
    db: Database | str | os.PathLike[str] | None = None,
    **options: Any,
) -> SpecializingModel:
    """Returns a model that is built when it is called, for the values of inputs that decide its graph.

    ``options`` are those of :class:`GraphOptions`; bounds hold for the symbolic sizes that a graph has.
    """
    chosen = GraphOptions(**options)

    def build(graph: Graph) -> Model:
        symbols = {d.name for v in graph.inputs for d in v.shape if isinstance(d, Var)}
        bounds = {name: most for name, most in chosen.bounds.items() if name in symbols or name not in known}
        return build_graph(replace(graph, name=source.name), target, db=db, **{**options, "bounds": bounds})

    known = {d.name for v in source.inputs if isinstance(v, Value) for d in v.shape if isinstance(d, Var)}
    return SpecializingModel(source, build, chosen.specializations)


def _build_graph(
    graph: Graph, machine: Target, db: Database | str | os.PathLike[str] | None, chosen: GraphOptions
) -> Model:
    require_unchanged(graph)
    division = order_kernels(fuse(prepared(with_sizes_as_outputs(graph), machine, chosen.accuracy)))
    bounds = bounds_of(graph, chosen.bounds)
    chosen = replace(chosen, bounds={**_computed_bounds(division.graph, bounds), **chosen.bounds})
    with open_database(db, readonly=True) if db is not None else nullcontext() as opened:
        jobs = kernel_jobs(division, machine, opened, chosen)
    wanted = [job for parts in jobs.values() for _, job in parts]
    built = build_kernels(wanted, processes=chosen.processes, note=chosen.note)
    for kernel, parts in jobs.items() if chosen.require_tuned else ():
        for own in [built[job.key] for _, job in parts]:
            if own.applied is None:
                raise BuildError(f"the kernel {kernel.name} on {machine}: no record of it applies ({own.origin})")
    divided = {var.name: var for var in bounds if len(ends_of(chosen.bounds[var.name])) > 1}
    versions = {kernel: _versions(parts, built, divided) for kernel, parts in jobs.items()}
    return _assembled(division, machine, versions, bounds, requirements(graph), graph)


def _versions(
    parts: Sequence[tuple[Mapping[str, int], KernelJob]], built: Mapping[str, BuiltKernel], divided: Mapping[str, Var]
) -> list[Version]:
    """Returns what was built for each part of a kernel's sizes; equal ones that follow each other are one. ``divided``:
    the sizes that have several ends, by name."""
    out: list[Version] = []
    for sizes, job in parts:
        if out and out[-1].built is built[job.key]:
            out.pop()
        up_to = {divided[name]: end for name, end in sizes.items() if name in divided}
        out.append(Version(up_to, built[job.key]))
    return out


def bounds_of(graph: Graph, given: Bounds, what: str = "bounds") -> dict[Var, int]:
    """Returns the largest values of the symbolic sizes of the inputs; BuildError for other names.

    ``what`` is the name of the argument that gives them.
    """
    symbols = {d.name: d for v in graph.inputs for d in v.shape if isinstance(d, Var)}
    unknown = sorted(set(given) - set(symbols))
    if unknown:
        sizes = ", ".join(symbols) or "none"
        raise BuildError(f"{graph.name} has no symbolic size {', '.join(unknown)}; its symbolic sizes: {sizes}")
    wrong = next((b for b in given.values() if min(ends_of(b), default=0) < 1), None)
    if wrong is not None:
        raise BuildError(f"{what}={dict(given)}: {wrong} is neither a number nor a list of numbers of at least 1")
    return {symbols[name]: bound for name, bound in largest_of(given).items()}


def _computed_bounds(graph: Graph, bounds: Mapping[Var, int]) -> dict[str, int]:
    """Returns the largest values of computed sizes, by name; none where the sizes that limit them have no bound."""
    try:
        every = bounds_with_computed(graph, bounds)
    except GraphError:
        return {}
    return {size.name: every[size] for size in limits(graph) if every[size] > 0}


def kernel_jobs(
    division: Division, machine: Target, db: Database | None = None, options: GraphOptions = GraphOptions()
) -> dict[Kernel, list[tuple[Mapping[str, int], KernelJob]]]:
    """Returns what to build for each kernel of a graph, by the example of each part of its sizes. Kernels of one
    structure share it."""
    examples = examples_of(options.bounds)
    jobs: dict[Kernel, list[tuple[Mapping[str, int], KernelJob]]] = {}
    out: dict[Kernel, list[tuple[Mapping[str, int], KernelJob]]] = {}
    for kernel, first in representatives(division).items():
        if first not in jobs:
            own = _own_sizes(first, examples, options.bounds)
            jobs[first] = [(sizes, _job(first, machine, db, options, sizes)) for sizes in own]
        out[kernel] = jobs[first]
    return out


def _own_sizes(kernel: Kernel, examples: Sequence[Mapping[str, int]], bounds: Bounds) -> list[dict[str, int]]:
    """Returns the different examples of the sizes that a kernel has. Those of sizes in one part suit its arrays."""
    dims = [d for v in (*kernel.inputs, *kernel.outputs) for d in v.shape if not isinstance(d, int)]
    symbols = {n for d in dims for n in pre_order(d) if isinstance(n, Var)}
    whole = {v: ends[0] for v in symbols if v.name in bounds and len(ends := ends_of(bounds[v.name])) == 1}
    own = []
    for sizes in examples:
        named = {v: sizes[v.name] for v in symbols if v.name in sizes}
        given = raised_to_usual(named, [*dims, *kernel.sizes.values()], whole)
        made = {v.name: evaluate(made_of, given) for v, made_of in kernel.sizes.items()}
        own.append({**{v.name: size for v, size in given.items()}, **{name: n for name, n in made.items() if n}})
    return [sizes for n, sizes in enumerate(own) if sizes not in own[:n]]


def representatives(division: Division) -> dict[Kernel, Kernel]:
    """Returns, for each kernel in order, the first one that computes the same on values of the same types."""
    firsts: dict[Any, Kernel] = {}
    return {leaf.kernel: firsts.setdefault(leaf.kernel.signature, leaf.kernel) for leaf in division.leaves()}


def _job(
    kernel: Kernel, machine: Target, db: Database | None, options: GraphOptions, examples: Mapping[str, int]
) -> KernelJob:
    traces = [] if db is None else _recorded(kernel, machine, db, examples)
    if options.require_tuned and not traces:
        where = "no database was given" if db is None else f"{db.path} has no record of it"
        raise NoRecordError(f"the kernel {kernel.name} on {machine}: {where}; tune the model first")
    return job_for(kernel, machine, traces, examples)


def _recorded(kernel: Kernel, machine: Target, db: Database, sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns origin and trace of the schedules on record; of symbolic sizes, those for example sizes."""
    func = with_example(kernel.func, sizes)
    examples = [made for f in (func, kernel.func) if (made := example_of(f)) is not None] or [func]
    found = (one for f in examples for one in recorded(db, f, machine))
    return [(one.origin, one.trace.dumps()) for one in found if one.trace is not None]


def _assembled(
    division: Division,
    machine: Target,
    versions: Mapping[Kernel, Sequence[Version]],
    bounds: Mapping[Var, int],
    required: Sequence[Requirement],
    source: Graph,
) -> Model:
    graph = division.graph
    try:
        memory = plan_memory(division, bounds_with_computed(graph, bounds))
    except GraphError as error:
        raise BuildError(f"{error}; give the largest value of each symbolic size with bounds=") from error
    leaves = list(division.leaves())
    calls = [_call(k, versions[k]) for k, _, _ in leaves]
    loops = list(division.loops())
    constants = {**graph.constants, **{v: data for loop, _ in loops for v, data in loop.body.graph.constants.items()}}
    read = [
        (a, leaf.division)
        for call, leaf in zip(calls, leaves, strict=True)
        for one in call.every
        for a in one.arguments
    ]
    sizes: dict[object, int] = {}
    for a, around in [*read, *[(v, around) for loop, around in loops for v in loop.inputs]]:
        root = around.root(a) if isinstance(a, Value) else a
        if isinstance(root, _Packed):
            sizes[root] = root.weight.size
        elif isinstance(root, Value) and root in constants:
            sizes[root] = constants[root].nbytes
    blob = place(sizes)
    firsts = representatives(division)
    requires = each_once([*required, *[r for leaf in leaves for r in leaf.kernel.requirements]])
    entries = [entry_function(division, memory, calls, blob, clock=clock, requires=requires) for clock in ("", CLOCK)]
    most = limits(graph)
    written = [replace(v, shape=room(v.shape, most, memory.bounds)) for v in graph.outputs]
    parts = Parts(
        graph.name, machine, graph.inputs, graph.outputs[: len(graph.outputs) - len(most)],
        [Step(k.name, firsts[k], tuple(versions[k]), count) for k, _, count in leaves],
        entries[0], entries[1], memory.size, _filled(constants, blob, [one.built for made in versions.values() for one in made], machine),
        source.held, source.lists, tuple(most), written,
    )  # fmt: skip
    return Model(parts)


def _call(kernel: Kernel, versions: Sequence[Version]) -> KernelCall:
    first, *others = versions
    beyond = _call(kernel, others) if others else None
    failures = dict(enumerate(first.built.assertions, 1))
    if failures:
        failures.update({code: text for code, text in FAILURES.items() if code >= NULL_ARRAY})
    return KernelCall(kernel, first.built.symbol, _arguments(kernel, first.built), first.up_to, beyond, failures)


@dataclass(frozen=True)
class _Packed:
    """A constant in the layout of a kernel."""

    value: Value
    weight: PackedWeight


def _arguments(kernel: Kernel, built: BuiltKernel) -> list[object]:
    arrays: list[object] = [
        _Packed(v, built.packs[n]) if n in built.packs else v for n, v in enumerate((*kernel.inputs, *kernel.outputs))
    ]
    static = all(v.is_static for v in (*kernel.inputs, *kernel.outputs))
    return arrays if static else [*arrays, *[kernel.sizes.get(v, v) for v in size_vars(kernel.func)]]


def _filled(constants: Mapping[Value, Any], blob: Blob, kernels: Sequence[BuiltKernel], target: Target) -> Any:
    """Returns the constants' bytes: packed weights by their functions, others as they are. The largest come first: what
    they need beside the block is let go before the block's other pages are in memory."""
    data, scratch = aligned_bytes(max(blob.size, 1)), _Scratch()
    spread(data)
    packing = {p.symbol: k for k in kernels for p in k.packs.values()}
    functions: dict[str, Callable[..., int]] = {}
    for key, at in sorted(blob.offsets.items(), key=lambda place: -_bytes_of(place[0], constants)):
        if isinstance(key, _Packed):
            symbol = key.weight.symbol
            if symbol not in functions:
                functions[symbol] = _pack_function(packing[symbol], symbol, target)
            source = scratch.in_row_order(constants[key.value])
            code = functions[symbol](source.ctypes.data, data[at:].ctypes.data)
            if code:
                raise BuildError(f"packing {key.value} failed with code {code}")
            _unload(constants[key.value])
        elif isinstance(key, Value):
            array = constants[key]
            copy_in_row_order(data[at : at + array.nbytes].view(array.dtype).reshape(array.shape), array)
            _unload(array)
    return data


class _Scratch:
    """Memory for copies of arrays, one after the other: fresh memory costs more time than a copy."""

    def __init__(self) -> None:
        self.room = np.empty(0, np.uint8)

    def in_row_order(self, array: Any) -> Any:
        """Returns the array itself if its elements lie in row-major order at aligned addresses. Else it is a copy, which
        lasts until the next call."""
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        if not array.nbytes <= self.room.nbytes <= 4 * array.nbytes:
            self.room = np.empty(0, np.uint8)  # the old memory goes first
            self.room = np.empty(array.nbytes, np.uint8)
        made = self.room[: array.nbytes].view(array.dtype).reshape(array.shape)
        copy_in_row_order(made, array)
        return made


def _bytes_of(key: object, constants: Mapping[Value, Any]) -> int:
    """Returns the bytes of the array that a part of the block is made of."""
    value = key.value if isinstance(key, _Packed) else key
    return int(constants[value].nbytes) if isinstance(value, Value) else 0


def _unload(array: Any) -> None:
    """Let go of the memory of an array that is mapped from a file. It is read again where it is needed again."""
    base = mapped_file(array)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _pack_function(kernel: BuiltKernel, symbol: str, target: Target) -> Callable[..., int]:
    loaded = load(kernel.object, [symbol], runtime_symbols(target))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(loaded.address(symbol))

    def call(source: int, target: int, keep: Any = loaded) -> int:
        return int(function(source, target))

    return call
