"""Vector environments as Stable-Baselines3 has them, where that is not installed: what `get_env()`
gives, and the monitor of episodes around a single environment."""

import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np


class EpisodeMonitor(gym.Wrapper[Any, Any, Any, Any]):
    """Puts return, length and time of an episode into the info of its last step."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.started, self.rewards = time.time(), list[float]()

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self.rewards.clear()
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        if terminated or truncated:
            info["episode"] = {
                "r": round(sum(self.rewards), 6),
                "l": len(self.rewards),
                "t": round(time.time() - self.started, 6),
            }
        return obs, reward, terminated, truncated, info


class VectorEnv:
    """Single environments side by side: a step that ends an episode resets, and the episode's last
    observation is in the info."""

    def __init__(self, envs: Sequence[gym.Env[Any, Any]]) -> None:
        self.envs, self.num_envs = list(envs), len(envs)
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.render_mode = self.envs[0].render_mode
        self.metadata = self.envs[0].metadata
        self._seeds: list[int | None] = [None] * self.num_envs
        self._options: list[dict[str, Any]] = [{} for _ in envs]
        self.reset_infos: list[dict[str, Any]] = [{} for _ in envs]
        self.buf_rews = np.zeros(self.num_envs, np.float32)
        self.buf_infos: list[dict[str, Any]] = [{} for _ in envs]

    @property
    def unwrapped(self) -> "VectorEnv":
        return self

    def reset(self) -> Any:
        """The observations of all environments, at the start of new episodes."""
        results = [
            env.reset(seed=seed, **({"options": options} if options else {}))
            for env, seed, options in zip(self.envs, self._seeds, self._options, strict=True)
        ]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [info for _, info in results]
        return side_by_side(self.observation_space, [obs for obs, _ in results])

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """(observations, rewards, whether episodes ended, infos)."""
        observations, ended = [], np.zeros(self.num_envs, np.bool_)
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, self.buf_rews[i], terminated, truncated, info = env.step(action)
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                ended[i], info["terminal_observation"] = True, obs
                obs, self.reset_infos[i] = env.reset()
            self.buf_infos[i] = info
            observations.append(obs)
        rows = side_by_side(self.observation_space, observations)
        return rows, self.buf_rews.copy(), ended, list(self.buf_infos)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Sets the seeds of the next reset: environment i gets seed + i."""
        first = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        self._seeds = [first + i for i in range(self.num_envs)]
        return self._seeds

    def set_options(self, options: Any = None) -> None:
        """Sets the options of the next reset, one for all or a list."""
        of_envs = options if isinstance(options, list) else [options or {}] * self.num_envs
        self._options = list(of_envs)

    def _reset_seeds(self) -> None:
        self._seeds = [None] * self.num_envs

    def _reset_options(self) -> None:
        self._options = [{} for _ in self.envs]

    def indexed(self, indices: Any) -> list[gym.Env[Any, Any]]:
        """The environments of these numbers; all of them for None."""
        if indices is None:
            return self.envs
        return [self.envs[i] for i in ([indices] if isinstance(indices, int) else indices)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [env.get_wrapper_attr(attr_name) for env in self.indexed(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        for env in self.indexed(indices):
            setattr(env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **more: Any) -> Any:
        return [env.get_wrapper_attr(method_name)(*args, **more) for env in self.indexed(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [is_wrapped(env, wrapper_class) for env in self.indexed(indices)]

    def render(self, mode: str | None = None) -> Any:
        return self.envs[0].render()

    def close(self) -> None:
        for env in self.envs:
            env.close()


def side_by_side(space: gym.Space[Any], observations: list[Any]) -> Any:
    """Observations with the environments in front: arrays, or a dict or tuple of them."""
    if isinstance(space, gym.spaces.Dict):
        return {
            key: side_by_side(part, [obs[key] for obs in observations])
            for key, part in space.items()
        }
    if isinstance(space, gym.spaces.Tuple):
        columns = zip(*observations, strict=True)
        return tuple(
            side_by_side(part, list(column)) for part, column in zip(space, columns, strict=True)
        )
    return np.stack([np.asarray(obs, space.dtype) for obs in observations])


def is_wrapped(env: Any, kind: type) -> bool:
    """Whether a wrapper of this class is around the environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, kind):
            return True
        env = env.env
    return False


def sb3(module: str, name: str) -> Any:
    """A class of Stable-Baselines3's, or None where that is not installed."""
    if find_spec("stable_baselines3") is None:
        return None
    return getattr(import_module(f"stable_baselines3.{module}"), name)


def monitored(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with a monitor around it, unless it has one."""
    kind = sb3("common.monitor", "Monitor") or EpisodeMonitor
    return env if is_wrapped(env, kind) else kind(env)


def vectorised(envs: Sequence[gym.Env[Any, Any]]) -> Any:
    """Single environments as a vector environment: Stable-Baselines3's, where it is there."""
    kind = sb3("common.vec_env", "DummyVecEnv")
    return kind([lambda env=env: env for env in envs]) if kind else VectorEnv(envs)
