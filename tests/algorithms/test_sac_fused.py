"""The fused engines of sac and td3 do what the plain one does, update by update, allocate nothing,
and go on where they stopped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys

from tenfold.algorithms.kernels.actor_critic import FusedActorCritic
from tenfold.algorithms.kernels.sac import FusedSAC
from tenfold.algorithms.kernels.td3 import FusedTD3
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.system import Clock
from tenfold.engines.choose import choose_engine
from tenfold.engines.fused import ALL_STAGES
from tenfold.engines.lockstep import Mismatch
from tenfold.engines.plain import OffPolicyEngine

PENDULUM, CARTPOLE = "tenfold/Pendulum-v1", "tenfold/CartPole-v1"
EVERYTHING = {
    "n_step": 3,
    "replay": "prioritized",
    "every": 2,
    "updates": 3,
    "tau": 0.1,
    "normalize_obs": True,
}
# an environment and an agent's options
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": (PENDULUM, {"name": "sac"}),
    "sac, everything": ("Pendulum-v1", {"name": "sac", "temperature": 0.3} | EVERYTHING),
    "sac, discrete": (CARTPOLE, {"name": "sac"} | EVERYTHING),
    "td3": (PENDULUM, {"name": "td3"} | EVERYTHING),
    "ddpg": (PENDULUM, {"name": "td3", "critics": 1, "policy_delay": 1, "smoothing": 0}),
}


def place(case: str, **run: Any) -> OffPolicyLearner:
    env, options = CASES[case]
    settings = {
        "batch_size": 16,
        "learning_starts": 60,
        "capacity": 1000,
        "net": {"hidden": [32, 32]},
        **options,
    }
    return OffPolicyLearner(Run.of({"env": env, "agent": settings, **run}))


def played(case: str, steps: int, staged: bool = False, **run: Any) -> OffPolicyLearner:
    """By whole rounds, or by stages."""
    found = place(case, **run)
    if staged:
        found.time_every_round()
    else:
        found.timed_every = 10**9
    while found.step < steps:
        found.round(steps)
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_hundred_updates_equal_the_plain_engines_while_the_environment_goes_on(
    case: str,
) -> None:
    """In lockstep: every update from the same state. Parameters agree far better than Adam's step
    of 3e-4."""
    p = place(case, verify=1)
    assert isinstance(p.engine, FusedActorCritic) and p.lockstep is not None
    while p.agent.updates < 200:
        p.round()
    assert p.lockstep.compared + p.lockstep.ties >= 200 and p.lockstep.ties <= 4
    assert p.lockstep.largest < 2e-6


@pytest.mark.slow
def test_whole_numbers_that_are_seen_are_scaled_as_the_networks_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = {"name": "sac", "net": {"encoder": "mlp", "hidden": [16]}}
    monkeypatch.setitem(CASES, "images", ("tenfold/Catch-v0", images))
    p = place("images", verify=1)
    assert isinstance(p.engine, FusedSAC) and p.replay.obs.dtype == np.uint8
    while p.agent.updates < 50:
        p.round()
    assert p.lockstep is not None and p.lockstep.compared == 50


@pytest.mark.parametrize("case", CASES)
def test_whole_rounds_equal_their_stages_bit_for_bit(case: str) -> None:
    """Timed rounds act, step, store and update by separate calls, and compiled environments step
    inside the call: nothing of that changes a bit."""
    whole, staged = played(case, 240, num_envs=2), played(case, 240, staged=True, num_envs=2)
    assert torch.equal(whole.agent.block, staged.agent.block)
    for name in ("obs", "action", "reward", "tree"):
        assert np.array_equal(getattr(whole.replay, name), getattr(staged.replay, name)), name
    if norm := whole.agent.norm:
        assert norm.count[0] == 242 and np.ptp(norm.mean) > 0
        assert np.array_equal(norm.moments, staged.agent.norm.moments)
    assert (whole.step, whole.rounds, whole.agent.updates) == (
        staged.step,
        staged.rounds,
        staged.agent.updates,
    )
    assert whole.agent.updates > 50
    assert whole.engine.statistics() == staged.engine.statistics()


@pytest.mark.parametrize("case", ["sac", "sac, discrete", "td3"])
def test_actions_equal_the_plain_engines(case: str) -> None:
    p = place(case, num_envs=3)
    plain, actions = OffPolicyEngine(p.agent, p.replay, p.envs), p.agent.actions
    seen = []
    for rounds in range(60):
        p.envs.obs[:] = np.random.default_rng(rounds).normal(size=p.envs.obs.shape)
        seen.append(p.engine.explore(rounds * 2, rounds).copy())
        expected = plain.explore(rounds * 2, rounds)
        np.testing.assert_allclose(seen[-1], expected, rtol=0, atol=2e-6)
        given = np.reshape(p.engine.scaled, (3, -1)), actions.for_env(seen[-1]).reshape(3, -1)
        assert np.array_equal(*given)
    assert len(np.unique(seen)) == (2 if case == "sac, discrete" else 180)


def test_k_updates_in_one_call_equal_k_calls() -> None:
    for case in ("sac, everything", "td3"):
        once, singly = played(case, 60), played(case, 60)
        once.engine.update(7, 500, Clock())
        for _ in range(7):
            singly.engine.update(1, 500, Clock())
        assert torch.equal(once.agent.block, singly.agent.block)
        assert np.array_equal(once.replay.tree, singly.replay.tree)
        assert once.agent.updates == singly.agent.updates == 7


@pytest.mark.parametrize("case", ["sac, everything", "sac, discrete", "td3"])
def test_a_round_allocates_nothing(case: str) -> None:
    p = played(case, 80)
    engine: Any = p.engine

    def allocations(parts: int) -> int:
        before = rtsys.get_allocation_stats().alloc
        for _ in range(50):
            engine.call(parts, *engine.arguments)
        return rtsys.get_allocation_stats().alloc - before

    _nrt_python.memsys_enable_stats()
    handles, before = allocations(0), p.agent.updates  # of the arguments; the call does nothing
    engine.at(p.step, p.rounds)
    found = allocations(int(ALL_STAGES))
    _nrt_python.memsys_disable_stats()
    assert found == handles
    assert p.agent.updates > before + 50


def test_verification_catches_an_engine_that_learns_something_else(tmp_path: Path) -> None:
    p = place("sac", verify=1)
    p.lockstep.folder = tmp_path
    p.engine.table.arrays["gamma"] *= 0.99
    with pytest.raises(Mismatch, match="not the plain one's"):
        while p.agent.updates < 50:
            p.round()
    assert (tmp_path / "mismatch-1.safetensors").exists()


def test_a_learning_rate_that_is_changed_counts_from_the_next_update_on() -> None:
    p = played("sac", 80)
    before = p.agent.online.flat.clone()
    p.set_lr(0.0)
    p.engine.update(3, 80, Clock())
    assert torch.equal(p.agent.online.flat, before)


def test_auto_chooses_it_and_says_why_not_where_it_does_not_fit() -> None:
    assert isinstance(place("sac").engine, FusedSAC)
    assert isinstance(place("td3").engine, FusedTD3)
    settings = {"name": "sac", "capacity": 300, "batch_size": 4, "learning_starts": 10}
    images = {"net": {"encoder": "small", "hidden": [8]}}
    p = OffPolicyLearner(Run.of({"env": "tenfold/Catch-v0", "agent": settings | images}))
    assert type(p.engine) is OffPolicyEngine
    assert "not fused: the network has convolutions (small)" in p.description.engine
    with pytest.raises(ConfigError, match="convolutions"):
        choose_engine(replace(p.run, engine="fused"), p.agent, p.replay, p.envs)
