"""Rewards in the form that is learned from: divided by the running deviation of the discounted
return, clipped, or their signs alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.moments import CLIP, EPSILON, RunningNorm, norm_scale, norm_update

SIGN = 0.0  # as a limit: rewards are their signs


def reward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Lanes in the middle of their episodes; every form."""
    for lanes, normalize, limit in (
        (1, True, 10.0),
        (5, True, 1.0),
        (3, False, 0.5),
        (4, False, 0),
    ):
        for seen in (0, 7):
            norm, first = RunningNorm(1), rng.normal(size=lanes)
            if seen:
                norm.update(rng.normal(size=(seen, 1)))
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
