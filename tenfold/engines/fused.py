"""What the fused engines share: everything between two environment steps is ONE compiled call on
the arrays of the agent, the memory and the environments, and many rounds are one call where the
environment is compiled too.

A round is: store the step just made → how many updates are due → update → act. What an update is
and how actions are chosen are slots that an algorithm fills with kernels (`algorithms.kernels`).
Kernels read their arrays and settings from one table (`core.tables`): the agent, the memory and the
environments give their columns, settings are the numbers of `PARAMS`. It does what the plain engine
does, from the same random numbers in the same order. For fully connected networks on the CPU, in
float32.
"""

from typing import Any

import numpy as np

from tenfold.config.options import Episodes
from tenfold.core.kernels import as_numbers, kernel, nanoseconds
from tenfold.core.random import Purpose
from tenfold.core.tables import open_table
from tenfold.core.threads import UPDATES, asked_for, team_threads
from tenfold.core.work import ALL, BLOCK, NO_TEAM, THREADS, pieces_of, team_of
from tenfold.ops.activations import ACTIVATIONS
from tenfold.ops.moments import norm_columns
from tenfold.ops.split_mlp import are_wide

# the settings that kernels read, by the names of the configs' fields, and what is derived from
# them, as kinds of numbers; what an algorithm does not have is 0, and None (no limit) is infinite
PARAMS: dict[str, type] = {
    # of the network and the optimiser
    "activation": int,
    "adam_eps": float,
    "weight_decay": float,
    "clip_norm": float,
    # of the memory
    "gamma": float,
    "n_step": int,
    "prioritized": bool,
    "alpha": float,
    "priority_eps": float,
    # of observations
    "obs_scale": float,
    "norm_clip": float,
    # when updates are due
    "learning_starts": int,
    "every": int,
    "every_episodes": int,
    "updates": int,
    "uniform_warm_up": bool,
    # of target networks
    "tau": float,
    "target_every": int,
    "target_rounds": int,
    # of Q-learning
    "double": bool,
    "dueling": int,
    "atoms": int,
    "huber": bool,
    "categorical": bool,
    "low": float,
    "high": float,
    "boltzmann": bool,
    "noisy": bool,
    # of policies
    "options": int,
    "first_option": int,
    "single": bool,
    "auto_temperature": bool,
    "target_entropy": float,
    "policy_delay": int,
    "smoothing": float,
    "smoothing_clip": float,
    # of PPO
    "lam": float,
    "reward_scale": float,
    "normalize_rollout": bool,
    "normalize_minibatch": bool,
    "value_clipped_alone": bool,
    "value_weight": float,
    "entropy": float,
    "epoch_kl_limit": float,
    "minibatch_kl_limit": float,
    "epochs": int,
    "refuses_empty": bool,
}
SCHEDULES = ("lr", "beta", "exploration", "clip", "value_clip")  # as numbers
FIRST_NUMBER = np.int64(0)  # of a schedule's numbers in its array: where they begin

# parts of a round, to be added up
STORE, UPDATE, ACT = 1, 2, 4
# typed: Numba compiles a function once more for each literal number it is called with
ALL_STAGES = np.int64(7)
# places in `counter`, before those of SPENT
STEP, ROUNDS, DUE = range(3)
# seconds until a run of rounds returns, so that Ctrl-C is heard where environments are slow
PATIENCE = 0.05
# what a compiled round knows of its time, in the last places of its `counter`: nanoseconds by stage
SPENT = ("store", "update", "act")
STORED, UPDATED, ACTED = -3, -2, -1
TIMED = 8  # one round in so many looks at the clock, for the parts that take less than a few µs
# rows of `items`, numbers for each item of a batch, that every algorithm has; its own follow
REWARD, DISCOUNT, WEIGHT, ERROR, OWN_ITEMS = range(5)


def pack_params(agent: Any, exploration: Any = 0, **derived: Any) -> dict[str, np.ndarray]:
    """The agent's settings as numbers for kernels: fields of its config by their names, and those
    that are `derived` from more than a field."""
    config, priorities = agent.config, getattr(agent.config, "priorities", None)
    every = getattr(config, "every", 0)
    if isinstance(every, Episodes):
        derived |= {"every": 1, "every_episodes": every.n}
    derived |= {
        "activation": ACTIVATIONS[config.net.activation],
        "obs_scale": 1.0 if agent.norm else agent.layout.scale,
        "norm_clip": agent.norm.clip if agent.norm else 0,
        "prioritized": bool(priorities),
        "alpha": priorities.alpha if priorities else 0,
        "priority_eps": priorities.eps if priorities else 0,
    }
    limits = (getattr(config, name, None) for name in ("clip", "value_clip"))
    schedules = (config.lr, priorities.beta if priorities else 0, exploration, *limits)
    values = {name: derived.pop(name, getattr(config, name, 0)) for name in PARAMS}
    assert not derived, f"no parameters: {', '.join(derived)}"
    numbers = {
        name: np.array(kind(np.inf if values[name] is None else values[name]))
        for name, kind in PARAMS.items()
    }
    return numbers | {
        name: np.array(as_numbers(np.inf if schedule is None else schedule), np.float64)
        for name, schedule in zip(SCHEDULES, schedules, strict=True)
    }


def norm_arrays(agent: Any) -> dict[str, np.ndarray]:
    """Of observations: how many were seen, and their moments [3, features]; [3, 0] where they are
    not normalised."""
    if agent.norm is None:
        return {"norm_count": np.zeros(1, np.int64), "norm": np.zeros((3, 0))}
    return {"norm_count": agent.norm.count, "norm": agent.norm.moments}


def step_arrays(envs: Any) -> dict[str, np.ndarray]:
    """The environments' last step; masks [B, 0] where all is allowed. Observations, whose kind of
    number is the environment's, are given beside the table."""
    free = np.zeros((envs.num_envs, 0), np.bool_)
    return {
        "e_reward": envs.reward,
        "e_terminated": envs.terminated,
        "e_truncated": envs.truncated,
        "e_skipped": envs.skipped,
        "e_mask": free if envs.mask is None else envs.mask,
        "e_final_mask": free if envs.final_mask is None else envs.final_mask,
    }


def keys_of(agent: Any, *purposes: Purpose) -> np.ndarray:
    return np.array([agent.keys[purpose] for purpose in purposes])


def team_for_updates(rows: int, *networks: Any) -> np.ndarray:
    """The team for updates of networks of these sizes by so many items; none if not wide."""
    if not are_wide(rows, *networks):
        return NO_TEAM.copy()
    threads = team_threads(len(networks) * pieces_of(rows, BLOCK), UPDATES)
    return team_of(threads, measures=not asked_for(UPDATES))


def on_threads(team: np.ndarray) -> str:
    """How many threads share updates, in words; "" where networks are not wide."""
    threads, most = int(team[THREADS]), "up to " if team[ALL] else ""
    return f", updates on {most}{threads} thread{'s' * (threads > 1)}" if threads else ""


def zeros(*shape: int) -> np.ndarray:
    """Zeros that begin with a line of the cache, 64 bytes: a vector that crosses two of them takes
    twice as long to load."""
    size = int(np.prod(shape))
    room = np.zeros(size + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + size].reshape(shape)


# the round


@kernel
def timer_start(rounds):
    """The time where a round is timed, else 0."""
    return nanoseconds() if rounds % TIMED == 0 else 0


@kernel
def timer_stop(counter, stage, began):
    """What passed since `timer_start`, for all the rounds it stands for."""
    if began:
        counter[stage] += (nanoseconds() - began) * TIMED


@kernel(inline="always")
def one_round(store, update, act, stages, table, step, memory, acting):
    """Store the step just made, run the updates that are due, choose the next action: those of the
    three in `stages`, by the kernels `store(table, step)`, `update(table, memory)` and `act(table,
    acting)`, each with the arrays that it needs beside the table. Returns an environment in which
    no action is allowed, or -1."""
    a = open_table(table)
    stuck = -1
    if stages & STORE:
        began = timer_start(a.counter[ROUNDS])
        store(table, step)
        timer_stop(a.counter, STORED, began)
    if stages & UPDATE and a.counter[DUE]:
        began = nanoseconds()
        for _ in range(a.counter[DUE]):
            update(table, memory)
        a.counter[DUE] = 0
        a.counter[UPDATED] += nanoseconds() - began
    if stages & ACT:
        began = timer_start(a.counter[ROUNDS])
        stuck = act(table, acting)
        timer_stop(a.counter, ACTED, began)
    return stuck


@kernel(inline="always")
def many_rounds(play, moves, one_round, stages, most, arguments):
    """Steps `play(*moves)` of a compiled environment, each with a round of these parts, until an
    episode ends or `most` rounds are done. Returns what `play` gave: the number of episodes that
    ended, or less than 0 for a number that is not finite."""
    ended = 0
    while ended == 0 and most > 0:
        ended = play(*moves)
        if ended >= 0:
            one_round(stages, *arguments)
        most -= 1
    return ended


@kernel
def transpose_rows(rows, scale, inputs):
    """Rows [B, features] as the network takes them, [features, B], scaled (1/255 for images)."""
    factor = np.float32(scale)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            inputs[j, i] = rows[i, j] * factor


@kernel(inline="always")
def network_inputs(rows, scale, norm, norm_clip, inputs):
    """Observations [B, features] as networks take them, by the statistics as they are now."""
    transpose_rows(rows, scale, inputs)
    if norm.shape[1]:
        norm_columns(inputs, norm, norm_clip)
