"""Gymnasium's vector classes."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from tenfold.core.errors import EnvironmentFault, ObservationError
from tenfold.core.masks import MASK
from tenfold.core.spaces import PolicyActions, policy_actions
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.faults import put_away
from tenfold.envs.making import make_native
from tenfold.envs.masks import MaskReader, offers_mask


class NativeEnvironments(Environments):
    """The environment's own vector class, in either autoreset mode. Its episodes cannot be seeded
    one by one, so a resumed run begins new episodes, and says so."""

    exact_resume = False

    def __init__(
        self, name: str, num_envs: int, seed: int, policy: bool = False, first: int = 0
    ) -> None:
        """`policy`: actions may be of any kind but masked or mixed ones."""
        self.env = make_native(name, num_envs)
        super().__init__(
            name,
            num_envs,
            seed,
            self.env.single_observation_space,
            self.env.single_action_space,
            first,
        )
        self.mode = self.env.metadata.get("autoreset_mode")
        if self.mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentFault(
                f"{name}'s vector class does not reset by itself ({self.mode}): leave vectorize at "
                "scalar."
            )
        self.begin()
        seen = self.env.single_observation_space
        self.unread_mask = not policy and (offers_mask(seen) or offers_mask(self.info_now))
        if policy:
            self.require_plain(policy_actions(self.action_space, name))

    def require_plain(self, actions: PolicyActions) -> None:
        """Refuses masked and mixed actions."""
        masked = MaskReader(self.env.single_observation_space, actions).in_obs
        if masked or MASK in self.info_now or actions.parts:
            raise EnvironmentFault(
                f"{self.name} has masked or mixed actions, which its own vector class cannot be "
                "given: leave vectorize at scalar."
            )

    def begin(self) -> None:
        obs, self.info_now = self.env.reset(seed=self.episode_seed(0))
        self.write_all(obs, self.obs)
        self.length, self.ret = [0] * self.num_envs, [0.0] * self.num_envs
        self.terminated[:] = self.truncated[:] = self.skipped[:] = False

    def write_all(self, obs: Any, rows: np.ndarray) -> None:
        if self.layout.direct:
            rows[...] = self.layout.whole(np.asarray(obs))
        else:
            for i, one in enumerate(gym.vector.utils.iterate(self.env.observation_space, obs)):
                try:
                    self.layout.write(one, rows[i])
                except ObservationError as error:
                    raise EnvironmentFault(f"{self.place(i)}: {error}") from None

    def step(self, actions: np.ndarray) -> None:
        self.finished = []
        # an environment that ended in the last step ignores this action
        if self.mode is AutoresetMode.NEXT_STEP:
            np.logical_or(self.terminated, self.truncated, out=self.skipped)
        obs, self.reward[:], terminated, truncated, info = self.env.step(actions)
        if not terminated.dtype == truncated.dtype == np.bool_:
            for i, ends in enumerate(zip(terminated.tolist(), truncated.tolist(), strict=True)):
                self.require_flags(i, *ends)
        self.terminated[:], self.truncated[:] = terminated, truncated
        if MASK in info and not self.unread_mask:
            self.refuse_late_mask(0)
        for i in np.flatnonzero(~self.skipped).tolist():
            self.length[i] += 1
            self.ret[i] += float(self.reward[i])
        self.write_all(obs, self.obs)
        finite = np.isfinite(self.reward)
        if self.fallible:
            finite &= np.isfinite(self.obs.reshape(self.num_envs, -1)).all(-1)
        if not finite.all():
            raise self.not_finite(int(np.argmin(finite)))
        for i in np.flatnonzero(self.terminated | self.truncated).tolist():
            if self.mode is AutoresetMode.SAME_STEP:
                self.layout.write(info["final_obs"][i], self.final_obs[i])
            else:
                self.final_obs[i] = self.obs[i]
            self.finished.append(Episode(i, self.ret[i], self.length[i]))
            self.episode[i] += 1
            self.length[i] = 0
            self.ret[i] = 0.0

    def state(self) -> dict[str, np.ndarray]:
        return {"episode": np.array(self.episode)}

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        self.episode = (state["episode"] + 1).tolist()
        self.begin()
        return False

    def close(self) -> None:
        put_away(self.env)
