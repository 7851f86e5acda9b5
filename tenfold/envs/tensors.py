"""Environments of tensors: many worlds in one object, whose observations, rewards and actions are
torch tensors on one device, and whose episodes begin anew in the step that ends them.

`adapt` understands what simulators return: Gymnasium's five values (ManiSkill), an observation that
is a dict with the key "policy" (Isaac Lab, mjlab), the four values of rsl_rl with the time limits
in `extras["time_outs"]`, and arrays of other libraries (JAX) through DLPack. The last observation
of an episode is in `info["final_obs"]` or `info["final_observation"]`, the fifth value itself, or
missing. Nothing here waits for the device once the first step was looked at.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from tenfold.core.errors import FAULTS, EnvironmentFault
from tenfold.core.layout import observation_layout
from tenfold.core.protocols import EnvSpec
from tenfold.envs.faults import fault_of

FINAL_KEYS = ("final_obs", "final_observation")
LIMITS = ("max_episode_length", "max_episode_steps")
GROUP = "policy"  # of a dict of observations, what is learned from


class TensorStep(NamedTuple):
    """What a step brought, of all worlds [B]. `obs` is the one to act on next; `final_obs` the last
    one of episodes that ended, None where the environment does not give it."""

    obs: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final_obs: torch.Tensor | None


class TensorWorlds:
    """Many worlds in one object, whatever its conventions are."""

    def __init__(self, env: Any, name: str) -> None:
        self.env, self.name = env, name
        self.source: Any = env  # the function that made it, or itself
        self.num_envs = self.count_worlds()
        self.action_space = self.find_action_space()
        self.namespace: Any = None  # of arrays that are no tensors: they are given such
        self.resets = 0
        self.gives_final = self.tells_limits = False  # in any step so far
        self.require_same_step()
        obs = self.reset(0)
        self.device = obs.device
        self.refuse_numpy()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, obs.shape[1:], np.float32)
        self.require_space()
        self.spec = EnvSpec(
            name,
            observation_layout(self.observation_space, name),
            self.action_space,
            exact_resume=False,
        )
        self.step(self.idle_action())  # whatever is wrong with it is said before a run begins

    # what it is

    def attribute(self, *names: str) -> Any:
        """The first of these attributes that it has, or the environment inside its wrappers."""
        holders = (self.env, getattr(self.env, "unwrapped", self.env))
        values = (getattr(holder, name, None) for name in names for holder in holders)
        return next((value for value in values if value is not None), None)

    def count_worlds(self) -> int:
        count = self.attribute("num_envs")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise EnvironmentFault(
                f"{self.name}: num_envs is {count!r:.60}, and must be the number of its worlds."
            )
        return int(count)

    def find_action_space(self) -> gym.Space[Any]:
        """That of one world."""
        space = self.attribute("single_action_space", "action_space")
        if isinstance(space, gym.Space):
            return space
        numbers = self.attribute("num_actions")
        if space is None and isinstance(numbers, int):
            return gym.spaces.Box(-np.inf, np.inf, (numbers,), np.float32)
        raise EnvironmentFault(
            f"{self.name} has no action space: set single_action_space to one of gymnasium.spaces, "
            "the one of a single world."
        )

    def require_same_step(self) -> None:
        """Refuses vector environments of Gymnasium that begin episodes with a step of their own."""
        metadata = self.attribute("metadata")
        # vector environments write theirs into what all other environments share
        says = isinstance(metadata, Mapping) and metadata is not gym.Env.metadata
        mode = metadata.get("autoreset_mode") if says else None
        if mode is not None and "SAME" not in str(getattr(mode, "name", mode)).upper():
            raise EnvironmentFault(
                f"{self.name} has autoreset_mode {getattr(mode, 'name', mode)}: make it with "
                "SAME_STEP, so that a step that ends an episode begins the next one."
            )

    def refuse_numpy(self) -> None:
        """Refuses Gymnasium's own vector environments, whose worlds are Python on the host."""
        inner = getattr(self.env, "unwrapped", self.env)
        if self.namespace is np and isinstance(inner, gym.vector.VectorEnv):
            raise EnvironmentFault(
                f"{self.name} is a vector environment of NumPy arrays: give the name of its single "
                "environment with num_envs, or a function that makes one, and they are stepped "
                "together."
            )

    def require_space(self) -> None:
        """Refuses observations of another shape than their space's."""
        space = self.attribute("single_observation_space", "observation_space")
        inside = space.spaces.get(GROUP) if isinstance(space, gym.spaces.Dict) else space
        shape, expected = self.observation_space.shape, getattr(inside, "shape", None)
        if isinstance(inside, gym.spaces.Box) and expected not in (
            shape,
            (self.num_envs, *shape),
        ):
            raise EnvironmentFault(
                f"{self.name}: observations are {[self.num_envs, *shape]}, and the space says "
                f"{list(expected or ())} for one world."
            )

    @property
    def worlds(self) -> int:
        return self.num_envs

    @property
    def time_limit(self) -> int | None:
        """Steps after which an episode ends by itself, where it says so."""
        limit = self.attribute(*LIMITS)
        return limit if isinstance(limit, int) else None

    def idle_action(self) -> torch.Tensor:
        """An action of all worlds that the space allows."""
        space, lead = self.action_space, (self.num_envs,)
        if isinstance(space, gym.spaces.Box):
            idle = np.clip(np.zeros_like(space.low), space.low, space.high)
        else:
            start = getattr(space, "start", 0)
            idle = np.asarray(np.zeros(space.shape or ()) + start, np.int64)
        return torch.from_numpy(np.broadcast_to(idle, (*lead, *idle.shape)).copy()).to(self.device)

    # what it does

    def reset(self, seed: int) -> torch.Tensor:
        """Begins all episodes; the first observations."""
        self.resets += 1
        env: Any = self.env
        try:
            if not hasattr(env, "reset"):
                answer = env.get_observations()
            elif takes_seed(env.reset):
                answer = env.reset(seed=seed)
            else:
                answer = env.reset()
        except FAULTS as error:
            raise fault_of(self.name, "reset", error) from None
        return self.observation(answer[0] if isinstance(answer, tuple) else answer)

    def step(self, action: torch.Tensor) -> TensorStep:
        """One step of all worlds."""
        try:
            array = action if self.namespace is None else self.namespace.from_dlpack(action)
            answer = self.env.step(array)
        except FAULTS as error:
            raise fault_of(self.name, "step", error) from None
        if not isinstance(answer, tuple | list) or len(answer) not in (4, 5):
            raise EnvironmentFault(
                f"{self.name}: step must return (obs, reward, terminated, truncated, info), or "
                "(obs, reward, dones, extras) as rsl_rl does."
            )
        obs, reward, info = self.observation(answer[0]), self.row(answer[1], "reward"), answer[-1]
        if len(answer) == 5:
            terminated, truncated = self.ends(answer[2]), self.ends(answer[3])
            self.tells_limits = True
        else:
            ended = self.ends(answer[2])
            limits = lookup(info, "time_outs")
            self.tells_limits = self.tells_limits or limits is not None
            truncated = torch.zeros_like(ended) if limits is None else ended & self.ends(limits)
            terminated = ended & ~truncated
        final_obs = self.final_observation(info)
        self.gives_final = self.gives_final or final_obs is not None
        return TensorStep(obs, reward.float(), terminated, truncated & ~terminated, final_obs)

    def final_observation(self, info: Any) -> torch.Tensor | None:
        if isinstance(info, torch.Tensor):
            return self.observation(info)
        values = (lookup(info, key) for key in FINAL_KEYS)
        final = next((value for value in values if value is not None), None)
        return None if final is None else self.observation(final)

    # what it returned, as tensors

    def tensor(self, value: Any, what: str) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            if not hasattr(value, "__array_namespace__") or not hasattr(value, "__dlpack__"):
                raise EnvironmentFault(
                    f"{self.name}: the {what} is of type {type(value).__name__}, and must be a "
                    "torch tensor, or an array that DLPack hands over."
                )
            self.namespace = value.__array_namespace__()
            try:
                value = torch.from_dlpack(value)
            except FAULTS as error:
                raise fault_of(self.name, f"DLPack, of the {what},", error) from None
        device = getattr(self, "device", value.device)
        if value.device != device:
            raise EnvironmentFault(
                f"{self.name}: the {what} is on {value.device}, and observations are on {device}: "
                "keep all of it on one device."
            )
        return value.detach()  # of a simulator that can be differentiated

    def observation(self, value: Any) -> torch.Tensor:
        """Observations [B, D] as float32."""
        if not isinstance(value, torch.Tensor) and hasattr(value, "keys"):
            keys = [*value.keys()]
            if GROUP not in keys:
                raise EnvironmentFault(
                    f"{self.name}: observations are a dict of {', '.join(map(str, keys))}, and "
                    f"the key {GROUP} is the one that is learned from."
                )
            value = value[GROUP]
        obs = self.tensor(value, "observation")
        shape = [self.num_envs, *getattr(getattr(self, "observation_space", None), "shape", "D")]
        if obs.dim() != 2 or len(obs) != self.num_envs or shape[1] not in ("D", obs.shape[1]):
            raise EnvironmentFault(
                f"{self.name}: an observation is {list(obs.shape)}, and must be "
                f"[{', '.join(map(str, shape))}]: a row of numbers for each of num_envs = "
                f"{self.num_envs:,} worlds."
            )
        return obs.float()

    def row(self, value: Any, what: str) -> torch.Tensor:
        """A number of each world."""
        row = self.tensor(value, what)
        if row.numel() != self.num_envs:
            raise EnvironmentFault(
                f"{self.name}: the {what} is {list(row.shape)}, and must be [{self.num_envs}], a "
                "number of each world."
            )
        return row.reshape(-1)

    def ends(self, value: Any) -> torch.Tensor:
        return self.row(value, "end of episodes").bool()


def lookup(info: Any, key: str) -> Any:
    """What a dict, or something like it, has under a key; else None."""
    return info[key] if hasattr(info, "keys") and key in info.keys() else None  # noqa: SIM118


def takes_seed(reset: Any) -> bool:
    """Whether a reset may be seeded."""
    from inspect import Parameter, signature

    try:
        parameters = signature(reset).parameters.values()
    except (TypeError, ValueError):  # of compiled code
        return False
    return any(p.name == "seed" or p.kind is Parameter.VAR_KEYWORD for p in parameters)


def adapt(env: Any, name: str = "") -> TensorWorlds:
    """Worlds of tensors behind one interface; what does not fit is refused with a sentence."""
    return env if isinstance(env, TensorWorlds) else TensorWorlds(env, name or type(env).__name__)
