"""Random shops as an environment: a new one each episode, one dispatch a step."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.jobshop.charts import gantt_figure, gantt_text
from tenfold.domains.jobshop.dispatch import (
    FEATURES,
    Seen,
    Shops,
    batch,
    dispatched,
    foreseen,
    opened,
    seen,
    shops_of,
)
from tenfold.domains.jobshop.instances import Instance, RandomShops, lower_bound
from tenfold.domains.jobshop.schedule import Schedule, Scheduled

PERCENT = 100.0


class Glimpse(NamedTuple):
    """An observation, taken apart."""

    shops: Shops
    seen: Seen
    following: Tensor  # [N, 1, J]


class Sheet:
    """How an observation lies in one row: for each of at most J jobs FEATURES numbers of its next
    operation, how many operations it has done and has, and their K machines and K durations.
    Behind the last job and the last operation stands 0."""

    def __init__(self, random: RandomShops) -> None:
        self.jobs, self.machines = random.jobs[1], random.machines[1]
        self.width = FEATURES + 2 + 2 * self.machines

    @property
    def size(self) -> int:
        return self.jobs * self.width

    def write(self, instance: Instance, features: np.ndarray, following: np.ndarray) -> np.ndarray:
        row = np.zeros((self.jobs, self.width), np.float32)
        jobs, longest = instance.machine.shape
        mine, tables = row[:jobs], FEATURES + 2
        mine[:, :FEATURES] = features
        mine[:, FEATURES], mine[:, FEATURES + 1] = following, instance.lengths
        mine[:, tables : tables + longest] = instance.machine
        mine[:, tables + self.machines : tables + self.machines + longest] = instance.duration
        return row.ravel()

    def read(self, rows: Tensor, mask: Tensor) -> Glimpse:
        """Of rows [B, size] and masks [B, jobs]."""
        whole = rows.reshape(len(rows), self.jobs, self.width)
        cuts = [FEATURES, 1, 1, self.machines, self.machines]
        features, following, length, machine, duration = whole.split(cuts, 2)
        following, length = following.long().squeeze(2), length.long().squeeze(2)
        shops = shops_of(machine.long(), duration, length, self.machines)
        now = Seen(features[:, None], mask[:, None], (following < length)[:, None])
        return Glimpse(shops, now, following[:, None])


class DispatchEnv(gym.Env[np.ndarray, int]):
    """Each episode schedules a new random shop. An action is a job whose next operation goes to its
    machine; `info["action_mask"]` has the jobs that may be chosen. The return is minus the percent
    by which the makespan exceeds the shop's lower bound. `info` of the last step has `makespan`,
    `schedule` and `instance`."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(self, random: str | RandomShops, render_mode: str | None = None) -> None:
        self.random = random if isinstance(random, RandomShops) else RandomShops.parse(random)
        self.sheet, self.render_mode = Sheet(self.random), render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.sheet.size,), np.float32)
        self.action_space = gym.spaces.Discrete(self.sheet.jobs)
        self.mask = np.zeros(self.sheet.jobs, np.bool_)

    def look(self) -> np.ndarray:
        """The observation; sets the mask and the makespan that is foreseen now."""
        now, jobs = seen(self.shops, self.floor), self.instance.jobs
        self.mask = np.zeros(self.sheet.jobs, np.bool_)
        self.mask[:jobs] = now.allowed[0, 0].numpy()
        self.expected = max(int(foreseen(self.shops, self.floor)), self.least)
        following = self.floor.following[0, 0].numpy()
        return self.sheet.write(self.instance, now.features[0, 0].numpy(), following)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.instance = self.random.draw(self.np_random)
        self.shops, self.least = batch([self.instance]), lower_bound(self.instance)
        self.floor = opened(self.shops, 1)
        self.made: Schedule = []
        return self.look(), {"action_mask": self.mask.copy()}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        job, legal = int(action), np.flatnonzero(self.mask)
        if job not in legal:
            words = ", ".join(map(str, legal)) or "none: call reset()"
            raise EnvironmentFault(
                f"{self.instance.name}: job {job} cannot be dispatched now; those that can are "
                f"{words}."
            )
        k, before = int(self.floor.following[0, 0, job]), self.expected
        self.floor = dispatched(self.shops, self.floor, torch.tensor([[job]]))
        machine, duration = (
            int(t[job, k]) for t in (self.instance.machine, self.instance.duration)
        )
        end = int(self.floor.ready[0, 0, job])
        self.made.append(Scheduled(job, k, machine, end - duration, end))
        obs, done = self.look(), len(self.made) == self.instance.operations
        info: dict[str, Any] = {"action_mask": self.mask.copy()}
        if done:
            makespan = max(one.end for one in self.made)
            info |= {"makespan": makespan, "schedule": self.made, "instance": self.instance}
        reward = PERCENT * (before - self.expected) / self.least
        return obs, reward, done, False, info

    def render(self) -> Any:
        """The Gantt chart of what is scheduled so far."""
        if self.render_mode != "rgb_array":
            return gantt_text(self.made)
        figure = gantt_figure(self.made, self.instance.name)
        figure.canvas.draw()
        return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
