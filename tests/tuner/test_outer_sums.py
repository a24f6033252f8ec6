"""Products of one row: read row after row where a tile of results would jump from page to page."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tuner import MachineModel, Space, choose_default

TARGETS = [Target(f"llvm -mcpu=x86-64-v3 -num-cores={cores}") for cores in (1, 2)]
MACHINE = MachineModel(64, 32, 1, 48 << 10, 1 << 20, 32 << 20)


def product(n, k, *, row=1):
    a, b = te.placeholder((row, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, ops.matmul(a, b)])


def transposed(n, k):
    step = te.reduce_axis((0, k), name="k")
    a, x = te.placeholder((k, n), name="A"), te.placeholder((k,), name="x")
    return te.create_prim_func([x, a, te.compute((n,), lambda j: te.sum(a[step, j] * x[step], axis=step), name="y")])


@pytest.mark.parametrize("target", TARGETS, ids=["one", "two"])
@pytest.mark.parametrize("n, k", [(257, 13), (1000, 7), (300, 1), (2049, 16), (260, 17)])
@pytest.mark.parametrize("build", [product, transposed])
def test_results_are_numpy_s(build, n, k, target):
    func = build(n, k)
    (sketch,) = [s for s in Space(func, target).sketches if s.name.startswith("outer_")] or [None]
    if sketch is None:  # nothing to sum
        assert k == 1
        return
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (1, k) if build is product else (k,)).astype("float32")
    a = rng.integers(-9, 9, (k, n)).astype("float32")
    for row in sketch.all_rows()[:: max(1, len(sketch.all_rows()) // 3)]:
        y = np.full((1, n) if build is product else (n,), np.nan, "float32")
        compile(Space(func, target).schedule(sketch, tuple(map(int, row))).func, target, "outer")(x, a, y)
        np.testing.assert_array_equal(y.reshape(-1), x.reshape(-1) @ a)


@pytest.mark.parametrize(
    "func, outer",
    [
        (product(1024, 1024), True),  # 41 µs against 67 µs of tiles were measured
        (product(2048, 1024), True),  # 96 and 155 µs
        (transposed(2000, 2000), True),
        (product(64, 1024), False),  # rows lie close together
        (product(1024, 1024, row=4), False),
    ],
)
def test_rows_far_apart_are_read_one_after_the_other(func, outer):
    made = choose_default(Space(func, TARGETS[0], machine=MACHINE))
    assert ("outer_" in "".join(s.name for s in made.space.sketches)) == outer
    assert len(made.parts) == 1
    if outer:
        best = min(made.space.sketches, key=lambda s: float(s.score(s.best_rows(1))[1][0]))
        assert best.name.startswith("outer_")
