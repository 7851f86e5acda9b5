"""What a policy did since it last learned: [T, B] arrays made once, each row with the mask its
action was drawn under.

Row t holds the observation acted on, the action, its log-probability and the value there; then what
the step brought. `discount` is γ, or 0 where the episode terminated; `boundary` is 1 where it ended
for any reason; `next_value` is the value of the TRUE next observation, at a time limit that of the
final one. Rows that are no transition (NEXT_STEP autoreset) have weight 0.

Of a policy with a memory it has the state before and behind the current row, and in front of every
sequence that is learned from. Without a memory every row is a sequence of its own.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.spaces import PolicyActions
from tenfold.core.system import require_memory
from tenfold.ops.advantages import finish_rollout, gae_components
from tenfold.ops.rollouts import episode_edges

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.ppo_settings import PPO

ACTED = ("chosen", "real", "log_p", "value")  # of a row: how the policy acted
SAVED = (
    "obs",
    "mask",
    *ACTED,
    "next_value",
    "reward",
    "rewards",
    "discount",
    "boundary",
    "weight",
)
COLUMNS = (*SAVED[1:6], "next_value", "reward", "discount", "boundary", "weight", "advantage")
COLUMNS += ("target", "count", "hidden", "next_hidden", "start_states", "order", "bounds")
# what checkpoints call the states of a policy with a memory
STATES = {"memory": "hidden", "following": "next_hidden", "states": "start_states"}


def sequences_per_env(steps: int, num_envs: int, minibatches: int) -> int:
    """How many sequences the steps of an environment are learned from as: one; where there are
    fewer environments than minibatches, the least number of equal ones that is enough for all of
    these."""
    return next(
        count
        for count in range(1, steps + 1)
        if steps % count == 0 and (count * num_envs >= minibatches or count == steps)
    )


class RolloutBuffer:
    """T steps of B environments, of which `count` are filled."""

    def __init__(
        self,
        config: "PPO",
        layout: ObsLayout,
        actions: PolicyActions,
        num_envs: int,
        masked: bool,
        weights: np.ndarray | None = None,
        hidden_size: int = 0,
    ) -> None:
        """`weights` of the rewards' components, where there are any: values then have columns, the
        total's and theirs. `hidden_size`: numbers that the networks remember of an environment;
        then whole sequences are learned from."""
        t, b = config.horizon, num_envs
        columns = () if weights is None else (1 + len(weights),)
        numbers = layout.size + len(actions.low) + 9 + 5 * math.prod(columns)
        require_memory(
            t * b * (4 * numbers + 8 * (len(actions.sizes) + 1) + actions.options * masked),
            "A rollout",
            "agent.horizon or num_envs",
        )
        obs_dtype = np.float32 if config.normalize_obs else layout.dtype
        self.obs = np.zeros((t, b, *layout.shape), obs_dtype)
        self.mask = np.zeros((t, b, actions.options if masked else 0), np.bool_)
        self.chosen = np.zeros((t, b, len(actions.sizes)), np.int64)
        self.real = np.zeros((t, b, len(actions.low)), np.float32)
        (self.log_p, self.reward, self.discount, self.boundary, self.weight, self.advantage) = (
            np.zeros((6, t, b), np.float32)
        )
        self.value, self.next_value, self.target = np.zeros((3, t, b, *columns), np.float32)
        self.weights = weights
        # total, then components
        self.rewards, self.advantages = np.zeros((2, t, b, *(columns or (0,))), np.float32)
        self.sum_of_components = config.advantage_of == "components"
        self.count = np.zeros(1, np.int64)
        count = config.minibatch_count(t * b)
        per_env = sequences_per_env(t, b, count) if hidden_size else t
        self.sequence_length = t // per_env
        # of the sequences, in which order an epoch learns from them; number k·B + environment
        self.order = np.zeros(per_env * b, np.int64)
        self.bounds = np.array(config.minibatch_bounds(per_env * b, self.sequence_length))
        self.hidden_size = hidden_size
        self.hidden, self.next_hidden = np.zeros((2, b, hidden_size), np.float32)
        self.start_states = np.zeros((per_env, b, hidden_size), np.float32)
        self.gamma, self.lam = config.gamma, config.lam
        self.scale, self.normalize = config.reward_scale, config.normalize_advantage is True

    @property
    def bytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    @property
    def horizon(self) -> int:
        return len(self.obs)

    @property
    def minibatches(self) -> int:
        """Of an epoch."""
        return len(self.bounds) - 1

    @property
    def left(self) -> int:
        """Rows that are still to come before learning."""
        return self.horizon - int(self.count[0])

    def columns(self) -> dict[str, np.ndarray]:
        """What kernels read and write, but for observations, whose kind of number is the
        environment's."""
        return {f"r_{name}": getattr(self, name) for name in COLUMNS}

    def begin_row(self, obs: np.ndarray, mask: np.ndarray | None) -> None:
        """What is acted on, into the current row."""
        t = int(self.count[0])
        self.obs[t] = obs
        if mask is not None:
            self.mask[t] = mask

    def acted(self) -> dict[str, np.ndarray]:
        """The arrays of the current row that say how actors acted."""
        states = {"memory": self.hidden, "following": self.next_hidden} if self.hidden_size else {}
        return {name: getattr(self, name)[self.count[0]] for name in ACTED} | states

    def forget(self) -> None:
        """Drops the rows that are there."""
        self.count[0] = 0
        self.hidden[:] = 0  # actors elsewhere bring their states

    def add(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        skipped: np.ndarray,
        components: np.ndarray | None = None,
    ) -> int:
        """What the step of the current row brought; returns that row. `next_value` is the caller's
        to set where it ended."""
        t = int(self.count[0])
        store_in_rollout(
            t,
            self.gamma,
            self.scale,
            reward,
            terminated,
            truncated,
            skipped,
            self.reward,
            self.discount,
            self.boundary,
            self.weight,
        )
        if components is not None:
            self.rewards[t, :, 0] = self.reward[t]
            np.multiply(components, self.scale, out=self.rewards[t, :, 1:])
        if self.hidden_size:
            states = (self.hidden, self.next_hidden, self.start_states)
            advance_states(t, self.sequence_length, self.boundary, *states)
        self.count[0] += 1
        return t

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """The indices of the rows of some sequences, time by time."""
        num_envs = self.obs.shape[1]
        k, env = np.divmod(numbers, num_envs)
        first = k * self.sequence_length * num_envs + env
        return (first + num_envs * np.arange(self.sequence_length)[:, None]).ravel()

    def finish(self, last_value: np.ndarray) -> None:
        """Advantages and targets, given the values of the observations acted on next."""
        if self.weights is None:
            finish_rollout(
                self.reward,
                self.discount,
                self.value,
                self.next_value,
                self.boundary,
                self.weight,
                last_value,
                self.lam,
                self.normalize,
                self.advantage,
                self.target,
            )
        else:
            self.finish_components(last_value, self.weights)
        self.count[0] = 0

    def finish_components(self, last_value: np.ndarray, weights: np.ndarray) -> None:
        gae_components(
            self.rewards,
            self.discount,
            self.value,
            self.next_value,
            self.boundary,
            last_value,
            self.lam,
            self.advantages,
        )
        np.add(self.advantages, self.value, out=self.target)
        if self.sum_of_components:
            np.matmul(self.advantages[..., 1:], weights.astype(np.float32), out=self.advantage)
        else:
            self.advantage[:] = self.advantages[..., 0]
        if self.normalize:
            mean = np.average(self.advantage, weights=self.weight)
            deviation = np.sqrt(np.average((self.advantage - mean) ** 2, weights=self.weight))
            self.advantage[:] = (self.advantage - mean) / (deviation + 1e-8)

    def state(self) -> dict[str, np.ndarray]:
        """The rows that are there."""
        rows = {name: getattr(self, name)[: int(self.count[0])] for name in SAVED}
        states = {name: getattr(self, array) for name, array in STATES.items()}
        return {"count": self.count} | rows | (states if self.hidden_size else {})

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.count[:] = state["count"]
        for name in SAVED:
            getattr(self, name)[: int(self.count[0])] = state[name]
        for name, array in STATES.items() if self.hidden_size else ():
            getattr(self, array)[...] = state[name]


def step_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b in (1, 8, 13):
        ends = rng.random((3, b)) < 0.3
        yield (2, 0.9, 0.5, rng.normal(size=b), *ends, *np.zeros((4, 3, b), np.float32))


def store_step_reference(
    t, gamma, scale, new_reward, terminated, truncated, skipped, reward, discount, boundary, weight
):
    discount[t], boundary[t], weight[t] = episode_edges(terminated, truncated, skipped, gamma)
    reward[t] = np.where(skipped, 0, new_reward * scale)
    return reward, discount, boundary, weight


@pair(store_step_reference, step_examples)
@kernel
def store_in_rollout(
    t, gamma, scale, new_reward, terminated, truncated, skipped, reward, discount, boundary, weight
):
    for b in range(new_reward.size):
        reward[t, b] = 0.0 if skipped[b] else new_reward[b] * scale
        discount[t, b] = 0.0 if terminated[b] or skipped[b] else gamma
        boundary[t, b] = terminated[b] or truncated[b] or skipped[b]
        weight[t, b] = not skipped[b]
    return reward, discount, boundary, weight


def states_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for t, length, b, size in ((0, 3, 1, 2), (3, 3, 4, 5), (4, 3, 4, 1), (5, 6, 2, 3)):
        hidden, next_hidden = rng.normal(size=(2, b, size)).astype(dtype)
        start_states = rng.normal(size=(6 // length, b, size)).astype(dtype)
        boundary = (rng.random((6, b)) < 0.5).astype(dtype)
        yield t, length, boundary, hidden, next_hidden, start_states


def advance_states_reference(t, length, boundary, hidden, next_hidden, start_states):
    """The recurrent states behind row t: zeros where an episode ended with it. Those in front of
    the first row of a sequence are kept."""
    if t % length == 0:
        start_states[t // length] = hidden
    hidden[:] = np.where(boundary[t][:, None] > 0, 0, next_hidden)
    return hidden, start_states


@pair(advance_states_reference, states_examples)
@kernel
def advance_states(t, length, boundary, hidden, next_hidden, start_states):
    for b in range(hidden.shape[0]):
        for k in range(hidden.shape[1]):
            if t % length == 0:
                start_states[t // length, b, k] = hidden[b, k]
            hidden[b, k] = np.float32(0) if boundary[t, b] > 0 else next_hidden[b, k]
    return hidden, start_states
