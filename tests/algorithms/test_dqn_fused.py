"""The fused engine does what the plain one does: batches, gradients, parameters, priorities,
actions; and allocates nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys

from tenfold.algorithms.dqn import DQN_GRAD, DQN_ONLINE, DQNAgent
from tenfold.algorithms.dqn_settings import Prioritized
from tenfold.algorithms.kernels import dqn as kernels
from tenfold.algorithms.kernels.dqn import FusedDQN, dqn_round
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.system import Clock
from tenfold.engines.choose import choose_engine
from tenfold.engines.fused import ALL_STAGES, WEIGHT
from tenfold.engines.lockstep import Mismatch, QLockstep, errors_apart, sums_off
from tenfold.engines.plain import OffPolicyEngine
from tenfold.ops.sampling import make_tree, put
from tenfold.training.loop import resume, train

EVERYTHING = {
    "double": True,
    "dueling": True,
    "n_step": 3,
    "replay": "prioritized",
    "loss": "huber",
    "clip_norm": 0.5,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"double": False},
    {"dueling": True},
    {"n_step": 3},
    {"replay": "prioritized"},
    {"distribution": "quantile(7)"},
    {"target": "polyak(0.01)"},
    {"loss": "huber"},
    {"clip_norm": 0.1},
    {"accumulate": 3},
    {"lr": "exponential(1e-2, 1e-3, 900)"},
    {"net": {"hidden": [9], "activation": "tanh"}},
    {"net": {"hidden": [5, 1, 7], "activation": "elu"}},
    {"net": {"hidden": []}},
    {"batch_size": 1},
    EVERYTHING,
    EVERYTHING | {"distribution": "quantile(5)", "net": {"hidden": [33, 17]}},
]


def place(option: dict[str, Any] | None = None, **run: Any) -> OffPolicyLearner:
    settings = {
        "batch_size": 16,
        "learning_starts": 200,
        "capacity": 2000,
        "target": "hard(10)",
        "net": {"hidden": [32, 32]},
    }
    return OffPolicyLearner(Run.of({"agent": settings | (option or {}), **run}))


def filled(option: dict[str, Any] | None = None, **run: Any) -> OffPolicyLearner:
    """With transitions in the memory and no update yet."""
    found = place(option, **run)
    while found.step < 200:
        found.round(200)
    return found


def names(option: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in option.items())[:60] or "defaults"


@pytest.mark.parametrize("option", OPTIONS, ids=names)
def test_an_update_equals_the_plain_engines(option: dict[str, Any]) -> None:
    """In lockstep: every update from the same state. Parameters agree far better than Adam's step
    of 1e-3."""
    p = filled(option)
    both = QLockstep(p.engine, 1)
    both.update(60, 500, Clock())
    assert both.compared == 60 and both.ties == 0
    assert both.largest < 2e-6


@pytest.mark.parametrize(
    "option", [pytest.param({}, marks=pytest.mark.slow), EVERYTHING], ids=names
)
def test_a_thousand_updates_in_lockstep_while_the_environment_goes_on(
    option: dict[str, Any],
) -> None:
    p = place(option, verify=1)
    while p.agent.updates < 1000:
        p.round()
    assert p.lockstep is not None
    assert p.lockstep.compared + p.lockstep.ties >= 1000 and p.lockstep.ties <= 2
    assert p.lockstep.largest < 2e-6


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"net": {"hidden": [64, 64], "activation": "tanh"}},
        EVERYTHING,
        {"distribution": "quantile(5)", "dueling": True},
    ],
    ids=names,
)
def test_gradients_equal_autograds_layer_by_layer(option: dict[str, Any]) -> None:
    """Against autograd in double precision, on the very batch: one part in a million of each
    tensor's length."""
    p = filled(option | {"clip_norm": None})
    agent, config = p.agent, p.agent.config
    twin = DQNAgent(config, agent.layout, agent.actions, 0)
    for own, other in ((twin.online, agent.online), (twin.target, agent.target)):
        own.load_state_dict(other.state_dict())
        own.double()
    p.engine.update(1, 0, Clock())
    shadow = QLockstep(p.engine, 1)  # its replay gathers the same rows
    b = shadow.plain.replay.batch
    b.row[:] = p.replay.batch.row
    gather_again(shadow)
    assert isinstance(p.engine, FusedDQN)
    b.weight[:] = p.engine.table.arrays["items"][WEIGHT]
    batch = {
        k: (v.double() if v.is_floating_point() else v)
        for k, v in shadow.plain.batch_tensors.items()
    }
    loss, _, _ = twin.loss(batch, None, None, len(b.row))
    loss.backward()
    used = 0
    for name, parameter in twin.online.named_parameters():
        found = agent.block[DQN_GRAD, used : used + parameter.numel()].double()
        expected = parameter.grad.flatten()  # type: ignore[union-attr]
        used += parameter.numel()
        assert (found - expected).norm() <= 1e-6 * expected.norm(), name
        assert expected.norm() > 0


def gather_again(shadow: QLockstep) -> None:
    shadow.plain.replay.gather()


@pytest.mark.parametrize(
    "option", [{}, EVERYTHING, {"target": "polyak(0.1)", "distribution": "quantile(3)"}], ids=names
)
def test_k_updates_in_one_call_equal_k_calls(option: dict[str, Any]) -> None:
    once, singly = filled(option), filled(option)
    once.engine.update(7, 500, Clock())
    for _ in range(7):
        singly.engine.update(1, 500, Clock())
    assert torch.equal(once.agent.block, singly.agent.block)
    assert np.array_equal(once.replay.tree, singly.replay.tree)
    assert once.agent.updates == singly.agent.updates == 7
    assert once.engine.statistics() == singly.engine.statistics()


@pytest.mark.parametrize("option", [{}, EVERYTHING | {"every": 4, "updates": 3}], ids=names)
def test_one_call_a_round_equals_its_parts(option: dict[str, Any]) -> None:
    """A profile's rounds act, store and update by separate calls, which changes no bit."""
    whole, parts = place(option), place(option)
    parts.time_every_round()
    for p in (whole, parts):
        while p.step < 400:
            p.round(400)
    assert torch.equal(whole.agent.block, parts.agent.block)
    assert np.array_equal(whole.replay.obs, parts.replay.obs) and np.array_equal(
        whole.replay.tree, parts.replay.tree
    )
    assert (whole.step, whole.rounds, whole.agent.updates) == (
        parts.step,
        parts.rounds,
        parts.agent.updates,
    )
    assert whole.agent.updates > 100
    assert whole.engine.statistics() == parts.engine.statistics()


@pytest.mark.parametrize("num_envs", [1, 3])
def test_compiled_environments_inside_the_call_equal_single_rounds(num_envs: int) -> None:
    many = place(env="tenfold/CartPole-v1", num_envs=num_envs)
    ended: dict[str, list[Any]] = {"many": [], "single": []}
    calls = 0
    while many.step < 700:
        ended["many"] += [(many.step, e) for e in many.round(700)]
        calls += 1
    single = place(env="tenfold/CartPole-v1", num_envs=num_envs)
    single.time_every_round()
    while single.step < 700:
        ended["single"] += [(single.step, e) for e in single.round()]
    assert ended["many"] == ended["single"] and len(ended["many"]) > 10
    assert (many.step, many.rounds, many.agent.updates) == (
        single.step,
        single.rounds,
        single.agent.updates,
    )
    assert torch.equal(many.agent.block, single.agent.block) and np.array_equal(
        many.replay.obs, single.replay.obs
    )
    assert calls < many.rounds / 3
    # not once more for each number that stands in a call
    assert "Literal" not in str(dqn_round.signatures)


@pytest.mark.parametrize(
    "option",
    [
        {"explore": "epsilon(0.3)"},
        {"explore": "epsilon(0)"},
        {"explore": "epsilon(1)"},
        {"explore": "boltzmann(0.05)"},
        {"explore": "boltzmann(linear(2, 0.01, 300))", "dueling": True},
        {"explore": "epsilon(linear(1, 0, 300))", "distribution": "quantile(4)"},
    ],
    ids=names,
)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_actions_equal_the_plain_engines(option: dict[str, Any], num_envs: int) -> None:
    p = place(option, num_envs=num_envs)
    plain = OffPolicyEngine(p.agent, p.replay, p.envs)
    seen = set()
    for rounds in range(200):
        p.envs.obs[:] = np.random.default_rng(rounds).normal(size=p.envs.obs.shape)
        taken = p.engine.explore(rounds * 2, rounds).tolist()
        assert taken == plain.explore(rounds * 2, rounds).tolist()
        seen.update(taken)
    assert seen == {0, 1}


def test_plain_and_fused_runs_begin_alike_and_drift_no_faster_than_plain_from_the_last_bit() -> (
    None
):
    def updated(engine: str, nudge: bool = False) -> torch.Tensor:
        p = filled(engine=engine)
        if nudge:
            p.agent.block[DQN_ONLINE] = torch.nextafter(
                p.agent.block[DQN_ONLINE], torch.tensor(torch.inf)
            )
        p.engine.update(500, 500, Clock())
        return p.agent.block[DQN_ONLINE].clone()

    plain = updated("plain")
    fused_drift, plain_drift = (
        (plain - updated("fused")).abs().max(),
        (plain - updated("plain", nudge=True)).abs().max(),
    )
    # both grow by chance: the same size, not the same number
    assert 0 < fused_drift <= 3 * plain_drift


def test_images_and_other_whole_numbers_are_scaled_as_the_network_does() -> None:
    p = OffPolicyLearner(
        Run.of(
            {
                "env": "tenfold/Catch-v0",
                "agent": {
                    "net": {"encoder": "mlp", "hidden": [16]},
                    "learning_starts": 100,
                    "capacity": 500,
                },
                "verify": 1,
            }
        )
    )
    assert isinstance(p.engine, FusedDQN)
    while p.agent.updates < 50:
        p.round()
    assert p.lockstep is not None and p.lockstep.compared == 50


@pytest.mark.parametrize("option", [{}, EVERYTHING], ids=names)
def test_a_round_allocates_nothing(option: dict[str, Any]) -> None:
    p = filled(option)
    p.round(220)
    engine = p.engine
    assert isinstance(engine, FusedDQN)

    def allocations(call: Any) -> int:
        before = rtsys.get_allocation_stats().alloc
        for _ in range(50):
            call()
        return rtsys.get_allocation_stats().alloc - before

    _nrt_python.memsys_enable_stats()
    # of the arguments; the call does nothing
    handles = allocations(lambda: engine.call(0, *engine.arguments))
    engine.at(p.step, p.rounds)
    found = allocations(lambda: engine.call(int(ALL_STAGES), *engine.arguments))
    _nrt_python.memsys_disable_stats()
    assert found == handles
    assert engine.agent.updates > 50


def test_verification_catches_a_fast_engine_that_learns_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = kernels.dqn_params

    def wrong(agent: DQNAgent, lanes: int) -> dict[str, np.ndarray]:
        params = original(agent, lanes)
        params["gamma"] *= 0.999
        return params

    monkeypatch.setattr(kernels, "dqn_params", wrong)
    run = Run.of({"agent": {"learning_starts": 200, "capacity": 2000}, "steps": 600, "verify": 50})
    with pytest.raises(Mismatch, match=r"Update 100 .*not the plain one's.*--engine plain"):
        train(run, tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "mismatch-100.safetensors").exists()


def test_priorities_are_compared_by_the_errors_behind_them() -> None:
    """An error of 7e-4 between values of about 40 is known to 1e-5: three roundings. Another item's
    error allows no more."""

    def apart(found: list[float], wanted: list[float], value: float) -> float:
        # the leaves, after what is above them
        one, other = (np.array([0, 0, *errors]) ** 0.6 for errors in (found, wanted))
        return errors_apart(one, other, Prioritized(alpha=0.6), torch.tensor([[1.0, -value]]))

    assert apart([7.1e-4, 1], [7.0e-4, 1], 40) < 1
    assert apart([1.0e-3, 1], [7.0e-4, 1], 40) > 1
    assert apart([7.1e-4, 40], [7.0e-4, 40], 1) > 1
    assert apart([7.0e-4, 40.02], [7.0e-4, 40], 40) > 1


def test_a_sum_of_priorities_that_was_not_renewed_is_caught() -> None:
    tree = make_tree(5)
    put(tree, np.arange(5), np.array([0.3, 1e-4, 2.0, 0.7, 40.0]))
    assert sums_off(tree) < 1e-3
    tree[tree.size // 2 + 1] += 1e-6
    assert sums_off(tree) > 1
    assert sums_off(make_tree(0)) == 0


def test_a_verified_run_says_how_many_updates_were_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.of(
        {
            "agent": {"learning_starts": 200, "capacity": 2000},
            "steps": 700,
            "verify": 50,
            "eval_every": 0,
        }
    )
    train(run, tmp_path / "run")
    words = "verified: 10 updates repeated by the plain engine, largest difference of a parameter"
    assert words in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sessions"][0][
        "verify"
    ].startswith(words)
    assert words in (tmp_path / "run" / "report.html").read_text()


def test_a_run_that_ends_before_an_update_is_compared_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"agent": {"learning_starts": 200, "capacity": 2000}, "eval_every": 0, "steps": 100}
    train(Run.of(settings | {"verify": 50}), tmp_path / "run", report=False)
    words = "nothing was verified: no update was made whose number is a multiple of verify = 50"
    shown = capsys.readouterr().err
    assert words in shown and "verified: 0" not in shown


def test_a_run_can_change_its_engine_when_it_is_resumed(tmp_path: Path) -> None:
    run = Run.of(
        {
            "agent": {"learning_starts": 200, "capacity": 2000},
            "steps": 400,
            "eval_every": 0,
            "engine": "fused",
        }
    )
    train(run, tmp_path / "run", quiet=True)
    result = resume(tmp_path / "run", 600, engine="plain", quiet=True)
    assert (result.run.engine, result.step) == ("plain", 600)
    assert resume(tmp_path / "run", 800, engine="fused", quiet=True).step == 800
    sessions = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    assert [(s["from_step"], s["engine"].split(",")[0], s["device"]) for s in sessions] == [
        (0, "fused", "cpu"),
        (400, "plain", "cpu"),
        (600, "fused", "cpu"),
    ]
    assert (
        "<th>from step 400</th><td>plain, as asked; on cpu; "
        in (tmp_path / "run" / "report.html").read_text()
    )


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"distribution": "implicit"}, "quantiles are implicit"),
        ({"net": {"encoder": "small"}}, "convolutions"),
    ],
    ids=["implicit", "convolutions"],
)
def test_auto_falls_back_aloud_and_fused_refuses(option: dict[str, Any], why: str) -> None:
    env = "tenfold/Catch-v0" if "net" in option else "CartPole-v1"
    p = OffPolicyLearner(Run.of({"env": env, "agent": option | {"capacity": 500}}))
    assert (
        type(p.engine) is OffPolicyEngine
        and why in p.description.engine
        and "not fused" in p.description.engine
    )
    with pytest.raises(ConfigError, match=why):
        choose_engine(replace(p.run, engine="fused"), p.agent, p.replay, p.envs)
    with pytest.raises(ConfigError, match="verify"):
        choose_engine(replace(p.run, verify=10), p.agent, p.replay, p.envs)


def test_updates_of_whole_rounds_are_not_due_again(small_run: Callable[..., Run]) -> None:
    """A run that goes on with actors elsewhere counts what is due from there."""
    learner = OffPolicyLearner(small_run(steps=300, engine="fused"))
    while learner.step < 300:
        learner.round(300)
    assert learner.rounds_by == "engine" and int(learner.state()["serial"]["due_from"]) == 300
