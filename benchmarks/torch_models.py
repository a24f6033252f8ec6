"""This module runs the architectures of model_zoo.py in PyTorch: Tilewright's backend, eager and inductor, in turns.

    python benchmarks/torch_models.py [NAME ...] [--threads 1] [--db tuning.db] [--tune 60s] [--markdown]

A row has medians in milliseconds, the largest difference from eager relative to the largest output, and the seconds
that the first call took. Models of transformers take PyTorch's own attention (``--attention eager`` writes it out).
Inductor needs a C++ compiler. ``--profile`` prints where the time of our kernels goes.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import model_table
import model_zoo
import torch

import tilewright as tw

CONTENDERS = ("tilewright", "eager", "inductor")


def _model(name: str, attention: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(model_zoo.SEED)
    model, inputs = model_zoo.MODELS[name]()
    for part in model.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation(attention)
    return model.eval(), inputs


def _flat(out: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns one row: by contender the median milliseconds, the difference from eager, the seconds of the first call."""
    model, inputs = _model(name, options.attention)
    ours = {"db": options.db, "tune": options.tune, "strict": options.strict}
    chosen = {k: v for k, v in ours.items() if v}
    makers = {
        "tilewright": lambda: torch.compile(model, backend=tw.torch.backend, options=chosen),
        "eager": lambda: model,
        "inductor": lambda: torch.compile(model, backend="inductor"),
    }
    runs: dict[str, model_table.Run] = {}
    row: dict[str, Any] = {"model": name}
    with torch.no_grad():
        expected = _flat(model(*inputs))
        for label in options.contenders.split(","):
            torch._dynamo.reset()
            function = makers[label]()
            start = time.perf_counter()
            got = _flat(function(*inputs))
            seconds = time.perf_counter() - start
            apart = [
                float((g - e).abs().max() / e.abs().max().clamp(min=1e-30)) for g, e in zip(got, expected, strict=True)
            ]
            row[label] = {"first_seconds": seconds, "difference": max(apart)}
            runs[label] = lambda function=function: function(*inputs)
        for label, ms in model_table.medians(runs, options.rounds).items():
            row[label]["ms"] = ms
    return row


def _with_warnings(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns one row with what the backend warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        row = compare(name, options)
    return {**row, "said": sorted({str(w.message) for w in said if "tilewright" in str(w.message)})}


def profile(name: str, options: argparse.Namespace) -> str:
    """Returns where the time of our kernels goes, for each of the model's graphs."""
    from tilewright.doors import compile_backend

    made: list[Any] = []
    init = compile_backend.Region.__init__

    def noted(region: Any, *given: Any) -> None:
        init(region, *given)
        made.append(region)

    model, inputs = _model(name, options.attention)
    with torch.no_grad(), mock.patch.object(compile_backend.Region, "__init__", noted):
        torch.compile(model, backend=tw.torch.backend, options={"db": options.db} if options.db else {})(*inputs)
    models = [one.model for region in made for one in region.built.values()]
    arrays = [[torch.zeros(v.shape, dtype=getattr(torch, v.dtype)) for v in m.inputs] for m in models]
    return "\n".join(str(m.profile(*given)) for m, given in zip(models, arrays, strict=True))


def main() -> None:
    """Runs the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description="Models in PyTorch: Tilewright's backend, eager and inductor.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--db", help="records of tuned kernels")
    parser.add_argument("--tune", help="the time for tuning each graph, such as 60s")
    parser.add_argument("--strict", action="store_true", help="errors in place of running eagerly")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    options = parser.parse_args()
    # This module registers detection operators of torchvision's compiled library, which may be built for another torch.
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("_meta_registrations"))
    torch.set_num_threads(options.threads)
    names = options.names or list(model_zoo.MODELS)
    if options.profile:
        for name in names:
            print(profile(name, options), flush=True)
        return
    model_table.show(names, lambda name: _with_warnings(name, options), CONTENDERS, options)


if __name__ == "__main__":
    main()
