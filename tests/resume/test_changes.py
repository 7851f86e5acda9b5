"""What can change when a run goes on, what cannot, and how it is written down."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.changes import changed_run, constant_from, cut_short, never_learns
from tenfold.config.files import named
from tenfold.config.notation import read_yaml
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.metrics import read_rows
from tenfold.runs.seeds import SeedsFolder


def test_settings_that_can_change_do_and_are_written_down(
    finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    before = ten.load(path).online.flat.tolist()
    assert (
        main(
            [
                "resume",
                str(path),
                "--steps",
                "650",
                "--agent.lr",
                "0",
                "--log-every",
                "10",
                "--eval-every",
                "0",
                "--keep",
                "1",
            ]
        )
        == 0
    )
    assert (
        "changed: agent.lr 0.0005 → 0, eval_every 200 → 0, keep 2 → 1, log_every 70 → 10, steps 600 → 650"
        in capsys.readouterr().err
    )
    assert ten.load(path).online.flat.tolist() == before  # which a learning rate of 0 leaves alone
    rows = [row for row in read_rows(path / "metrics.jsonl") if row["step"] > 600]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [610, 620, 630, 640, 650]
    assert not any(row["kind"] == "eval" for row in rows)
    assert [p.name for p in (path / "checkpoints").glob("step-*")] == [
        "step-000000000650.safetensors"
    ]
    assert json.loads((path / "run.json").read_text())["sessions"][1]["changed"]["agent.lr"] == [
        "0.0005",
        "0",
    ]
    assert "agent.lr 0.0005 → 0" in (path / "report.html").read_text()
    run = Run.of(read_yaml(path / "config.yaml"))
    assert (run.agent.lr, run.steps, run.log_every, run.eval_every, run.keep) == (0, 650, 10, 0, 1)


@pytest.mark.parametrize(
    "flag", ["--agent.gamma", "--num-envs", "--seed", "--env", "--agent.net.hidden", "--agent.name"]
)
def test_settings_that_cannot_change_are_refused_by_name(
    flag: str, finished_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished_once / "config.yaml").read_bytes()
    assert main(["resume", str(finished_once), "--steps", "700", flag, "3"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith(f"tenfold: {flag[2:].replace('-', '_')} cannot change on resume")
        and said.count("\n") == 1
    )
    assert (
        "What can change: steps, agent.lr, " in said
        and (finished_once / "config.yaml").read_bytes() == before
    )


def test_nobody_goes_on_with_a_learning_rate_of_0_unasked() -> None:
    preset = named("cartpole")  # its learning rate ends at 0 with the run
    with pytest.raises(
        ConfigError,
        match=r"agent\.lr = linear\(.*\) ended at 0 at step 50,000: nothing would be learned from there to "
        r"step 100,000; give --agent\.lr",
    ):
        changed_run(preset, {"steps": 100_000})
    assert (
        changed_run(preset, {"steps": 100_000, "agent": {"lr": "linear(1e-4, 0, 100k)"}}).steps
        == 100_000
    )
    assert changed_run(preset, {"steps": 40_000}).steps == 40_000
    assert changed_run(preset, {"eval_every": 0}) == named("cartpole", {"eval_every": 0})
    # meant so from the start: a resume equals never having stopped
    idle = named("cartpole", {"steps": 60_000})
    assert changed_run(idle, {}) == idle


def test_going_on_beyond_a_schedule_is_said_in_one_line() -> None:
    before = named("catch")  # its learning rate ends at 0.0001
    after = changed_run(before, {"steps": 50_000})
    words = constant_from(before, after)
    assert (
        "ends at step 30,000 and stays at 0.0001 to step 50,000: --agent.lr sets another." in words
    )
    assert constant_from(before, before) == constant_from(after, after) == ""
    assert (
        constant_from(before, changed_run(before, {"steps": 50_000, "agent": {"lr": 1e-4}})) == ""
    )


def test_one_actor_cannot_move_on_resume_and_several_can() -> None:
    for where in ("processes", "ray"):
        with pytest.raises(ConfigError, match=f"where = {where} cannot be on resume"):
            changed_run(Run(), {"where": where})
        assert changed_run(Run(actors=2), {"where": where}).where == where


def test_changes_of_many_seeds_stay_with_their_folder(
    tmp_path: Path, small_run: Callable[..., Run]
) -> None:
    folder = SeedsFolder.create(tmp_path / "many", small_run(), (0, 1))
    with pytest.raises(UserError, match=r"agent\.gamma cannot change on resume"):
        folder.changed({"steps": 900, "agent": {"gamma": 0.5}})
    assert SeedsFolder.open(tmp_path / "many").run.steps == 600
    folder.changed({"steps": "700"}).changed({"agent": {"lr": "1e-4"}})
    again = SeedsFolder.open(tmp_path / "many")
    assert (again.run.steps, again.run.agent.lr) == (700, 1e-4)
    # a member that was not there goes on with both
    assert again.changes == {"steps": "700", "agent": {"lr": "1e-4"}}


def test_changes_are_nested_or_have_dotted_names() -> None:
    run = Run.of({"steps": 100})
    for change in ({"agent.lr": 1e-4, "steps": 200}, {"agent": {"lr": 1e-4}, "steps": 200}):
        assert changed_run(run, change) == Run.of({"steps": 200, "agent": {"lr": 1e-4}})
    given = {"agent": {"lr": 1e-4}, "agent.lr": 1e-5}
    # the caller's own settings stay as they are
    assert changed_run(run, given).agent.lr == 1e-5 and given["agent"] == {"lr": 1e-4}
    with pytest.raises(ConfigError, match=r"agent\.gamma cannot change on resume"):
        changed_run(run, {"agent.gamma": 0.9})


def test_a_run_that_ends_before_it_learns_is_told_so() -> None:
    assert never_learns(
        Run.of({"steps": 2047, "agent": {"name": "ppo", "horizon": 256}, "num_envs": 8})
    ) == (
        "this run ends at step 2,047, before it learns: a rollout of agent.horizon = 256 comes first."
    )
    assert never_learns(Run.of({"steps": 1000, "agent": {"learning_starts": 1000}})) == (
        "this run ends at step 1,000, before it learns: agent.learning_starts = 1,000 comes first."
    )
    assert (
        never_learns(
            Run.of({"steps": 2048, "agent": {"name": "ppo", "horizon": 256}, "num_envs": 8})
        )
        == ""
    )
    assert never_learns(Run.of({"steps": 1001, "agent": {"learning_starts": 1000}})) == ""


def test_a_run_that_ends_before_its_learning_rates_schedule_is_told_so() -> None:
    run = Run.of({"steps": 100, "agent": {"lr": "linear(1e-3, 0, 50k)"}})
    assert (
        cut_short(run)
        == "agent.lr = linear(start=0.001, end=0, steps=50000) is made for 50,000 steps, and this run ends at 100."
    )
    assert (
        cut_short(Run.of({"steps": 100}))
        == cut_short(Run.of({"steps": 50_000, "agent": {"lr": "linear(1e-3, 0, 50k)"}}))
        == ""
    )


def test_several_seeds_are_told_once_what_one_is_told(here) -> None:
    """And how many are trained at a time is no seed's number."""
    quick = ("--steps", "20", "--eval-episodes", "1", "--agent.net.hidden", "8")
    said = here(
        "train", "dqn", *quick, "--agent.lr", "linear(1e-3, 0, 50k)", "--seeds", "2", "--jobs", "1"
    ).stderr
    assert "dqn on CartPole-v1, seeds 0, 1 (1 at a time) -> runs/" in said
    assert said.count("is made for 50,000 steps, and this run ends at 20.") == 1
    assert said.count("engine fused, ") == 1 and said.count("; on cpu") == 1
    assert said.count("evaluations: at the end, 1 episodes of at most 500 steps") == 1
