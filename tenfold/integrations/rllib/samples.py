"""What several environments gave in a sample, as arrays, and RLlib's episodes as slices of them.

Row t of lane i is what environment i showed in round t: its observation, then what was done there.
An episode of n steps takes n + 1 rows, the last with its true final observation; the round after it
resets the environment, and what was chosen there is not part of anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Self
from uuid import uuid4

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

from tenfold.integrations.masked.acting import act_on_observations
from tenfold.integrations.rllib.module import MultiHeadActionMaskRLModule

ACTIONS = Columns.ACTIONS
Picker = Callable[[Any], Any]
ARRAY_SPACES = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)


@dataclass
class ObsArray:
    """One array of an observation: where it lies in it, and that of all environments now, once more
    flat for joining and as a tensor."""

    pick: Picker | None  # none: the observation is the array
    now: np.ndarray
    index: int = 0  # among all of the observation
    joined: np.ndarray = field(init=False)
    tensor: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.joined = self.now.reshape(-1, *self.now.shape[2:]) if self.now.ndim > 1 else self.now
        self.tensor = torch.from_numpy(self.now)

    def see(self, observations: Sequence[Any]) -> None:
        arrays = list(map(self.pick, observations)) if self.pick else observations
        if self.now.ndim > 1:
            np.concatenate(arrays, out=self.joined)
        else:
            self.now[:] = arrays

    def for_module(self) -> torch.Tensor:
        """32-bit floats, as RLlib's connectors make them."""
        wide = self.tensor.is_floating_point() and self.tensor.dtype != torch.float16
        return self.tensor.float() if wide else self.tensor


def within(pick: Picker | None, key: Any) -> Picker:
    """What lies under a key of what is picked."""
    return (lambda one: pick(one)[key]) if pick else itemgetter(key)


def arrays_of(space: gym.Space, lanes: int, pick: Picker | None = None) -> Any:
    """A Leaf for every array of the space, nested as it is."""
    if isinstance(space, gym.spaces.Dict):
        return {key: arrays_of(part, lanes, within(pick, key)) for key, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(arrays_of(part, lanes, within(pick, i)) for i, part in enumerate(space))
    if not isinstance(space, ARRAY_SPACES):
        raise ValueError(
            f"BulkEnvRunner has no arrays for observations in {space}; leave env_runner_cls out, "
            "and RLlib's own runner takes them"
        )
    return ObsArray(pick, np.zeros((lanes, *(space.shape or ())), space.dtype))


def map_nested(like: Any, function: Callable[[Any], Any]) -> Any:
    """`function` of every leaf."""
    if isinstance(like, dict):
        return {key: map_nested(part, function) for key, part in like.items()}
    if isinstance(like, tuple):
        return tuple(map_nested(part, function) for part in like)
    return function(like)


def flat(like: Any) -> list[Any]:
    leaves: list[Any] = []
    map_nested(like, leaves.append)
    return leaves


@dataclass
class OngoingEpisode:
    """An episode that has not ended: the row of the first observation of its present chunk, and how
    many rows before it belong to the chunk before."""

    start: int
    lookback: int = 0
    t_started: int = 0
    began: float | None = None
    name: str = field(default_factory=lambda: uuid4().hex)
    custom: dict[Any, Any] = field(default_factory=dict)


class SampleArrays:
    """The arrays of one sample, and what makes episodes of them."""

    def __init__(self, space: gym.Space, action_space: gym.Space, lanes: int) -> None:
        self.count = lanes
        self.tree = arrays_of(space, lanes)
        self.leaves: list[ObsArray] = flat(self.tree)
        for index, leaf in enumerate(self.leaves):
            leaf.index = index
        self.like = SingleAgentEpisode(observation_space=space, action_space=action_space)
        # of every episode, before it is filled; making one anew walks through its spaces
        self.constant = {name: getattr(self.like, name) for name in SingleAgentEpisode.__slots__}
        self.extra = SingleAgentEpisode(
            observations=[0, 0], actions=[0], rewards=[0], extra_model_outputs={"": [0]}
        ).extra_model_outputs[""]
        self.clear(1)

    def clear(self, rows: int) -> None:
        """Room for so many rows, in arrays that no episode holds."""
        self.rows = max(rows, 2)
        self.obs = [self.room(leaf.now) for leaf in self.leaves]
        self.reward = np.zeros((self.count, self.rows))
        self.outputs: dict[str, np.ndarray] = {}
        self.infos: list[list[dict[str, Any]]] = [[] for _ in range(self.count)]

    def room(self, column: np.ndarray) -> np.ndarray:
        return np.empty((self.count, self.rows, *column.shape[1:]), column.dtype)

    def grow(self, rows: int) -> None:
        """Episodes that were made before keep the arrays they have."""
        more, self.rows = rows - self.rows, rows

        def longer(array: np.ndarray) -> np.ndarray:
            end = np.empty((self.count, more, *array.shape[2:]), array.dtype)
            return np.concatenate([array, end], 1)

        self.obs, self.reward = [longer(array) for array in self.obs], longer(self.reward)
        self.outputs = {name: longer(array) for name, array in self.outputs.items()}

    def carry(self, first: int, last: int, rows: int) -> None:
        """Goes on in new arrays, which begin with the rows first … last of the old."""
        old, reward, outputs, infos = self.obs, self.reward, self.outputs, self.infos
        self.clear(rows)
        kept, steps = slice(first, last + 1), slice(first, last)
        for array, before in zip(self.obs, old, strict=True):
            array[:, : last + 1 - first] = before[:, kept]
        self.reward[:, : last - first] = reward[:, steps]
        for name, before in outputs.items():
            self.outputs[name] = self.room(before[:, 0])
            self.outputs[name][:, : last - first] = before[:, steps]
        self.infos = [lane[kept] for lane in infos]

    # a round

    def see(self, row: int, observations: Sequence[Any], infos: Sequence[dict[str, Any]]) -> None:
        """The observations of all environments, as they gave them."""
        if row >= self.rows:
            self.grow(2 * self.rows)
        for leaf, array in zip(self.leaves, self.obs, strict=True):
            leaf.see(observations)
            array[:, row] = leaf.now
        for lane, info in zip(self.infos, infos, strict=True):
            lane.append(dict(info or ()))  # environments may give the same one every time

    def for_module(self, device: Any) -> Any:
        return map_nested(self.tree, lambda leaf: leaf.for_module().to(device))

    def first_of(self, lane: int, row: int) -> Any:
        """The observation in a row."""
        return map_nested(self.tree, lambda leaf: self.obs[leaf.index][lane, row])

    def note(self, row: int, outputs: dict[str, np.ndarray]) -> None:
        """The module's outputs for the observations, by name."""
        for name, value in outputs.items():
            if name not in self.outputs:
                self.outputs[name] = self.room(value)
            self.outputs[name][:, row] = value

    # episodes

    def episode(self, lane: int, of: OngoingEpisode, stop: int, ended_at: float | None) -> Any:
        """The chunk of an episode whose last observation lies in row `stop`, as RLlib holds one
        after `to_numpy`."""
        first, like, before = of.start - of.lookback, self.like, of.lookback
        made = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name, value in self.constant.items():
            setattr(made, name, value)
        made.id_, made.t_started, made.t = of.name, of.t_started, of.t_started + stop - of.start
        arrays = [array[lane, first : stop + 1] for array in self.obs]
        observations = map_nested(self.tree, lambda leaf: arrays[leaf.index])
        made.observations = filled(like.observations, observations, before)
        made.infos = filled(like.infos, self.infos[lane][first : stop + 1], before)
        made.rewards = filled(like.rewards, self.reward[lane, first:stop], before)
        made.actions = filled(like.actions, self.outputs[ACTIONS][lane, first:stop], before)
        made.extra_model_outputs = {
            name: filled(self.extra, array[lane, first:stop], before)
            for name, array in self.outputs.items()
            if name != ACTIONS
        }
        made._custom_data = of.custom
        made._start_time, made._last_step_time = of.began, ended_at
        made._last_added_infos = self.infos[lane][stop]
        made._last_added_observation = map_nested(observations, lambda array: array[-1])
        return made


def filled(like: Any, data: Any, lookback: int) -> Any:
    """RLlib's buffer with other contents; making one anew walks through its space."""
    made = InfiniteLookbackBuffer.__new__(InfiniteLookbackBuffer)
    made.__dict__.update(like.__dict__)
    made.data, made.lookback, made.finalized = data, lookback, not isinstance(data, list)
    return made


# acting without tensors


MASKS = (np.bool_, np.int8, np.uint8, np.float32)


class CompiledActing:
    """`forward_exploration` of a `MultiHeadActionMaskRLModule` on the arrays that observations lie
    in: the same random numbers, the same results."""

    def __init__(self, module: Any, obs: np.ndarray, mask: np.ndarray) -> None:
        net, self.heads = module.net, module.heads
        self.network = net.flat.numpy(), net.sizes, net.activation
        self.obs, self.mask = obs, mask

    @classmethod
    def of(cls, module: Any, tree: Any) -> Self | None:
        """None where it is not the module as it is here, or the observations are not one array of
        32-bit floats and one of masks."""
        ours = MultiHeadActionMaskRLModule
        if not isinstance(module, ours) or any(
            getattr(type(module), name) is not getattr(ours, name)
            for name in ("_forward_exploration", "explore_compiled", "features", "observations")
        ):
            return None
        obs, mask = tree["observations"], tree["action_mask"]
        if not isinstance(obs, ObsArray) or not isinstance(mask, ObsArray):
            return None
        fits = (
            obs.now.ndim == mask.now.ndim == 2
            and obs.now.dtype == np.float32
            and mask.now.dtype in MASKS
            and not module.layout.one_hot
            and module.layout.scale == 1.0
            and module.net.flat.device.type == "cpu"
            and module.net.flat.dtype == torch.float32
            and module.net.compiles(len(obs.now))
        )
        return cls(module, obs.now, mask.now) if fits else None

    def act(self) -> dict[str, np.ndarray]:
        uniform = torch.rand(len(self.obs), self.heads.count).numpy()
        acted = act_on_observations(self.heads, *self.network, self.obs, self.mask, uniform)
        return {
            Columns.ACTION_DIST_INPUTS: acted[0],
            Columns.ACTIONS: acted[1].astype(np.int32),
            Columns.ACTION_LOGP: acted[2],
        }


# configurations of RLlib that our runner and learner refuse, with the reason


def runner_refusal(config: Any) -> str:
    """What `BulkEnvRunner` does not do of a configuration; empty where it does all."""
    if config.is_multi_agent:
        return "samples a single agent, and this configuration is multi-agent"
    for name in ("env_to_module", "module_to_env"):
        if getattr(config, f"_{name}_connector") is not None:
            return f"runs no connectors, and the configuration has {name}_connector"
        if not getattr(config, f"add_default_connectors_to_{name}_pipeline"):
            return f"does what the default connectors do, which the {name} pipeline is without"
    if gym.VectorizeMode(config.gym_env_vectorize_mode) is not gym.VectorizeMode.SYNC:
        return f"steps environments itself, not with vectorize mode {config.gym_env_vectorize_mode}"
    if not config.episodes_to_numpy:
        return "makes episodes of arrays, and episodes_to_numpy is off"
    classes = config.callbacks_class
    for kind in classes if isinstance(classes, list | tuple) else [classes]:
        if getattr(kind, "on_episode_step", None) is not RLlibCallback.on_episode_step:
            return (
                f"has no episode to show in every step, which {kind.__name__}.on_episode_step asks"
            )
    if config.callbacks_on_episode_step:
        return "has no episode to show in every step, which callbacks_on_episode_step asks"
    return ""


def learner_refusal(config: Any) -> str:
    """What `FusedPPOTorchLearner` does not do of a configuration; empty where it does all."""
    if config.is_multi_agent:
        return "trains a single agent, and this configuration is multi-agent"
    if config._learner_connector is not None:
        return "runs no connectors, and the configuration has learner_connector"
    if not config.add_default_connectors_to_learner_pipeline:
        return "does what the default connectors do, which the learner pipeline is without"
    if config.num_learners > 1:
        return f"is one learner, and num_learners is {config.num_learners}"
    if config.num_gpus_per_learner:
        return f"updates on a CPU, and num_gpus_per_learner is {config.num_gpus_per_learner}"
    if config.grad_clip and config.grad_clip_by != "global_norm":
        return f"clips by global_norm, and grad_clip_by is {config.grad_clip_by}"
    if not config.use_critic:
        return "bootstraps from a value, and use_critic is off"
    for name in (
        "torch_compile_learner",
        "_torch_grad_scaler_class",
        "_torch_lr_scheduler_classes",
    ):
        if getattr(config, name):
            return f"has an update of its own, and {name} is set"
    return ""


def module_refusal(module: Any) -> str:
    """As `learner_refusal`: of a module."""
    ours = MultiHeadActionMaskRLModule
    if not isinstance(module, ours):
        return f"updates a MultiHeadActionMaskRLModule, and this is a {type(module).__name__}"
    for name in ("features", "_forward_train", "compute_values"):
        if getattr(type(module), name) is not getattr(ours, name):
            return f"has compiled networks, and {type(module).__name__} has its own {name}"
    if module.critic is not None:
        return "trains no critic, and the module has one (CriticPPOTorchLearner does)"
    return ""
