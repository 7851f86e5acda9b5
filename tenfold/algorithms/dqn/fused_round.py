"""Everything between two environment steps as ONE compiled call on the agent's and the memory's own
arrays: storing the step, drawing batches, the passes, the loss, clipping, Adam, the target network,
new priorities and the next action."""

from typing import NamedTuple

from tenfold.algorithms.dqn.agent import GRAD, MEAN, ONLINE, SQUARE, TARGET
from tenfold.algorithms.dqn.fused_acting import (
    ATOMS,
    CATEGORICAL,
    CLIP,
    DOUBLE,
    DUEL,
    HARD,
    HIGH,
    HUBER,
    LOW,
    NOISY,
    TAU,
    choose_actions,
)
from tenfold.algorithms.fused_replay import (
    ACTIVATION,
    ADAM_EPS,
    ALPHA,
    GAMMA,
    LR,
    N_STEP,
    PRIORITIZED,
    PRIORITY_EPS,
    SCALE,
    count_stored,
    draw_rows,
    norm_batch,
)
from tenfold.core.kernels import kernel, nanoseconds, schedule_at
from tenfold.core.tables import B1, B2, D1, D2, F1, F2, F3, I1, U1, W1, Y1, opener
from tenfold.engines.fusing import (
    ACT,
    ACTED,
    DUE,
    FIRST_LANE,
    ONE_FRAME,
    ROUNDS,
    STEP,
    STORE,
    STORED,
    UPDATE,
    UPDATED,
    WHOLE,
    looks,
    many_rounds,
    note,
)
from tenfold.envs.control_tasks import play_all
from tenfold.memory.gathering import gather_columns
from tenfold.memory.masks import add_masks, gather_masks
from tenfold.memory.rows import Stored, add_rows
from tenfold.memory.sampling import set_priorities
from tenfold.ops.adam import adam_numba, clip_numba, polyak_numba
from tenfold.ops.mlp import mlp_backward, mlp_forward
from tenfold.ops.noise import fill_factors, noisy_gradient, noisy_parameters
from tenfold.ops.td import categorical_gradient, mean_size, td_gradient

# rows of `items` and of `layers`: numbers for each item of a batch, outputs of all layers
REWARD, DISCOUNT, WEIGHT, ERROR = range(4)
HIDDEN, NEXT_HIDDEN, CHOOSING_HIDDEN, DELTA = range(4)
# places in `streams`, where those of acting come first; rows of `noisy`
FIRST_ACTING, REPLAY, NOISE_ONLINE, NOISE_TARGET = 0, 3, 4, 5
UNDER_NOISE, TARGET_UNDER_NOISE, GRAD_UNDER_NOISE = range(3)


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: F1
    block: F2  # parameters, their target, gradient, moments
    sizes: I1
    # of a batch
    inputs: F3
    layers: F2
    items: F2
    turned: F1
    y: F1
    noisy: F2  # parameters under noise, their target, gradient; [3, 0] where there is none
    factors: F2  # of that noise
    row: I1
    action: I1
    draw: D1
    next_mask: B2  # [B, 0] where there are no masks, as all of masks
    # the replay memory
    m_action: W1
    m_reward: F1
    m_kind: Y1
    m_ready: B1
    m_head: I1
    m_start: I1
    m_count: I1
    m_tree: D1
    m_top: D1
    m_mask: B2
    # the environments' last step, and acting
    e_reward: D1
    e_terminated: B1
    e_truncated: B1
    e_skipped: B1
    e_mask: B2
    e_final_mask: B2
    e_action: I1
    e_inputs: F2
    e_hidden: F1
    # running statistics of observations; without a column where they are not normalised
    norm_count: I1
    norm: D2


open_arrays = opener(Arrays)


@kernel(inline="always")
def draw_batch(table, m_obs):
    """Draws rows of the memory, and gathers them as networks take them."""
    a = open_arrays(table)
    rule = a.rule
    draw_rows(
        a.streams[REPLAY],
        a.counter[STEP],
        rule,
        a.m_count,
        a.m_tree,
        a.m_ready,
        a.m_head,
        a.row,
        a.draw,
        a.items[WEIGHT],
    )
    length = a.m_ready.size // a.m_head.size
    gather_columns(
        a.row,
        length,
        int(rule[N_STEP]),
        rule[GAMMA],
        rule[SCALE],
        Stored(m_obs, a.m_action, a.m_reward, a.m_kind),
        a.inputs[0],
        a.action,
        a.items[REWARD],
        a.items[DISCOUNT],
        a.inputs[1],
    )
    norm_batch(a.inputs, rule, a.norm)
    if a.m_mask.shape[1]:
        gather_masks(a.row, length, int(rule[N_STEP]), a.m_kind, a.m_mask, a.next_mask)


@kernel(inline="always")
def find_gradient(table):
    """The gradient of the batch's loss; returns the loss and the mean value of its actions."""
    a = open_arrays(table)
    rule, sizes, activation = a.rule, a.sizes, int(a.rule[ACTIVATION])
    online, target, grad = a.block[ONLINE], a.block[TARGET], a.block[GRAD]
    if rule[NOISY]:
        fill_factors(a.streams[NOISE_ONLINE], a.updates[0], a.factors[0])
        fill_factors(a.streams[NOISE_TARGET], a.updates[0], a.factors[1])
        online = noisy_parameters(online, sizes, a.factors[0], a.noisy[UNDER_NOISE])
        target = noisy_parameters(target, sizes, a.factors[1], a.noisy[TARGET_UNDER_NOISE])
        grad = a.noisy[GRAD_UNDER_NOISE]
    obs, next_obs = a.inputs[0], a.inputs[1]
    hidden, delta = a.layers[HIDDEN], a.layers[DELTA]
    next_output = mlp_forward(target, sizes, activation, next_obs, a.layers[NEXT_HIDDEN])
    chooser = next_output
    if rule[DOUBLE]:
        chooser = mlp_forward(online, sizes, activation, next_obs, a.layers[CHOOSING_HIDDEN])
    output = mlp_forward(online, sizes, activation, obs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    loss, q = find_slopes(table, output, next_output, chooser, by_output)
    mlp_backward(online, sizes, activation, obs, hidden, delta, a.turned, grad)
    if rule[NOISY]:
        noisy_gradient(grad, sizes, a.factors[0], a.block[GRAD])
    return loss, q


@kernel(inline="always")
def find_slopes(table, output, next_output, chooser, by_output):
    """The derivative of the loss by the network's output; returns the loss and the mean value."""
    a = open_arrays(table)
    rule, outputs = a.rule, (output, next_output, chooser)
    items = a.action, a.items[REWARD], a.items[DISCOUNT], a.items[WEIGHT], a.next_mask
    form, found = (int(rule[DUEL]), int(rule[ATOMS])), (by_output, a.items[ERROR], a.y)
    if rule[CATEGORICAL]:
        ends = rule[LOW], rule[HIGH]
        _, _, loss, q = categorical_gradient(*outputs, *items, *form, *ends, *found)
    else:
        _, _, loss, q = td_gradient(*outputs, *items, *form, rule[HUBER] > 0, *found)
    return loss, q


@kernel(inline="always")
def apply_gradient(table):
    """Clipping, Adam, the target network; returns the gradient's norm before it was clipped."""
    a = open_arrays(table)
    rule, updates = a.rule, a.updates
    online, target, grad = a.block[ONLINE], a.block[TARGET], a.block[GRAD]
    _, norm = clip_numba(grad, rule[CLIP])
    updates[0] += 1
    adam_numba(
        online,
        grad,
        a.block[MEAN],
        a.block[SQUARE],
        updates[0],
        schedule_at(rule, LR, a.counter[STEP]),
        rule[ADAM_EPS],
    )
    if rule[HARD] == 0:
        polyak_numba(target, online, rule[TAU])
    elif updates[0] % int(rule[HARD]) == 0:
        for j in range(online.size):
            target[j] = online[j]
    return norm


@kernel(inline="always")
def update_once(table, m_obs):
    """One gradient update, as `PlainEngine.update_once` does it."""
    a = open_arrays(table)
    rule, sums, error = a.rule, a.sums, a.items[ERROR]
    draw_batch(table, m_obs)
    loss, q = find_gradient(table)
    norm = apply_gradient(table)
    if rule[PRIORITIZED]:
        set_priorities(a.m_tree, a.m_top, a.row, error, rule[ALPHA], rule[PRIORITY_EPS])
    sums[0] += loss
    sums[1] += q
    sums[2] += mean_size(error)
    sums[3] += norm
    sums[4] += 1


@kernel(inline="always")
def store_last(table, m_obs, e_obs, e_final_obs):
    """The step just made, into the memory; the updates that are then due."""
    a = open_arrays(table)
    rule = a.rule
    if a.m_mask.shape[1]:
        ended = a.e_terminated, a.e_truncated
        add_masks(a.m_mask, a.m_head, FIRST_LANE, *ended, a.e_skipped, a.e_mask, a.e_final_mask)
    add_rows(
        m_obs,
        a.m_action,
        a.m_reward,
        a.m_kind,
        a.m_ready,
        a.m_head,
        a.m_start,
        a.m_count,
        a.m_tree,
        a.m_top,
        int(rule[N_STEP]),
        ONE_FRAME,
        FIRST_LANE,
        a.e_action,
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        e_obs,
        e_final_obs,
    )
    count_stored(a.counter, rule, a.e_skipped, e_obs, a.norm_count, a.norm, a.m_count[0])


@kernel
def fused_round(parts, table, m_obs, e_obs, e_final_obs):
    """Store the step just made, run the updates that are due, choose the next action: those of the
    three in `parts`. Returns a lane in which no action is allowed, or -1."""
    a = open_arrays(table)
    stuck = -1
    if parts & STORE:
        began = looks(a.counter[ROUNDS])
        store_last(table, m_obs, e_obs, e_final_obs)
        note(a.counter, STORED, began)
    if parts & UPDATE and a.counter[DUE]:
        began = nanoseconds()
        for _ in range(a.counter[DUE]):
            update_once(table, m_obs)
        a.counter[DUE] = 0
        a.counter[UPDATED] += nanoseconds() - began
    if parts & ACT:
        began = looks(a.counter[ROUNDS])
        stuck = choose_actions(
            a.counter[STEP],
            a.counter[ROUNDS],
            a.rule,
            a.streams[FIRST_ACTING:REPLAY],
            a.block[ONLINE],
            a.sizes,
            a.noisy[UNDER_NOISE],
            a.factors[0],
            a.y,
            a.e_inputs,
            a.e_hidden,
            a.norm,
            e_obs,
            a.e_mask,
            a.e_action,
        )
        note(a.counter, ACTED, began)
    return stuck


@kernel
def fused_rounds(most, action, lanes, table, m_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment and `fused_round`: see `many_rounds`."""
    given = table, m_obs, e_obs, e_final_obs
    return many_rounds(play_all, (action, lanes), fused_round, WHOLE, most, given)
