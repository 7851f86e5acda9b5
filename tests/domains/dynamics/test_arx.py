"""The linear baseline: an ARX system is recovered, and its forecasts are fed back."""

import numpy as np
import pytest

from tenfold.domains.dynamics.belief import ARX, fit_arx


def oscillator(rng: np.random.Generator, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """y_t = 1.6·y_{t−1} − 0.8·y_{t−2} + 0.5·a_{t−1} + 0.1, no noise."""
    a = rng.normal(size=(count, length, 1))
    y = rng.normal(size=(count, length, 1))
    for t in range(2, length):
        y[:, t] = 1.6 * y[:, t - 1] - 0.8 * y[:, t - 2] + 0.5 * a[:, t - 1] + 0.1
    return y, a


def test_a_linear_system_is_recovered_and_foretold_exactly() -> None:
    y, a = oscillator(np.random.default_rng(0), 4, 30)
    model = fit_arx(y, a, lags=2)
    # y and a one step ago, then two; the constant
    assert model.weight[0] == pytest.approx([1.6, 0.5, -0.8, 0.0, 0.1])
    assert model.k_step_r2(*oscillator(np.random.default_rng(1), 4, 30), 5) == pytest.approx(
        np.ones(5)
    )
    assert (fit_arx(y, a, lags=1).k_step_r2(y, a, 5) < 0.99).all()  # one lag cannot


def test_predictions_are_fed_back_by_hand() -> None:
    """y_t = 2·y_{t−1} + a_{t−1}: from 1 under actions 0, 1, 0: 2, 5, 10."""
    model = ARX(np.array([[2.0, 1.0, 0.0]]), 1)
    found = model.forecast(
        np.array([[[1.0]]]), np.array([[[9.0]]]), np.array([[[0.0], [1.0], [0.0]]])
    )
    assert found[0, :, 0].tolist() == [2, 5, 10]


def test_what_does_not_vary_has_nothing_to_be_explained() -> None:
    still, none = np.full((1, 8, 1), 0.5), np.zeros((1, 8, 0))
    assert ARX(np.array([[0.0, 0.5]]), 1).k_step_r2(still, none, 2).tolist() == [0.0, 0.0]


def test_too_short_sequences_are_told() -> None:
    with pytest.raises(ValueError, match="Sequences of 2 steps are too short for 2 lags"):
        fit_arx(np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), 2)
