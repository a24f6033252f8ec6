"""Functions of many stages: rows are found part by part, whatever the number of combinations; rules that fail are passed over."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tir.interpret import interpret
from tilewright.tuner import (
    Costs,
    Decision,
    Group,
    MachineModel,
    ModelGuidedSearch,
    Part,
    PriorModel,
    ScheduleRule,
    Sketch,
    Space,
    choose_default,
    default_rules,
)
from tilewright.tuner.measure.inputs import compare, make_arguments, tolerance
from tilewright.tuner.space.sketch import RowTable, cheapest_sums, distinct_rows, row_keys

TARGET = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
MACHINE = MachineModel.of(TARGET)


def layers(count, rows=7, width=17):
    x = h = te.placeholder((rows, width), name="x")
    args = [x]
    for n in range(count):
        w = te.placeholder((width, width), name=f"w{n}")
        args.append(w)
        h = ops.relu(ops.matmul(h, w))
    return te.create_prim_func([*args, h])


class Picky(Part):
    """Sensible only where all of its many decisions agree modulo 3; fastest at the largest ones."""

    name = "picky"

    def __init__(self, decisions=4, values=16, rare=False):
        self.rare = rare
        self.decisions = tuple(Decision(f"d{n}", tuple(range(values))) for n in range(decisions))

    def apply(self, sch, row):
        raise AssertionError("scoring must not build schedules")

    def costs(self, columns, rows):
        return Costs(rows).put(core_cycles=1e6 - sum(columns.values()))

    def mask(self, columns, rows):
        keep = np.ones(rows, dtype=bool)
        first, *others = columns.values()
        for column in others:
            keep &= column == first if self.rare else column % 3 == first % 3
        return keep


@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_every_layer_has_its_default(count):
    made = choose_default(Space(layers(count), TARGET))
    assert len(made.parts) == count and not made.left
    assert made.schedule.func.script().count("_init") >= count
    assert made.origin == "the analytic model's best schedule, not tuned"


def test_the_default_of_two_layers_computes_the_same():
    func = layers(3)
    results = []
    for one in (func, choose_default(Space(func, TARGET)).schedule.func):
        arguments = make_arguments(func, 0)
        interpret(one, *arguments.values)
        results.append(arguments.results())
    assert compare(*results, ["float32"], tolerance(func)) is None


@pytest.mark.parametrize("parts", [1, 2, 8, 40])
def test_a_sample_always_finds_rows(parts):
    sketch = Sketch([Picky() for _ in range(parts)], MACHINE)
    for near_best in (False, True):
        rows = sketch.sample(500, np.random.default_rng(0), near_best=near_best)
        assert len(rows) > 250 and sketch.mask(rows).all()
    best = sketch.best_rows(3)
    assert sketch.mask(best).all() and (best[0] == 15).all()
    search = ModelGuidedSearch(type("S", (), {"sketches": [sketch]})(), np.random.default_rng(0), PriorModel())
    for _ in range(2):
        batch = search.ask(8, 64)
        assert len({c.key for c in batch}) == 8 and sketch.mask(np.array([c.row for c in batch])).all()
        search.tell(batch, [1.0] * 8)


def test_the_sensible_rows_of_a_part_that_are_rare_are_found():
    table = RowTable(Picky(decisions=6, rare=True), MACHINE)
    assert not table.complete and len(table.rows) and table.mask(table.rows).all()
    none = RowTable(type("Never", (Picky,), {"mask": lambda self, columns, rows: np.zeros(rows, bool)})(3), MACHINE)
    assert not none.usable()


def test_the_best_rows_of_two_parts_are_the_best_of_all():
    sketch = Sketch([Picky(2, 4), Picky(2, 5)], MACHINE)
    rows = sketch.all_rows()
    seconds = sketch.score(rows)[1]
    assert len(rows) == 6 * 9 == len(distinct_rows(rows)) == len(set(row_keys(rows).tolist()))
    np.testing.assert_allclose(sketch.score(sketch.best_rows(7))[1], np.sort(seconds)[:7])


def test_cheapest_sums_are_those_of_all_sums():
    rng = np.random.default_rng(0)
    arrays = [rng.random(n) for n in (1, 7, 13, 5)]
    all_sums = np.sort(sum(np.meshgrid(*arrays)).reshape(-1))
    chosen = cheapest_sums(arrays, 16)
    np.testing.assert_allclose([sum(a[n] for a, n in zip(arrays, row, strict=True)) for row in chosen], all_sums[:16])


class Broken(ScheduleRule):
    """Takes every block first, and fails where it is told to."""

    name, priority = "broken", 1

    def __init__(self, where):
        self.where = where

    def match(self, program, block, free):
        if self.where == "match":
            raise KeyError("no such thing")
        return Group(block, (block,))

    def parts(self, program, group, machine):
        if self.where == "parts":
            raise IndexError("list index out of range")
        part = Picky(1, 3)
        for method in ("apply", "costs", "mask"):
            if self.where == method:
                setattr(part, method, lambda *args: [][0])
        return [part]


@pytest.mark.parametrize("where", ["match", "parts", "costs", "mask"])
def test_a_rule_that_fails_is_reported_once_and_the_others_go_on(where):
    with pytest.warns(
        RuntimeWarning, match=r"the schedule rule 'broken' failed: \w+Error: .* \(test_large_spaces.py:"
    ) as seen:
        space = Space(layers(2), TARGET, rules=[Broken(where), *default_rules()])
    assert len(seen) == 1
    assert len(choose_default(space).parts) == 2


def test_where_no_candidate_applies_the_later_rules_are_asked():
    rules = [Broken("apply"), *default_rules()]
    with pytest.warns(RuntimeWarning, match="'broken' failed: IndexError"):
        made = choose_default(Space(layers(2), TARGET, rules=rules))
    assert len(made.parts) == 2 and not made.left and "T.vectorized" in made.schedule.func.script()
    with pytest.warns(RuntimeWarning, match="'broken' failed: IndexError"):
        made = choose_default(Space(layers(2), TARGET, rules=rules[:1]))
    assert not made.parts
    assert made.origin.startswith("as written, not tuned: block matmul: the schedule rule 'broken' failed: IndexError")
