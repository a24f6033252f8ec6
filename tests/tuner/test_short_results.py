"""Sums of few neighbouring results: whole vectors across reduced axes and channels, in every candidate equal to NumPy."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.driver.building import plan
from tilewright.schedule import Schedule
from tilewright.te import ops
from tilewright.tuner import Space
from tilewright.tuner.recipes import reduce_short_results

ONE, TWO = "native -num-cores=1", "native -num-cores=2"
RNG = np.random.default_rng(0)


def sums(shape, over, dtype="float32", combine=te.sum, term=lambda x, i: x, others=()):
    """An input, the inputs of ``others``, and what its axes ``over`` add up to."""
    x = te.placeholder(shape, dtype, "x")
    steps = {d: te.reduce_axis((0, shape[d]), f"r{d}") for d in over}
    kept = [d for d in range(len(shape)) if d not in over]

    def element(*index):
        at = dict(zip(kept, index, strict=True)) | steps
        return combine(term(x[tuple(at[d] for d in range(len(shape)))], index), axis=list(steps.values()))

    return [x, *others, te.compute([shape[d] for d in kept], element, name="y")]


def values(tensors):
    return [RNG.integers(-4, 5, [int(e) for e in t.shape]).astype(str(t.dtype)) for t in tensors[:-1]]


def sketch_of(tensors, target):
    space = Space(te.create_prim_func(tensors), Target(target))
    return space, next((s for s in space.sketches if "short_" in s.name), None)


CASES = [
    ((40, 56, 3), (0, 1)), ((13, 17, 3), (0, 1)), ((9, 64, 4), (0, 1)), ((300, 2), (0,)), ((5, 33, 7), (0, 1)), ((7, 31, 5), (0, 1)),
    ((6, 2, 48, 3), (0, 2)), ((3, 20, 20, 12), (1, 2)), ((4, 100, 24), (1,)), ((2, 3, 64, 8), (2,)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "over"), CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_every_candidate(shape, over, dtype):
    tensors = sums(shape, over, dtype)
    space, sketch = sketch_of(tensors, ONE)
    if sketch is None:
        lanes = space.machine.lanes(np.dtype(dtype).itemsize)
        assert shape[-1] % lanes == 0 or shape[-1] >= 2 * lanes
        return
    (x,) = values(tensors)
    for row in sketch.all_rows():
        y = np.full([n for d, n in enumerate(shape) if d not in over], 77, dtype)
        tw.build(space.schedule(sketch, [int(n) for n in row]), ONE)(x, y)
        np.testing.assert_array_equal(y, x.sum(over))


@pytest.mark.parametrize("target", [ONE, TWO])
@pytest.mark.parametrize(("combine", "numpy"), [(te.max, np.max), (te.min, np.min), (te.sum, np.sum)])
def test_it_is_the_default(combine, numpy, target):
    tensors = sums((4, 60, 80, 3), (1, 2), combine=combine)
    made = plan(tensors, target=target)
    assert "y_rf" in made.scheduled.script()  # the partial results
    (x,) = values(tensors)
    y = np.full((4, 3), np.nan, "float32")
    made.compile()(x, y)
    np.testing.assert_array_equal(y, numpy(x, (1, 2)))


def test_what_is_the_same_along_the_run_and_what_follows():
    """Squares of differences from a mean per channel, with a scale per image, divided by their number."""
    mean, scale = te.placeholder((3,), name="mean"), te.placeholder((4,), name="scale")
    x, *_, total = sums(
        (4, 20, 48, 3),
        (1, 2),
        term=lambda e, at: (e - mean[at[1]]) * (e - mean[at[1]]) * scale[at[0]],
        others=(mean, scale),
    )
    tensors = [x, mean, scale, ops.multiply(total, te.const(0.5, "float32"))]
    space, sketch = sketch_of(tensors, ONE)
    a, b, c = values(tensors)
    want = (((a - b) ** 2).sum((1, 2)) * c[:, None] / 2).astype("float32")
    for row in sketch.all_rows():
        y = np.full((4, 3), np.nan, "float32")
        tw.build(space.schedule(sketch, [int(n) for n in row]), ONE)(a, b, c, y)
        np.testing.assert_array_equal(y, want)


def test_other_reductions_are_left_to_tiles():
    weighted = te.placeholder((40,), name="w")
    x = te.placeholder((40, 3), name="x")
    r = te.reduce_axis((0, 40), name="r")
    assert sketch_of([x, weighted, te.compute((3,), lambda i: te.sum(x[r, i] * weighted[r], axis=r))], ONE)[1] is None
    assert sketch_of([x, te.compute((3,), lambda i: te.sum(x[39 - r, 2 - i], axis=r))], ONE)[1] is None
    assert sketch_of(sums((40, 64), (0,)), ONE)[1] is None


@pytest.mark.parametrize("size", [1, 2, 5, 16, 61, 100])
def test_symbolic_sizes(size):
    n = te.var("n")
    tensors = sums((n, 20, 3), (0, 1))
    module = tw.build(tensors, ONE)
    x, y = RNG.integers(-4, 5, (size, 20, 3)).astype("float32"), np.full(3, np.nan, "float32")
    module(x, y)
    np.testing.assert_array_equal(y, x.sum((0, 1)))


def test_the_recipe_by_hand():
    sch = Schedule(te.create_prim_func(sums((30, 3), (0,))))
    reduce_short_results(sch, "y", 1, 1, 8, 4)
    x, y = RNG.integers(-4, 5, (30, 3)).astype("float32"), np.full(3, np.nan, "float32")
    tw.build(sch, "llvm -mcpu=x86-64-v2")(x, y)
    np.testing.assert_array_equal(y, x.sum(0))
