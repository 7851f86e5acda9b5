"""Run folders and archives that an earlier version wrote: they load, act as they did, go on, are
evaluated and reported."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.cli.main import main
from tenfold.runs.metrics import read_rows

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/golden/old"))
from actions import ACTIONS, ALONE, ARCHIVES, actions, unpack  # noqa: E402

# steps that each had done, and steps to go on to
GOING_ON = {
    "dqn": 400,
    "dqn-options": 400,
    "dqn-masked": 400,
    "dqn-team-together": 400,
    "dqn-wrapped": 400,
    "dqn-actors": 400,
    "sac": 400,
    "td3": 400,
    "ppo": 4096,
    "ppo-continuous": 4096,
    "ppo-remembering": 4096,
    "own": 1500,
    "colony": 320,
    "explorer": 50,
}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("old"))


@pytest.fixture
def user_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("bench", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)


@pytest.mark.parametrize("name", [*ALONE, *ARCHIVES])
def test_old_policies_act_as_they_did(old: Path, name: str) -> None:
    before = json.loads(ACTIONS.read_text())[name]
    np.testing.assert_allclose(actions(old / name), before, rtol=1e-4, atol=1e-5)


def lasting_rows(run: Path) -> list[dict[str, Any]]:
    """Rows that a run that goes on never writes anew: those at its end are of half an interval."""
    return [row for row in read_rows(run / "metrics.jsonl") if row["kind"] in ("episode", "eval")]


@pytest.mark.parametrize("name", GOING_ON)
def test_old_runs_go_on(old: Path, name: str, user_modules: None) -> None:
    run, steps = old / name, GOING_ON[name]
    before = lasting_rows(run)
    assert main(["resume", str(run), "--steps", str(steps), "--quiet", "--trust"]) == 0
    assert lasting_rows(run)[: len(before)] == before
    assert max(row["step"] for row in read_rows(run / "metrics.jsonl")) >= steps


def test_old_seeds_and_sweeps_are_read(old: Path) -> None:
    assert main(["resume", str(old / "seeds"), "--steps", "400", "--jobs", "1", "--quiet"]) == 0
    for name in ("seeds", "sweep"):
        assert main(["report", str(old / name)]) == 0
        assert (old / name / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["ppo-remembering", "dqn-masked", "own", *ARCHIVES])
def test_old_runs_are_evaluated(
    old: Path, name: str, user_modules: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(old / name), "--episodes", "2", "--trust"]) == 0
    assert "2 episodes" in capsys.readouterr().out
