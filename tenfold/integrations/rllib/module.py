"""An RLModule for many masked action heads, and a learner that also trains its critic Q(s, a).

All heads are one output matrix and one pass: equations and checks are those of tenfold.ops.heads.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import nn

from tenfold.config.networks import Activation
from tenfold.config.schema import Config, Limits
from tenfold.core.errors import ConfigError
from tenfold.core.layout import observation_layout
from tenfold.integrations.masked.acting import act_on_logits, act_on_observations
from tenfold.integrations.rllib.distribution import (
    MaskedMultiCategorical,
    check_mask_space,
    join_mask,
    join_observation,
    mask_in,
    sizes_of,
)
from tenfold.nets.layers import FlatModule
from tenfold.ops import advantages
from tenfold.ops.activations import ACTIVATIONS, FUNCTIONS
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.mlp import parameter_count

Batch = dict[str, Any]
Width = Annotated[int, Limits(1)]
# RLlib's own keys that are read as ours, and those that RLlib adds by itself and that change
# nothing here
RENAMED = {"fcnet_hiddens": "hidden", "fcnet_activation": "activation"}
IGNORED = {"vf_share_layers", "max_seq_len"}
WIDE_INTEGERS = (torch.int16, torch.int32, torch.int64)
# rows × inputs × outputs of the widest layer up to which OpenBLAS keeps to one thread, and the
# compiled pass beats torch's
COMPILED_PRODUCT = 1 << 18


@dataclass(frozen=True)
class HeadsModel(Config):
    """The `model_config` of the module. RLlib's fcnet_hiddens and fcnet_activation are understood
    as well."""

    hidden: tuple[Width, ...] = (64, 64)
    """widths of the trunk that policy, value and critic share"""
    activation: Activation = "tanh"
    """of the trunk and the critic"""
    on_empty: str = "raise"
    """a head with every option masked is an error (raise), no part of the action (absent), or does
    its no-op (an index)"""
    critic: tuple[Width, ...] | None = None
    """hidden widths of the critic Q(s, a); none: there is no critic"""

    @classmethod
    def read(cls, model_config: Any) -> "HeadsModel":
        """Out of what RLlib hands over: our keys, RLlib's names for them, and defaults of RLlib's
        that mean nothing here."""
        settings = dict(model_config or {})
        theirs = {f.name: getattr(DefaultModelConfig(), f.name) for f in fields(DefaultModelConfig)}
        values = {name: value for name, value in settings.items() if name not in theirs}
        for name, value in settings.items():
            if name in RENAMED:
                values.setdefault(RENAMED[name], value)
            elif name in theirs and name not in IGNORED and value != theirs[name]:
                known = ", ".join(f.name for f in fields(cls))
                raise ConfigError(
                    f"model_config.{name}",
                    f"= {value} means nothing to this module, whose networks are fully connected: "
                    f"it reads {known}.",
                )
        try:
            return cls.of(values | {"on_empty": str(values.get("on_empty", "raise"))})
        except ConfigError as error:
            raise error.within("model_config") from None

    def empty_policy(self, sizes: Sequence[int]) -> Any:
        """What MaskedHeads calls on_empty."""
        if self.on_empty in ("raise", "absent"):
            return self.on_empty
        if not re.fullmatch(r"-?\d+", self.on_empty):
            raise ConfigError(
                "model_config.on_empty",
                f"= {self.on_empty} is not raise, absent or the index of a no-op.",
            )
        index = int(self.on_empty)
        if not all(-n <= index < n for n in sizes):
            raise ConfigError(
                "model_config.on_empty",
                f"= {index} is no option of some head: the sizes are {list(sizes)}.",
            )
        return index


# the module


class HeadsNetwork(FlatModule):
    """Trunk and output matrix. All parameters are views of one buffer, which the compiled forward
    pass reads."""

    def __init__(self, widths: Sequence[int], options: int, activation: str) -> None:
        super().__init__()
        self.sizes = np.array([*widths, options], np.int64)
        self.widest = max(i * o for i, o in pairwise([*widths, options]))
        self.activation = ACTIVATIONS[activation]
        self.trunk = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
        self.policy = nn.Linear(widths[-1], options)
        # where the last bias lies in the buffer, in bytes
        self.last = 4 * (parameter_count(self.sizes) - options)
        self.flatten()

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.trunk:
            x = FUNCTIONS[self.activation](layer(x))
        return x

    def compiles(self, rows: int) -> bool:
        """Not large products, and not after somebody put another tensor into a parameter: then the
        buffer is not what trains."""
        return (
            rows * self.widest <= COMPILED_PRODUCT
            and self.policy.bias.data_ptr() == self.flat.data_ptr() + self.last
        )


class MultiHeadActionMaskRLModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """Policy, value and (if asked for) critic of an agent with many masked heads, on one trunk.

    Observation space: Dict with "observations" (Box, Discrete, MultiDiscrete, MultiBinary, or Dict
    and Tuple of these) and "action_mask" (bool, int8, uint8 or floats of 0 and 1; one array, or a
    Tuple or Dict with one for each head). Action space: MultiDiscrete. `model_config`: see
    HeadsModel. Inputs have any leading dimensions, (B, D) or (B, T, D). To put an encoder of your
    own in front, override `setup` and `features`.
    """

    mask_in_rows = False  # the mask's space has a row for each head

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.eval()  # RLlib switches to training by itself before a training pass

    def setup(self) -> None:
        space = self.observation_space
        if not isinstance(space, gym.spaces.Dict) or not {"observations", "action_mask"} <= set(
            space
        ):
            raise ValueError(
                'MultiHeadActionMaskRLModule needs a Dict observation space with "observations" '
                'and "action_mask"; '
                f"it is {space}"
            )
        self.settings = HeadsModel.read(self.model_config)
        sizes = sizes_of(self.action_space)
        check_mask_space(space["action_mask"], sizes)
        self.mask_in_rows = len(space["action_mask"].shape or ()) == 2
        self.layout = observation_layout(space["observations"], "the environment")
        widths = (self.layout.size, *self.settings.hidden)
        self.heads = MaskedHeads(sizes, self.settings.empty_policy(sizes))
        self.net = HeadsNetwork(widths, sum(sizes), self.settings.activation)
        self.value = nn.Linear(widths[-1], 1)
        self.critic: nn.ModuleList | None = None
        if self.settings.critic is not None:
            critic = (widths[-1] + sum(sizes), *self.settings.critic, 1)
            self.critic = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(critic))
        self.action_dist_cls = MaskedMultiCategorical.get_partial_dist_cls(input_lens=list(sizes))  # type: ignore[attr-defined]

    def train(self, mode: bool = True) -> "MultiHeadActionMaskRLModule":
        """RLlib calls this around every step of an environment, and walking through all layers
        takes longer than acting."""
        return self if mode == self.training else super().train(mode)

    def get_non_inference_attributes(self) -> list[str]:
        """Environment runners act; they need neither."""
        return ["value", "critic"]

    # what is seen

    def observations(self, batch: Batch) -> torch.Tensor:
        return join_observation(
            self.layout, batch[Columns.OBS]["observations"], self.net.flat.dtype
        )

    def features(self, batch: Batch) -> torch.Tensor:
        """What the trunk makes of a batch, (..., hidden[-1])."""
        return self.net.features(self.observations(batch))

    def mask(self, batch: Batch) -> torch.Tensor:
        """(..., M), in one of the dtypes that MaskedHeads reads."""
        mask = join_mask(mask_in(batch[Columns.OBS]), self.heads.sizes, self.mask_in_rows)
        return mask.float() if mask.dtype in WIDE_INTEGERS else mask

    # RLlib's passes

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        features = self.features(batch)
        return {
            Columns.ACTION_DIST_INPUTS: self.heads.masked_logits(
                self.net.policy(features), self.mask(batch)
            ),
            Columns.EMBEDDINGS: features,
        }

    @torch.no_grad()
    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        logits, mask = self.net.policy(self.features(batch)), self.mask(batch)
        return {
            Columns.ACTION_DIST_INPUTS: self.heads.masked_logits(logits, mask),
            Columns.ACTIONS: self.heads.mode(logits, mask),
        }

    @torch.no_grad()
    def _forward_exploration(self, batch: Batch, **kwargs: Any) -> Batch:
        """Draws the actions as well, so RLlib makes no distribution for them. On a CPU the drawing
        is compiled, and for small batches the networks are."""
        mask = self.mask(batch)
        if mask.dim() != 2 or mask.device.type != "cpu" or self.net.flat.dtype != torch.float32:
            return self.explore_plainly(batch, mask)
        return self.explore_compiled(batch, mask)

    def explore_plainly(
        self, batch: Batch, mask: torch.Tensor, uniform: torch.Tensor | None = None
    ) -> Batch:
        """The reference of `explore_compiled`."""
        logits = self.net.policy(self.features(batch))
        actions, log_prob = self.heads.act(logits, mask, uniform)
        return {
            Columns.ACTION_DIST_INPUTS: self.heads.masked_logits(logits, mask),
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: self.heads.joint(log_prob),
        }

    def explore_compiled(
        self, batch: Batch, mask: torch.Tensor, uniform: torch.Tensor | None = None
    ) -> Batch:
        rows, heads, net = mask.shape[0], self.heads, self.net
        coins = (
            torch.rand(rows, heads.count) if uniform is None else uniform.reshape(rows, heads.count)
        )
        rest = (np.ascontiguousarray(mask), coins.numpy())
        if net.compiles(rows) and type(self).features is MultiHeadActionMaskRLModule.features:
            obs = np.ascontiguousarray(self.observations(batch))
            acted = act_on_observations(
                heads, net.flat.numpy(), net.sizes, net.activation, obs, *rest
            )
        else:
            acted = act_on_logits(heads, net.policy(self.features(batch)).numpy(), *rest)
        logits, actions, joint = map(torch.from_numpy, acted)
        return {
            Columns.ACTION_DIST_INPUTS: logits,
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: joint,
        }

    def compute_values(self, batch: Batch, embeddings: torch.Tensor | None = None) -> torch.Tensor:
        """V(s), (...)."""
        if not hasattr(self, "value"):
            raise ValueError(
                "an inference_only module, as environment runners have it, has no value: ask the "
                "learner's, algorithm.learner_group.foreach_learner(…), or load one from the "
                "checkpoint's learner_group/learner/rl_module"
            )
        return self.value(self.features(batch) if embeddings is None else embeddings).squeeze(-1)

    # the critic

    def first_of_critic(self, batch: Batch) -> tuple[nn.ModuleList, torch.Tensor, torch.Tensor]:
        """The critic, the trunk's features, and what its first layer gives for (s, a) before its
        activation."""
        critic = getattr(self, "critic", None)
        if critic is None:
            raise ValueError(
                'there is no critic: give model_config "critic", the widths of its hidden layers, '
                "such as [64]; "
                "an inference_only module, as environment runners have it, has none either: ask "
                "the learner's, or load one from the checkpoint's learner_group/learner/rl_module"
            )
        features = self.features(batch)
        one_hot = self.heads.one_hot(batch[Columns.ACTIONS].long(), features.dtype)
        return critic, features, critic[0](torch.cat([features, one_hot], -1))

    def rest_of_critic(self, hidden: torch.Tensor) -> torch.Tensor:
        assert self.critic is not None
        for layer in self.critic[1:]:
            hidden = layer(FUNCTIONS[self.net.activation](hidden))
        return hidden.squeeze(-1)

    def q_values(self, batch: Batch) -> torch.Tensor:
        """Q(s, a), (...), of the batch's actions; differentiable."""
        return self.rest_of_critic(self.first_of_critic(batch)[2])

    @torch.no_grad()
    def baselines(self, batch: Batch, learns: torch.Tensor | None = None) -> torch.Tensor:
        """bᵢ = Σ_a′ πᵢ(a′|s)·Q(s, (a′, a₋ᵢ)), (..., heads), without gradient: all alternatives of
        all heads in one broadcast.

        `learns`, bool (heads,) or (..., heads), leaves heads out: they are not evaluated and get
        Q(s, a), advantage 0.
        """
        critic, features, hidden = self.first_of_critic(batch)
        columns = critic[0].weight[:, features.shape[-1] :]  # type: ignore[index, union-attr]
        values = advantages.counterfactual_values(
            self.heads, hidden, columns, batch[Columns.ACTIONS].long(), self.rest_of_critic, learns
        )
        return advantages.counterfactual_baselines(
            self.heads, self.net.policy(features), values, self.mask(batch)
        )

    @torch.no_grad()
    def advantages(self, batch: Batch, learns: torch.Tensor | None = None) -> torch.Tensor:
        """Aᵢ = Q(s, a) − bᵢ, (..., heads), without gradient."""
        return advantages.counterfactual_advantages(
            self.q_values(batch), self.baselines(batch, learns), learns
        )


class CriticPPOTorchLearner(PPOTorchLearner):
    """RLlib's PPO learner, which also fits Q(s, a) of modules that have a critic to the λ-returns.

    `config.training(learner_class=CriticPPOTorchLearner)`; `learner_config_dict={"critic_coeff":
    0.5}` weighs that loss.
    """

    def compute_loss_for_module(
        self, *, module_id: Any, config: Any, batch: Batch, fwd_out: Batch
    ) -> Any:
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        module: Any = self.module[module_id].unwrapped()
        if getattr(module, "critic", None) is None:
            return loss
        error = (module.q_values(batch) - batch[Postprocessing.VALUE_TARGETS]) ** 2
        if Columns.LOSS_MASK in batch:
            error = error[batch[Columns.LOSS_MASK]]
        critic_loss = error.clamp(0, config.vf_clip_param).mean()
        self.metrics.log_value((module_id, "critic_loss"), critic_loss, window=1)
        return loss + config.learner_config_dict.get("critic_coeff", 1.0) * critic_loss
