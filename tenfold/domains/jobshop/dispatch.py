"""Shops scheduled one dispatch after another, many at once, as tensors; random shops as an
environment.

A dispatch appends the next operation of one job to its machine's queue: it starts when both job and
machine are free. Which jobs may be chosen is Giffler and Thompson's rule (1960): of all next
operations take the one that would end first; on its machine, those that could start before that
end. Schedules made so are the active ones, and one of them is optimal.

`ShopBatch` are the tables of N shops, `FloorState` is the state of S schedules of each.
`view_floor` describes each job's next operation by FEATURES numbers that do not depend on the
shop's size, so that a policy that reads them plays any shop.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.jobshop.instances import Instance, RandomShops, lower_bound
from tenfold.domains.jobshop.schedule import Schedule, Scheduled, render_gantt

FEATURES = 22
STATIC = 9  # numbers of an operation that no schedule changes


class ShopBatch(NamedTuple):
    """N shops of at most J jobs with K operations on M machines. A job's last operation
    is followed by one of duration 0 on an extra machine M."""

    machine: Tensor  # [N, J, K + 1]
    duration: Tensor  # [N, J, K + 1]
    tail: Tensor  # [N, J, K + 1], work of the job from that operation on
    length: Tensor  # [N, J]
    load: Tensor  # [N, M + 1], work of each machine
    unit: Tensor  # [N, 1, 1], the mean duration
    bound: Tensor  # [N, 1, 1], the most work that one job or one machine has

    @property
    def dispatches(self) -> int:
        """The number of dispatches that schedule the largest shop."""
        return self.machine.shape[1] * (self.machine.shape[2] - 1)


class FloorState(NamedTuple):
    """S partial schedules of each shop."""

    next_op: Tensor  # [N, S, J], the number of each job's next operation
    ready: Tensor  # [N, S, J], when the job is free
    free: Tensor  # [N, S, M + 1], when the machine is
    left: Tensor  # [N, S, M + 1], its work that is not scheduled yet


class FloorView(NamedTuple):
    """The candidates of the next dispatch."""

    features: Tensor  # [N, S, J, FEATURES]
    allowed: Tensor  # [N, S, J]
    waiting: Tensor  # [N, S, J], jobs that have an operation left


def shops_of(machine: Tensor, duration: Tensor, length: Tensor, machines: int) -> ShopBatch:
    """Makes a batch from tables [N, J, K]; entries after a job's last operation are ignored."""
    exists = torch.arange(machine.shape[2], device=machine.device) < length[..., None]
    pad = (0, 1)
    machine = torch.nn.functional.pad(torch.where(exists, machine, machines), pad, value=machines)
    duration = torch.nn.functional.pad(torch.where(exists, duration, 0).float(), pad)
    tail = duration.flip(-1).cumsum(-1).flip(-1)
    load = torch.zeros(len(machine), machines + 1, device=machine.device)
    load.scatter_add_(1, machine.flatten(1), duration.flatten(1))
    unit = (duration.sum((1, 2)) / length.sum(1).clamp(min=1)).clamp(min=1e-6)
    bound = torch.maximum(tail[:, :, 0].amax(1), load.amax(1)).clamp(min=1e-6)
    return ShopBatch(
        machine, duration, tail, length, load, unit[:, None, None], bound[:, None, None]
    )


def batch(instances: Sequence[Instance], device: torch.device | str = "cpu") -> ShopBatch:
    """Packs instances of any sizes, padded to the largest."""
    N = len(instances)
    J, K = (max(size) for size in zip(*(one.machine.shape for one in instances), strict=True))
    machine, duration = np.zeros((2, N, J, K), np.int64)
    length = np.zeros((N, J), np.int64)
    for i, one in enumerate(instances):
        jobs, most = one.machine.shape
        machine[i, :jobs, :most], duration[i, :jobs, :most] = one.machine, one.duration
        length[i, :jobs] = one.lengths
    tables = (torch.from_numpy(table).to(device) for table in (machine, duration, length))
    return shops_of(*tables, machines=max(one.machines for one in instances))


def empty_floor(shops: ShopBatch, schedules: int) -> FloorState:
    """The state before the first dispatch."""
    N, J, _ = shops.machine.shape
    zeros = shops.load.new_zeros(N, schedules, J)
    load = shops.load[:, None].repeat(1, schedules, 1)
    return FloorState(zeros.long(), zeros, torch.zeros_like(load), load)


def at(table: Tensor, k: Tensor) -> Tensor:
    """Entry k [N, S, J] of each job's row of a table [N, J, K + 1]."""
    wide = table[:, None].expand(-1, k.shape[1], -1, -1)
    return wide.gather(3, k[..., None]).squeeze(3)


def apply_dispatch(shops: ShopBatch, floor: FloorState, job: Tensor) -> FloorState:
    """The state after the next operation of job [N, S] is appended to its machine's queue. A job
    that has no operation left changes nothing."""
    index = job[..., None]
    k = floor.next_op.gather(2, index).squeeze(2)
    i = torch.arange(len(k), device=k.device)[:, None]
    machine, duration = (table[i, job, k][..., None] for table in (shops.machine, shops.duration))
    end = torch.maximum(floor.ready.gather(2, index), floor.free.gather(2, machine)) + duration
    done = (k == shops.length.gather(1, job))[..., None]
    end = torch.where(done, floor.ready.gather(2, index), end)
    return FloorState(
        floor.next_op.scatter_add(2, index, (~done).long()),
        floor.ready.scatter(2, index, end),
        floor.free.scatter(2, machine, end),
        floor.left.scatter_add(2, machine, -duration),
    )


def makespan_bound(shops: ShopBatch, floor: FloorState) -> Tensor:
    """A lower bound [N, S, 1] on the makespan: the remaining work of each job and of each
    machine."""
    k = floor.next_op
    start = torch.maximum(floor.ready, floor.free.gather(2, at(shops.machine, k)))
    return least_makespan(floor, k < shops.length[:, None], start, at(shops.tail, k))


def least_makespan(floor: FloorState, waiting: Tensor, start: Tensor, tail: Tensor) -> Tensor:
    """`makespan_bound` from tables [N, S, J]: which jobs have an operation left, when it could
    start, and the job's work from there on."""
    by_job = torch.where(waiting, start + tail, floor.ready)
    by_machine = floor.free + floor.left
    return torch.maximum(by_job.amax(2, keepdim=True), by_machine.amax(2, keepdim=True))


def view_floor(shops: ShopBatch, floor: FloorState) -> FloorView:
    """Features of each job's next operation, and which of them may be dispatched."""
    k, ready = floor.next_op, floor.ready
    waiting = k < shops.length[:, None]
    last = shops.machine.shape[2] - 1
    after = (k + 1).clamp(max=last)
    m, p, tail = at(shops.machine, k), at(shops.duration, k), at(shops.tail, k)
    then, then_p = at(shops.machine, after), at(shops.duration, after)
    free, left = floor.free.gather(2, m), floor.left.gather(2, m)
    then_free, then_left = floor.free.gather(2, then), floor.left.gather(2, then)
    start = torch.maximum(ready, free)
    end = torch.where(waiting, start + p, torch.inf)
    first_end, first = end.min(2, keepdim=True)
    allowed = waiting & (m == m.gather(2, first)) & (start < first_end)
    allowed = allowed.scatter(2, first, waiting.any(2, keepdim=True))
    over = ~waiting.any(2, keepdim=True)

    now = torch.where(waiting, start, torch.inf).amin(2, keepdim=True)
    now, first_end = (torch.where(over, 0.0, time) for time in (now, first_end))
    end_of_all = least_makespan(floor, waiting, start, tail)
    same = (m[..., None] == m[..., None, :]) & waiting[..., None, :]
    rivals = same.sum(3).float()
    rival_work = (same * p[..., None, :]).sum(3)
    jobs = waiting.sum(2, keepdim=True).clamp(min=1).float()
    mean_tail = (tail * waiting).sum(2, keepdim=True) / jobs
    choices = allowed.sum(2, keepdim=True).clamp(min=1).float()
    mean_p = (p * allowed).sum(2, keepdim=True) / choices
    unit, bound = shops.unit, shops.bound
    steps = (shops.length[:, None] - k).float()
    total = shops.length.sum(1)[:, None, None].clamp(min=1).float()
    features = (
        p / unit,
        (start - now) / unit,
        (start + p - first_end) / unit,
        (start - free) / unit,
        (start - ready) / unit,
        (tail - p) / bound,
        (start + tail - end_of_all) / bound,
        (tail - mean_tail) / unit / steps.clamp(min=1).sqrt(),
        left / bound,
        (free + left - end_of_all) / bound,
        steps / shops.length[:, None].clamp(min=1),
        rivals / jobs,
        (rival_work - p) / unit / rivals.clamp(min=1),
        (p - mean_p) / unit,
        choices.expand_as(p) / jobs,
        then_p / unit,
        (then_free - start - p).clamp(min=-4 * unit, max=4 * unit) / unit,
        then_left / bound,
        (then_free + then_left - end_of_all) / bound,
        (end_of_all - bound) / bound + torch.zeros_like(p),
        steps.sum(2, keepdim=True) / total + torch.zeros_like(p),
        allowed.float(),
    )
    return FloorView(torch.stack(features, 3) * waiting[..., None], allowed, waiting)


def operation_features(shops: ShopBatch) -> Tensor:
    """[N, J, K, STATIC]: features of an operation that do not depend on the schedule."""
    duration, tail = shops.duration[..., :-1], shops.tail[..., :-1]
    exists = torch.arange(duration.shape[2], device=duration.device) < shops.length[..., None]
    machine = shops.machine[..., :-1]
    load = shops.load[:, None].expand(-1, duration.shape[1], -1).gather(2, machine)
    whole, unit, bound = tail[:, :, :1], shops.unit, shops.bound
    position = torch.arange(duration.shape[2], device=duration.device)
    count = torch.zeros_like(shops.load).scatter_add(
        1, machine.flatten(1), torch.ones_like(duration).flatten(1)
    )
    crowd = count[:, None].expand(-1, duration.shape[1], -1).gather(2, machine)
    features = (
        duration / unit,
        (whole - tail) / bound,
        (tail - duration) / bound,
        whole.expand_as(tail) / bound,
        load / bound,
        position / shops.length[..., None].clamp(min=1),
        duration / load.clamp(min=1e-6) * crowd,
        duration / whole.clamp(min=1e-6) * shops.length[..., None],
        exists.float(),
    )
    return torch.stack(features, 3) * exists[..., None]


# random shops as an environment


PERCENT = 100.0


class ParsedRows(NamedTuple):
    """Observations as parsed by `RowLayout`."""

    shops: ShopBatch
    view: FloorView
    next_op: Tensor  # [N, 1, J]


class RowLayout:
    """The layout of an observation row: for each of at most J jobs FEATURES numbers of its next
    operation, how many operations it has done and has, and their K machines and K durations.
    Missing jobs and operations are 0."""

    def __init__(self, random: RandomShops) -> None:
        self.jobs, self.machines = random.jobs[1], random.machines[1]
        self.width = FEATURES + 2 + 2 * self.machines

    @property
    def size(self) -> int:
        return self.jobs * self.width

    def write(self, instance: Instance, features: np.ndarray, next_op: np.ndarray) -> np.ndarray:
        row = np.zeros((self.jobs, self.width), np.float32)
        jobs, longest = instance.machine.shape
        cells, tables = row[:jobs], FEATURES + 2
        cells[:, :FEATURES] = features
        cells[:, FEATURES], cells[:, FEATURES + 1] = next_op, instance.lengths
        cells[:, tables : tables + longest] = instance.machine
        cells[:, tables + self.machines : tables + self.machines + longest] = instance.duration
        return row.ravel()

    def read(self, rows: Tensor, mask: Tensor) -> ParsedRows:
        """Parses rows [B, size] with masks [B, jobs]."""
        whole = rows.reshape(len(rows), self.jobs, self.width)
        cuts = [FEATURES, 1, 1, self.machines, self.machines]
        features, next_op, length, machine, duration = whole.split(cuts, 2)
        next_op, length = next_op.long().squeeze(2), length.long().squeeze(2)
        shops = shops_of(machine.long(), duration, length, self.machines)
        now = FloorView(features[:, None], mask[:, None], (next_op < length)[:, None])
        return ParsedRows(shops, now, next_op[:, None])


class DispatchEnv(gym.Env[np.ndarray, int]):
    """Each episode schedules a new random shop. An action is a job whose next operation goes to its
    machine; `info["action_mask"]` has the jobs that may be chosen. The return is minus the percent
    by which the makespan exceeds the shop's lower bound. `info` of the last step has `makespan`,
    `schedule` and `instance`."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(self, random: str | RandomShops, render_mode: str | None = None) -> None:
        self.random = random if isinstance(random, RandomShops) else RandomShops.parse(random)
        self.row_layout, self.render_mode = RowLayout(self.random), render_mode
        self.observation_space = gym.spaces.Box(
            -np.inf, np.inf, (self.row_layout.size,), np.float32
        )
        self.action_space = gym.spaces.Discrete(self.row_layout.jobs)
        self.mask = np.zeros(self.row_layout.jobs, np.bool_)

    def observe(self) -> np.ndarray:
        """The observation; sets the mask and the bound on the makespan."""
        now, jobs = view_floor(self.shops, self.floor), self.instance.jobs
        self.mask = np.zeros(self.row_layout.jobs, np.bool_)
        self.mask[:jobs] = now.allowed[0, 0].numpy()
        self.expected = max(int(makespan_bound(self.shops, self.floor)), self.least)
        next_op = self.floor.next_op[0, 0].numpy()
        return self.row_layout.write(self.instance, now.features[0, 0].numpy(), next_op)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.instance = self.random.draw(self.np_random)
        self.shops, self.least = batch([self.instance]), lower_bound(self.instance)
        self.floor = empty_floor(self.shops, 1)
        self.schedule: Schedule = []
        return self.observe(), {"action_mask": self.mask.copy()}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        job, legal = int(action), np.flatnonzero(self.mask)
        if job not in legal:
            legal_jobs = ", ".join(map(str, legal)) or "none: call reset()"
            raise EnvironmentFault(
                f"{self.instance.name}: job {job} cannot be dispatched now; those that can are "
                f"{legal_jobs}."
            )
        k, before = int(self.floor.next_op[0, 0, job]), self.expected
        self.floor = apply_dispatch(self.shops, self.floor, torch.tensor([[job]]))
        machine, duration = (
            int(t[job, k]) for t in (self.instance.machine, self.instance.duration)
        )
        end = int(self.floor.ready[0, 0, job])
        self.schedule.append(Scheduled(job, k, machine, end - duration, end))
        obs, done = self.observe(), len(self.schedule) == self.instance.operations
        info: dict[str, Any] = {"action_mask": self.mask.copy()}
        if done:
            makespan = max(one.end for one in self.schedule)
            info |= {"makespan": makespan, "schedule": self.schedule, "instance": self.instance}
        reward = PERCENT * (before - self.expected) / self.least
        return obs, reward, done, False, info

    def render(self) -> Any:
        """The Gantt chart of the operations scheduled so far."""
        return render_gantt(self.schedule, self.instance.name, self.render_mode)
