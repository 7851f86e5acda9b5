"""PPO's device engine against the plain one: the same run from the same draws, everything it holds
compared. Without a GPU in Triton's interpreter, a phase or two of each option; on one (make
test-cuda) many."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl

from tenfold.algorithms.kernels.ppo_resident_runs import HostRun, ResidentPPORuns
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault
from tenfold.envs.device import device_task
from tenfold.ops.device.language import gpu_kernel
from tenfold.training.learners import make_learner

OPTIONS: dict[str, dict[str, Any]] = {
    "two layers": {},
    "clipped values, entropy, unequal minibatches": {
        "value_clip": 0.1,
        "entropy": 0.05,
        "minibatches": 3,
        "lr": "linear(1e-3, 1e-4, 200)",
    },
    "unscaled, not clipped, relu": {
        "clip_norm": None,
        "normalize_advantage": False,
        "clip": 0.01,
        "net": {"hidden": [8, 16, 8], "activation": "relu"},
    },
    "normalised, scaled rewards, an early end": {
        "normalize_obs": True,
        "reward_scale": 0.1,
        "target_kl": 1e-4,
        "epochs": 3,
    },
    "slices, each normalised, clip ranges that fall": {
        "minibatches": None,
        "minibatch_size": 7,
        "normalize_advantage": "minibatch",
        "clip": "table(0:0.3, 20:0.2, 30:0.1)",
        "value_clip": "linear(0.2, 0.01, 30, 10)",
        "value_clip_kind": "clipped",
        "lr": "table(0:1e-2, 60:1e-3)",
    },
    "an end before a step, one row that remains": {
        "minibatches": None,
        "minibatch_size": 23,
        "normalize_advantage": "minibatch",
        "target_kl": 1e-3,
        "kl_stop": "minibatch",
        "epochs": 4,
    },
    "a torque": {"env": "tenfold/Pendulum-v1", "entropy": 0.01, "std": 0.5},
    "a squashed torque": {"env": "tenfold/Pendulum-v1", "squash": True, "net": {"hidden": [8]}},
    "masked components": {"env": "forage:Forage-v0", "entropy": 0.02},
    "two forces": {"env": "forage:Push-v0", "entropy": 0.01, "normalize_obs": True},
    "three options, many lanes": {"env": "tenfold/Acrobot-v1", "num_envs": 35, "horizon": 3},
}
HORIZON = 8
ROWS = (
    "obs",
    "mask",
    "chosen",
    "real",
    "log_p",
    "value",
    "reward",
    "discount",
    "boundary",
    "weight",
)


def learner(options: dict[str, Any], seed: int = 0) -> Any:
    given = dict(options)
    env, envs = given.pop("env", "tenfold/CartPole-v1"), given.pop("num_envs", 3)
    usual = {
        "horizon": HORIZON,
        "epochs": 2,
        "minibatches": 2,
        "net": {"hidden": [16, 16]},
        "lr": 1e-2,
    }
    run = {"env": env, "num_envs": envs, "steps": 10_000, "engine": "plain", "seed": seed}
    return make_learner(Run.of(run | {"agent": {"name": "ppo"} | usual | given}))


def resident(learners: list[Any], device: str) -> ResidentPPORuns:
    seeds = [HostRun(each.agent, each.rollout, each.envs) for each in learners]
    made = ResidentPPORuns(seeds, device)
    made.send([each.step for each in learners], [each.rounds for each in learners])
    return made


def require_equal(plain: Any, fast: Any) -> None:
    there = int(plain.rollout.count[0])
    assert there == fast.rollout.count[0]
    for name in ROWS:
        own, other = getattr(plain.rollout, name), getattr(fast.rollout, name)
        assert np.allclose(own[:there], other[:there], rtol=1e-4, atol=1e-4), name
    for name in ("states", "length", "episode", "ret"):
        own, other = np.array(getattr(plain.envs, name)), getattr(fast.envs, name)
        assert np.allclose(own, other, rtol=1e-6, atol=1e-5), name
    assert np.array_equal(plain.agent.count, fast.agent.count) and plain.agent.count[0] > 0
    assert torch.allclose(plain.agent.block[:3], fast.agent.block[:3], rtol=1e-3, atol=2e-5)
    if plain.agent.norm:
        assert np.array_equal(plain.agent.norm.count, fast.agent.norm.count)
        assert np.allclose(plain.agent.norm.moments, fast.agent.norm.moments, rtol=1e-6)


def compared(options: dict[str, Any], rounds: int, device: str) -> Any:
    plain, fast = learner(options), learner(options)
    episodes = [episode for _ in range(rounds) for episode in plain.round()]
    group = resident([fast], device)
    group.arrays.going.fill_(1)  # as a phase leaves it that did not end early
    group.advance(rounds // 3)
    noted = group.finished()[0]
    group.fetch()  # in the middle of a rollout: what has values then keeps them
    group.advance(rounds - rounds // 3)
    noted += group.finished()[0]
    group.fetch()
    require_equal(plain, fast)
    assert [(e.env, e.length) for e in episodes] == [(e.env, e.length) for e in noted]
    assert np.allclose([e.ret for e in episodes], [e.ret for e in noted])
    return plain, group


@pytest.mark.parametrize("option", OPTIONS)
def test_phases_are_the_plain_engines(option: str) -> None:
    options = OPTIONS[option]
    plain, group = compared(options, 3 * options.get("horizon", HORIZON) // 2, "cpu")
    sums = group.arrays.sums[0].numpy()
    assert np.allclose(sums, plain.engine.sums, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("option", OPTIONS)
def test_two_hundred_updates_on_the_gpu_are_the_plain_engines(option: str) -> None:
    """In lockstep: each phase from equal state, so that errors of the last bits do not grow from
    action to action."""
    plain, fast = learner(OPTIONS[option]), learner(OPTIONS[option])
    group, horizon = resident([fast], "cuda"), plain.agent.config.horizon
    while plain.agent.updates < 200:
        for _ in range(horizon):
            plain.round()
        group.advance(horizon)
        group.fetch()
        fast.step, fast.rounds = plain.step, plain.rounds
        require_equal(plain, fast)
        copy_state(plain, fast)
        group.send([fast.step], [fast.rounds])


def copy_state(plain: Any, fast: Any) -> None:
    fast.agent.block.copy_(plain.agent.block)
    for name in ("states", "length", "episode", "ret"):
        getattr(fast.envs, name)[...] = getattr(plain.envs, name)
    if plain.agent.norm:
        fast.agent.norm.moments[...] = plain.agent.norm.moments


def test_pieces_of_a_phase_are_the_whole_phase_bit_for_bit() -> None:
    pieces, whole = learner({}), learner({})
    group = resident([pieces], "cpu")
    for rounds in (3, 1, 8):
        group.advance(rounds)
        group.find_values()
    group.fetch()
    group = resident([whole], "cpu")
    group.advance(12)
    group.fetch()
    assert torch.equal(pieces.agent.block[:3], whole.agent.block[:3])
    assert np.array_equal(pieces.envs.states, whole.envs.states)


def test_rounds_come_in_whole_phases() -> None:
    group = resident([learner({})], "cpu")
    assert [group.rounded(count) for count in (1, 8, 15, 16, 35)] == [8, 8, 8, 16, 32]
    group.advance(3)
    assert [group.rounded(count) for count in (1, 5, 13, 35)] == [5, 5, 13, 29]


@pytest.mark.cuda
def test_on_a_gpu_nothing_is_compiled_anew_and_memory_stays_as_it_is() -> None:
    import triton

    group = resident([learner({}, seed) for seed in range(3)], "cuda")
    group.advance(HORIZON * 3 + 5)
    compiled: list[Any] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **given: compiled.append(given)
    try:
        used = torch.cuda.memory_allocated()
        for rounds in (3, HORIZON * 100, 1, 16, HORIZON * 2):
            group.advance(rounds)
            group.finished()
        again = resident([learner({}, seed) for seed in range(3)], "cuda")
        again.advance(HORIZON * 3 + 5)
        del again
        torch.cuda.synchronize()
        assert not compiled and torch.cuda.memory_allocated() <= used
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None


def test_a_component_without_an_allowed_option_is_refused_or_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner({"env": "forage:Forage-v0"})  # which registers it
    task = device_task("Forage-v0")
    monkeypatch.setattr(
        "tenfold.algorithms.kernels.ppo_resident_runs.device_task",
        lambda name: replace(task, mask=no_hand),
    )
    group = resident([learner({"env": "forage:Forage-v0"})], "cpu")
    group.advance(2)
    with pytest.raises(
        EnvironmentFault,
        match="environment 2: the action mask allows no option of the action's component 1",
    ):
        group.finished()
    group = resident([learner({"env": "forage:Forage-v0", "on_empty": "absent"})], "cpu")
    group.advance(2)
    group.finished()
    assert (group.arrays.chosen[0, :2, :, 1] == 0).all()


@gpu_kernel
def no_hand(state):
    """Every step is allowed, and nothing else."""
    yes = tl.abs(state[0]) * 0.0 + 1.0
    return yes, yes, yes, yes * 0.0, yes * 0.0, yes * 0.0
