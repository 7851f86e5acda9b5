"""Environments of a run as it asks for them: several observations together, rewards in other form.

An adapter in such a form has arrays of its own for what differs, made once as the adapter's are:
whoever reads them there, compiled code too, needs to know nothing of it. Steps and episodes of
another length are in `envs.making`, around each single environment.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tenfold.config.notation import show
from tenfold.config.options import Sign
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.masks import refuse_unread
from tenfold.core.protocols import EnvSpec
from tenfold.core.registry import algorithm
from tenfold.envs.adapter import Environments
from tenfold.envs.making import make_environments
from tenfold.memory.frames import FrameRing
from tenfold.ops.rollouts import SIGN, RewardForm


def environments_of(
    run: Run, index: int = 0, make: Callable[..., Environments] = make_environments
) -> Any:
    """What actor number `index` of a run acts in, as `make` makes environments."""
    agent = run.agent.name
    reads_masks = algorithm(agent).reads_masks
    envs = make(run.world, run.num_envs, run.seed, reads_masks, index * run.num_envs)
    try:
        refuse_unread(envs.spec, f"agent {agent}", reads_masks)
        return FrameStackEnvs(envs, run.stacked) if run.stacked > 1 else envs
    except BaseException:
        envs.close()
        raise


def reward_form(run: Run, envs: Any) -> RewardForm | None:
    """How the learner is given the rewards of these environments; None: as they are."""
    if not run.shapes_rewards:
        return None
    if envs.component_names:
        which = "normalize_reward" if run.normalize_reward else "clip_reward"
        raise ConfigError(
            which,
            f"is not for rewards in components, such as {run.env}'s, which are learned from one by "
            "one: leave it out.",
        )
    gamma = getattr(run.agent, "gamma", None)
    if gamma is None and run.normalize_reward:
        raise ConfigError(
            "normalize_reward",
            f"= {show(run.normalize_reward)} divides by the deviation of the discounted return, "
            f"and {run.agent.name} has no setting gamma: use clip_reward.",
        )
    clip = run.clip_reward
    limit = SIGN if isinstance(clip, Sign) else clip
    drawn = run.normalize_reward == "drawn"
    if drawn and limit == SIGN:
        raise ConfigError(
            "clip_reward",
            "= sign does not go with normalize_reward = drawn: leave one of them out.",
        )
    return RewardForm(envs.num_envs, gamma or 0.0, bool(run.normalize_reward), limit, drawn)


class EnvWrapper:
    """An adapter in another form. What is not said here is the inner adapter's."""

    def __init__(self, inner: Environments) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class FrameStackEnvs(EnvWrapper):
    """Observations are the last `frames` of their episode, the oldest first; before an episode's
    first stands that one again."""

    def __init__(self, inner: Environments, frames: int) -> None:
        super().__init__(inner)
        self.frames, self.layout = frames, inner.layout.stacked(frames)
        self.memory = FrameRing(frames, inner.layout, inner.num_envs)
        self.obs = self.memory.stacked
        self.final_obs = np.zeros_like(self.obs)
        self.memory.begin(inner.obs)

    @property
    def spec(self) -> EnvSpec:
        return replace(self.inner.spec, layout=self.layout)

    def step(self, actions: np.ndarray) -> None:
        inner = self.inner
        inner.step(actions)
        ended = inner.terminated | inner.truncated
        if ended.any():
            self.final_obs[ended, :-1] = self.obs[ended, 1:]
            self.final_obs[ended, -1] = inner.final_obs[ended]
        self.memory.push(ended, inner.skipped, inner.obs, inner.final_obs)

    def state(self) -> dict[str, np.ndarray]:
        frames = {f"frames.{name}": value.copy() for name, value in self.memory.state().items()}
        return self.inner.state() | frames

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        exact = self.inner.restore(state)
        if exact:
            frames = {name: state[f"frames.{name}"] for name in self.memory.state()}
            self.memory.load_state(frames)
        else:
            self.memory.begin(self.inner.obs)
        return exact


class RewardTransformEnvs(EnvWrapper):
    """Rewards as the learner is to learn from them; episodes are told with their real returns."""

    def __init__(self, inner: Environments, form: RewardForm) -> None:
        super().__init__(inner)
        self.form, self.reward = form, np.zeros_like(inner.reward)

    def step(self, actions: np.ndarray) -> None:
        inner = self.inner
        inner.step(actions)
        self.form.put(inner.reward, inner.terminated | inner.truncated, inner.skipped, self.reward)
