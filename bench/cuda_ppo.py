"""PPO on a GPU, CartPole, two tanh networks of 64-64, 4 epochs of 4 minibatches: the resident
engine against our plain engine in eager PyTorch on the same card, and against whole iterations
inside one jitted JAX function (bench/peers/jax_ppo.py). One agent with thousands of worlds, and
hundreds of seeds with a few worlds each.

All take turns. A time is of one environment step of one seed, acting and learning included. The
eager engine trains seeds one after another, so one of them stands for all.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from gpu_peers import PRECISIONS, jax_peer
from measure import interleave, timed_row

from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run

Turn = Callable[[], int]  # some iterations; returns the environment steps of all seeds
DEVICE = "cuda"
SIZES = ((1, 4096, 32), (1, 16_384, 32), (256, 16, 64))  # seeds, worlds of each, steps of a rollout
EPOCHS, MINIBATCHES, LR = 4, 4, 2.5e-4
ITERATIONS, TURNS, TOLERANCE = 20, 5, 1e-4


def a_run(envs: int, horizon: int, **more: Any) -> Run:
    """The run of one seed, the same work on every side."""
    agent = {
        "name": "ppo",
        "lr": LR,
        "horizon": horizon,
        "epochs": EPOCHS,
        "minibatches": MINIBATCHES,
        "clip": 0.2,
        "entropy": 0.0,
        "clip_norm": 0.5,
        "net": {"hidden": [64, 64], "activation": "tanh"},
    }
    given = {"env": "tenfold/CartPole-v1", "device": DEVICE, "steps": 10**12, "num_envs": envs}
    return Run.of({**given, "agent": agent, **more})


def eager(seeds: int, envs: int, horizon: int, precision: str) -> Turn:
    """One iteration a turn, of one seed."""
    learner = PPOLearner(a_run(envs, horizon, engine="plain"))

    def turn() -> int:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for _ in range(horizon):
            learner.round()
        torch.backends.cuda.matmul.allow_tf32 = False
        wait()
        return horizon * envs

    return turn


def jitted(seeds: int, envs: int, horizon: int, precision: str) -> Turn:
    jax_ppo = jax_peer("jax_ppo", DEVICE)
    import jax

    work = jax_ppo.Work(envs, horizon, epochs=EPOCHS, minibatches=MINIBATCHES, lr=LR)
    with jax.default_matmul_precision(PRECISIONS[precision]):
        held = [jax_ppo.agents_of(seeds, envs)]
        iterate = jax_ppo.run.lower(held[0], work, ITERATIONS).compile()

    def turn() -> int:
        held[0], _ = jax.block_until_ready(iterate(held[0]))
        return ITERATIONS * seeds * work.steps

    return turn


def policies(seeds: int, envs: int, horizon: int, precision: str) -> tuple[Any, list[PPOLearner]]:
    """So many seeds on the device, and their learners."""
    from tenfold.algorithms.kernels.ppo_resident_runs import HostRun, ResidentPPORuns

    learners = [
        PPOLearner(a_run(envs, horizon, engine="plain", device="cpu", seed=seed))
        for seed in range(seeds)
    ]
    parts: list[Any] = [HostRun(each.agent, each.rollout, each.envs) for each in learners]  # type: ignore[arg-type]
    group = ResidentPPORuns(parts, DEVICE, precision)
    group.send([0] * seeds, [0] * seeds)
    return group, learners


def ours(seeds: int, envs: int, horizon: int, precision: str) -> Turn:
    """ITERATIONS a turn, of all seeds, by the resident engine."""
    group, _ = policies(seeds, envs, horizon, precision)

    def turn() -> int:
        group.advance(ITERATIONS * horizon)
        wait()
        return ITERATIONS * seeds * envs * horizon

    return turn


def difference() -> float:
    """Of parameters and moments after three phases of the plain engine and of ours, fp32, from the
    same start and the same draws."""
    envs, horizon = 64, 32
    group, (learner,) = policies(1, envs, horizon, "fp32")
    group.advance(3 * horizon)
    group.fetch()
    plain = PPOLearner(a_run(envs, horizon, engine="plain", device="cpu"))
    for _ in range(3 * horizon):
        plain.round()
    return float((plain.agent.block[:3] - learner.agent.block[:3]).abs().max())


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def sides(*size: Any) -> dict[str, Turn]:
    """Whoever is there, slowest first."""
    found = {"eager PyTorch": eager(*size)}
    if importlib.util.find_spec("jax"):
        found["whole-iteration JAX"] = jitted(*size)
    return found | {"resident": ours(*size)}


def rows_of(
    seeds: int, envs: int, horizon: int, precision: str, apart: float
) -> list[dict[str, Any]]:
    """The last of all sides against each of the others; JAX draws its own numbers and is compared
    by its work alone."""
    times = interleave(sides(seeds, envs, horizon, precision), TURNS)
    *others, last = times
    setting = {
        "precision": precision,
        "seeds": seeds,
        "worlds": envs,
        "steps": horizon,
        "work": f"{EPOCHS} epochs x {MINIBATCHES} minibatches, 64-64",
        "environment": "CartPole",
    }
    rates = {name: round(1e6 / us) for name, us in times.items()}
    same = "eager PyTorch" if precision == "fp32" else ""  # whose numbers ours are
    return [
        timed_row(
            "cuda-ppo",
            setting,
            (other, times[other]),
            (last, times[last]),
            baseline_per_second=rates[other],
            candidate_per_second=rates[last],
            **({"equal": apart < TOLERANCE, "max_diff": apart} if other == same else {}),
        )
        for other in others
    ]


def ppo() -> list[dict[str, Any]]:
    apart = difference()
    each = ((*size, precision) for size in SIZES for precision in PRECISIONS)
    return [row for given in each for row in rows_of(*given, apart)]


NAMES = {}  # without a GPU
CUDA = {"cuda-ppo": ppo}
