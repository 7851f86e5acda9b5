"""RLlib's PPO learner with its update as one compiled call.

From the same episodes, weights and state of NumPy's generator it makes the update of RLlib's own
`PPOTorchLearner` within rounding: the same rows, minibatches, loss, clipping and Adam, whose state
stays where RLlib keeps it, and the same results.
"""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.ppo import (
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY,
)
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core import ALL_MODULES, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.utils.metrics import (
    DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY,
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    WEIGHTS_SEQ_NO,
)
from ray.rllib.utils.torch_utils import explained_variance

from tenfold.integrations.masked import ppo
from tenfold.integrations.rllib.refusals import learner_lacks, learner_lacks_for
from tenfold.integrations.rllib.rows import Plan, Steps, advantages, minibatch_order, steps_of

logger = logging.getLogger("ray.rllib")
INSTEAD = "leave learner_class out, and RLlib's own learner takes it"
ADAM = torch.optim.Adam([torch.zeros(1)]).defaults
OUTPUTS = (Columns.ACTION_DIST_INPUTS, Columns.ACTION_LOGP, WEIGHTS_SEQ_NO)


class Phase:
    """All minibatches of an update, in place of the one that RLlib hands over at a time."""

    def __init__(self, rows: ppo.Rows, seq: np.ndarray, order: np.ndarray) -> None:
        self.rows, self.seq, self.order = rows, seq, order
        self.policy_batches = {DEFAULT_MODULE_ID: self}

    def __len__(self) -> int:
        return self.order.size

    def get(self, name: str) -> None:
        """RLlib looks for sequences; there are none."""

    def env_steps(self) -> int:
        """RLlib counts those of all episodes with every minibatch, the rows without a step too."""
        return len(self.rows.counts) * len(self.order)


class FusedPPOTorchLearner(PPOTorchLearner):
    """`config.training(learner_class=FusedPPOTorchLearner)`: PPO for a
    `MultiHeadActionMaskRLModule` on a CPU.

    Refused by name: several agents, other modules or networks of one's own, a critic, connectors of
    one's own, several learners, GPUs, a loss of one's own.
    """

    config: Any

    def build(self) -> None:
        reason = learner_lacks(self.config)
        loss = type(self).compute_loss_for_module
        if not reason and loss is not PPOTorchLearner.compute_loss_for_module:
            reason = f"has a compiled loss, and {type(self).__name__} has its own"
        if not reason:
            super().build()
            reason = learner_lacks_for(self.module[DEFAULT_MODULE_ID].unwrapped())
            optimiser = self.get_optimizer(DEFAULT_MODULE_ID)
            if type(optimiser) is not torch.optim.Adam or optimiser.defaults != ADAM:
                reason = reason or "has RLlib's own Adam compiled, and another optimiser is set"
        if reason:
            raise ValueError(f"FusedPPOTorchLearner {reason}; {INSTEAD}")

    # the network as one

    def parameters(self) -> list[torch.nn.Parameter]:
        """In the order of one flat network: weights, then biases of each layer. The value is one
        more output of the policy's layer."""
        module: Any = self.module[DEFAULT_MODULE_ID].unwrapped()
        layers = [*([layer] for layer in module.net.trunk), [module.net.policy, module.value]]
        return [
            getattr(part, name) for layer in layers for name in ("weight", "bias") for part in layer
        ]

    def network(self) -> tuple[ppo.Network, int]:
        """Parameters and Adam's moments in arrays of their own, and the steps Adam has made."""
        module: Any = self.module[DEFAULT_MODULE_ID].unwrapped()
        state, parameters = self.get_optimizer(DEFAULT_MODULE_ID).state, self.parameters()

        def joined(found: Any) -> np.ndarray:
            with torch.no_grad():
                return torch.cat([found(p).reshape(-1) for p in parameters]).numpy()

        flat = joined(lambda p: p)
        mean, square = (
            joined(lambda p, name=name: state[p][name] if p in state else torch.zeros_like(p))
            for name in ("exp_avg", "exp_avg_sq")
        )
        sizes = module.net.sizes.copy()
        sizes[-1] += 1
        first = parameters[0]
        network = ppo.Network(
            flat,
            np.zeros_like(flat),
            mean,
            square,
            sizes,
            module.net.activation,
            module.heads.tables[0],
        )
        return network, int(state[first]["step"]) if first in state else 0

    def keep(self, network: ppo.Network, step: int) -> None:
        """Back to where RLlib keeps them."""
        state, used = self.get_optimizer(DEFAULT_MODULE_ID).state, 0
        for p in self.parameters():
            part = slice(used, used + p.numel())
            used = part.stop
            p.data.copy_(torch.from_numpy(network.flat[part]).view_as(p))
            state[p] = {
                "step": torch.tensor(float(step)),
                "exp_avg": torch.from_numpy(network.mean[part].copy()).view_as(p),
                "exp_avg_sq": torch.from_numpy(network.square[part].copy()).view_as(p),
            }

    # an update

    def _create_iterator_if_necessary(
        self,
        *,
        training_data: Any,
        num_total_minibatches: int = 0,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **kwargs: Any,
    ) -> Iterable[Any]:
        """One item with all minibatches, from episodes; batches go RLlib's own way."""
        if training_data.episodes is None:
            return super()._create_iterator_if_necessary(
                training_data=training_data,
                num_total_minibatches=num_total_minibatches,
                num_epochs=num_epochs,
                minibatch_size=minibatch_size,
                shuffle_batch_per_epoch=shuffle_batch_per_epoch,
                **kwargs,
            )
        steps = steps_of(training_data.episodes, OUTPUTS)
        count = len(steps.reward)
        plan = Plan(
            count,
            num_epochs,
            minibatch_size or count,
            shuffle_batch_per_epoch and num_epochs > 1,
            num_total_minibatches,
        )
        order = minibatch_order(plan, np.random.permutation)
        return [Phase(self.rows(steps), steps.columns[WEIGHTS_SEQ_NO], order)]

    def rows(self, steps: Steps) -> ppo.Rows:
        """With advantages and targets of the values as they are now."""
        module: Any = self.module[DEFAULT_MODULE_ID].unwrapped()
        with torch.no_grad():
            seen = module.observations({Columns.OBS: as_tensors(steps.obs)})
            value = module.value(module.net.features(seen)).squeeze(-1).numpy()
        found = advantages(steps, value, self.config.gamma, self.config.lambda_)
        old, log_p = steps.columns[Columns.ACTION_DIST_INPUTS], steps.columns[Columns.ACTION_LOGP]
        actions = steps.columns[Columns.ACTIONS].astype(np.int64)
        return ppo.Rows(seen.contiguous().numpy(), old, actions, log_p, *found, steps.counts)

    def rule(self) -> ppo.Rule:
        config, optimiser = self.config, self.get_optimizer(DEFAULT_MODULE_ID)
        kl = self.curr_kl_coeffs_per_module[DEFAULT_MODULE_ID] if config.use_kl_loss else 0.0
        entropy = self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID].get_current_value()
        values = (
            config.clip_param,
            config.vf_clip_param,
            config.vf_loss_coeff,
            entropy,
            kl,
            config.grad_clip or np.inf,
            optimiser.param_groups[0]["lr"],
            optimiser.param_groups[0]["eps"],
        )
        return ppo.Rule(*map(float, values))

    def _update(self, batch: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        phase = batch.get(DEFAULT_MODULE_ID)
        if not isinstance(phase, Phase):
            return super()._update(batch, **kwargs)
        network, step = self.network()
        rule = self.rule()
        *_, found, value = ppo.learn_heads(network, phase.rows, phase.order, step, rule)
        self.keep(network, step + len(phase.order))
        if found[ppo.NOT_FINITE]:
            logger.warning(
                f"{int(found[ppo.NOT_FINITE])} of {len(phase.order)} gradients of "
                f"{DEFAULT_MODULE_ID} contained `nan/inf` values, which were set to zero."
            )
        weights = {
            ppo.POLICY_LOSS: 1.0,
            ppo.VALUE_LOSS: rule.value_weight,
            ppo.ENTROPY: -rule.entropy_weight,
            ppo.KL: rule.kl_weight,
        }
        self.log_losses(phase, found, value)
        total = sum(weight * found[term] for term, weight in weights.items())
        return {}, {DEFAULT_MODULE_ID: torch.tensor(total, dtype=torch.float32)}, {}

    # what is told of it

    def log_losses(self, phase: Phase, found: np.ndarray, value: np.ndarray) -> None:
        """Of the last minibatch, as RLlib's own learner."""
        last, rows = phase.order[-1], phase.rows
        counts = rows.counts[last]
        behind = (counts * (self._weights_seq_no - phase.seq[last])).sum() / counts.sum()
        target = torch.from_numpy(rows.target[last])
        logged = {
            POLICY_LOSS_KEY: found[ppo.POLICY_LOSS],
            VF_LOSS_KEY: found[ppo.VALUE_LOSS],
            LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY: found[ppo.VALUE_LOSS_UNCUT],
            LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: explained_variance(
                target, torch.from_numpy(value)
            ),
            ENTROPY_KEY: found[ppo.ENTROPY],
            LEARNER_RESULTS_KL_KEY: found[ppo.KL] if self.config.use_kl_loss else 0.0,
            DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY: behind,
        }
        if self.config.grad_clip or self.config.log_gradients:
            ((name, _),) = self.get_optimizers_for_module(DEFAULT_MODULE_ID)
            logged[f"gradients_{name}_global_norm"] = found[ppo.NORM]
        numbers = {name: float(number) for name, number in logged.items()}
        self.metrics.log_dict(numbers, key=DEFAULT_MODULE_ID, window=1)

    def _log_steps_trained_metrics(self, batch: Any) -> None:
        """The sums of all minibatches at once."""
        if not isinstance(batch, Phase):
            return super()._log_steps_trained_metrics(batch)
        own, log = DEFAULT_MODULE_ID, self.metrics.log_value
        log((own, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        log((own, MODULE_TRAIN_BATCH_SIZE_MEAN), batch.order.shape[1], reduce="mean")
        log((own, NUM_MODULE_STEPS_TRAINED), len(batch), reduce="sum")
        for key, steps in (
            ((own, NUM_MODULE_STEPS_TRAINED_LIFETIME), len(batch)),
            ((ALL_MODULES, NUM_MODULE_STEPS_TRAINED), len(batch)),
            ((ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME), len(batch)),
            ((ALL_MODULES, NUM_ENV_STEPS_TRAINED), batch.env_steps()),
            ((ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME), batch.env_steps()),
        ):
            reduce = "lifetime_sum" if key[1].endswith("_lifetime") else "sum"
            log(key, steps, reduce=reduce, with_throughput=True)
        return None


def as_tensors(like: Any) -> Any:
    """Nested arrays as tensors of the same memory."""
    if isinstance(like, dict):
        return {name: as_tensors(part) for name, part in like.items()}
    return tuple(map(as_tensors, like)) if isinstance(like, tuple) else torch.from_numpy(like)
