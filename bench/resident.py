"""Q-learning on a GPU, CartPole 64-64, batch 32, one update a step: the resident engine against
eager PyTorch on the same card, and against a whole DQN inside one jitted JAX function, vmapped over
as many seeds (bench/peers/jax_loop.py).

All take turns. A step is act, environment, store, sample and update. Before timing, the resident
engine's run of `CHECKED` rounds is compared with the plain engine's from the same draws; JAX draws
its own numbers and is compared by its work alone, in its own favour: its environment computes in
float32.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from gpu_peers import PRECISIONS, jax_peer
from measure import interleave, timed_row

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run

SEEDS, CHECKED, TOLERANCE = (1, 132, 264), 150, 1e-4
ROUNDS = 500  # of a turn
STARTS = 1000
AGENT = {
    "name": "dqn",
    "lr": 1e-3,
    "target": "hard(500)",
    "double": False,
    "batch_size": 32,
    "capacity": 50_000,
    "learning_starts": STARTS,
    "explore": "epsilon(0.05)",
    "net": {"hidden": [64, 64]},
}
SETTING = {"batch": 32, "hidden": "64,64", "environment": "CartPole"}


def a_run(device: str, **more: Any) -> Run:
    given = {"env": "tenfold/CartPole-v1", "device": device, "steps": 10**9, "agent": AGENT}
    return Run.of(given | more)


def difference() -> float:
    """Of parameters and moments, after rounds of both engines from the same start."""
    early = AGENT | {"learning_starts": 100}
    plain = OffPolicyLearner(a_run("cpu", engine="plain", agent=early))
    fast = OffPolicyLearner(a_run("cuda", engine="resident", agent=early))
    for learner in (plain, fast):
        while learner.step < CHECKED:
            learner.round(CHECKED)
    return float((plain.agent.block[:4] - fast.agent.block[:4].cpu()).abs().max())


def resident_turn(seeds: int, precision: str) -> Callable[[], int]:
    """Items are steps of one seed: all seeds advance together."""
    from tenfold.algorithms.kernels.dqn_resident_runs import HostRun, ResidentDQNRuns

    base = a_run("cpu", engine="plain")
    learners = [OffPolicyLearner(replace(base, seed=seed)) for seed in range(seeds)]
    parts: list[Any] = [HostRun(each.agent, each.replay, each.envs) for each in learners]
    group = ResidentDQNRuns(parts, "cuda", precision)
    group.send([0] * seeds, [0] * seeds)
    group.advance(STARTS + 100)

    def turn() -> int:
        group.advance(ROUNDS)
        torch.cuda.synchronize()
        return ROUNDS

    return turn


def eager_turn() -> Callable[[], int]:
    learner = OffPolicyLearner(a_run("cuda", engine="plain"))
    while learner.step < STARTS + 100:
        learner.round(STARTS + 100)

    def turn() -> int:
        for _ in range(ROUNDS // 10):
            learner.round()
        torch.cuda.synchronize()
        return ROUNDS // 10

    return turn


def jax_turn(seeds: int, precision: str) -> Callable[[], int]:
    jax_loop = jax_peer("jax_loop")
    import jax
    import jax.numpy as jnp
    import peer

    with jax.default_matmul_precision(PRECISIONS[precision]):

        def begin(key: Any) -> Any:
            online = jax_loop.initial(key)
            none = jnp.zeros_like(online)
            world = jax_loop.World(
                jnp.zeros(4),
                jnp.int32(0),
                jnp.zeros((peer.CAPACITY, jax_loop.COLUMNS)),
                jnp.int32(0),
            )
            return world, jax_loop.Learner(online, online.copy(), none, none, jnp.int32(0))

        def rounds(count: int, updates: int) -> Any:
            def of_seed(world: Any, learner: Any, key: Any) -> Any:
                return jax_loop.run.__wrapped__(world, learner, key, count, 1, updates, 32)

            return jax.jit(jax.vmap(of_seed), donate_argnums=(0, 1))

        keys = jax.random.split(jax.random.key(0), seeds)
        state = jax.vmap(begin)(keys)
        *state, _ = rounds(STARTS, 0)(*state, keys)
        step = rounds(ROUNDS, 1)
        *state, _ = jax.block_until_ready(step(*state, keys))

    held = {"state": state, "keys": keys}

    def turn() -> int:
        with jax.default_matmul_precision(PRECISIONS[precision]):
            held["keys"] = jax.vmap(lambda key: jax.random.split(key, 1)[0])(held["keys"])
            *held["state"], _ = jax.block_until_ready(step(*held["state"], held["keys"]))
        return ROUNDS

    return turn


def resident() -> list[dict[str, Any]]:
    apart, rows = difference(), []
    equal = {"equal": apart < TOLERANCE, "max_diff": apart}
    times = interleave({"eager": eager_turn(), "fast": resident_turn(1, "fp32")}, 7)
    given = SETTING | {"seeds": 1, "gpu": torch.cuda.get_device_name()}
    eager, fast = ("eager PyTorch, CUDA", times["eager"]), ("resident, fp32", times["fast"])
    rows.append(timed_row("cuda-dqn", given, eager, fast, **equal))
    for precision in PRECISIONS:
        for seeds in SEEDS:
            times = interleave(
                {"jax": jax_turn(seeds, precision), "fast": resident_turn(seeds, precision)}, 5
            )
            rival = f"whole-loop JAX, vmapped, {PRECISIONS[precision]}", times["jax"] / seeds
            ours = f"resident, {precision}", times["fast"] / seeds
            given = SETTING | {"seeds": seeds, "gpu": torch.cuda.get_device_name()}
            rows.append(timed_row("cuda-dqn", given, rival, ours, equal=None, max_diff=None))
    return rows


NAMES = {}  # without a GPU
CUDA = {"cuda-dqn": resident}
