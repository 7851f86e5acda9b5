"""The job shop of `rules` as environments: many lanes at once, or Gymnasium's ordinary one."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.jobshop.instances import Instance, RandomShops
from tenfold.domains.jobshop.reading import instance_of_arguments, is_name
from tenfold.domains.jobshop.rules import (
    BOUND,
    TIME,
    action_space,
    advance,
    begin,
    observation_space,
    observe,
    play_all,
    restart,
    row_size,
    scratch,
    shop_of,
    show_all,
    views,
)
from tenfold.domains.jobshop.schedule import Schedule, render_gantt, schedule_of_starts
from tenfold.envs.arguments import split_name, with_absolute_path
from tenfold.envs.bases import CompiledHeads, find_masked_head

ARGUMENTS = {"instance", "optimum", "bounds"}


def resolve_instance(name: str) -> str:
    """The environment's name with an instance's file as an absolute path."""
    arguments = split_name(name)[1]
    instance = arguments.get("instance", "")
    if is_name(instance) or not Path(str(instance)).is_file():
        return name
    return with_absolute_path(name, "instance", "instance")


def is_random(name: str) -> bool:
    """Whether an environment's name asks for a new random shop each episode."""
    return "random" in split_name(name)[1]


def make_env(
    instance: str | Path | Instance | None = None,
    random: str = "",
    render_mode: str | None = None,
    **more: Any,
) -> "gym.Env[Any, Any]":
    """An environment of one shop, where all machines choose at once, or of a new random shop each
    episode, with one dispatch a step."""
    if not random:
        if "routes" in more:
            raise EnvironmentFault("routes are those of random shops: give random=10x5 too.")
        return JobShopEnv("ft06" if instance is None else instance, render_mode=render_mode, **more)
    from tenfold.domains.jobshop.dispatch import DispatchEnv

    if instance is not None or set(more) - {"routes"}:
        raise EnvironmentFault(
            f"random = {random} is a new shop each episode: instance, optimum and bounds are for "
            "one shop; leave them out."
        )
    return DispatchEnv(RandomShops.parse(random, **more), render_mode)


def named_instance(name: str) -> Instance:
    """The instance that an environment's name asks for."""
    arguments = split_name(name)[1]
    if set(arguments) - ARGUMENTS:
        raise EnvironmentFault(
            f"{name} cannot be made: the arguments are instance, optimum and bounds, for example "
            "(instance=my.txt, optimum=1234), or random and routes, for example "
            "(random=6..15x5..10, routes=mixed)."
        )
    return instance_of_arguments(**arguments)


def schedule_of_row(instance: Instance, row: np.ndarray) -> Schedule:
    """The operations started so far, in the order of their starts."""
    start = views(row, *instance.machine.shape)[3].reshape(instance.machine.shape)
    return [s for s in schedule_of_starts(instance, start) if s.start >= 0]


def masked_action_message(
    instance: Instance, machine: int, action: int, options: np.ndarray
) -> str:
    """Why an action is refused, and the legal options."""
    legal = ", ".join(f"job {j}" if j < instance.jobs else "idle" for j in np.flatnonzero(options))
    if action == instance.jobs:
        command = "told to idle while nothing is worth waiting for"
    elif 0 <= action < instance.jobs:
        command = f"told to start job {action}, which does not wait there"
    else:
        command = f"given {action}, which is none of the options 0 to {instance.jobs}"
    return f"machine {machine} was {command}: its options are {legal}."


class JobShopEnvironments(CompiledHeads):
    """All lanes of one instance, one kernel call a step.

    Every episode begins alike, so seeds change nothing. `last_makespan` [B] is that of each lane's
    last finished episode, 0 before the first.
    """

    heads = "machines"
    step_kernel = staticmethod(play_all)

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        instance: str | Path | Instance | None = None,
        first: int = 0,
    ) -> None:
        self.instance = shop = (
            named_instance(name) if instance is None else instance_of_arguments(instance)
        )
        spaces = observation_space(shop), action_space(shop)
        super().__init__(name, num_envs, seed, spaces, first)
        self.routes, self.units, self.scale = shop_of(shop)
        self.states = np.zeros((num_envs, row_size(shop)), np.int64)
        self.work = scratch(shop)
        self.last_makespan, self.last_states = self.length.copy(), np.zeros_like(self.states)
        results = {"last_makespan": self.last_makespan, "last_state": self.last_states}
        self.state_arrays = {"state": self.states} | self.state_arrays | results
        self.step_arrays = (
            self.action,
            self.routes,
            self.units,
            self.scale,
            self.states,
            self.work,
            self.length,
            self.episode,
            self.obs,
            self.final_obs,
            self.options,
            self.reward,
            self.terminated,
            self.ret,
            self.last,
            self.last_makespan,
            self.last_states,
        )
        for row in self.states:
            begin(row, *shop.machine.shape, self.units[0])
        self.see_again()

    def schedule(self, i: int) -> Schedule:
        """The schedule of the last episode that ended in lane i; empty before the first."""
        return schedule_of_row(self.instance, self.last_states[i]) if self.last_makespan[i] else []

    def masked_action(self, head: int, action: int, options: np.ndarray) -> str:
        return masked_action_message(self.instance, head, action, options)

    def see_again(self) -> None:
        show_all(self.routes, self.units, self.states, self.work, self.obs, self.options)

    def state(self) -> dict[str, np.ndarray]:
        return super().state() | {"routes": self.routes.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        if not np.array_equal(self.routes, state.get("routes", self.routes)):
            raise EnvironmentFault(
                f"{self.name}: the instance is not the one this run was trained on: put its file "
                "back."
            )
        return super().restore(state)


class JobShopEnv(gym.Env[np.ndarray, np.ndarray]):
    """The job shop as an ordinary environment. `info` has the `action_mask`, and at the end the
    `makespan` and the `schedule`."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(
        self,
        instance: str | Path | Instance = "ft06",
        render_mode: str | None = None,
        optimum: int | None = None,
        bounds: str | tuple[int, int] | None = None,
    ) -> None:
        self.instance = shop = instance_of_arguments(instance, optimum, bounds)
        self.observation_space, self.action_space = observation_space(shop), action_space(shop)
        self.render_mode = render_mode
        self.routes, self.units, self.scale = shop_of(shop)
        self.row, self.work = np.zeros(row_size(shop), np.int64), scratch(shop)
        self.next_op, self.ready, _, _ = views(self.row, *shop.machine.shape)
        self.mask = np.zeros(shop.machines * (shop.jobs + 1), np.bool_)
        self.obs = np.zeros(self.observation_space.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        restart(self.routes, self.units, self.row, self.work, self.obs, self.mask)
        return self.obs.copy(), {"action_mask": self.mask.copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.mask.any():
            raise EnvironmentFault(
                "The job shop has no decision left: call reset() to begin an episode."
            )
        jobs = np.asarray(action, np.int64)
        if jobs.shape != self.action_space.shape:
            raise EnvironmentFault(
                f"{self.instance.name} needs one action for each of its {self.instance.machines} "
                f"machines, and got {action}."
            )
        m = find_masked_head(jobs, self.mask)
        if m >= 0:
            options = self.mask.reshape(self.instance.machines, -1)[m]
            raise EnvironmentFault(
                f"{self.instance.name}: "
                f"{masked_action_message(self.instance, m, int(jobs[m]), options)}"
            )
        before = int(self.row[BOUND])
        done = advance(self.routes, self.row, jobs, self.mask)
        observe(self.routes, self.units, self.row, self.work, self.obs)
        info = {"action_mask": self.mask.copy()}
        if done:
            info |= {
                "makespan": int(self.row[TIME]),
                "schedule": schedule_of_row(self.instance, self.row),
            }
        reward = (before - int(self.row[BOUND])) / self.scale
        return self.obs.copy(), reward, done, False, info

    def render(self) -> Any:
        """The Gantt chart of the operations started so far."""
        schedule = schedule_of_row(self.instance, self.row)
        return render_gantt(schedule, self.instance.name, self.render_mode)
