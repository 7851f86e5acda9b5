"""Environments in Triton: CartPole, Acrobot, MountainCar and Pendulum, the dynamics of
`control_dynamics` for all lanes at once, in float64, and those that were registered.

A device environment is functions on a tuple of numbers per lane, as `envs.functions` has them:

    begin(stream, episode)   -> state              its draws are `uniform(stream, address)`
    advance(state, action)   -> state, reward, terminated
    observe(state)           -> what the agent sees, one tensor a number
    mask(state)              -> a truth for each option, where some may be forbidden

Numbers stand in sums and products, where they are float64 as the state is; a comparison, `where` or
`maximum` would take them as float32.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.envs import control_dynamics as c
from tenfold.envs.control import random_lanes
from tenfold.envs.functions import task_of
from tenfold.ops.device.episodes import load_action, load_state, store_numbers, store_state
from tenfold.ops.device.language import available, device, gpu_kernel, key_tensor, padded, uniform

PI = tl.constexpr(3.141592653589793)
TRACK, TILT = tl.constexpr(c.TRACK), tl.constexpr(c.TILT)
MAX_SPEED_1, MAX_SPEED_2 = tl.constexpr(c.MAX_SPEED_1), tl.constexpr(c.MAX_SPEED_2)


@dataclass(frozen=True)
class DeviceTask:
    """An environment that runs on the GPU, and the numbers that its kernels are compiled for. Its
    actions are components with so many options (`sizes`), or `reals` real numbers within bounds;
    `advance` is given one tensor, or a tuple of them where there are several."""

    begin: Any
    advance: Any
    observe: Any
    states: int  # numbers of a state
    obs: int
    limit: int  # steps of an episode
    sizes: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    mask: Any = None

    @property
    def reals(self) -> int:
        return len(self.low)

    @property
    def numbers(self) -> int:
        """Numbers of an action."""
        return len(self.sizes) + len(self.low)

    @property
    def options(self) -> int:
        """The length of a mask."""
        return sum(self.sizes)

    @property
    def sources(self) -> str:
        """Changes with the functions' code."""
        functions = (self.begin, self.advance, self.observe, self.mask)
        return " ".join(getattr(function, "cache_key", "") for function in functions)


@gpu_kernel
def between(stream, address, low, high):
    return uniform(stream, address) * (high - low) + low


@gpu_kernel
def four_around_zero(stream, episode, reach):
    at = episode * 4
    return (
        between(stream, at, -reach, reach),
        between(stream, at + 1, -reach, reach),
        between(stream, at + 2, -reach, reach),
        between(stream, at + 3, -reach, reach),
    )


@gpu_kernel
def bounded(x, low, high):
    """x within [low, high]. The bounds are made float64 by arithmetic: a literal alone would be
    float32."""
    return tl.minimum(tl.maximum(x, x * 0.0 + low), x * 0.0 + high)


@gpu_kernel
def cartpole_begin(stream, episode):
    return four_around_zero(stream, episode, 0.05)


@gpu_kernel
def cartpole_advance(state, action):
    x, x_dot, theta, theta_dot = state
    force = tl.where(action == 1, 10.0, -10.0).to(tl.float64)
    cosine, sine = tl.cos(theta), tl.sin(theta)
    a = (force + 0.05 * theta_dot * theta_dot * sine) / 1.1
    theta_ddot = (9.8 * sine - cosine * a) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
    x_ddot = a - 0.05 * theta_ddot * cosine / 1.1
    x, theta = x + 0.02 * x_dot, theta + 0.02 * theta_dot
    x_dot, theta_dot = x_dot + 0.02 * x_ddot, theta_dot + 0.02 * theta_ddot
    over = (tl.abs(x) - TRACK > 0) | (tl.abs(theta) - TILT > 0)
    return (x, x_dot, theta, theta_dot), x * 0.0 + 1.0, over


@gpu_kernel
def as_it_is(state):
    return state


@gpu_kernel
def without_velocities(state):
    x, _, theta, _ = state
    return x, theta


@gpu_kernel
def acrobot_begin(stream, episode):
    return four_around_zero(stream, episode, 0.1)


@gpu_kernel
def acrobot_rates(theta1, theta2, dot1, dot2, torque):
    """Both links have mass and length 1, their centres in the middle, inertia 1."""
    cosine, sine = tl.cos(theta2), tl.sin(theta2)
    d1 = 0.25 + (1.25 + cosine) + 2.0
    d2 = 0.25 + 0.5 * cosine + 1.0
    phi2 = 0.5 * 9.8 * tl.cos(theta1 + theta2 - PI / 2)
    phi1 = (
        -0.5 * dot2 * dot2 * sine - dot2 * dot1 * sine + 1.5 * 9.8 * tl.cos(theta1 - PI / 2) + phi2
    )
    ddot2 = (torque + d2 / d1 * phi1 - 0.5 * dot1 * dot1 * sine - phi2) / (1.25 - d2 * d2 / d1)
    return dot1, dot2, -(d2 * ddot2 + phi1) / d1, ddot2


@gpu_kernel
def wrapped(angle):
    """The same angle within ±π."""
    turns = angle / (2 * PI)
    return angle - 2 * PI * tl.floor(turns + 0.5)


@gpu_kernel
def acrobot_advance(state, action):
    a, b, p, q = state
    torque = action.to(tl.float64) - 1
    a1, b1, p1, q1 = acrobot_rates(a, b, p, q, torque)
    a2, b2, p2, q2 = acrobot_rates(a + 0.1 * a1, b + 0.1 * b1, p + 0.1 * p1, q + 0.1 * q1, torque)
    a3, b3, p3, q3 = acrobot_rates(a + 0.1 * a2, b + 0.1 * b2, p + 0.1 * p2, q + 0.1 * q2, torque)
    a4, b4, p4, q4 = acrobot_rates(a + 0.2 * a3, b + 0.2 * b3, p + 0.2 * p3, q + 0.2 * q3, torque)
    a = wrapped(a + 0.2 / 6 * (a1 + 2 * a2 + 2 * a3 + a4))
    b = wrapped(b + 0.2 / 6 * (b1 + 2 * b2 + 2 * b3 + b4))
    p = bounded(p + 0.2 / 6 * (p1 + 2 * p2 + 2 * p3 + p4), -MAX_SPEED_1, MAX_SPEED_1)
    q = bounded(q + 0.2 / 6 * (q1 + 2 * q2 + 2 * q3 + q4), -MAX_SPEED_2, MAX_SPEED_2)
    up = -tl.cos(a) - tl.cos(a + b) > 1.0
    return (a, b, p, q), tl.where(up, 0.0, -1.0).to(tl.float64), up


@gpu_kernel
def acrobot_observe(state):
    a, b, p, q = state
    return tl.cos(a), tl.sin(a), tl.cos(b), tl.sin(b), p, q


@gpu_kernel
def mountain_car_begin(stream, episode):
    x = between(stream, episode * 4, -0.6, -0.4)
    return x, x * 0.0


@gpu_kernel
def mountain_car_advance(state, action):
    x, v = state
    push = (action.to(tl.float64) - 1) * 0.001
    v = bounded(v + (push - 0.0025 * tl.cos(3 * x)), -0.07, 0.07)
    x = bounded(x + v, -1.2, 0.6)
    v = tl.where((x + 1.2 == 0) & (v < 0), 0.0, v)
    return (x, v), x * 0.0 - 1.0, (x - 0.5 >= 0) & (v >= 0)


@gpu_kernel
def pendulum_begin(stream, episode):
    return between(stream, episode * 4, -PI, PI), between(stream, episode * 4 + 1, -1.0, 1.0)


@gpu_kernel
def pendulum_advance(state, action):
    theta, speed = state
    u = bounded(action.to(tl.float64), -2.0, 2.0)
    turns = (theta + PI) / (2 * PI)
    off = theta + PI - tl.floor(turns) * (2 * PI) - PI
    cost = off * off + 0.1 * speed * speed + 0.001 * u * u
    speed = bounded(speed + (15.0 * tl.sin(theta) + 3 * u) * 0.05, -8.0, 8.0)
    return (theta + speed * 0.05, speed), -cost, speed > 1e30


@gpu_kernel
def pendulum_observe(state):
    theta, speed = state
    return tl.cos(theta), tl.sin(theta), speed


FUNCTIONS = {
    "tenfold/CartPole-v1": (cartpole_begin, cartpole_advance, as_it_is),
    "tenfold/CartPoleNoVel-v1": (cartpole_begin, cartpole_advance, without_velocities),
    "tenfold/Acrobot-v1": (acrobot_begin, acrobot_advance, acrobot_observe),
    "tenfold/MountainCar-v0": (mountain_car_begin, mountain_car_advance, as_it_is),
    "tenfold/Pendulum-v1": (pendulum_begin, pendulum_advance, pendulum_observe),
}


def control_task(kind: c.ControlTask, functions: tuple[Any, ...]) -> DeviceTask:
    bound = () if kind.actions else (c.MAX_TORQUE,)
    return DeviceTask(
        *functions,
        states=kind.used,
        obs=kind.obs_size,
        limit=kind.limit,
        sizes=(kind.actions,) if kind.actions else (),
        low=tuple(-most for most in bound),
        high=bound,
    )


TASKS = {name: control_task(c.KINDS[name], functions) for name, functions in FUNCTIONS.items()}


def device_task(name: str) -> DeviceTask:
    """By the name of an environment for which `functions.runs_on_gpu` holds."""
    if name in TASKS:
        return TASKS[name]
    task: Any = task_of(name)
    begin, advance, observe, mask = task.device
    numbers = task.states, task.obs, task.limit
    actions = task.actions
    return DeviceTask(
        begin, advance, observe, *numbers, actions.sizes, actions.low, actions.high, mask
    )


# the pair: the compiled tasks, one lane at a time


@gpu_kernel
def step_kernel(
    states,
    actions,
    streams,
    episodes,
    obs,
    reward,
    terminated,
    fresh,
    allowed,
    count,
    TASK: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One step of every lane, and the first state of an episode of each. States are the first of
    WIDTH numbers."""
    lane = tl.arange(0, LANES)
    live = lane < count
    state = load_state(states, lane, live, TASK.states, WIDTH)
    state, won, over = TASK.advance(state, load_action(actions, lane, live, TASK))
    store_state(states, state, lane, live, TASK.states, WIDTH)
    tl.store(reward + lane, won, mask=live)
    tl.store(terminated + lane, over.to(tl.uint8), mask=live)
    store_numbers(obs, TASK.observe(state), lane, live, TASK.obs)
    if TASK.mask is not None:
        store_numbers(allowed, TASK.mask(state), lane, live, TASK.options)
    stream = tl.load(streams + lane, mask=live, other=0)
    first = TASK.begin(stream, tl.load(episodes + lane, mask=live, other=0))
    store_state(fresh, first, lane, live, TASK.states, WIDTH)


def step_on_device(
    task: DeviceTask,
    state: np.ndarray,
    episode: np.ndarray,
    streams: np.ndarray,
    action: np.ndarray,
) -> tuple[torch.Tensor, ...]:
    """(state, observation, reward, terminated) after one step of every lane, the first state of its
    episode, and the mask after the step."""
    where, count = device(), len(state)
    states, actions, episodes = (
        torch.from_numpy(np.ascontiguousarray(array)).to(where)
        for array in (state, action, episode)
    )
    obs = torch.zeros(count, task.obs, device=where)
    reward = torch.zeros(count, dtype=torch.float64, device=where)
    terminated = torch.zeros(count, dtype=torch.uint8, device=where)
    fresh = torch.zeros_like(states)
    allowed = torch.ones(count, task.options, dtype=torch.uint8, device=where)
    step_kernel[(1,)](
        states,
        actions,
        key_tensor(list(streams), where),
        episodes,
        obs,
        reward,
        terminated,
        fresh,
        allowed,
        count,
        TASK=task,
        LANES=padded(count),
        WIDTH=state.shape[1],
    )
    used = task.states
    return states[:, :used], obs, reward, terminated.bool(), fresh[:, :used], allowed.bool()


def step_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """States from all over each task, the edges where episodes end included."""
    for kind, state, _, episode, streams, action in random_lanes(rng, "int64"):
        yield kind, state, episode, streams, action


def step_reference(kind, state, episode, streams, action):
    """The compiled tasks, row by row."""
    obs = np.zeros((len(state), kind.obs_size), np.float32)
    reward, terminated = np.zeros(len(state)), np.zeros(len(state), np.bool_)
    fresh = np.zeros_like(state)
    for i, row in enumerate(state):
        reward[i], terminated[i] = c.advance(kind.number, row, action[i])
        c.observe(kind.number, row, obs[i])
        c.begin(kind.number, fresh[i], streams[i], episode[i])
    used = kind.used
    return state[:, :used], obs, reward, terminated, fresh[:, :used]


@pair(step_reference, step_examples, rtol=1e-9, atol=1e-9, when=available, name="envs.device.step")
def control_step_on_device(kind, state, episode, streams, action):
    task = next(TASKS[name] for name, spec in c.KINDS.items() if spec == kind)
    return step_on_device(task, state, episode, streams, action)[:5]
