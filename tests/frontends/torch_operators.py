"""``python -m tests.frontends.torch_operators``: PyTorch's own samples of its operators, run through Tilewright.

Each sample of ``op_db`` is traced into core ATen operators. Each of its calls is then read into a graph of its own,
compiled, and compared with what PyTorch computed. Calls that draw random numbers or hold complex numbers are left out.

``--markdown docs/reference/torch-operators.md`` writes the table of that page. Calls of one operator are compiled
together, and one by one where that fails. ``--state FILE`` keeps the counts while the run goes on. ``--own`` makes the
calls of :mod:`.torch_samples` alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import operator
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tilewright.driver.models.model_building import build_graph
from tilewright.frontends.torch import ProgramReader, TorchError, UnsupportedTorchOperators, to_array
from tilewright.graph import GraphError, evaluate

from .torch_samples import own_calls

Call = tuple[Any, Any, Any, Any]
"""An operator, its arguments, its named arguments and what it returned."""

Tally = dict[str, Counter[str]]
"""Counts per overload and data type: ``""`` are calls that agree, other texts are the problems."""

DTYPES = "float32,int64,bool"
"""The data types of samples."""


_DRAWN = 40
"""How many samples are drawn of an operator and data type, of which a few are taken."""


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
    from torch.testing._internal.opinfo import core

    core.extract_test_fn = lambda: None  # it looks for a test among the callers, which takes long
    for place, info in enumerate(op_db):
        if place % options.jobs != options.part:
            continue
        if info.name.startswith("fft.") or not re.search(options.only, info.name):  # those are complex
            continue
        for dtype in [getattr(torch, d) for d in options.dtypes.split(",")]:
            if not info.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            try:
                given = list(itertools.islice(info.sample_inputs("cpu", dtype), _DRAWN))
            except Exception:  # some samples need libraries that are not installed
                continue
            given.sort(key=_elements)
            count = options.samples if dtype.is_floating_point else 1
            for sample in given[:: max(1, len(given) // count)][:count]:
                yield f"{info.name} {dtype}", info.op, (sample.input, *sample.args), sample.kwargs


def _elements(sample: Any) -> int:
    flat, _ = tree_flatten((sample.input, sample.args))
    return sum(t.numel() for t in flat if isinstance(t, torch.Tensor))


class Calls(torch.fx.Interpreter):
    """Runs a graph, and collects its calls: the operator, its arguments and what it returns."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)
        self.seen: list[Call] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        kept = tree_map(_copied, args)
        out = super().call_function(target, args, kwargs)
        outside = "as_strided" in str(target) and args[0].untyped_storage().nbytes() != args[0].nbytes
        if str(target).startswith("aten.") and not outside:  # such a call reads more than its argument
            self.seen.append((target, kept, kwargs, tree_map(_copied, out)))
        return out


def _copied(t: Any) -> Any:
    """Returns a copy of a tensor: later calls may change it in place."""
    return t.clone() if isinstance(t, torch.Tensor) else t


def calls_of(function: Any, args: Any, kwargs: Any, more: bool) -> list[Call]:
    """Returns the calls that a sample makes: decomposed into core operators, as they are, and in the gradient."""
    flat, spec = tree_flatten((args, kwargs))
    tensors = [t.detach() for t in flat if isinstance(t, torch.Tensor)]

    def call(*given: Any) -> Any:
        it = iter(given)
        again = [next(it) if isinstance(t, torch.Tensor) else t for t in flat]
        new_args, new_kwargs = tree_unflatten(again, spec)
        return function(*new_args, **new_kwargs)

    def gradients(*given: Any) -> Any:
        places = [n for n, g in enumerate(given) if g.is_floating_point()]

        def of_floats(*leaves: Any) -> tuple[Any, ...]:
            every = list(given)
            for n, leaf in zip(places, leaves, strict=True):
                every[n] = leaf
            out = [t for t in tree_flatten(call(*every))[0] if isinstance(t, torch.Tensor) and t.is_floating_point()]
            return tuple(out)

        out, pull = torch.func.vjp(of_floats, *[given[n] for n in places])
        return pull(tuple(torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape) for t in out))

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


def graph_of(calls: Sequence[Call]) -> tuple[Any, list[Any]]:
    """Returns a graph of calls, of which all results are read, and its inputs."""
    graph, tensors, results = torch.fx.Graph(), [], []

    def held(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        tensors.append(t)
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = t
        return node

    for target, args, kwargs, out in calls:
        node = graph.call_function(target, tree_map(held, args), tree_map(held, kwargs))
        node.meta["val"] = out
        parts = [node]
        if isinstance(out, (list, tuple)):
            parts = [graph.call_function(operator.getitem, (node, n)) for n, e in enumerate(out) if e is not None]
        for part, val in zip(parts, expected(out), strict=True):
            part.meta["val"] = val
        results += parts
    graph.output(tuple(results))
    return graph, tensors


def expected(out: Any) -> list[Any]:
    """Returns the tensors that a call returned."""
    return [e for e in (out if isinstance(out, (list, tuple)) else [out]) if e is not None]


def run(graph: Any, tensors: list[Any], compiled: bool) -> list[np.ndarray]:
    """Returns the results of the graph by Tilewright."""
    reader = ProgramReader("main")
    for node, t in zip([n for n in graph.nodes if n.op == "placeholder"], tensors, strict=True):
        reader.actual_input(node, t)
    reader.read(graph.nodes)
    (results,) = graph.output_node().args
    ours = reader.graph([reader.result(r) for r in results])
    arrays = [to_array(t) for t in tensors]
    if compiled:
        out = build_graph(ours, "native -num-cores=1", processes=0)(*arrays)
        return list(out) if isinstance(out, tuple) else [out]
    return list(evaluate(ours, *arrays))


def check(calls: Sequence[Call], compiled: bool) -> list[str]:
    """Returns the problem of each call, or empty texts."""
    try:
        got = iter(run(*graph_of(calls), compiled))
    except Exception as error:
        if len(calls) > 1:
            return [problem for call in calls for problem in check([call], compiled)]
        return [_told(error)]
    out = []
    for call in calls:
        mine = [next(got) for _ in expected(call[3])]
        if str(call[0]) in _ORDERED:  # equal elements may come in any order
            mine[1] = _places(call, *mine)
        problems = [_difference(g, e, ".empty" in str(call[0])) for g, e in zip(mine, expected(call[3]), strict=True)]
        out.append(next(filter(None, problems), ""))
    return out


_ORDERED = ("aten.sort.default", "aten.topk.default")


def _places(call: Call, values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns PyTorch's places of sorted elements when these are right as well, else ``places``."""
    x, named = call[1][0], {"dim": -1, **call[2]}
    after = call[1][2:] if "topk" in str(call[0]) else call[1][1:]
    dim = after[0] if after else named["dim"]
    if not x.ndim:
        return places
    distinct = all(len(set(row)) == len(row) for row in np.moveaxis(places, dim, -1).reshape(-1, places.shape[dim]))
    found = np.take_along_axis(x.numpy(), places, dim)
    right = distinct and np.array_equal(found, values, equal_nan=found.dtype.kind == "f")
    return call[3][1].numpy() if right else places


def _told(error: Exception) -> str:
    if isinstance(error, UnsupportedTorchOperators):
        return "no converter"
    if isinstance(error, (TorchError, GraphError)):
        return f"refused: {str(error).partition('): ')[2] or error}"
    return f"{type(error).__name__}: {error}"  # a defect: named in the table


def _difference(got: np.ndarray, expected: Any, any_elements: bool) -> str:
    want = expected.detach().resolve_conj().resolve_neg().numpy()
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if got.dtype != want.dtype:
        return f"data type {got.dtype}, not {want.dtype}"
    if any_elements:
        return ""
    if want.dtype.kind == "f":
        same = np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    else:
        same = bool(np.array_equal(got, want))
    return "" if same else "wrong numbers"


def signature(call: Call) -> str:
    """Returns what tells apart two calls of one operator, in text: types of tensors, and other arguments."""
    return str(tree_map(lambda t: (t.dtype, t.shape) if isinstance(t, torch.Tensor) else t, call[:3]))


def is_left_out(call: Call) -> bool:
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
    parser.add_argument("--samples", type=int, default=2, help="how many samples of an operator in float32")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the operators")
    parser.add_argument("--enough", type=int, default=3, help="how many calls of an overload and data type")
    parser.add_argument("--reference", action="store_true", help="the reference evaluation in place of compiled code")
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--plain", action="store_true", help="no gradients, which take most of the time")
    parser.add_argument("--own", action="store_true", help="only the calls that are written in torch_samples.py")
    parser.add_argument("--state", type=Path, help="a file for the counts so far")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    options = parser.parse_args()
    core = core_overloads()
    tally: Tally = defaultdict(Counter)
    parts = [argparse.Namespace(**vars(options), part=n) for n in range(options.jobs)]
    if options.jobs == 1:
        found = [tallied(parts[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            found = pool.map(tallied, parts, chunksize=1)
    for one in found:
        for name, counts in one.items():
            tally[name].update(counts)
    told(tally, core, options.markdown)


def tallied(options: argparse.Namespace) -> Tally:
    """Runs a part of the samples, and returns the counts."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    core = core_overloads()
    tally: Tally = defaultdict(Counter)

    def settle(dtype: str, calls: Sequence[Call]) -> None:
        for call, problem in zip(calls, check(calls, not options.reference), strict=True):
            tally[f"{call[0]} {dtype}"][problem[:160]] += 1
            if problem:
                print(f"{signature(call)[:400]}: {problem[:300]}", flush=True)
        if options.state:
            options.state.with_suffix(f".{options.part}").write_text(json.dumps(tally))

    waiting: dict[tuple[str, str], list[Call]] = defaultdict(list)
    seen: set[str] = set()
    for dtype, call in every_call(options):
        group, known = waiting[str(call[0]), dtype], signature(call)
        if options.overload not in str(call[0]) or str(call[0]) not in core or known in seen or is_left_out(call):
            continue
        seen.add(known)
        if len(group) < options.enough:
            group.append(call)
            if len(group) == options.enough:
                settle(dtype, group)
    for (_, dtype), group in waiting.items():
        if 0 < len(group) < options.enough:
            settle(dtype, group)
    return dict(tally)


def every_call(options: argparse.Namespace) -> Iterator[tuple[str, Call]]:
    """Yields the calls with the data types of their samples: those that are written here come first."""
    if options.part == 0:
        yield from (one for one in own_calls() if re.search(options.only, str(one[1][0]).removeprefix("aten.")))
    for name, function, args, kwargs in () if options.own else samples(options):
        dtype = name.split()[1].removeprefix("torch.")
        for call in calls_of(function, args, kwargs, "float" in dtype and not options.plain):
            yield dtype, call


def told(tally: Tally, core: list[str], markdown: Path | None) -> None:
    """Print how many overloads pass, and write the table of them."""
    dtypes = DTYPES.split(",")
    of = {n: {d: tally.get(f"{n} {d}", Counter()) for d in dtypes} for n in core}
    problems = {n: sum((found for found in of[n].values()), Counter()) for n in core}
    good = [n for n in core if set(problems[n]) == {""}]
    partly = [n for n in core if "" in problems[n] and n not in good]
    absent = [n for n in core if not problems[n]]
    summary = (
        f"Of {len(core)} core overloads {len(good)} pass all calls, {len(partly)} some, {len(absent)} were not called"
    )
    for d in dtypes:
        called = [n for n in core if of[n][d]]
        passed = [n for n in called if set(of[n][d]) == {""}]
        summary += f"; in {d} {len(passed)} of {len(called)} that were called"
    print(summary)
    if markdown is None:
        return
    lines = [
        "# Operators of PyTorch",
        "",
        "`python -m tests.frontends.torch_operators --markdown docs/reference/torch-operators.md` writes this page. It runs",
        "PyTorch's own samples (`op_db`; float32, int64, bool; their gradients for float32) and calls of its own",
        "(`tests/frontends/torch_samples.py`) through compiled code, and compares each call with eager PyTorch. Random and",
        "complex numbers are left out, and operators without samples are not called. A column has the calls of one data type",
        "that are equal; `/` and a number follow where that is not all of them.",
        f"{summary}.",
        "",
        f"| operator | {' | '.join(dtypes)} | refused or wrong |",
        "|---|" + "---|" * (len(dtypes) + 1),
    ]
    for n in core:
        text = "; ".join(f"{problem} ({count})" for problem, count in problems[n].items() if problem)
        counts = [_counted(of[n][d]) for d in dtypes]
        lines.append(f"| `{n}` | {' | '.join(counts)} | {' '.join(text.replace('|', '/').split())[:200]} |")
    markdown.write_text("\n".join(lines) + "\n")


def _counted(found: Counter[str]) -> str:
    """Returns how many calls are equal, and of how many where that is not all."""
    every = sum(found.values())
    return "" if not every else str(every) if found[""] == every else f"{found['']} / {every}"


if __name__ == "__main__":
    main()
