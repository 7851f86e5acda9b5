"""SLM-Lab's measures, on series that are worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.integrations.slm_lab.strength import (
    SessionRows,
    course_of,
    random_return,
    session_measures,
    trial_measures,
)


def course(returns: list[float]) -> SessionRows:
    rows = np.arange(1.0, len(returns) + 1)
    return SessionRows(100 * rows, 10 * rows, np.array(returns))


def test_measures_of_a_session() -> None:
    """Strengths above a random return of 20 are 10, 40, 20, 50."""
    measures = session_measures(course([30, 60, 40, 70]), 20)
    assert measures["strength"] == 30
    assert (measures["max_strength"], measures["final_strength"]) == (50, 50)
    # (10/100 + 40/200 + 20/300 + 50/400) / 120
    expected = (0.1 + 0.2 + 20 / 300 + 0.125) / 120
    assert measures["sample_efficiency"] == pytest.approx(expected)
    assert measures["training_efficiency"] == pytest.approx(10 * expected)
    assert measures["stability"] == pytest.approx(1 - 20 / 70)  # one fall by 20
    assert measures["total_reward_ma"] == 50


def test_total_reward_is_of_the_last_hundred_rows() -> None:
    measures = session_measures(course([1000.0] * 7 + [1.0, 3.0] * 50), 0)
    assert measures["total_reward_ma"] == 2


def test_measures_of_a_trial() -> None:
    """Strengths 10, 30 and 20, 60: deviations are 10/√2 and 30/√2, means 15 and 45."""
    measures = trial_measures([course([10, 30]), course([20, 60])], 0)
    assert measures["strength"] == (20 + 40) / 2
    assert measures["consistency"] == pytest.approx(1 - 2 * (40 / 2**0.5) / 60)
    assert "consistency" not in trial_measures([course([10, 30])], 0)
    assert trial_measures([course([])], 0) == {}


def test_sessions_of_unequal_length_are_compared_where_both_are() -> None:
    measures = trial_measures([course([10, 30, 99]), course([20, 60])], 0)
    assert measures["consistency"] == pytest.approx(1 - 2 * (40 / 2**0.5) / 60)


def test_a_row_has_the_mean_of_the_latest_returns() -> None:
    def ended(env: int, value: float) -> dict[str, Any]:
        return {"kind": "episode", "step": 1, "env": env, "return": value, "length": 1}

    def row(step: int) -> dict[str, Any]:
        return {"kind": "train", "step": step, "updates": step // 2}

    rows = [row(10), ended(0, 4), row(20), ended(1, 8), ended(0, 6), row(30), row(40)]
    found = course_of([*rows, {"kind": "eval", "step": 40, "mean_return": 1}])
    assert found.frames.tolist() == [20, 30, 40]  # from the first return on
    assert found.updates.tolist() == [10, 15, 20]
    assert found.returns.tolist() == [4, 7, 7]


def test_a_random_policy_is_played() -> None:
    assert 18 < random_return("CartPole-v1", 500) < 28
    assert random_return("CartPole-v1", 5, episodes=3) == 5  # cut there


def test_rewards_that_are_never_above_random(tmp_path: Path) -> None:
    measures = session_measures(course([20, 20]), 20)
    assert (measures["sample_efficiency"], measures["stability"]) == (0, 1)
