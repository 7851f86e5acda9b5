"""What the fused engine's kernels work on: the settings as numbers, and all arrays as one table."""

from typing import NamedTuple

import numpy as np

from tenfold.algorithms.ppo import PPOAgent
from tenfold.core.kernels import as_numbers
from tenfold.core.random import Purpose
from tenfold.core.tables import B1, B2, B3, D1, F1, F2, F3, I1, I2, I3, U1, opener
from tenfold.engines.fused import SPENT, zeros
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import RolloutBuffer
from tenfold.nets.policy import PolicyNetwork
from tenfold.ops.mlp import ACTIVATIONS, parameter_count

# places in `counter`, before those of `engines.fusing`
STEP, ROUNDS, FIRST, LAST, EMPTY = range(5)
# places in `rule`, the settings as numbers; the learning rate's schedule takes four
(
    ACTIVATION,
    GAMMA,
    LAM,
    SCALE,
    NORMALIZE,
    CLIP,
    VALUE_CLIP,
    VALUE_WEIGHT,
    ENTROPY,
    CLIP_NORM,
    ADAM_EPS,
    TARGET_KL,
    MINIBATCHES,
    EPOCHS,
    OBS_SCALE,
    NORM,
    NORM_CLIP,
    NORM_EPS,
    REFUSE,
    MOVED,
) = range(20)
LR, RULES = np.int64(20), 24  # typed: one form of `schedule_at` for all schedules
# rows of `columns`, behind which an action's numbers come
LOG_P, VALUE, ADVANTAGE, TARGET, WEIGHT, COLUMNS = range(6)
# streams
COINS, NORMALS, SHUFFLES = range(3)
DRAWS = Purpose.ACTION, Purpose.NOISE_ACT, Purpose.SHUFFLE


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: D1
    block: F2  # parameters, gradient, moments
    sizes: I1  # of the action's components
    policy_sizes: I1
    value_sizes: I1
    # of a minibatch
    inputs: F1
    hidden: F1
    delta: F1
    columns: F2
    chosen: I2
    mask: B2
    turned: F1
    # of acting
    act_inputs: F2
    act_hidden: F1
    act_scratch: F2
    seen: F2
    # running statistics of observations
    norm_count: I1
    norm_mean: D1
    norm_square: D1
    norm_inverse: D1
    # the rollout, [T, B, …]
    r_count: I1
    r_mask: B3
    r_chosen: I3
    r_real: F3
    r_log_p: F2
    r_value: F2
    r_next: F2
    r_reward: F2
    r_discount: F2
    r_boundary: F2
    r_weight: F2
    r_advantage: F2
    r_target: F2
    order: I1
    # the environments' last step
    e_reward: D1
    e_terminated: B1
    e_truncated: B1
    e_skipped: B1
    e_mask: B2


open_arrays = opener(Arrays)


def make_arrays(
    agent: PPOAgent, rollout: RolloutBuffer, envs: Environments, sums: np.ndarray, batch: int
) -> Arrays:
    """Those of the agent, the rollout and the environments, and scratch for minibatches of up to
    `batch` rows."""
    r, norm, online = rollout, agent.norm, agent.online
    assert isinstance(online, PolicyNetwork)
    p_sizes, v_sizes = np.array(online.policy.sizes), np.array(online.value.sizes)
    reals, sizes = len(agent.actions.low), np.array(agent.actions.sizes, np.int64)
    if not rollout.hidden_size:
        assert parameter_count(p_sizes) + reals + parameter_count(v_sizes) == online.flat.numel()
    count, features = envs.num_envs, int(p_sizes[0])
    outputs = int(max(p_sizes[1:].sum(), v_sizes[1:].sum()))
    widest = int(max(p_sizes.max(), v_sizes.max()))
    empty = np.zeros(1)  # statistics that nobody asks for
    return Arrays(
        counter=np.zeros(5 + len(SPENT), np.int64),
        updates=agent.count,
        rule=rules(agent, r.minibatches),
        streams=np.array([agent.keys[purpose] for purpose in DRAWS]),
        sums=sums,
        block=agent.block.numpy(),
        sizes=sizes,
        policy_sizes=p_sizes,
        value_sizes=v_sizes,
        inputs=zeros(features * batch),
        hidden=zeros(outputs * batch),
        delta=zeros(outputs * batch),
        columns=zeros(COLUMNS + reals, batch),
        chosen=np.zeros((batch, sizes.size), np.int64),
        mask=np.zeros((batch, r.mask.shape[-1]), np.bool_),
        turned=zeros(batch * widest),
        act_inputs=zeros(features, count),
        act_hidden=zeros(outputs * count),
        act_scratch=zeros(agent.actions.options + reals, count),
        seen=zeros(count, features),
        norm_count=norm.count if norm else np.zeros(1, np.int64),
        norm_mean=norm.mean if norm else empty,
        norm_square=norm.m2 if norm else empty,
        norm_inverse=norm.inv_std if norm else empty,
        r_count=r.count,
        r_mask=r.mask,
        r_chosen=r.chosen,
        r_real=r.real,
        r_log_p=r.log_p,
        r_value=r.value,
        r_next=r.next_value,
        r_reward=r.reward,
        r_discount=r.discount,
        r_boundary=r.boundary,
        r_weight=r.weight,
        r_advantage=r.advantage,
        r_target=r.target,
        # of sequences the rows of a minibatch
        order=np.zeros(r.reward.size, np.int64) if r.hidden_size else r.order,
        e_reward=envs.reward,
        e_terminated=envs.terminated,
        e_truncated=envs.truncated,
        e_skipped=envs.skipped,
        e_mask=np.zeros((count, 0), np.bool_) if envs.mask is None else envs.mask,
    )


def rules(agent: PPOAgent, minibatches: int) -> np.ndarray:
    """The settings as numbers."""
    config, norm, rule = agent.config, agent.norm, np.zeros(RULES)
    assert isinstance(agent.online, PolicyNetwork)
    values = {
        ACTIVATION: ACTIVATIONS[config.net.activation],
        OBS_SCALE: agent.online.scale,
        GAMMA: config.gamma,
        LAM: config.lam,
        SCALE: config.reward_scale,
        NORMALIZE: config.normalize_advantage,
        CLIP: config.clip,
        VALUE_CLIP: config.value_clip or np.inf,
        VALUE_WEIGHT: config.value_weight,
        ENTROPY: config.entropy,
        CLIP_NORM: config.clip_norm or np.inf,
        ADAM_EPS: config.adam_eps,
        TARGET_KL: config.target_kl or np.inf,
        MINIBATCHES: minibatches,
        EPOCHS: config.epochs,
        REFUSE: config.on_empty == "raise",
    }
    if norm:
        values |= {NORM: True, NORM_CLIP: norm.clip, NORM_EPS: norm.epsilon}
    rule[list(values)] = list(values.values())
    rule[LR : LR + 4] = as_numbers(config.lr)
    return rule
