"""This module runs functions of JAX in Tilewright and in XLA on the CPU, in turns: a perceptron, a convolution net, a
transformer block.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python benchmarks/jax_models.py [NAME ...] [--db tuning.db] [--markdown]

XLA takes the threads that the process may use: ``taskset -c 0`` gives both one core. A row has medians in milliseconds, the
largest difference from XLA relative to the largest output, and the seconds from the function to its first result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import model_table
import numpy as np
from jax import lax

import tilewright as tw

CONTENDERS = ("tilewright", "XLA")


def _drawn(*shape: int) -> np.ndarray[Any, Any]:
    fan = shape[0] if len(shape) == 2 else int(np.prod(shape[1:])) if len(shape) == 4 else 1
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / np.float32(fan**0.5)


def perceptron() -> tuple[Callable[..., Any], Any]:
    """Three dense layers of 1,024 on 64 rows."""
    weights = [_drawn(1024, 1024) for _ in range(3)]

    def f(x: Any) -> Any:
        for w in weights:
            x = jax.nn.gelu(x @ w)
        return x

    return f, _drawn(64, 1024)


def convolutions() -> tuple[Callable[..., Any], Any]:
    """Six convolutions with norms, in three sizes, and a head: channels first, as in the networks of PyTorch."""
    widths = (3, 64, 64, 128, 128, 256, 256)
    weights = [_drawn(b, a, 3, 3) for a, b in zip(widths, widths[1:], strict=False)]
    head = _drawn(256, 1000)

    def f(x: Any) -> Any:
        for n, w in enumerate(weights):
            x = lax.conv_general_dilated(
                x, w, (1 + n % 2, 1 + n % 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
            )
            x = jax.nn.relu(x)
        return x.mean((2, 3)) @ head

    return f, _drawn(1, 3, 112, 112)


def transformer() -> tuple[Callable[..., Any], Any]:
    """One block of BERT's size on 128 rows."""
    width, heads = 768, 12
    qkv, out, up, down = (
        _drawn(width, 3 * width),
        _drawn(width, width),
        _drawn(width, 4 * width),
        _drawn(4 * width, width),
    )

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def f(x: Any) -> Any:
        q, k, v = jnp.split((norm(x) @ qkv).reshape(len(x), 3 * heads, -1).transpose(1, 0, 2), 3)
        weights = jax.nn.softmax(q @ k.transpose(0, 2, 1) / 8.0)
        x = x + (weights @ v).transpose(1, 0, 2).reshape(x.shape) @ out
        return x + jax.nn.gelu(norm(x) @ up) @ down

    return f, _drawn(128, width)


def recurrence() -> tuple[Callable[..., Any], Any]:
    """A recurrent cell of 256 over 128 steps (``lax.scan``)."""
    w, u = _drawn(256, 256), _drawn(256, 256)

    def f(x: Any) -> Any:
        return lax.scan(lambda h, a: ((g := jnp.tanh(h @ w + a @ u)), g), jnp.zeros(x.shape[1:]), x)[1]

    return f, _drawn(128, 1, 256)


MODELS = {"perceptron": perceptron, "convolutions": convolutions, "transformer": transformer, "recurrence": recurrence}


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns one row: by contender the median milliseconds, the difference, the seconds before the first result."""
    f, x = MODELS[name]()
    start = time.perf_counter()
    compiled = jax.jit(f)
    given = jnp.asarray(x)
    expected = np.asarray(compiled(given))
    row: dict[str, Any] = {"model": name, "XLA": {"first_seconds": time.perf_counter() - start, "difference": 0.0}}
    start = time.perf_counter()
    run = tw.build(jax.export.export(compiled)(given), f"native -num-cores={options.threads}", db=options.db)
    got = run(x)
    apart = float(np.abs(got - expected).max() / np.abs(expected).max())
    row["tilewright"] = {"first_seconds": time.perf_counter() - start, "difference": apart}
    out = np.empty_like(got)
    runs = {"tilewright": lambda: run(x, out=out), "XLA": lambda: compiled(given).block_until_ready()}
    for label, ms in model_table.medians(runs, options.rounds).items():
        row[label]["ms"] = ms
    return row


def main() -> None:
    """Runs the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description="Functions of JAX in Tilewright and in XLA.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--db", help="records of tuned kernels")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    options = parser.parse_args()
    model_table.show(options.names or MODELS, lambda name: compare(name, options), CONTENDERS, options)


if __name__ == "__main__":
    main()
