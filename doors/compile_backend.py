"""This module is a backend of torch.compile: what it supports becomes one library per graph, the rest runs eagerly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..frontends.torch import (
    TorchError,
    core_decompositions,
    graphs_of,
    is_supported,
    load_torch,
    missing_operators,
    unknown_strides,
)
from .compile_options import CompileOptions
from .compiled_region import Region
from .said_once import say


def backend(gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Returns a function that runs a graph of torch.compile in kernels of Tilewright.

    ``options`` are those of :class:`.compile_options.CompileOptions`. What is not supported or fails runs eagerly, which
    is said once; the option ``strict`` makes an error of it. Parameters are read when the function is called first, and
    again when they have changed since.
    """
    aot_autograd = load_torch("_dynamo.backends.common").aot_autograd
    chosen = CompileOptions.of({**dict(options or {}), **more})

    if unknown_strides(gm.graph.nodes) is not None:
        reason = "as_strided of an intermediate result that may not be row-major"
        if chosen.strict:
            raise TorchError(f"{reason} is not supported; make its operand contiguous, or take slices")
        say(f"a graph is run eagerly, for it has {reason}")
        return gm.forward

    def compile_graph(graph_module: Any, inputs: Sequence[Any]) -> Any:
        return _compiled(graph_module, chosen)

    compiled = aot_autograd(fw_compiler=compile_graph, decompositions=core_decompositions())
    return compiled(gm, example_inputs)


def _compiled(gm: Any, options: CompileOptions) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a function of the list of the graph's inputs: one library when all is supported, parts of it else."""
    missing = sorted(missing_operators(gm.graph.nodes))
    if not missing:
        return _boxed(Region(gm, options))
    if options.strict:
        raise TorchError(f"operators that are not supported: {', '.join(missing)}")
    say(f"run eagerly, for they are not supported: {', '.join(missing)}")
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
