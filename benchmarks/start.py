"""This module times how a process starts: from nothing to the first answer of a model, and the memory at its peak.

    python benchmarks/start.py MODEL.onnx [...] [--rounds 5] [--rows rows.jsonl]

Each way is a process of its own for one thread, in turns; the least CPU seconds count. *cold*: `tw.build` with an empty cache;
*warm*: with all kernels on the disk; *exported*: `tw.load_module` of the library; *ONNX Runtime*: a session. All import what
they need, read the file and answer once. The interpreter's own start and the input are part of it. Byte code is on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from table import print_table

_INPUTS = """
import sys, numpy as np
def inputs(shapes):
    made = np.random.default_rng(0)
    return [made.integers(0, 2, s).astype(d) if np.dtype(d).kind in "iub" else made.random(s).astype(d) for s, d in shapes]
"""
_TOLD = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
_BUILD = """
import tilewright as tw
model = tw.build(tw.from_onnx(sys.argv[1]), "native -num-cores=1")
model(*inputs([(v.shape, v.dtype) for v in model.inputs]))
"""
_LOAD = """
import tilewright as tw
model = tw.load_module(sys.argv[2])
model(*inputs(json.loads(sys.argv[3])))
"""
_RUNTIME = """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
session.run(None, {v.name: x for v, x in zip(session.get_inputs(), inputs(json.loads(sys.argv[3])))})
"""
_EXPORT = """
import sys, json, tilewright as tw
model = tw.build(tw.from_onnx(sys.argv[1]), "native -num-cores=1")
model.export(sys.argv[2], "model")
print(json.dumps([[v.shape, v.dtype] for v in model.inputs]))
"""
WAYS = {"cold": _BUILD, "warm": _BUILD, "exported": "import json\n" + _LOAD, "ONNX Runtime": "import json\n" + _RUNTIME}


def _run(program: str, arguments: list[str], cache: str) -> str:
    """Returns the last line that a process prints."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def measured(model: str, rounds: int) -> dict[str, list[float]]:
    """Returns CPU seconds and MiB at the peak of each way to start."""
    best: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        library, kept = str(Path(folder) / "model.so"), str(Path(folder) / "cache")
        shapes = _run(_EXPORT, [model, library], kept)
        for turn in range(rounds):
            for way, program in WAYS.items():
                cache = str(Path(folder) / f"empty{turn}") if way == "cold" else kept
                told = json.loads(_run(_INPUTS + program + _TOLD, [model, library, shapes], cache))
                best[way] = [min(pair) for pair in zip(told, best.get(way, told), strict=True)]
    return best


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=Path, help="where rows are written as they come, and found again")
    options = parser.parse_args()
    kept = options.rows.read_text().splitlines() if options.rows and options.rows.exists() else []
    found = {row["model"]: row for row in map(json.loads, kept)}
    lines = []
    for model in options.models:
        name = Path(model).stem
        if name not in found:
            found[name] = {"model": name, **measured(model, options.rounds)}
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(json.dumps(found[name]) + "\n")
        lines.append([name, *[f"{found[name][way][0]:.2f}, {found[name][way][1]:.0f}" for way in WAYS]])
    print_table("CPU seconds, MiB", ["model", *WAYS], lines)


if __name__ == "__main__":
    main()
