"""Computations that read outside their tensors are refused, or checked at the call."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import tilewright as tw
from tilewright import te

A = te.placeholder((8, 4), name="A")
I = te.placeholder((9,), "int32", name="I")  # noqa: E741
n, m = te.var("n"), te.var("m")
X, Y = te.placeholder((n,), name="X"), te.placeholder((m,), name="Y")
k = te.reduce_axis((0, 5), name="k")
r = te.reduce_axis((0, 17), name="r")


@pytest.mark.parametrize(
    ("shape", "body", "message"),
    [
        ((9, 4), lambda i, j: A[i, j], r"compute B reads A\[i, j\] of shape \(8, 4\), dimension 0: the index is 8 at i = 8, "
         r"which is outside 0 … 7"),
        ((8, 4), lambda i, j: A[i + 1, j], "dimension 0: the index is 8 at i = 7"),
        ((8, 4), lambda i, j: A[i, j - 1], "dimension 1: the index is -1 at j = 0"),
        ((8,), lambda i: te.sum(A[i, k], axis=k), "dimension 1: the index is 4 at k = 4"),
        ((1,), lambda i: te.sum(A[r // 2, r % 4], axis=r), "dimension 0: the index is 8 at r = 16"),
        ((9, 4), lambda i, j: te.if_then_else(i < 9, A[i, j], 0.0), "the index is 8"),
        ((9, 4), lambda i, j: te.if_then_else(i < 8, 0.0, A[i, j]), "the index is 8"),
        ((7, 13), lambda i, j: A[(i * j) % 9, 0], "the index is 8 at i = "),
        ((n,), lambda i: X[i + 1], r"the indices 1 … n are outside 0 … n - 1"),
    ],
)  # fmt: skip
def test_reads_outside_the_shape_are_refused(shape, body, message):
    with pytest.raises(IndexError, match=message):
        te.compute(shape, body, name="B")


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ((8, 4), lambda i, j: A[7 - i, 3 - j]),
        ((9, 4), lambda i, j: te.if_then_else(i < 8, A[i, j], 0.0)),
        ((9, 4), lambda i, j: te.if_then_else(te.all(i >= 1, j > 0), A[i - 1, j - 1], 0.0)),
        ((9, 4), lambda i, j: te.if_then_else(te.all(i >= 1, A[i - 1, j] > 0.0), 1.0, 0.0)),
        ((9, 4), lambda i, j: A[te.min(i, 7), j]),
        ((9, 4), lambda i, j: A[i * 3 % 8, j]),
        ((0, 4), lambda i, j: A[i + 9, j]),
        ((n,), lambda i: X[n - 1 - i]),
    ],
)
def test_reads_inside_the_shape_are_taken(shape, body):
    te.compute(shape, body, name="B")


def test_looking_back_is_for_recurrences_only():
    step = te.compute((8, 4), lambda t, j: A[t - 1, j] + 1.0, name="step")
    first = te.compute((1, 4), lambda t, j: 0.0 * j)
    te.create_prim_func([te.scan(first, step, A)])
    with pytest.raises(IndexError, match=r"compute step reads A\[t - 1, j\].* the index is -1 at t = 0"):
        te.create_prim_func([A, step])


def test_sizes_are_checked_at_the_call():
    B = te.compute((m,), lambda i: X[i] + Y[i], name="B")
    func = te.create_prim_func([X, Y, B])
    sch = tw.Schedule(func)
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 8])
    sch.parallel(outer)
    sch.vectorize(inner)
    long, short = np.ones(50, np.float32), np.ones(7, np.float32)
    for module in (tw.build(func), tw.build(sch), tw.build(tw.tir.parse(func.script()))):
        out = np.zeros(50, np.float32)
        module(long, long, out)
        assert out.tolist() == [2.0] * 50
        with pytest.raises(RuntimeError, match=r"reads X\[.*\] of shape \(n\), dimension 0: .*0 … m - 1"):
            module(short, long, out)
        module(short[:0], long[:0], out[:0])


def test_what_is_not_checked_is_said(caplog):
    caplog.set_level(logging.INFO, logger="tilewright")
    te.compute((9,), lambda i: X[I[i]], name="B")
    assert (
        "compute B reads X[I[i]] of shape (n), dimension 0: whether the index is inside is not checked" in caplog.text
    )
