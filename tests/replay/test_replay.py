"""The replay: recordings come back as they were, strategies ask for recorded candidates only, and good ones win."""

import numpy as np
import pytest

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.tuner import Space
from tilewright.tuner.measure import MeasureResult

from . import recording as module
from .contest import STRATEGIES, model_correlation, prior_correlation, rank_correlation, replay
from .recorded_space import RecordedSpace
from .recording import FOLDER, WORKLOADS, Recording, chosen_rows, record

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
    assert len(asked) == len(set(asked)) >= 16  # CMA-ES waits for the end of each population


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


class Rehearsed:
    """A runner whose times follow from the programs, and which is interrupted after some batches."""

    batches = 0

    def __init__(self, **limits):
        assert limits["max_samples"] < 12

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def open(self, func, target):
        pass

    def measure(self, programs, best_seconds):
        Rehearsed.batches -= 1
        if Rehearsed.batches < 0:
            raise KeyboardInterrupt
        return [MeasureResult("ok", "", (1e-6 * (1 + len(p) % 97),)) for p in programs]


def test_an_interrupted_recording_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LocalRunner", Rehearsed)
    said, options = [], {"count": 40, "target": TARGET, "quiet": False}
    Rehearsed.batches = 100
    whole = record(SPEC, tmp_path / "whole.npz", say=said.append, **options)
    assert len(said) >= 3 and "min left" in said[0] and not list(tmp_path.glob("*.partial"))
    Rehearsed.batches = 2
    with pytest.raises(KeyboardInterrupt):
        record(SPEC, tmp_path / "cut.npz", say=said.append, **options)
    partial = tmp_path / "cut.partial"
    partial.write_text(partial.read_text() + '[["matmul", [1')  # a line that was cut off
    Rehearsed.batches = 100
    again = record(SPEC, tmp_path / "cut.npz", say=said.append, **options)
    assert len(said) == 2 * (-(-sum(map(len, whole.rows.values())) // 16)) and not partial.exists()
    for name, seconds in whole.seconds.items():
        np.testing.assert_array_equal(seconds, again.seconds[name])
    with pytest.raises(ValueError, match="is of another recording"):
        partial.write_text('["other", "llvm"]\n')
        record(SPEC, tmp_path / "cut.npz", say=said.append, **options)


def test_a_recording_ends_when_its_time_is_up(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LocalRunner", Rehearsed)
    Rehearsed.batches, options = 100, {"count": 60, "target": TARGET, "quiet": False, "say": lambda _: None}
    made = record(SPEC, tmp_path / "short.npz", seconds=0.0, **options)
    assert sum(map(len, made.rows.values())) == 16 and Rehearsed.batches == 98  # these, and the best once more
    found = Recording.load(tmp_path / "short.npz")
    assert list(found.rows) == list(made.rows) and RecordedSpace(found).best == made_best(made)


def made_best(recording):
    return min(float(np.float32(t)) for times in recording.seconds.values() for t in times)


@pytest.mark.parametrize("spec", WORKLOADS)
def test_the_workloads_to_record_exist(spec):
    assert parse_spec(spec).spec


def test_rank_correlation_of_reversed_orders_is_minus_one():
    assert rank_correlation(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1)
