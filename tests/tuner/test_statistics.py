"""What timings say: disturbances do not count, and neither does repeating."""

import numpy as np
import pytest

from tilewright.tuner.measure.runner import estimate, interval


def test_a_disturbance_does_not_count():
    assert estimate([1.0, 1.01, 1.02, 50.0, 70.0]) == pytest.approx(1.01)


def test_one_timing_is_its_own_estimate():
    assert estimate([2.5]) == 2.5


def test_without_timings_there_is_no_estimate():
    with pytest.raises(ValueError, match="no timings"):
        estimate([])


def test_few_timings_are_not_told_apart():
    assert interval([1.0]).high > interval([1.1]).low
    assert interval([1.0]).high < interval([2.0]).low


def test_repeating_tells_close_ones_apart():
    rng = np.random.default_rng(0)
    a = 1.00 + 0.002 * rng.random(12)
    b = 1.05 + 0.002 * rng.random(12)
    assert interval(list(a)).high < interval(list(b)).low
    low, high = interval(list(a))
    assert low <= estimate(list(a)) <= high
