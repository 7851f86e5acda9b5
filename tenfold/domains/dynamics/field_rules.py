"""Hidden states that move by a vector field, and the observations that are made of them, compiled.

A step is z += (F(z) + a)·dt + √(Q·dt)·n, `every` times with the same action. All noise is drawn by
address: step t of episode e of a lane by (stream of the lane, e·2³² + t), so that a lane is
restored from its state and two counters.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import (
    Purpose,
    draw_uniform,
    fill_normal,
    fill_normal_reference,
    key,
    uniform_reference,
)
from tenfold.domains.dynamics import SYSTEMS

LIMIT_CYCLE, DOUBLE_LIMIT_CYCLE, VAN_DER_POL, DUFFING, SNOWMAN, MULTI_ATTRACTOR, RING_CART_POLE = (
    range(len(SYSTEMS))
)
# what the equations call alpha, w, d, mu, a, b, c: speed, rotation, radius (or distance), damping,
# and Duffing's three
CONSTANTS = {"alpha": 1.0, "w": 1.0, "d": 1.0, "mu": 1.0, "a": 0.1, "b": -0.1, "c": 0.1}
# w of the multi-attractor: its vectors have length 0.25, so that states stay within √2.5
PULL = 0.1
EPISODE = 1 << 32  # addresses between two episodes; no episode is as long
KNOTS, REACH, LENGTH, STRENGTH = 40, 2.0, 0.5, 0.25  # of the multi-attractor's grid
# of the cart, whose ring has radius 1
GRAVITY, POLE_MASS, CART_MASS, HALF_POLE, PUSH, RING = 9.8, 0.1, 1.0, 0.5, 10.0, 1.0
STEEP = 10.0  # how fast the snowman's two cycles blend
NONE, GAUSSIAN, POISSON = range(3)
IDENTITY, LINEAR, LOGLINEAR, MLP = range(4)
LARGEST_RATE = 500.0  # of a Poisson count: exp(-rate) must not vanish


def random_vectors(seed: int) -> np.ndarray:
    """The multi-attractor's grid [40, 40, 2]: two samples of a Gaussian process (RBF kernel, length
    0.5), every vector scaled to length 0.25. The kernel of a grid is a product of two kernels of a
    line."""
    line = np.linspace(-REACH, REACH, KNOTS)
    kernel = np.exp(-0.5 * ((line[:, None] - line) / LENGTH) ** 2) + 1e-6 * np.eye(KNOTS)
    root, white = np.linalg.cholesky(kernel), np.empty(2 * KNOTS * KNOTS)
    fill_normal(key(seed, Purpose.WORLD, MULTI_ATTRACTOR), 0, white)
    sample = np.einsum("ik,ckl,jl->ijc", root, white.reshape(2, KNOTS, KNOTS), root)
    return STRENGTH * sample / np.linalg.norm(sample, axis=-1, keepdims=True)


# the fields


def velocity_reference(field, constants, table, z, action):
    """dz/dt of states z [B, D] under actions [B, A], equation by equation."""
    from scipy.ndimage import map_coordinates

    alpha, w, d, mu, a, b, c = constants
    x, y = z[:, 0], z[:, 1]
    if field == RING_CART_POLE:
        return cart_velocity(z, action[:, 0])
    if field == LIMIT_CYCLE:
        f = cycle(x, y, w, d)
    elif field == DOUBLE_LIMIT_CYCLE:
        r = np.hypot(x, y)
        f = x * (d - r) - w * y * (2 * d - r), y * (d - r) + w * x * (2 * d - r)
    elif field == VAN_DER_POL:
        f = y, mu * (1 - x**2) * y - w * x
    elif field == DUFFING:
        f = y, a * y - x * (b + c * x**2)
    elif field == SNOWMAN:
        right = 1 / (1 + np.exp(-STEEP * x))
        f = [
            (1 - right) * p + right * q
            for p, q in zip(cycle(x + d, y, w, d), cycle(x - d, y, -w, d), strict=True)
        ]
    else:  # bilinear between the knots; beyond the grid, its edge
        position = np.clip((z.T + REACH) / (2 * REACH) * (KNOTS - 1), 0, KNOTS - 1)
        between = [map_coordinates(table[..., k], position, order=1) for k in (0, 1)]
        f = np.array(between) - w * z.T * np.hypot(x, y)
    return alpha * np.stack(f, -1) + action


def cycle(x, y, w, d):
    r2 = x**2 + y**2
    return x * (d - r2) - w * y, y * (d - r2) + w * x


def cart_velocity(z, action):
    """Barto, Sutton and Anderson's cart and pole, the angle measured from upright; position runs
    along a ring."""
    speed, angle, turn = z[:, 1], z[:, 2], z[:, 3]
    total = CART_MASS + POLE_MASS
    force = (PUSH * action + POLE_MASS * HALF_POLE * turn**2 * np.sin(angle)) / total
    bend = GRAVITY * np.sin(angle) - np.cos(angle) * force
    bend = bend / (HALF_POLE * (4 / 3 - POLE_MASS * np.cos(angle) ** 2 / total))
    return np.stack(
        [speed, force - POLE_MASS * HALF_POLE * bend * np.cos(angle) / total, turn, bend], -1
    )


def velocity_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for field in range(len(SYSTEMS)):
        constants = rng.uniform(0.5, 1.5, len(CONSTANTS))
        table = random_vectors(3) if field == MULTI_ATTRACTOR else np.zeros((0, 0, 2))
        size, actions = (4, 1) if field == RING_CART_POLE else (2, 2)
        for lanes in (1, 7):
            yield (
                field,
                constants,
                table,
                rng.normal(0, 1.5, (lanes, size)),
                rng.uniform(-1, 1, (lanes, actions)),
            )


@pair(velocity_reference, velocity_examples, rtol=1e-11, atol=1e-12)
@kernel
def velocity(field, constants, table, z, action):
    out = np.empty_like(z)
    for i in range(len(z)):
        velocity_of(field, constants, table, z[i], action[i], out[i])
    return out


@kernel
def velocity_of(field, constants, table, z, action, out):
    """The same of one state."""
    alpha, w, d, mu, a, b, c = constants
    x, y = z[0], z[1]
    if field == RING_CART_POLE:
        total, sine, cosine = CART_MASS + POLE_MASS, math.sin(z[2]), math.cos(z[2])
        force = (PUSH * action[0] + POLE_MASS * HALF_POLE * z[3] * z[3] * sine) / total
        bend = (GRAVITY * sine - cosine * force) / (
            HALF_POLE * (4.0 / 3.0 - POLE_MASS * cosine * cosine / total)
        )
        out[0], out[1], out[2], out[3] = (
            z[1],
            force - POLE_MASS * HALF_POLE * bend * cosine / total,
            z[3],
            bend,
        )
        return
    if field == LIMIT_CYCLE:
        grow = d - x * x - y * y
        u, v = x * grow - w * y, y * grow + w * x
    elif field == DOUBLE_LIMIT_CYCLE:
        r = math.sqrt(x * x + y * y)
        u, v = x * (d - r) - w * y * (2 * d - r), y * (d - r) + w * x * (2 * d - r)
    elif field == VAN_DER_POL:
        u, v = y, mu * (1 - x * x) * y - w * x
    elif field == DUFFING:
        u, v = y, a * y - x * (b + c * x * x)
    elif field == SNOWMAN:
        right = 1 / (1 + math.exp(-STEEP * x))
        right_radius, left_radius = d - (x - d) ** 2 - y * y, d - (x + d) ** 2 - y * y
        u = (1 - right) * ((x + d) * left_radius - w * y) + right * ((x - d) * right_radius + w * y)
        v = (1 - right) * (y * left_radius + w * (x + d)) + right * (y * right_radius - w * (x - d))
    else:
        scale, last = (KNOTS - 1) / (2 * REACH), KNOTS - 1
        p, q = min(max((x + REACH) * scale, 0.0), last), min(max((y + REACH) * scale, 0.0), last)
        # int() of NaN is anything
        i, j = max(min(int(p), KNOTS - 2), 0), max(min(int(q), KNOTS - 2), 0)
        p, q = p - i, q - j
        r = math.sqrt(x * x + y * y)
        u = (
            (1 - p) * ((1 - q) * table[i, j, 0] + q * table[i, j + 1, 0])
            + p * ((1 - q) * table[i + 1, j, 0] + q * table[i + 1, j + 1, 0])
            - w * x * r
        )
        v = (
            (1 - p) * ((1 - q) * table[i, j, 1] + q * table[i, j + 1, 1])
            + p * ((1 - q) * table[i + 1, j, 1] + q * table[i + 1, j + 1, 1])
            - w * y * r
        )
    out[0], out[1] = alpha * u + action[0], alpha * v + action[1]


# a step


def advance_reference(field, constants, table, timing, z, action, streams, address):
    """One step of every lane. timing: dt, inner steps, process noise Q. address [B]: episode·2³² +
    step."""
    dt, every, q = timing
    z, every = z.copy(), int(every)
    lanes, size = z.shape
    for inner in range(every):
        noise = np.empty_like(z)
        for i in range(lanes):
            fill_normal_reference(streams[i], (int(address[i]) * every + inner) * size, noise[i])
        z += velocity_reference(field, constants, table, z, action) * dt + math.sqrt(q * dt) * noise
    if field == RING_CART_POLE:
        z[:, 0], z[:, 2] = wrapped(z[:, 0]), wrapped(z[:, 2])
    return z


def wrapped(angle):
    """Between −π and π."""
    return angle - 2 * np.pi * np.floor((angle + np.pi) / (2 * np.pi))


def advance_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (field, constants, table, z, action), every in zip(
        velocity_examples(rng, dtype), [1, 3] * len(SYSTEMS), strict=True
    ):
        streams = np.array([key(i, Purpose.PROCESS) for i in range(len(z))], np.uint64)
        address = rng.integers(3, size=len(z)) * EPISODE + rng.integers(50, size=len(z))
        yield field, constants, table, np.array([0.05, every, 0.02]), z, action, streams, address


@pair(advance_reference, advance_examples, rtol=1e-9, atol=1e-10)
@kernel
def advance(field, constants, table, timing, z, action, streams, address):
    """Works in place."""
    dt, every, size = timing[0], int(timing[1]), z.shape[1]
    deviation = math.sqrt(timing[2] * dt)
    change, noise = np.empty(size), np.zeros(size)
    for i in range(len(z)):
        for inner in range(every):
            velocity_of(field, constants, table, z[i], action[i], change)
            if deviation > 0:
                fill_normal(streams[i], (address[i] * every + inner) * size, noise)
            for k in range(size):
                z[i, k] += change[k] * dt + deviation * noise[k]
        if field == RING_CART_POLE:
            for k in (0, 2):
                z[i, k] -= 2 * math.pi * math.floor((z[i, k] + math.pi) / (2 * math.pi))
    return z


# observations


def features(field: int, z: np.ndarray) -> np.ndarray:
    """What observations are made of: the state; angles by cosine and sine, so that nothing jumps
    where a ring closes."""
    if field != RING_CART_POLE:
        return z
    return np.stack(
        [np.cos(z[:, 0]), np.sin(z[:, 0]), z[:, 1], np.cos(z[:, 2]), np.sin(z[:, 2]), z[:, 3]], -1
    )


def mean_of(model: int, weights: tuple[np.ndarray, ...], inputs: np.ndarray) -> np.ndarray:
    """The observation's mean: φ, Cφ + b, exp(Cφ + b), or a network of one hidden layer."""
    if model == IDENTITY:
        return inputs
    if model == MLP:
        inner, shift, outer, bias = weights
        return np.tanh(inputs @ inner.T + shift) @ outer.T + bias
    c, b = weights
    linear = inputs @ c.T + b
    return np.exp(linear) if model == LOGLINEAR else linear


def measure_reference(mean, noise, scale, streams, address):
    """Observations around their means: exact, Gaussian of deviation `scale`, or Poisson counts by
    inverting the distribution."""
    from scipy.special import pdtr

    observed, size = mean.copy(), mean.shape[1]
    for i in range(len(mean)):
        first = int(address[i]) * size
        if noise == GAUSSIAN:
            observed[i] += scale * fill_normal_reference(streams[i], first, np.empty(size))
        elif noise == POISSON:
            u = uniform_reference(streams[i], first + np.arange(size))
            up_to = pdtr(np.arange(1000), np.minimum(mean[i], LARGEST_RATE)[:, None])
            observed[i] = (up_to < u[:, None]).sum(1)
    return observed


def measure_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for noise in (NONE, GAUSSIAN, POISSON):
        for lanes, size in ((1, 1), (3, 5)):
            streams = np.array([key(i, Purpose.MEASURE) for i in range(lanes)], np.uint64)
            yield (
                rng.uniform(0.1, 8, (lanes, size)),
                noise,
                0.3,
                streams,
                rng.integers(2**40, size=lanes),
            )


@pair(measure_reference, measure_examples, rtol=1e-9, atol=1e-10)
@kernel
def measure(mean, noise, scale, streams, address):
    """Works in place."""
    size = mean.shape[1]
    normal = np.zeros(size)
    for i in range(len(mean)):
        if noise == GAUSSIAN:
            fill_normal(streams[i], address[i] * size, normal)
            for k in range(size):
                mean[i, k] += scale * normal[k]
        elif noise == POISSON:
            for k in range(size):
                rate, u, count = (
                    min(mean[i, k], LARGEST_RATE),
                    draw_uniform(streams[i], address[i] * size + k),
                    0,
                )
                term = math.exp(-rate)
                total = term
                # rounding may leave the sum just below 1
                while total < u and count < 4 * LARGEST_RATE:
                    count += 1
                    term *= rate / count
                    total += term
                mean[i, k] = count
    return mean
