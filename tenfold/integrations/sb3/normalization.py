"""VecNormalize, taken over: observations and rewards are normalised by tenfold's own running
statistics, inside of its engines, and these are written back into the object where anybody reads
it. Where it does something that ours do not, it is stepped as it is."""

from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.vec_env import sb3
from tenfold.ops.moments import CLIP, EPSILON, RunningNorm, merged

PRIOR = 1e-4  # what their statistics count before they have seen anything


def normalization_of(vec: Any, on_policy: bool) -> "TakenNormalization | None":
    """Of a vector environment whose normalisation is taken over."""
    kind = sb3("common.vec_env", "VecNormalize")
    unwrap = sb3("common.vec_env", "unwrap_vec_normalize")
    inner = unwrap(vec) if unwrap else None
    if inner is None:
        return None
    box = isinstance(vec.observation_space, gym.spaces.Box)
    usual = (inner.epsilon, inner.clip_obs) == (EPSILON, CLIP)
    if type(vec) is kind and box and usual and inner.training:
        return TakenNormalization(inner, on_policy)
    if on_policy or not inner.training:
        return None  # numbers that stay, or are learned from at once, are as good as stored ones
    raise ConfigError(
        "env",
        "= VecNormalize with statistics that are learned must be the outermost wrapper, of "
        f"vectors, with clip_obs = {CLIP:g} and epsilon = {EPSILON:g}: a replay memory is "
        "normalised anew whenever it is drawn from.",
    )


class TakenNormalization:
    """A VecNormalize object and our statistics."""

    def __init__(self, vec: Any, on_policy: bool) -> None:
        self.vec = vec
        # a replay memory keeps rewards as they are, and normalises what it draws
        how = bool(vec.norm_reward) if on_policy or not vec.norm_reward else "drawn"
        self.settings: dict[str, Any] = {"normalize_reward": how, "normalize_obs": vec.norm_obs}
        if vec.norm_reward:
            self.settings["clip_reward"] = float(vec.clip_reward)

    def require_training(self) -> None:
        """Refuses to go on where the object was told to keep its statistics as they are."""
        if not self.vec.training:
            raise ConfigError(
                "env",
                "= VecNormalize had training = True when the model was given it, and has not now: "
                "call set_env(env) again.",
            )

    def discount(self, learner: Any) -> None:
        """Rewards are scaled by returns with the object's gamma, which need not be the model's."""
        if learner.rewards:
            learner.rewards.gamma = float(self.vec.gamma)

    def give(self, learner: Any) -> None:
        """What the object has learned before, to a learner whose environments have just begun."""
        if learner.agent.norm and self.vec.obs_rms.count > 1:
            load(learner.agent.norm, self.vec.obs_rms)
            learner.note_first()
        if learner.rewards and self.vec.ret_rms.count > 1:
            load(learner.rewards.norm, self.vec.ret_rms)

    def write_back(self, learner: Any, new: np.ndarray | None = None) -> None:
        """Our statistics into the object, with observations that ours will count when the step is
        stored."""
        vec = self.vec
        if norm := learner.agent.norm:
            seen = RunningNorm(norm.size)
            seen.load_state(norm.state())
            if new is not None:
                seen.update(new.reshape(len(new), -1))
            write(seen, vec.obs_rms)
        if learner.rewards:
            write(learner.rewards.norm, vec.ret_rms)
            vec.returns = learner.rewards.returns.copy()

    def show(self, learner: Any, obs: np.ndarray) -> None:
        """The object as it is after a step to these observations."""
        self.write_back(learner, obs)
        envs = getattr(learner.envs, "inner", learner.envs)
        self.vec.old_obs, self.vec.old_reward = obs, envs.reward.copy()

    def shown(self, obs: np.ndarray) -> np.ndarray:
        return self.vec.normalize_obs(obs)

    def rewards(self) -> np.ndarray:
        """Of the last step, as the object gives them."""
        return self.vec.normalize_reward(self.vec.old_reward)


def load(norm: RunningNorm, moments: Any) -> None:
    count = round(float(moments.count))
    mean, m2 = np.ravel(moments.mean), np.ravel(moments.var) * count
    norm.load_state({"count": np.array([count]), "mean": mean, "m2": m2})


def write(norm: RunningNorm, moments: Any) -> None:
    """With the small share of mean 0 and variance 1 that theirs begin with."""
    ones = np.ones(norm.size)
    prior = np.array([PRIOR]), 0 * ones, PRIOR * ones
    count, mean, m2 = merged(*prior, norm.count, norm.mean, norm.m2)
    shape = np.shape(moments.mean)
    moments.count = float(count[0])
    moments.mean, moments.var = mean.reshape(shape), (m2 / count).reshape(shape)
