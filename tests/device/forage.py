"""A task of two components with masks, and one of two real numbers, for the tests: NumPy and Triton
side by side."""

import gymnasium as gym
import numpy as np

import tenfold as ten
from tenfold.core.random import uniform
from tenfold.envs import gpu
from tenfold.envs.gpu import tl

WIDE = 4.0
WIDE_GPU = gpu.constant(WIDE)


# a walker on a line carries stones: it steps left, stays or steps right, and picks up, holds or
# drops; it may not pick up a third one, nor drop what it does not have


def begin(stream, episode):
    x = np.floor(uniform(stream, episode) * (2 * WIDE + 1)) - WIDE
    return x, x * 0.0


@gpu.function
def begin_gpu(stream, episode):
    x = tl.floor(gpu.uniform(stream, episode) * (2 * WIDE_GPU + 1)) - WIDE_GPU
    return x, x * 0.0


def advance(state, action):
    x, stones = state
    step, hand = action
    x, stones = x + step - 1, stones + hand - 1.0
    away = np.abs(x) > WIDE
    return (x, stones), stones * 0.5 - 1.0 * away - 0.125 * (step != 1), away


@gpu.function
def advance_gpu(state, action):
    x, stones = state
    step, hand = action
    x, stones = x + step.to(tl.float64) - 1, stones + hand.to(tl.float64) - 1
    away = tl.abs(x) - WIDE_GPU > 0
    won = stones * 0.5 - away.to(tl.float64) - 0.125 * (step != 1).to(tl.float64)
    return (x, stones), won, away


def observe(state):
    x, stones = state
    return x / WIDE, stones, x * stones


@gpu.function
def observe_gpu(state):
    x, stones = state
    return x / WIDE_GPU, stones, x * stones


def mask(state):
    _, stones = state
    free = stones == stones
    return free, free, free, stones > 0, free, stones < 2


@gpu.function
def mask_gpu(state):
    _, stones = state
    free = stones == stones
    return free, free, free, stones > 0, free, stones < 2


# a point that is pushed in two directions


def push(state, action):
    (x, y), (u, v) = state, action
    x, y = x + 0.25 * u, y + 0.25 * v
    far = x * x + y * y > 4
    return (x, y), -(x * x + y * y), far


@gpu.function
def push_gpu(state, action):
    x, y = state
    u, v = action
    x, y = x + 0.25 * u.to(tl.float64), y + 0.25 * v.to(tl.float64)
    return (x, y), -(x * x + y * y), x * x + y * y - 4 > 0


def place(stream, episode):
    return uniform(stream, episode * 2) - 0.5, uniform(stream, episode * 2 + 1) - 0.5


@gpu.function
def place_gpu(stream, episode):
    return gpu.uniform(stream, episode * 2) - 0.5, gpu.uniform(stream, episode * 2 + 1) - 0.5


def see(state):
    return state


@gpu.function
def see_gpu(state):
    return state


ten.register_task(
    "Forage-v0",
    ten.Functions(begin, advance, observe, mask),
    ten.Functions(begin_gpu, advance_gpu, observe_gpu, mask_gpu),
    actions=gym.spaces.MultiDiscrete([3, 3]),
    limit=20,
)
ten.register_task(
    "Push-v0",
    ten.Functions(place, push, see),
    ten.Functions(place_gpu, push_gpu, see_gpu),
    actions=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
    limit=15,
)
