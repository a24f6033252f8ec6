"""The cost model: the prior rules at first, the trees learn its error, and a seed fixes everything."""

import numpy as np

from tilewright.tuner import PriorModel, XGBCostModel


def data(count, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.random((count, 5)).astype(np.float32)
    prior = 1e-3 * (1 + rng.random(count))
    seconds = prior * 3 * 2.0 ** (2 * (features[:, 0] > 0.5))  # the prior misses a factor and one feature
    return features, prior, seconds


def test_without_records_the_prior_is_the_prediction():
    features, prior, _ = data(10)
    mean, deviation = XGBCostModel().predict(features, prior)
    assert np.allclose(mean, np.log2(prior))
    assert (deviation > 0).all()


def test_the_trees_learn_what_the_prior_misses():
    features, prior, seconds = data(200)
    model = XGBCostModel(seed=1)
    model.fit(features, prior, seconds, np.ones(200))
    test_features, test_prior, test_seconds = data(100, seed=5)
    error = np.abs(model.predict(test_features, test_prior)[0] - np.log2(test_seconds))
    plain = PriorModel()
    plain.fit(features, prior, seconds, np.ones(200))
    plain_error = np.abs(plain.predict(test_features, test_prior)[0] - np.log2(test_seconds))
    assert np.median(error) < 0.2 * np.median(plain_error) + 0.05


def test_a_handful_of_records_cannot_overrule_the_prior():
    features, prior, seconds = data(4)
    model = XGBCostModel()
    model.fit(features, prior, seconds, np.ones(4))
    mean, _ = model.predict(features, prior)
    assert np.array_equal(np.argsort(mean), np.argsort(prior))


def test_a_seed_fixes_the_predictions():
    features, prior, seconds = data(64)
    predictions = []
    for _ in range(2):
        model = XGBCostModel(seed=7)
        model.fit(features, prior, seconds, np.ones(64))
        predictions.append(model.predict(features, prior)[0])
    assert np.array_equal(*predictions)


def test_foreign_records_count_less():
    features, prior, seconds = data(20)
    model = PriorModel()
    model.fit(
        np.concatenate([features, features]),
        np.concatenate([prior, prior]),
        np.concatenate([prior * 2, prior * 8]),
        np.concatenate([np.ones(20), np.full(20, 0.2)]),
    )
    assert model.offset == 1.0


def test_without_xgboost_the_prior_decides(monkeypatch, caplog):
    import sys

    from tilewright.tuner import XGBCostModel
    from tilewright.tuner.cost import cost_model

    monkeypatch.setitem(sys.modules, "xgboost", None)
    cost_model._xgboost.cache_clear()
    try:
        model = XGBCostModel()
        prior = np.geomspace(1e-6, 1e-3, 16)
        model.fit(np.zeros((16, 3)), prior, 2 * prior, np.ones(16))
        mean, _ = model.predict(np.zeros((16, 3)), prior)
        np.testing.assert_allclose(mean, np.log2(2 * prior))
        assert caplog.text.count("the search goes on with the analytic one (pip install xgboost)") == 1
    finally:
        cost_model._xgboost.cache_clear()
