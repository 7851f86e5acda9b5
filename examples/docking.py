"""An environment of your own that also runs inside a GPU: a craft that must come to rest at a port.

    tenfold train dqn --env docking:Docking-v0 --steps 30k                   (beside this file)
    tenfold train dqn --env docking:Docking-v0 --steps 30k --device cuda --engine resident
    tenfold check docking:Docking-v0                                         Triton against NumPy

A state is four numbers: the position, the speed, the fuel, and a wind that the agent does not see.
Every function stands here twice: in NumPy, for all lanes at once, and beside it in Triton.
"""

import gymnasium as gym
import numpy as np

import tenfold as ten
from tenfold.core.random import uniform
from tenfold.envs import gpu
from tenfold.envs.gpu import tl


def begin(stream, episode):
    at = episode * 3  # three draws an episode
    position = 6.0 * uniform(stream, at) - 3.0
    speed = 0.4 * uniform(stream, at + 1) - 0.2
    wind = 0.02 * uniform(stream, at + 2) - 0.01
    return position, speed, position * 0.0 + 30.0, wind


@gpu.function
def begin_gpu(stream, episode):
    at = episode * 3
    position = 6.0 * gpu.uniform(stream, at) - 3.0
    speed = 0.4 * gpu.uniform(stream, at + 1) - 0.2
    wind = 0.02 * gpu.uniform(stream, at + 2) - 0.01
    return position, speed, position * 0.0 + 30.0, wind


def advance(state, action):
    position, speed, fuel, wind = state
    push = np.where(fuel > 0, action - 1.0, 0.0)  # left, none, right
    speed = speed + 0.1 * push + wind
    position = position + speed
    fuel = fuel - np.abs(push)
    docked = (np.abs(position) < 0.25) & (np.abs(speed) < 0.15)
    lost = np.abs(position) > 5.0
    reward = docked * 1.0 - lost * 1.0 - 0.02 * np.abs(position)
    return (position, speed, fuel, wind), reward, docked | lost


# A number beside a comparison or inside `where` is float32 in Triton, and 0.15 is then another one:
# such numbers stand in sums, which are float64 as the state is.
@gpu.function
def advance_gpu(state, action):
    position, speed, fuel, wind = state
    push = (action.to(tl.float64) - 1.0) * (fuel > 0).to(tl.float64)
    speed = speed + 0.1 * push + wind
    position = position + speed
    fuel = fuel - tl.abs(push)
    docked = (tl.abs(position) - 0.25 < 0) & (tl.abs(speed) - 0.15 < 0)
    lost = tl.abs(position) - 5.0 > 0
    reward = docked.to(tl.float64) - lost.to(tl.float64) - 0.02 * tl.abs(position)
    return (position, speed, fuel, wind), reward, docked | lost


def observe(state):
    position, speed, fuel, _ = state
    return position / 5.0, speed, fuel / 30.0


@gpu.function
def observe_gpu(state):
    position, speed, fuel, _ = state
    return position / 5.0, speed, fuel / 30.0


ten.register_task(
    "Docking-v0",
    ten.Functions(begin, advance, observe),
    ten.Functions(begin_gpu, advance_gpu, observe_gpu),
    actions=gym.spaces.Discrete(3),
    limit=100,
)
