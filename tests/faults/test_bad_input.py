"""A user's mistake is one sentence on standard error, exit code 2, no traceback, and nothing is
left behind or lost."""

import shutil
from pathlib import Path

import pytest

QUICK = [
    "--steps",
    "300",
    "--agent.learning-starts",
    "50",
    "--agent.capacity",
    "300",
    "--eval-every",
    "0",
    "--checkpoint-every",
    "100",
]

MISTAKES: list[tuple[list[str], str]] = [
    (
        ["train", "dqn", "--env", "CartPol-v1"],
        "There is no environment CartPol-v1: the nearest are CartPole-v1",
    ),
    (["train", "dqn", "--env", "CartPole-v99"], "There is no environment CartPole-v99"),
    (
        ["train", "cartpol"],
        "cartpol is no preset, agent or YAML file (did you mean cartpole, cartpole-ppo or cartpole-200k?): `tenfold list` shows the presets, agents are ",
    ),
    (
        ["train", "CartPole-v1"],
        "CartPole-v1 is an environment: say who learns in it, such as `tenfold train dqn --env CartPole-v1`",
    ),
    (
        ["compare", "runs/one", "runs/two"],
        "runs that are there are laid side by side by `tenfold report runs/one runs/two`.",
    ),
    (["compare", "plain-folder"], "by `tenfold report plain-folder`."),
    (["train", "missing.yaml"], "missing.yaml is not there"),
    (["train", "bad.yaml"], "agent.gama = 0.9 is not a setting: the nearest is gamma"),
    (
        ["train", "PPO"],
        "PPO is no preset, agent or YAML file (did you mean ppo?): `tenfold list` shows the presets, agents are dqn, ppo, sac, td3, explorer",
    ),
    (
        ["train", "ppo", "--tensorboard-log", "x"],
        "--tensorboard-log is not a flag of this command: TensorBoard's files are always written, to RUN/tensorboard.",
    ),
    (
        ["train", "ppo", "--norm-reward"],
        "tenfold calls it --normalize-reward (rewards for learning are divided by the running",
    ),
    (
        ["train", "ppo", "--frame-skip", "4"],
        "tenfold calls it --action-repeat (an action is played this many times",
    ),
    (
        ["train", "ppo", "--policy", "MlpPolicy"],
        "the network follows from the observations; --agent.net.hidden 64,64 sets its layers",
    ),
    (["train", "ppo", "--qwertz"], "--qwertz is not a flag of this command."),
    (
        ["train", "dqn", "--agent.gama", "0.9"],
        "--agent.gama is not a flag of this command (did you mean --agent.gamma?)",
    ),
    (
        ["train", "dqn", "--agent.batch-size", "many"],
        "agent.batch_size = many is not a whole number",
    ),
    (["train", "dqn", "--agent.batch-size"], "expected one argument"),
    (
        ["train", "dqn", "--agent.n-step", "0"],
        "agent.n_step = 0 is out of range: it must be at least 1",
    ),
    (
        ["train", "dqn", "--agent.gamma", "1.01"],
        "agent.gamma = 1.01 is out of range: it must be between 0 and 1",
    ),
    (
        ["train", "dqn", "--env", "Pendulum-v1"],
        "and dqn needs one Discrete action: train it with sac, td3 or ppo.",
    ),
    (
        ["train", "td3", "--env", "CartPole-v1"],
        "CartPole-v1 has discrete actions (Discrete(2)), and td3 needs continuous ones (a Box): "
        "train it with dqn, sac or ppo.",
    ),
    (["train", "sac", "--agent.temperature=-1"], "agent.temperature = -1 is out of range"),
    (["train", "dqn", "--agent.net.encoder", "nature"], "agent.net.encoder = nature needs images"),
    (["train", "dqn", "--agent.capacity", "1000G"], "The replay memory needs"),
    (["train", "ppo", "--agent.horizon", "9G"], "A rollout needs"),
    # 399 x (16384² + 16384) parameters, two terabytes
    (
        ["train", "dqn", "--agent.net.hidden", ",".join(["16384"] * 400)],
        "16384 makes 107,112,284,160 parameters, for whose learning 2,142,245,683,200 bytes are needed, more than are free",
    ),
    (
        ["train", "ppo", "--agent.net.hidden", ",".join(["16384"] * 400)],
        "16384 makes 214,224,568,320 parameters",
    ),
    (["train", "dqn", "--device", "cuda"], "PyTorch sees no CUDA device"),
    (["train", "dqn", "--vectorize", "native"], "--vectorize"),
    (["train"], "The following arguments are required: WHAT"),
    (["trian"], "trian is not a command (did you mean train?): train, "),
    (["--seed", "3", "train", "cartpole"], "--seed stands before the command: write tenfold"),
    (["--verison"], "--verison stands before the command (did you mean --version?)"),
    ([], "The following arguments are required: COMMAND"),
    (["resume", "nowhere"], "nowhere does not exist"),
    (["resume"], "There is no run below runs/"),
    (["resume", "plain-folder"], "plain-folder is not a tenfold run"),
    (["eval", "nowhere"], "nowhere does not exist"),
    (["eval", "--episodes", "0"], "There is no run below runs/"),
    (["report", "plain-folder"], "plain-folder is not a tenfold run"),
    (
        ["train", "dqn", *QUICK, "--out", "plain-folder"],
        "plain-folder exists and is not a tenfold run",
    ),
    (
        ["train", "dqn", *QUICK, "--out", "plain-folder", "--overwrite"],
        "plain-folder exists and is not a tenfold run",
    ),
    (
        ["train", "dqn", "--jobs", "2"],
        "--jobs says how many seeds are trained at the same time: give --seeds as well.",
    ),
    (["train", "dqn", "--seed", "7", "--seeds", "2"], "--seed and --seeds exclude each other"),
    (
        ["train", "dqn", *QUICK, "--out", "."],
        ". is the folder you are in, or holds it: name a folder of the run's own with --out, such as run",
    ),
    (
        ["train", "dqn", *QUICK, "--out", "..", "--overwrite"],
        ".. is the folder you are in, or holds it",
    ),
    (
        ["train", "dqn", *QUICK, "--out", "/", "--seeds", "2"],
        "/ is the folder you are in, or holds it",
    ),
    (
        ["train", "dqn", *QUICK, "--out", "a-file/run"],
        "a-file/run cannot be written: Not a directory",
    ),
    (["train", "dqn", *QUICK, "--out", "/proc/run"], "/proc/run cannot be written"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), MISTAKES, ids=[" ".join(m[0])[:60] for m in MISTAKES]
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tenfold.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("agent: {gama: 0.9}\n")
    (tmp_path / "a-file").write_text("")
    (tmp_path / "plain-folder").mkdir()
    (tmp_path / "plain-folder" / "thesis.txt").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    shown = capsys.readouterr()
    said = shown.err.replace("compiling kernels, once …\n", "")  # where no test before this one did
    assert sentence in said and shown.out == ""
    assert said.startswith("tenfold: ") and said.count("\n") == 1 and "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "plain-folder" / "thesis.txt").read_text() == "years of work"


def test_a_mistake_ends_the_real_process_with_code_2(tenfold) -> None:
    done = tenfold("train", "dqn", "--agent.n-step", "0")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "tenfold: agent.n_step = 0 is out of range: it must be at least 1.\n"


def test_an_existing_run_is_kept_unless_overwrite_is_said(here, tmp_path: Path) -> None:
    assert here("train", "dqn", *QUICK, "--out", "run", "--quiet").returncode == 0
    first = (tmp_path / "run" / "run.json").read_text()
    again = here("train", "dqn", *QUICK, "--out", "run", "--quiet")
    assert again.returncode == 2
    assert (
        "run holds a run already: continue it with `tenfold resume run`, replace it with --overwrite"
        in again.stderr
    )
    assert (tmp_path / "run" / "run.json").read_text() == first
    # settings that cannot be used do not destroy it either
    assert (
        here("train", "dqn", "--env", "Pendulum-v1", "--out", "run", "--overwrite").returncode == 2
    )
    assert (tmp_path / "run" / "run.json").read_text() == first
    assert here("train", "dqn", *QUICK, "--out", "run", "--overwrite", "--quiet").returncode == 0
    assert (tmp_path / "run" / "run.json").read_text() != first


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tenfold.cli.main import main

    path = tmp_path_factory.mktemp("quick") / "run"
    assert main(["train", "dqn", *QUICK, "--out", str(path), "--quiet"]) == 0
    return path


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--checkpoint", "77"],
            "--checkpoint 77 is not there: choose best, last or one of 200, 300",
        ),
        (
            ["--checkpoint", "best"],
            "has no best checkpoint (no evaluation ran, or the disk was full)",
        ),
        (["--episodes", "0"], "--episodes = 0 is out of range"),
        (["--episodes", "x"], "--episodes = x is not a whole number"),
        (
            ["--deterministic"],
            "this run is on CartPole-v1, played by its greedy policy (which `tenfold train --eval-policy greedy|sampled` chooses).",
        ),
        (["--video", "film.avi"], "must end in .gif or .mp4"),
    ],
)
def test_eval_refuses_what_is_not_there(
    flags: list[str], sentence: str, quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    assert main(["eval", str(quick), *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_an_environment_that_gives_nan_is_named_and_the_checkpoint_kept(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spoiled.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Spoiled(CartPoleEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Spoiled.steps += 1\n"
        "        obs, reward, *rest = super().step(action)\n"
        "        return obs, float('nan') if Spoiled.steps == 250 else reward, *rest\n"
        "gym.register('Spoiled-v0', Spoiled, max_episode_steps=500)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    done = here("train", "dqn", "--env", "spoiled:Spoiled-v0", *QUICK, "--out", "run", "--quiet")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert (
        "spoiled:Spoiled-v0, environment 0, episode" in done.stderr
        and "the reward is not finite" in done.stderr
    )
    assert (
        sorted(p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
        == "step-000000000200.safetensors"
    )


# things found by people who tried to break it


@pytest.fixture
def finished(tmp_path: Path, finished_once: Path) -> Path:
    shutil.copytree(finished_once, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("capacity: 400", "capacity: 500", "agent.capacity"),
        ("num_envs: 1", "num_envs: 2", "num_envs"),
        ("seed: 0", "seed: 1", "seed"),
        ("CartPole-v1", "Acrobot-v1", "env"),
        ("replay: uniform", "replay: prioritized", "agent.replay"),
    ],
)
def test_settings_changed_behind_a_runs_back_are_refused_on_resume(
    before: str, after: str, key: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    config = finished / "config.yaml"
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, after))
    assert main(["resume", str(finished), "--steps", "900"]) == 2
    assert (
        f"{key} in {config} is not what the checkpoint was trained with" in capsys.readouterr().err
    )


def test_jobs_of_a_single_run_are_refused_on_resume(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    assert main(["resume", str(finished), "--steps", "700", "--jobs", "2"]) == 2
    assert f"--jobs is for a run of many seeds, and {finished} is none." in capsys.readouterr().err


def test_an_end_that_lies_behind_is_refused_and_changes_nothing(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    before = (finished / "config.yaml").read_text()
    assert main(["resume", str(finished), "--steps", "10"]) == 2
    assert "steps = 10 is less than" in capsys.readouterr().err
    assert (finished / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b'5\n[1]\nnull\n{}\n{"kind": "eval"}\n{"kind": "episode", "return": "x", "step": 1}\n',
    ],
)
def test_damaged_metrics_do_not_stop_a_resume_or_a_report(
    content: bytes, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    (finished / "metrics.jsonl").write_bytes(content)
    assert main(["report", str(finished)]) == 0
    assert main(["resume", str(finished), "--steps", "700", "--quiet"]) == 0
    assert "has lost rows that were written before the checkpoint" in capsys.readouterr().err
    assert b"\x00\x00" not in (finished / "metrics.jsonl").read_bytes()


def test_the_best_score_survives_lost_metrics(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenfold.evaluation.player import Score
    from tenfold.training.loop import resume

    (finished / "metrics.jsonl").unlink()
    best = (finished / "checkpoints" / "best.safetensors").read_bytes()
    monkeypatch.setattr("tenfold.evaluation.evaluator.play", lambda *a, **k: Score([0.0], [1]))
    resume(finished, 800, quiet=True)
    assert (finished / "checkpoints" / "best.safetensors").read_bytes() == best


def test_rows_that_all_checkpoints_share_may_be_lost_and_the_network_is_still_there(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    from tenfold.training.loop import resume

    shutil.rmtree(finished / "replay")
    found = resume(finished, 700)
    assert found.step == 700 and not found.unsaved
    assert "The replay memory starts empty, so this resume is not exact" in capsys.readouterr().err


def test_overwrite_keeps_the_old_run_when_the_new_one_cannot_be_written(
    finished: Path, small_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenfold.core.errors import UserError
    from tenfold.training.loop import train

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tenfold.runs.folder.replace_file", full)
    before = sorted(finished.rglob("*"))
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        train(small_run(), finished, overwrite=True, quiet=True)
    assert sorted(finished.rglob("*")) == before
    assert [p.name for p in finished.parent.iterdir()] == ["run"]


def test_overwrite_loses_nothing_where_the_new_run_cannot_come_to_its_place(
    finished: Path, small_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenfold.core.errors import UserError
    from tenfold.training.loop import train

    before, rename = sorted(finished.rglob("*")), Path.rename

    def refused(self: Path, target: Path) -> Path:
        if self.suffix == ".new":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(UserError, match="cannot be written: Permission denied"):
        train(small_run(), finished, overwrite=True, quiet=True)
    assert sorted(finished.rglob("*")) == before and [
        p.name for p in finished.parent.iterdir()
    ] == ["run"]


def test_a_link_to_a_folder_can_be_trained_into(tmp_path: Path, small_run) -> None:
    from tenfold.training.loop import train

    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for overwrite in (False, True):
        assert (
            train(small_run(steps=60), tmp_path / "link", overwrite=overwrite, quiet=True).step
            == 60
        )
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "run.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]


def test_a_file_that_the_disk_refuses_is_one_sentence(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    def read_only(path: Path, content: bytes) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("tenfold.runs.report.replace_file", read_only)
    assert main(["report", str(finished)]) == 2
    assert (
        capsys.readouterr().err
        == f"tenfold: {finished}/report.html cannot be written (Read-only file system): --out FILE "
        "puts the page elsewhere.\n"
    )


def test_an_episode_without_end_is_cut_in_evaluations_and_ctrl_c_is_heard_there(
    small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CliffWalking has no time limit: an untrained greedy policy walks against a wall for ever."""
    import os
    import signal
    import threading

    from tenfold.evaluation.player import play
    from tenfold.training.learners import load
    from tenfold.training.loop import resume, train

    run = small_run(
        {"learning_starts": 10_000},
        env="CliffWalking-v1",
        steps=100,
        eval_every=100,
        episode_limit=50,
    )
    train(run, tmp_path / "cut", quiet=True)
    agent = load(tmp_path / "cut")
    assert max(play(run.env, agent, agent.policy("greedy"), 2, 0, limit=50).lengths) <= 50
    forever = small_run(
        {"learning_starts": 10_000},
        env="CliffWalking-v1",
        steps=200,
        eval_every=100,
        episode_limit=10**9,
        eval_steps=10**9,
    )

    def interrupted(*arguments, **named):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return play(*arguments, **named)

    monkeypatch.setattr("tenfold.evaluation.evaluator.play", interrupted)
    result = train(forever, tmp_path / "heard", quiet=True)
    assert (result.interrupted, result.step) == (signal.SIGINT, 100)
    config = tmp_path / "heard" / "config.yaml"
    assert (
        '"kind": "eval"' not in (tmp_path / "heard" / "metrics.jsonl").read_text()
        and config.exists()
    )
    assert resume(tmp_path / "heard", quiet=True).step == 100  # the evaluation it owes comes first


def test_an_evaluation_cut_short_by_ctrl_c_is_made_up_for_on_resume(
    small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json
    import os
    import signal

    from tenfold.evaluation import evaluator
    from tenfold.runs.metrics import read_rows
    from tenfold.training import loop as training

    training.train(small_run(), tmp_path / "straight", quiet=True)
    play = evaluator.play

    def interrupted(*arguments, **named):
        os.kill(os.getpid(), signal.SIGINT)
        return play(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "play", interrupted)
        result = training.train(small_run(), tmp_path / "cut", quiet=True)
        assert (result.interrupted, result.step) == (signal.SIGINT, 200)
    training.resume(tmp_path / "cut", quiet=True)

    def plain(name: str) -> list[str]:
        return [
            json.dumps({k: v for k, v in row.items() if k != "timing"})
            for row in read_rows(tmp_path / name / "metrics.jsonl")
        ]

    assert plain("cut") == plain("straight")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--video", "/nope/x.gif"], "--video /nope/x.gif cannot be written"),
        (["--video", "/nope/x.mp4"], "cannot be written"),
        (["--checkpoint", "²"], "--checkpoint ² is not there"),
        (["--episodes", "1e13"], "--episodes = 10000000000000 is out of range"),
    ],
)
def test_more_that_eval_refuses(
    flags: list[str], sentence: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    assert main(["eval", str(finished), "--episodes", "1", *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_a_resume_under_other_versions_says_so(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    from tenfold.training.loop import resume

    about = json.loads((finished / "run.json").read_text())
    about["versions"]["torch"] = "0.4.1"
    (finished / "run.json").write_text(json.dumps(about))
    resume(finished, 700, quiet=True)
    assert "torch was 0.4.1 when this run began and is" in capsys.readouterr().err


def test_a_run_that_diverges_stops_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    assert (
        main(
            [
                "train",
                "dqn",
                *QUICK,
                "--agent.lr",
                "1e18",
                "--log-every",
                "100",
                "--out",
                str(tmp_path / "run"),
                "--quiet",
            ]
        )
        == 2
    )
    assert "The loss is no longer finite at step" in capsys.readouterr().err
