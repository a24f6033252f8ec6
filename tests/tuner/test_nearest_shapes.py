"""A build of a new shape takes what was measured as faster than the default at a near one, and its origin says so."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import CODEGEN_VERSION
from tilewright.driver import NoRecordError
from tilewright.tir.expr import structural_equal
from tilewright.tuner import Space, choose_default
from tilewright.tuning_db import Database, TuningRecord

TARGET = tw.Target("native -num-cores=1")


def matmul(m, n, k, name="C"):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name=name)])


def best_and_other(space):
    """The prior's best candidate, and another one of its sketch, as (sketch, row, seconds)."""
    ranked = []
    for sketch in space.sketches:
        rows = sketch.best_rows(40)
        ranked += [(float(t), sketch, tuple(map(int, r))) for t, r in zip(sketch.score(rows)[1], rows, strict=True)]
    ranked.sort(key=lambda item: item[0])
    return ranked[0], next(x for x in ranked[10:] if x[1] is ranked[0][1])


def store(path, sizes, other_share):
    """Record the prior's best candidate of a size with 10 us, and another one with a part of that."""
    func = matmul(*sizes)
    space = Space(func, TARGET)
    with Database(path) as db:
        for (_, sketch, row), seconds in zip(best_and_other(space), (1e-5, other_share * 1e-5), strict=True):
            trace = space.schedule(sketch, row).trace.dumps()
            db.add_record(TuningRecord(
                db.add_workload(func), db.add_target(TARGET), trace, (seconds,), sketch=sketch.name,
                decisions=sketch.decisions_of(row), codegen_version=CODEGEN_VERSION,
            ))  # fmt: skip
    return sketch.decisions_of(row)


@pytest.mark.parametrize(
    ("sizes", "other_share", "name", "moved"),
    [
        ((48, 96, 64), 0.5, "C", True),
        ((48, 96, 64), 1.0, "C", False),  # what was measured there does not speak against the default
        ((48, 96, 64), 1.5, "C", False),
        ((1024, 96, 64), 0.5, "C", False),  # too far away
        ((48, 96, 64), 0.5, "other", False),  # blocks of other names: another kind
    ],
)
def test_a_build_takes_what_was_faster_at_a_near_size(tmp_path, sizes, other_share, name, moved):
    path = tmp_path / "shapes.db"
    store(path, sizes, other_share)
    func = matmul(41, 96, 64, name)
    module = tw.build(func, TARGET, db=path)
    assert ("of the nearest size (48x64, 64x96, 48x96), not tuned" in module.origin) is moved
    assert (module.plan.kind, module.plan.record) == ("default", None)
    default = choose_default(Space(func, TARGET)).schedule.func
    assert structural_equal(module.plan.scheduled, default) is not moved
    a, b = (np.random.default_rng(0).integers(-4, 5, s).astype("float32") for s in ((41, 64), (64, 96)))
    np.testing.assert_array_equal(module(a, b), a @ b)
    with pytest.raises(NoRecordError):
        tw.build(func, TARGET, db=path, require_tuned=True)


def test_a_record_of_the_size_itself_comes_before_near_ones(tmp_path):
    path = tmp_path / "shapes.db"
    store(path, (48, 96, 64), 0.5)
    store(path, (41, 96, 64), 2.0)
    module = tw.build(matmul(41, 96, 64), TARGET, db=path)
    assert module.plan.kind == "tuned" and "nearest" not in module.origin
