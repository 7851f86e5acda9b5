"""What the compiled rounds of an actor with critics are made of: acting, drawing a batch, the
critics' values and gradients, the actor's gradient through them, Adam; and the engine's arrays that
these read. `sac` and `td3` put their updates together from these.

All parameters lie in one flat buffer: the actor's, then each critic's, then what an algorithm has
of its own.
"""

from typing import Any, ClassVar

import numpy as np

from tenfold.algorithms.actor_critic import ActorCriticAgent
from tenfold.algorithms.kernels.actor_critic_arrays import (
    DELTA,
    EXTRA,
    HIDDEN,
    NOW,
    REPLAY,
    VALUE,
    Y,
    acting_columns,
    batch_columns,
    noise_columns,
    scaled_columns,
)
from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.random import draw_uniform
from tenfold.core.spaces import BoundedActions
from tenfold.core.tables import open_table
from tenfold.core.work import block_size, bounds_of, pieces_of, share_work
from tenfold.engines.choose import why_not_fused
from tenfold.engines.fused import ERROR, FIRST_NUMBER, ROUNDS, STEP, WEIGHT, network_inputs
from tenfold.engines.fused_engine import FusedActing, FusedRounds
from tenfold.engines.fused_replay import draw_batch
from tenfold.ops.critics import critic_gradient, pick_columns
from tenfold.ops.exploration_noise import ActionNoise, add_noise
from tenfold.ops.mlp import mlp_by_input, mlp_forward, parameter_total
from tenfold.ops.split_adam import adam_by_team
from tenfold.ops.split_mlp import (
    backward,
    backward_all,
    forward_all,
    output_of,
)

# acting


@kernel
def acting_output(table, obs):
    """The actor's output for observations [B, …]."""
    a = open_table(table)
    network_inputs(obs, a.obs_scale, a.norm, a.norm_clip, a.e_inputs)
    actor = a.online[: parameter_total(a.actor_sizes)]
    return mlp_forward(actor, a.actor_sizes, a.activation, a.e_inputs, a.e_hidden)


@kernel
def random_actions(stream, start, options, action):
    """Uniform ones: of `options`, or numbers between −1 and 1."""
    if action.ndim == 1:
        for i in range(action.size):
            action[i] = int(draw_uniform(stream, start + i) * options)
    else:
        for i in range(action.shape[0]):
            for d in range(action.shape[1]):
                counter = start + i * action.shape[1] + d
                action[i, d] = 2 * draw_uniform(stream, counter) - 1


@kernel
def put_rows(drawn, action):
    """Columns [D, B] as rows [B, D]."""
    for i in range(action.shape[0]):
        for d in range(action.shape[1]):
            action[i, d] = drawn[d, i]


@kernel
def explore_more(table, action):
    """Adds noise where there is any beside the policy's own."""
    a = open_table(table)
    if action.ndim == 2 and a.noise_rule.size:
        ended = a.e_terminated | a.e_truncated
        stream, rounds = a.keys[EXTRA], a.counter[ROUNDS]
        add_noise(stream, a.noise_rule, a.noise_values, a.noise_at, rounds, ended, action)


@kernel
def scale_actions(table, action):
    """As the environments take them: whole numbers from the first on, or numbers within their
    bounds, rounded as `BoundedActions.for_env` does."""
    a = open_table(table)
    low, high = a.action_low, a.action_high
    if action.ndim == 1:
        for i in range(action.size):
            a.e_whole[i] = action[i] + a.first_option
    else:
        for i in range(action.shape[0]):
            for d in range(action.shape[1]):
                share = (np.float64(action[i, d]) + 1) / 2
                real = min(max(low[d] + share * (high[d] - low[d]), low[d]), high[d])
                if a.e_single.size:
                    a.e_single[i, d] = real
                else:
                    a.e_double[i, d] = np.float64(np.float32(real)) if a.single else real


# learning


@kernel
def draw_items(table, m_obs, m_action):
    """Draws rows of the memory, and gathers them as networks take them."""
    a = open_table(table)
    action = a.options_taken if m_action.ndim == 1 else a.inputs[NOW, a.actor_sizes[0] :]
    draw_batch(table, a.keys[REPLAY], m_obs, m_action, action)


@kernel
def part_of(actor_sizes, critic_sizes, c):
    """Where the parameters of critic c begin and end; of the actor, where c is −1."""
    actor, size = parameter_total(actor_sizes), parameter_total(critic_sizes)
    return (actor + c * size, actor + (c + 1) * size) if c >= 0 else (0, actor)


@kernel
def critic_values(team, flat, first, sizes, activation, x, layers, q):
    """Values of as many critics as `q` has rows, whose parameters begin at `first`, into `q`. Every
    layer's outputs stay in `layers`."""
    critics, size = q.shape
    forward_all(team, flat[first:], sizes, activation, x, layers[:critics])
    for c in range(critics):
        output = output_of(layers, c, sizes, size)
        for b in range(size):
            q[c, b] = output[0, b]


@kernel
def put_actions(drawn, first, inputs):
    """The policy's own actions [D, B] in place of those that were taken; a loop compiles in a
    seventh of an assignment's time."""
    for d in range(drawn.shape[0]):
        for b in range(drawn.shape[1]):
            inputs[first + d, b] = drawn[d, b]


@kernel
def average(x):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total / np.float32(x.size)


@kernel
def step_of_adam(table, first, last, number, networks):
    """Of the parameters first … last − 1, those of so many networks; returns the sum of their
    gradient's squares."""
    a, total = open_table(table), np.float32(0)
    buffers = a.online[first:last], a.grad[first:last], a.mean[first:last], a.square[first:last]
    lr = schedule_at(a.lr, FIRST_NUMBER, a.counter[STEP])
    optimiser = number, lr, a.adam_eps, a.weight_decay
    adam_by_team(a.team, a.squares[:networks], *buffers, *optimiser)
    for i in range(networks):
        total += a.squares[i]
    return total


@kernel
def learn_critics(table):
    """Every critic from the targets Y of the actions that were taken. Returns the loss, the mean
    value and the sum of the gradients' squares."""
    a = open_table(table)
    critics, size, by_q = a.q.shape[0], a.row.size, a.items[VALUE]
    first, _ = part_of(a.actor_sizes, a.critic_sizes, 0)
    _, last = part_of(a.actor_sizes, a.critic_sizes, critics - 1)
    networks = a.critic_sizes, a.activation, a.inputs[NOW], a.critic_layers
    forward_all(a.team, a.online[first:last], *networks)
    loss, mean = np.float32(0), np.float32(0)
    for b in range(size):
        a.items[ERROR, b] = 0
    for c in range(critics):
        output = output_of(a.critic_layers, c, a.critic_sizes, size)
        by_output = output_of(a.delta, c, a.critic_sizes, size)
        for b in range(size):
            a.q[c, b] = output[a.options_taken[b], b]
        _, _, part_loss, value = critic_gradient(
            a.q[c], a.items[Y], a.items[WEIGHT], 1 / critics, by_q, a.items[ERROR]
        )
        for k in range(output.shape[0]):
            for b in range(size):
                by_output[k, b] = by_q[b] if a.options_taken[b] == k else np.float32(0)
        loss += part_loss
        mean += value / np.float32(critics)
    grad = a.grad[first:last]
    backward_all(a.team, a.online[first:last], *networks, a.delta, a.scratch_t, grad)
    return loss, mean, step_of_adam(table, first, last, a.updates_made[0], critics)


@kernel
def through_critic(table, c, begin, end):
    """∂/∂a of −Σ Q_c / B over the items order[begin … end − 1], into their columns of `by_action`.
    Its scratch is that of these places in the order alone."""
    a = open_table(table)
    size, count, features = a.row.size, end - begin, a.actor_sizes[0]
    first, last = part_of(a.actor_sizes, a.critic_sizes, c)
    if count == 0:
        return
    outputs, which = a.picked.size // size, a.order[begin:end]
    hidden, delta = a.critic_layers[c], a.delta[0, outputs * begin : outputs * end]
    if count < size:
        hidden = a.picked[outputs * begin : outputs * end]
        pick_columns(a.critic_layers[c], size, which, hidden)
    for j in range(count):
        delta[delta.size - count + j] = np.float32(-1) / np.float32(size)
    dimensions = a.by_action.shape[0]
    # `scratch_t` is free between two backward passes
    by_input = a.scratch_t[dimensions * begin : dimensions * end].reshape(dimensions, count)
    critic, inputs = a.online[first:last], a.inputs[NOW]
    mlp_by_input(critic, a.critic_sizes, a.activation, inputs, hidden, delta, features, by_input)
    for d in range(dimensions):
        for j in range(count):
            a.by_action[d, which[j]] = by_input[d, j]


@kernel
def through_block(index, table, block):
    """`through_critic` of a block of a critic's items."""
    bounds, c = open_table(table).bounds, 0
    blocks = pieces_of(bounds[1], block)
    while index >= blocks:
        index -= blocks
        c += 1
        blocks = pieces_of(bounds[c + 1] - bounds[c], block)
    first, count = bounds_of(index, bounds[c + 1] - bounds[c], block)
    through_critic(table, c, bounds[c] + first, bounds[c] + first + count)


@kernel
def through_critics(table):
    """The derivative by every item's action, through the critic to which `order` and `bounds` give
    it."""
    a, blocks = open_table(table), 0
    block = block_size(a.team, a.row.size)
    for c in range(a.bounds.size - 1):
        blocks += pieces_of(a.bounds[c + 1] - a.bounds[c], block)
    share_work(a.team, blocks, through_block, (table, block))


@kernel
def learn_actor(table, number):
    """From the derivative by its output, which lies at the end of its DELTA, the actor's gradient
    and its step of Adam; returns the sum of the gradient's squares."""
    a = open_table(table)
    part = part_of(a.actor_sizes, a.critic_sizes, -1)
    actor, grad, inputs = a.online[: part[1]], a.grad[: part[1]], a.inputs[NOW, : a.actor_sizes[0]]
    hidden, delta = a.actor_layers[HIDDEN], a.actor_layers[DELTA]
    network = a.actor_sizes, a.activation, inputs, hidden
    backward(a.team, actor, *network, delta, a.scratch_t, grad)
    return step_of_adam(table, *part, number, 1)


# the engine


class FusedActorCritic(FusedRounds):
    """What the fused engines of sac and td3 share."""

    noise: ActionNoise | None
    choose: ClassVar[Any]  # compiled: the exploring policy's actions

    @classmethod
    def why_not(cls, agent: ActorCriticAgent, run: Any = None) -> str:
        if reason := why_not_fused(agent):
            return reason
        kind = agent.actions.space.dtype if isinstance(agent.actions, BoundedActions) else None
        known = kind is None or kind in (np.float32, np.float64)
        return "" if known else f"the environment takes actions of {kind}"

    @classmethod
    def params(cls, agent: Any) -> dict[str, np.ndarray]:
        """The settings as kernels read them."""
        raise NotImplementedError

    def env_actions(self) -> np.ndarray:
        actions, count = self.agent.actions, self.envs.num_envs
        if isinstance(actions, BoundedActions):
            return np.zeros((count, *actions.space.shape), actions.space.dtype)
        return super().env_actions()

    def columns(self) -> tuple[dict[str, np.ndarray], ...]:
        agent = self.agent
        return (
            acting_columns(agent, self.envs.num_envs),
            batch_columns(agent, len(self.replay.draw)),
            scaled_columns(agent, self.scaled),
            noise_columns(self.noise),
            self.params(agent),
        )

    @classmethod
    def acting(cls, agent: ActorCriticAgent, lanes: int, options: int = 0) -> FusedActing:
        """`explore` of an agent as one compiled call."""
        reals = agent.actions.reals
        action = np.zeros((lanes, reals), np.float32) if reals else np.zeros(lanes, np.int64)
        columns = acting_columns(agent, lanes), cls.params(agent)
        return FusedActing(cls.choose, columns, action)
