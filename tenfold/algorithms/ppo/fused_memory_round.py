"""A round of a policy that remembers as one compiled call: as `fused_round`, with what is
remembered before and behind every row."""

from tenfold.algorithms.ppo.agent import ONLINE
from tenfold.algorithms.ppo.fused_arrays import (
    ACTIVATION,
    OBS_SCALE,
    ROUNDS,
    open_arrays,
)
from tenfold.algorithms.ppo.fused_memory import (
    OF_POLICY,
    held_by_one,
    learn_sequences,
    open_memories,
    tower_forward,
    tower_total,
)
from tenfold.algorithms.ppo.fused_round import (
    ACT,
    FINISH,
    PLAYING,
    STORE,
    UPDATE,
    begin_row,
    draw_next,
    end_step,
    finish_with,
    note_step,
    played,
    show,
)
from tenfold.core.kernels import kernel
from tenfold.engines.fused import ACTED, STORED, looks, many_rounds, note, transpose_rows
from tenfold.memory.rollout import remember


@kernel
def one_step(table, memories, head, offset, state, first, end):
    """Outputs of the tower whose parameters are first … end − 1 for the inputs of acting, behind
    `state` [B, S], which stays; what it remembers then is in the scratch."""
    a, m = open_arrays(table), open_memories(memories)
    lanes, held = state.shape[0], held_by_one(m.sizes)
    for b in range(lanes):
        m.keep[b] = 1
        for k in range(held):
            m.state[b * held + k] = state[b, offset + k]
    flat, activation = a.block[ONLINE], int(a.rule[ACTIVATION])
    return tower_forward(flat[first:end], head, activation, a.act_inputs, lanes, memories)


@kernel
def keep_following(memories, offset):
    """What the tower asked last remembers behind the current row."""
    m = open_memories(memories)
    held = held_by_one(m.sizes)
    for b in range(m.following.shape[0]):
        for k in range(held):
            m.following[b, offset + k] = m.state[b * held + k]


@kernel
def values_after(obs, state, table, memories):
    """Values [1, B] of observations that were not counted into the running statistics, behind
    `state`."""
    a, m = open_arrays(table), open_memories(memories)
    show(obs, table)
    first = a.r_real.shape[2] + tower_total(memories, m.policy_head)
    end, offset = a.block.shape[1], held_by_one(m.sizes)
    return one_step(table, memories, m.value_head, offset, state, first, end)


@kernel(inline="always")
def store_remembered(table, memories, e_obs, e_final_obs):
    """The step just made, into the rollout's current row; episodes that ended are forgotten."""
    a, m = open_arrays(table), open_memories(memories)
    t = a.r_count[0]
    if note_step(table):
        final = values_after(e_final_obs, m.following, table, memories)
        for b in range(a.e_truncated.size):
            if a.e_truncated[b]:
                a.r_next[t, b] = final[0, b]
    remember(t, m.length[0], a.r_boundary, m.memory, m.following, m.states)
    end_step(table, e_obs)


@kernel(inline="always")
def choose_remembering(table, memories, r_obs, e_obs):
    """Actions for the current observations, into the rollout's current row."""
    if not begin_row(table, r_obs, e_obs):
        return
    a, m = open_arrays(table), open_memories(memories)
    t, size, flat, reals = a.r_count[0], e_obs.shape[0], a.block[ONLINE], a.r_real.shape[2]
    transpose_rows(r_obs[t], a.rule[OBS_SCALE], a.act_inputs)
    split, behind = reals + tower_total(memories, m.policy_head), held_by_one(m.sizes)
    output = one_step(table, memories, m.policy_head, OF_POLICY, m.memory, reals, split)
    keep_following(memories, OF_POLICY)
    draw_next(table, output)
    value = one_step(table, memories, m.value_head, behind, m.memory, split, flat.size)
    keep_following(memories, behind)
    for b in range(size):
        a.r_value[t, b] = value[0, b]


@kernel
def fused_memory(parts, table, memories, r_obs, e_obs, e_final_obs):
    """As `fused_ppo`."""
    m, counter = open_memories(memories), open_arrays(table).counter
    if parts & STORE:
        began = looks(counter[ROUNDS])
        store_remembered(table, memories, e_obs, e_final_obs)
        note(counter, STORED, began)
    if parts & FINISH:
        finish_with(table, values_after(e_obs, m.memory, table, memories)[0])
    if parts & UPDATE:
        learn_sequences(table, memories, r_obs)
    if parts & ACT:
        began = looks(counter[ROUNDS])
        choose_remembering(table, memories, r_obs, e_obs)
        note(counter, ACTED, began)


@kernel
def fused_memory_rounds(most, low, high, action, lanes, table, memories, r_obs, e_obs, e_final_obs):
    """As `fused_ppo_rounds`."""
    moves, given = (low, high, action, lanes, table), (table, memories, r_obs, e_obs, e_final_obs)
    return many_rounds(played, moves, fused_memory, PLAYING, most, given)
