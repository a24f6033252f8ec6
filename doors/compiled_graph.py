"""This module builds one graph of torch.compile as a library of kernels, and calls it on tensors."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen import Target
from ..driver.models.model import Model
from ..driver.models.model_building import build_graph
from ..driver.models.model_tuning import ModelTuneOptions, tune_graph
from ..frontends.torch import ProgramReader, TorchError, load_torch
from ..graph.graph import Graph, Value
from ..tir.analysis.known_sizes import evaluate
from ..tir.expr import Expr, Var, vars_in
from .compile_options import CompileOptions

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
                out.append(evaluate(r, known) if isinstance(r, Expr) else r)
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
        for n, v in zip(self.passed, self.graph.inputs, strict=True):
            val = traced.holders[n].meta["val"]
            for d, e in enumerate(v.shape):
                if isinstance(e, Var) and e not in self.sizes:
                    self.sizes[e] = (n, d)
                    self.bounds[e] = _bound(val.shape[d], int(args[n].shape[d]))
        used = {var for v in self.graph.values() for d in v.shape if isinstance(d, Expr) for var in vars_in(d)}
        if not used or used - set(self.sizes):
            raise TorchError("there is a size that no input tells")
        bounds = {var.name: bound for var, bound in self.bounds.items()}
        self.model = built(self.graph, traced.options, threads, bounds)

    def _input(self, reader: ProgramReader, node: Any, tensor: Any) -> None:
        reader.input(node)

    def _number(self, reader: ProgramReader, node: Any, number: Any) -> None:
        reader.input(node)

    def fits(self, args: Sequence[Any]) -> bool:
        """Returns whether the sizes lie within the bounds, and the parameters are those that were built in."""
        return super().fits(args) and all(args[n].shape[d] <= self.bounds[v] for v, (n, d) in self.sizes.items())

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """Returns the results."""
        known = {var: int(args[n].shape[d]) for var, (n, d) in self.sizes.items()}
        made = []
        for v, dtype in zip(self.graph.outputs, self.dtypes, strict=True):
            shape = [d if isinstance(d, int) else evaluate(d, known) for d in v.shape]
            made.append(self.torch.empty(shape, dtype=dtype, device=self.cpu))
        self.model(*[self._plain(args[n]) for n in self.passed], out=made)
        return self._assembled(args, made, known)


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
class View:
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
    views: Sequence[View]

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
    views: list[View] = []
    while (step := _view(node)) is not None:
        views.append(step)
        node = node.args[0]
    return Returned(node, views[::-1])


def _view(node: Any) -> View | None:
    """Returns the call that a node makes, when its result shares the memory of its first argument."""
    if node.op != "call_function" or not node.args:
        return None
    target, rest, named = node.target, node.args[1:], dict(node.kwargs)
    if any(hasattr(n.meta.get("val"), "dtype") for n in _nodes([rest, named])):
        return None
    if target is operator.getitem:
        return View(target, rest, {}) if _view(node.args[0]) is not None else None
    schema = getattr(target, "_schema", None)
    first = schema.returns[0].alias_info if schema is not None and schema.returns else None
    if first is None or first.is_write:
        return None
    return View(target, rest, named)


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
