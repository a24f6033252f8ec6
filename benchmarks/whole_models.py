"""This module runs whole models in Tilewright, ONNX Runtime and OpenVINO, in turns, and prints a table.

    python benchmarks/model_zoo.py FOLDER        # once: writes the models
    python benchmarks/whole_models.py FOLDER [NAME ...] [--threads 1] [--db tuning.db] [--markdown]

A row has medians in milliseconds, the largest relative difference from PyTorch's outputs, the seconds that building
took, and the peak memory of a process that loads the model and runs it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import model_table
import numpy as np
from model_table import Run


def ours(path: Path, inputs: dict[str, np.ndarray], threads: int, db: str | None) -> Run:
    """Returns a run of the model that Tilewright builds; its outputs are allocated before."""
    import tilewright as tw

    run = tw.build(tw.from_onnx(path), f"native -num-cores={threads}", db=db)
    arrays = list(inputs.values())
    first = run(*arrays)
    outputs = first if isinstance(first, tuple) else (first,)
    return lambda: (run(*arrays, out=outputs), outputs)[1]


def onnx_runtime(path: Path, inputs: dict[str, np.ndarray], threads: int, db: str | None) -> Run:
    """Returns a run in ONNX Runtime with all optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def openvino(path: Path, inputs: dict[str, np.ndarray], threads: int, db: str | None) -> Run:
    """Returns a run in OpenVINO, hinted for latency in float32."""
    import openvino as ov

    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    request = ov.Core().compile_model(str(path), "CPU", options).create_infer_request()
    arrays = list(inputs.values())
    return lambda: [np.asarray(v) for v in request.infer(arrays, share_inputs=True, share_outputs=True).values()]


CONTENDERS = {
    "tilewright": ("tilewright", ours),
    "ONNX Runtime": ("onnxruntime", onnx_runtime),
    "OpenVINO": ("openvino", openvino),
}


def _load(folder: Path, name: str) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    data = np.load(folder / f"{name}.npz")
    inputs = {k: data[k] for k in data.files if k.startswith("x")}
    return folder / f"{name}.onnx", inputs, [data[k] for k in data.files if k.startswith("y")]


def _difference(got: Any, expected: list[np.ndarray]) -> float:
    return max(
        float(np.abs(np.asarray(g, np.float64) - e).max() / max(np.abs(e).max(), 1e-30))
        for g, e in zip(got, expected, strict=True)
    )


def compare(folder: Path, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns one row: by contender the median milliseconds, the difference, the seconds before the first result."""
    path, inputs, expected = _load(folder, name)
    runs: dict[str, Run] = {}
    row: dict[str, Any] = {"model": name}
    for label, (module, maker) in CONTENDERS.items():
        if importlib.util.find_spec(module) is None:
            continue
        start = time.perf_counter()
        runs[label] = maker(path, inputs, options.threads, options.db)
        got = runs[label]()
        row[label] = {"first_seconds": time.perf_counter() - start, "difference": _difference(got, expected)}
    for label, ms in model_table.medians(runs, options.rounds, pause=0.1 if options.threads > 1 else 0.0).items():
        row[label]["ms"] = ms
    if options.memory:
        for label in runs:
            row[label]["peak_mb"] = _peak_in_a_child(folder, name, label, options)
    return row


def _peak_in_a_child(folder: Path, name: str, label: str, options: argparse.Namespace) -> float:
    """Returns the peak of a process that loads and runs the model. Ours is a library that was built before, as it is
    deployed: the process neither reads the model's file nor compiles."""
    words = [sys.executable, __file__, str(folder), name, "--only", label, "--threads", str(options.threads)]
    with tempfile.TemporaryDirectory() as built:
        if label == "tilewright":
            import tilewright as tw

            target = f"native -num-cores={options.threads}"
            tw.build(folder / f"{name}.onnx", target, db=options.db).export(Path(built) / "model.so", "model")
            words += ["--library", str(Path(built) / "model.so")]
        return float(
            json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        )


def _library(path: Path, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]) -> Run:
    """Returns a run of an exported library, whose function takes inputs, outputs, and no workspace of ours."""
    function = ctypes.CDLL(str(path)).model
    words = [array.ctypes for array in (*inputs.values(), *[np.empty_like(y) for y in outputs])]
    return lambda: function(*words, None)


def _own_peak(folder: Path, name: str, options: argparse.Namespace) -> float:
    """Returns how many megabytes the process grows by loading and running the model."""
    path, inputs, outputs = _load(folder, name)
    module, maker = CONTENDERS[options.only]
    if options.library is None:
        importlib.import_module(module)
    before = _peak_of_this_process()
    run = _library(options.library, inputs, outputs) if options.library else maker(path, inputs, options.threads, None)
    for _ in range(2):
        run()
    return _peak_of_this_process() - before


def _peak_of_this_process() -> float:
    """Returns the largest resident memory so far, in megabytes (Linux; ``ru_maxrss`` would begin with the parent's)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Runs the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description="Whole models against ONNX Runtime and OpenVINO.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--db", help="records of tuned kernels")
    parser.add_argument("--memory", action="store_true", help="peak memory as well, each in a process of its own")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=[*CONTENDERS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(_own_peak(options.folder, options.names[0], options))
        return
    names = options.names or sorted(p.stem for p in options.folder.glob("*.onnx"))
    model_table.show(names, lambda name: compare(options.folder, name, options), list(CONTENDERS), options)


if __name__ == "__main__":
    main()
