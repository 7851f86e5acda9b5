"""The strongest rival, of our own writing: whole iterations of PPO inside one jitted JAX function,
CartPole included; one agent with many worlds, or as many agents as there are seeds, vmapped.

The work is tenfold's: two tanh networks of 64-64, one for the policy and one for the value; GAE
with the value of the true final state at a time limit; advantages normalised over the whole phase;
the clipped surrogate, half the squared error of the value by its weight, the gradient's norm
clipped, Adam. Not equal to the others' in one thing, to its advantage: the environment is
CartPole's equations in jnp, in float32 instead of float64.

What makes it fast: no network is asked twice in a rollout (values come afterwards, in one pass; a
world reaches its time limit at most once in a rollout, so that one row of final states a world is
enough), all draws of a phase are one call, a transition is one row of eight numbers to shuffle and
gather, and parameters are one vector, so that norm, clip and Adam are two kernels.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import peer

with peer.needs("jax"):
    import jax
    import jax.numpy as jnp
    from jax import Array, lax

LIMIT = 500  # steps of an episode
BETA1, BETA2, EPS = 0.9, 0.999, 1e-5
WIDTH = peer.HIDDEN[0]
TOWER = ((4, WIDTH), (WIDTH,), (WIDTH, WIDTH), (WIDTH,))
SHAPES = (*TOWER, (WIDTH, 2), (2,), *TOWER, (WIDTH, 1), (1,))  # of the policy, then of the value
WARM_UP = 4  # iterations before the clock starts
UNROLL = 4  # steps of a rollout in one turn of its loop; 32 are slower, and unrolled epochs too
PRNG = "rbg"  # XLA's own generator, the fastest there is


@dataclass(frozen=True)
class Work:
    """What one iteration is."""

    envs: int
    horizon: int
    epochs: int = peer.PPO["epochs"]
    minibatches: int = 4
    lr: float = peer.PPO["lr"]
    entropy: float = 0.0
    lam: float = peer.PPO["lam"]
    clip: float = peer.PPO["clip"]
    value_weight: float = peer.PPO["value_weight"]
    clip_norm: float = peer.PPO["clip_norm"]

    def __post_init__(self) -> None:
        assert self.horizon <= LIMIT and self.steps % self.minibatches == 0

    @property
    def steps(self) -> int:
        return self.envs * self.horizon


class Agent(NamedTuple):
    """Worlds, parameters and Adam's moments of one seed."""

    state: Array  # [N, 4]
    age: Array  # [N] steps of this episode
    flat: Array
    mean: Array
    square: Array
    updates: Array
    key: Array


class Done(NamedTuple):
    """Episodes that ended in an iteration, and their steps."""

    episodes: Array
    steps: Array


def layers(flat: Array) -> list[Array]:
    """The parameters by layer."""
    found, start = [], 0
    for shape in SHAPES:
        size = shape[0] * shape[1] if len(shape) == 2 else shape[0]
        found.append(flat[start : start + size].reshape(shape))
        start += size
    return found


def together(parts: list[Array]) -> Array:
    return jnp.concatenate([part.reshape(-1) for part in parts])


def initial(key: Array) -> Array:
    """Orthogonal weights and no biases, the policy's last layer small."""
    keys, parts = jax.random.split(key, len(SHAPES)), []
    for place, (k, shape) in enumerate(zip(keys, SHAPES, strict=True)):
        gain = 0.01 if place == 4 else 1.0 if place == 10 else 2**0.5
        orthogonal = jax.nn.initializers.orthogonal(gain)
        parts.append(orthogonal(k, shape) if len(shape) == 2 else jnp.zeros(shape))
    return together(parts)


def hidden(w1: Array, b1: Array, w2: Array, b2: Array, obs: Array) -> Array:
    return jnp.tanh(jnp.tanh(obs @ w1 + b1) @ w2 + b2)


def preference(net: list[Array], obs: Array) -> Array:
    """Of action 1 before action 0: the difference of their logits. (As one product with a vector;
    two logits and their difference take 6 % longer.)"""
    last, bias = net[4], net[5]
    return hidden(*net[:4], obs) @ (last[:, 1] - last[:, 0]) + bias[1] - bias[0]


def value(net: list[Array], obs: Array) -> Array:
    return hidden(*net[6:10], obs) @ net[10][:, 0] + net[11][0]


def cartpole(state: Array, push_right: Array) -> tuple[Array, Array]:
    """The next states [N, 4] and which terminated (Barto, Sutton & Anderson, 1983; constants of
    CartPole-v1)."""
    x, x_dot, theta, theta_dot = (state[:, i] for i in range(4))
    force = jnp.where(push_right, 10.0, -10.0)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    push = (force + 0.05 * theta_dot * theta_dot * sin) / 1.1
    theta_acc = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    x_acc = push - 0.05 * theta_acc * cos / 1.1
    after = jnp.stack(
        [
            x + 0.02 * x_dot,
            x_dot + 0.02 * x_acc,
            theta + 0.02 * theta_dot,
            theta_dot + 0.02 * theta_acc,
        ],
        -1,
    )
    return after, (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * jnp.pi / 360)


def begin(key: Array, envs: int) -> Agent:
    net, start, own = jax.random.split(key, 3)
    flat = initial(net)
    state = jax.random.uniform(start, (envs, 4), minval=-0.05, maxval=0.05)
    none = jnp.zeros_like(flat)
    return Agent(state, jnp.zeros(envs), flat, none, none, jnp.float32(0), own)


def act(net: list[Array], carry: tuple[Array, ...], draw: Array):
    """One step of every world; `draw` [N, 5] decides the action and the next episode's start."""
    state, age, final = carry
    prefers = preference(net, state)
    right = draw[:, 0] < jax.nn.sigmoid(prefers)
    after, terminated = cartpole(state, right)
    age = age + 1
    over = terminated | (age >= LIMIT)
    cut = over & ~terminated
    final = jnp.where(cut[:, None], after, final)
    start = 0.1 * draw[:, 1:] - 0.05
    kept = (
        state,
        right,
        jax.nn.log_sigmoid(jnp.where(right, prefers, -prefers)),
        terminated,
        cut,
        jnp.where(over, age, 0.0),
    )
    return (jnp.where(over[:, None], start, after), jnp.where(over, 0.0, age), final), kept


def phase(work: Work, agent: Agent, key: Array) -> tuple[Agent, Array, Done]:
    """A rollout, as rows [T·N, 8] of state, action, log-probability, advantage and target."""
    net = layers(agent.flat)
    draws = jax.random.uniform(key, (work.horizon, work.envs, 5))
    carry, (states, right, log_p, terminated, cut, lengths) = lax.scan(
        partial(act, net),
        (agent.state, agent.age, jnp.zeros_like(agent.state)),
        draws,
        unroll=UNROLL,
    )
    state, age, final = carry
    # of every state acted on, of those to be acted on next, and of the final ones at time limits
    values = value(net, jnp.concatenate([states, state[None], final[None]]))
    following = jnp.where(cut, values[-1], values[1:-1])
    delta = 1.0 + jnp.where(terminated, 0.0, peer.GAMMA * following) - values[:-2]
    decay = jnp.where(terminated | cut, 0.0, peer.GAMMA * work.lam)

    def back(later: Array, now: tuple[Array, Array]):
        later = now[0] + now[1] * later
        return later, later

    _, advantage = lax.scan(back, jnp.zeros(work.envs), (delta, decay), reverse=True, unroll=8)
    better = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    columns = [right.astype(jnp.float32), log_p, better, advantage + values[:-2]]
    rows = jnp.concatenate([states, jnp.stack(columns, -1)], -1).reshape(work.steps, 8)
    done = Done((terminated | cut).sum(), lengths.sum())
    return agent._replace(state=state, age=age), rows, done


def loss(net: list[Array], rows: Array, work: Work) -> Array:
    obs, right, before, gain, target = rows[:, :4], rows[:, 4] > 0, *(rows[:, i] for i in (5, 6, 7))
    prefers = preference(net, obs)
    ratio = jnp.exp(jax.nn.log_sigmoid(jnp.where(right, prefers, -prefers)) - before)
    surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - work.clip, 1 + work.clip) * gain)
    wrong = 0.5 * jnp.mean((value(net, obs) - target) ** 2)
    total = work.value_weight * wrong - jnp.mean(surrogate)
    if work.entropy:
        sure = jax.nn.sigmoid(prefers)
        spread = sure * jax.nn.softplus(-prefers) + (1 - sure) * jax.nn.softplus(prefers)
        total -= work.entropy * jnp.mean(spread)
    return total


def learn(work: Work, agent: Agent, rows: Array) -> tuple[Agent, None]:
    gradient = together(jax.grad(loss)(layers(agent.flat), rows, work))
    norm = jnp.sqrt(jnp.sum(gradient * gradient))
    gradient = gradient * jnp.minimum(1.0, work.clip_norm / (norm + 1e-6))
    updates = agent.updates + 1
    mean = BETA1 * agent.mean + (1 - BETA1) * gradient
    square = BETA2 * agent.square + (1 - BETA2) * gradient * gradient
    rate, scale = work.lr / (1 - BETA1**updates), lax.rsqrt(1 - BETA2**updates)
    flat = agent.flat - rate * mean / (jnp.sqrt(square) * scale + EPS)
    return agent._replace(flat=flat, mean=mean, square=square, updates=updates), None


def iterate(work: Work, agent: Agent) -> tuple[Agent, Done]:
    """One iteration of one agent."""
    key, acting, shuffling = jax.random.split(agent.key, 3)
    agent, rows, done = phase(work, agent._replace(key=key), acting)
    size = work.steps // work.minibatches
    numbers = lax.broadcasted_iota(jnp.int32, (work.steps,), 0)

    def epoch(agent: Agent, key: Array) -> tuple[Agent, None]:
        # one sort by random keys; jax.random.permutation sorts twice
        bits = jax.random.bits(key, (work.steps,))
        order = lax.sort((bits, numbers), num_keys=1, is_stable=False)[1]
        mixed = rows.at[order].get(mode="promise_in_bounds", unique_indices=True)
        return lax.scan(
            partial(learn, work),
            agent,
            mixed.reshape(work.minibatches, size, 8),
            unroll=work.minibatches,
        )

    agent, _ = lax.scan(epoch, agent, jax.random.split(shuffling, work.epochs))
    return agent, done


@partial(jax.jit, static_argnames=("work", "iterations"), donate_argnames="agents")
def run(agents: Agent, work: Work, iterations: int) -> tuple[Agent, Done]:
    """`iterations` of one agent, or of as many as stand in front of every array; counts each one's
    episodes."""
    many = agents.flat.ndim == 2
    turn = partial(iterate, work)

    def every(agents: Agent, _: None) -> tuple[Agent, Done]:
        return jax.vmap(turn)(agents) if many else turn(agents)

    agents, done = lax.scan(every, agents, None, length=iterations)
    return agents, jax.tree.map(lambda counts: counts.sum(0), done)


def agents_of(seeds: int, envs: int, seed: int = 0) -> Agent:
    """One agent, or several side by side."""
    key = jax.random.key(seed, impl=PRNG)
    if seeds == 1:
        return jax.jit(partial(begin, envs=envs))(key)
    return jax.jit(jax.vmap(partial(begin, envs=envs)))(jax.random.split(key, seeds))


def main() -> None:
    options = peer.arguments(__doc__, steps=163_840)
    ppo = peer.PPO
    work = Work(
        ppo["num_envs"],
        ppo["horizon"],
        minibatches=ppo["num_envs"] * ppo["horizon"] // ppo["batch"],
        entropy=ppo["entropy"],
    )
    iterations = max(1, options.steps // work.steps - WARM_UP)
    agents = agents_of(1, work.envs, options.seed)
    for _ in range(2):  # the second call is of the very program that is timed
        agents, _ = jax.block_until_ready(run(agents, work, WARM_UP // 2))
    compiled = run.lower(agents, work, iterations).compile()
    with peer.Stopwatch() as watch:
        agents, done = jax.block_until_ready(compiled(agents))
    measured = iterations * work.steps
    peer.report(
        "jax whole loop, PPO",
        "jax",
        measured + WARM_UP * work.steps,
        measured,
        watch,
        peer.ppo_setting(options, environment="equations of CartPole-v1 in jnp, float32"),
        mean_return=round(float(done.steps / jnp.maximum(done.episodes, 1)), 1),
    )


if __name__ == "__main__":
    main()
