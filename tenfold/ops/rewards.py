"""Rewards in the form that is learned from: divided by the running deviation of the discounted
return, clipped, or their signs alone; and advantages of rewards in named components.

The estimate is linear in rewards and values, so the components' advantages, weighted like their
rewards, add up to the advantage of the total under the weighted sum of their values.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.moments import CLIP, EPSILON, RunningNorm, norm_scale, norm_update
from tenfold.ops.returns import gae_reference
from tenfold.ops.rollouts import episode_edges

SIGN = 0.0  # as a limit: rewards are their signs


def reward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Lanes in the middle of their episodes; every form."""
    for lanes, normalize, limit in (
        (1, True, 10.0),
        (5, True, 1.0),
        (3, False, 0.5),
        (4, False, 0),
    ):
        for count in (0, 7):
            norm, first = RunningNorm(1), rng.normal(size=lanes)
            if count:
                norm.update(rng.normal(size=(count, 1)))
            ended, skipped = rng.random((2, lanes)) < 0.3
            yield (
                first,
                norm.count,
                norm.moments,
                0.9,
                float(limit),
                normalize,
                rng.normal(size=lanes) * 3,
                ended,
                skipped,
                np.full(lanes, np.nan),
            )


def form_rewards_reference(
    returns, count, moments, gamma, limit, normalize, reward, ended, skipped, out
):
    """R ← γR + r where a lane moved; r / √(var(R) + ε) where rewards are normalised, by all returns
    so far, these included; then clipped to ±limit, or sign(r) for SIGN. R ← 0 where an episode
    ended (VecNormalize of Stable-Baselines3)."""
    moved = ~skipped
    returns[moved] = gamma * returns[moved] + reward[moved]
    if normalize and moved.any():
        norm_update(count, moments[0], moments[1], returns[moved][:, None])
        norm_scale(count, moments[1], EPSILON, moments[2])
    scaled = reward * moments[2, 0] if normalize else reward
    out[:] = np.sign(scaled) if limit == SIGN else np.clip(scaled, -limit, limit)
    returns[ended] = 0
    return returns, count, moments, out


@pair(form_rewards_reference, reward_examples, rtol=1e-9)
@kernel
def form_rewards(returns, count, moments, gamma, limit, normalize, reward, ended, skipped, out):
    mean, m2 = moments[0], moments[1]
    for i in range(reward.size):
        if skipped[i]:
            continue
        returns[i] = gamma * returns[i] + reward[i]
        if normalize:
            count[0] += 1
            away = returns[i] - mean[0]
            mean[0] += away / count[0]
            m2[0] += away * (returns[i] - mean[0])
    if normalize:
        norm_scale(count, m2, EPSILON, moments[2])
    scale = moments[2, 0] if normalize else 1.0
    for i in range(reward.size):
        x = reward[i] * scale
        out[i] = np.sign(x) if limit == SIGN else min(max(x, -limit), limit)
        if ended[i]:
            returns[i] = 0.0
    return returns, count, moments, out


class RewardForm:
    """The rewards of `lanes` environments as they are learned from, and what of it goes on from
    step to step: the running return of each lane, and the deviation of all."""

    def __init__(
        self, lanes: int, gamma: float, normalize: bool, limit: float | None = None
    ) -> None:
        """`limit`: SIGN, or what rewards are clipped to; None: not at all, or ±10 where they are
        normalised."""
        self.returns, self.gamma, self.normalize = np.zeros(lanes), float(gamma), normalize
        self.norm = RunningNorm(1)
        usual = CLIP if normalize else np.inf
        self.limit = usual if limit is None else float(limit)

    def put(
        self,
        reward: np.ndarray,
        ended: np.ndarray,
        skipped: np.ndarray,
        out: np.ndarray,
        lanes: Any = slice(None),
    ) -> None:
        """One step of some lanes, into `out`. A lane that did not move brought nothing."""
        returns = self.returns[lanes]
        form_rewards(
            returns,
            self.norm.count,
            self.norm.moments,
            self.gamma,
            self.limit,
            self.normalize,
            reward,
            ended,
            skipped,
            out,
        )
        self.returns[lanes] = returns

    def begin(self, lanes: Any = slice(None)) -> None:
        """Episodes of these lanes that were running go on nowhere."""
        self.returns[lanes] = 0

    def state(self) -> dict[str, np.ndarray]:
        return self.norm.state() | {"returns": self.returns.copy()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.norm.load_state(state)
        self.returns[:] = state["returns"]


# one value and one advantage for each component


def component_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for t, b, c in ((1, 1, 1), (1, 3, 4), (17, 5, 11), (64, 8, 3)):
        reward, value, next_value = (rng.normal(size=(t, b, c)).astype(dtype) for _ in range(3))
        terminated, truncated, skipped = rng.random((3, t, b)) < 0.15
        discount, boundary, _ = (
            edge.astype(dtype) for edge in episode_edges(terminated, truncated, skipped, 0.97)
        )
        for lam in (0.0, 0.95, 1.0):
            yield (
                reward,
                discount,
                value,
                next_value,
                boundary,
                rng.normal(size=(b, c)).astype(dtype),
                lam,
                np.zeros((t, b, c), dtype),
            )


def gae_components_reference(reward, discount, value, next_value, boundary, last_value, lam, out):
    """GAE of one component after another. Within an episode the next value is that of the next
    row."""
    follow = np.concatenate([value[1:], last_value[None]])
    next_value[:] = np.where(boundary[..., None] > 0, next_value, follow)
    for c in range(reward.shape[-1]):
        out[..., c] = gae_reference(
            reward[..., c], discount, value[..., c], next_value[..., c], boundary, lam
        )
    return next_value, out


@pair(
    gae_components_reference,
    component_examples,
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
@kernel
def gae_components(reward, discount, value, next_value, boundary, last_value, lam, out):
    """Advantages [T, B, C] into `out`; discount and boundary [T, B] are the same for all
    components."""
    steps, rows, columns = reward.shape
    for t in range(steps - 1, -1, -1):
        for b in range(rows):
            ended = boundary[t, b] > 0
            for c in range(columns):
                if not ended:
                    next_value[t, b, c] = value[t + 1, b, c] if t + 1 < steps else last_value[b, c]
                running = out[t + 1, b, c] if t + 1 < steps and not ended else out.dtype.type(0)
                delta = reward[t, b, c] + discount[t, b] * next_value[t, b, c] - value[t, b, c]
                out[t, b, c] = delta + lam * discount[t, b] * running
    return next_value, out
