"""Worlds of tensors for the tests, without random numbers: each drifts by its actions; episodes
begin where the world and the episode's number say, terminate beyond a bound and are cut by a time
limit. In the forms that simulators have."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete

SPACES = {
    "box": Box(-2.0, 3.0, (2,)),
    "free": Box(-np.inf, np.inf, (2,)),
    "discrete": Discrete(3, start=1),
}


class Drifting:
    """(obs, reward, terminated, truncated, last observations) of `num_envs` worlds."""

    gives_final = True

    def __init__(
        self, num_envs: int = 6, actions: str = "box", limit: int = 5, device: str = "cpu"
    ) -> None:
        self.num_envs, self.limit = num_envs, limit
        self.single_action_space: Any = SPACES[actions]
        self.single_observation_space: Any = Box(-np.inf, np.inf, (3,))
        self.world = torch.arange(num_envs, dtype=torch.float32, device=device)
        self.closed = self.seed = 0

    def reset(self, seed: int | None = None) -> Any:
        self.seed = seed
        self.episode = torch.zeros_like(self.world)
        self.age = torch.zeros_like(self.world)
        self.state = self.fresh()
        return self.observed(self.state)

    def fresh(self) -> torch.Tensor:
        phase = (self.world + 1) * 0.7 + self.episode * 1.3
        return torch.stack([phase.sin(), phase.cos()], 1)

    def observed(self, state: torch.Tensor) -> Any:
        return torch.cat([state, (state[:, :1] * state[:, 1:]).tanh()], 1)

    def advance(self, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if action.dim() == 1:
            action = torch.stack([action - 2.0, 1.0 - action], 1)
        state = 0.9 * self.state + 0.3 * action.clamp(-2, 3) + 0.05 * self.world[:, None]
        self.age = self.age + 1
        reward = 1 - state.square().sum(1)
        terminated = state.norm(dim=1) > 1.6
        truncated = (self.age >= self.limit) & ~terminated
        ended, last = terminated | truncated, state
        self.episode, self.age = self.episode + ended, self.age * ~ended
        self.state = torch.where(ended[:, None], self.fresh(), state)
        return reward, terminated, truncated, self.observed(last)

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        reward, terminated, truncated, last = self.advance(action)
        final = last if self.gives_final else None
        return self.observed(self.state), reward, terminated, truncated, final

    def close(self) -> None:
        self.closed += 1


class Unfinished(Drifting):
    """Last observations are missing."""

    gives_final = False


class InInfo(Drifting):
    """As Gymnasium's vector environments and ManiSkill's."""

    key = "final_observation"
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}

    def reset(self, seed: int | None = None) -> Any:
        return super().reset(seed), {}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, last = super().step(action)
        return obs, reward[:, None], terminated, truncated, {self.key: last}


class Grouped(Drifting):
    """As Isaac Lab's and mjlab's: groups of observations, a gym.Env inside of wrappers."""

    class Inner(Drifting, gym.Env):
        gives_final = False

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.single_observation_space = Dict(policy=self.single_observation_space)
            self.observation_space, self.action_space = (
                self.single_observation_space,
                self.single_action_space,
            )

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed), {}

        def observed(self, state: torch.Tensor) -> Any:
            return {"policy": super().observed(state), "critic": state}

        def step(self, action: torch.Tensor) -> tuple[Any, ...]:
            return *super().step(action)[:4], {"log": {}}

    def __new__(cls, *arguments: Any) -> Any:
        return gym.Wrapper(cls.Inner(*arguments))


class FourValues(Drifting):
    """As rsl_rl's: number of actions instead of spaces, no reset, time limits among the extras."""

    def __init__(self, num_envs: int, actions: str, *arguments: Any) -> None:
        super().__init__(num_envs, actions, *arguments)
        if actions == "free":
            self.num_actions, self.single_action_space = 2, None
        del self.single_observation_space
        Drifting.reset(self)

    def __getattribute__(self, name: str) -> Any:
        if name == "reset":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def get_observations(self) -> Any:
        Drifting.reset(self)
        return {"policy": self.observed(self.state)}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        reward, terminated, truncated, _ = self.advance(action)
        obs = {"policy": self.observed(self.state)}
        return obs, reward, (terminated | truncated).long(), {"time_outs": truncated}


class OtherArrays(Drifting):
    """Arrays of another library, which DLPack hands over; actions are given in it too."""

    def reset(self, seed: int | None = None) -> Any:
        return super().reset(seed).numpy(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        assert isinstance(action, np.ndarray)
        obs, reward, terminated, truncated, last = super().step(torch.from_numpy(action.copy()))
        values = (tensor.numpy().copy() for tensor in (obs, reward, terminated, truncated))
        return *values, {"final_obs": last.numpy().copy()}


class Endless(Drifting):
    """Episodes that never end."""

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        reward, terminated, _, last = self.advance(action * 0)
        no = torch.zeros_like(terminated)
        return self.observed(self.state), reward, no, no, last


KINDS: dict[str, Any] = {
    "given": Drifting,
    "missing": Unfinished,
    "info": InInfo,
    "groups": Grouped,
    "four": FourValues,
    "arrays": OtherArrays,
    "endless": Endless,
}


def make(
    num_envs: int = 6,
    kind: str = "given",
    actions: str = "box",
    limit: int = 5,
    device: str = "cpu",
) -> Any:
    return KINDS[kind](num_envs, actions, limit, device)


def many() -> Any:
    """As many worlds as it wants: one simulator in a process."""
    return Drifting(30)
