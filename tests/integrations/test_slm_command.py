"""The command line of SLM-Lab's specs."""

import json
from pathlib import Path
from typing import Any

import pytest
from slm_specs import DQN, with_keys, written

from tenfold.cli import main as cli
from tenfold.cli import tools
from tenfold.cli.main import main
from tenfold.core.registry import made_from
from tenfold.integrations.slm_lab.file_form import FORM
from tenfold.training import sweep as sweeping

QUICK = ["--engine", "plain", "--steps", "240", "--log-every", "40", "--eval-episodes", "1"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROFILE", raising=False)
    return str(written(tmp_path, DQN))


def test_a_session_is_trained_measured_and_resumed(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", file, "mine", *QUICK, "dev"]) == 0
    text = capsys.readouterr()
    assert f"mine of {file}: dqn on CartPole-v1, 240 frames" in text.err
    assert "differs from SLM-Lab: agent.net.update_frequency = 50" in text.err
    about = json.loads(Path("runs/mine/run.json").read_text())
    assert about["source"]["spec"] == "mine"
    assert 18 < about["source"]["random_return"] < 28
    for name in ("strength", "final strength", "sample efficiency", "stability", "total reward ma"):
        assert f"  {name} " in text.out
        assert f"<th>{name}</th>" in Path("runs/mine/report.html").read_text()
    assert main(["train", file, "mine", "train@latest"]) == 2
    assert "runs/mine is finished at step 240" in capsys.readouterr().err
    assert main(["resume", "runs/mine", "--more", "80", "--quiet"]) == 0
    assert "  strength " in capsys.readouterr().out


@pytest.mark.slow  # processes of their own
def test_sessions_have_measures_together(file: str) -> None:
    assert main(["train", file, "mine", "train", *QUICK, "--quiet", "--jobs", "1"]) == 0
    summary = json.loads(Path("runs/mine/summary.json").read_text())
    assert [*summary["seeds"]] == ["0", "1"]
    measures = summary["measures"]
    assert {"strength", "consistency", "total_reward_ma"} <= measures.keys()
    source = json.loads(Path("runs/mine/seeds.json").read_text())["source"]
    members = [Path(f"runs/mine/seed-{seed}") for seed in (0, 1)]
    assert FORM.results(source, members) == measures


def test_only_commands_that_name_a_spec_are_theirs(file: str, tmp_path: Path) -> None:
    ours = tmp_path / "ours.yaml"
    ours.write_text("agent: dqn\nenv: CartPole-v1\n")
    assert FORM.claims(["train", file, "mine"])
    assert FORM.claims([file, "mine", "dev"])
    assert FORM.claims(["train", "run", "-s", "env=x", file])
    assert FORM.claims(["train", "nothing.json", "mine"])
    assert not FORM.claims(["train", str(ours)])
    assert not FORM.claims(["train", "cartpole"])
    assert not FORM.claims(["eval", file])
    assert not FORM.claims([])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mine", "play"], "play is not a mode: dev, train, search, enjoy are"),
        (["your", "dev"], "has no spec your"),
        (["mine", "dev", "-s", "env"], "-s env cannot be read: write -s key=value"),
        (["mine", "enjoy"], "There is no run of mine below runs/"),
        (["mine", "dev", "--agent.lrr", "1"], "--agent.lrr is not a flag"),
        (["mine", "search"], "search is empty"),
    ],
)
def test_mistakes(
    file: str, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", file, *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_key_is_refused_before_anything_is_written(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, with_keys(DQN, {"agent.algorithm.name": "SARSA"}))
    assert main(["train", file, "mine", "dev"]) == 2
    assert "agent.algorithm.name = SARSA is not in tenfold" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize("form", ["environment", "flag", "command"])
def test_profiles(file: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(tools, "show_run_profile", lambda run, *_: shown.append(run) or 0)
    words = ["train", file, "mine", "dev"]
    if form == "environment":
        monkeypatch.setenv("PROFILE", "true")
    elif form == "flag":
        words.append("--profile=true")
    else:
        words[0] = "profile"
    assert main(words) == 0
    assert shown[0].env == "CartPole-v1"


def test_words_about_their_machine_are_answered(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "show_run_profile", lambda run, *_: 0)
    monkeypatch.setenv("UPLOAD_HF", "true")
    assert main(["run", file, "mine", "--profile", "--render"]) == 0
    text = capsys.readouterr().err
    assert "Note: RENDER is not used: tenfold eval RUN --video films an episode" in text
    assert "Note: UPLOAD_HF is not used" in text


def test_going_on_and_playing_are_our_commands(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(cli, "main", lambda words: begun.append(words) or 0)
        for path in ("runs/mine", "runs/mine-2"):
            Path(path).mkdir(parents=True)
        FORM.run(["train", file, "mine", "train@latest"])
        FORM.run(["train", file, "mine", "enjoy@runs/mine"])
    assert begun == [["resume", "runs/mine-2"], ["eval", "runs/mine"]]


def test_a_search_is_a_sweep(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search = {"agent.algorithm.gamma__uniform": [0.9, 0.99]}
    written(tmp_path, DQN | {"search": search})
    begun: dict[str, Any] = {}

    def sweep(run: Any, spaces: Any, trials: int, seeds: Any, out: Any, **how: Any) -> Any:
        begun.update(how, spaces=spaces, trials=trials, seeds=seeds)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "sweep", sweep)
    assert main(["train", file, "mine", "search", "--seed", "5", "--quiet"]) == 130
    assert begun["spaces"] == {"agent.gamma": "range(0.9, 0.99)"}
    assert (begun["trials"], begun["seeds"], begun["confirm"]) == (3, (5, 6), 0)


def test_other_runs_know_nothing_of_it(tmp_path: Path) -> None:
    from tenfold.runs.folder import origin

    with made_from({"form": "slm_lab"}):
        assert origin("x")["source"] == {"form": "slm_lab"}
    assert "source" not in origin("x")
