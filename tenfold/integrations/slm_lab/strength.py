"""SLM-Lab's measures of runs (Keng & Graesser, 2019), from rows of their metrics.

At row i, frame t_i, R_i is the mean of the environments' latest returns, and the strength is how
much more that is than a random policy's return: str_i = R_i − R_rand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.runs.metrics import read_rows

WINDOW = 100  # rows in total_reward_ma
RANDOM_EPISODES = 100


@dataclass(frozen=True)
class SessionRows:
    """Rows of a session: frames, gradient steps and returns."""

    frames: np.ndarray
    updates: np.ndarray
    returns: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.frames)


def course_of(rows: Iterable[dict[str, Any]]) -> SessionRows:
    """The course of a session from its metrics, from the first row on with a return."""
    latest: dict[int, float] = {}
    numbers: list[tuple[float, float, float]] = []
    for row in rows:
        if row["kind"] == "episode":
            latest[row["env"]] = row["return"]
        elif row["kind"] == "train" and latest:
            numbers.append((row["step"], row["updates"], float(np.mean([*latest.values()]))))
    return SessionRows(*np.array(numbers, float).reshape(-1, 3).T)


def efficiency(strength: np.ndarray, time: np.ndarray) -> float:
    """Σ (str_i / t_i) / Σ str_i, over rows with t_i > 0."""
    strength, time = strength[time > 0], time[time > 0]
    return ratio(float((strength / time).sum()), float(strength.sum()))


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def stability(strength: np.ndarray) -> float:
    """1 − |Σ_{i<N} min(str_{i+1} − str_i, 0) / Σ_{i<N} str_i|."""
    falls = float(np.minimum(np.diff(strength), 0).sum())
    return 1 - abs(ratio(falls, float(strength[:-1].sum())))


def session_measures(course: SessionRows, random_return: float) -> dict[str, float]:
    strength = course.returns - random_return
    return {
        "strength": float(strength.mean()),
        "max_strength": float(strength.max()),
        "final_strength": float(strength[-1]),
        "sample_efficiency": efficiency(strength, course.frames),
        "training_efficiency": efficiency(strength, course.updates),
        "stability": stability(strength),
        "total_reward_ma": float(course.returns[-WINDOW:].mean()),
    }


def consistency(strengths: np.ndarray) -> float:
    """1 − 2 Σ_i std_j(str_ij) / Σ_i mean_j(str_ij) of rows i and sessions j, [sessions, rows]."""
    spread = float(strengths.std(axis=0, ddof=1).sum())
    return 1 - 2 * ratio(spread, float(strengths.mean(axis=0).sum()))


def trial_measures(courses: Sequence[SessionRows], random_return: float) -> dict[str, float]:
    """Means over the sessions, and their consistency where there are several."""
    courses = [course for course in courses if course.rows]
    if not courses:
        return {}
    sessions = [session_measures(course, random_return) for course in courses]
    measures = {name: float(np.mean([s[name] for s in sessions])) for name in sessions[0]}
    if len(courses) > 1:
        rows = min(course.rows for course in courses)
        strengths = np.stack([course.returns[:rows] for course in courses]) - random_return
        measures["consistency"] = consistency(strengths)
    return measures


def measures_of(paths: Sequence[Path], random_return: float) -> dict[str, float]:
    """The measures of a trial whose sessions' folders these are."""
    return trial_measures(
        [course_of(read_rows(path / "metrics.jsonl")) for path in paths], random_return
    )


def random_return(env: str, limit: int, episodes: int = RANDOM_EPISODES) -> float:
    """The mean return of a policy that draws actions uniformly; episodes are cut after `limit`
    steps."""
    from tenfold.envs.making import make_env

    world, total = make_env(env), 0.0
    try:
        world.action_space.seed(0)
        for episode in range(episodes):
            world.reset(seed=episode)
            for _ in range(limit):
                _, reward, terminated, truncated, _ = world.step(world.action_space.sample())
                total += float(reward)
                if terminated or truncated:
                    break
    finally:
        world.close()
    return total / episodes
