"""Asks the package ``triton`` what kernels of a file make of their arguments, in a process of its own."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent


def asked_of_triton(file, cases, folder):
    """Return what Triton's interpreter makes of all cases, by the numbers of case and argument; skips where it is missing.

    A case is a kernel's name, a grid, arguments and named arguments; ``tl.float16`` among these is the text "tl.float16".
    """
    elsewhere = os.environ.get("TILEWRIGHT_TRITON", "")
    pytest.importorskip("torch")
    try:
        distribution("triton")  # its module has the name of a folder of this project
    except PackageNotFoundError:
        if not elsewhere:
            pytest.skip("the package triton is not installed (TILEWRIGHT_TRITON may name the folder where it is)")
    arrays, asked = {}, []
    for n, (kernel, grid, args, named) in enumerate(cases):
        given = []
        for k, a in enumerate(args):
            if isinstance(a, np.ndarray):
                arrays[f"{n}_{k}"] = a
                given.append({"array": f"{n}_{k}"})
            else:
                given.append(a)
        asked.append([kernel, grid, given, named])
    np.savez(folder / "request.npz", **arrays)
    (folder / "request.json").write_text(json.dumps(asked))
    path = folder / file
    path.write_text((HERE / file).read_text().replace("tilewright.triton", "triton"))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": elsewhere}
    command = [sys.executable, HERE / "oracle_process.py", path, folder / "request", folder / "answer.npz"]
    done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(folder / "answer.npz")
