"""The resident engine against the plain one: the same run from the same draws, everything it holds
compared. Without a GPU in Triton's interpreter, a few rounds of each option; on one (make
test-cuda) two hundred updates."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.kernels.dqn_resident_runs import HostRun, ResidentDQNRuns
from tenfold.config.run import Run
from tenfold.engines.resident import MOST_ROUNDS
from tenfold.training.learners import make_learner

PRIORITIZED = "prioritized(0.6, 0.4, 1e-6)"
OPTIONS: dict[str, dict[str, Any]] = {
    "double, Polyak": {},
    "hard target, huber, clipped": {
        "double": False,
        "target": "hard(3)",
        "loss": "huber",
        "clip_norm": 0.5,
    },
    "dueling, three steps, tanh": {
        "dueling": True,
        "n_step": 3,
        "net": {"hidden": [8, 16, 8], "activation": "tanh"},
    },
    "quantiles, dueling": {"distribution": "quantile(5)", "dueling": True},
    "prioritised, a batch in parts, a full ring": {
        "replay": PRIORITIZED,
        "batch_size": 70,
        "n_step": 3,
        "capacity": 70,
        "net": {"hidden": [8]},
    },
    "Boltzmann, three Acrobats, schedules": {
        "env": "tenfold/Acrobot-v1",
        "num_envs": 3,
        "explore": "boltzmann(linear(2, 0.1, 60))",
        "lr": "exponential(1e-2, 1e-3, 80)",
        "every": 2,
        "updates": 2,
    },
    "two cars, accumulated, prioritised": {
        "env": "tenfold/MountainCar-v0",
        "num_envs": 2,
        "accumulate": 2,
        "replay": PRIORITIZED,
    },
}
# networks and batches as large as people use them, on a GPU alone
PRESET = {
    "batch_size": 64,
    "n_step": 3,
    "loss": "huber",
    "target": "hard(25)",
    "clip_norm": 10,
    "net": {"hidden": [64, 64]},
    "lr": "linear(1e-3, 0, 50k)",
    "explore": "epsilon(linear(1, 0.04, 8k))",
}
WIDE: dict[str, dict[str, Any]] = {
    "batch 64": PRESET,
    "batch 128": PRESET | {"batch_size": 128},
    "batch 32, 128 wide": PRESET | {"batch_size": 32, "net": {"hidden": [128, 128]}},
}
MEMORY = ("action", "kind", "ready", "head", "start", "count")


def learner(options: dict[str, Any], starts: int, seed: int = 0) -> Any:
    given = dict(options)
    env, envs = given.pop("env", "tenfold/CartPole-v1"), given.pop("num_envs", 1)
    usual = {
        "name": "dqn",
        "learning_starts": starts,
        "batch_size": 16,
        "capacity": 200,
        "net": {"hidden": [16, 16]},
    }
    return make_learner(
        Run.of(
            {
                "env": env,
                "num_envs": envs,
                "steps": 10_000,
                "engine": "plain",
                "seed": seed,
                "agent": usual | given,
            }
        )
    )


def resident(learners: list[Any], device: str) -> ResidentDQNRuns:
    made = ResidentDQNRuns(
        [HostRun(each.agent, each.replay, each.envs) for each in learners], device
    )
    made.send([each.step for each in learners], [each.rounds for each in learners])
    return made


def require_equal(plain: Any, fast: Any, what: str = "") -> None:
    for name in MEMORY:
        assert np.array_equal(getattr(plain.replay, name), getattr(fast.replay, name)), (what, name)
    for name in ("obs", "reward", "tree", "top"):
        own, other = getattr(plain.replay, name), getattr(fast.replay, name)
        assert np.allclose(own, other, rtol=1e-4, atol=1e-5), (what, name)
    for name in ("states", "length", "episode", "ret"):
        own, other = np.array(getattr(plain.envs, name)), getattr(fast.envs, name)
        assert np.allclose(own, other, rtol=1e-6, atol=1e-6), (what, name)
    assert plain.agent.updates == fast.agent.updates > 0
    assert torch.allclose(plain.agent.block[:4], fast.agent.block[:4], rtol=1e-3, atol=2e-5), what


def compared(options: dict[str, Any], rounds: int, device: str) -> Any:
    plain, fast = learner(options, 8), learner(options, 8)
    episodes = [episode for _ in range(rounds) for episode in plain.round()]
    group = resident([fast], device)
    group.advance(rounds // 2)
    noted = group.finished()
    group.advance(rounds - rounds // 2)
    noted = noted[0] + group.finished()[0]
    group.fetch()
    require_equal(plain, fast)
    assert [(e.env, e.length) for e in episodes] == [(e.env, e.length) for e in noted]
    assert np.allclose([e.ret for e in episodes], [e.ret for e in noted])
    return plain, group


@pytest.mark.parametrize("option", OPTIONS)
def test_rounds_are_the_plain_engines(option: str) -> None:
    plain, group = compared(OPTIONS[option], 14, "cpu")
    sums = plain.engine.sums.numpy()
    found = group.arrays.sums[0].numpy()
    assert np.allclose(found[[0, 1, 2, 4]], sums[[0, 1, 2, 4]], rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("option", OPTIONS | WIDE)
def test_two_hundred_updates_on_the_gpu_are_the_plain_engines(option: str) -> None:
    compared((OPTIONS | WIDE)[option], 208, "cuda")


@pytest.mark.parametrize("warps", [4, 8])
def test_moments_in_memory_are_the_same_as_in_registers(warps: int) -> None:
    plain, fast = learner({"clip_norm": 1.0}, 8), learner({"clip_norm": 1.0}, 8)
    for _ in range(14):
        plain.round()
    group = ResidentDQNRuns([HostRun(fast.agent, fast.replay, fast.envs)], "cpu", warps=warps)
    assert group.shape.moments_in_memory == (warps == 4)
    group.send([0], [0])
    group.advance(14)
    group.fetch()
    require_equal(plain, fast)


@pytest.mark.cuda
@pytest.mark.parametrize("replay", ["uniform", PRIORITIZED])
def test_a_million_rounds_on_the_gpu_keep_memory_and_counts_right(replay: str) -> None:
    """All threads of a program must agree on what is counted, whichever of them was last."""
    option = {"n_step": 3, "replay": replay, "capacity": 5_000, "clip_norm": 1.0, "lr": 1e-4}
    learners = [learner(option, 1_000, seed) for seed in range(100)]
    group, used, played = resident(learners, "cuda"), 0, 0
    while played < 1_000_000:
        group.advance(MOST_ROUNDS)
        group.finished()
        played += MOST_ROUNDS * len(learners)
        used = used or torch.cuda.memory_allocated()
        assert torch.cuda.memory_allocated() <= used
    group.fetch()
    for each in learners:
        memory = each.replay
        assert memory.count[0] == memory.ready.sum() > 4_000
        assert torch.isfinite(each.agent.block[:4]).all()
        if memory.tree.size > 2:
            leaves = memory.tree[memory.tree.size // 2 :][: memory.ready.size]
            assert np.array_equal(leaves > 0, memory.ready)
            assert memory.tree[1] == pytest.approx(leaves.sum())


def test_seeds_side_by_side_are_what_each_is_alone() -> None:
    together = [learner({}, 4, seed) for seed in (3, 8)]
    group = resident(together, "cpu")
    group.advance(8)
    group.fetch()
    for seed, one in zip((3, 8), together, strict=True):
        alone = learner({}, 4, seed)
        single = resident([alone], "cpu")
        single.advance(8)
        single.fetch()
        assert torch.equal(alone.agent.block, one.agent.block)
        assert np.array_equal(alone.replay.obs, one.replay.obs)


def test_two_launches_are_one_long_one_bit_for_bit() -> None:
    halves, whole = learner({}, 4), learner({}, 4)
    group = resident([halves], "cpu")
    group.advance(3)
    group.advance(5)
    group.fetch()
    group = resident([whole], "cpu")
    group.advance(8)
    group.fetch()
    assert torch.equal(halves.agent.block, whole.agent.block)
    assert np.array_equal(halves.replay.obs, whole.replay.obs)
