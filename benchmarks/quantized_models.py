"""This script quantizes the networks of model_zoo.py by ONNX Runtime's quantizer, and times them here and there in turns.

    python benchmarks/model_zoo.py FOLDER        # once: writes the models
    python benchmarks/quantized_models.py FOLDER [NAME ...] [--forms dynamic,QDQ] [--threads 1] [--seconds 4] [--out rows.jsonl]

A row has the ratios of ONNX Runtime's time, and of the time of the float32 model here, to the quantized model's time here,
and the largest difference from ONNX Runtime's outputs without its optimizations, relative to the largest output. Networks
without an output are left out with the reason.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from table import print_table

import tilewright as tw


class _Samples(quantization.CalibrationDataReader):
    """The calibration's samples: the recorded input, and noisy copies of it."""

    def __init__(self, inputs: dict[str, np.ndarray], count: int = 4) -> None:
        rng = np.random.default_rng(0)
        self.samples = [
            {n: x if x.dtype.kind != "f" else (x + 0.1 * k * rng.standard_normal(x.shape)).astype(x.dtype)
             for n, x in inputs.items()}
            for k in range(count)
        ]  # fmt: skip
        self.left = iter(self.samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


def quantized(path: Path, form: str, inputs: dict[str, np.ndarray], folder: str) -> Path:
    """Returns the file of the network in a form that ONNX Runtime's quantizer writes."""
    target = Path(folder) / f"{path.stem}.{form}.onnx"
    inferred = Path(folder) / "inferred.onnx"
    quantization.shape_inference.quant_pre_process(str(path), str(inferred), skip_symbolic_shape=True)
    if form == "dynamic":
        quantization.quantize_dynamic(inferred, target)
    else:
        quantization.quantize_static(inferred, target, _Samples(inputs), per_channel=True,
                                     quant_format=quantization.QuantFormat.QDQ)  # fmt: skip
    return target


def session(path: Path, threads: int, optimized: bool = True) -> Any:
    """Returns a session of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float, threads: int) -> dict[str, float]:
    """Returns the least seconds of each call, in turns. Those of one thread are its own time, which other work on the core does not lengthen."""
    now = time.thread_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(calls, math.inf)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or math.inf in best.values():
        for name, call in calls.items():
            start = now()
            call()
            best[name] = min(best[name], now() - start)
    return best


def row_of(path: Path, form: str, threads: int, seconds: float) -> dict[str, Any]:
    """Returns the figures of one network."""
    data = np.load(path.with_suffix(".npz"))
    inputs = {n: data[n] for n in data.files if n.startswith("x")}
    target = f"native -num-cores={threads}"
    with tempfile.TemporaryDirectory() as folder:
        file = quantized(path, form, inputs, folder)
        names = {v.name for v in onnx.load(str(file), load_external_data=False).graph.input}
        given = {n: x for n, x in inputs.items() if n in names}
        want = session(file, threads, optimized=False).run(None, given)
        peer = session(file, threads)
        start = time.perf_counter()
        run = tw.build(tw.from_onnx(file), target)
        build_seconds = time.perf_counter() - start
        plain = tw.build(tw.from_onnx(path), target)
        arrays = [given[v.name] for v in run.inputs]
        made = run(*arrays)
        outputs = made if isinstance(made, tuple) else (made,)
        apart = [float(np.abs(g - w).max() / max(np.abs(w).max(), 1e-9)) for g, w in zip(outputs, want, strict=True)]
        theirs = peer.run(None, given)
        peers = [float(np.abs(g - w).max() / max(np.abs(w).max(), 1e-9)) for g, w in zip(theirs, want, strict=True)]
        best = in_turns({"here": lambda: run(*arrays), "float32": lambda: plain(*[given[v.name] for v in plain.inputs]),
                         "ONNX Runtime": lambda: peer.run(None, given)}, seconds, threads)  # fmt: skip
    return {"name": path.stem, "form": form, "threads": threads, "seconds": best, "error": max(apart),
            "error of ONNX Runtime": max(peers), "build": build_seconds}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--forms", default="dynamic,QDQ")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines, ratios = [], []
    for path in sorted(chosen.folder.glob("*.onnx")):
        for form in chosen.forms.split(",") if not chosen.names or path.stem in chosen.names else []:
            try:
                row = row_of(path, form, chosen.threads, chosen.seconds)
            except Exception as error:  # a network that cannot be quantized or read is a line of the table
                row = {"name": path.stem, "form": form, "failed": f"{type(error).__name__}: {str(error)[:120]}"}
            if chosen.out:
                with chosen.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if "failed" in row:
                lines.append([row["name"], form, "", "", "", "", row["failed"]])
                print(lines[-1], flush=True)
                continue
            best = row["seconds"]
            peer, wide = (best[n] / best["here"] for n in ("ONNX Runtime", "float32"))
            ratios.append(peer)
            lines.append([row["name"], form, f"{1e3 * best['here']:.2f} ms", f"{peer:.2f}", f"{wide:.2f}",
                          f"{row['error']:.1e}", f"{row['error of ONNX Runtime']:.1e}"])  # fmt: skip
            print(lines[-1], flush=True)
    head = ["network", "form", "here", "ONNX Runtime / here", "float32 / here", "error", "ONNX Runtime's error"]
    print_table("Quantized networks, in turns", head, lines)
    if ratios:
        print(f"geometric mean over ONNX Runtime: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
