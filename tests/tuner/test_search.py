"""Search strategies on a made-up space: they find the optimum, never ask twice, and a seed fixes their order."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.tuner import Decision, ModelGuidedSearch, Part, PriorModel, RandomSearch, Sketch, XGBCostModel
from tilewright.tuner.cost.cost_features import Costs
from tilewright.tuner.cost.machine_model import MachineModel

MACHINE = MachineModel(64, 32, 1, 48 << 10, 1 << 20, 32 << 20)


class Valley(Part):
    """Fastest at a = 9, b = 5; the prior believes it to be a = 6, b = 5."""

    name = "valley"
    structure = ("a",)

    def __init__(self, wide=False):
        self.decisions = (
            Decision("a", tuple(range(1, 17))),
            Decision("b", tuple(range(1, 9))),
            *((Decision("c", tuple(range(1, 65))), Decision("d", tuple(range(1, 65)))) if wide else ()),
        )

    def apply(self, sch, row):
        raise AssertionError("scoring must not build schedules")

    def costs(self, columns, rows):
        cycles = 1e6 * (1 + (columns["a"] - 6) ** 2 + (columns["b"] - 5) ** 2)
        return Costs(rows).put(core_cycles=cycles, rows=columns["a"], columns=columns["b"])

    def mask(self, columns, rows):
        return columns["a"] != 3


def space(wide=False):
    return SimpleNamespace(sketches=[Sketch([Valley(wide)], MACHINE)])


def seconds_of(candidate):
    a, b, *rest = candidate.row
    return 1e-3 * (1 + (a - 9) ** 2 + (b - 5) ** 2 + sum(abs(v - 20) for v in rest) / 50)


def run(search, trials, batch=8):
    asked = []
    while len(asked) < trials:
        batch_now = search.ask(min(batch, trials - len(asked)), trials - len(asked))
        if not batch_now:
            break
        search.tell(batch_now, [seconds_of(c) for c in batch_now])
        asked += batch_now
    return asked


def guided(seed=0, wide=False, model=None):
    return ModelGuidedSearch(space(wide), np.random.default_rng(seed), model or XGBCostModel(seed))


def test_the_first_batch_is_the_priors_best_of_different_kinds():
    batch = guided().ask(4, 64)
    assert batch[0].row == (6, 5)
    assert len({c.row[0] for c in batch}) == 4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_finds_the_optimum_that_the_prior_misses(seed):
    asked = run(guided(seed), 48)
    assert min(map(seconds_of, asked)) <= 2e-3
    assert len({c.key for c in asked}) == len(asked) == 48


def test_a_large_space_is_sampled_and_evolves():
    search = guided(wide=True)
    before = len(search.pools[0].rows)
    asked = run(search, 48)
    assert not search.pools[0].complete
    assert len(search.pools[0].rows) > before
    assert min(map(seconds_of, asked)) < 8e-3


def test_masked_rows_are_never_asked():
    assert all(c.row[0] != 3 for c in run(guided(), 100))


def test_it_ends_when_everything_was_tried():
    asked = run(guided(model=PriorModel()), 1000, batch=50)
    assert len(asked) == 15 * 8


def test_a_seed_fixes_the_order():
    first, second = run(guided(3), 32), run(guided(3), 32)
    assert [c.key for c in first] == [c.key for c in second]


def test_failures_are_not_fatal():
    search = guided()
    for _ in range(3):
        batch = search.ask(8, 40)
        search.tell(batch, [float("inf")] * len(batch))
    assert len(search.ask(8, 16)) == 8


def test_random_search_asks_for_what_it_has_not_seen():
    search = RandomSearch(space(), np.random.default_rng(0))
    asked = run(search, 64)
    assert len({c.key for c in asked}) == 64
