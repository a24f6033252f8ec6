"""A backend of torch.compile: what it supports becomes one library per graph, the rest runs eagerly.

:func:`backend` checks the options, :class:`Region` is a part of a graph that is supported, and :class:`CompiledGraph` its
library of kernels. A graph is built when it is called first, and again for other threads.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen import Target
from ..codegen.object_cache import cache_directory
from ..driver.models.model import Model
from ..driver.models.model_building import build_graph
from ..driver.models.model_tuning import ModelTuneOptions, tune_graph
from ..frontends.torch import (
    ProgramReader,
    TorchError,
    UnsupportedTorchOperators,
    core_decompositions,
    graphs_of,
    is_supported,
    load_torch,
    missing_operators,
    unknown_strides,
    unknown_strides_error,
)
from ..graph.graph import Graph, Value
from ..tir.analysis.known_ranges import evaluate
from ..tir.expr import Expr, Var, vars_in

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_OF_PYTORCH = ("dynamic", "mode")
"""What torch.compile itself passes on."""


@dataclass(frozen=True)
class CompileOptions:
    """The options for compiling a graph: ``db``, ``strict``, ``target`` and ``tune``. ``db`` is a file with tuning
    records, ``strict`` raises errors, and ``tune`` is the time for tuning each graph, ``"60s"`` or seconds, whose
    records go to ``db``."""

    db: str | os.PathLike[str] | None = None
    strict: bool = False
    target: str | None = None
    tune: float | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> CompileOptions:
        """Returns checked options. ValueError for unknown names, and for a time that is none."""
        names = [f.name for f in fields(CompileOptions)]
        unknown = sorted(set(given) - {*names, *_OF_PYTORCH})
        if unknown:
            raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
        chosen = {name: given[name] for name in names if name in given}
        if chosen.get("tune") is not None:
            chosen["tune"] = seconds_of(chosen["tune"])
            chosen["db"] = chosen.get("db") or default_db()
        return CompileOptions(**chosen)


def default_db() -> Path:
    """Returns the file for records of graphs that are tuned without the option ``db``."""
    return cache_directory() / "torch-compile.db"


def seconds_of(time: str | float) -> float:
    """Returns a time in seconds: a number, or a text such as ``60s``, ``5min`` or ``1h``. ValueError for others.

    >>> seconds_of("1.5min"), seconds_of(20)
    (90.0, 20.0)
    """
    text = str(time).strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"tune={time!r} is not a time above zero, such as '60s' or '5min'")
    return seconds


_said: set[str] = set()


def say(text: str) -> None:
    """Warn of ``text``, unless that was done before."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"tilewright: {text}", stacklevel=2)


def forget() -> None:
    """Let everything be said again."""
    _said.clear()


_ROOM = 4
"""A library for dynamic sizes serves sizes up to so many times the first one."""


@dataclass(frozen=True)
class Traced:
    """A graph as torch.compile hands it over, the options, and the nodes of its inputs and of its results. ``single``: it
    returns one value, not a list."""

    gm: Any
    options: CompileOptions
    holders: Sequence[Any]
    results: Sequence[Any]
    single: bool

    @staticmethod
    def of(gm: Any, options: CompileOptions) -> Traced:
        """Returns the parts of a graph."""
        (results,) = gm.graph.output_node().args
        single = not isinstance(results, (list, tuple))
        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        return Traced(gm, options, holders, [results] if single else list(results), single)


class CompiledGraph:
    """A graph that is built for a number of threads. Its inputs ``held`` are constants, with the elements of one moment.

    A result is a new tensor, an input that the graph returns, or a number. ``checks_sizes``: whether :meth:`fits` looks at
    sizes.
    """

    checks_sizes = False

    def __init__(self, traced: Traced, args: Sequence[Any], held: Sequence[int], threads: int) -> None:
        self.torch, self.threads = load_torch(), threads
        self.traced, self.held = traced, list(held)
        self.moment = self._moment(args)
        reader = ProgramReader("main")
        self.passed = self._read(reader, args)
        self.numbers = self._told(reader)
        reader.read(traced.gm.graph.nodes)
        self.results = self._described(reader)
        roots = [(r, one.root) for kind, r, one in self.results if kind == "tensor"]
        viewed = {one.root for _, _, one in self.results if one.views}
        self.orders = {n: o for n, (_, root) in enumerate(roots) if root in viewed and (o := memory_order(root))}
        for n, order in self.orders.items():
            roots[n] = reader.builder.op("transpose", roots[n][0], axes=order), roots[n][1]
        self.graph = reader.graph([r for r, _ in roots])
        self.dtypes = [getattr(self.torch, v.dtype) for v in self.graph.outputs]
        self.cpu = self.torch.device("cpu")

    def _read(self, reader: ProgramReader, args: Sequence[Any]) -> list[int]:
        """Add the inputs, and return the numbers of those that are passed in each call."""
        passed = []
        for n, (node, a) in enumerate(zip(self.traced.holders, args, strict=True)):
            if hasattr(a, "dtype") and (a.device.type != "cpu" or a.layout is not self.torch.strided):
                raise TorchError(f"a tensor on {a.device} with the layout {a.layout} is not supported")
            if n in self.held:
                reader.constant(node, a)
            elif hasattr(a, "dtype"):
                self._input(reader, node, a)
                passed.append(n)
            else:
                self._number(reader, node, a)
        return passed

    def _input(self, reader: ProgramReader, node: Any, tensor: Any) -> None:
        reader.actual_input(node, tensor)

    def _number(self, reader: ProgramReader, node: Any, number: Any) -> None:
        reader.actual_number(node, number)

    def _told(self, reader: ProgramReader) -> list[int]:
        """Returns which numbers among the inputs are passed in each call, as the sizes of arrays without elements."""
        return []

    def _described(self, reader: ProgramReader) -> list[tuple[str, Any, Any]]:
        """Returns a description of each result, and the views that are taken of it. A result is a tensor that is made,
        an input, one that an earlier result is made of, or a number."""
        numbers = {node: n for n, node in enumerate(self.traced.holders)}
        seen: dict[Any, int] = {}
        out: list[tuple[str, Any, Any]] = []
        self.view_sizes: dict[Any, Any] = {}
        for one in returned(self.traced.results):
            result = reader.result(one.root)
            self.view_sizes.update((n, reader.result(n)) for view in one.views for n in _nodes([view.rest, view.named]))
            if one.root in numbers:
                out.append(("input", numbers[one.root], one))
            elif not isinstance(result, Value):
                out.append(("number", result, one))
            elif one.root in seen:
                out.append(("same", seen[one.root], one))
            else:
                seen[one.root] = len(seen)
                out.append(("tensor", result, one))
        return out

    def _moment(self, args: Sequence[Any]) -> list[Any]:
        return [(args[n].data_ptr(), args[n]._version) for n in self.held]

    def is_outdated(self, args: Sequence[Any]) -> bool:
        """Returns whether a parameter has changed since."""
        return bool(self.held) and self.moment != self._moment(args)

    def fits(self, args: Sequence[Any]) -> bool:
        """Returns whether the graph was built for inputs like these."""
        return not self.held or self.moment == self._moment(args)

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """Returns the results."""
        raise NotImplementedError

    def _assembled(self, args: Sequence[Any], made: Sequence[Any], known: dict[Var, int]) -> list[Any]:
        """Returns all results, given the tensors that were made."""
        made = [t.permute(np.argsort(self.orders[n]).tolist()) if n in self.orders else t for n, t in enumerate(made)]
        out, fresh = [], iter(made)
        sizes = {n: evaluate(e, known) if isinstance(e, Expr) else e for n, e in self.view_sizes.items()}
        for kind, r, one in self.results:
            if kind == "number":
                number = evaluate(r, known) if isinstance(r, Expr) else r
                if number is None and r is not None:
                    raise TorchError(f"the inputs do not tell the result {r}")
                out.append(number)
            else:
                out.append(one.of(next(fresh) if kind == "tensor" else args[r] if kind == "input" else made[r], sizes))
        return out

    def _plain(self, t: Any) -> Any:
        """Returns a tensor without gradient whose memory holds its elements one after the other."""
        t = t.detach() if t.requires_grad or type(t) is not self.torch.Tensor else t
        t = t.resolve_neg() if t.is_neg() else t
        return t if t.is_contiguous() else t.contiguous()


class FixedGraph(CompiledGraph):
    """A graph whose sizes are numbers. Guards of torch.compile see to it that inputs have them, so a call looks only at
    how tensors lie in memory."""

    def __init__(self, traced: Traced, args: Sequence[Any], held: Sequence[int], threads: int) -> None:
        super().__init__(traced, args, held, threads)
        self.model = built(self.graph, traced.options, threads)
        self.outputs = [(tuple(v.shape), t) for v, t in zip(self.graph.outputs, self.dtypes, strict=True)]
        self.only_tensors = all(kind == "tensor" and not one.views for kind, _, one in self.results)
        self._call: Callable[..., None] | None = None

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """Returns the results."""
        empty, cpu = self.torch.empty, self.cpu
        made = [empty(shape, dtype=dtype, device=cpu) for shape, dtype in self.outputs]
        call = self._call
        if call is None:
            self.model(*[self._plain(args[n]) for n in self.passed], out=made)
            self._call = self.model.address_call
        else:
            given = [args[n] for n in self.passed]
            given = [t if t.is_contiguous() and not t.is_neg() else self._plain(t) for t in given]
            call(*[t.data_ptr() for t in given], *[t.data_ptr() for t in made])
        return made if self.only_tensors else self._assembled(args, made, {})


class SymbolicGraph(CompiledGraph):
    """A graph with symbolic sizes, for which the inputs have bounds."""

    checks_sizes = True

    def __init__(self, traced: Traced, args: Sequence[Any], held: Sequence[int], threads: int) -> None:
        super().__init__(traced, args, held, threads)
        self.sizes: dict[Var, tuple[int, int]] = {}
        self.bounds: dict[Var, int] = {}
        for n, v in zip([*self.passed, *self.numbers], self.graph.inputs, strict=True):
            val = traced.holders[n].meta["val"]
            for d, e in enumerate(v.shape):
                if isinstance(e, Var) and e not in self.sizes:
                    self.sizes[e] = (n, d)
                    self.bounds[e] = _bound(val.shape[d] if n in self.passed else val, _extent(args[n], d))
        used = {var for v in self.graph.values() for d in v.shape if isinstance(d, Expr) for var in vars_in(d)}
        if not used or used - set(self.sizes):
            raise TorchError("there is a size that no input tells")
        bounds = {var.name: bound for var, bound in self.bounds.items()}
        self.model = built(self.graph, traced.options, threads, bounds)
        self.only_tensors = not self.orders and all(kind == "tensor" and not one.views for kind, _, one in self.results)
        self._served: dict[Any, _Served] = {}

    def _input(self, reader: ProgramReader, node: Any, tensor: Any) -> None:
        reader.input(node)

    def _number(self, reader: ProgramReader, node: Any, number: Any) -> None:
        reader.input(node)

    def _told(self, reader: ProgramReader) -> list[int]:
        by_shapes = {d for v in reader.builder.inputs for d in v.shape}
        found: dict[Var, int] = {}
        for n, node in enumerate(self.traced.holders):
            number = reader.result(node)
            if isinstance(number, Var) and number not in by_shapes and number not in found:
                found[number] = n
                reader.builder.input(reader.builder.unused(node.name), (number, 0), "uint8")
        return [*found.values()]

    def fits(self, args: Sequence[Any]) -> bool:
        """Returns whether the sizes lie within the bounds, and the parameters are those that were built in."""
        inside = all(0 <= _extent(args[n], d) <= self.bounds[v] for v, (n, d) in self.sizes.items())
        return inside and super().fits(args)

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """Returns the results. Inputs of shapes that were served before are not checked again."""
        given = [args[n] for n in self.passed]
        key = (*[t.shape for t in given], *[args[n] for n in self.numbers])
        served = self._served.get(key)
        if served is None:
            return self._checked(args, key)
        empty, cpu = self.torch.empty, self.cpu
        made = [empty(shape, dtype=dtype, device=cpu) for shape, dtype in served.outputs]
        given = [t if t.is_contiguous() and not t.is_neg() else self._plain(t) for t in given]
        addresses = [t.data_ptr() for t in (*given, *served.numbers, *made)]
        self.model.address_call(*addresses, *served.sizes)
        return made if self.only_tensors else self._assembled(args, made, served.known)

    def _checked(self, args: Sequence[Any], key: Any) -> Sequence[Any]:
        """Returns the results for shapes that come for the first time, and keeps what they say."""
        known = {var: _extent(args[n], d) for var, (n, d) in self.sizes.items()}
        shapes = [[d if isinstance(d, int) else evaluate(d, known) for d in v.shape] for v in self.graph.outputs]
        outputs = [*zip(shapes, self.dtypes, strict=True)]
        made = [self.torch.empty(shape, dtype=dtype, device=self.cpu) for shape, dtype in outputs]
        numbers = [self.torch.empty((args[n], 0), dtype=self.torch.uint8) for n in self.numbers]
        given = [*[self._plain(args[n]) for n in self.passed], *numbers]
        self.model(*given, out=made)
        if len(self._served) >= _SERVED:
            self._served.clear()
        self._served[key] = _Served(outputs, numbers, self.model.sizes_of([*given, *made]), known)
        return self._assembled(args, made, known)


_SERVED = 256
"""The most shapes of inputs of which a graph keeps what they say."""


@dataclass(frozen=True)
class _Served:
    """What shapes of inputs say that were served: shapes and types of outputs, arrays that stand for numbers, and sizes."""

    outputs: Sequence[tuple[Any, Any]]
    numbers: Sequence[Any]
    sizes: tuple[int, ...]
    known: dict[Var, int]


def _extent(a: Any, d: int) -> int:
    """Returns the size of a tensor's dimension, or the number where the input is one."""
    return int(a.shape[d]) if hasattr(a, "shape") else int(a)


def _bound(size: Any, seen: int) -> int:
    """Returns the largest size that a library serves: what the program says, or room beyond what was seen."""
    room = _ROOM << max(seen - 1, 1).bit_length()
    try:
        upper = size.node.shape_env.bound_sympy(size.node.expr).upper
        return min(room, int(upper)) if upper.is_finite else room
    except (AttributeError, OverflowError, TypeError, ValueError):
        return room


def built(graph: Graph, options: CompileOptions, threads: int, bounds: dict[str, int] | None = None) -> Model:
    """Returns the compiled graph. With the option ``tune`` kernels that have no record are tuned before."""
    target = Target(options.target or f"native -num-cores={threads}")
    db = options.db if options.db is not None and Path(options.db).exists() else None  # made by the first tuning
    model = build_graph(graph, target, db=db, bounds=bounds or {})
    if options.tune is None or all(step.built.kind != "default" for step in model.steps):
        return model
    tune_graph(graph, target, options.db, ModelTuneOptions(time_limit=options.tune))
    return build_graph(graph, target, db=options.db, bounds=bounds or {})


@dataclass(frozen=True)
class TensorView:
    """A call that gives a view of its first argument, with its other arguments. Nodes among them are sizes."""

    target: Callable[..., Any]
    rest: Sequence[Any]
    named: Mapping[str, Any]

    def of(self, tensor: Any, sizes: Mapping[Any, Any]) -> Any:
        """Returns the view of a tensor, given what the nodes stand for."""
        rest, named = (_with_numbers(a, sizes) for a in (list(self.rest), dict(self.named)))
        return self.target(tensor, *rest, **named)


@dataclass(frozen=True)
class Returned:
    """A result: the node that computes it, and the views that are taken of that in turn."""

    root: Any
    views: Sequence[TensorView]

    def of(self, tensor: Any, sizes: Mapping[Any, Any]) -> Any:
        """Returns the result, given what the root is, and the sizes that the views take."""
        for view in self.views:
            tensor = view.of(tensor, sizes)
        return tensor


def returned(results: Sequence[Any]) -> list[Returned]:
    """Returns a view for each result that shares memory with an input or another result, else the node itself."""
    found = [_followed(r) if hasattr(r, "op") else Returned(r, ()) for r in results]
    count = Counter(id(f.root) for f in found)
    return [
        f if _is_input(f.root) or count[id(f.root)] > 1 else Returned(r, ())
        for f, r in zip(found, results, strict=True)
    ]


def memory_order(node: Any) -> tuple[int, ...] | None:
    """Returns the dimensions of a result in the order in which PyTorch lays it out. None stands for row-major and for
    other layouts.

    Views of a result are those of its layout in PyTorch, such as that of ``transpose(1, 2).flatten(2)`` without a copy.
    """
    val = node.meta.get("val")
    if not hasattr(val, "stride") or not all(isinstance(d, int) for d in (*val.shape, *val.stride())):
        return None
    order = sorted(range(len(val.shape)), key=lambda d: (-val.stride(d), d))
    dense = 1
    for d in reversed(order):
        if val.shape[d] != 1 and val.stride(d) != dense:
            return None
        dense *= val.shape[d]
    return None if order == sorted(order) else tuple(order)


def _is_input(node: Any) -> bool:
    return getattr(node, "op", "") == "placeholder"


def _followed(node: Any) -> Returned:
    views: list[TensorView] = []
    while (step := _view(node)) is not None:
        views.append(step)
        node = node.args[0]
    return Returned(node, views[::-1])


def _view(node: Any) -> TensorView | None:
    """Returns the call that a node makes, when its result shares the memory of its first argument."""
    if node.op != "call_function" or not node.args:
        return None
    target, rest, named = node.target, node.args[1:], dict(node.kwargs)
    if any(hasattr(n.meta.get("val"), "dtype") for n in _nodes([rest, named])):
        return None
    if target is operator.getitem:
        return TensorView(target, rest, {}) if _view(node.args[0]) is not None else None
    schema = getattr(target, "_schema", None)
    first = schema.returns[0].alias_info if schema is not None and schema.returns else None
    if first is None or first.is_write:
        return None
    return TensorView(target, rest, named)


def _nodes(a: Any) -> list[Any]:
    """Returns the nodes among arguments, which may be lists and mappings of arguments."""
    if isinstance(a, Mapping):
        a = list(a.values())
    if isinstance(a, (list, tuple)):
        return [n for part in a for n in _nodes(part)]
    return [a] if hasattr(a, "op") else []


def _with_numbers(a: Any, numbers: Mapping[Any, Any]) -> Any:
    """Returns arguments with numbers in place of nodes."""
    if isinstance(a, Mapping):
        return {key: _with_numbers(part, numbers) for key, part in a.items()}
    if isinstance(a, (list, tuple)):
        return [_with_numbers(part, numbers) for part in a]
    return numbers[a] if hasattr(a, "op") else a


def backend(gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Returns a function that runs a graph of torch.compile in kernels of Tilewright.

    ``options`` are those of :class:`.compile_backend.CompileOptions`. What is not supported or fails runs eagerly, which
    is said once; the option ``strict`` makes an error of it. Parameters are read when the function is called first, and
    again when they have changed since.
    """
    aot_autograd = load_torch("_dynamo.backends.common").aot_autograd
    chosen = CompileOptions.of({**dict(options or {}), **more})

    strided = unknown_strides(gm.graph.nodes)
    if strided is not None:
        refusal = unknown_strides_error(strided)
        if chosen.strict:
            raise refusal
        say(f"a graph is run eagerly: {refusal}")
        return gm.forward

    def compile_graph(graph_module: Any, inputs: Sequence[Any]) -> Any:
        note_changed_inputs(graph_module)
        return _compiled(graph_module, chosen)

    compiled = aot_autograd(fw_compiler=compile_graph, decompositions=core_decompositions())
    return compiled(gm, example_inputs)


_CHANGED = "tilewright_changed"
"""The key in a node's ``meta`` for an input that the program writes to."""


def note_changed_inputs(gm: Any) -> None:
    """Mark the inputs whose elements the program changes, as those of a cache, in the graph that is being compiled."""
    context = load_torch("_guards").TracingContext.try_get()
    infos = getattr(getattr(context, "fw_metadata", None), "input_info", ())
    holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(infos) == len(holders):
        for node, one in zip(holders, infos, strict=True):
            node.meta[_CHANGED] = one.mutates_data


def _compiled(gm: Any, options: CompileOptions) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function of the list of the graph's inputs: one library when all is supported, parts of it else."""
    missing = missing_operators(gm.graph.nodes)
    if not missing:
        return _boxed(Region(gm, options))
    if options.strict:
        raise UnsupportedTorchOperators(dict(sorted(missing.items())))
    say(f"run eagerly, for they are not supported: {', '.join(sorted(missing))}")
    fused = _partitioned(gm, options)
    return _boxed(lambda args: fused(*args))


def _boxed(run: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function that AOT autograd calls with one list of all inputs."""

    def function(args: list[Any]) -> Sequence[Any]:
        return run(args)

    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def _partitioned(gm: Any, options: CompileOptions) -> Any:
    """Returns the graph with the regions that are supported replaced by libraries."""
    support = load_torch("fx.passes.operator_support")
    partitioners = load_torch("fx.passes.infra.partitioner")

    class Supported(support.OperatorSupportBase):  # type: ignore[name-defined,misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return is_supported(node) and _is_of_tensors(node) and not graphs_of(node)

    partitioner = partitioners.CapabilityBasedPartitioner(gm, Supported(), allows_single_node_partition=False)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    for name, part in list(fused.named_children()):
        if name.startswith("fused_"):
            setattr(fused, name, _as_module(Region(part, options)))
    return fused


def _is_of_tensors(node: Any) -> bool:
    val = node.meta.get("val")
    results = val if isinstance(val, (list, tuple)) else [val]
    return all(hasattr(r, "dtype") or r is None for r in results)


def _as_module(region: Region) -> Any:
    torch = load_torch()

    class RegionModule(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, *args: Any) -> Any:
            out = region(list(args))
            return out[0] if region.single else tuple(out)

    return RegionModule()


_MOST_CHANGES = 3
"""After so many changes, parameters are inputs of the library and no longer its constants."""


class Region:
    """A region of a program. It is built when it is called first, since only then the parameters are there; an error
    makes it run eagerly from then on. ``single``: the graph returns one value, not a list.

    One library serves all sizes of dynamic dimensions up to a bound, and is made again for larger ones. Where a graph
    cannot be read so, there is a library for each size.
    """

    def __init__(self, gm: Any, options: CompileOptions) -> None:
        self.traced = Traced.of(gm, options)
        self.single = self.traced.single
        self.is_fixed = all(_is_fixed(n.meta.get("val")) for n in self.traced.holders)
        self.is_symbolic = not self.is_fixed
        self.held: list[int] | None = None
        self.changes = 0
        self.built: dict[Any, CompiledGraph] = {}
        self.failed = False
        self._threads = load_torch().get_num_threads
        self._last: CompiledGraph | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        last = self._last
        try:
            if last is not None and last.threads == self._threads() and last.fits(args):
                return last.run(args)
            if not self.failed:
                found = self._found(args)
                self._last = found if found.checks_sizes or self.is_fixed else None
                return found.run(args)
        except Exception as error:  # an error here must not take the user's program down
            if self.traced.options.strict:
                raise
            self.failed, self._last = True, None
            say(f"a graph runs eagerly: {type(error).__name__}: {error}")
        out = self.traced.gm(*args)
        return out if isinstance(out, (list, tuple)) else [out]

    def _found(self, args: Sequence[Any]) -> CompiledGraph:
        """Returns what was built for such inputs before, or builds it."""
        threads = self._threads()
        if self.held is None:
            changed = [node.meta.get(_CHANGED, False) for node in self.traced.holders]
            self.held = [n for n, a in enumerate(args) if _is_held(a) and not changed[n]]
        key = threads if self.is_fixed or self.is_symbolic else (threads, *[_size(a) for a in args])
        built = self.built.get(key)
        if built is not None and built.fits(args):
            return built
        if built is not None and built.is_outdated(args):
            self._changed()
        made = self._symbolic(args, threads) if self.is_symbolic else None
        if made is None:
            key = threads if self.is_fixed else (threads, *[_size(a) for a in args])
            made = FixedGraph(self.traced, args, self.held, threads)
        self.built[key] = made
        return made

    def _symbolic(self, args: Sequence[Any], threads: int) -> CompiledGraph | None:
        """Returns the graph built for all sizes up to a bound; None where it cannot be read so."""
        try:
            return SymbolicGraph(self.traced, args, self.held or [], threads)
        except Exception:  # converters raise errors of many classes for sizes that are no numbers
            self.is_symbolic = False
            return None

    def _changed(self) -> None:
        """Count a change of parameters; those that change often become inputs."""
        self.changes += 1
        if self.changes >= _MOST_CHANGES:
            self.held = []


def _is_fixed(val: Any) -> bool:
    """Returns whether a graph's input always has the same sizes."""
    if not hasattr(val, "dtype"):
        return val is None or _is_number(val)
    return all(isinstance(d, int) for d in val.shape)


def _is_number(val: Any) -> bool:
    """Returns whether a size has one value in all calls, which guards of torch.compile see to."""
    return isinstance(val, (int, float, bool)) or bool(getattr(val.node.expr, "is_number", False))


def _is_held(a: Any) -> bool:
    """Returns whether an input is a parameter or a buffer that is not trained now."""
    kept = type(a).__name__ == "Parameter" or hasattr(a, "_dynamo_static_input_type")
    return kept and not load_torch().is_grad_enabled()


def _size(a: Any) -> Any:
    return (a.shape, a.dtype) if hasattr(a, "dtype") else a
