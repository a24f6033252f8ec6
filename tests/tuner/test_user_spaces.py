"""Spaces that users restrict, pin and write themselves."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tuner import LocalRunner, ScheduleFunction, Space, choose_default, tune

WIDE = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


def product(m=13, n=17, k=16):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, ops.matmul(a, b)])


def rows_of(space):
    return [(s.name, s.decisions_of(row)) for s in space.sketches for row in s.all_rows()]


@pytest.mark.parametrize(
    "where, holds",
    [
        ({"vectors": 2}, lambda name, d: d["vectors"] == 2),
        ({"rows": (2, 4)}, lambda name, d: d["rows"] in (2, 4)),
        ({"tile_matmul_v1.rows": 4}, lambda name, d: d["rows"] == 4 or name != "tile_matmul_v1"),
    ],
)
def test_where_restricts_decisions(where, holds):
    everything, some = rows_of(Space(product(), WIDE)), rows_of(Space(product(), WIDE, where=where))
    assert 0 < len(some) < len(everything)
    assert all(holds(*candidate) for candidate in some)


def test_a_decision_without_a_value_leaves_its_part_out():
    names = [s.name for s in Space(product(), WIDE, where={"tile_matmul_v1.rows": 99}).sketches]
    assert names and "tile_matmul_v1" not in names


def test_where_names_a_decision_that_exists():
    with pytest.raises(ValueError, match="where: no decision 'rouws'; there are block, .*rows"):
        Space(product(), WIDE, where={"rouws": 1})


@pytest.mark.parametrize("value", [99, (98, 99), ()])
def test_where_names_a_value_that_exists(value):
    """Else nothing would be left but plain loops."""
    with pytest.raises(ValueError, match="where: 'vectors' is never .*; its values are 1, 2, "):
        Space(product(), WIDE, where={"vectors": value})


def by_hand(sch):
    i, j, k = sch.get_loops("matmul")
    sizes = sch.sample_perfect_tile(i, n=2, max_innermost_factor=13)
    width = sch.sample_categorical([4, 8, 16], [0.25, 0.25, 0.5])
    i0, i1 = sch.split(i, sizes)
    j0, j1 = sch.split(j, [None, width])
    sch.reorder(i0, j0, k, i1, j1)
    sch.decompose_reduction("matmul", k)
    sch.vectorize(j1)


def test_a_schedule_function_is_a_space():
    func = product()
    space = Space(func, WIDE, rules=[ScheduleFunction(by_hand)])
    (sketch,) = space.sketches
    assert sketch.name == "by_hand" and [len(d.candidates) for d in sketch.decisions] == [32, 3]
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 4, (13, 16)).astype("float32"), rng.integers(-4, 4, (16, 17)).astype("float32")
    seen = set()
    for row in sketch.sample(6, rng):
        sch = space.schedule(sketch, row)
        assert sch.func.script() == space.schedule(sketch, row).func.script()
        out = np.full((13, 17), np.nan, "float32")
        compile(sch.func, WIDE, "hand")(a, b, out)
        np.testing.assert_array_equal(out, a @ b)
        seen.add(sch.func.script())
    assert len(seen) > 1 and not choose_default(space).left


def test_a_schedule_function_is_tuned():
    with LocalRunner(workers=1) as runner:
        result = tune(product(), WIDE, trials=4, rules=[ScheduleFunction(by_hand)], runner=runner, where={"sample1": 1})
    assert result.best is not None and {r.decisions["sample1"] for r in result.records if r.decisions} == {1}


def test_the_description_of_a_space_has_sketches_decisions_and_sizes():
    text = Space(product(), WIDE, where={"vectors": 2}).describe()
    assert text.startswith("tile_matmul_v1: ") and "\n  vectors: 2; best: 2\n" in text and "rows are sensible" in text
