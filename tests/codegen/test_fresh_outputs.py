"""Outputs that are left out are made and returned; arguments may be given by name."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import ArgumentError

n = te.var("n")
X, W = te.placeholder((n, 7), name="x"), te.placeholder((7,), name="w")
Y = te.compute((n, 7), lambda i, j: X[i, j] * W[j], name="y")
k = te.reduce_axis((0, 7), name="k")
Z = te.compute((n,), lambda i: te.sum(Y[i, k], axis=k), name="z")
x, w = np.arange(91, dtype=np.float32).reshape(13, 7), np.arange(7, dtype=np.float32)
LATER = te.compute((te.var("m"),), lambda i: i * 1.0, name="later")


@pytest.fixture(scope="module")
def f():
    return tw.build([X, W, Y, Z], "native -num-cores=1", name="f")


def test_outputs_that_are_left_out_are_returned(f):
    y, z = f(x, w)
    np.testing.assert_array_equal(y, x * w)
    np.testing.assert_array_equal(z, (x * w).sum(1))
    (given, only) = (np.zeros_like(y), f(x, w, y))
    np.testing.assert_array_equal(only, z)
    assert f(x, w, given, only) is None
    np.testing.assert_array_equal(given, y)


def test_arguments_go_by_name(f):
    y = np.zeros((13, 7), np.float32)
    np.testing.assert_array_equal(f(w=w, x=x, y=y), (x * w).sum(1))
    np.testing.assert_array_equal(y, x * w)
    assert f["f"](x, w=w)[0].shape == (13, 7)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((x,), {}, r"f takes 4 arguments, 1 were given; it is f\(x: float32\[n, 7\]"),
        ((x,), {"v": w}, r"f has no argument 'v'; it is f\("),
        ((x, w), {"x": x}, "f: the argument x is given twice"),
        ((x, w[:3]), {}, r"argument 1 \(w\): expected 7 in dimension 0, got 3"),
        (([1.0], w), {}, r"argument 0 \(x\): expected an array"),
    ],
)
def test_what_does_not_fit_is_said(f, args, named, message):
    with pytest.raises(ArgumentError, match=message):
        f(*args, **named)


def test_a_shape_that_nothing_tells_has_to_be_given():
    g = tw.build([LATER], "native -num-cores=1", name="g")
    with pytest.raises(ArgumentError, match="g: the array later has to be given: its shape does not follow"):
        g()


@pytest.mark.parametrize("extent", [4, te.var("m")], ids=["static", "symbolic"])
def test_results_of_bfloat16_are_of_that_type_in_every_library(extent):
    a = te.placeholder((extent,), "float32", "a")
    f = tw.build([a, te.compute((extent,), lambda i: a[i].astype("bfloat16"), "b")], "native -num-cores=1")
    values = np.array([1, -0.5, 3, np.inf], np.float32)
    assert f(values).tolist() == [0x3F80, 0xBF00, 0x4040, 0x7F80]  # in NumPy, their bits
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    for made in (f(torch.from_numpy(values)), f(a=torch.from_numpy(values))):
        assert made.dtype is torch.bfloat16 and made.tolist() == values.tolist()
    made = f(jnp.asarray(values))
    assert made.dtype == jnp.bfloat16 and made.tolist() == values.tolist()
    g = tw.build([b := te.placeholder((extent,), "bfloat16", "b"), te.compute((extent,), lambda i: -b[i], "c")])
    made = g(values.astype(jnp.bfloat16))  # ml_dtypes.bfloat16
    assert isinstance(made, np.ndarray) and made.dtype == jnp.bfloat16 and made.tolist() == (-values).tolist()
