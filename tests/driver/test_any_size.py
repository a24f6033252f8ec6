"""Tests of functions of symbolic sizes that are tuned at examples, and built of several schedules."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.driver.any_size import SizeTree, chosen_on_record, decided, dispatched, examples_asked
from tilewright.driver.building import TuneError, plan
from tilewright.schedule import Schedule
from tilewright.tir import PrimFunc, parse
from tilewright.tir.program_key import EXAMPLE, family_key, workload_key
from tilewright.tuner.example_sizes import at_example, with_example
from tilewright.tuning_db import Database

TARGET = "native -num-cores=1"


def product(names: tuple[str, str] = ("n", "m")) -> PrimFunc:
    n, m = te.size_var(names[0]), te.size_var(names[1])
    a, b = te.placeholder((n, 24), name="A"), te.placeholder((24, m), name="B")
    k = te.reduce_axis((0, 24), name="k")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def rows() -> PrimFunc:
    n = te.size_var("n")
    x = te.placeholder((n, 40), name="x")
    return te.create_prim_func([x, te.ops.softmax(x, axis=1)])


def agrees(module: object, sizes: tuple[int, ...]) -> None:
    for n in sizes:
        x = np.random.default_rng(n).standard_normal((n, 40), np.float32)
        y = np.full((n, 40), np.nan, np.float32)
        module(x, y)  # type: ignore[operator]
        e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_examples_are_lists_that_are_combined_or_mappings() -> None:
    func = product()
    assert examples_asked(func, {"n": [1, 8], "m": 16}) == [{"n": 1, "m": 16}, {"n": 8, "m": 16}]
    assert examples_asked(func, [{"n": 1, "m": 2}, {"m": 2, "n": 1}, {"n": 3, "m": 4}]) == [
        {"n": 1, "m": 2},
        {"n": 3, "m": 4},
    ]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"n": 4, "k": 2}, "has no size 'k'"),
        ({"n": 4}, "no number for m"),
        ({"n": [4, 0], "m": 1}, "at least 1"),
        ({"n": [], "m": 1}, "no example"),
    ],
)
def test_examples_that_do_not_fit_are_refused(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        examples_asked(product(), sizes)


def test_an_example_meets_what_the_function_asks_of_its_sizes() -> None:
    n = te.size_var("n")
    x = te.placeholder((n,), name="x")
    func = te.create_prim_func([x, te.ops.reshape(x, (n // 4, 4))])
    with pytest.raises(ValueError, match="n = 6 does not fit"):
        examples_asked(func, {"n": 6})
    assert examples_asked(func, {"n": 8}) == [{"n": 8}]


def test_fixed_sizes_have_no_examples() -> None:
    x = te.placeholder((4,), name="x")
    with pytest.raises(ValueError, match="all of whose sizes are numbers"):
        tw.tune([x, te.ops.exp(x)], TARGET, sizes={"n": 4})


def test_examples_of_one_function_are_a_family_whatever_its_names() -> None:
    func, other = product(), product(("rows", "columns"))
    assert family_key(func) == "" and workload_key(func) == workload_key(other)
    at = with_example(func, {"n": 3, "m": 5})
    assert family_key(at) == family_key(with_example(other, {"rows": 9, "columns": 2})) == workload_key(func)
    assert parse(at.script()).attrs[EXAMPLE]["n"] == 3
    assert [[int(e) for e in b.shape] for b in at_example(at).buffers] == [[3, 24], [24, 5], [3, 5]]


def test_a_tree_splits_where_it_gains() -> None:
    examples = [{"n": n, "m": m} for n in (1, 64) for m in (1, 64)]
    fast_small, fast_large = [1.0, 1.0, 4.0, 4.0], [3.0, 3.0, 2.0, 2.0]
    tree = decided(examples, [fast_small, fast_large], 10)
    assert (tree.name, tree.end) == ("n", 8)
    assert [tree.of({"n": n, "m": 7}) for n in (1, 8, 9, 1000)] == [0, 0, 1, 1]
    assert decided(examples, [fast_small, fast_large], 1).leaves() == [SizeTree(0)]
    assert len(decided(examples, [[1.0] * 4, [1.001] * 4], 10).leaves()) == 1
    assert decided(examples, [[math.inf, 1.0, 1.0, 1.0], [2.0] * 4], 10).of({"n": 1, "m": 1}) == 1


def test_a_tree_of_both_sizes_has_a_leaf_for_each_corner() -> None:
    examples = [{"n": n, "m": m} for n in (1, 64) for m in (1, 64)]
    times = [[1.0 if s == e else 9.0 for e in range(4)] for s in range(4)]
    tree = decided(examples, times, 10)
    assert [tree.of(e) for e in examples] == [0, 1, 2, 3]
    assert len(decided(examples, times, 3).leaves()) == 3


def test_a_function_chooses_by_its_sizes_and_its_text_is_read_back() -> None:
    func = rows()
    plain, parallel = Schedule(func), Schedule(func)
    block = parallel.get_block(
        next(name for name in ("T_softmax_norm", "T_softmax_divide", "T_softmax") if name in func.script())
    )
    parallel.split(parallel.get_loops(block)[0], [None, 2])
    made = dispatched(func, [plain.func, parallel.func], SizeTree(0, "n", 4, SizeTree(0), SizeTree(1)))
    assert "n <= 4" in made.script()
    assert workload_key(parse(made.script())) == workload_key(made)
    agrees(tw.build(made, TARGET), (0, 1, 4, 5, 7, 33))


def test_symbolic_functions_are_tuned_and_built_of_the_records(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    result = tw.tune(rows(), TARGET, sizes={"n": [2, 48]}, trials=4, db=path, seed=3)
    assert [dict(sizes) for sizes in result.results] == [{"n": 2}, {"n": 48}]
    assert all(r.best is not None for r in result.results.values())
    assert result.choice is not None and 1 <= len(result.schedules) <= 2
    assert all(s is not None and s > 0 for s in map(result.choice.seconds, result.choice.examples))
    assert "as built" in str(result)
    made = plan(rows(), TARGET, db=path)
    assert made.kind == "tuned" and "n = 2; n = 48" in made.origin
    agrees(tw.build(rows(), TARGET, db=path, require_tuned=True), (0, 1, 2, 17, 48, 200))
    with Database(path, readonly=True) as db:
        assert len(db.at_examples(rows())) == 2
        assert chosen_on_record(db, rows(), tw.Target("llvm -mcpu=x86-64-v3 -num-cores=1")) is None
    again = tw.tune(rows(), TARGET, sizes={"n": 48}, trials=2, db=path, seed=3)
    assert again.results[("n", 48),].best is not None


def test_tiles_of_measured_schedules_do_not_end_with_a_row_of_the_example() -> None:
    """A row of ``n + 2`` has 66 elements at the example; the schedules of all sizes have vectors of 64 for it."""
    n = te.size_var("n")
    x = te.placeholder((n, n + 2), name="x")
    func = te.create_prim_func([x, te.compute((n, n + 2), lambda i, j: te.exp(x[i, n + 1 - j]), name="y")])
    result = tw.tune(func, TARGET, sizes={"n": 64}, trials=6, seed=0)
    traces = [r.trace for r in result.records if r.status == "ok"]
    assert any("[null,64]" in t for t in traces) and not any("[null,66]" in t for t in traces)
    run = tw.build(result.schedules[0], TARGET)
    for size in (1, 2, 17, 62, 64, 100):
        a = np.random.default_rng(size).standard_normal((size, size + 2), np.float32)
        np.testing.assert_allclose(run(a), np.exp(a[:, ::-1]), rtol=1e-5)


def test_without_a_database_the_result_has_the_schedules() -> None:
    result = tw.tune(rows(), TARGET, sizes={"n": 8}, trials=2, seed=1)
    assert len(result.schedules) == 1
    agrees(tw.build(result.schedules[0], TARGET), (1, 8, 19))


def test_an_extent_that_is_an_argument_is_tuned(tmp_path: Path) -> None:
    filled = te.var("filled", "int32")
    x, w = te.placeholder((256, 16), name="x"), te.placeholder((256,), name="w")
    k = te.reduce_axis((0, filled), name="k")
    y = te.compute((16,), lambda j: te.sum(x[k, j] * w[k], axis=k), name="y")
    func = te.create_prim_func([filled, x, w, y])
    result = tw.tune(func, TARGET, sizes={"filled": [16, 200]}, trials=3, db=tmp_path / "t.db", seed=0)
    assert not [r.status for r in result.records if r.status not in ("ok", "schedule_error")]
    module = tw.build(func, TARGET, db=tmp_path / "t.db", require_tuned=True)
    rng = np.random.default_rng(0)
    a, b, c = rng.random((256, 16), np.float32), rng.random(256, np.float32), np.empty(16, np.float32)
    for number in (1, 16, 100, 256):
        module(number, a, b, c)
        np.testing.assert_allclose(c, b[:number] @ a[:number], rtol=1e-4)


def test_symbolic_functions_without_examples_say_how_to_give_them() -> None:
    with pytest.raises(TuneError, match=r"sizes=\{'n': \[16, 256, 1024\]\}"):
        tw.tune(rows(), TARGET, trials=1)


def test_small_sizes_have_schedules_of_their_own_where_these_differ() -> None:
    n = te.size_var("n")
    x = te.placeholder((n, 256), name="x")
    assert "up to" not in plan([x, te.ops.exp(x)], TARGET).origin
    made = plan([x, te.ops.softmax(x, axis=1)], TARGET)
    assert "up to n = 6 for n = 4, up to n = 1 for n = 1" in made.origin
    assert "n <= 1" in made.scheduled.script() and "n <= 6" in made.scheduled.script()
    k = te.reduce_axis((0, 256), "k")
    product = te.compute((n, n), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k))
    assert "up to n = 48 for n = 16" in plan([x, product], TARGET).origin
    asked = with_example(te.create_prim_func([x, te.ops.softmax(x, axis=1)]), {"n": 32})
    assert "n <= 1" not in plan(asked, TARGET).scheduled.script()


def test_a_small_size_has_a_schedule_that_divides_by_it_where_the_usual_one_does_so() -> None:
    n = te.size_var("n")
    q, k, v = (te.placeholder((2, n, 16), name=name) for name in "qkv")
    made = plan([q, k, v, te.ops.attention(q, k, v)], TARGET)
    assert "up to n = 48 for n = 16" in made.origin


def test_axes_that_are_divided_by_a_size_are_tuned_at_examples() -> None:
    n = te.size_var("n")
    a, b = te.placeholder((4 * n, 16), name="a"), te.placeholder((n, 16), name="b")
    r = te.reduce_axis((0, 16), name="r")
    c = te.compute((4 * n,), lambda i: te.sum(a[i, r] * b[i % n, r], axis=r), name="c")
    result = tw.tune([a, b, c], TARGET, sizes={"n": [1, 16, 96]}, trials=2, seed=0)
    assert [record.status for record in result.records] == ["ok"] * len(result.records)
    assert {record.trace.count('"transform_block_layout"') > 0 for record in result.records} == {True}
    assert result.choice is not None
    module = tw.build(result.choice.program, TARGET)
    for size in (1, 2, 3, 16, 33, 96, 97):
        rng = np.random.default_rng(size)
        x, y = (rng.integers(-4, 5, (rows, 16)).astype("float32") for rows in (4 * size, size))
        z = np.full(4 * size, np.nan, "float32")
        module(x, y, z)
        np.testing.assert_array_equal(z, (x * np.tile(y, (4, 1))).sum(1))


def test_a_small_size_has_no_schedule_that_was_made_for_a_large_one() -> None:
    def softmax(n: object) -> list[te.Tensor]:
        x = te.placeholder((64, n), name="x")  # type: ignore[arg-type]
        return [x, te.ops.softmax(x, axis=1)]

    made = plan(softmax(te.size_var("n")), target=TARGET)
    text = str(made.scheduled)
    assert "// n" not in text and "% n" not in text  # the best one for n = 1 fuses loops, and divides by n
    module = made.compile()
    for n in (1, 2, 3, 4, 5, 6, 7, 33):
        x = np.random.default_rng(n).standard_normal((64, n), np.float32)
        y = np.full((64, n), np.nan, np.float32)
        module(x, y)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("axes", [(0, 2), (1, 2), (2,)])
def test_rows_of_one_vector_are_a_pattern_for_longer_rows(axes: tuple[int, ...]) -> None:
    def largest(n: object) -> list[te.Tensor]:
        shape = (8, 12, n)
        x = te.placeholder(shape, name="x")  # type: ignore[arg-type]
        over = {axis: te.reduce_axis((0, shape[axis]), name=f"r{axis}") for axis in axes}  # type: ignore[arg-type]

        def of(*left: object) -> object:
            rest = iter(left)
            return te.max(x[tuple([over[a] if a in over else next(rest) for a in range(3)])], axis=[*over.values()])

        return [x, te.compute([shape[a] for a in range(3) if a not in over], of, name="y")]  # type: ignore[arg-type]

    made = plan(largest(te.size_var("n")), target="llvm -mcpu=x86-64-v4 -num-cores=1")
    assert made.origin.startswith("the analytic model's best schedule for n = 64,")
    module = plan(largest(te.size_var("n")), target=TARGET).compile()
    for n in (1, 2, 3, 7, 16, 17, 63, 64, 65, 130):
        x = np.random.default_rng(n).standard_normal((8, 12, n), np.float32)
        y = np.full([x.shape[a] for a in range(3) if a not in axes], np.nan, np.float32)
        module(x, y)
        np.testing.assert_array_equal(y, x.max(axes))
