"""Our loop over ordinary Gymnasium environments."""

import math
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import (
    FAULTS,
    CheckpointError,
    ConfigError,
    EnvironmentFault,
    ObservationError,
    UserError,
)
from tenfold.core.masks import MASK, MaskReader, offers_mask, refuse_undeclared
from tenfold.core.spaces import policy_actions
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import CALLERS, old_style, put_away
from tenfold.envs.making import limits_of, make_env
from tenfold.ops.moments import FINE, first_not_finite
from tenfold.ops.observations import FlattenPlan

CALLERS.add(__file__)


def replayable(envs: Environments, actions: np.ndarray) -> dict[str, np.ndarray]:
    """What is needed to play the episodes under way again: which they are, and the actions
    [N, T, …] taken in them; what earlier ones left behind is no part of these."""
    actions_taken = actions[:, : max(envs.length)].copy()
    for row, length in zip(actions_taken, envs.length, strict=True):
        row[length:] = 0
    where = {"episode": np.array(envs.episode), "length": np.array(envs.length)}
    return where | {"actions": actions_taken, "obs": envs.obs.copy()}


def require_possible(actions: np.ndarray, space: Any, location: str) -> None:
    """Refuses stored actions [T, …] that the space does not have, before an environment is given
    them."""
    possible = np.isfinite(actions)
    if isinstance(space, gym.spaces.Discrete):
        possible &= (actions >= space.start) & (actions < space.start + space.n)
    elif isinstance(space, gym.spaces.MultiDiscrete):
        possible &= (actions >= 0) & (actions < space.nvec)
    if not possible.all():
        raise CheckpointError(
            f"{location}: the checkpoint holds action {actions[~possible][0]}, which {space} does "
            "not have."
        )


class ScalarEnvironments(Environments):
    """Our loop over ordinary Gymnasium environments: no allocation of its own, under 2 µs a step
    over the environment."""

    one_by_one = True
    watchful = False  # whether a mask that is offered now would be overlooked

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        policy: bool = False,
        first: int = 0,
        **more: Any,
    ) -> None:
        """`policy`: actions may be of any kind, and masks are read. `more` goes to the
        environment's constructor."""
        self.envs = []
        try:
            for _ in range(num_envs):
                self.envs.append(make_env(name, **more))
            self.prepare(name, num_envs, seed, policy, first)
        except BaseException:
            self.close()
            raise

    def prepare(self, name: str, num_envs: int, seed: int, policy: bool, first: int) -> None:
        """Spaces, arrays and first observations."""
        one = self.envs[0]
        masks = (
            MaskReader(one.observation_space, policy_actions(one.action_space, name))
            if policy
            else None
        )
        super().__init__(
            name,
            num_envs,
            seed,
            masks.observation_space if masks else one.observation_space,
            one.action_space,
            first,
        )
        self.masks = masks
        self.unread_mask = not policy and offers_mask(one.observation_space)
        self.exact_resume = not (one.spec is not None and one.spec.nondeterministic)
        shape, dtype = one.action_space.shape or (), one.action_space.dtype or np.dtype(np.int64)
        self.decode = masks.actions.decode if masks and masks.actions.children else None
        if masks and masks.actions.children:
            shape, dtype = (masks.actions.numbers,), np.dtype(np.float64)
        self.room = 1024  # for actions of the current episodes; grows by doubling
        self.actions = np.zeros((num_envs, self.room, *shape), dtype)
        self.discrete = isinstance(one.action_space, gym.spaces.Discrete)
        self.direct = self.layout.direct
        # whole numbers are looked at before they are cut to their type
        self.copied = self.direct and self.fallible
        space = masks.observation_space if masks else one.observation_space
        self.shape = space.shape or ()
        self.plan = (
            FlattenPlan(space, name) if self.layout.children and not self.layout.graph else None
        )
        self.rows = list(self.obs)  # views, made once
        self.flat, self.flat_rows = self.obs.reshape(-1), [row.reshape(-1) for row in self.rows]
        self.info = [{} for _ in range(num_envs)]
        self.begin_all()
        # a mask that comes later is refused by `step`, one of the first reset by whoever asks
        self.watchful = not policy and not self.unread_mask

    def begin_all(self) -> None:
        """Every environment at the start of its first episode."""
        for i in range(self.num_envs):
            self.begin(i)

    @property
    def time_limit(self) -> int | None:
        steps = [limit._max_episode_steps for limit in limits_of(self.envs[0])]
        return min((n for n in steps if n and math.isfinite(n)), default=None)

    @property
    def step_time(self) -> float | None:
        """The attribute `dt` or `tau` of an environment that has one, as often as an action is
        repeated."""
        inner: Any = self.envs[0].unwrapped
        stated = getattr(inner, "dt", getattr(inner, "tau", None))
        try:
            time = None if stated is None else float(stated)
        except (TypeError, ValueError):
            time = math.nan
        if time is not None and not 0 < time < math.inf:
            raise ConfigError(
                "env",
                f"= {self.name} says that a step takes {stated}: its attribute dt or tau must be "
                "above 0.",
            )
        return time and time * split_name(self.name)[1].get("action_repeat", 1)

    @property
    def frame_rate(self) -> int:
        return int(self.envs[0].metadata.get("render_fps") or 30)

    def picture(self) -> Any:
        return self.envs[0].render()

    def begin(self, i: int) -> None:
        """Resets environment i to the start of its current episode."""
        self.length[i], self.ret[i] = 0, 0.0
        try:
            returned = self.reset_env(i)
            if isinstance(returned, tuple) and len(returned) == 2 and returned[1] is None:
                raise EnvironmentFault(
                    f"{self.location(i)}: the info that reset returned is None, and must be a dict."
                )
            if (
                not isinstance(returned, tuple)
                or len(returned) != 2
                or not isinstance(returned[1], dict)
            ):
                raise old_style(self.location(i))
            obs, info = returned
            self.write(obs, i)
        except UserError:
            raise
        except FAULTS as error:
            raise self.raised(i, "reset", error) from error
        refuse_undeclared(obs, self.envs[i].observation_space, self.location(i))
        if self.masks:
            self.read_mask(i, obs, info)
        elif MASK in info:
            if self.watchful:
                self.refuse_late_mask(i)
            self.unread_mask = True
        if self.fallible and first_not_finite(self.flat_rows[i]) != FINE:
            raise self.not_finite(i)

    def reset_env(self, i: int) -> Any:
        """What Gymnasium's `reset` of environment i returns, for its current episode."""
        return self.envs[i].reset(seed=self.episode_seed(i))

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], in the environment's own numbers."""
        if self.finished:
            self.finished = []
            self.terminated[:] = self.truncated[:] = False
        envs, rows, lengths, rewards, returns, i = (
            self.envs,
            self.rows,
            self.length,
            self.reward,
            self.ret,
            0,
        )
        shape, decode, copied, lanes = self.shape, self.decode, self.copied, self.playing
        try:
            # copies, since an environment may write into what it is given
            for k, action in enumerate(actions.tolist() if self.discrete else actions.copy()):
                i = lanes[k]
                count = lengths[i]
                if count == self.room:
                    self.longer_episodes()
                self.actions[i, count] = action
                lengths[i] = count + 1  # the step that an error is of
                obs, reward, terminated, truncated, info = envs[i].step(
                    decode(action) if decode else action
                )
                if copied and getattr(obs, "shape", None) == shape:
                    rows[i][...] = obs
                else:
                    self.write(obs, i, terminated or truncated)
                self.info[i] = info
                rewards[i] = reward
                if not math.isfinite(reward):
                    raise self.not_finite(i)
                returns[i] += float(reward)
                if terminated or truncated:
                    self.require_flags(i, terminated, truncated)
                    if self.masked and not terminated:
                        assert self.masks
                        self.note_final_mask(i, self.mask_given(self.masks, i, obs, info))
                    self.end(i, terminated, truncated)
                elif terminated is None or truncated is None:  # to look closer takes too long here
                    self.require_flags(i, terminated, truncated)
                elif self.masks and (self.masked or MASK in info):
                    self.read_mask(i, obs, info)
                elif self.watchful and MASK in info:
                    self.refuse_late_mask(i)
        except UserError:
            raise
        except FAULTS as error:
            raise self.raised(i, "step", error) from error
        # all at once: a call for each would take a tenth of the adapter's time
        if self.fallible and (cell := first_not_finite(self.flat)) != FINE:
            raise self.not_finite(cell // self.layout.size)

    def end(self, i: int, terminated: bool, truncated: bool) -> None:
        """Notes the episode of environment i that ended, and lets its next one follow."""
        if self.fallible and first_not_finite(self.flat_rows[i]) != FINE:
            raise self.not_finite(i)
        self.terminated[i], self.truncated[i] = terminated, truncated
        self.final_obs[i] = self.rows[i]
        self.finished.append(Episode(i, self.ret[i], self.length[i]))
        self.follow(i)

    def follow(self, i: int) -> None:
        """Begins the next episode of environment i."""
        self.episode[i] += 1
        self.begin(i)

    def write(self, obs: Any, i: int, last: bool = False) -> None:
        """Encodes an observation into row i: Dict and Tuple in one pass."""
        if self.direct:
            self.check_shape(i, obs, self.shape)
        try:
            if self.plan is None:
                self.layout.write(obs, self.rows[i])
            else:
                self.plan.flatten([obs], self.rows[i][None])
        except ObservationError as error:
            raise EnvironmentFault(f"{self.location(i)}: {error}") from None
        if self.layout.graph and not last and not self.rows[i][0]:
            raise EnvironmentFault(
                f"{self.location(i)}: the observation is a graph without nodes, and only an "
                "episode's last one may be: end the episode, or give at least one node."
            )

    def read_mask(self, i: int, obs: Any, info: dict[str, Any]) -> None:
        assert self.masks
        mask = self.mask_given(self.masks, i, obs, info)
        self.note_mask(i, mask, self.masks.actions.options, self.name)

    def longer_episodes(self) -> None:
        """Room for twice as many actions."""
        self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
        self.room *= 2

    def state(self) -> dict[str, np.ndarray]:
        return replayable(self, self.actions)

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Replays the current episodes. False where that did not lead to the same observations: not
        an exact resume."""
        self.episode = state["episode"].tolist()
        while self.room < state["actions"].shape[1]:
            self.longer_episodes()
        for i in range(self.num_envs):
            self.begin(i)
            actions = state["actions"][i, : state["length"][i]]
            require_possible(actions, self.action_space, self.location(i))
            try:
                self.repeat(i, actions)
            except UserError:
                raise
            except FAULTS as error:
                raise self.raised(i, "step", error) from error
        return self.exact_resume and bool(np.array_equal(self.obs, state["obs"]))

    def repeat(self, i: int, actions: np.ndarray) -> None:
        """Takes actions of an earlier time in environment i again; stops where its episode ends,
        which it did not do then."""
        for action in actions:
            self.actions[i, self.length[i]] = action
            self.length[i] += 1
            action = action.item() if self.discrete else action.copy()
            obs, reward, terminated, truncated, info = self.envs[i].step(
                self.decode(action) if self.decode else action
            )
            if terminated or truncated:
                self.begin(i)
                break
            self.write(obs, i)
            if self.masks:
                self.read_mask(i, obs, info)
            self.ret[i] += float(reward)

    def close(self) -> None:
        for env in self.envs:
            put_away(env)
