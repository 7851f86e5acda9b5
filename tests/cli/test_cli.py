"""The command line as its user sees it."""

import base64
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.cli import main as cli
from tenfold.cli import tools
from tenfold.cli.main import main
from tenfold.core.registry import Command, Domain
from tenfold.runs.folder import RunFolder
from tenfold.runs.report import write_report

QUICK = [
    "--steps",
    "400",
    "--agent.learning-starts",
    "50",
    "--agent.capacity",
    "300",
    "--agent.net.hidden",
    "8",
    "--eval-every",
    "200",
    "--eval-episodes",
    "2",
    "--checkpoint-every",
    "200",
    "--log-every",
    "100",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    assert (
        main(
            [
                "train",
                "cartpole",
                *QUICK,
                "--agent.every",
                "4",
                "--agent.updates",
                "1",
                "--out",
                str(path),
            ]
        )
        == 0
    )
    return path


def test_train_says_what_it_does_and_where_the_results_are(tenfold) -> None:
    done = tenfold("train", "dqn", "--env", "CartPole-v1", *QUICK, "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "dqn on CartPole-v1, seed 3, 400 steps -> runs/dqn-CartPole-v1" in done.stderr
    assert "replay of 300 rows takes 0.0 MiB" in done.stderr and "engine fused" in done.stderr
    assert "time: " in done.stderr and "env" in done.stderr and "update" in done.stderr
    # as many as there were
    assert re.search(r"mean return of the last \d\d training episodes: ", done.stdout)
    assert "report: runs/dqn-CartPole-v1/report.html" in done.stdout


def test_a_run_folder_holds_everything(trained: Path) -> None:
    about = json.loads((trained / "run.json").read_text())
    assert about["versions"]["torch"] and about["machine"]["cores"] and about["command"]
    assert (trained / "config.yaml").read_text().startswith("env: CartPole-v1")
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"episode", "train", "eval"}
    train = [row for row in rows if row["kind"] == "train"]
    assert [row["step"] for row in train] == [100, 200, 300, 400]
    assert train[-1]["epsilon"] == pytest.approx(1 - 0.96 * 400 / 8000) and train[-1]["loss"] > 0
    assert set(train[-1]["timing"]["shares"]) >= {
        "act",
        "env",
        "store",
        "update",
        "evaluate",
        "save",
    }
    assert sum(train[-1]["timing"]["shares"].values()) == pytest.approx(1)
    assert sum(row["length"] for row in rows if row["kind"] == "episode") <= 400
    assert list((trained / "tensorboard").glob("events*"))
    page = (trained / "report.html").read_text()
    assert (
        '<figure class="chart">' in page
        and "mean return of the last" in page
        and "capacity: 300" in page
    )
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_eval_prints_one_json_object(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(trained), "--episodes", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == len(found["returns"]) == 5
    assert found["mean_return"] == pytest.approx(np.mean(found["returns"]))
    assert found["std_return"] == pytest.approx(np.std(found["returns"]))
    assert 5 < found["random_mean_return"] < 80


def test_eval_is_repeatable_and_chooses_checkpoints(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def returns(*flags: str) -> list[float]:
        assert main(["eval", str(trained), "--episodes", "20", "--json", *flags]) == 0
        return json.loads(capsys.readouterr().out)["returns"]

    assert (
        returns() == returns() == returns("--checkpoint", "last") == returns("--checkpoint", "400")
    )
    assert returns("--seed", "9") != returns()
    policies = [ten.load(trained, which).online.flat.tolist() for which in ("200", "400", "best")]
    assert policies[0] != policies[1] and policies[2] in policies[:2]


def test_eval_shows_the_random_policy_beside_it(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(trained), "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    assert "trained" in out and "random" in out


@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
def test_video_without_a_screen(
    trained: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["eval", str(trained), "--episodes", "1", "--video", str(tmp_path / name), "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    content = (tmp_path / name).read_bytes()
    assert content[:3] == b"GIF" if name.endswith("gif") else b"ftyp" in content[:16]
    assert found["frames"] == found["lengths"][0] + 1  # the first frame, and one a step


def test_a_film_that_is_there_stays_until_the_new_one_is_whole(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    film, command = (
        tmp_path / "film.gif",
        ["eval", str(trained), "--episodes", "1", "--video", str(tmp_path / "film.gif")],
    )
    film.write_bytes(b"an older film")
    with monkeypatch.context() as broken:
        broken.setattr("tenfold.evaluation.video.write_gif", fail)
        assert main(command) == 2 and "No space left on device" in capsys.readouterr().err
    assert film.read_bytes() == b"an older film" and [p.name for p in tmp_path.iterdir()] == [
        "film.gif"
    ]
    assert main(command) == 0 and film.read_bytes()[:3] == b"GIF"


def test_resume_without_an_argument_takes_the_latest_run(here) -> None:
    here("train", "dqn", *QUICK, "--out", "runs/older", "--quiet")
    here("train", "dqn", *QUICK, "--out", "runs/newer", "--quiet")
    done = here("resume")
    assert (
        done.returncode == 2
        and "runs/newer is finished at step 400: give --more or a larger" in done.stderr
    )
    done = here("resume", "--steps", "0.5k")
    assert done.returncode == 0 and "results: runs/newer" in done.stdout


def test_list_shows_presets_agents_engines_environments_and_runs(here) -> None:
    here("train", "dqn", *QUICK, "--out", "runs/mine", "--quiet")
    shown = here("list").stdout
    assert "implicit, categorical, noisy, as fields of one agent." in shown  # sentences are whole
    for word in (
        "presets",
        "cartpole",
        "catch",
        "agents",
        "dqn",
        "engines",
        "plain",
        "CartPole-v1",
        "tenfold/Catch-v0",
        "runs/mine",
        "dqn on CartPole-v1, finished at 400, return ",
    ):
        assert word in shown
    assert "Ant-v3" not in shown and "Hopper-v2" not in shown  # Gymnasium only knows that they were


def test_check_walks_the_pairs_and_fails_when_one_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from tenfold.core import pairs

    two = [p for p in pairs.all_pairs() if p.name in ("ops.adam.clip", "ops.qlearning.dueling")]
    monkeypatch.setattr(pairs, "all_pairs", lambda: two)
    assert main(["check"]) == 0
    assert "2 of 2 fast paths equal their references" in capsys.readouterr().out
    assert main(["check", "dueling"]) == 0
    assert "1 of 1 fast paths equal their references" in capsys.readouterr().out
    assert main(["check", "duelling"]) == 2
    assert "No fast path has duelling in its name" in capsys.readouterr().err
    monkeypatch.setattr(
        pairs, "all_pairs", lambda: [two[0], replace(two[1], fast=lambda x: two[1].fast(x) + 0.01)]
    )
    assert main(["check"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_a_pipe_cuts_no_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["check", "core.random.fill_uniform"]) == 0
    assert "core.random.fill_uniform " in capsys.readouterr().out


def test_version_and_help(tenfold) -> None:
    assert tenfold("--version").stdout == f"tenfold {ten.__version__}\n"
    text = tenfold("train", "dqn", "--help").stdout
    assert (
        "--agent.n-step" in text
        and "rewards summed before bootstrapping" in text
        and "default 0.99" in text
    )


@pytest.mark.parametrize(
    ("given", "there", "not_there"),
    [
        (
            ["train", "--help"],
            ["--steps", "tenfold train dqn --help", "--help-all", "--agent.name"],
            ["--agent.lr", "--agent.planner"],
        ),
        (
            ["train", "ppo", "--help"],
            ["--steps", "settings of agent ppo", "--agent.horizon", "default 0.0003"],
            ["--agent.capacity", "--agent.planner.policy"],
        ),
        (
            ["train", "cartpole", "--help"],
            ["settings of agent dqn", "--agent.capacity", "default 50000, here 100000"],
            ["--agent.horizon"],
        ),
        (
            ["train", "--steps", "3", "explorer", "--help"],
            ["--agent.planner.policy"],
            ["--agent.capacity", "--agent.horizon"],
        ),
        (["profile", "ppo", "--help"], ["--agent.horizon", "--trace"], ["--agent.capacity"]),
        (
            ["train", "ppo", "--help-all"],
            ["--agent.capacity", "--agent.horizon", "--agent.planner.policy"],
            [],
        ),
    ],
)
def test_help_shows_the_settings_of_the_agent_in_question(
    given: list[str], there: list[str], not_there: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(given)
    text = " ".join(capsys.readouterr().out.split())
    assert [word for word in there if word not in text] == [] and [
        word for word in not_there if f"{word} " in text
    ] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["ppo", "--learning-rate", "1"], "tenfold calls it --agent.lr (learning rate"),
        (["ppo", "--agent.n_steps=9"], "tenfold calls it --agent.horizon ("),
        (["dqn", "--n-steps", "4"], "tenfold calls it --agent.n-step ("),
        (["acrobot-ppo", "--ent-coef", "0"], "tenfold calls it --agent.entropy ("),
        (
            ["dqn", "--exploration-fraction", ".1"],
            "tenfold calls it --agent.explore (epsilon(schedule), boltzmann(temperature) or noisy(sigma), such as epsilon(linear(",
        ),
        (["dqn", "--gae-lambda", ".9"], "tenfold calls it --agent.lam (ppo: lambda of"),
        (["ppo", "--lr", "1"], "is not a flag of this command: write --agent.lr."),
        (
            ["ppo", "--agent.batch-size", "64"],
            "agent.batch_size = 64 is not a setting: tenfold calls it minibatch_size (",
        ),
        (["ppo", "--total-timesteps", "9"], "tenfold calls it --steps ("),
        (["ppo", "--n-envs", "9"], "tenfold calls it --num-envs ("),
    ],
)
def test_a_flag_by_another_librarys_name_is_answered_with_ours(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *given]) == 2
    assert said in capsys.readouterr().err


class Greeting(Domain):
    """A domain with a command and a flag of its own."""

    def commands(self) -> tuple[Command, ...]:
        def add(parsers, given) -> None:
            parsers.add_parser("greet", help="say hello").add_argument("whom")

        return (Command("greet", add, lambda arguments: print(f"hello {arguments.whom}") or 3),)

    def add_flags(self, parser) -> None:
        parser.add_argument("--loudly", action="store_true", help="of greetings")


def test_a_domain_adds_commands_and_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for room in (cli, tools):
        monkeypatch.setattr(room, "domains", lambda: (Greeting(),))
    monkeypatch.setattr(cli, "commands", cli.commands.__wrapped__)
    assert main(["greet", "you"]) == 3 and capsys.readouterr().out == "hello you\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:4] == " " * 4
    ]
    others = ["export", "pack", "check", "profile", "list"]
    assert shown == ["train", "resume", "sweep", "eval", "greet", "report", "watch", *others]
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    flags = capsys.readouterr().out
    assert "--loudly" in flags and "--substrate" not in flags


def test_python_api(small_run, tmp_path: Path) -> None:
    run = ten.train(small_run({"double": True}), out=tmp_path / "run", quiet=True)
    score = ten.evaluate(run, episodes=3)
    assert len(score.returns) == 3 and score.mean_return == pytest.approx(np.mean(score.returns))
    agent = ten.load(tmp_path / "run")
    assert agent.act(np.zeros(4, np.float32)) in (0, 1)
    assert agent.act(np.zeros((6, 4), np.float32)).shape == (6,)
    assert ten.evaluate(tmp_path / "run", episodes=3).returns == score.returns


def test_names_that_are_imported_later_are_shown_all_the_same() -> None:
    assert {"train", "Run", "DQN", "load", "ops", "__version__"} <= set(dir(ten))
    assert {"gae", "MaskedHeads", "RunningNorm"} <= set(dir(ten.ops))


def test_an_environment_that_is_not_deterministic_says_that_its_resume_is_not_exact(here) -> None:
    import gymnasium as gym

    settings = {"entry_point": gym.spec("CartPole-v1").entry_point, "max_episode_steps": 500}
    gym.register("tests/Drifting-v0", nondeterministic=True, **settings)
    train = ["train", "dqn", "--env", "tests/Drifting-v0", "--num-envs", "4"]
    try:
        done = here(*train, *QUICK, "--out", "drifting")
        assert done.returncode == 0, done.stderr
        assert "a resume will not be exact" in done.stderr
        done = here("resume", "drifting", "--steps", "800")
    finally:
        gym.registry.pop("tests/Drifting-v0")
    assert done.returncode == 0, done.stderr
    assert (
        "its episodes begin anew and this resume is not exact" in done.stderr
        and "step 80" in done.stderr
    )


def test_old_run_folders_that_name_vectorize_load_or_say_why_not(here) -> None:
    assert here("train", "dqn", *QUICK, "--out", "old").returncode == 0
    config = Path("old/config.yaml")
    config.write_text(config.read_text() + "vectorize: scalar\n")
    assert here("resume", "old", "--steps", "500").returncode == 0
    config.write_text(config.read_text() + "vectorize: native\n")
    done = here("resume", "old", "--steps", "600")
    assert done.returncode == 2 and "vectorize = native is no longer offered" in done.stderr


def test_environment_arguments_reach_the_environment(here) -> None:
    done = here(
        "train",
        "dqn",
        "--env",
        "FrozenLake-v1(is_slippery=false, map_name=8x8)",
        *QUICK,
        "--out",
        "lake",
        "--quiet",
    )
    assert done.returncode == 0, done.stderr
    assert (
        "FrozenLake-v1(is_slippery=false, map_name=8x8)"
        in here("eval", "lake", "--episodes", "2").stdout
    )


def test_a_users_own_environment_by_module(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # to which a command adds the folder it is in
    (tmp_path / "my_module.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=7)\n"
    )
    done = here("train", "dqn", "--env", "my_module:Mine-v0", *QUICK, "--out", "mine", "--quiet")
    assert done.returncode == 0, done.stderr
    assert max(json.loads(here("eval", "mine", "--episodes", "9", "--json").stdout)["lengths"]) == 7


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--out", ""], "--out is empty"),
        (["--env", ""], "env is empty: give an environment's id"),
        (
            ["--engine", "fuse"],
            "engine = fuse is not one of auto, resident, cudagraph, fused, compiled, plain",
        ),
    ],
)
def test_what_is_empty_or_unknown_is_refused_by_name(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "dqn", *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_run_is_named_after_the_agent_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = "--agent.horizon 32 --steps 64 --eval-every 0 --quiet --agent.net.hidden 8"
    assert main(["train", "dqn", "--agent.name", "ppo", *small.split()]) == 0
    assert (tmp_path / "runs" / "ppo-CartPole-v1").is_dir()


def test_an_environment_that_ends_the_program_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    monkeypatch.setattr(CartPoleEnv, "step", lambda self, action: sys.exit(7))
    assert main(["train", "dqn", "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert "ended the program (SystemExit: 7)" in capsys.readouterr().err


def test_the_name_of_an_agent_may_be_ones_own_says_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "|module:Name" in "".join(capsys.readouterr().out.split())


def test_a_damaged_checkpoint_is_noted_once(
    small_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ten.train(small_run({}), out=tmp_path / "run", quiet=True)
    newest = max((run.path / "checkpoints").glob("step-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])
    assert main(["eval", str(run.path), "--episodes", "1"]) == 0
    assert capsys.readouterr().err.count("is taken instead") == 1


def test_layers_beside_a_network_of_ones_own_are_noted() -> None:
    from tenfold.config.changes import unused_layers

    net = {"module": "my_nets:MyNet", "hidden": [32]}
    assert "agent.net.hidden = 32 is not used" in unused_layers(ten.Run.of({"agent": {"net": net}}))
    assert not unused_layers(ten.Run.of({"agent": {"net": {"module": "my_nets:MyNet"}}}))
    assert not unused_layers(ten.Run.of({"agent": {"net": {"hidden": [32]}}}))


def test_a_film_in_a_runs_folder_is_on_its_page_at_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def film(env: str, agent: object, policy: object, seed: int, file: Path) -> int:
        file.write_bytes(b"GIF89a the film")
        return 1

    monkeypatch.setattr("tenfold.evaluation.evaluate.film", film)
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    write_report(*RunFolder.open(run))
    inside = base64.b64encode(b"GIF89a the film").decode()
    assert inside not in (run / "report.html").read_text()
    assert main(["eval", str(run), "--episodes", "1", "--video"]) == 0
    assert inside in (run / "report.html").read_text()
