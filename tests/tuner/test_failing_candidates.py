"""Thirteen kinds of failing candidates are contained: each has its status and a reason, and the next one is measured."""

import pytest

from tilewright.tuner.remote.measuring import Answer, Measurer, MeasureRequest

from .failing_candidates import GOOD, KINDS, TARGET, runner


@pytest.fixture(scope="module")
def made():
    with runner() as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_has_its_status_and_the_next_candidate_runs(made, kind):
    text, status = KINDS[kind]
    failed, good = made.measure([text, GOOD])
    assert failed.status == status and failed.error and failed.run_seconds == float("inf")
    assert good.ok


def test_a_worker_for_others_outlives_what_it_measures():
    measurer, kinds = Measurer(), ("segfault", "_exit", "hang", "out of memory", "writes outside")
    programs = (*[KINDS[kind][0] for kind in kinds], GOOD)
    limits = {"run_timeout": 1.0, "memory_bytes": 4 << 30}
    try:
        answer = Answer.loads(measurer.answer(MeasureRequest(GOOD, str(TARGET), programs, limits=limits).dumps()))
    finally:
        measurer.close()
    assert [r.status for r in answer.results] == [*[KINDS[kind][1] for kind in kinds], "ok"]
