"""The replay: recordings come back as they were, strategies ask for recorded candidates only, and good ones win."""

import numpy as np
import pytest

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.tuner import Space

from .contest import STRATEGIES, model_correlation, prior_correlation, rank_correlation, replay
from .recorded_space import RecordedSpace
from .recording import FOLDER, Recording, chosen_rows

SPEC, TARGET = "matmul:M=32,N=48,K=16", "llvm -mcpu=x86-64-v3 -num-cores=1"


def planted(count=120, noise=0.0):
    """A recording whose times are the prior's predictions, with noise; some candidates failed."""
    rng = np.random.default_rng(0)
    space = Space(parse_spec(SPEC).func, Target(TARGET))
    rows = chosen_rows(space, count, rng)
    seconds = {}
    for sketch in space.sketches:
        times = sketch.score(rows[sketch.name])[1] * np.exp(noise * rng.standard_normal(len(rows[sketch.name])))
        times[::17] = np.inf
        seconds[sketch.name] = times
    names = {s.name: list(s.column_names) for s in space.sketches}
    return Recording({"spec": SPEC, "target": TARGET, "decisions": names, "quiet_machine": True}, rows, seconds)


def test_a_recording_comes_back(tmp_path):
    before = planted()
    before.save(tmp_path / "some.npz")
    after = Recording.load(tmp_path / "some.npz")
    assert after.about == before.about and (tmp_path / "some.npz").stat().st_size < 10_000
    for name, rows in before.rows.items():
        np.testing.assert_array_equal(after.rows[name], rows)
        np.testing.assert_allclose(after.seconds[name], before.seconds[name], rtol=1e-6)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_asks_for_recorded_candidates_once(name):
    space = RecordedSpace(planted())
    search = STRATEGIES[name](space, np.random.default_rng(1))
    asked = []
    for left in (24, 16, 8):
        candidates = search.ask(8, left)
        search.tell(candidates, [space.time_of(c) for c in candidates])
        asked += [c.key for c in candidates]
    assert len(asked) == len(set(asked)) >= 20


def test_a_search_that_knows_the_prior_finds_the_best_at_once():
    space = RecordedSpace(planted(noise=0.01))
    assert prior_correlation(space) > 0.98 and model_correlation(space) > 0.9
    assert replay(space, STRATEGIES["ours"], seed=0).trials <= 8
    assert all(0 < replay(space, STRATEGIES[name], seed=0).first <= 1 for name in STRATEGIES)


def test_rows_that_the_space_has_no_more_are_counted():
    recording = planted()
    name = next(iter(recording.rows))
    recording.about["decisions"][name] = ["other", *recording.about["decisions"][name][1:]]
    space = RecordedSpace(recording)
    assert space.lost == len(recording.rows[name]) and name not in [s.name for s in space.sketches]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda p: p.stem)
def test_stored_recordings_are_small_and_readable(path):
    recording = Recording.load(path)
    assert path.stat().st_size < 60_000 and {"spec", "target", "cpu", "quiet_machine"} <= recording.about.keys()
    assert all(np.isfinite(times).any() for times in recording.seconds.values())


def test_rank_correlation_of_reversed_orders_is_minus_one():
    assert rank_correlation(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1)
