"""Writes the library of the service: a small network, its headers and its packages, and inputs with their results.

``python examples/service/model.py FOLDER [CORES]`` writes into the folder. Each call runs on one core unless CORES says more: a service with a
thread for each core serves more calls a second so than with all cores in one call.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Graph
from tilewright.tir import Var

WIDTH, HIDDEN, CLASSES, MOST_ROWS = 128, 256, 10, 32


def network() -> Graph:
    """Returns a perceptron of two layers on ``rows`` rows of 128 numbers, with the probabilities of 10 classes."""
    rng = np.random.default_rng(0)
    b = Builder("scores")
    x = b.input("image", (Var("rows", "int64"), WIDTH))
    hidden = b.constant(rng.normal(0, 0.1, (HIDDEN, WIDTH)).astype(np.float32), "hidden")
    last = b.constant(rng.normal(0, 0.1, (CLASSES, HIDDEN)).astype(np.float32), "last")
    return b.graph([b.op("softmax", b.op("dense", b.op("relu", b.op("dense", x, hidden)), last))])


def main(folder: Path, cores: int = 1) -> None:
    """Write the library, and a sample of input and result that the service compares with."""
    folder.mkdir(parents=True, exist_ok=True)
    model = tw.build(network(), f"native -num-cores={cores}", bounds={"rows": MOST_ROWS})
    files = model.export(folder / "libscores.so", version="1.0.0")
    sample = np.random.default_rng(1).standard_normal((MOST_ROWS, WIDTH), np.float32)
    sample.tofile(folder / "sample.bin")
    np.asarray(model(sample)).tofile(folder / "expected.bin")
    print(", ".join([file.name for file in files]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
