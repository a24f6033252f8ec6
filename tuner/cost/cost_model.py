"""Cost models predict the seconds of candidates from their features and the analytic prior.

:class:`XGBCostModel` learns the error of the prior: gradient-boosted trees (Chen and Guestrin, "XGBoost", KDD 2016) on
the logarithm of the time, with the prior's logarithm as their starting point. With few records, or
without the package, the prior decides.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np

from ...pages.messages import short_repr

log = logging.getLogger("tilewright")


class CostModel(ABC):
    """A cost model fits measurements and predicts log2 seconds. Derive from it to use a model of your own."""

    __repr__ = short_repr()

    @abstractmethod
    def fit(self, features: np.ndarray, prior: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> None:
        """Learn from ``N x F`` features, the prior's seconds, measured seconds (finite) and weights, each of length N."""

    @abstractmethod
    def predict(self, features: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ``(mean, deviation)`` of log2 seconds for each row; the deviation is the model's uncertainty."""


class PriorModel(CostModel):
    """This model is the analytic prior, shifted by the median error of the measurements."""

    def __init__(self) -> None:
        self.offset = 0.0

    def fit(self, features: np.ndarray, prior: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> None:
        self.offset = _weighted_median(np.log2(seconds) - np.log2(prior), weights) if len(seconds) else 0.0

    def predict(self, features: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.log2(prior) + self.offset, np.full(len(prior), 0.5)


class XGBCostModel(CostModel):
    """This model is an ensemble of boosted trees that corrects the prior. It is deterministic for a seed.

    ``seed`` is for the subsampling of the trees. ``members`` is the number of boosters; their disagreement is the deviation.
    ``rounds`` is the number of trees of each. From ``trust_after`` records on the correction counts fully. With fewer it
    is scaled down in proportion, so that a handful of timings cannot overrule the prior.
    """

    def __init__(self, seed: int = 0, *, members: int = 3, rounds: int = 60, trust_after: int = 32) -> None:
        self.seed, self.members, self.rounds, self.trust_after = seed, members, rounds, trust_after
        self.offset = 0.0
        self.trust = 0.0
        self._boosters: list[Any] = []

    def fit(self, features: np.ndarray, prior: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> None:
        self._boosters = []
        if len(seconds) == 0:
            self.offset = self.trust = 0.0
            return
        residual = np.log2(seconds) - np.log2(prior)
        self.offset = _weighted_median(residual, weights)
        self.trust = min(1.0, len(seconds) / self.trust_after)
        if len(seconds) < 6:
            return
        xgb = _xgboost()
        if xgb is None:
            return
        data = xgb.DMatrix(features, label=residual - self.offset, weight=weights, nthread=1)
        for member in range(self.members):
            parameters = {
                "objective": "reg:squarederror", "base_score": 0.0, "eta": 0.15, "max_depth": 5, "subsample": 0.8,
                "colsample_bytree": 0.8, "min_child_weight": 1.0, "lambda": 1.0, "nthread": 1, "verbosity": 0,
                "tree_method": "exact" if len(seconds) < 2000 else "hist", "seed": self.seed + 1000 * member,
            }  # fmt: skip
            self._boosters.append(xgb.train(parameters, data, num_boost_round=self.rounds))

    def predict(self, features: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        base = np.log2(prior) + self.offset
        if not self._boosters:
            return base, np.full(len(prior), 0.5)
        corrections = np.stack([booster.inplace_predict(features) for booster in self._boosters]).astype(np.float64)
        return base + self.trust * corrections.mean(axis=0), corrections.std(axis=0) + 0.3 * (1.0 - self.trust)


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


@lru_cache(maxsize=1)
def _xgboost() -> Any:
    """Returns the package, or None when it cannot be imported: then the prior alone decides, and the log says so."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of its pool must not disturb timings
    try:
        import xgboost
    except (ImportError, OSError) as error:
        log.warning("no learned cost model: %s; the search goes on with the analytic one (pip install xgboost)", error)
        return None
    return xgboost
