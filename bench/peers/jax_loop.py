"""The strongest rival, of our own writing: a whole DQN inside one jitted JAX function, CartPole and
replay included.

Not equal to the others' work in one thing, to its advantage: the environment is not Gymnasium's but
its equations in jnp, in float32 instead of float64. It runs in chunks of about 5,000 steps; the
first chunk with updates is its warm-up.
"""

from functools import partial
from typing import NamedTuple

import peer

with peer.needs("jax"):
    import jax
    import jax.numpy as jnp
    from jax import Array, lax

CHUNK = 5_000
LIMIT = 500  # steps of an episode
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
WIDTH = peer.HIDDEN[0]
COLUMNS = 12  # of a stored transition: s 0-3, action 4, reward 5, discount 6, s' 7-10, one unused


class World(NamedTuple):
    state: Array  # [4]
    age: Array  # steps of this episode
    replay: Array  # [capacity, COLUMNS]: one row to write, one gather to sample
    stored: Array


class Learner(NamedTuple):
    """The parameters are one table, so that Adam is one loop: 4 rows W1, b1, 64 rows W2, b2, 2 rows
    W3ᵀ, b3."""

    online: Array
    target: Array
    mean: Array
    square: Array
    updates: Array


def layers(table: Array) -> tuple[Array, ...]:
    return table[:4], table[4], table[5:69], table[69], table[70:72].T, table[72, :2]


def table_of(w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array) -> Array:
    return jnp.concatenate([w1, b1[None], w2, b2[None], w3.T, jnp.pad(b3, (0, WIDTH - 2))[None]])


def initial(key: Array) -> Array:
    """Uniform within ±1/√inputs, torch's default."""
    sizes = (
        (4, (4, WIDTH)),
        (4, (WIDTH,)),
        (WIDTH, (WIDTH, WIDTH)),
        (WIDTH, (WIDTH,)),
        (WIDTH, (WIDTH, 2)),
        (WIDTH, (2,)),
    )
    return table_of(
        *(
            jax.random.uniform(k, shape, minval=-(into**-0.5), maxval=into**-0.5)
            for k, (into, shape) in zip(jax.random.split(key, 6), sizes, strict=True)
        )
    )


def values(net: tuple[Array, ...], obs: Array) -> Array:
    w1, b1, w2, b2, w3, b3 = net
    return jax.nn.relu(jax.nn.relu(obs @ w1 + b1) @ w2 + b2) @ w3 + b3


def cartpole(state: Array, action: Array) -> tuple[Array, Array]:
    """The next state and whether the episode terminated (Barto, Sutton & Anderson, 1983; constants
    of CartPole-v1)."""
    x, x_dot, theta, theta_dot = state
    force = jnp.where(action == 1, 10.0, -10.0)
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
        ]
    )
    return after, (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * 2 * jnp.pi / 360)


def act(online: Array, epsilon: float, world: World, draw: Array) -> tuple[World, Array]:
    """One step of the environment, stored; `draw` [6] decides exploration, the random action and
    the next episode's start."""
    q = values(layers(online), world.state)
    action = jnp.where(draw[0] < epsilon, draw[1] < 0.5, q[1] > q[0]).astype(jnp.float32)
    after, terminated = cartpole(world.state, action)
    age = world.age + 1
    over = terminated | (age >= LIMIT)
    # the true next state is stored; the discount is 0 only where the episode terminated, not at the
    # time limit
    row = jnp.concatenate(
        [
            world.state,
            jnp.stack([action, 1.0, jnp.where(terminated, 0.0, peer.GAMMA)]),
            after,
            jnp.zeros(1),
        ]
    )
    replay = lax.dynamic_update_slice(world.replay, row[None], (world.stored % peer.CAPACITY, 0))
    start = 0.1 * draw[2:] - 0.05
    return World(
        jnp.where(over, start, after), jnp.where(over, 0, age), replay, world.stored + 1
    ), over


def loss(net: tuple[Array, ...], target: tuple[Array, ...], rows: Array) -> Array:
    y = rows[:, 5] + rows[:, 6] * values(target, rows[:, 7:11]).max(-1)
    q = values(net, rows[:, :4])
    return jnp.mean((jnp.where(rows[:, 4] == 1, q[:, 1], q[:, 0]) - y) ** 2)


def learn(learner: Learner, rows: Array) -> tuple[Learner, None]:
    gradient = table_of(*jax.grad(loss)(layers(learner.online), layers(learner.target), rows))
    updates = learner.updates + 1
    mean = BETA1 * learner.mean + (1 - BETA1) * gradient
    square = BETA2 * learner.square + (1 - BETA2) * gradient * gradient
    rate, scale = peer.LR / (1 - BETA1**updates), lax.rsqrt(1 - BETA2**updates)
    online = learner.online - rate * mean / (jnp.sqrt(square) * scale + EPS)
    target = jnp.where(updates % peer.TARGET_EVERY == 0, online, learner.target)
    return Learner(online, target, mean, square, updates), None


@partial(
    jax.jit,
    static_argnames=("cycles", "every", "updates", "batch"),
    donate_argnames=("world", "learner"),
)
def run(
    world: World, learner: Learner, key: Array, cycles: int, every: int, updates: int, batch: int
):
    """`cycles` times `every` steps and then `updates` updates; without updates the actions are
    random. Counts the episodes."""

    def cycle(carry, draws):
        world, learner = carry
        world, over = lax.scan(
            partial(act, learner.online, peer.EPSILON if updates else 1.0), world, draws[0]
        )
        # a draw is at most 1 − 2⁻²³, so the product rounds to less than the length: always in
        # bounds
        index = (draws[1] * jnp.minimum(world.stored, peer.CAPACITY)).astype(jnp.int32)
        learner, _ = lax.scan(learn, learner, world.replay.at[index].get(mode="promise_in_bounds"))
        return (world, learner), over.sum()

    steps_key, sample_key = jax.random.split(key)
    draws = (
        jax.random.uniform(steps_key, (cycles, every, 6)),
        jax.random.uniform(sample_key, (cycles, updates, batch)),
    )
    (world, learner), over = lax.scan(cycle, (world, learner), draws)
    return world, learner, over.sum()


def main() -> None:
    options = peer.arguments(__doc__)
    size = {"every": options.every, "batch": options.batch}
    cycles = -(-CHUNK // options.every)
    chunk = cycles * options.every
    chunks = max(1, round((options.steps - peer.WARM_UP) / chunk))
    net_key, fill_key, warm_key, *keys = jax.random.split(jax.random.key(options.seed), 3 + chunks)
    online = initial(net_key)
    world = World(jnp.zeros(4), jnp.int32(0), jnp.zeros((peer.CAPACITY, COLUMNS)), jnp.int32(0))
    learner = Learner(
        online, online.copy(), jnp.zeros_like(online), jnp.zeros_like(online), jnp.int32(0)
    )
    world, learner, _ = run(
        world, learner, fill_key, -(-peer.LEARNING_STARTS // options.every), updates=0, **size
    )
    world, learner, episodes = jax.block_until_ready(
        run(world, learner, warm_key, cycles, updates=options.updates, **size)
    )
    before = int(world.stored)
    with peer.Stopwatch() as watch:
        for key in keys:
            world, learner, episodes = run(
                world, learner, key, cycles, updates=options.updates, **size
            )
        jax.block_until_ready((world, learner))
    chosen = peer.setting(
        options,
        loss="mse",
        adam_eps=EPS,
        clip_norm=None,
        double=False,
        chunk_steps=chunk,
        environment="equations of CartPole-v1 in jnp, float32",
    ) | {"warm_up_steps": before}
    peer.report(
        "jax whole loop",
        "jax",
        int(world.stored),
        chunk * chunks,
        watch,
        chosen,
        return_last_chunk=round(chunk / max(1, int(episodes)), 1),
    )


if __name__ == "__main__":
    main()
