"""What Gymnasium's v5 tasks do around MuJoCo's step, in their order and their precision, so that
observations, rewards and ends are theirs in every bit.

The physics is MuJoCo's own library, called by address with the same arguments in the same order.
Of an environment, `row` has the addresses of its arrays (`POSITION` and so on); `a` is the table of
all of them, with the task's settings (`FIELDS`).
"""

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.native import call, numbers_at
from tenfold.core.numpy_random import next_normal, next_uniform, seed_generator
from tenfold.core.tables import Fields

# the tasks, in the order of `TASKS`
CHEETAH, HOPPER, WALKER, SWIMMER, PENDULUM, ANT, HUMANOID = range(7)

# what of MjData and MjModel a row has the addresses of, behind the two themselves
ADDRESSES = (
    *("qpos", "qvel", "ctrl", "xpos", "xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
    *("body_mass", "start"),
)
(MODEL, DATA, POSITION, VELOCITY, CONTROL, BODY, CENTRE) = range(7)
(INERTIA, BODY_VELOCITY, ACTUATOR, CONTACT, MASS, START) = range(7, 13)
TORSO = 1  # the body whose position Ant's reward is about

# of the task: whole numbers, then real ones
WHOLE = (
    *("task", "limit", "frame_skip", "positions", "velocities", "controls", "bodies", "hidden"),
    *("ends", "shows_inertia", "shows_velocity", "shows_actuator", "shows_contact"),
    *("mj_step", "mj_rnePostConstraint", "mj_resetData", "mj_forward"),
)
REAL = (
    *("dt", "noise", "control_weight", "forward_weight", "healthy_reward", "contact_weight"),
    *("low_z", "high_z", "low_angle", "high_angle", "low_state", "high_state"),
    *("low_contact", "high_contact"),
)
FIELDS: Fields = (
    *((name, "int64", 0) for name in WHOLE),
    *((name, "float64", 0) for name in REAL),
    ("rows", "int64", 2),
    ("streams", "uint64", 1),
    ("action", "float32", 2),
    ("taken_actions", "float32", 3),  # actions of the current episodes
    ("obs", "float32", 2),
    ("final_obs", "float32", 2),
    ("reward", "float64", 1),
    ("terminated", "bool", 1),
    ("truncated", "bool", 1),
    ("length", "int64", 1),
    ("episode", "int64", 1),
    ("ret", "float64", 1),
    ("ended", "float64", 2),  # return and length of the episode that ended in the last step
    ("finite", "bool", 1),
    ("idle", "bool", 1),  # lanes that wait
)


# sums as NumPy makes them: eight at a time from eight numbers on (for up to 128)


@kernel
def sum_of(values):
    n = len(values)
    if n < 8:
        total = values[0]  # of the values' own precision, which 0.0 would not be
        for i in range(1, n):
            total += values[i]
        return total
    sums = values[:8].copy()
    whole = n - n % 8
    for i in range(8, whole, 8):
        for j in range(8):
            sums[j] += values[i + j]
    total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + (
        (sums[4] + sums[5]) + (sums[6] + sums[7])
    )
    for i in range(whole, n):
        total += values[i]
    return total


@kernel
def sum_of_squares(values):
    return sum_of(values * values)


@kernel
def clipped(value, low, high):
    """As np.clip, which leaves what is no number as it is."""
    if value < low:
        return low
    return high if value > high else value


@kernel
def place_of(a, row):
    """The position along the track that the forward reward is about; of Ant and Humanoid as the
    last substep found it, which is Gymnasium's too."""
    if a.task == ANT:
        return numbers_at(row[BODY], 3 * (TORSO + 1))[3 * TORSO]
    if a.task == HUMANOID:
        mass, centre = numbers_at(row[MASS], a.bodies), numbers_at(row[CENTRE], 3 * a.bodies)
        total = 0.0
        for body in range(a.bodies):
            total += mass[body] * centre[3 * body]
        return total / sum_of(mass)
    return numbers_at(row[POSITION], 1)[0]


@kernel
def copy_from(values, first, obs, at):
    """Copies values from number `first` on; returns where the observation goes on."""
    for i in range(first, len(values)):
        obs[at] = values[i]
        at += 1
    return at


@kernel
def observe(a, row, obs):
    at = copy_from(numbers_at(row[POSITION], a.positions), a.hidden, obs, 0)
    first = at
    at = copy_from(numbers_at(row[VELOCITY], a.velocities), 0, obs, at)
    if a.task == HOPPER or a.task == WALKER:
        for i in range(first, at):
            obs[i] = clipped(obs[i], -10.0, 10.0)
    if a.shows_inertia:
        at = copy_from(numbers_at(row[INERTIA], 10 * a.bodies), 10, obs, at)
    if a.shows_velocity:
        at = copy_from(numbers_at(row[BODY_VELOCITY], 6 * a.bodies), 6, obs, at)
    if a.shows_actuator:
        at = copy_from(numbers_at(row[ACTUATOR], a.velocities), 6, obs, at)
    if a.shows_contact:
        first = at
        at = copy_from(numbers_at(row[CONTACT], 6 * a.bodies), 6, obs, at)
        if a.task == ANT:
            for i in range(first, at):
                obs[i] = clipped(obs[i], a.low_contact, a.high_contact)


@kernel
def is_healthy(a, row):
    position = numbers_at(row[POSITION], a.positions)
    velocity = numbers_at(row[VELOCITY], a.velocities)
    if a.task == HOPPER:
        for i in range(2, len(position)):
            if not a.low_state < position[i] < a.high_state:
                return False
        for i in range(len(velocity)):
            if not a.low_state < velocity[i] < a.high_state:
                return False
    if a.task == HOPPER or a.task == WALKER:
        upright = a.low_angle < position[2] < a.high_angle
        return a.low_z < position[1] < a.high_z and upright
    if a.task == ANT:
        for i in range(len(position)):
            if not np.isfinite(position[i]):
                return False
        for i in range(len(velocity)):
            if not np.isfinite(velocity[i]):
                return False
        return a.low_z <= position[2] <= a.high_z
    if a.task == HUMANOID:
        return a.low_z < position[2] < a.high_z
    return True


@kernel
def stays_upright(a, row):
    """Whether InvertedPendulum's pole stands, and all of its numbers are finite."""
    position = numbers_at(row[POSITION], a.positions)
    velocity = numbers_at(row[VELOCITY], a.velocities)
    total = 0.0
    for i in range(len(position)):
        total += position[i] * 0.0 + velocity[i] * 0.0
    return total == 0.0 and not np.abs(position[1]) > 0.2


@kernel
def begin(a, row, seed):
    """`reset(seed=seed)`."""
    g = np.zeros(4, np.uint64)
    seed_generator(seed, g)
    call(a.mj_resetData, row[MODEL], row[DATA])
    position = numbers_at(row[POSITION], a.positions)
    velocity = numbers_at(row[VELOCITY], a.velocities)
    start = numbers_at(row[START], a.positions + a.velocities)
    for i in range(len(position)):
        position[i] = start[i] + next_uniform(g, -a.noise, a.noise)
    normal = a.task == CHEETAH or a.task == ANT
    for i in range(len(velocity)):
        drawn = a.noise * next_normal(g) if normal else next_uniform(g, -a.noise, a.noise)
        velocity[i] = start[len(position) + i] + drawn
    call(a.mj_forward, row[MODEL], row[DATA])


@kernel
def advance(a, row, action):
    """A step with an action of float32: (reward, terminated)."""
    control, before = numbers_at(row[CONTROL], a.controls), place_of(a, row)
    for i in range(len(control)):
        control[i] = action[i]
    for _ in range(a.frame_skip):
        call(a.mj_step, row[MODEL], row[DATA])
    call(a.mj_rnePostConstraint, row[MODEL], row[DATA])
    if a.task == PENDULUM:
        stands = stays_upright(a, row)
        return (1.0 if stands else 0.0), not stands
    forward = a.forward_weight * ((place_of(a, row) - before) / a.dt)
    if a.task == HUMANOID:  # of the control, which is float64
        cost = a.control_weight * sum_of_squares(control)
    else:  # a Python number times a float32 is a float32
        cost = float(np.float32(a.control_weight) * sum_of_squares(action))
    if a.task == CHEETAH or a.task == SWIMMER:
        return forward - cost, False
    healthy = is_healthy(a, row)
    if a.task == ANT or a.task == HUMANOID:
        cost = cost + contact_cost(a, row)
    reward = (forward + (a.healthy_reward if healthy else 0.0)) - cost
    return reward, not healthy and a.ends != 0


@kernel
def contact_cost(a, row):
    force = numbers_at(row[CONTACT], 6 * a.bodies).copy()
    if a.task == HUMANOID:
        cost = a.contact_weight * sum_of_squares(force)
        return clipped(cost, a.low_contact, a.high_contact)
    for i in range(len(force)):
        force[i] = clipped(force[i], a.low_contact, a.high_contact)
    return a.contact_weight * sum_of_squares(force)
