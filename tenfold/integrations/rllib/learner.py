"""RLlib's PPO learner with its update as one compiled call.

From the same episodes, weights and state of NumPy's generator it makes the update of RLlib's own
`PPOTorchLearner` within rounding: the same rows, minibatches, loss, clipping and Adam, whose state
stays where RLlib keeps it, and the same results.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

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
from tenfold.integrations.rllib.samples import learner_refusal, map_nested, module_refusal
from tenfold.ops.returns import gae

logger = logging.getLogger("ray.rllib")
INSTEAD = "leave learner_class out, and RLlib's own learner takes it"
ADAM = torch.optim.Adam([torch.zeros(1)]).defaults
OUTPUTS = (Columns.ACTION_DIST_INPUTS, Columns.ACTION_LOGP, WEIGHTS_SEQ_NO)


class AllMinibatches:
    """All minibatches of an update, in place of the one that RLlib hands over at a time."""

    def __init__(self, rows: ppo.TrainRows, seq: np.ndarray, order: np.ndarray) -> None:
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
        reason = learner_refusal(self.config)
        loss = type(self).compute_loss_for_module
        if not reason and loss is not PPOTorchLearner.compute_loss_for_module:
            reason = f"has a compiled loss, and {type(self).__name__} has its own"
        if not reason:
            super().build()
            reason = module_refusal(self.module[DEFAULT_MODULE_ID].unwrapped())
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

        def joined(tensor_of: Any) -> np.ndarray:
            with torch.no_grad():
                return torch.cat([tensor_of(p).reshape(-1) for p in parameters]).numpy()

        flat = joined(lambda p: p)
        mean, square = (
            joined(lambda p, name=name: state[p][name] if p in state else torch.zeros_like(p))
            for name in ("exp_avg", "exp_avg_sq")
        )
        sizes = module.net.sizes.copy()
        sizes[-1] += 1
        first = parameters[0]
        arrays = flat, np.zeros_like(flat), mean, square, sizes
        network = ppo.Network(*arrays, module.net.activation, module.heads.tables[0])
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
        num_epochs: int = 1,
        shuffle_batch_per_epoch: bool = False,
        **kwargs: Any,
    ) -> Iterable[Any]:
        """One item with all minibatches, from episodes; batches go RLlib's own way."""
        shuffled = shuffle_batch_per_epoch
        if training_data.episodes is None:
            kwargs |= {"num_epochs": num_epochs, "shuffle_batch_per_epoch": shuffled}
            return super()._create_iterator_if_necessary(training_data=training_data, **kwargs)
        steps = steps_of(training_data.episodes, OUTPUTS)
        rows = len(steps.reward)
        size, minibatches = kwargs.get("minibatch_size"), kwargs.get("num_total_minibatches", 0)
        shuffled = shuffled and num_epochs > 1
        plan = MinibatchPlan(rows, num_epochs, size or rows, shuffled, minibatches)
        order = minibatch_order(plan, np.random.permutation)
        return [AllMinibatches(self.rows(steps), steps.columns[WEIGHTS_SEQ_NO], order)]

    def rows(self, steps: "EpisodeTable") -> ppo.TrainRows:
        """With advantages and targets of the values as they are now."""
        module: Any = self.module[DEFAULT_MODULE_ID].unwrapped()
        with torch.no_grad():
            obs = module.observations({Columns.OBS: map_nested(steps.obs, torch.from_numpy)})
            value = module.value(module.net.features(obs)).squeeze(-1).numpy()
        estimates = advantages(steps, value, self.config.gamma, self.config.lambda_)
        old, log_p = steps.columns[Columns.ACTION_DIST_INPUTS], steps.columns[Columns.ACTION_LOGP]
        actions = steps.columns[Columns.ACTIONS].astype(np.int64)
        return ppo.TrainRows(
            obs.contiguous().numpy(), old, actions, log_p, *estimates, steps.counts
        )

    def params(self) -> ppo.PPOParams:
        config, optimiser = self.config, self.get_optimizer(DEFAULT_MODULE_ID)
        kl = self.curr_kl_coeffs_per_module[DEFAULT_MODULE_ID] if config.use_kl_loss else 0.0
        entropy = self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID].get_current_value()
        loss = config.clip_param, config.vf_clip_param, config.vf_loss_coeff, entropy, kl
        adam = optimiser.param_groups[0]
        values = *loss, config.grad_clip or np.inf, adam["lr"], adam["eps"]
        return ppo.PPOParams(*map(float, values))

    def _update(self, batch: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        phase = batch.get(DEFAULT_MODULE_ID)
        if not isinstance(phase, AllMinibatches):
            return super()._update(batch, **kwargs)
        network, step = self.network()
        params = self.params()
        *_, stats, value = ppo.learn_heads(network, phase.rows, phase.order, step, params)
        self.keep(network, step + len(phase.order))
        if stats[ppo.NOT_FINITE]:
            logger.warning(
                f"{int(stats[ppo.NOT_FINITE])} of {len(phase.order)} gradients of "
                f"{DEFAULT_MODULE_ID} contained `nan/inf` values, which were set to zero."
            )
        weights = {
            ppo.POLICY_LOSS: 1.0,
            ppo.VALUE_LOSS: params.value_weight,
            ppo.ENTROPY: -params.entropy_weight,
            ppo.KL: params.kl_weight,
        }
        self.log_losses(phase, stats, value)
        total = sum(weight * stats[term] for term, weight in weights.items())
        return {}, {DEFAULT_MODULE_ID: torch.tensor(total, dtype=torch.float32)}, {}

    # metrics

    def log_losses(self, phase: AllMinibatches, stats: np.ndarray, value: np.ndarray) -> None:
        """Of the last minibatch, as RLlib's own learner."""
        last, rows = phase.order[-1], phase.rows
        counts = rows.counts[last]
        behind = (counts * (self._weights_seq_no - phase.seq[last])).sum() / counts.sum()
        target = torch.from_numpy(rows.target[last])
        logged = {
            POLICY_LOSS_KEY: stats[ppo.POLICY_LOSS],
            VF_LOSS_KEY: stats[ppo.VALUE_LOSS],
            LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY: stats[ppo.VALUE_LOSS_UNCUT],
            LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: explained_variance(
                target, torch.from_numpy(value)
            ),
            ENTROPY_KEY: stats[ppo.ENTROPY],
            LEARNER_RESULTS_KL_KEY: stats[ppo.KL] if self.config.use_kl_loss else 0.0,
            DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY: behind,
        }
        if self.config.grad_clip or self.config.log_gradients:
            ((name, _),) = self.get_optimizers_for_module(DEFAULT_MODULE_ID)
            logged[f"gradients_{name}_global_norm"] = stats[ppo.NORM]
        numbers = {name: float(number) for name, number in logged.items()}
        self.metrics.log_dict(numbers, key=DEFAULT_MODULE_ID, window=1)

    def _log_steps_trained_metrics(self, batch: Any) -> None:
        """The sums of all minibatches at once."""
        if not isinstance(batch, AllMinibatches):
            return super()._log_steps_trained_metrics(batch)
        module_id, log = DEFAULT_MODULE_ID, self.metrics.log_value
        log((module_id, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        log((module_id, MODULE_TRAIN_BATCH_SIZE_MEAN), batch.order.shape[1], reduce="mean")
        log((module_id, NUM_MODULE_STEPS_TRAINED), len(batch), reduce="sum")
        for key, steps in (
            ((module_id, NUM_MODULE_STEPS_TRAINED_LIFETIME), len(batch)),
            ((ALL_MODULES, NUM_MODULE_STEPS_TRAINED), len(batch)),
            ((ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME), len(batch)),
            ((ALL_MODULES, NUM_ENV_STEPS_TRAINED), batch.env_steps()),
            ((ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME), batch.env_steps()),
        ):
            reduce = "lifetime_sum" if key[1].endswith("_lifetime") else "sum"
            log(key, steps, reduce=reduce, with_throughput=True)
        return None


# RLlib's episodes as rows for learning: what its learner's connectors make of them, and the order
# in which its minibatches take them, without a Python loop over rows.
#
# Every episode has one row more than steps: its last observation, whose value is bootstrapped from.
# That row is in the minibatches as well, and in the mean and deviation of the advantages, but in no
# loss. Both are RLlib's behaviour, kept so that results are its own.


LEAST_DEVIATION = 1e-4  # as RLlib's connector


class EpisodeTable(NamedTuple):
    """All episodes, one after another: observations, nested as the space; actions and the module's
    outputs by name. The last row of an episode repeats the one before, with reward 0."""

    obs: Any
    columns: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray  # the transition has no next observation
    truncated: np.ndarray  # the episode, or its chunk, ends here otherwise
    counts: np.ndarray  # 0 in the rows that only have a value


def concatenated(trees: Sequence[Any]) -> Any:
    """Nested arrays, joined along their first dimension."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: concatenated([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(concatenated(column) for column in zip(*trees, strict=True))
    return np.concatenate(trees)


def without_lookback(buffer: Any) -> Any:
    """What belongs to the chunk itself, not to the one before it."""
    if not buffer.finalized:
        raise ValueError(
            "FusedPPOTorchLearner learns from episodes of arrays, and these are lists: leave "
            "episodes_to_numpy as it is"
        )
    return map_nested(buffer.data, lambda data: data[buffer.lookback :])


def steps_of(episodes: Sequence[Any], names: Sequence[str]) -> EpisodeTable:
    """Rows of all episodes, with the named outputs of the module and the actions."""
    lengths = np.array([len(episode) for episode in episodes])
    ends = np.cumsum(lengths + 1)  # behind each episode's last row
    rows = int(ends[-1])
    steps = np.ones(rows, np.bool_)
    steps[ends - 1] = False
    # a step's own row; the last row of an episode repeats the last step
    row = np.cumsum(steps) - 1
    columns = {Columns.ACTIONS: concatenated([without_lookback(e.actions) for e in episodes])[row]}
    for name in names:
        outputs = [without_lookback(episode.extra_model_outputs[name]) for episode in episodes]
        columns[name] = concatenated(outputs)[row]
    reward = np.zeros(rows, np.float32)
    reward[steps] = concatenated([without_lookback(episode.rewards) for episode in episodes])
    terminated, truncated = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    over = np.array([bool(episode.is_terminated) for episode in episodes])
    terminated[ends - 2] = over
    # a chunk that goes on elsewhere is cut as by a time limit
    truncated[ends - 2] = ~over
    obs = concatenated([without_lookback(episode.observations) for episode in episodes])
    return EpisodeTable(obs, columns, reward, terminated, truncated, steps.astype(np.float32))


def advantages(
    steps: EpisodeTable, value: np.ndarray, gamma: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """Standardised advantages and value targets of all rows."""
    discount = np.where(steps.terminated, 0, gamma).astype(np.float32)
    boundary = (steps.terminated | steps.truncated).astype(np.float32)
    following = np.append(value[1:], np.float32(0))
    target = gae(steps.reward, discount, value, following, boundary, lam) + value
    advantage = target - value
    scale = max(LEAST_DEVIATION, advantage.std())
    return ((advantage - advantage.mean()) / scale).astype(np.float32), target


class MinibatchPlan(NamedTuple):
    """Epochs over the rows, the size of a minibatch, whether rows are shuffled after each epoch,
    and how many minibatches there are (0: as many as the epochs take)."""

    rows: int
    epochs: int
    size: int
    shuffled: bool
    minibatches: int = 0


def minibatch_order(plan: MinibatchPlan, permutation: Callable[[int], np.ndarray]) -> np.ndarray:
    """The rows of each minibatch [U, S], as RLlib's cyclic iterator takes them: a minibatch that
    meets the end of an epoch goes on in the next one."""
    rows, minibatches, start, covered = np.arange(plan.rows), [], 0, 0
    while len(minibatches) < plan.minibatches if plan.minibatches else covered < plan.epochs:
        missing, pieces_ = plan.size, []
        while start + missing >= plan.rows:
            pieces_.append(rows[start:])
            missing -= plan.rows - start
            start, covered = 0, covered + 1
            if plan.shuffled:
                rows = rows[permutation(plan.rows)]
        pieces_.append(rows[start : start + missing])
        start += missing
        minibatches.append(np.concatenate(pieces_))
    return np.stack(minibatches)
