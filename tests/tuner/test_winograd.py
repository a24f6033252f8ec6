"""Convolutions by Winograd's method: operator and schedules against NumPy in float64, at awkward sizes."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import build, codegen, te
from tilewright.schedule import Schedule
from tilewright.te import ops
from tilewright.tuner import Space
from tilewright.tuner.cost.machine_model import MachineModel

ONE, TWO, NARROW = "native -num-cores=1", "native -num-cores=2", "native -num-cores=1 -vector-width=256"


def windows(data, weight, bias, padding):
    """The convolution in float64, and the sum of the magnitudes of its products, which bounds how far rounding goes."""
    (top, left), (bottom, right) = padding
    x = np.pad(data.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    h, w = x.shape[1] - 2, x.shape[2] - 2
    parts = [(x[:, i : i + h, j : j + w], weight[i, j].astype("float64")) for i in range(3) for j in range(3)]
    return sum(a @ b for a, b in parts) + bias


def case(n, h, w, c, o, tile, padding, epilogue):
    """A function of data, transformed weights, bias and one more image; its arrays, and the result in float64."""
    rng = np.random.default_rng(h * c + o)
    data, bias = rng.standard_normal((n, h, w, c)).astype("float32"), rng.standard_normal(o).astype("float32")
    weight = (rng.standard_normal((3, 3, c, o)) / np.sqrt(9 * c)).astype("float32")
    pads = ((padding, padding),) * 2 if isinstance(padding, int) else (padding[:2], padding[2:])
    want = windows(data, weight, bias, pads)
    more = rng.standard_normal(want.shape).astype("float32")
    X, U = te.placeholder(data.shape, name="x"), te.placeholder((tile + 2, tile + 2, c, o), name="u")
    B, M = te.placeholder((o,), name="b"), te.placeholder(want.shape, name="m")
    y = ops.winograd_conv2d(X, U, padding, bias=B)
    if epilogue == "add relu":
        y, want = ops.relu(ops.add(y, M)), np.maximum(want + more, 0)
    elif epilogue == "silu":
        y, want = ops.multiply(ops.silu(y), M), want / (1 + np.exp(-want)) * more
    else:
        y, want = ops.add(y, M), want + more
    return te.create_prim_func([X, U, B, M, y], "f"), [data, ops.winograd_weights(weight, tile), bias, more], want


def close(got, want):
    assert np.abs(got - want).max() <= 2e-5 * max(np.abs(want).max(), 1)


SHAPES = [
    # images, rows, columns, channels, outputs, tile, padding, epilogue, target
    (1, 7, 7, 3, 16, 4, 1, "add relu", ONE),
    (1, 13, 13, 16, 33, 4, 1, "silu", ONE),
    (2, 14, 14, 33, 64, 4, 1, "add relu", ONE),
    (3, 17, 17, 16, 16, 4, 0, "add", TWO),
    (1, 7, 7, 64, 64, 2, 1, "add relu", TWO),
    (2, 13, 14, 16, 33, 2, 0, "add", ONE),
    (1, 14, 14, 64, 64, 4, 1, "add relu", NARROW),
    (1, 17, 13, 3, 3, 2, (0, 1, 2, 1), "silu", ONE),
    (1, 6, 6, 16, 16, 4, 0, "add", ONE),
    (1, 1, 1, 16, 16, 4, 1, "add", ONE),
    (1, 3, 5, 1, 1, 4, 1, "add relu", ONE),
]


@pytest.mark.parametrize(("n", "h", "w", "c", "o", "tile", "padding", "epilogue", "target"), SHAPES)
def test_results_equal_those_of_windows(n, h, w, c, o, tile, padding, epilogue, target):
    func, arrays, want = case(n, h, w, c, o, tile, padding, epilogue)
    module = build(func, target)
    assert "not tuned" in module.origin and "left as written" not in module.origin
    out = np.full(want.shape, np.nan, "float32")
    module(*arrays, out)
    close(out, want)


@pytest.mark.parametrize("seed", range(4))
def test_candidates_compute_the_same(seed):
    func, arrays, want = case(1, 13, 17, 5, 40, 2 + 2 * (seed % 2), 1, "add relu")
    machine = replace(MachineModel.of(TWO), fork_join_cycles=0.0)  # threads pay off however small the sizes
    space = Space(func, TWO, machine=machine)
    (sketch,) = space.sketches
    assert sketch.name.startswith("winograd") and {"parts", "high", "wide"} <= set(sketch.column_names)
    rng = np.random.default_rng(seed)
    for row in sketch.sample(2, rng):
        sch = space.schedule(sketch, row)
        assert isinstance(sch, Schedule)
        out = np.full(want.shape, np.nan, "float32")
        codegen.compile(sch.func, TWO)(*arrays, out)
        close(out, want)


def test_both_steps_of_a_transformation_stay_in_registers():
    func, _, _ = case(1, 14, 14, 32, 32, 4, 1, "add relu")
    space = Space(func, ONE)
    text = space.schedule(space.sketches[0], space.sketches[0].best_rows(1)[0]).func.script()
    assert [line for line in text.splitlines() if "winograd_data_rows" in line and "local" in line]
    assert "winograd_conv2d_rows" in text and "T.vectorized" in text


@pytest.mark.parametrize(
    ("shapes", "options", "words"),
    [
        (((1, 7, 7, 3), (5, 5, 3, 4)), {}, "there are \\(4, 4, C, O\\) and \\(6, 6, C, O\\)"),
        (((1, 7, 7, 3), (4, 6, 3, 4)), {}, "there are \\(4, 4, C, O\\) and \\(6, 6, C, O\\)"),
        (((1, 7, 7, 3), (6, 6, 4, 4)), {}, "the number of input channels"),
        (((1, 1, 7, 3), (6, 6, 3, 4)), {}, "does not fit"),
        (((1, te.var("n"), 7, 3), (6, 6, 3, 4)), {}, "size"),
        (((1, 7, 7, 3), (6, 6, 3, 4)), {"dtype": "int32"}, "there are products of float32 and of float64"),
    ],
)
def test_arguments_that_do_not_fit(shapes, options, words):
    data, weight = (te.placeholder(s, options.get("dtype", "float32")) for s in shapes)
    with pytest.raises(ValueError, match=words):
        ops.winograd_conv2d(data, weight)


@pytest.mark.parametrize(
    ("shape", "dtype", "tile"),
    [((3, 3, 2, 1), "float32", 3), ((5, 5, 2, 1), "float32", 4), ((3, 3, 2, 1), "int8", 4), ((3, 3, 2), "float64", 2)],
)
def test_weights_that_do_not_fit(shape, dtype, tile):
    with pytest.raises(ValueError, match=f"tiles of {tile} and weights {dtype}.*; there are tiles of 2 and of 4"):
        ops.winograd_weights(np.ones(shape, dtype), tile)
