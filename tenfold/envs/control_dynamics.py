"""CartPole, Acrobot, MountainCar and Pendulum, compiled: the dynamics and rewards of Gymnasium's
tasks, for one row.

A row is four numbers (unused ones are 0), and the state an episode starts from is a function of its
address: number j is drawn by (stream of the lane, 4·episode + j). All tasks stand behind one
signature with a `kind`: `begin`, `advance` and `observe`. CartPole is there a second time without
its velocities, which a policy has to find out by remembering.
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform

CARTPOLE, ACROBOT, MOUNTAIN_CAR, PENDULUM, CARTPOLE_NO_VEL = range(5)
STATES = 4  # numbers in a lane's state
# the first state is uniform between these, by kind
LOWEST_START = np.array([[-0.05] * 4, [-0.1] * 4, [-0.6, 0, 0, 0], [-np.pi, -1, 0, 0], [-0.05] * 4])
HIGHEST_START = np.array([[0.05] * 4, [0.1] * 4, [-0.4, 0, 0, 0], [np.pi, 1, 0, 0], [0.05] * 4])


@dataclass(frozen=True)
class ControlTask:
    """One of the tasks: its number in the kernels, its time limit, its spaces, and Gymnasium's id
    for the same task."""

    number: int
    limit: int
    low: tuple[float, ...]  # of the observation
    high: tuple[float, ...]
    actions: int  # 0: one number, the torque
    used: int  # numbers of the state that the task needs
    original: str
    frame_rate: int
    indices: tuple[int, ...] = ()  # numbers of Gymnasium's observation that are seen; empty: all

    def select(self, obs: np.ndarray) -> np.ndarray:
        """Of an observation of Gymnasium's what this task shows."""
        return obs[list(self.indices)] if self.indices else obs

    @property
    def obs_size(self) -> int:
        return len(self.high)

    def observation_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(np.float32(self.low), np.float32(self.high), dtype=np.float32)  # type: ignore[arg-type]

    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        return (
            gym.spaces.Discrete(self.actions)
            if self.actions
            else gym.spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)
        )


# the tasks

GRAVITY = 9.8  # of CartPole and Acrobot; the two others have their own
TRACK, TILT = 2.4, 12 * 2 * np.pi / 360  # CartPole ends beyond these
POLE_MASS, TOTAL_MASS, HALF_POLE, PUSH, CART_DT = 0.1, 1.1, 0.5, 10.0, 0.02
# both links of Acrobot are alike
LINK_MASS, LINK, LINK_CENTRE, LINK_INERTIA, LINK_DT = 1.0, 1.0, 0.5, 1.0, 0.2
MAX_SPEED_1, MAX_SPEED_2 = 4 * np.pi, 9 * np.pi
LEFT_WALL, RIGHT_WALL, GOAL, MAX_SPEED, ENGINE, SLOPE = -1.2, 0.6, 0.5, 0.07, 0.001, 0.0025
MAX_TORQUE, MAX_SPIN, PENDULUM_GRAVITY, PENDULUM_DT = 2.0, 8.0, 10.0, 0.05

KINDS = {
    "tenfold/CartPole-v1": ControlTask(
        CARTPOLE,
        500,
        (-2 * TRACK, -np.inf, -2 * TILT, -np.inf),
        (2 * TRACK, np.inf, 2 * TILT, np.inf),
        2,
        4,
        "CartPole-v1",
        50,
    ),
    "tenfold/CartPoleNoVel-v1": ControlTask(
        CARTPOLE_NO_VEL,
        500,
        (-2 * TRACK, -2 * TILT),
        (2 * TRACK, 2 * TILT),
        2,
        4,
        "CartPole-v1",
        50,
        (0, 2),
    ),
    "tenfold/Acrobot-v1": ControlTask(
        ACROBOT,
        500,
        (-1, -1, -1, -1, -MAX_SPEED_1, -MAX_SPEED_2),
        (1, 1, 1, 1, MAX_SPEED_1, MAX_SPEED_2),
        3,
        4,
        "Acrobot-v1",
        15,
    ),
    "tenfold/MountainCar-v0": ControlTask(
        MOUNTAIN_CAR,
        200,
        (LEFT_WALL, -MAX_SPEED),
        (RIGHT_WALL, MAX_SPEED),
        3,
        2,
        "MountainCar-v0",
        30,
    ),
    "tenfold/Pendulum-v1": ControlTask(
        PENDULUM, 200, (-1, -1, -MAX_SPIN), (1, 1, MAX_SPIN), 0, 2, "Pendulum-v1", 30
    ),
}


@kernel
def bounded(x, low, high):
    """x within [low, high]; NaN stays NaN."""
    return low if x < low else high if x > high else x


@kernel
def cartpole(row, action):
    """Barto, Sutton & Anderson (1983), no friction, by Euler's rule. row: x, ẋ, θ, θ̇.

    a = (F + m_p·l·θ̇²·sin θ) / m,   θ̈ = (g·sin θ − a·cos θ) / (l·(4/3 − m_p·cos²θ / m)),   ẍ = a −
    m_p·l·θ̈·cos θ / m
    """
    x, x_dot, theta, theta_dot = row[0], row[1], row[2], row[3]
    force = PUSH if int(action) == 1 else -PUSH
    cosine, sine = np.cos(theta), np.sin(theta)
    a = (force + POLE_MASS * HALF_POLE * theta_dot**2 * sine) / TOTAL_MASS
    theta_ddot = (GRAVITY * sine - cosine * a) / (
        HALF_POLE * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
    )
    x_ddot = a - POLE_MASS * HALF_POLE * theta_ddot * cosine / TOTAL_MASS
    row[0] = x + CART_DT * x_dot
    row[1] = x_dot + CART_DT * x_ddot
    row[2] = theta + CART_DT * theta_dot
    row[3] = theta_dot + CART_DT * theta_ddot
    return 1.0, abs(row[0]) > TRACK or abs(row[2]) > TILT


@kernel
def acrobot_rates(state, torque):
    """d/dt (θ₁, θ₂, θ̇₁, θ̇₂), as in Sutton & Barto's book; θ₂ is relative to the first link, and 0
    hangs down."""
    theta1, theta2, dot1, dot2 = state
    coupling = LINK_MASS * LINK * LINK_CENTRE
    d1 = (
        LINK_MASS * LINK_CENTRE**2
        + LINK_MASS * (LINK**2 + LINK_CENTRE**2 + 2 * LINK * LINK_CENTRE * np.cos(theta2))
        + LINK_INERTIA
        + LINK_INERTIA
    )
    d2 = LINK_MASS * (LINK_CENTRE**2 + LINK * LINK_CENTRE * np.cos(theta2)) + LINK_INERTIA
    phi2 = LINK_MASS * LINK_CENTRE * GRAVITY * np.cos(theta1 + theta2 - np.pi / 2)
    phi1 = (
        -coupling * dot2**2 * np.sin(theta2)
        - 2 * coupling * dot2 * dot1 * np.sin(theta2)
        + (LINK_MASS * LINK_CENTRE + LINK_MASS * LINK) * GRAVITY * np.cos(theta1 - np.pi / 2)
        + phi2
    )
    ddot2 = (torque + d2 / d1 * phi1 - coupling * dot1**2 * np.sin(theta2) - phi2) / (
        LINK_MASS * LINK_CENTRE**2 + LINK_INERTIA - d2**2 / d1
    )
    return dot1, dot2, -(d2 * ddot2 + phi1) / d1, ddot2


@kernel
def moved(state, rate, dt):
    return (
        state[0] + dt * rate[0],
        state[1] + dt * rate[1],
        state[2] + dt * rate[2],
        state[3] + dt * rate[3],
    )


@kernel
def wrapped(angle):
    """The same angle within ±π; what is not finite becomes NaN."""
    return angle - 2 * np.pi * np.rint(angle / (2 * np.pi))


@kernel
def acrobot(row, action):
    """One step of the classical Runge-Kutta rule; ends when the tip is a link's length above the
    axis. row: θ₁, θ₂, θ̇₁, θ̇₂."""
    torque = float(int(action) - 1)
    state = (row[0], row[1], row[2], row[3])
    k1 = acrobot_rates(state, torque)
    k2 = acrobot_rates(moved(state, k1, LINK_DT / 2), torque)
    k3 = acrobot_rates(moved(state, k2, LINK_DT / 2), torque)
    k4 = acrobot_rates(moved(state, k3, LINK_DT), torque)
    for j in range(4):
        row[j] = state[j] + LINK_DT / 6 * (k1[j] + 2 * k2[j] + 2 * k3[j] + k4[j])
    row[0], row[1] = wrapped(row[0]), wrapped(row[1])
    row[2], row[3] = (
        bounded(row[2], -MAX_SPEED_1, MAX_SPEED_1),
        bounded(row[3], -MAX_SPEED_2, MAX_SPEED_2),
    )
    up = -np.cos(row[0]) - np.cos(row[0] + row[1]) > 1.0
    return 0.0 if up else -1.0, up


@kernel
def mountain_car(row, action):
    """Moore (1990): v ← v + 0.001·(a − 1) − 0.0025·cos 3x, then x ← x + v, between two walls. row:
    x, v."""
    v = bounded(
        row[1] + ((int(action) - 1) * ENGINE - SLOPE * np.cos(3 * row[0])), -MAX_SPEED, MAX_SPEED
    )
    x = bounded(row[0] + v, LEFT_WALL, RIGHT_WALL)
    if x == LEFT_WALL and v < 0:
        v = 0.0
    row[0], row[1] = x, v
    return -1.0, x >= GOAL and v >= 0


@kernel
def pendulum(row, action):
    """A rod with m = l = 1: θ̈ = (3g / 2)·sin θ + 3u, where 0 stands up. The cost is that of the
    state before. row: θ, θ̇."""
    u = bounded(float(action), -MAX_TORQUE, MAX_TORQUE)
    theta, theta_dot = row[0], row[1]
    from_upright = (theta + np.pi) % (2 * np.pi) - np.pi
    cost = from_upright**2 + 0.1 * theta_dot**2 + 0.001 * u**2
    row[1] = bounded(
        theta_dot + (3 * PENDULUM_GRAVITY / 2 * np.sin(theta) + 3 * u) * PENDULUM_DT,
        -MAX_SPIN,
        MAX_SPIN,
    )
    row[0] = theta + row[1] * PENDULUM_DT
    return -cost, False


# one row


@kernel
def begin(kind, row, stream, episode):
    """The first state of an episode."""
    for j in range(STATES):
        low, high = LOWEST_START[kind, j], HIGHEST_START[kind, j]
        row[j] = low + (high - low) * draw_uniform(stream, episode * STATES + j)


@kernel
def advance(kind, row, action):
    """One step: (reward, terminated)."""
    if kind in (CARTPOLE, CARTPOLE_NO_VEL):
        return cartpole(row, action)
    if kind == ACROBOT:
        return acrobot(row, action)
    if kind == MOUNTAIN_CAR:
        return mountain_car(row, action)
    return pendulum(row, action)


@kernel
def observe(kind, row, obs):
    if kind == CARTPOLE:
        obs[0], obs[1], obs[2], obs[3] = row[0], row[1], row[2], row[3]
    elif kind == ACROBOT:
        obs[0], obs[1], obs[2], obs[3] = (
            np.cos(row[0]),
            np.sin(row[0]),
            np.cos(row[1]),
            np.sin(row[1]),
        )
        obs[4], obs[5] = row[2], row[3]
    elif kind == MOUNTAIN_CAR:
        obs[0], obs[1] = row[0], row[1]
    elif kind == CARTPOLE_NO_VEL:
        obs[0], obs[1] = row[0], row[2]
    else:
        obs[0], obs[1], obs[2] = np.cos(row[0]), np.sin(row[0]), row[1]
