"""Environments in several processes beside the same in one: a step of all of them, by uniform
actions, resets included. Both sides play the same episodes, equal in every bit, in turns.

An environment that sleeps is somewhere else meanwhile, so one process for each shows on any machine
what as many cores would do; those that are busy have one process a core.
"""

import os
from contextlib import ExitStack, closing
from typing import Any

import heavy_environment
import numpy as np
from measure import interleave, timed_row

from tenfold.actors.env_worker import LaneJob
from tenfold.actors.split_envs import SplitEnvironments
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import policy_actions
from tenfold.core.system import set_threads
from tenfold.envs.adapter import Environments
from tenfold.envs.making import make_environments

TURNS, TURN = 11, 0.3  # of each, and seconds of one in one process
STREAM = key(0, Purpose.RANDOM_POLICY)


class Player:
    """Steps environments; what they showed is added up."""

    def __init__(self, envs: Environments) -> None:
        self.envs, self.step, self.sum = envs, 0, np.zeros(envs.num_envs)
        self.actions = policy_actions(envs.action_space, envs.name)

    def play(self, steps: int) -> int:
        envs = self.envs
        for _ in range(steps):
            address = self.step * envs.num_envs + np.arange(envs.num_envs)
            envs.step(self.actions.random(STREAM, address, envs.mask))
            self.sum += envs.reward + envs.obs.reshape(envs.num_envs, -1).sum(1)
            self.step += 1
        return steps


def compare(work: str, name: str, lanes: int, workers: int, cost: float, **more: Any) -> Any:
    """Microseconds of a step of all environments; `cost`: seconds of one of them, about."""
    set_threads(1)
    with ExitStack() as stack:
        one = stack.enter_context(closing(make_environments(name, lanes, 0)))
        with closing(make_environments(name, 1, 0)) as sample:
            job = LaneJob(name, lanes, 0, False, 0, 1, 60.0)
            several = stack.enter_context(closing(SplitEnvironments(sample, job, workers)))
        players, steps = (Player(one), Player(several)), max(2, round(TURN / lanes / cost))
        turns = {
            where: (lambda player=player: player.play(steps))
            for where, player in zip(("one", "several"), players, strict=True)
        }
        times = interleave(turns, TURNS)
        same = bool((players[0].sum == players[1].sum).all())
        return timed_row(
            "split-step",
            {"work": work, "num_envs": lanes, "processes": workers},
            ("one process", times["one"]),
            ("several", times["several"]),
            equal=same,
            max_diff=0.0 if same else None,
            **more,
        )


def split_steps() -> list[dict[str, Any]]:
    cores = len(os.sched_getaffinity(0))
    spins = heavy_environment.spins_for(1e-3)
    busy = f"heavy_environment:Heavy-v0(spins={spins})"
    return [
        compare("5 ms, asleep", "heavy_environment:Asleep-v0(ms=5)", 8, 8, 5e-3, bar=6),
        compare("1 ms, busy", busy, 8, min(8, cores), 1e-3),
        compare("BipedalWalker-v3", "BipedalWalker-v3", 16, min(16, cores), 250e-6),
    ]


NAMES = {"split-step": split_steps}
