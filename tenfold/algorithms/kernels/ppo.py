"""PPO compiled: the slots of a fused round (`engines.fused`), storing a step and acting, and the
end of a rollout. What is learned from it is in `ppo_minibatches`, with the names of arrays.
"""

import numpy as np

from tenfold.algorithms.kernels.ppo_minibatches import COINS, FIRST, LAST, NORMALS, learn
from tenfold.algorithms.ppo import PPO_ONLINE
from tenfold.core.kernels import kernel
from tenfold.core.tables import open_table
from tenfold.engines.fused import (
    ACT,
    DUE,
    ROUNDS,
    STEP,
    STORE,
    many_rounds,
    one_round,
    transpose_rows,
)
from tenfold.envs.control import play_all
from tenfold.memory.rollout import store_in_rollout
from tenfold.ops.advantages import finish_rollout
from tenfold.ops.mlp import parameter_total
from tenfold.ops.moments import EPSILON, norm_apply, norm_scale, norm_update
from tenfold.ops.split_mlp import forward
from tenfold.ops.surrogate import draw_action

FINISH = 8  # a stage of a round, besides those of `engines.fused`
# of a step within a rollout; typed: Numba compiles a function once more for each literal number
PLAYING = np.int64(STORE | ACT)


@kernel
def unseen_inputs(obs, table):
    """Observations that were not counted into the running statistics, as the networks' inputs."""
    a = open_table(table)
    if a.norm.shape[1]:
        norm_apply(obs, a.norm[0], a.norm[2], a.norm_clip, a.e_rows)
        transpose_rows(a.e_rows, 1.0, a.e_inputs)
    else:
        transpose_rows(obs, a.obs_scale, a.e_inputs)


@kernel
def values_of(obs, table):
    """Values [1, B] of such observations."""
    a = open_table(table)
    flat = a.block[PPO_ONLINE]
    unseen_inputs(obs, table)
    value = flat[flat.size - parameter_total(a.value_sizes) :]
    return forward(a.team, value, a.value_sizes, a.activation, a.e_inputs, a.e_hidden)


@kernel
def first_empty(mask, sizes):
    """An environment in which some component has no allowed option, or -1."""
    for b in range(mask.shape[0]):
        at = 0
        for c in range(sizes.size):
            allowed = mask.shape[1] == 0
            for k in range(at, at + sizes[c]):
                allowed = allowed or mask[b, k]
            if not allowed:
                return b
            at += sizes[c]
    return -1


@kernel
def store_transition(table):
    """Stores the step in the rollout's current row; returns whether a time limit cut an episode."""
    a = open_table(table)
    step = a.e_reward, a.e_terminated, a.e_truncated, a.e_skipped
    rollout = a.r_reward, a.r_discount, a.r_boundary, a.r_weight
    store_in_rollout(a.r_count[0], a.gamma, a.reward_scale, *step, *rollout)
    cut = False
    for b in range(a.e_truncated.size):
        cut |= a.e_truncated[b]
        a.counter[STEP] += not a.e_skipped[b]
    return cut


@kernel
def bootstrap(table, final):
    """Values [1, B] of final observations, into the current row where a time limit cut."""
    a = open_table(table)
    t = a.r_count[0]
    for b in range(a.e_truncated.size):
        if a.e_truncated[b]:
            a.r_next_value[t, b] = final[0, b]


@kernel
def end_step(table, e_obs):
    """Updates the running statistics; makes the next row the current one."""
    a = open_table(table)
    if a.norm.shape[1]:
        norm_update(a.norm_count, a.norm[0], a.norm[1], e_obs)
        norm_scale(a.norm_count, a.norm[1], EPSILON, a.norm[2])
    a.counter[ROUNDS] += 1
    a.r_count[0] += 1


@kernel(inline="always")
def store(table, step):
    """Stores the step just made, and values of final observations at time limits."""
    _, e_obs, e_final_obs = step
    if store_transition(table):
        bootstrap(table, values_of(e_final_obs, table))
    end_step(table, e_obs)


@kernel
def finish(table, last_value):
    """Advantages of the full rollout, by the values of what is acted on next; every epoch's
    minibatches are then due."""
    a = open_table(table)
    rollout = a.r_reward, a.r_discount, a.r_value, a.r_next_value, a.r_boundary, a.r_weight
    results = a.r_advantage, a.r_target
    finish_rollout(*rollout, last_value, a.lam, a.normalize_rollout, *results)
    if a.value_norm.shape[1]:
        norm_update(a.value_count, a.value_norm[0], a.value_norm[1], a.r_target.reshape(-1, 1))
        norm_scale(a.value_count, a.value_norm[1], EPSILON, a.value_norm[2])
    a.r_count[0] = 0
    a.counter[DUE], a.counter[FIRST] = 1, 0
    a.counter[LAST] = a.epochs * (a.r_bounds.size - 1)


@kernel
def begin_row(table, r_obs, e_obs):
    """Stores observations and masks in the rollout's current row. Returns an environment in which a
    mask allows no option of a component, where that is an error, or -1."""
    a = open_table(table)
    t, size = a.r_count[0], e_obs.shape[0]
    if a.norm.shape[1]:
        norm_apply(e_obs, a.norm[0], a.norm[2], a.norm_clip, r_obs[t])
    else:
        for b in range(size):
            for j in range(e_obs.shape[1]):
                r_obs[t, b, j] = e_obs[b, j]
    for b in range(size):
        for k in range(a.e_mask.shape[1]):
            a.r_mask[t, b, k] = a.e_mask[b, k]
    return first_empty(a.e_mask, a.sizes) if a.refuses_empty else -1


@kernel(inline="always")
def sample_actions(table, output):
    """Draws actions by the policy's output, into the rollout's current row."""
    a = open_table(table)
    t, num_envs = a.r_count[0], a.r_log_p.shape[1]
    log_std = a.block[PPO_ONLINE][: a.r_real.shape[2]]
    draws = a.keys[COINS], a.keys[NORMALS], a.counter[ROUNDS] * num_envs
    results = a.e_output, a.r_chosen[t], a.r_real[t], a.r_log_p[t]
    draw_action(output, log_std, a.sizes, a.e_mask, *draws, *results)


@kernel(inline="always")
def act(table, acting):
    """Actions for the current observations, into the rollout's current row; see `begin_row`."""
    r_obs, e_obs = acting
    empty = begin_row(table, r_obs, e_obs)
    if empty >= 0:
        return empty
    a = open_table(table)
    t, flat, reals = a.r_count[0], a.block[PPO_ONLINE], a.r_real.shape[2]
    transpose_rows(r_obs[t], a.obs_scale, a.e_inputs)
    split = reals + parameter_total(a.policy_sizes)
    policy, net = flat[reals:split], (a.activation, a.e_inputs, a.e_hidden)
    sample_actions(table, forward(a.team, policy, a.policy_sizes, *net))
    value = forward(a.team, flat[split:], a.value_sizes, *net)
    for b in range(e_obs.shape[0]):
        a.r_value[t, b] = value[0, b]
    return -1


@kernel
def ppo_round(stages, table, r_obs, e_obs, e_final_obs):
    """See `one_round`; before it the end of a full rollout, where `stages` have FINISH."""
    if stages & FINISH:
        finish(table, values_of(e_obs, table)[0])
    step = (r_obs, e_obs, e_final_obs)
    return one_round(store, learn, act, stages, table, step, r_obs, (r_obs, e_obs))


@kernel
def play(low, high, action, envs, table):
    """One step of a compiled environment by the actions in the rollout's current row: what
    `play_all` gives."""
    a = open_table(table)
    t = a.r_count[0]
    for b in range(action.size):
        action[b] = a.r_chosen[t, b, 0] if a.sizes.size else min(max(a.r_real[t, b, 0], low), high)
    return play_all(action, envs)


@kernel
def ppo_rounds(most, low, high, action, envs, table, r_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment within a rollout: see `many_rounds`."""
    moves, arguments = (low, high, action, envs, table), (table, r_obs, e_obs, e_final_obs)
    return many_rounds(play, moves, ppo_round, PLAYING, most, arguments)
