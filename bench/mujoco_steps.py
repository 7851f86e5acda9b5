"""MuJoCo tasks in compiled code beside Gymnasium's classes: a step of 16 environments on one and
two threads, and PPO and SAC end to end. Both sides play the same episodes, equal in every bit
(`tests/domains/mujoco`), by uniform actions, resets included.
"""

import os
from typing import Any

import numpy as np
from actors import begun, meters, per_second
from measure import interleave, timed_row

from tenfold.config.run import Run
from tenfold.core.system import set_threads
from tenfold.core.threads import set_team_limit
from tenfold.domains.mujoco import TASKS
from tenfold.domains.mujoco.lanes import MujocoEnvironments, play_task
from tenfold.envs.making import make_env
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.training.learners import make_learner

LANES, STEPS, TURNS = 16, 25, 11
USUAL = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
WIDE = {"net": {"hidden": [256, 256]}}
PPO = {"name": "ppo", "horizon": 128, "minibatches": 32, "epochs": 4, "net": {"hidden": [64, 64]}}
SAC = {"name": "sac", "learning_starts": 300, "capacity": 100_000, **WIDE}


def equal(name: str) -> bool:
    makers = (
        lambda: ScalarEnvironments(name, 2, 1),
        lambda: MujocoEnvironments(name, 2, 1, 0, make_env(name)),
    )
    plain, fast = (play_task(make(), 1.0, 100) for make in makers)
    return all(np.array_equal(*columns) for columns in zip(plain, fast, strict=True))


def compare(name: str, threads: int) -> dict[str, Any]:
    """Microseconds of an environment's step."""
    set_team_limit(threads)
    ours = MujocoEnvironments(name, LANES, 0, 0, make_env(name))
    theirs = ScalarEnvironments(name, LANES, 0)
    space, rng = ours.action_space, np.random.default_rng(0)
    actions = rng.uniform(space.low, space.high, (STEPS, LANES, *space.shape)).astype(np.float32)

    def turn(envs: Any) -> int:
        for row in actions:
            envs.step(row)
        return STEPS * LANES

    times = interleave({"gymnasium": lambda: turn(theirs), "compiled": lambda: turn(ours)}, TURNS)
    same = equal(name)
    row = timed_row(
        "mujoco-step",
        {"env": name, "num_envs": LANES, "threads": threads},
        ("Gymnasium, one by one", times["gymnasium"]),
        ("compiled code", times["compiled"]),
        equal=same,
        max_diff=0.0 if same else None,
    )
    ours.close()
    theirs.close()
    return row


def steps() -> list[dict[str, Any]]:
    counts = sorted({1, 2, len(os.sched_getaffinity(0))})
    return [compare(name, threads) for name in TASKS for threads in counts]


def steps_on_more() -> list[dict[str, Any]]:
    """The five usual tasks on 1, 2, 4, … threads, on the machine of a GPU."""
    cores = len(os.sched_getaffinity(0))
    counts = [1 << k for k in range(cores.bit_length())]
    return [compare(name, threads) for name in USUAL for threads in counts]


def end_to_end() -> list[dict[str, Any]]:
    """HalfCheetah: PPO with 16 environments, SAC 256-256 with one and an update a step."""
    rows = []
    set_threads(1)
    for agent, lanes, turn in ((PPO, 16, 2048), (SAC, 1, 60)):
        set_team_limit(0)
        ours: dict[str, Any] = {
            form: make_learner(
                Run.of(
                    {"env": "HalfCheetah-v5", "num_envs": lanes, "agent": agent, "env_form": form}
                )
            )
            for form in ("gymnasium", "auto")
        }
        for learner in ours.values():
            begun(learner, 2048 if lanes > 1 else 400)
        times = interleave(dict(meters(ours, turn)), 9)
        work = f"{agent['name']}, {lanes} environment{'s' * (lanes > 1)}"
        rows.append(
            per_second(
                "mujoco-runs",
                {"env": "HalfCheetah-v5", "work": work, "hidden": agent["net"]["hidden"]},
                ("Gymnasium, one by one", times["gymnasium"]),
                ("compiled code", times["auto"]),
            )
        )
        for learner in ours.values():
            learner.close()
    return rows


NAMES = {"mujoco-step": steps, "mujoco-runs": end_to_end}
CUDA = {"cuda-mujoco-step": steps_on_more}
