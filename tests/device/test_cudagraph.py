"""Updates as graphs: the same code with and without a GPU. Without one a graph does its work anew,
so that everything but the recording is held to the plain engine here; tests marked `cuda` are the
same on one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.registry import algorithm, import_by_name
from tenfold.engines.cudagraph import CudaGraph
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train

SMALL: dict[str, Any] = {
    "name": "dqn",
    "learning_starts": 20,
    "batch_size": 8,
    "capacity": 80,  # so that few updates go around it
    "target": "hard(3)",
    "net": {"hidden": [12, 9]},
}
POLICY: dict[str, Any] = {
    "name": "ppo",
    "horizon": 13,
    "epochs": 3,
    "minibatches": 3,
    "net": {"hidden": [12, 9]},
}
IMPLICIT = "implicit(samples=3, target_samples=4, cosines=6, acting=5)"
CARTPOLE, IMAGES, TEAM = "tenfold/CartPole-v1", "tenfold/Catch-v0", "tenfold/TreasureSmall-v0"
Q_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": (CARTPOLE, {}),
    "single": (CARTPOLE, {"double": False, "loss": "huber", "clip_norm": 0.5}),
    "dueling": (CARTPOLE, {"dueling": True, "target": "polyak(0.1)"}),
    "several": (CARTPOLE, {"updates": 11, "every": 3, "lr": "linear(1e-2, 1e-3, 300)"}),
    "n-step": (CARTPOLE, {"n_step": 3, "frames": 3}),
    "prioritised": (CARTPOLE, {"replay": "prioritized", "n_step": 2, "updates": 3}),
    "quantile": (CARTPOLE, {"distribution": "quantile(5)", "accumulate": 3}),
    "implicit": (CARTPOLE, {"distribution": IMPLICIT, "replay": "prioritized"}),
    "noisy": (CARTPOLE, {"explore": "noisy"}),
    "categorical": (CARTPOLE, {"distribution": "categorical(7, 0, 20)", "replay": "prioritized"}),
    "masked": ("Taxi-v3", {"n_step": 2, "double": False}),
    "boltzmann": (CARTPOLE, {"explore": "boltzmann"}),
    "images": (IMAGES, {"net": {"encoder": "small", "hidden": [12]}, "frames": 2}),
    "decay": (CARTPOLE, {"weight_decay": 30.0, "net": {"hidden": [9], "activation": "gelu"}}),
    "team": (TEAM, {"distribution": IMPLICIT, "explore": "noisy", "clip_norm": 1.0}),
    "team small": (TEAM, {"dueling": True}),
    "team prioritised": (TEAM, {"replay": "prioritized", "frames": 2, "n_step": 3}),
}
ACTOR: dict[str, Any] = {
    "learning_starts": 20,
    "batch_size": 8,
    "capacity": 80,  # so that few updates go around it
    "tau": 0.1,
    "net": {"hidden": [12, 9]},
}
PENDULUM = "tenfold/Pendulum-v1"
ACTOR_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": (PENDULUM, {"name": "sac"}),
    "sac, given temperature": (PENDULUM, {"name": "sac", "temperature": 0.3, "n_step": 3}),
    "sac, prioritised": (PENDULUM, {"name": "sac", "replay": "prioritized", "updates": 2}),
    "sac, several": (
        PENDULUM,
        {"name": "sac", "updates": 11, "every": 3, "lr": "linear(1e-2, 1e-3, 300)"},
    ),
    "sac, discrete": (CARTPOLE, {"name": "sac", "temperature": "auto(0.5, 0.2)"}),
    "sac, images": (IMAGES, {"name": "sac", "net": {"encoder": "small", "hidden": [12]}}),
    "td3": (PENDULUM, {"name": "td3"}),
    "td3, several": (PENDULUM, {"name": "td3", "updates": 5, "policy_delay": 3}),
    "sac, critics apart": (
        PENDULUM,
        {
            "name": "sac",
            "weight_decay": 30.0,
            "net": {"hidden": [9], "value_hidden": [6, 5], "activation": "silu"},
        },
    ),
    "ddpg": (
        PENDULUM,
        {"name": "td3", "critics": 1, "policy_delay": 1, "smoothing": 0, "replay": "prioritized"},
    ),
}
Q_CASES |= ACTOR_CASES
WIDE: dict[str, Any] = {"batch_size": 16, "net": {"hidden": [64, 64]}}
WIDE_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac, wide": (PENDULUM, {"name": "sac", "n_step": 3} | WIDE),
    "sac, wide, prioritised": (
        PENDULUM,
        {"name": "sac", "temperature": 0.3, "replay": "prioritized"} | WIDE,
    ),
    "td3, wide": (PENDULUM, {"name": "td3"} | WIDE),
    "td3, wide, several": (PENDULUM, {"name": "td3", "updates": 3, "policy_delay": 3} | WIDE),
}
Q_CASES |= WIDE_CASES
POLICY_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "discrete": (CARTPOLE, {"value_clip": 0.1, "entropy": 0.01, "normalize_obs": True}),
    "whole": (CARTPOLE, {"minibatches": 1, "clip_norm": None, "horizon": 12}),
    "many": (CARTPOLE, {"minibatches": 13, "horizon": 13, "lr": "linear(1e-2, 1e-3, 300)"}),
    "box": ("tenfold/Pendulum-v1", {"squash": True, "entropy": 0.01}),
    "gaussian": ("tenfold/Pendulum-v1", {"entropy": 0.01, "value_clip": 0.2}),
    "masked": ("tenfold/Assign-v0", {}),
    "counterfactual": ("tenfold/Assign-v0", {"baseline": "counterfactual"}),
    "absent": ("tenfold/JobShop-v0(instance=ft06)", {"on_empty": "absent"}),
    "images": (IMAGES, {"net": {"encoder": "small", "hidden": [12]}}),
    "shared body": (
        IMAGES,
        {"net": {"encoder": "small", "hidden": [12, 7], "shared_body": True}, "weight_decay": 30.0},
    ),
    "value apart": (
        CARTPOLE,
        {"net": {"hidden": [9], "value_hidden": [], "init": "torch"}, "weight_decay": 30.0},
    ),
    "target_kl": (CARTPOLE, {"target_kl": 1e-3, "lr": 1e-2}),
    "slices": (
        CARTPOLE,
        {
            "minibatches": None,
            "minibatch_size": 7,
            "normalize_advantage": "minibatch",
            "clip": "table(0:0.3, 30:0.1)",
            "value_clip": "linear(0.2, 0.01, 30, 10)",
            "value_clip_kind": "clipped",
        },
    ),
    "target_kl, minibatch": (
        "tenfold/Pendulum-v1",
        {"minibatches": 5, "target_kl": 1e-3, "kl_stop": "minibatch", "lr": 1e-2},
    ),
}


def remembering(memory: str, **more: Any) -> dict[str, Any]:
    """Settings of a policy that remembers."""
    net = {"hidden": [9], "memory": memory} | more.pop("net", {})
    return {"name": "ppo", "horizon": 12, "epochs": 2, "net": net} | more


SHORT = "(max_episode_steps=7)"
LANES = 5  # minibatches of two and three of them
REMEMBERING = {
    "lstm": (
        CARTPOLE + SHORT,
        remembering("lstm(5)", minibatches=2, value_clip=0.1, entropy=0.01, normalize_obs=True),
    ),
    "gru, real": ("tenfold/Pendulum-v1" + SHORT, remembering("gru(7)", minibatches=5)),
    "gru, masked": ("tenfold/Assign-v0", remembering("gru(5)", horizon=10, minibatches=7)),
    "lstm, absent": (
        "tenfold/JobShop-v0(instance=ft06)",
        remembering("lstm(4)", on_empty="absent", minibatches=1),
    ),
    "lstm, images": (IMAGES, remembering("lstm(4)", net={"encoder": "small"}, epochs=1)),
    "layers behind": (
        CARTPOLE + SHORT,
        remembering("lstm(5)", minibatches=2, net={"value_hidden": [4], "after": [6]}),
    ),
    "gru, target_kl": (CARTPOLE, remembering("gru(5)", target_kl=1e-7, lr=1e-2)),
}
POLICY_CASES |= REMEMBERING


def rarely(case: str) -> Any:
    """One that takes long, as some do in Triton's interpreter."""
    return pytest.param(case, marks=pytest.mark.slow)


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)],
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine runs on the CPU as well."""
    for kind in map(algorithm, ("dqn", "ppo", "sac", "td3")):
        entry = replace(kind.engines["cudagraph"], device="")
        monkeypatch.setitem(kind.engines, "cudagraph", entry)
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in flags]
    yield request.param
    for each, value in zip(flags, before, strict=True):
        each.allow_tf32 = value


def a_run(env: str, agent: dict[str, Any], engine: str, device: str, **more: Any) -> Run:
    small = {"ppo": POLICY, "sac": ACTOR, "td3": ACTOR}.get(agent.get("name", ""), SMALL)
    if device == "cuda" and agent.get("batch_size") == WIDE["batch_size"]:
        agent = agent | {"batch_size": 64}  # the least that a GPU's tiles take
    given = {"env": env, "num_envs": 2, "engine": engine, "device": device, "eval_every": 0}
    return Run.of(given | {"agent": small | agent} | more)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are differentiated by kernels on the CPU as well, in Triton's interpreter."""
    monkeypatch.setattr("tenfold.engines.cudagraph.has_kernels", lambda device: True)


def per_layer(agent: Any) -> list[torch.Tensor]:
    return [p.grad.detach().cpu().clone() for p in agent.online.parameters() if p.numel()]


def assert_same_update(fast: Any, plain: Any, lr: float) -> None:
    # sums over all places of an image have another order in a convolution's own kernels
    allowed = 1e-5 if fast.agent.config.net.encoder == "mlp" else 2e-5
    least = 2e-2  # sums of terms of about 1 have a last bit of 1e-7, however small they are
    if hasattr(fast.agent, "actor_parts"):
        # both critics are groups of one convolution; the policy's gradient is a difference of
        # values of about 1, and has their rounding in each of a layer's hundreds of numbers
        allowed, least = 2.5 * allowed, 5e-2
        # matrix units cut a product's sum where others round it
        allowed *= 4 if fast.engine.in_tiles else 1
    for own, other in zip(per_layer(fast.agent), per_layer(plain.agent), strict=True):
        scale = max(float(other.norm()), least)
        assert float((own - other).norm()) <= allowed * scale
    apart = (fast.agent.online.flat - plain.agent.online.flat.to(fast.agent.device)).abs().max()
    assert float(apart) <= 1e-6 + 0.01 * lr


def copy_state(plain: Any, fast: Any) -> None:
    """The plain engine's state into the fast one's, so that errors of the last bits do not add
    up."""
    fast.agent.block.copy_(plain.agent.block)
    fast.agent.count[:] = plain.agent.count


OFTEN = (
    *("defaults", "dueling", "prioritised", "implicit", "noisy", "masked", "images"),
    *("team prioritised", "sac", "sac, several", "sac, critics apart", "decay", "td3"),
)


@pytest.mark.parametrize(
    ("case", "updates"),
    [
        *((case, 40) for case in OFTEN),
        *(pytest.param(case, 200, marks=pytest.mark.slow) for case in Q_CASES),
    ],
)
def test_updates_are_the_plain_engines(case: str, updates: int, device: str) -> None:
    hold_updates(case, device, updates)


@pytest.mark.parametrize(
    "case",
    [
        "defaults",
        "single",
        "dueling",
        "quantile",
        "implicit",
        "masked",
        rarely("images"),
        rarely("team small"),
        "sac, wide",
        rarely("sac, wide, prioritised"),
        rarely("td3, wide"),
        rarely("td3, wide, several"),
    ],
)
def test_updates_by_kernels_are_the_plain_engines(kernels: None, case: str, device: str) -> None:
    hold_updates(case, device, 4)  # the target follows within


def hold_updates(case: str, device: str, wanted: int) -> None:
    env, option = Q_CASES[case]
    plain, fast = (
        make_learner(a_run(env, option, engine, device)) for engine in ("plain", "cudagraph")
    )
    assert fast.description.name == "cudagraph"
    if case in WIDE_CASES:
        assert fast.engine.in_tiles == fast.engine.by_kernels
    made = 0
    while made < wanted:
        for place in (plain, fast):
            place.learn = lambda: False  # type: ignore[method-assign]
            place.round()
        assert np.array_equal(plain.replay.head, fast.replay.head)
        if plain.step < 30:
            continue
        count = option.get("updates", 1)
        for place in (plain, fast):
            place.engine.update(count, plain.step, place.clock)
        made += count
        if count == 1:
            assert_same_update(fast, plain, 5e-4)
        # the first steps of Adam are as long for a gradient of nothing but rounding
        allowed = 1e-5 if count == 1 else 1e-3
        assert torch.allclose(
            plain.agent.target.flat, fast.agent.target.flat, rtol=1e-3, atol=allowed
        )
        assert np.array_equal(plain.replay.batch.row[-1:], fast.replay.batch.row[-1:])
        copy_state(plain, fast)
        for own, other in zip(fast.replay.memories, plain.replay.memories, strict=True):
            assert np.allclose(own.tree, other.tree, rtol=1e-3, atol=1e-4)
            assert np.array_equal(own.count, other.count)
            own.tree[:], own.top[:] = other.tree, other.top
    if wanted >= 40 and "updates" not in option:  # around the memory
        assert (plain.replay.head > plain.replay.memories[0].lane_rows).all()
    assert fast.engine.statistics() == pytest.approx(plain.engine.statistics(), rel=1e-3, abs=1e-5)


def wide_run(device: str, **more: Any) -> Run:
    return a_run(
        PENDULUM, {"name": "sac", "learning_starts": 10} | WIDE, "cudagraph", device, **more
    )


@pytest.mark.parametrize("made", [2, 0])  # updates before a large number comes
def test_large_numbers_are_left_to_pytorchs_products(kernels: None, made: int, device: str) -> None:
    """A row that 16-bit halves could not hold is noticed before an update draws it."""
    plain, fast = (
        make_learner(replace(wide_run(device), engine=e)) for e in ("plain", "cudagraph")
    )
    for place in (plain, fast):
        place.learn = lambda: False  # type: ignore[method-assign]
        while place.step < 12:
            place.round()
        for _ in range(made):
            place.engine.update(1, place.step, place.clock)
        place.replay.obs[place.replay.head[0]] = 1e5
        place.round()
        place.round()
    assert fast.engine.in_tiles and not fast.engine.large
    copy_state(plain, fast)
    for place in (plain, fast):
        place.engine.update(1, place.step, place.clock)
    assert fast.engine.large
    assert_same_update(fast, plain, 5e-4)
    assert fast.engine.notices[0].startswith("Numbers inside the networks are as large as 100,000")
    again = make_learner(wide_run(device))
    again.load_state(fast.state())
    assert again.engine.large


def test_large_numbers_inside_of_networks_are_looked_for(
    kernels: None, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr("tenfold.algorithms.kernels.actor_critic_gpu.LOOKED_AT", 2)
    learner = make_learner(wide_run(device))
    learner.agent.online.flat[-2] = 5000.0  # a critic's last bias
    while learner.agent.updates < 2:
        assert not learner.engine.large
        learner.round()
    assert learner.engine.large and "5,000" in learner.notices[-1]


@pytest.mark.slow
def test_a_run_in_tiles_resumes_as_if_it_never_stopped(
    kernels: None, device: str, tmp_path: Path
) -> None:
    run = wide_run(device, steps=40, log_every=10, checkpoint_every=20)
    train(run, tmp_path / "whole", quiet=True)
    train(replace(run, steps=20), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", 40, quiet=True)
    whole, half = (last(tmp_path / name) for name in ("whole", "half"))
    for name, value in whole.items():
        if "sums" not in name:
            assert np.array_equal(value, half[name]), name


@pytest.mark.parametrize("case", ["several", "quantile", "noisy", "images", "team", "sac", "td3"])
def test_k_updates_in_few_graphs_equal_k_of_one(case: str, device: str) -> None:
    env, option = Q_CASES[case]
    once, singly = (make_learner(a_run(env, option, "cudagraph", device)) for _ in range(2))
    for place in (once, singly):
        place.learn = lambda: False  # type: ignore[method-assign]
        while place.step < 40:
            place.round()
    once.engine.update(13, 40, once.clock)
    for _ in range(13):
        singly.engine.update(1, 40, singly.clock)
    assert torch.equal(once.agent.block, singly.agent.block)
    assert once.agent.updates == 13
    names = {(str(key[0]).strip("()'").split("'")[0], key[1]) for key in once.engine.graphs}
    assert {("update", 1), ("update", 4), ("update", 8)} <= names


@pytest.mark.parametrize(
    "case", [rarely(case) if case == "lstm, images" else case for case in POLICY_CASES]
)
def test_learning_phases_are_the_plain_engines(case: str, device: str) -> None:
    hold_phases(case, device, 2 if case in REMEMBERING else 3)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in POLICY_CASES if case not in REMEMBERING])
def test_eight_learning_phases_are_the_plain_engines(case: str, device: str) -> None:
    hold_phases(case, device, 8)


@pytest.mark.parametrize(
    "case",
    [
        "discrete",
        "whole",
        "gaussian",
        "masked",
        rarely("absent"),
        rarely("images"),
        rarely("shared body"),
        rarely("value apart"),
        "target_kl",
        "slices",
        "target_kl, minibatch",
        "lstm",
        rarely("gru, real"),
        rarely("gru, masked"),
    ],
)
def test_learning_phases_by_kernels_are_the_plain_engines(
    kernels: None, case: str, device: str
) -> None:
    hold_phases(case, device, 1)


def hold_phases(case: str, device: str, phases: int) -> None:
    env, option = POLICY_CASES[case]
    agent = {"name": "ppo", **option}
    lanes = LANES if case in REMEMBERING else 2
    plain, fast = (
        make_learner(a_run(env, agent, engine, device, num_envs=lanes))
        for engine in ("plain", "cudagraph")
    )
    assert fast.description.name == "cudagraph"
    ended = False  # in the middle of a rollout
    for _ in range(phases):
        for place in (plain, fast):
            place.learn = lambda: None  # type: ignore[method-assign]
            while place.rollout.left:
                place.round()
        for name in ("obs", "chosen", "reward", "weight", "mask"):
            assert np.array_equal(getattr(plain.rollout, name), getattr(fast.rollout, name)), name
        for name in ("log_p", "value", "real", "next_value", "hidden", "start_states"):
            own, other = getattr(fast.rollout, name), getattr(plain.rollout, name)
            assert np.allclose(own, other, rtol=1e-4, atol=1e-5), name
            own[...] = other
        ended |= bool(plain.rollout.boundary[:-1].any())
        for place in (plain, fast):
            place.engine.finish()
        for number in range(plain.engine.per_phase):
            going = [p.engine.learn(number, number + 1, plain.step) for p in (plain, fast)]
            assert_same_update(fast, plain, 3e-4)
            copy_state(plain, fast)
            assert going[0] == going[1]
            if not going[0]:
                break
    if case in REMEMBERING and phases > 1:  # the first one begins with nothing
        assert plain.rollout.start_states.any() and plain.rollout.sequence_length >= 5
        assert ended or case == "lstm, absent"  # where there is something to forget
    if "target_kl" in case:
        assert plain.agent.updates < phases * plain.engine.per_phase
    assert fast.engine.statistics() == pytest.approx(plain.engine.statistics(), rel=1e-3, abs=1e-5)


def test_a_phase_in_few_graphs_is_that_of_one_minibatch_after_another(device: str) -> None:
    agent = {"name": "ppo", "minibatches": 13, "normalize_obs": True}
    whole, singly = (make_learner(a_run(CARTPOLE, agent, "cudagraph", device)) for _ in range(2))
    for place in (whole, singly):
        place.learn = lambda: None  # type: ignore[method-assign]
        while place.rollout.left:
            place.round()
        place.engine.finish()
    whole.engine.learn(0, whole.engine.per_phase, 100)
    for number in range(singly.engine.per_phase):
        singly.engine.learn(number, number + 1, 100)
    assert whole.agent.updates == 39 == singly.agent.updates
    assert torch.equal(whole.agent.block, singly.agent.block)
    names = {("learn", 1), ("learn", 4), ("learn", 8), (("act", 0), 1), ("value", 1)}
    assert {key[:2] for key in whole.engine.graphs} == names


def test_a_phase_that_stops_within_a_graph_makes_the_steps_before(device: str) -> None:
    agent = {"name": "ppo", "minibatches": 13, "lr": 3e-3}
    agent |= {"target_kl": 1e-4, "kl_stop": "minibatch"}
    whole, singly = (make_learner(a_run(CARTPOLE, agent, "cudagraph", device)) for _ in range(2))
    for place in (whole, singly):
        place.learn = lambda: None  # type: ignore[method-assign]
        while place.rollout.left:
            place.round()
        place.engine.finish()
    assert not whole.engine.learn(0, whole.engine.per_phase, 100)
    made = next(n for n in range(13) if not singly.engine.learn(n, n + 1, 100))
    assert made % 8 not in (0, 7)  # graphs are of eight minibatches, four and one
    assert whole.agent.updates == made == singly.agent.updates
    assert torch.equal(whole.agent.block, singly.agent.block)
    assert torch.equal(whole.engine.sums, singly.engine.sums)


def last(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(sorted((path / "checkpoints").glob("step-*.safetensors"))[-1])[0]


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        (CARTPOLE, {"replay": "prioritized", "frames": 2}),
        (IMAGES, {"net": {"encoder": "small", "hidden": [12]}, "updates": 3}),
        (TEAM, {"distribution": IMPLICIT}),
        (PENDULUM, {"name": "sac", "replay": "prioritized"}),
        pytest.param(PENDULUM, {"name": "td3", "updates": 3}, marks=pytest.mark.slow),
        (CARTPOLE, {"name": "ppo", "normalize_obs": True}),
        pytest.param("tenfold/Assign-v0", {"name": "ppo"}, marks=pytest.mark.slow),
        ("tenfold/Assign-v0", remembering("lstm(4)", normalize_obs=True)),
    ],
    ids=["vector", "images", "team", "sac", "td3", "policy", "masked", "remembering"],
)
def test_two_runs_are_equal_and_a_resumed_one_is_that_which_never_stopped(
    env: str, agent: dict[str, Any], device: str, tmp_path: Path
) -> None:
    run = a_run(
        env, agent, "cudagraph", device, steps=120, log_every=40, checkpoint_every=60, eval_every=0
    )
    train(run, tmp_path / "whole", quiet=True)
    train(run, tmp_path / "again", quiet=True)
    train(replace(run, steps=60), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", 120, quiet=True)
    whole, again, halves = (last(tmp_path / name) for name in ("whole", "again", "half"))
    for name, value in whole.items():
        assert np.array_equal(value, again[name]), name
        if "sums" not in name:
            assert np.array_equal(value, halves[name]), name
    rows = [r for r in read_rows(tmp_path / "whole" / "metrics.jsonl") if r["kind"] == "train"]
    assert rows[-1]["updates"] > 0 and np.isfinite(rows[-1]["grad_norm"])
    resume(tmp_path / "half", 160, quiet=True, engine="plain")  # another engine goes on with it


def test_another_learning_rate_counts_without_recording_anew(device: str) -> None:
    for agent in ({}, {"name": "ppo"}, {"name": "sac"}):
        learner = make_learner(a_run(CARTPOLE, agent, "cudagraph", device))
        while not learner.agent.updates:
            learner.round()
        graphs, updates = dict(learner.engine.graphs), learner.agent.updates
        learner.set_lr(0.0)
        before = learner.agent.online.flat.clone()
        while learner.agent.updates < updates + 5:
            learner.round()
        assert torch.equal(learner.agent.online.flat, before)
        assert learner.engine.graphs == graphs


@pytest.mark.parametrize(
    "agent",
    [
        {},
        {"replay": "prioritized", "n_step": 3},
        {"name": "ppo"},
        {"name": "sac"},
        remembering("gru(5)"),
    ],
)
def test_verify_holds_a_run_to_the_plain_engine(
    agent: dict[str, Any], device: str, tmp_path: Path
) -> None:
    run = a_run(CARTPOLE, agent, "cudagraph", device, steps=150, verify=2)
    train(run, tmp_path / "run", quiet=True)
    learner = make_learner(run)
    while learner.agent.updates < 20:
        learner.round()
    assert learner.lockstep.compared + learner.lockstep.ties >= 10


def test_recording_changes_nothing(device: str) -> None:
    remembers = remembering("lstm(4)")
    for agent in ({"replay": "prioritized"}, {"name": "ppo"}, {"name": "sac"}, remembers):
        plain, fast = (
            make_learner(a_run(CARTPOLE, agent, engine, device))
            for engine in ("plain", "cudagraph")
        )
        fast.warm_up()
        assert torch.equal(plain.agent.block, fast.agent.block)
        assert fast.engine.statistics() == {} and fast.agent.updates == 0


def test_a_policy_that_remembers_has_it_too_and_long_sequences_are_graphs_of_their_own(
    device: str,
) -> None:
    """Every step of a sequence is recorded, so that of those of eight and more rows a graph makes
    one update."""
    for horizon, updates in ((2, 4), (5, 1), (12, 1)):
        agent = remembering("gru(4)", minibatches=2, horizon=horizon)
        learner = make_learner(a_run(CARTPOLE, agent, "auto", device, num_envs=2))
        assert learner.description.name == "cudagraph"
        assert learner.engine.most == updates
        learner.warm_up()
        assert {key[1] for key in learner.engine.graphs} == {1, min(updates, 2)}


def test_a_graph_reads_what_its_tensors_hold_when_it_is_replayed(device: str) -> None:
    scale, total = torch.ones(1, device=device), torch.zeros(1, device=device)
    pool = torch.cuda.graph_pool_handle() if device == "cuda" else None
    graph = CudaGraph(lambda: total.add_(scale), [total], pool)
    assert total.item() == 0
    for value in (2.0, 5.0):
        scale.fill_(value)
        graph.launch()
    assert total.item() == 7


# what a graph cannot record: reading a number, tensors of Python numbers, tensors of unknown size
UNRECORDABLE = {"_local_scalar_dense", "lift_fresh", "nonzero"}


class Operations(TorchDispatchMode):
    """The operations on tensors that are made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        *Q_CASES.values(),
        # a counterfactual loss has a compiled pass on the CPU alone
        *(
            (env, {"name": "ppo"} | agent)
            for env, agent in POLICY_CASES.values()
            if "baseline" not in agent
        ),
    ],
)
def test_a_recorded_update_can_be_repeated_without_the_host(
    env: str, agent: dict[str, Any]
) -> None:
    on_policy = agent.get("name") == "ppo"
    entry = algorithm(agent.get("name", "dqn")).engines["cudagraph"]
    learner: Any = make_learner(a_run(env, agent, "plain", "cpu", num_envs=LANES))
    learner.learn = lambda: False
    while learner.step < 40 if not on_policy else learner.rollout.left:
        learner.round()
    memory = learner.rollout if on_policy else learner.replay
    engine = import_by_name(entry.home)(learner.agent, memory, learner.envs)
    if on_policy:
        learner.engine.finish()
        engine.finish()
        engine.learn(0, 1, learner.step)
    else:
        engine.update(1, learner.step, learner.clock)
    with Operations() as operations:
        (engine.make_minibatches_work if on_policy else engine.make_updates_work)(1)()
    assert operations.names
    assert UNRECORDABLE & {*operations.names} == set()


def test_where_recording_fails_the_plain_engine_takes_over_and_says_so(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr("tenfold.engines.cudagraph.CudaGraph.__init__", refuse)
    for agent, env in (({}, IMAGES), ({"distribution": IMPLICIT}, TEAM), ({"name": "ppo"}, IMAGES)):
        learner = make_learner(a_run(env, agent, "auto", device))
        assert learner.description.name == "plain"
        assert (
            "not cudagraph: an update cannot be recorded (operation not permitted when stream is "
            "capturing)" in learner.description.engine
        )
        with pytest.raises(ConfigError, match=r"engine = cudagraph does not fit: an update cannot"):
            make_learner(a_run(env, agent, "cudagraph", device))


def test_without_a_gpu_it_is_refused_in_one_sentence() -> None:
    for env, agent in (
        (CARTPOLE, {}),
        (TEAM, {}),
        (CARTPOLE, {"name": "ppo"}),
        (PENDULUM, {"name": "sac"}),
        (PENDULUM, {"name": "td3"}),
    ):
        with pytest.raises(
            ConfigError, match="engine = cudagraph is for cuda, and the networks are on cpu"
        ):
            make_learner(a_run(env, agent, "cudagraph", "cpu"))
        assert "cudagraph" not in make_learner(a_run(env, agent, "auto", "cpu")).description.engine


def test_graphs_of_changing_size_are_refused_in_one_sentence(device: str) -> None:
    run = a_run("tenfold/Durotaxis-v0", {"name": "ppo", "on_empty": "absent"}, "cudagraph", device)
    with pytest.raises(ConfigError, match="another number of nodes"):
        make_learner(
            replace(run, agent=replace(run.agent, net=replace(run.agent.net, hidden=(8, 8))))
        )


@pytest.mark.cuda
def test_on_a_gpu_it_is_chosen_and_memory_stays_flat() -> None:
    agent = {"net": {"hidden": [256, 256]}, "lr": "linear(1e-3, 0, 10k)", "target": "polyak(0.01)"}
    learner = make_learner(a_run(CARTPOLE, agent, "auto", "cuda"))
    assert learner.description.name == "cudagraph"
    while learner.agent.updates < 50:
        learner.round()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    while learner.agent.updates < 3000:
        learner.round()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before
