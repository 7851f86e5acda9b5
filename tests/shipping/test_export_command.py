"""`tenfold export` and `ten.export`: files, what they say, and what is refused."""

import hashlib
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exporting import EXAMPLE, agent_for, example

import tenfold as ten
from tenfold.algorithms.dqn_export import QPolicy
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.runs.folder import RunFolder
from tenfold.shipping.export import names_of
from tenfold.training.loop import train

ELSEWHERE = """
import json, sys, numpy, torch
extra = {"tenfold.json": ""}
module = torch.export.load(sys.argv[1], extra_files=extra).module()
obs = torch.from_numpy(numpy.load(sys.argv[2]))
actions = [module(obs[:n])[0].tolist() for n in (1, 5, len(obs))]
about = json.loads(extra["tenfold.json"])
print(json.dumps([actions, about["env"], [name for name in sys.modules if name.startswith("tenfold")]]))
"""


def test_a_torch_file_runs_where_there_is_no_tenfold(
    finished_once: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    done = here("export", finished_once, "--format", "torch", "--checkpoint", "best")
    assert done.returncode == 0, done.stderr
    first, takes, gives, checked = done.stdout.splitlines()
    assert first.startswith("dqn on CartPole-v1, step ") and "run.pt2" in first
    assert takes.split() == ["takes", "obs", "float32", "[batch,", "4]"]
    assert gives.split() == ["gives", "action", "int64", "[batch]"]
    assert checked.strip() == "1,000 of 1,000 actions by torch.export are the agent's"
    obs = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, "run.pt2", "obs.npy"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (one, five, every), env, modules = json.loads(done.stdout)
    expected = ten.load(finished_once, "best").act(obs).tolist()
    assert every == expected and five == expected[:5] and one == expected[:1]
    assert env == "CartPole-v1" and modules == []


def test_an_onnx_file_runs_by_the_example_alone(
    finished_once: Path,
    here: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = here("export", finished_once, "--out", "policy.onnx")
    assert done.returncode == 0, done.stderr
    assert "1,000 of 1,000 actions by ONNX Runtime are the agent's" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]
    about = example().Policy("policy.onnx").about
    run = RunFolder.open(finished_once)[1]
    settings = json.dumps(to_mapping(run), sort_keys=True).encode()
    assert about["settings_sha256"] == hashlib.sha256(settings).hexdigest()
    assert (about["step"], about["checkpoint"], about["policy"]) == (600, "last", "greedy")
    assert about["tenfold_version"] == ten.__version__
    runpy.run_path(str(EXAMPLE))["main"]("policy.onnx", 7)
    said = capsys.readouterr().out
    assert "dqn on CartPole-v1, greedy, after 600 steps" in said and "7 observations in" in said


def test_the_example_imports_neither_torch_nor_tenfold() -> None:
    code = f"import runpy, sys; runpy.run_path({str(EXAMPLE)!r}); print({{'torch', 'tenfold', 'gymnasium'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_examples_frames_are_those_of_an_episode() -> None:
    frames = example().Frames(3)
    assert frames.begin(5) == [5, 5, 5]
    assert frames.add(6) == [5, 5, 6] and frames.add(7) == [5, 6, 7]
    assert frames.begin(9) == [9, 9, 9]


def test_a_policy_that_is_not_the_agents_is_not_kept(
    finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worst(self: QPolicy, rows: torch.Tensor, mask: Any, *draws: Any) -> Any:
        values = self.agent.mean_values(rows, None)
        return values.argmin(-1, keepdim=True), values[..., :0]

    monkeypatch.setattr(QPolicy, "forward", worst)
    with pytest.raises(UserError, match=r"not the agent's: 1,000 of 1,000 actions .* no file"):
        ten.export(finished_once, "torch", tmp_path / "policy.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_refused_in_a_sentence(
    finished_once: Path, here: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        (
            "export",
            finished_once,
            "--format",
            "pickle",
        ): "--format = pickle is not one of onnx, torch",
        ("export", finished_once, "--sample", "--format", "torch"): "--sample is for policies that",
        ("export", finished_once, "--checkpoint", "7"): "--checkpoint 7 is not there",
        ("export", finished_once, "--out", "no/where"): "--out no/where cannot be written",
        ("export", "nowhere"): "nowhere does not exist",
        ("export", finished_once, "--out", ""): "--out is empty",
    }
    for words, said in wrong.items():
        done = here(*words)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    done = here("export", finished_once)
    assert done.returncode == 2 and "pip install 'tenfold[onnx]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


class Unclear(torch.nn.Module):
    """Its shape depends on its input's numbers in a way that no graph can say."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(shape[0], outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (2.0 if float(x.detach().sum()) > 3 else 1.0)


class Clear(Unclear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).tanh()


def test_networks_of_ones_own_are_traced_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "their_nets", sys.modules[__name__])
    for name in ("Clear", "Unclear"):
        agent = {"name": "dqn", "learning_starts": 50, "net": {"module": f"their_nets:{name}"}}
        run = ten.Run.of({"agent": agent, "steps": 60, "eval_every": 0})
        train(run, tmp_path / name, quiet=True)
    made = ten.export(tmp_path / "Clear", "torch", tmp_path / "clear.pt2")
    assert "1,000 of 1,000" in made.checked and made.about["agent"] == "dqn"
    with pytest.raises(UserError, match=r"cannot be traced by torch.export .*of your own"):
        ten.export(tmp_path / "Unclear", "torch", tmp_path / "unclear.pt2")
    assert not (tmp_path / "unclear.pt2").exists()


def test_an_algorithm_of_ones_own_is_exported(tmp_path: Path) -> None:
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        run = ten.named("reinforce:Reinforce", {"steps": 300, "eval_every": 0})
        train(run, tmp_path / "own", quiet=True)
        found = ten.export(tmp_path / "own", "torch", tmp_path / "own.pt2")
    finally:
        sys.path.remove(str(EXAMPLE.parent))
    assert "1,000 of 1,000" in found.checked
    with pytest.raises(UserError, match="--sample is not for an algorithm of one's own"):
        ten.export(tmp_path / "own", "torch", tmp_path / "own.pt2", sample=True)


def test_only_what_actions_depend_on_is_in_a_torch_file() -> None:
    """Neither values nor the agent's one buffer of everything, which views would bring along."""
    from types import SimpleNamespace

    from tenfold.shipping.export import policy_of, torch_bytes, traced
    from tenfold.training.learners import Trained

    run, agent = agent_for("CartPole-v1", {"name": "ppo", "net": {"hidden": [64, 64]}})
    trained = Trained(SimpleNamespace(id="x"), run, agent, 0)  # type: ignore[arg-type]
    program = traced(policy_of(trained, False, None)[0])
    numbers = sum(tensor.numel() for tensor in program.state_dict.values())
    assert numbers - 4 * 64 - 64 * 64 - 64 * 2 - 64 - 64 - 2 < 10  # besides the policy: a start
    assert len(torch_bytes(program, {})) < 2 * 4 * numbers + 40_000


def test_environments_may_say_what_their_actions_are_called() -> None:
    class Game:
        action_names: Any = ()

        def get_action_meanings(self) -> list[str]:
            return ["NOOP", "FIRE"]

    class Broken:
        def get_action_meanings(self) -> list[str]:
            raise RuntimeError

    class Envs:
        def __init__(self, inner: Any, names: tuple[str, ...] = ()) -> None:
            self.action_names, self.envs = names, [type("E", (), {"unwrapped": inner})()]

    assert names_of(Envs(Game())) == ["NOOP", "FIRE"]
    assert names_of(Envs(Game(), ("speed",))) == ["speed"]
    assert names_of(Envs(Broken())) == [] and names_of(object()) == []
