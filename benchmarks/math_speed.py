"""This script compares the mathematical functions with NumPy's, in nanoseconds per element, timed alternately.

``python benchmarks/math_speed.py [function …] [--dtype float64] [--size 131072] [--rounds 41]``

Both sides read and write the same arrays, small enough for the level-2 cache, on one thread. A round times every
contender once; the ratio is the median over the rounds of NumPy's time over ours in the same round, so what disturbs
the machine for longer than a round disturbs both. Arguments are in the usual range of each function: none are huge for
the sine, and none overflow.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from table import print_table

import tilewright as tw
from tilewright import te
from tilewright.tir.expr import Expr
from tilewright.tir.expr.intrinsics import operation_named
from tilewright.tir.expr.intrinsics.number_operations import erf, pow_

Into = Callable[..., Any]
"""NumPy's function of the arguments, written to ``out``."""


def _sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, x.dtype.type(1), out=out)
    np.reciprocal(out, out=out)


def _rsqrt(x: np.ndarray, out: np.ndarray) -> None:
    np.sqrt(x, out=out)
    np.reciprocal(out, out=out)


def _erf(x: np.ndarray, out: np.ndarray) -> None:
    from scipy.special import erf  # NumPy has none; without SciPy the function is left out

    erf(x, out=out)


def _gelu(x: np.ndarray, out: np.ndarray) -> None:
    one, half = x.dtype.type(1), x.dtype.type(0.5)
    np.multiply(x, x.dtype.type(math.sqrt(0.5)), out=out)
    _erf(out, out)
    np.add(out, one, out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, half, out=out)


# function: NumPy's, and where its arguments lie
FUNCTIONS: dict[str, tuple[Into, tuple[float, float]]] = {
    "exp": (np.exp, (-20, 20)), "exp2": (np.exp2, (-20, 20)), "expm1": (np.expm1, (-5, 5)), "log": (np.log, (0, 100)),
    "log2": (np.log2, (0, 100)), "log1p": (np.log1p, (-0.9, 10)), "tanh": (np.tanh, (-5, 5)),
    "sigmoid": (_sigmoid, (-10, 10)), "erf": (_erf, (-3, 3)), "gelu": (_gelu, (-4, 4)), "rsqrt": (_rsqrt, (0.01, 100)),
    "sin": (np.sin, (-100, 100)), "cos": (np.cos, (-100, 100)), "tan": (np.tan, (-100, 100)),
    "atan": (np.arctan, (-10, 10)), "pow": (np.power, (0.1, 5)),
}  # fmt: skip


def kernel(name: str, dtype: str, size: int, target: str) -> tw.Module:
    """``f(*xs, y)``, compiled with the default schedule."""
    xs = [te.placeholder((size,), dtype, name=f"x{n}") for n in range(2 if name == "pow" else 1)]

    def value(i: Any) -> Expr:
        x = xs[0][i]
        if name == "gelu":
            return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)
        return pow_(x, xs[1][i]) if name == "pow" else operation_named(name)(x)

    y = te.compute((size,), value, name="y")
    return tw.build(te.create_prim_func([*xs, y]), target=target)


def contest(contenders: list[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Returns the seconds of each contender in each round; the first two rounds are warm-up. The order changes from
    round to round."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for turn in range(rounds + 2):
        for k in range(len(contenders)):
            which = (turn + k) % len(contenders)
            start = time.perf_counter()
            contenders[which]()
            taken = time.perf_counter() - start
            if turn >= 2:
                seconds[which].append(taken)
    return seconds


def measure(name: str, dtype: str, size: int, rounds: int, target: str) -> list[str]:
    """Returns a line of the table."""
    numpy_function, (low, high) = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    xs = [rng.uniform(low, high, size).astype(dtype)]
    if name == "pow":
        xs.append(rng.uniform(-3, 3, size).astype(dtype))
    ours, theirs = np.empty(size, dtype), np.empty(size, dtype)
    f = kernel(name, dtype, size, target)
    call = f.bind(*xs, ours)
    try:
        numpy_function(*xs, out=theirs)
    except ModuleNotFoundError:
        return [name, "–", "–", "–"]
    call()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)
    mine, numpys = contest([call, lambda: numpy_function(*xs, out=theirs)], rounds)
    ratio = statistics.median(b / a for a, b in zip(mine, numpys, strict=True))
    times = [f"{1e9 * statistics.median(s) / size:.2f}" for s in (mine, numpys)]
    return [name, *times, f"{ratio:.2f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", default=list(FUNCTIONS), help="all of them when none is named")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--size", type=int, default=1 << 17)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--target", default="native -num-cores=1")
    options = parser.parse_args()
    with np.errstate(all="ignore"):
        lines = [measure(n, options.dtype, options.size, options.rounds, options.target) for n in options.functions]
    head = ["function", "ns/element", "NumPy", "over NumPy"]
    print_table(f"{options.dtype}, {options.size} elements", head, lines)


if __name__ == "__main__":
    main()
