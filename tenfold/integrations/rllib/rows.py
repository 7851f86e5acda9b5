"""RLlib's episodes as rows for learning: what its learner's connectors make of them, and the order
in which its minibatches take them, without a Python loop over rows.

Every episode has one row more than steps: its last observation, whose value is bootstrapped from.
That row is in the minibatches as well, and in the mean and deviation of the advantages, but in no
loss. Both are RLlib's ways, kept so that results are its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from ray.rllib.core.columns import Columns

from tenfold.ops.returns import gae

LEAST_DEVIATION = 1e-4  # as RLlib's connector


class Steps(NamedTuple):
    """Of all episodes, one after another: observations, nested as the space; what was done and said
    of them; the last row of an episode repeats the one before, with reward 0."""

    obs: Any
    columns: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray  # the transition has no next observation
    truncated: np.ndarray  # the episode, or its chunk, ends here otherwise
    counts: np.ndarray  # 0 in the rows that only have a value


def concatenated(parts: Sequence[Any]) -> Any:
    """Nested arrays, joined along their first dimension."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: concatenated([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(concatenated(column) for column in zip(*parts, strict=True))
    return np.concatenate(parts)


def own_part(buffer: Any) -> Any:
    """What belongs to the chunk itself, not to the one before it."""
    if not buffer.finalized:
        raise ValueError(
            "FusedPPOTorchLearner learns from episodes of arrays, and these are lists: leave "
            "episodes_to_numpy as it is"
        )
    before = buffer.lookback

    def part(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: part(value) for key, value in data.items()}
        return tuple(map(part, data)) if isinstance(data, tuple) else data[before:]

    return part(buffer.data) if before else buffer.data


def steps_of(episodes: Sequence[Any], names: Sequence[str]) -> Steps:
    """Rows of all episodes, with the named outputs of the module and the actions."""
    lengths = np.array([len(episode) for episode in episodes])
    ends = np.cumsum(lengths + 1)  # behind each episode's last row
    rows = int(ends[-1])
    steps = np.ones(rows, np.bool_)
    steps[ends - 1] = False
    # a step's own row; the last row of an episode repeats the last step
    place = np.cumsum(steps) - 1
    columns = {Columns.ACTIONS: concatenated([own_part(e.actions) for e in episodes])[place]}
    for name in names:
        outputs = [own_part(episode.extra_model_outputs[name]) for episode in episodes]
        columns[name] = concatenated(outputs)[place]
    reward = np.zeros(rows, np.float32)
    reward[steps] = concatenated([own_part(episode.rewards) for episode in episodes])
    terminated, truncated = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    over = np.array([bool(episode.is_terminated) for episode in episodes])
    terminated[ends - 2] = over
    # a chunk that goes on elsewhere is cut as by a time limit
    truncated[ends - 2] = ~over
    seen = concatenated([own_part(episode.observations) for episode in episodes])
    return Steps(seen, columns, reward, terminated, truncated, steps.astype(np.float32))


def advantages(
    steps: Steps, value: np.ndarray, gamma: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """Standardised advantages and value targets of all rows."""
    discount = np.where(steps.terminated, 0, gamma).astype(np.float32)
    boundary = (steps.terminated | steps.truncated).astype(np.float32)
    following = np.append(value[1:], np.float32(0))
    target = gae(steps.reward, discount, value, following, boundary, lam) + value
    advantage = target - value
    scale = max(LEAST_DEVIATION, advantage.std())
    return ((advantage - advantage.mean()) / scale).astype(np.float32), target


class Plan(NamedTuple):
    """Epochs over the rows, the size of a minibatch, whether rows are shuffled after each epoch,
    and how many minibatches there are (0: as many as the epochs take)."""

    rows: int
    epochs: int
    size: int
    shuffled: bool
    minibatches: int = 0


def minibatch_order(plan: Plan, permutation: Callable[[int], np.ndarray]) -> np.ndarray:
    """The rows of each minibatch [U, S], as RLlib's cyclic iterator takes them: a minibatch that
    meets the end of an epoch goes on in the next one."""
    rows, found, start, covered = np.arange(plan.rows), [], 0, 0
    while len(found) < plan.minibatches if plan.minibatches else covered < plan.epochs:
        missing, parts = plan.size, []
        while start + missing >= plan.rows:
            parts.append(rows[start:])
            missing -= plan.rows - start
            start, covered = 0, covered + 1
            if plan.shuffled:
                rows = rows[permutation(plan.rows)]
        parts.append(rows[start : start + missing])
        start += missing
        found.append(np.concatenate(parts))
    return np.stack(found)
