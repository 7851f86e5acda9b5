"""Many seeds in one command: each equals the run it would be alone; together they are one
result."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.checkpoint import Checkpoints, checkpoint_steps
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import latest_row
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.statistics import bootstrap_interval, interquartile_mean, together
from tenfold.training.loop import train
from tenfold.training.run_group import resume_seeds, train_seeds


def contents(path: Path) -> dict[str, bytes]:
    """The last checkpoint's arrays and the metrics without their timing."""
    folder, run = RunFolder.open(path)
    arrays, _, note, complaints = Checkpoints(folder, run.keep).latest()
    assert complaints == [] and note["step"] == run.steps
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    metrics = json.dumps([{k: v for k, v in row.items() if k != "timing"} for row in rows]).encode()
    return {name: np.ascontiguousarray(a).tobytes() for name, a in arrays.items()} | {
        "metrics": metrics
    }


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    agent = {
        "batch_size": 8,
        "learning_starts": 50,
        "every": 4,
        "capacity": 400,
        "net": {"hidden": [16]},
        "replay": "prioritized",
    }
    run = Run.of(
        {
            "env": "CartPole-v1",
            "steps": 600,
            "eval_every": 200,
            "eval_episodes": 2,
            "checkpoint_every": 200,
            "log_every": 100,
            "agent": agent,
        }
    )
    result = train_seeds(
        run, (0, 3, 5, 9), tmp_path_factory.mktemp("seeds") / "four", jobs=1, quiet=True
    )
    assert result.seeds == (0, 3, 5, 9) and result.interrupted == 0
    return result.path


def test_member_i_equals_the_run_of_seed_i_alone(four: Path, tmp_path: Path) -> None:
    alone = train(SeedsFolder.open(four).run_of(5), tmp_path / "alone", quiet=True)
    assert contents(alone.path) == contents(four / "seed-5")
    assert contents(alone.path) != contents(four / "seed-3")


def test_seeds_that_were_killed_go_on_and_end_as_if_they_never_stopped(
    four: Path, begin: Callable[..., Any], tmp_path: Path
) -> None:
    process = begin(
        "train",
        str(four / "config.yaml"),
        "--seeds",
        "3,5",
        "--jobs",
        "1",
        "--out",
        "cut",
        "--quiet",
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut" / "seed-3" / "metrics.jsonl").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.5)  # the kernel ends the workers with their parent
    resume_seeds(tmp_path / "cut", jobs=1, quiet=True)
    for seed in (3, 5):
        assert contents(tmp_path / "cut" / f"seed-{seed}") == contents(four / f"seed-{seed}")


def test_ctrl_c_saves_every_seed_and_says_how_to_go_on(
    small_run: Callable[..., Run], begin: Callable[..., Any], tmp_path: Path
) -> None:
    import yaml

    from tenfold.config.schema import to_mapping

    (tmp_path / "run.yaml").write_text(yaml.safe_dump(to_mapping(small_run(steps=10**7))))
    process = begin(
        "train",
        "run.yaml",
        "--seeds",
        "3",
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "many"),
        "--quiet",
    )
    deadline = time.monotonic() + 120
    while not all((tmp_path / "many" / f"seed-{s}" / "metrics.jsonl").exists() for s in (0, 1)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    steps = [checkpoint_steps(tmp_path / "many" / f"seed-{seed}")[-1] for seed in (0, 1)]
    assert out == (
        f"Stopped and saved: seed 0 at step {steps[0]:,}, seed 1 at step {steps[1]:,}. Go on with: tenfold resume "
        f"{tmp_path / 'many'}\n"
    )
    assert not (tmp_path / "many" / "seed-2").exists()  # the third never began
    for seed in (0, 1):
        folder, run = RunFolder.open(tmp_path / "many" / f"seed-{seed}")
        assert Checkpoints(folder, run.keep).latest()[2]["step"] > 0


@pytest.mark.slow
def test_ctrl_c_while_the_processes_start_is_a_stop_like_any_other(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    import yaml

    from tenfold.config.schema import to_mapping

    (tmp_path / "run.yaml").write_text(yaml.safe_dump(to_mapping(small_run(steps=10**7))))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tenfold",
            "train",
            str(tmp_path / "run.yaml"),
            "--seeds",
            "2",
            "--jobs",
            "2",
            "--out",
            str(tmp_path / "many"),
            "--quiet",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 120

    def starting() -> int:
        found = (Path(f"/proc/{child}/cmdline") for child in children.read_text().split())
        return sum(b"spawn_main" in cmdline.read_bytes() for cmdline in found if cmdline.exists())

    while starting() < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)  # their interpreters run, and import what they need for seconds
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate(timeout=60)
    # a busy machine may take longer than a moment to stop, which is told
    slow = "tenfold: stopping after the step under way"
    other = [line for line in err.splitlines() if not line.startswith(slow)]
    assert process.returncode == 130 and not other, err
    assert (
        out
        == f"Stopped before anything was saved. Go on with: tenfold resume {tmp_path / 'many'}\n"
    )
    assert not (tmp_path / "many" / "seed-0").exists()


def test_the_folder_is_evaluated_reported_and_resumed_as_one(
    four: Path, tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shutil.copytree(four, tmp_path / "runs" / "many")
    found = json.loads(here("eval", "--episodes", "3", "--json").stdout)  # the latest run: all four
    means = [member["mean_return"] for member in found["members"]]
    assert len(means) == 4 and found["iqm"] == pytest.approx(np.mean(sorted(means)[1:3]))
    assert found["interval"] is None  # four seeds carry none
    assert set(json.loads((four / "summary.json").read_text())["seeds"]) == {"0", "3", "5", "9"}
    page = (four / "report.html").read_text()
    assert "interquartile mean of 4 seeds" in page and "<td>600</td>" in page
    assert (
        "<th>torch</th>" in page
        and "<th>cores</th>" in page
        and "<h2>Command</h2><pre>[&quot;" in page
    )
    listed = here("list").stdout
    assert (
        "dqn on CartPole-v1, 4 of 4 seeds finished at 600, mean return " in listed
        and "seed-0" not in listed
    )
    filmed = here("eval", "runs/many", "--video")
    assert filmed.returncode == 2 and "runs/many/seed-0" in filmed.stderr
    files = [tmp_path / "runs" / "many" / name for name in ("config.yaml", "seeds.json")]
    before = [file.read_text() for file in files]
    for flags, words in (
        (["--steps", "100"], "steps = 100 is less than seed 0 has done, 600"),
        (["--steps", "900", "--device", "cuda"], "no CUDA device"),
    ):
        refused = here("resume", "runs/many", *flags)
        assert (
            refused.returncode == 2
            and words in refused.stderr
            and [file.read_text() for file in files] == before
        )
    more = here("resume", "runs/many", "--steps", "700", "--jobs", "1", "--quiet")
    assert more.returncode == 0 and "4 seeds" in more.stdout
    members = json.loads((tmp_path / "runs" / "many" / "summary.json").read_text())["seeds"]
    assert [member["step"] for member in members.values()] == [700] * 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("0", "cannot be read"),
        ("3..1", "cannot be read"),
        ("a", "cannot be read"),
        ("1,1", "twice"),
        ("99999999999", "at most 10,000"),
        ("9" * 30, "at most 10,000"),
        ("-3", "cannot be read"),
        ("1,,2", "cannot be read"),
    ],
)
def test_seeds_that_cannot_be_are_refused(
    given: str, words: str, here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = here("train", "cartpole", f"--seeds={given}")
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_an_environment_that_other_processes_do_not_have_is_refused_and_leaves_nothing(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"own/.* is an object or a function of this process, .*my_module:Mine-v0"
    ):
        train_seeds(small_run(env=lambda: gym.make("CartPole-v1")), 2, tmp_path / "many")
    assert not (tmp_path / "many").exists()


def test_one_run_and_many_seeds_replace_each_other_only_when_told(
    four: Path, small_run: Callable[..., Run], tmp_path: Path
) -> None:
    shutil.copytree(four, tmp_path / "many")
    with pytest.raises(UserError, match=r"holds a run already.*tenfold resume"):
        train(small_run(), tmp_path / "many", quiet=True)
    train(small_run(steps=100), tmp_path / "many", overwrite=True, quiet=True)
    assert not (tmp_path / "many" / "seed-0").exists()
    with pytest.raises(UserError, match="holds a run already"):
        SeedsFolder.create(tmp_path / "many", small_run(), (0,))


def test_an_error_in_one_seed_is_named_and_twice_the_same_seed_refused(
    four: Path, tmp_path: Path
) -> None:
    shutil.copytree(four, tmp_path / "many")
    settings = tmp_path / "many" / "seed-0" / "config.yaml"
    settings.write_text(re.sub(r"\nsteps: \d+", "\nsteps: -3", settings.read_text()))
    with pytest.raises(UserError, match=r"Seed 0: steps = -3 is out of range"):
        resume_seeds(tmp_path / "many", 700, jobs=1, quiet=True)
    with pytest.raises(ConfigError, match="none of them twice"):
        train_seeds(SeedsFolder.open(four).run, (1, 1), tmp_path / "other")


@pytest.mark.parametrize("lost", ["", ', "seeds": null', ', "seeds": []', ', "seeds": ["a"]'])
@pytest.mark.parametrize("command", ["resume", "eval", "report"])
def test_a_folder_that_has_lost_its_list_of_seeds_is_refused(
    lost: str, command: str, four: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.main import main

    shutil.copytree(four, tmp_path / "many")
    (tmp_path / "many" / "seeds.json").write_text('{"kind": "tenfold-seeds"' + lost + "}")
    assert main([command, str(tmp_path / "many")]) == 2
    assert "seeds.json: seeds" in capsys.readouterr().err


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean(np.array([0.0, 1, 2, 3, 4, 5, 6, 1000])) == 3.5  # 2, 3, 4, 5
    assert interquartile_mean(np.array([1.0, 2, 6])) == 3.0  # too few to leave any out
    assert together([5.0, 5.0, 5.0, 5.0, 5.0])["interval"] == [5.0, 5.0]
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):  # the 95 % interval covers the true mean about so often
        low, high = bootstrap_interval(rng.normal(size=24))
        covered += low <= 0 <= high
    assert covered >= 48


@pytest.mark.parametrize("after", ["short episodes", "a long row"])
def test_the_latest_row_is_found_however_much_stands_after_it_or_in_it(
    after: str, tmp_path: Path
) -> None:
    """Progress shows the step of the last training row, not 0."""
    train = {"kind": "train", "step": 700, "updates": 1, "timing": {}, "return": 3.0} | (
        {} if after == "short episodes" else {f"reward/{i}": 0.123456789 for i in range(3000)}
    )
    episode = json.dumps({"kind": "episode", "step": 701, "return": 1.0}) + "\n"
    (tmp_path / "metrics.jsonl").write_text(
        json.dumps(train | {"step": 600}) + "\n" + json.dumps(train) + "\n" + episode * 2000
    )
    assert latest_row(tmp_path / "metrics.jsonl")["step"] == 700
    assert (
        latest_row(tmp_path / "metrics.jsonl", "fit") == {}
        and latest_row(tmp_path / "nowhere") == {}
    )
