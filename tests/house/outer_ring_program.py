"""What both rings have to do: :mod:`.test_ring` runs this file in a copy of the library without leaves."""

from __future__ import annotations

import numpy as np
from core_ring_program import matmul, scheduled

from tilewright import te
from tilewright.codegen import Target
from tilewright.driver.planning import plan_request
from tilewright.driver.request import request
from tilewright.schedule import Schedule, Trace
from tilewright.tir import assert_structural_equal, parse
from tilewright.tuner.search.session import tune
from tilewright.tuning_db import Database


def test_what_prints_parses_back():
    sch = scheduled(matmul(7, 13, 16))
    assert_structural_equal(parse(sch.func.script()), sch.func)


def test_a_trace_is_read_from_its_json():
    sch = scheduled(matmul(7, 13, 16))
    again = Schedule(matmul(7, 13, 16))
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


def test_tune_records_and_build_finds_the_record(tmp_path):
    x, target = te.placeholder((17, 13), name="x"), Target("native")
    func = te.create_prim_func([x, te.compute((17, 13), lambda i, j: x[i, j] * 2 + 1, name="y")])
    with Database(tmp_path / "records.db") as db:
        result = tune(func, target, trials=2, db=db)
        assert result.best is not None, result.problem
        a, b = np.arange(17 * 13, dtype=np.float32).reshape(17, 13), np.full((17, 13), np.nan, np.float32)
        plan_request(request(func, None, None), target, db, require_tuned=True).compile()(a, b)
    assert np.array_equal(b, a * 2 + 1)
