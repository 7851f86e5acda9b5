"""MuJoCo tasks as environments: all of them in one compiled call a step, spread over the process's
team of threads (`core.threads`), SAME_STEP.

They share one MjModel, which a step only reads; each has an MjData of its own.
"""

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numba import cfunc, types

from tenfold.core.errors import CheckpointError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import draw_bits
from tenfold.core.tables import KernelTable, opener_at
from tenfold.core.threads import run_work, team_for, team_threads
from tenfold.domains.mujoco import TASKS
from tenfold.domains.mujoco.rules import ADDRESSES, FIELDS, advance, begin, observe
from tenfold.envs.adapter import SEED_BITS, Environments
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import put_away
from tenfold.envs.making import limits_of, make_env
from tenfold.envs.scalar import ScalarEnvironments, replayable, require_possible

SEED_SHIFT = np.uint64(64 - SEED_BITS)
# settings of Gymnasium's classes by our names; what a task does not have is 0
SETTINGS = {
    "noise": "_reset_noise_scale",
    "control_weight": "_ctrl_cost_weight",
    "forward_weight": "_forward_reward_weight",
    "healthy_reward": "_healthy_reward",
    "contact_weight": "_contact_cost_weight",
    "ends": "_terminate_when_unhealthy",
    "shows_inertia": "_include_cinert_in_observation",
    "shows_velocity": "_include_cvel_in_observation",
    "shows_actuator": "_include_qfrc_actuator_in_observation",
    "shows_contact": "_include_cfrc_ext_in_observation",
}
RANGES = {
    "z": ("_healthy_z_range",),
    "angle": ("_healthy_angle_range",),
    "state": ("_healthy_state_range",),
    "contact": ("_contact_force_range", "_contact_cost_range"),
}
# arguments that change what is stepped, and not numbers alone
OTHER_ARGUMENTS = ("xml_file", "main_body", "default_camera_config")
MOST_STEPS = 100_000  # of an episode, whose actions are kept
FUNCTIONS = ("mj_step", "mj_rnePostConstraint", "mj_resetData", "mj_forward")

open_lanes = opener_at(FIELDS)


def lane_function(function: Any) -> Any:
    """A function of a table's address and a lane, which any thread may call."""
    signature = types.void(types.int64, types.int64)
    return cfunc(signature, cache=True, error_model="numpy")(function)


@kernel
def begin_episode(a, i):
    """Lane i at the start of its current episode."""
    a.length[i], a.ret[i] = 0, 0.0
    begin(a, a.rows[i], draw_bits(a.streams[i], a.episode[i]) >> SEED_SHIFT)
    observe(a, a.rows[i], a.obs[i])


@kernel
def take_step(a, i, action):
    """A step of lane i, whose next one it is; whether all of its numbers are finite."""
    for j in range(len(action)):
        a.taken_actions[i, a.length[i], j] = action[j]
    a.length[i] += 1
    a.reward[i], a.terminated[i] = advance(a, a.rows[i], action)
    a.ret[i] += a.reward[i]
    observe(a, a.rows[i], a.obs[i])
    total = a.reward[i] * 0.0  # 0 for finite numbers
    for j in range(a.obs.shape[1]):
        total += a.obs[i, j] * 0.0
    return total == 0.0


@cache
def lane_functions() -> dict[str, Any]:
    """What threads call, compiled or from the disk. (They are compiled when they are defined.)"""

    @lane_function
    def reset_lane(address, i):
        begin_episode(open_lanes(address), i)

    @lane_function
    def step_lane(address, i):
        a = open_lanes(address)
        if a.idle[i]:
            return
        a.finite[i] = take_step(a, i, a.action[i])
        a.truncated[i] = a.length[i] >= a.limit  # terminated or not, as Gymnasium's TimeLimit
        if a.finite[i] and (a.terminated[i] or a.truncated[i]):
            for j in range(a.obs.shape[1]):
                a.final_obs[i, j] = a.obs[i, j]
            a.ended[i, 0], a.ended[i, 1] = a.ret[i], a.length[i]
            a.episode[i] += 1
            begin_episode(a, i)

    @lane_function
    def repeat_lane(address, i):
        a = open_lanes(address)
        steps = a.length[i]
        begin_episode(a, i)
        for t in range(steps):
            take_step(a, i, a.taken_actions[i, t])

    return {"reset": reset_lane, "step": step_lane, "repeat": repeat_lane}


@kernel
def play_all(team, threads, step, address, last):
    """One step of every lane by the function at address `step`; the contract is that of
    `envs.control.play_all`, but that lanes behind one that is not finite have moved."""
    a = open_lanes(address)
    run_work(team, threads, step, address, len(a.rows))
    ended = 0
    for i in range(len(a.rows)):
        if not a.finite[i]:
            return -1 - i
        if (a.terminated[i] or a.truncated[i]) and not a.idle[i]:
            last[ended, 0], last[ended, 1], last[ended, 2] = i, a.ended[i, 0], a.ended[i, 1]
            ended += 1
    return ended


def why_not(name: str, env: gym.Env[Any, Any]) -> str:
    """What keeps an environment from compiled code, in words; "" if nothing does."""
    ident, arguments = split_name(name)
    inner: Any = env.unwrapped
    kind = f"{type(inner).__module__}:{type(inner).__name__}"
    if kind != TASKS[ident] or gym.registry[ident].kwargs:
        return f"{ident} is registered anew"
    if others := [argument for argument in OTHER_ARGUMENTS if argument in arguments]:
        return f"{others[0]} makes it another task"
    if not hasattr(inner.model, "_address") or not shared_library():
        return "this build of mujoco does not say where its library and data lie"
    numbers = task_numbers(ident, inner, 0)
    if wrong := [name for name, value in numbers.items() if not isinstance(value, Real)]:
        attribute = SETTINGS.get(wrong[0], wrong[0]).strip("_")
        return f"{attribute} is no number"
    wrapper = env
    while isinstance(wrapper, gym.Wrapper):
        if not isinstance(wrapper, gym.wrappers.TimeLimit):
            return f"it is wrapped in {type(wrapper).__name__}"
        wrapper = wrapper.env
    limits = limits_of(env)
    if len(limits) != 1:
        return "its episodes have no limit of steps, or several"
    if (limits[0]._max_episode_steps or 0) > MOST_STEPS:
        return f"its episodes may be longer than {MOST_STEPS:,} steps, which a resume would repeat"
    return ""


@cache
def shared_library() -> Any:
    """MuJoCo's library, the very one that its Python package has loaded; None where it is not
    beside it."""
    folder = Path(import_module("mujoco").__file__ or "").parent
    files = [*folder.glob("libmujoco.*so*"), *folder.glob("libmujoco.*dylib")]
    return ctypes.CDLL(str(files[0])) if files else None


def lane_arrays(inner: Any, lanes: int) -> tuple[np.ndarray, list[Any], list[np.ndarray]]:
    """Rows of addresses [lanes, 13]; what they are of: an MjData for each, and shared arrays."""
    model, make_data = inner.model, type(inner.data)
    start = np.concatenate([inner.init_qpos, inner.init_qvel])
    mass = np.ascontiguousarray(model.body_mass)
    data = [make_data(model) for _ in range(lanes)]
    shared = {"body_mass": mass.ctypes.data, "start": start.ctypes.data}
    rows = [
        [model._address, one._address]
        + [shared.get(name) or getattr(one, name).ctypes.data for name in ADDRESSES]
        for one in data
    ]
    return np.array(rows, np.int64), data, [mass, start]


def task_numbers(ident: str, inner: Any, limit: int) -> dict[str, Any]:
    """The task's settings by the names of `FIELDS`; what it does not have is 0."""
    model = inner.model
    numbers = {
        "task": list(TASKS).index(ident),
        "limit": limit,
        "frame_skip": inner.frame_skip,
        "positions": model.nq,
        "velocities": model.nv,
        "controls": model.nu,
        "bodies": model.nbody,
        "hidden": inner.observation_structure.get("skipped_qpos", 0),
        "dt": inner.dt,
    }
    numbers |= {name: getattr(inner, attribute, 0) for name, attribute in SETTINGS.items()}
    for name, attributes in RANGES.items():
        ends = next((getattr(inner, one) for one in attributes if hasattr(inner, one)), (0, 0))
        numbers |= {f"low_{name}": ends[0], f"high_{name}": ends[1]}
    for name in FUNCTIONS:
        numbers[name] = ctypes.cast(getattr(shared_library(), name), ctypes.c_void_p).value
    return numbers


class MujocoEnvironments(Environments):
    """As `ScalarEnvironments` of the same task, in every bit; their states are each other's."""

    moving: Any = slice(None)  # lanes that a step moves

    def __init__(
        self, name: str, num_envs: int, seed: int, first: int, original: gym.Env[Any, Any]
    ) -> None:
        """`original`: one that Gymnasium has made, which gives the model and the settings."""
        self.original, inner = original, original.unwrapped
        spaces = original.observation_space, original.action_space
        super().__init__(name, num_envs, seed, *spaces, first)
        limit = self.time_limit
        numbers = task_numbers(split_name(name)[0], inner, limit)
        rows, self.data, self.shared = lane_arrays(inner, num_envs)
        self.action = np.zeros((num_envs, numbers["controls"]), np.float32)
        self.length, self.episode = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self.ret, self.last = np.zeros(num_envs), np.zeros((num_envs, 3))
        self.taken_actions = np.zeros((num_envs, limit, numbers["controls"]), np.float32)
        self.finite, self.idle = np.ones(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self.streams = np.array(self.keys, np.uint64)
        arrays = {
            "rows": rows,
            "ended": np.zeros((num_envs, 2)),
            **{
                name: getattr(self, name)
                for name, _, dimensions in FIELDS
                if dimensions and hasattr(self, name)
            },
        }
        self.table = KernelTable(
            {
                name: arrays[name] if dimensions else np.array(numbers[name], dtype)
                for name, dtype, dimensions in FIELDS
            }
        )
        self.threads = threads = team_threads(num_envs)
        self.team, self.functions = team_for(threads), lane_functions()
        many, more = "s" * (num_envs > 1), "s" * (threads > 1)
        self.form = (
            f"{num_envs} environment{many} in compiled code over MuJoCo, on {threads} thread{more}"
        )
        self.for_all("reset")

    def for_all(self, function: str) -> None:
        """Every lane by one of the lane functions."""
        address = self.functions[function].address
        run_work(self.team, self.threads, address, self.table.address, self.num_envs)

    @property
    def time_limit(self) -> int:
        return int(limits_of(self.original)[0]._max_episode_steps)  # type: ignore[arg-type]

    @property
    def step_time(self) -> float:
        return float(self.original.unwrapped.dt)  # type: ignore[attr-defined]

    @property
    def frame_rate(self) -> int:
        return int(self.original.metadata["render_fps"])

    def step(self, actions: np.ndarray) -> None:
        self.begin_rounds()
        self.action[self.moving] = actions
        address = self.functions["step"].address
        ended = play_all(self.team, self.threads, address, self.table.address, self.last)
        if ended > 0:
            self.note_ended(self.last[:ended])
        elif ended < 0:
            raise self.not_finite(-1 - ended)

    def state(self) -> dict[str, np.ndarray]:
        return replayable(self, self.taken_actions)

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Replays the current episodes. Returns False where the observations differ."""
        lengths, most = state["length"], min(state["actions"].shape[1], self.time_limit - 1)
        if not ((lengths >= 0) & (lengths <= most)).all():  # compiled code would read beyond arrays
            raise CheckpointError(
                f"{self.name}: the checkpoint's episodes are {lengths.tolist()} steps long, and at "
                f"most {most} are possible."
            )
        self.episode[:], self.length[:] = state["episode"], lengths
        for i, (actions, length) in enumerate(zip(state["actions"], lengths, strict=True)):
            require_possible(actions[:length], self.action_space, self.location(i))
            self.taken_actions[i, :length] = actions[:length]
        self.for_all("repeat")
        return bool(np.array_equal(self.obs, state["obs"]))

    def close(self) -> None:
        put_away(self.original)


# the pair: Gymnasium's own environments, one after another


def task_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Some steps of every task, by actions within their bounds, and by others beyond them or by
    small ones, with which episodes last."""
    for number, name in enumerate(TASKS):
        for scale, lanes in ((1.0, 2), ((1.7, 0.05)[number % 2], 1)):
            yield name, lanes, int(rng.integers(2**31)), scale, 40


def play_task(envs: Environments, scale: float, steps: int) -> tuple[np.ndarray, ...]:
    rng, space = np.random.default_rng(3), envs.action_space
    rows = []
    for _ in range(steps):
        action = rng.uniform(space.low, space.high, (envs.num_envs, *space.shape)) * scale
        envs.step(action.astype(np.float32))
        ended = (envs.terminated | envs.truncated)[:, None]
        final_obs = np.where(ended, envs.final_obs, 0)
        arrays = envs.obs, final_obs, envs.reward, envs.terminated, envs.truncated
        rows.append(tuple(array.copy() for array in arrays))
    envs.close()
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


def play_one_by_one(name: str, lanes: int, seed: int, scale: float, steps: int) -> Any:
    return play_task(ScalarEnvironments(name, lanes, seed), scale, steps)


def has_mujoco() -> bool:
    return find_spec("mujoco") is not None


@pair(play_one_by_one, task_examples, rtol=0, name="domains.mujoco.lanes.step", when=has_mujoco)
def play_compiled(name: str, lanes: int, seed: int, scale: float, steps: int) -> Any:
    """`MujocoEnvironments` from their first episodes on."""
    return play_task(MujocoEnvironments(name, lanes, seed, 0, make_env(name)), scale, steps)
