"""What users add without editing the package: an algorithm, a network, a schedule, callbacks, a
place for metrics, a domain. The examples are what the docs show."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.core import registry
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ["--eval-episodes", "2", "--log-every", "500", "--checkpoint-every", "1000"]


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of one's own are found beside where one works, and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    registry.ADDED.clear()
    gymnasium.registry.pop("Orchard-v0", None)
    sys.modules.pop("orchard", None)


def reinforce(**more: Any) -> ten.Run:
    settings = {"name": "reinforce:Reinforce", "horizon": 50}
    base = {"env": "CartPole-v1", "steps": 1200, "num_envs": 2, "eval_every": 600, "log_every": 200}
    return ten.Run.of(
        {"agent": settings, "eval_episodes": 2, "checkpoint_every": 500} | base | more
    )


def last_checkpoint(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(sorted((path / "checkpoints").glob("step-*.safetensors"))[-1])[0]


def test_an_algorithm_of_ones_own_trains_evaluates_loads_and_reports(
    here: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "own"
    arguments = ["--env", "CartPole-v1", "--steps", "2k", "--num-envs", "4", *SHORT]
    done = here("train", "reinforce:Reinforce", *arguments, "--agent.horizon", "100", "--out", out)
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").is_file() and "engine plain, the algorithm's own" in done.stderr
    rows = [row for row in read_rows(out / "metrics.jsonl") if row["kind"] == "train"]
    assert rows[-1]["updates"] == 5 and {"loss", "grad_norm", "lr", "return"} <= set(rows[-1])
    judged = json.loads(here("eval", out, "--episodes", "3", "--json").stdout)
    agent = ten.load(out)
    assert judged["episodes"] == 3 and agent.act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(SystemExit):
        here("train", "reinforce:Reinforce", "--help")
    shown = capsys.readouterr().out
    assert "--agent.gamma" in shown and "discount of the next step's reward" in shown
    assert "--agent.epochs" not in shown


def test_its_run_resumed_is_one_that_never_stopped(tmp_path: Path) -> None:
    train(reinforce(), tmp_path / "whole", quiet=True)
    train(reinforce(steps=700), tmp_path / "cut", quiet=True)
    resume(tmp_path / "cut", 1200, quiet=True)
    one, other = (last_checkpoint(tmp_path / name) for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert one["agent.updates"] == 12


def test_its_actors_in_processes_do_what_they_do_here(tmp_path: Path) -> None:
    for where in ("serial", "processes"):
        run = reinforce(actors=2, where=where, ahead=0, steps=600)
        train(run, tmp_path / where, quiet=True)
    one, other = (last_checkpoint(tmp_path / name) for name in ("serial", "processes"))
    assert np.array_equal(one["agent.online"], other["agent.online"])
    assert one["agent.updates"] == 3


def test_its_seeds_are_trained_together(here: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    arguments = ["--steps", "600", "--agent.horizon", "100", "--eval-every", "0", "--quiet"]
    done = here("train", "reinforce:Reinforce", *arguments, "--seeds", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    one, other = (last_checkpoint(out / f"seed-{seed}")["agent.online"] for seed in (0, 1))
    assert one.shape == other.shape and not np.array_equal(one, other)


def ddpg(**more: Any) -> ten.Run:
    settings = {"name": "ddpg:DDPG", "learning_starts": 40, "batch_size": 16, "capacity": 500}
    settings |= {"net": {"hidden": [16]}, "replay": "prioritized", "n_step": 2}
    base = {"env": "Pendulum-v1", "steps": 160, "eval_every": 100, "log_every": 40}
    return ten.Run.of({"agent": settings, "eval_episodes": 1, "checkpoint_every": 60} | base | more)


def test_an_off_policy_algorithm_of_ones_own_trains_evaluates_loads_and_exports(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "own"
    train(ddpg(), out, quiet=True)
    rows = [row for row in read_rows(out / "metrics.jsonl") if row["kind"] == "train"]
    assert rows[-1]["updates"] == 120
    assert {"loss", "policy_loss", "td_error", "grad_norm", "lr", "noise"} <= set(rows[-1])
    judged = json.loads(here("eval", out, "--episodes", "2", "--json").stdout)
    obs = np.array([1, 0, 0.5], np.float32)
    action = ten.load(out).act(obs)
    assert judged["episodes"] == 2 and action.shape == (1,) and -2 <= action[0] <= 2
    done = here("export", out, "--out", tmp_path / "policy.onnx")
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").is_file() or here("report", out).returncode == 0


def test_an_off_policy_run_resumed_is_one_that_never_stopped(tmp_path: Path) -> None:
    train(ddpg(), tmp_path / "whole", quiet=True)
    train(ddpg(steps=90), tmp_path / "cut", quiet=True)
    resume(tmp_path / "cut", 160, quiet=True)
    one, other = (last_checkpoint(tmp_path / name) for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow  # on-policy it is held above, by the same pools
def test_its_actors_and_seeds_are_those_of_any_algorithm(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    for where in ("serial", "processes"):
        train(ddpg(actors=2, where=where, ahead=0, steps=100), tmp_path / where, quiet=True)
    one, other = (last_checkpoint(tmp_path / name) for name in ("serial", "processes"))
    assert np.array_equal(one["agent.online"], other["agent.online"])
    arguments = ["--env", "Pendulum-v1", "--steps", "60", "--agent.learning-starts", "30"]
    arguments += ["--agent.net.hidden", "8", "--eval-every", "0", "--quiet", "--seeds", "2"]
    done = here("train", "ddpg:DDPG", *arguments, "--out", tmp_path / "seeds")
    assert done.returncode == 0, done.stderr
    first, second = (last_checkpoint(tmp_path / f"seeds/seed-{seed}") for seed in (0, 1))
    assert not np.array_equal(first["agent.online"], second["agent.online"])


def test_an_off_policy_algorithm_does_what_td3_does_with_the_settings_of_ddpg() -> None:
    """From the same parameters and batches: the critic's and the policy's step, and the targets."""
    settings = {"learning_starts": 40, "batch_size": 16, "capacity": 500, "lr": 1e-3, "tau": 0.1}
    settings |= {"net": {"hidden": [16]}}
    run = {"env": "Pendulum-v1", "engine": "plain"}
    like = {"name": "td3", "critics": 1, "policy_delay": 1, "smoothing": 0.0, "noise": 0.0}
    td3 = make_learner(ten.Run.of(run | {"agent": settings | like}))
    own = make_learner(ten.Run.of(run | {"agent": settings | {"name": "ddpg:DDPG", "noise": 0.0}}))
    flat = td3.agent.online.flat
    critics = td3.agent.online.places["critics"].start
    with torch.no_grad():
        for policy, critic in (("policy", "critic"), ("slow_policy", "slow_critic")):
            for name, values in ((policy, flat[:critics]), (critic, flat[critics:])):
                own.agent.online.flat[own.agent.place_of(getattr(own.agent.algorithm, name))] = (
                    values
                )
    while td3.agent.updates < 30:
        td3.round()
        own.round()
    # td3's loss is half the squared error; Adam does not see it, but for its offset
    mine = own.agent.online.flat[own.agent.place_of(own.agent.algorithm.critic)]
    assert torch.allclose(mine, flat[critics:], atol=1e-5)
    slow = own.agent.online.flat[own.agent.place_of(own.agent.algorithm.slow_policy)]
    assert torch.allclose(slow, td3.agent.target.flat[:critics], atol=1e-5)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def build(self, spec, config): pass", "made no networks"),
        ("pass", "Mine.build raised NotImplementedError: write it"),
        (
            "def build(self, spec, config): {}['x']",
            "Mine.build raised KeyError: 'x' in mine_.*line 3",
        ),
        (
            "def build(self, spec, config): self.nets = {'v': ten.nets.mlp(4, (), 2)}",
            "keeps networks in nets, a dict: use torch.nn.ModuleList or ModuleDict",
        ),
        (
            "def build(self, spec, config): self.net = ten.nets.mlp(4, (), 2)\n"
            "    def act(self, obs, draw): return self.net(obs).argmax(-1) + 99",
            "Mine.act gave action (99|100), and there are 2",
        ),
        (
            "def build(self, spec, config): self.net = ten.nets.mlp(4, (), 2)\n"
            "    def act(self, obs, draw): return self.net(obs).argmax(-1)\n"
            "    def round(self, rollout): return None",
            "Mine.round returned None, and must return a dict",
        ),
        (
            "def build(self, spec, config): self.net = ten.nets.mlp(4, (), 2)\n"
            "    def act(self, obs, draw): return self.net(obs)",
            r"gave actions of shape \(1, 2\) for 1 observations",
        ),
    ],
)
def test_a_mistake_in_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"mine_{abs(hash(body)) % 10**6}"
    (tmp_path / f"{name}.py").write_text(
        f"import tenfold as ten\nclass Mine(ten.Algorithm):\n    {body}\n    class config(ten.AgentConfig):\n        lr: float = 0.1\n"
    )
    with pytest.raises(UserError, match=words):
        train(ten.Run.of({"agent": {"name": f"{name}:Mine"}}), tmp_path / "run", quiet=True)


MINIBATCHES = """
import torch
import tenfold as ten
class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = ten.nets.mlp(4, (8,), 2)
        self.register_buffer("shift", torch.zeros(4))
    def forward(self, x):
        return self.net(x - self.shift)
class Own(ten.Algorithm):
    class config(ten.AgentConfig):
        lr: ten.Schedule = 1e-2
        entropy: ten.Schedule = "linear(0.1, 0, 1k)"
        horizon: int = 40
    def build(self, spec, config):
        self.policy = Shifted()
    def act(self, obs, draw):
        return ten.ops.categorical_sample(self.policy(obs), draw)
    def round(self, rollout):
        self.policy.shift.lerp_(rollout.obs.mean((0, 1)), 0.1)
        order = torch.randperm(rollout.obs.shape[0])[:20]
        logits = self.policy(rollout.obs[order])
        weight = self.now(self.settings.entropy)
        entropy = ten.ops.categorical_entropy(logits).mean()
        log_prob = ten.ops.categorical_log_prob(logits, rollout.action[order])
        return self.step(-log_prob.mean() - weight * entropy, weight=weight)
"""


def test_randomness_in_a_round_buffers_and_schedules_follow_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "minibatches.py").write_text(MINIBATCHES)
    import minibatches  # type: ignore[import-not-found]

    def run(**more: Any) -> ten.Run:
        base = {"steps": 400, "num_envs": 2, "eval_every": 0, "log_every": 80, "ahead": 0}
        return ten.Run(agent=minibatches.Own.configured(), **(base | more))

    train(run(), tmp_path / "whole", quiet=True)
    train(run(steps=180), tmp_path / "cut", quiet=True)
    resume(tmp_path / "cut", 400, quiet=True)
    for where in ("serial", "processes"):
        train(run(actors=2, num_envs=1, where=where), tmp_path / where, quiet=True)
    for one, other in (("whole", "cut"), ("serial", "processes")):
        found, again = last_checkpoint(tmp_path / one), last_checkpoint(tmp_path / other)
        for name in ("agent.online", "agent.buffer.policy.shift"):
            assert np.array_equal(found[name], again[name]), (one, name)
        assert found["agent.buffer.policy.shift"].any()
    rows = [r for r in read_rows(tmp_path / "whole" / "metrics.jsonl") if r["kind"] == "train"]
    assert [row["weight"] for row in rows] == pytest.approx([0.092, 0.084, 0.076, 0.068, 0.06])


def test_observations_of_whole_numbers_reach_it_as_floats(tmp_path: Path) -> None:
    settings = {"name": "reinforce:Reinforce", "horizon": 50}
    run = ten.Run.of({"env": "FrozenLake-v1", "agent": settings, "steps": 100, "eval_every": 0})
    assert train(run, tmp_path / "run", quiet=True).step == 100


@pytest.mark.parametrize("flags", [
    ("--callback", "broken:X"), ("--agent.net.module", "broken:X"), ("--env", "broken:X-v0"),
    ("--agent.lr", "broken:f(1)"),
])  # fmt: skip
def test_a_module_that_cannot_be_imported_is_one_sentence(
    here: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, str],
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken.py").write_text("1 / 0\n")
    done = here("train", "dqn", "--steps", "100", *flags)
    assert done.returncode == 2
    assert (
        "importing broken raised ZeroDivisionError: division by zero in broken.py, line 1"
        in done.stderr
    )


def test_what_is_wrong_with_a_callback_is_one_sentence(
    here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "calls.py").write_text(
        "import tenfold as ten\n"
        "class Needs(ten.Callback):\n    def __init__(self, goal): self.goal = goal\n"
        "    def on_start(self, training): assert self.goal == 20, self.goal\n"
        "class Raises(ten.Callback):\n    def on_row(self, row): raise ValueError('boom')\n"
        "class Object(ten.Callback):\n    def on_log(self, training, row): row['x'] = object()\n"
        "class Nothing: pass\n"
    )
    short = ("--steps", "200", "--log-every", "100", "--eval-every", "0", "--quiet")
    for name, words in (
        ("Needs", "missing 1 required positional argument: 'goal'"),
        ("Raises", "Raises.on_row raised ValueError: boom in calls.py, line 6"),
        ("Object", "Object.on_log raised TypeError: Object of type object is not JSON"),
        ("Nothing", "Nothing is no callback"),
    ):
        done = here("train", "dqn", *short, "--callback", f"calls:{name}")
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert here("train", "dqn", *short, "--callback", "calls:Needs(goal=20)").returncode == 0
    import calls  # type: ignore[import-not-found]

    with pytest.raises(
        UserError, match=r"Needs\(\) raised TypeError: .*positional argument: 'goal'"
    ):
        train(reinforce(), tmp_path / "run", quiet=True, callbacks=[calls.Needs])


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_a_network_of_ones_own_is_trained_in_one_flat_buffer(agent: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"name": agent, "net": {"module": "extending:Wide"}}
    settings |= {"learning_starts": 100} if agent == "dqn" else {"horizon": 100}
    run = ten.Run.of({"agent": settings, "steps": 600, "eval_every": 300, "eval_episodes": 1})
    train(run, tmp_path / "run", quiet=True)
    about = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"][0]["engine"]
    assert "the network is one's own (extending:Wide)" in about
    loaded = ten.load(tmp_path / "run")
    size = sum(parameter.numel() for parameter in loaded.online.parameters())
    assert loaded.online.flat.numel() == size > 9_000
    fresh = ten.Run.of({"agent": settings, "seed": 0})
    from tenfold.training.learners import agent_of

    assert not torch.equal(agent_of(fresh).online.flat, loaded.online.flat)
    again = agent_of(fresh).online.flat
    assert torch.equal(agent_of(fresh).online.flat, again)


def test_a_network_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    for name, words in (
        ("extending:Nothing", "has no Nothing"),
        ("extending:warm_up", "cannot be used|does not fit"),
        ("Wide", "is not written as module:Class"),
    ):
        with pytest.raises((ConfigError, UserError), match=words):
            run = ten.Run.of({"agent": {"name": "dqn", "net": {"module": name}}})
            train(run, tmp_path / "run", quiet=True)


def test_callbacks_stop_a_run_add_numbers_and_keep_rows(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = here(
        "train", "dqn", "--steps", "20k", "--agent.learning-starts", "10k", "--eval-every", "200",
        "--eval-episodes", "1", "--out", out, "--quiet", "--callback", "extending:Patience",
        "--callback", "extending:Table",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row for row in read_rows(out / "metrics.jsonl") if row["kind"] == "eval"]
    assert rows[-1]["waited"] == 3 and rows[-1]["step"] < 20_000
    lines = (out / "evaluations.csv").read_text().splitlines()
    assert lines == [f"{row['step']},{row['mean_return']}" for row in rows]


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_a_callback_sets_the_learning_rate_and_a_resume_knows_it(
    engine: str, tmp_path: Path, small_run: Callable[..., ten.Run]
) -> None:
    class Slower(ten.Callback):
        def on_log(self, training: Any, row: dict[str, Any]) -> None:
            if training.step >= 280:
                training.set_lr(0.0)

    run = small_run({"lr": 1e-2}, engine=engine, log_every=140, eval_every=0, checkpoint_every=0)
    train(run, tmp_path / "run", quiet=True, callbacks=[Slower()])
    train(
        small_run({"lr": 1e-2}, engine=engine, steps=280, eval_every=0),
        tmp_path / "short",
        quiet=True,
    )
    one, other = (last_checkpoint(tmp_path / name) for name in ("run", "short"))
    assert np.array_equal(one["agent.online"], other["agent.online"])  # nothing was learned after
    assert one["agent.updates"] > other["agent.updates"]
    assert ten.resume(tmp_path / "run", 700, settings={"agent.lr": 1e-3}, quiet=True).step == 700


@pytest.mark.parametrize("name", ["dqn", "sac", "reinforce:Reinforce"])
def test_whoever_reads_the_settings_reads_the_rate_that_was_set(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner of one's own, derived from one of ours, and an algorithm of one's own."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    learner = make_learner(ten.Run.of({"env": "tenfold/CartPole-v1", "agent": {"name": name}}))
    learner.set_lr(0.25)
    own = learner.agent.algorithm if ":" in name else learner
    assert own.settings.lr == learner.agent.config.lr == 0.25


def test_a_schedule_of_ones_own_sets_the_rate(tmp_path: Path) -> None:
    run = ten.Run.of(
        {"agent": {"name": "dqn", "lr": "extending:warm_up(1e-3, 400)", "learning_starts": 50},
         "steps": 400, "log_every": 100, "eval_every": 0}
    )  # fmt: skip
    train(run, tmp_path / "run", quiet=True)
    rates = [
        row["lr"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"
    ]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])


def test_the_examples_run_where_they_stand(tmp_path: Path, tenfold: Callable[..., Any]) -> None:
    """As a user would: a copy of the file beside where the command is typed."""
    shutil.copy(EXAMPLES / "reinforce.py", tmp_path)
    done = tenfold(
        "train", "reinforce:Reinforce", "--steps", "300", "--agent.horizon", "100", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "runs").glob("Reinforce-*"))


def test_a_domain_of_ones_own_says_what_its_environments_are_about(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = ["--env", "orchard:Orchard-v0", "--steps", "3k", "--eval-every", "0", "--quiet"]
    done = here("train", "dqn", *arguments, "--out", out)
    assert done.returncode == 0, done.stderr
    judged = here("eval", out, "--episodes", "20")
    found = json.loads(here("eval", out, "--episodes", "20", "--json").stdout)
    assert f"picked   {found['picked_share']:10.1%} of the ripe apples" in judged.stdout
    assert found["picked_share"] > 0.9  # it has learned to pick
    here("report", out)
    assert "Apples" in (out / "report.html").read_text()
    assert "Orchard-v0" in here("list").stdout
