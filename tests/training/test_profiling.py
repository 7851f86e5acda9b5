"""`tenfold profile`: what is measured, what it names, errors. No timing is asserted."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.training.profiling import Profile, profile_run, verdict, write_trace


def test_a_profile_covers_the_time_and_names_the_largest_cost(tmp_path: Path) -> None:
    run = Run.of({"agent": {"learning_starts": 100, "net": {"hidden": [16]}, "capacity": 1000}})
    found = [profile_run(run, engine, 300, quiet=True) for engine in ("plain", "fused")]
    assert [p.engine for p in found] == ["plain", "fused"]
    for p in found:
        stages = p.stages()
        assert sum(spent for _, spent in stages.values()) == pytest.approx(p.seconds, rel=1e-6)
        assert stages["act"][0] == stages["env"][0] == stages["update"][0] == p.steps == 300
        assert next(iter(stages.values()))[1] == max(spent for _, spent in stages.values())
    assert "sample" in found[0].stages() and "largest cost is" in verdict(found)
    write_trace(found, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "X" and e["pid"] == 1} == {
        "act",
        "env",
        "store",
        "update",
    }


def test_profile_from_the_command_line(
    here: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = here(
        "profile", "cartpole", "--engine", "fused", "--for", "200", "--agent.learning-starts", "100"
    )
    assert done.returncode == 0, done.stderr
    assert "largest cost" in done.stdout and (tmp_path / "profile.json").exists()
    assert here("profile", "cartpole", "--engine", "quick").returncode == 2


@pytest.mark.parametrize(
    ("what", "flags", "engines"),
    [
        ("dqn", [], ["plain", "fused"]),
        ("dqn", ["--agent.frames", "2"], ["plain"]),
        ("dqn", ["--engine", "fused,plain"], ["fused", "plain"]),
        ("explorer", [], ["plain"]),
    ],
)
def test_a_profile_measures_the_engines_that_can_run_it(
    what: str, flags: list[str], engines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(run: Run, engine: str, steps: int) -> Profile:
        measured.append(engine)
        return Profile(engine, 1, 1.0, [("env", 0, 1)])

    monkeypatch.setattr("tenfold.training.profiling.profile_run", measure)
    assert (
        main(["profile", what, *flags, "--trace", str(tmp_path / "t.json")]) == 0
        and measured == engines
    )


def test_an_engine_that_does_not_fit_is_refused_before_any_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tenfold.training.profiling.profile_run", None)
    assert (
        main(
            [
                "profile",
                "dqn",
                "--agent.frames",
                "2",
                "--engine",
                "plain,fused",
                "--trace",
                str(tmp_path / "t.json"),
            ]
        )
        == 2
    )
    assert "engine = fused does not fit: the network sees several frames" in capsys.readouterr().err


def test_a_run_that_never_learns_is_not_profiled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = [
        "profile",
        "dqn",
        "--agent.learning-starts",
        "1G",
        "--steps",
        "500",
        "--engine",
        "plain",
        "--trace",
        str(tmp_path / "t.json"),
    ]
    assert main(command) == 2
    assert "There is no update in 500 steps of this run" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["nowhere/x.json", "."])
def test_a_result_that_cannot_be_written_is_refused_before_anything_is_measured(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "tenfold.training.profiling.profile_run", lambda *_: pytest.fail("it was measured")
    )
    assert main(["profile", "dqn", "--trace", str(tmp_path / file)]) == 2
    assert f"--trace {tmp_path / file} cannot be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
