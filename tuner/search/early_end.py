"""This module says whether a search is over before its trials are used."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...tuning_db import TuningRecord
from .tune_options import TuneOptions
from .tune_result import Stopped

GAIN = 0.01
"""A gain smaller than this share of the time counts as none."""

_PATIENCE = 24
"""Trials without a gain after which the search may stop."""


def early_end(
    options: TuneOptions, best: TuningRecord | None, idle: int, promise: Callable[[], float | None], before: int = 0
) -> Stopped | None:  # fmt: skip
    """Returns why the search is over, None when it goes on. ``idle`` trials brought no gain, nor ``before`` ones of
    earlier sessions; ``promise`` returns the seconds that the search expects of the best candidate that is left."""
    seconds = math.inf if best is None or not best.run_seconds else best.run_seconds
    if options.enough_seconds is not None and seconds <= options.enough_seconds:
        return "enough"
    if options.patience is not None and idle >= options.patience:
        return "patience"
    if not options.stop_early or idle + before < _PATIENCE or seconds == math.inf:
        return None
    expected = promise()
    return "converged" if expected is not None and expected > (1 - GAIN) * seconds else None
