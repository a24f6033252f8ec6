"""Converters of factorizations and triangular systems: loops over columns and rows of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph.graph import Value
from ...graph.scan_operator import add_scan
from .hlo_call import HloCall, hlo, op


def _matrices(c: HloCall, x: Value, swapped: bool = False) -> Value:
    """Returns an array of matrices with one leading dimension, each transposed where ``swapped``."""
    if not x.is_static or 0 in x.shape:
        raise c.error("matrices of symbolic sizes, and empty ones, are not supported")
    flat = c.op("reshape", x, shape=(math.prod(x.shape[:-2]), *x.shape[-2:]))
    return c.op("transpose", flat, axes=(0, 2, 1)) if swapped else flat


def _factor(c: HloCall, x: Value, lower: bool) -> tuple[Value, Value]:
    """Returns the factors of positive definite matrices, of which one triangle is read, and whether each has one.

    Each step divides a column by the root of its diagonal element, and subtracts its product with itself from the rest.
    """
    a, n = _matrices(c, x, swapped=not lower), x.shape[-1]
    rows = c.constant(np.arange(n), "int64")

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (rest,), (at,) = states, parts
        column = c.op("take", rest, at, axis=2)
        pivot = c.op("take", column, at, axis=1)
        scaled = c.op("divide", column, c.op("expand_dims", c.op("sqrt", pivot), axis=1))
        scaled = c.op("where", c.op("greater_equal", rows, at), scaled, c.constant(0, x.dtype))
        product = c.op("multiply", c.op("expand_dims", scaled, axis=2), c.op("expand_dims", scaled, axis=1))
        good = c.cast(c.op("greater", pivot, c.constant(0, x.dtype)), "int32")
        return [c.op("subtract", rest, product)], [scaled, good]

    _, (columns, good) = add_scan(c.builder, [a], [rows], step)
    found = c.op("transpose", columns, axes=(1, 2, 0) if lower else (1, 0, 2))
    return c.op("reshape", found, shape=x.shape), c.op("reshape", c.op("min", good, axis=0), shape=x.shape[:-2])


def _solved(c: HloCall, a: Value, b: Value, lower: bool, transposed: bool, unit: bool) -> Value:
    """Returns the solutions of triangular systems, row by row: each is subtracted from those that are left."""
    matrices, rest = _matrices(c, a, swapped=transposed), _matrices(c, b)

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (left,), (at,) = states, parts
        column, row = c.op("take", matrices, at, axis=2), c.op("take", left, at, axis=1)
        if not unit:
            row = c.op("divide", row, c.op("expand_dims", c.op("take", column, at, axis=1), axis=1))
        product = c.op("multiply", c.op("expand_dims", column, axis=2), c.op("expand_dims", row, axis=1))
        return [c.op("subtract", left, product)], [row]

    places = c.constant(np.arange(a.shape[-1]), "int64")
    _, (rows,) = add_scan(c.builder, [rest], [places], step, reverse=lower == transposed)
    return c.op("reshape", c.op("transpose", rows, axes=(1, 0, 2)), shape=b.shape)


def _swapped(c: HloCall, x: Value) -> Value:
    return c.op("transpose", x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@hlo("cholesky")
def cholesky(c: HloCall) -> Value:
    return _factor(c, c.x, bool(c.attribute("lower", False)))[0]


@hlo("triangular_solve")
def triangular_solve(c: HloCall) -> Value:
    a, b = c.values
    lower, unit = bool(c.attribute("lower")), bool(c.attribute("unit_diagonal"))
    transposed = "NO_TRANSPOSE" not in str(c.operation.attributes["transpose_a"])
    if c.attribute("left_side"):
        return _solved(c, a, b, lower, transposed, unit)
    return _swapped(c, _solved(c, a, _swapped(c, b), lower, not transposed, unit))


def _letter(c: HloCall, name: str) -> str:
    return chr(c.operation.attributes["mhlo.backend_config"][name].value)


@op("custom_call @lapack_spotrf_ffi", "custom_call @lapack_dpotrf_ffi")
def lapack_cholesky(c: HloCall) -> tuple[Value, Value]:
    factor, good = _factor(c, c.x, _letter(c, "uplo") == "L")
    return factor, c.op("subtract", c.constant(1, "int32"), good)


@op("custom_call @lapack_strsm_ffi", "custom_call @lapack_dtrsm_ffi")
def lapack_triangular_solve(c: HloCall) -> Value:
    a, b = c.values
    lower, unit, transposed = _letter(c, "uplo") == "L", _letter(c, "diag") == "U", _letter(c, "trans_x") != "N"
    if _letter(c, "side") == "L":
        return _solved(c, a, b, lower, transposed, unit)
    return _swapped(c, _solved(c, a, _swapped(c, b), lower, not transposed, unit))
