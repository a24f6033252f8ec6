"""Two small models, and the oracle for them, for tests of exported libraries."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.graph import Builder
from tilewright.tir import Var

TARGET = "native -num-cores=2"


def whole(seed, *shape):
    """Returns small whole numbers as float32, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def network(name, seed, columns=17, symbolic=False):
    """Returns ``relu(x @ w.T)`` with weights of the seed; x has 7 rows, or ``n``."""
    b = Builder(name)
    x = b.input("x", (Var("n", "int64") if symbolic else 7, 16))
    return b.graph([b.op("relu", b.op("dense", x, b.constant(whole(seed, columns, 16), "w")))])


def expected(x, seed, columns=17):
    """Returns what the network gives, by NumPy."""
    return np.maximum(x @ whole(seed, columns, 16).T, 0)


def built(name, seed, target=TARGET, **options):
    """Returns the built network; of a symbolic one, n is at most 40."""
    bounds = {"bounds": {"n": 40}} if options.get("symbolic") else {}
    return tw.build(network(name, seed, **options), target, **bounds)
