"""Environments of tensors (examples/cart_swingup.py): ppo and sac on their device, against the same
environment through the host's adapter, whose rows and updates are the plain engine's. Both take
turns; a time is of one environment step of one world, acting and learning included."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from measure import FOLDER, interleave, timed_row

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run
from tenfold.training.learners import make_learner

sys.path.insert(0, str(FOLDER.parent / "examples"))
HOST = {"ppo": PPOLearner, "sac": OffPolicyLearner}
HORIZON, TURNS, TOLERANCE = 32, 7, 1e-3
SIZES = {"cpu": (64, 1024), "cuda": (1024, 4096, 16_384)}  # worlds


def run_of(name: str, worlds: int, device: str, engine: str) -> Run:
    """The same work on both sides: of sac one update to 32 steps."""
    agent: dict[str, Any] = {"name": name, "net": {"hidden": [64, 64]}}
    if name == "ppo":
        agent |= {"horizon": HORIZON, "epochs": 4, "minibatches": 4}
    else:
        agent |= {"every": 32, "learning_starts": worlds}
    return Run.of(
        {
            "env": "cart_swingup:make",
            "num_envs": worlds,
            "steps": 10**12,
            "agent": agent,
            "device": device,
            "engine": engine,
        }
    )


def turn_of(learner: Any, steps: int) -> Callable[[], int]:
    """Plays and learns, to a multiple of so many steps of all worlds."""

    def turn() -> int:
        first = learner.step
        while learner.step < first + steps:
            learner.round(first + steps)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return learner.step - first

    return turn


def difference(device: str) -> float:
    """Of ppo's parameters after two phases on the device and on the host."""
    run = run_of("ppo", 64, device, "plain")
    learners = [make_learner(run), PPOLearner(run)]
    for learner in learners:
        turn_of(learner, 2 * HORIZON * 64)()
    first, second = (learner.agent.online.flat for learner in learners)
    [learner.close() for learner in learners]
    return float((first - second).abs().max())


def row_of(name: str, worlds: int, device: str, apart: float) -> dict[str, Any]:
    engine = "auto" if device == "cuda" else "plain"
    learners = {
        "host adapter": HOST[name](run_of(name, worlds, device, engine)),
        "on the device": make_learner(run_of(name, worlds, device, engine)),
    }
    [learner.warm_up() for learner in learners.values()]
    steps = HORIZON * worlds
    times = interleave({k: turn_of(one, steps) for k, one in learners.items()}, TURNS)
    engines = [one.engine_choice.partition(",")[0] for one in learners.values()]
    [learner.close() for learner in learners.values()]
    equal = {"equal": apart < TOLERANCE, "max_diff": apart} if name == "ppo" else {}
    (baseline, before), (candidate, now) = times.items()
    return timed_row(
        "cuda-tensors" if device == "cuda" else "tensors",
        {"agent": name, "worlds": worlds, "device": device, "engines": ", ".join(engines)},
        (baseline, before),
        (candidate, now),
        baseline_per_second=round(1e6 / before),
        candidate_per_second=round(1e6 / now),
        **equal,
    )


def measured(device: str) -> list[dict[str, Any]]:
    apart = difference(device)
    sizes = SIZES[device]
    return [row_of(name, worlds, device, apart) for name in HOST for worlds in sizes]


NAMES = {"tensors": lambda: measured("cpu")}
CUDA = {"cuda-tensors": lambda: measured("cuda")}
