"""This module has the doors between JAX and Tilewright; ``tilewright.jax`` is another name of it.

:func:`call` makes one kernel a function of JAX, which works under ``jax.jit``; :func:`from_stablehlo` reads an exported
function; :func:`op` registers a converter for an operation of StableHLO.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..frontends.stablehlo import StableHloError as StableHloError
from ..frontends.stablehlo import UnsupportedStableHloOperators as UnsupportedStableHloOperators
from ..frontends.stablehlo import from_stablehlo as from_stablehlo
from ..frontends.stablehlo import op as op
from .kernel_signature import KernelSignature, SignatureError


def call(
    workload: Any, *, target: Any = "native", db: Any = None, backward: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Returns a function of JAX arrays that runs a kernel: what :func:`tilewright.build` takes, or what it made.

    The function takes the inputs in their order and returns the outputs, one or a tuple. Arrays with values are handed to
    the kernel at once; under ``jax.jit`` the function is a ``jax.pure_callback``; ``jax.vmap`` calls it once for each element. ``backward(inputs, gradients)`` returns the
    gradients of the inputs, and makes the function differentiable. StableHloError for arguments that do not fit.
    """
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise StableHloError("kernels in JAX need the package jax: pip install 'tilewright[jax]'") from error
    kernel = KernelSignature.of("tilewright.jax.call", workload, target, db)

    def run(*arrays: Any) -> tuple[Any, ...]:
        given = [np.asarray(a, order="C") for a in arrays]
        made = [np.empty(shape, getattr(jax.numpy, dtype)) for shape, dtype in _results(kernel, given)]
        kernel.run(given, made)
        return tuple(made)

    def function(*arrays: Any) -> Any:
        plain = [a if isinstance(a, jax.Array) else jax.numpy.asarray(a) for a in arrays]
        if not any(isinstance(a, jax.core.Tracer) for a in plain):
            made = [jax.numpy.asarray(a) for a in run(*plain)]
            return made[0] if len(made) == 1 else tuple(made)
        kinds = [jax.ShapeDtypeStruct(shape, getattr(jax.numpy, dtype)) for shape, dtype in _results(kernel, plain)]
        out = jax.pure_callback(run, tuple(kinds), *plain, vmap_method="sequential")
        return out[0] if len(out) == 1 else tuple(out)

    if backward is None:
        return function
    return _differentiable(jax, function, backward)


def _results(kernel: KernelSignature, arrays: list[Any]) -> list[tuple[tuple[int, ...], str]]:
    try:
        return kernel.results([(a.shape, str(a.dtype)) for a in arrays])
    except SignatureError as error:
        raise StableHloError(str(error)) from error


def _differentiable(jax: Any, function: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    wrapped: Callable[..., Any] = jax.custom_vjp(function)
    wrapped.defvjp(  # type: ignore[attr-defined]
        lambda *arrays: (function(*arrays), arrays), lambda arrays, gradients: tuple(backward(arrays, gradients))
    )
    return wrapped
