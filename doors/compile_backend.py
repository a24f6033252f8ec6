"""This module is a backend of torch.compile: what it supports becomes one library per graph, the rest runs eagerly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..codegen import Target
from ..driver.models.model import Model
from ..driver.models.model_building import build_graph
from ..frontends.torch import Reader, TorchError, is_supported, load_torch
from ..graph.graph import Graph, Value

_TENSOR = object()
"""Marks the results that are tensors; others are numbers, or None."""
_OPTIONS = ("db", "strict", "target")
_said: set[str] = set()


def backend(gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Returns a function that runs a graph of torch.compile in kernels of Tilewright.

    ``options``: ``db`` (a file with tuning records), ``target``, and ``strict``, which makes an error of what is not
    supported or fails; otherwise that part runs eagerly, which is said once. Parameters are read when the function is
    called first, and again when they have changed since.
    """
    aot_autograd = load_torch("_dynamo.backends.common").aot_autograd
    boxed = load_torch("_functorch.aot_autograd").make_boxed_func
    chosen = {**dict(options or {}), **more}
    unknown = sorted(set(chosen) - {*_OPTIONS, "mode", "dynamic"})
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")

    def compile_graph(graph_module: Any, inputs: Sequence[Any]) -> Any:
        return boxed(_compiled(graph_module, inputs, chosen))

    compiled = aot_autograd(fw_compiler=compile_graph, decompositions=load_torch("_decomp").core_aten_decompositions())
    return compiled(gm, example_inputs)


def _compiled(gm: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a function of the graph's inputs: one library when all is supported, parts of it else."""
    missing = sorted({str(n.target) for n in gm.graph.nodes if n.op == "call_function" and not is_supported(n)})
    if not missing:
        return Region(gm, options)
    if options.get("strict"):
        raise TorchError(f"operators that are not supported: {', '.join(missing)}")
    _say(f"run eagerly, for they are not supported: {', '.join(missing)}")
    support = load_torch("fx.passes.operator_support")
    partitioners = load_torch("fx.passes.infra.partitioner")

    class Supported(support.OperatorSupportBase):  # type: ignore[name-defined,misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return is_supported(node) and _is_of_tensors(node)

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

    class Part(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, *args: Any) -> Any:
            out = region(*args)
            return out[0] if region.single else tuple(out)

    return Part()


def _say(text: str) -> None:
    """Warn once of each text."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"tilewright: {text}", stacklevel=2)


class Region:
    """A region of a program. It is built when it is called first, since only then the parameters are there; an error
    makes it run eagerly from then on."""

    def __init__(self, gm: Any, options: Mapping[str, Any]) -> None:
        self.gm, self.options = gm, options
        self.holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        (self.results,) = gm.graph.output_node().args
        self.single = not isinstance(self.results, (list, tuple))
        self.held: list[int] | None = None
        self.keyed: list[int] = []
        self.built: dict[Any, _Built] = {}
        self.failed = False

    def __call__(self, *args: Any) -> list[Any]:
        if not self.failed:
            try:
                return self._run(args)
            except Exception as error:  # an error here must not take the user's program down
                if self.options.get("strict"):
                    raise
                self.failed = True
                _say(f"a graph runs eagerly: {type(error).__name__}: {error}")
        out = self.gm(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    def _run(self, args: Sequence[Any]) -> list[Any]:
        threads = load_torch().get_num_threads()
        if self.held is None:
            self.held = [n for n, a in enumerate(args) if _is_parameter(a)]
            self.keyed = [n for n in range(len(args)) if n not in self.held]
        key = (threads, *[_type(args[n]) for n in self.keyed])
        built = self.built.get(key)
        if built is None or not built.is_current(args):
            built = self.built[key] = _Built(self, args, threads)
        return built.run(args)


def _type(a: Any) -> Any:
    return (a.shape, a.dtype) if hasattr(a, "dtype") else a


def _is_parameter(a: Any) -> bool:
    return type(a).__name__ == "Parameter" and not load_torch().is_grad_enabled()


def _plain(torch: Any, t: Any) -> Any:
    """Returns a tensor without gradient whose memory holds its elements one after the other."""
    if t.requires_grad or type(t) is not torch.Tensor:
        t = t.detach()
    if t.is_neg():
        t = t.resolve_neg()
    return t if t.is_contiguous() else t.contiguous()


class _Built:
    """A region built for inputs of one shape, with the parameters of one moment as constants."""

    def __init__(self, region: Region, args: Sequence[Any], threads: int) -> None:
        torch = load_torch()
        self.torch = torch
        self.held = region.held or []
        self.moment = self._moment(args)
        reader = Reader("main")
        self.passed = []
        for n, (node, a) in enumerate(zip(region.holders, args, strict=True)):
            if n in self.held:
                reader.constant(node, a)
            elif hasattr(a, "dtype"):
                reader.actual_input(node, a)
                self.passed.append(n)
            else:
                reader.actual_number(node, a)
        reader.read(region.gm.graph.nodes)
        results = [reader.result(r) for r in (region.results if not region.single else [region.results])]
        self.results = [_TENSOR if isinstance(r, Value) else r for r in results]
        self.graph: Graph = reader.graph([r for r in results if isinstance(r, Value)])
        target = region.options.get("target") or f"native -num-cores={threads}"
        self.model: Model = build_graph(self.graph, Target(target), db=region.options.get("db"))
        self.outputs = [(tuple(v.shape), getattr(torch, v.dtype)) for v in self.graph.outputs]

    def _moment(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        return [(args[n].data_ptr(), args[n]._version) for n in self.held]

    def is_current(self, args: Sequence[Any]) -> bool:
        """Returns whether the parameters are still those that were built in."""
        return not self.held or self.moment == self._moment(args)

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Returns new tensors with the results."""
        torch = self.torch
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in self.outputs]
        self.model(*[_plain(torch, args[n]) for n in self.passed], out=made)
        fresh = iter(made)
        return [next(fresh) if r is _TENSOR else r for r in self.results]
