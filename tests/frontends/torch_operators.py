"""``python -m tests.frontends.torch_operators``: PyTorch's own samples of its operators, run through Tilewright.

Each sample of ``op_db`` is traced into core ATen operators, read into a graph, and compared with what PyTorch computes.
``--markdown FILE`` writes the table of operators that docs/guides/pytorch.md includes.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.driver.models.model_building import build_graph
from tilewright.frontends.torch import Reader, TorchError, UnsupportedTorchOperators
from tilewright.graph import GraphError, evaluate

_SAMPLES = 4
"""How many samples of an operator and data type are run."""


@dataclass
class Tally:
    """Counts per overload: samples that agree, and the problems of the others."""

    passed: Counter[str] = field(default_factory=Counter)
    problems: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def core_overloads() -> list[str]:
    """Returns the names of the operators that PyTorch tags as core."""
    found = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            one = getattr(packet, overload)
            if torch.Tag.core in one.tags:
                found.add(str(one))
    return sorted(found)


def samples(only: str, dtypes: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields the name, the function, the arguments and the named arguments of samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if only and only not in info.name:
            continue
        for dtype in dtypes:
            if not info.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            try:
                given = list(info.sample_inputs("cpu", dtype))
            except Exception:  # some samples need libraries that are not installed
                continue
            given.sort(key=_elements)
            for sample in given[:: max(1, len(given) // _SAMPLES)][:_SAMPLES]:
                yield f"{info.name} {dtype}", info.op, (sample.input, *sample.args), sample.kwargs


def _elements(sample: Any) -> int:
    flat, _ = torch.utils._pytree.tree_flatten((sample.input, sample.args))
    return sum(t.numel() for t in flat if isinstance(t, torch.Tensor))


def traced(function: Any, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """Returns the graph of core operators, and its inputs."""
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    tensors = [t.detach() for t in flat if isinstance(t, torch.Tensor)]

    def call(*given: Any) -> Any:
        it = iter(given)
        again = [next(it) if isinstance(t, torch.Tensor) else t for t in flat]
        new_args, new_kwargs = torch.utils._pytree.tree_unflatten(again, spec)
        return function(*new_args, **new_kwargs)

    functional = torch.func.functionalize(call, remove="mutations_and_views")
    return make_fx(functional, decomposition_table=core_aten_decompositions())(*tensors), tensors


def run(gm: Any, tensors: list[Any], compiled: bool) -> list[np.ndarray]:
    """Returns the results of the graph by Tilewright."""
    reader = Reader("main")
    for node, t in zip([n for n in gm.graph.nodes if n.op == "placeholder"], tensors, strict=True):
        reader.actual_input(node, t)
    reader.read(gm.graph.nodes)
    (results,) = gm.graph.output_node().args
    graph = reader.graph([r for r in (results if isinstance(results, (list, tuple)) else [results]) if r is not None])
    arrays = [t.contiguous().numpy() for t in tensors]
    if compiled:
        out = build_graph(graph, "native -num-cores=1")(*arrays)
        return list(out) if isinstance(out, tuple) else [out]
    return list(evaluate(graph, *arrays))


def check(function: Any, args: Any, kwargs: Any, tally: Tally, compiled: bool) -> str:
    """Runs one sample, and returns the problem, or an empty text."""
    try:
        gm, tensors = traced(function, args, kwargs)
    except Exception:  # what PyTorch itself cannot trace (sizes that depend on values, checks of arguments)
        return ""
    names = {str(n.target) for n in gm.graph.nodes if n.op == "call_function" and str(n.target).startswith("aten.")}
    with torch.no_grad():
        expected = gm(*tensors)
    flat = [e for e in torch.utils._pytree.tree_flatten(expected)[0] if isinstance(e, torch.Tensor)]
    problem = ""
    try:
        got = run(gm, tensors, compiled)
        for g, e in zip(got, flat, strict=True):
            problem = problem or _difference(g, e)
    except UnsupportedTorchOperators as error:
        for name, places in error.operators.items():
            tally.problems[name]["no converter"] += len(places)
        return str(error)
    except (TorchError, GraphError) as error:
        problem = f"refused: {error}"
    except Exception as error:  # a defect: named in the table
        problem = f"{type(error).__name__}: {error}"
    for name in names:
        if not problem:
            tally.passed[name] += 1
        elif len(names) == 1 or name in problem:
            tally.problems[name][problem[:160]] += 1
    return problem


def _difference(got: np.ndarray, expected: Any) -> str:
    want = expected.detach().numpy()
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if got.dtype != want.dtype:
        return f"data type {got.dtype}, not {want.dtype}"
    if want.dtype.kind == "f":
        same = np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    else:
        same = bool(np.array_equal(got, want))
    return "" if same else "wrong numbers"


def main() -> None:
    """Runs the samples that the command line asks for."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators whose name has this text")
    parser.add_argument("--reference", action="store_true", help="the reference evaluation in place of compiled code")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--markdown", help="a file for the table")
    options = parser.parse_args()
    tally = Tally()
    dtypes = tuple(getattr(torch, d) for d in options.dtypes.split(","))
    ran = failed = 0
    for name, function, args, kwargs in samples(options.only, dtypes):
        problem = check(function, args, kwargs, tally, not options.reference)
        ran += 1
        if problem:
            failed += 1
            print(f"{name}: {problem[:300]}", flush=True)
    core = core_overloads()
    good = [n for n in core if tally.passed[n] and not tally.problems.get(n)]
    partly = [n for n in core if tally.passed[n] and tally.problems.get(n)]
    print(
        f"{ran} samples, {failed} with problems; of {len(core)} core overloads {len(good)} pass all, {len(partly)} some"
    )
    if options.markdown:
        lines = ["| operator | samples passed | not supported or wrong |", "|---|---|---|"]
        for n in core:
            text = "; ".join(f"{problem} ({count})" for problem, count in tally.problems.get(n, {}).items())
            lines.append(f"| `{n}` | {tally.passed[n]} | {text.replace('|', '/')[:200]} |")
        with open(options.markdown, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
