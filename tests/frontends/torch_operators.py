"""``python -m tests.frontends.torch_operators``: PyTorch's own samples of its operators, run through Tilewright.

Each sample of ``op_db`` is traced into core ATen operators. Each of its calls is then read into a graph of its own,
compiled, and compared with what PyTorch computed. Calls that draw random numbers or hold complex numbers are left out.

The run goes in pieces: ``--part 2/4`` takes each fourth operator, ``--state FILE`` adds to what earlier pieces found,
``--markdown FILE`` writes the table of docs/reference/torch-operators.md.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tilewright.driver.models.model_building import build_graph
from tilewright.frontends.torch import Reader, TorchError, UnsupportedTorchOperators, to_array
from tilewright.graph import GraphError, evaluate

Tally = dict[str, Counter[str]]
"""Counts per overload: ``""`` are calls that agree, other texts are the problems."""


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


def samples(options: argparse.Namespace) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields the name, the function, the arguments and the named arguments of samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    number, parts = map(int, options.part.split("/"))
    for place, info in enumerate(op_db):
        if place % parts != number - 1 or not re.search(options.only, info.name):
            continue
        for dtype in [getattr(torch, d) for d in options.dtypes.split(",")]:
            if not info.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            try:
                given = list(info.sample_inputs("cpu", dtype))
            except Exception:  # some samples need libraries that are not installed
                continue
            given.sort(key=_elements)
            for sample in given[:: max(1, len(given) // options.samples)][: options.samples]:
                yield f"{info.name} {dtype}", info.op, (sample.input, *sample.args), sample.kwargs


def _elements(sample: Any) -> int:
    flat, _ = tree_flatten((sample.input, sample.args))
    return sum(t.numel() for t in flat if isinstance(t, torch.Tensor))


class Calls(torch.fx.Interpreter):
    """Runs a graph, and collects its calls: the operator, its arguments and what it returns."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)
        self.seen: list[tuple[Any, Any, Any, Any]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        kept = tree_map(_copied, args)
        out = super().call_function(target, args, kwargs)
        if str(target).startswith("aten."):
            self.seen.append((target, kept, kwargs, tree_map(_copied, out)))
        return out


def _copied(t: Any) -> Any:
    """Returns a copy of a tensor: later calls may change it in place."""
    return t.clone() if isinstance(t, torch.Tensor) else t


def calls_of(function: Any, args: Any, kwargs: Any, more: bool) -> list[tuple[Any, Any, Any, Any]]:
    """Returns the calls that a sample makes: decomposed into core operators, as they are, and in the gradient."""
    flat, spec = tree_flatten((args, kwargs))
    tensors = [t.detach() for t in flat if isinstance(t, torch.Tensor)]

    def call(*given: Any) -> Any:
        it = iter(given)
        again = [next(it) if isinstance(t, torch.Tensor) else t for t in flat]
        new_args, new_kwargs = tree_unflatten(again, spec)
        return function(*new_args, **new_kwargs)

    def gradients(*given: Any) -> Any:
        leaves = [g.detach().requires_grad_() if g.is_floating_point() else g for g in given]
        out = [t for t in tree_flatten(call(*leaves))[0] if isinstance(t, torch.Tensor) and t.requires_grad]
        total = sum((t * torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)).sum() for t in out)
        return torch.autograd.grad(total, [t for t in leaves if t.requires_grad], allow_unused=True)

    table = core_aten_decompositions()
    found = []
    for traced, decompositions in ((call, table), *([(call, {}), (gradients, table)] if more else [])):
        try:
            functional = torch.func.functionalize(traced, remove="mutations")
            calls = Calls(make_fx(functional, decomposition_table=decompositions)(*tensors))
            with torch.no_grad():
                calls.run(*tensors)
        except Exception:  # sizes that depend on values, checks of arguments
            continue
        found += calls.seen
    return found


def single(target: Any, args: Any, kwargs: Any, out: Any) -> tuple[Any, list[Any]]:
    """Returns a graph of one call, of which all results are read, and its inputs."""
    graph, tensors = torch.fx.Graph(), []

    def held(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        tensors.append(t)
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = t
        return node

    node = graph.call_function(target, tree_map(held, args), tree_map(held, kwargs))
    node.meta["val"] = out
    results = [node]
    if isinstance(out, (list, tuple)):
        results = [graph.call_function(__import__("operator").getitem, (node, n)) for n, _ in enumerate(out)]
        for part, val in zip(results, out, strict=True):
            part.meta["val"] = val
    graph.output(tuple(results))
    return graph, tensors


def run(graph: Any, tensors: list[Any], compiled: bool) -> list[np.ndarray]:
    """Returns the results of the graph by Tilewright."""
    reader = Reader("main")
    for node, t in zip([n for n in graph.nodes if n.op == "placeholder"], tensors, strict=True):
        reader.actual_input(node, t)
    reader.read(graph.nodes)
    (results,) = graph.output_node().args
    ours = reader.graph([reader.result(r) for r in results if reader.result(r) is not None])
    arrays = [to_array(t) for t in tensors]
    if compiled:
        out = build_graph(ours, "native -num-cores=1", processes=0)(*arrays)
        return list(out) if isinstance(out, tuple) else [out]
    return list(evaluate(ours, *arrays))


def check(call: tuple[Any, Any, Any, Any], compiled: bool) -> str:
    """Returns the problem of one call, or an empty text."""
    graph, tensors = single(*call)
    try:
        got = run(graph, tensors, compiled)
    except UnsupportedTorchOperators:
        return "no converter"
    except (TorchError, GraphError) as error:
        text = str(error)
        return f"refused: {text.partition('): ')[2] or text}"
    except Exception as error:  # a defect: named in the table
        return f"{type(error).__name__}: {error}"
    out = call[3] if isinstance(call[3], (list, tuple)) else [call[3]]
    if ".empty" in str(call[0]):  # elements of any value
        return "" if all(g.shape == e.shape for g, e in zip(got, out, strict=True)) else "another shape"
    for g, e in zip(got, [e for e in out if e is not None], strict=True):
        problem = _difference(g, e)
        if problem:
            return problem
    return ""


def _difference(got: np.ndarray, expected: Any) -> str:
    want = expected.detach().resolve_conj().resolve_neg().numpy()
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if got.dtype != want.dtype:
        return f"data type {got.dtype}, not {want.dtype}"
    if want.dtype.kind == "f":
        same = np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    else:
        same = bool(np.array_equal(got, want))
    return "" if same else "wrong numbers"


def signature(call: tuple[Any, Any, Any, Any]) -> str:
    """Returns what tells apart two calls of one operator, in text: types of tensors, and other arguments."""
    return str(tree_map(lambda t: (t.dtype, t.shape) if isinstance(t, torch.Tensor) else t, call[:3]))


def is_left_out(call: tuple[Any, Any, Any, Any]) -> bool:
    """Returns whether a call draws random numbers, or holds complex numbers or results that are not tensors."""
    flat, _ = tree_flatten(call[1:])
    tensors = [t for t in flat if isinstance(t, torch.Tensor)]
    results = [r for r in tree_flatten(call[3])[0] if r is not None]
    drawn = torch.Tag.nondeterministic_seeded in call[0].tags and "dropout" not in str(call[0])
    return drawn or any(t.is_complex() for t in tensors) or not all(isinstance(r, torch.Tensor) for r in results)


def main() -> None:
    """Runs the samples that the command line asks for."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operators whose name matches this regular expression")
    parser.add_argument("--overload", default="", help="calls of overloads whose name has this text")
    parser.add_argument("--part", default="1/1", help="which part of the operators")
    parser.add_argument("--samples", type=int, default=4, help="how many samples of an operator and data type")
    parser.add_argument("--enough", type=int, default=6, help="how many calls of an overload and data type")
    parser.add_argument("--gradients", action="store_true", help="also the calls of gradients, and not decomposed")
    parser.add_argument("--reference", action="store_true", help="the reference evaluation in place of compiled code")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--state", type=Path, help="a file to which the counts are added")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    options = parser.parse_args()
    tally: Tally = defaultdict(Counter)
    if options.state and options.state.exists():
        tally.update({k: Counter(v) for k, v in json.loads(options.state.read_text()).items()})
    seen: set[str] = set()
    ran: Counter[tuple[str, Any]] = Counter()
    core = core_overloads()
    for name, function, args, kwargs in samples(options):
        for call in calls_of(function, args, kwargs, options.gradients):
            overload, known = str(call[0]), signature(call)
            kind = (overload, name.split()[1])
            if overload not in core or options.overload not in overload or known in seen or is_left_out(call):
                continue
            seen.add(known)
            if ran[kind] >= options.enough:
                continue
            ran[kind] += 1
            problem = check(call, not options.reference)
            tally[overload][problem[:160]] += 1
            if problem:
                print(f"{name}: {known[:400]}: {problem[:300]}", flush=True)
        if options.state:
            options.state.write_text(json.dumps(tally))
    told(tally, core, options.markdown)


def told(tally: Tally, core: list[str], markdown: Path | None) -> None:
    """Print how many overloads pass, and write the table of them."""
    good = [n for n in core if set(tally.get(n, ())) == {""}]
    partly = [n for n in core if "" in tally.get(n, ()) and n not in good]
    absent = [n for n in core if not tally.get(n)]
    print(
        f"of {len(core)} core overloads {len(good)} pass all calls, {len(partly)} some, {len(absent)} were not called"
    )
    if markdown is None:
        return
    lines = [
        "# Operators of PyTorch",
        "",
        "`python -m tests.frontends.torch_operators` runs PyTorch's own samples (`op_db`; float32, int64, bool) through",
        "compiled code, call by call, and compares with eager PyTorch. Random and complex numbers are left out.",
        f"Of {len(core)} core overloads {len(good)} pass all calls, {len(partly)} some.",
        "",
        "| operator | calls equal | refused or wrong |",
        "|---|---|---|",
    ]
    for n in core:
        found = tally.get(n, Counter())
        text = "; ".join(f"{problem} ({count})" for problem, count in found.items() if problem)
        lines.append(f"| `{n}` | {found.get('', 0)} | {' '.join(text.replace('|', '/').split())[:200]} |")
    markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
