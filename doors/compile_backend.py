"""A backend of torch.compile: what it supports becomes one library per graph, the rest runs eagerly.

A graph is built when it is called first, and again for other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..frontends.torch import (
    UnsupportedTorchOperators,
    core_decompositions,
    graphs_of,
    is_supported,
    load_torch,
    missing_operators,
    unknown_strides,
    unknown_strides_error,
)
from .compile_options import CompileOptions, say
from .compiled_graph import CompiledGraph, FixedGraph, SymbolicGraph, Traced


def backend(gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Returns a function that runs a graph of torch.compile in kernels of Tilewright.

    ``options`` are those of :class:`.compile_options.CompileOptions`. What is not supported or fails runs eagerly, which
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
        return _compiled(graph_module, chosen)

    compiled = aot_autograd(fw_compiler=compile_graph, decompositions=core_decompositions())
    return compiled(gm, example_inputs)


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

    class Part(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, *args: Any) -> Any:
            out = region(list(args))
            return out[0] if region.single else tuple(out)

    return Part()


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
            self.held = [n for n, a in enumerate(args) if _is_held(a)]
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
        return isinstance(val, (int, float, bool)) or val is None
    return all(isinstance(d, int) for d in val.shape)


def _is_held(a: Any) -> bool:
    """Returns whether an input is a parameter or a buffer that is not trained now."""
    kept = type(a).__name__ == "Parameter" or hasattr(a, "_dynamo_static_input_type")
    return kept and not load_torch().is_grad_enabled()


def _size(a: Any) -> Any:
    return (a.shape, a.dtype) if hasattr(a, "dtype") else a
