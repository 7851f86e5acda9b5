"""The rules of the job shop: one head per machine, which starts one of the jobs waiting at it or
idles until the next event.

A decision is due whenever a machine is free with a job waiting. All such machines decide at once;
the heads of the others are absent (every option masked, the action ignored). Time then moves to the
next completion of an operation at which a decision is due again. After an operation that takes no
time that may be at once; machines that idled then choose again. An episode ends with the last
operation: it has at most as many steps as there are operations.

Idling is masked where it cannot help. With C the moment at which the first of the waiting jobs
could have ended, had it been started as soon as it was there and the machine free, idling is
allowed only if another job may arrive before C; a schedule that waits longer is not active (that
job fits in without delaying anything), and some optimal schedule is active (Giffler and Thompson,
1960). Without this mask a policy that idles with a probability above one half waits for an event or
two when it is drawn from, and for ever when it is greedy: each decision to wait is asked for again
at the next event. Idling is masked too while no operation runs anywhere, so time always moves; a
decision at which nothing runs therefore starts a job on every machine that has one waiting, and a
schedule that holds one back just then cannot be played (an optimal one of ft06 can: the tests play
it).

The lower bound on the makespan, of which the reward is the decrease. Each operation not yet started
has an earliest start: the end of the operation before it in its job (the running one's, or the
earliest start of the one before plus its duration), or when its machine becomes free, or now,
whichever is last. Then

    bound = max( over jobs:     earliest start of the last operation + its duration, or its end;
                 over machines: least earliest start + the durations + least work of a job after it,
                                of the operations that have not yet started there )

No move lowers it, and at the end it is the makespan. With the largest power of two up to an eighth
of the first bound as `scale`, in every bit

    reward_t = (bound_t − bound_{t+1}) / scale,     Σ reward = −(makespan − first bound) / scale

Times are divided by the first bound, durations by the longest one, so that observations are the
same for any unit of time. Where a job visits a machine more than once, its place there shows the
first of the visits to come; the machine's work is that of all of them.
"""

import math

import gymnasium as gym
import numpy as np

from tenfold.core.kernels import kernel
from tenfold.domains.jobshop.instances import Instance, lower_bound
from tenfold.envs.bases import find_masked_action

# a lane's row: the time, the bound, then the tables that `parts` shows
TIME, BOUND, TABLES = 0, 1, 2
# of `routes` [3, jobs, operations of the longest job]; the tail is the job's work after the
# operation
MACHINE, DURATION, TAIL = 0, 1, 2
# numbers in an observation; a place is a job at a machine
PER_SHOP, PER_JOB, PER_MACHINE, PER_PLACE = 2, 6, 5, 4
NEVER = np.int64(2**62)


def shop_of(instance: Instance) -> tuple[np.ndarray, np.ndarray, float]:
    """An instance for the kernels: routes, units (first bound, longest duration), scale of the
    reward."""
    ends = instance.duration.cumsum(1)
    first = lower_bound(instance)
    routes = np.stack([instance.machine, instance.duration, ends[:, -1:] - ends])
    return (
        routes,
        np.array([first, instance.duration.max()]),
        2.0 ** math.floor(math.log2(first / 8)),
    )


def row_size(instance: Instance) -> int:
    return TABLES + 2 * instance.jobs + instance.machines + instance.machine.size


def scratch(instance: Instance) -> np.ndarray:
    """Working memory of `observe`."""
    return np.zeros((6, max(instance.jobs, instance.machines)), np.int64)


def observation_space(instance: Instance) -> gym.spaces.Box:
    """Something always runs, so no time exceeds all the work, which is at most machines × the
    bound."""
    pairs = instance.jobs * instance.machines
    size = PER_SHOP + PER_JOB * instance.jobs + PER_MACHINE * instance.machines + PER_PLACE * pairs
    return gym.spaces.Box(0, instance.machines, (size,), np.float32)


def action_space(instance: Instance) -> gym.spaces.MultiDiscrete:
    return gym.spaces.MultiDiscrete([instance.jobs + 1] * instance.machines)


# one row


@kernel
def views(row, jobs, longest):
    """Views of a row: each job's next operation, when its last one ends, when each machine's last
    one ends, when each operation started (those of job j from j · longest on; longest is the number
    of operations of the longest job. A view of two dimensions would cost more than a step)."""
    a, b, c = TABLES + jobs, TABLES + 2 * jobs, len(row) - jobs * longest
    return row[TABLES:a], row[a:b], row[b:c], row[c:]


@kernel
def begin(row, jobs, longest, first):
    row[:] = 0
    row[BOUND] = first
    views(row, jobs, longest)[3][:] = -1


@kernel
def machine_of(routes, j, k):
    """The machine of a job's operation, −1 where the job has no such operation."""
    return routes[MACHINE, j, k] if k < routes.shape[2] else -1


@kernel
def worth_waiting(routes, row, mask, m):
    """Whether a job that does not wait at machine m may arrive there before the first of those that
    do could have ended."""
    _, jobs, longest = routes.shape
    next_op, ready, free, _ = views(row, jobs, longest)
    end = NEVER
    for j in range(jobs):
        if mask[m * (jobs + 1) + j]:
            end = min(end, max(ready[j], free[m]) + routes[DURATION, j, next_op[j]])
    for j in range(jobs):
        if not mask[m * (jobs + 1) + j]:
            k, at = next_op[j], max(ready[j], row[TIME])
            while at < end and machine_of(routes, j, k) >= 0:
                if routes[MACHINE, j, k] == m:
                    return True
                at = max(at, free[routes[MACHINE, j, k]]) + routes[DURATION, j, k]
                k += 1
    return False


@kernel
def allow(routes, row, mask):
    """Writes the legal options [machines · (jobs + 1)]. Returns the number of jobs that wait at
    free machines."""
    _, jobs, longest = routes.shape
    next_op, ready, free, _ = views(row, jobs, longest)
    time, running, waiting = row[TIME], False, 0
    mask[:] = False
    for m in range(len(free)):
        running |= free[m] > time
    for j in range(jobs):
        m = machine_of(routes, j, next_op[j])
        if m >= 0 and ready[j] <= time and free[m] <= time:
            mask[m * (jobs + 1) + j] = True
            mask[m * (jobs + 1) + jobs] = running
            waiting += 1
    for m in range(len(free)):
        if mask[m * (jobs + 1) + jobs]:
            mask[m * (jobs + 1) + jobs] = worth_waiting(routes, row, mask, m)
    return waiting


@kernel
def advance(routes, row, action, mask):
    """Starts the chosen operations and moves to the next decision; writes its options into `mask`.
    Returns whether the episode has ended."""
    _, jobs, longest = routes.shape
    next_op, ready, free, start = views(row, jobs, longest)
    at_once = False
    for m in range(len(free)):
        j = action[m]
        if 0 <= j < jobs and mask[m * (jobs + 1) + j]:
            k = next_op[j]
            start[j * longest + k] = row[TIME]
            ready[j] = free[m] = row[TIME] + routes[DURATION, j, k]
            next_op[j] += 1
            at_once |= routes[DURATION, j, k] == 0
    if at_once and allow(routes, row, mask) > 0:
        return False
    while True:
        event = NEVER
        for m in range(len(free)):
            if row[TIME] < free[m] < event:
                event = free[m]
        if event == NEVER:
            return True
        row[TIME] = event
        if allow(routes, row, mask) > 0:
            return False


@kernel
def observe(routes, units, row, work, obs):
    """Writes the observation and the row's bound.

    Shop: time, rise of the bound. Job: work left, operations left, until its operation ends, how
    long it has waited, distance of its own bound from the shop's, duration of its next operation.
    Machine: until it is free, work left, jobs waiting, distance of its own bound, whether it
    decides now. Place (machine by machine): whether the job waits there, how long it would then
    run, whether it is still to come, how soon it could start.
    """
    _, jobs, longest = routes.shape
    next_op, ready, free, _ = views(row, jobs, longest)
    machines, time, unit, slowest = len(free), row[TIME], units[0], units[1]
    of_job, least, tail, load, queue, left = work[0], work[1], work[2], work[3], work[4], work[5]
    for m in range(machines):
        least[m], tail[m], load[m], queue[m] = NEVER, NEVER, 0, 0
    places = PER_SHOP + PER_JOB * jobs + PER_MACHINE * machines
    obs[places:] = 0
    for j in range(jobs):
        left[j] = 0
        at = ready[j] if machine_of(routes, j, next_op[j]) < 0 else max(ready[j], time)
        for k in range(next_op[j], longest):
            m = routes[MACHINE, j, k]
            if m < 0:
                break
            left[j] += 1
            at = max(at, free[m])
            least[m], tail[m] = min(least[m], at), min(tail[m], routes[TAIL, j, k])
            load[m] += routes[DURATION, j, k]
            o = places + PER_PLACE * (m * jobs + j)
            if k == next_op[j] and ready[j] <= time:
                queue[m] += 1
                obs[o] = 1
                obs[o + 1] = routes[DURATION, j, k] / slowest
            if obs[o + 2] == 0:  # the first visit to come
                obs[o + 2] = 1
                obs[o + 3] = (at - time) / unit
            at += routes[DURATION, j, k]
        of_job[j] = at
    bound = of_job[0]
    for j in range(1, jobs):  # its max() takes a second to compile
        bound = max(bound, of_job[j])
    for m in range(machines):
        least[m] = least[m] + load[m] + tail[m] if least[m] < NEVER else free[m]
        bound = max(bound, least[m])
    row[BOUND] = bound
    observe_jobs_and_machines(routes, units, row, work, obs)


@kernel
def observe_jobs_and_machines(routes, units, row, work, obs):
    """The observation without its places, from the work of `observe`."""
    _, jobs, longest = routes.shape
    next_op, ready, free, _ = views(row, jobs, longest)
    time, bound, unit, slowest = row[TIME], row[BOUND], units[0], units[1]
    of_job, least, load, queue, left = work[0], work[1], work[3], work[4], work[5]
    obs[0], obs[1] = time / unit, (bound - unit) / unit
    for j in range(jobs):
        o, k = PER_SHOP + PER_JOB * j, next_op[j]
        obs[o] = (routes[DURATION, j, k] + routes[TAIL, j, k]) / unit if left[j] else 0
        obs[o + 1] = left[j] / longest
        obs[o + 2] = max(ready[j] - time, 0) / slowest
        obs[o + 3] = max(time - ready[j], 0) / unit if left[j] else 0
        obs[o + 4] = (bound - of_job[j]) / unit
        obs[o + 5] = routes[DURATION, j, k] / slowest if left[j] else 0
    for m in range(len(free)):
        o = PER_SHOP + PER_JOB * jobs + PER_MACHINE * m
        obs[o] = max(free[m] - time, 0) / slowest
        obs[o + 1] = load[m] / unit
        obs[o + 2] = queue[m] / jobs
        obs[o + 3] = (bound - least[m]) / unit
        obs[o + 4] = 1 if queue[m] > 0 and free[m] <= time else 0


# all lanes


@kernel
def restart(routes, units, row, work, obs, mask):
    """Resets a row to the first decision of an episode."""
    begin(row, routes.shape[1], routes.shape[2], units[0])
    allow(routes, row, mask)
    observe(routes, units, row, work, obs)


@kernel
def show_all(routes, units, state, work, obs, mask):
    """Writes observations and options of all rows."""
    for i in range(len(state)):
        allow(routes, state[i], mask[i])
        observe(routes, units, state[i], work, obs[i])


@kernel
def copy_into(target, source):
    """A loop: for `target[:] = source` Numba spends seconds compiling the error message about
    shapes that differ."""
    for k in range(source.size):
        target[k] = source[k]


@kernel
def play_all(
    action,
    routes,
    units,
    scale,
    state,
    work,
    length,
    episode,
    obs,
    final_obs,
    mask,
    reward,
    terminated,
    ret,
    last,
    last_makespan,
    last_state,
):
    """One step of every lane, SAME_STEP: where an episode ended, final_obs has its last
    observation, last_makespan and last_state its result, and obs and mask belong to the next one's
    first decision. The first rows of `last` [B, 3] are the episodes that ended: lane, return,
    length.

    Returns the number of episodes that ended; a masked action is refused before any lane moves.
    """
    ended = find_masked_action(action, mask)
    if ended:
        return ended
    for i in range(len(state)):
        before = state[i, BOUND]
        terminated[i] = advance(routes, state[i], action[i], mask[i])
        observe(routes, units, state[i], work, obs[i])
        reward[i] = (before - state[i, BOUND]) / scale
        ret[i] += reward[i]
        length[i] += 1
        if terminated[i]:
            last[ended, 0], last[ended, 1], last[ended, 2] = i, ret[i], length[i]
            last_makespan[i] = state[i, TIME]
            copy_into(last_state[i], state[i])
            copy_into(final_obs[i], obs[i])
            episode[i] += 1
            length[i], ret[i] = 0, 0.0
            restart(routes, units, state[i], work, obs[i], mask[i])
            ended += 1
    return ended
