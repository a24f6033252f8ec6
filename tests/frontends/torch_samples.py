"""Calls of core operators that PyTorch's own samples do not reach: gradients, forms with numbers, old names.

Each row has an operator, the data types in which it is called, and its arguments; ``f(*shape)`` draws a tensor of the data type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

Draw = Callable[..., torch.Tensor]

FLOAT, INTS, EVERY = ("float32",), ("int64", "bool"), ("float32", "int64", "bool")
_WHOLE = (True, True, True)


def _layer_norm(f: Draw) -> tuple[Any, ...]:
    x, weight, bias = f(3, 5, 7), f(7), f(7)
    _, mean, root = torch.native_layer_norm(x, (7,), weight, bias, 1e-5)
    return f(3, 5, 7), x, [7], mean, root, weight, bias, _WHOLE


def _group_norm(f: Draw) -> tuple[Any, ...]:
    x, weight = f(2, 6, 5), f(6)
    _, mean, root = torch.native_group_norm(x, weight, None, 2, 6, 5, 3, 1e-5)
    return f(2, 6, 5), x, mean, root, weight, 2, 6, 5, 3, _WHOLE


def _convolution(f: Draw, transposed: bool, stride: int) -> tuple[Any, ...]:
    x, weight = f(2, 4, 7, 9), f(*((4, 3, 3, 3) if transposed else (6, 2, 3, 3)))
    groups = 1 if transposed else 2
    given = ([stride, stride], [1, 1], [1, 1], transposed, [0, 0], groups)
    gradient = f(*torch.ops.aten.convolution.default(x, weight, None, *given).shape)
    return gradient, x, weight, [gradient.shape[1]], *given, _WHOLE


ROWS: tuple[tuple[str, tuple[str, ...], Callable[[Draw], tuple[Any, ...]]], ...] = (
    ("_adaptive_avg_pool2d_backward.default", FLOAT, lambda f: (f(1, 3, 2, 3), f(1, 3, 7, 9))),
    ("_native_batch_norm_legit.default", FLOAT, lambda f: (f(3, 4, 5), f(4), f(4), f(4), f(4).abs(), True, 0.1, 1e-5)),
    ("_native_batch_norm_legit.no_stats", FLOAT, lambda f: (f(3, 4, 5), f(4), None, True, 0.1, 1e-5)),
    (
        "_native_batch_norm_legit_no_training.default",
        FLOAT,
        lambda f: (f(3, 4, 5), f(4), f(4), f(4), f(4).abs(), 0.1, 1e-5),
    ),
    (
        "avg_pool2d_backward.default",
        FLOAT,
        lambda f: (f(2, 3, 3, 4), f(2, 3, 7, 9), [3, 3], [2, 2], [0, 0], False, True, None),
    ),
    ("avg_pool2d_backward.default", FLOAT, lambda f: (f(1, 2, 4, 4), f(1, 2, 7, 7), [2, 2], [2, 2], [1, 1], False, False, None)),
    ("bitwise_and.Scalar", INTS, lambda f: (f(3, 5), True if f(1).dtype == torch.bool else 6)),
    ("bitwise_or.Scalar", INTS, lambda f: (f(3, 5), False if f(1).dtype == torch.bool else -6)),
    ("bitwise_xor.Scalar", INTS, lambda f: (f(3, 5), True if f(1).dtype == torch.bool else 6)),
    ("col2im.default", FLOAT, lambda f: (f(2, 12, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1])),
    ("col2im.default", FLOAT, lambda f: (f(12, 9), [5, 7], [3, 2], [1, 2], [1, 0], [2, 2])),
    ("convolution_backward.default", FLOAT, lambda f: _convolution(f, False, 1)),
    ("convolution_backward.default", FLOAT, lambda f: _convolution(f, False, 2)),
    ("convolution_backward.default", FLOAT, lambda f: _convolution(f, True, 2)),
    ("copy.default", EVERY, lambda f: (f(3, 5), f(5))),
    ("copy.default", FLOAT, lambda f: (f(3, 5), torch.arange(5))),
    ("div.Scalar_mode", ("float32", "int64"), lambda f: (f(3, 7), 3)),
    ("embedding_dense_backward.default", FLOAT, lambda f: (f(2, 3, 5), torch.tensor([[0, 3, 0], [6, 1, 1]]), 7, -1, False)),
    ("embedding_dense_backward.default", FLOAT, lambda f: (f(4, 5), torch.tensor([0, 3, 0, 6]), 7, 3, True)),
    ("native_dropout.default", FLOAT, lambda f: (f(3, 5), 0.5, False)),
    ("native_group_norm_backward.default", FLOAT, _group_norm),
    ("native_layer_norm_backward.default", FLOAT, _layer_norm),
    ("reflection_pad3d.default", ("float32", "int64"), lambda f: (f(2, 3, 4, 5), [1, 2, 0, 3, 1, 1])),
    ("replication_pad3d.default", ("float32", "int64"), lambda f: (f(2, 3, 4, 5), [1, 2, 0, 3, 1, 1])),
    ("upsample_bilinear2d.vec", FLOAT, lambda f: (f(1, 2, 5, 7), None, False, [2.0, 3.0])),
    ("upsample_bilinear2d.vec", FLOAT, lambda f: (f(1, 2, 5, 7), [9, 13], True, None)),
    ("upsample_nearest2d.vec", FLOAT, lambda f: (f(1, 2, 5, 7), None, [2.0, 3.0])),
    ("upsample_nearest2d.vec", FLOAT, lambda f: (f(1, 2, 5, 7), [9, 13], None)),
    ("var.dim", FLOAT, lambda f: (f(3, 5, 7), [1], False, True)),
    ("var.dim", FLOAT, lambda f: (f(3, 5, 7), [0, -1])),
)  # fmt: skip
"""The rows: an operator of ``aten``, data types, and the arguments."""

_NAMED: dict[str, dict[str, Any]] = {"div.Scalar_mode": {"rounding_mode": "floor"}}


def drawn(dtype: str) -> Draw:
    """Returns a function that draws tensors of a data type: the same ones each time."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        if dtype == "float32":
            return torch.randn(shape, generator=generator)
        low, high = (0, 2) if dtype == "bool" else (-9, 10)
        return torch.randint(low, high, shape, generator=generator).to(getattr(torch, dtype))

    return draw


def own_calls() -> Iterator[tuple[str, tuple[Any, Any, Any, Any]]]:
    """Yields a data type and a call: an operator, its arguments, its named arguments and what it returns."""
    for name, dtypes, arguments in ROWS:
        packet, _, overload = name.partition(".")
        target = getattr(getattr(torch.ops.aten, packet), overload)
        for dtype in dtypes:
            args, named = arguments(drawn(dtype)), _NAMED.get(name, {})
            copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            yield dtype, (target, args, named, target(*copies, **named))
