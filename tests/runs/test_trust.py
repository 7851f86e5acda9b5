"""Modules that somebody else's run names are not imported unless the user says so."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.core.errors import UserError
from tenfold.training.loop import resume, train


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that leaves a trace when it is imported, beside where the user is."""
    name = f"theirs_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'trace')!r}).touch()\n"
        "def half(step, lr): return lr / 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def run_with(module: str, **more: Any) -> ten.Run:
    agent = {"name": "dqn", "lr": f"{module}:half(1e-3)", "learning_starts": 50}
    return ten.Run.of({"agent": agent, "steps": 200, "eval_every": 0} | more)


def test_ones_own_run_is_resumed_and_judged_without_a_word(tmp_path: Path, module: str) -> None:
    train(run_with(module), tmp_path / "mine", quiet=True)
    assert resume(tmp_path / "mine", 300, quiet=True).step == 300
    assert ten.evaluate(tmp_path / "mine", episodes=1).episodes == 1


def test_somebody_elses_run_imports_nothing_and_says_how(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Any]
) -> None:
    theirs = tmp_path / "theirs"
    with monkeypatch.context() as patch:  # another person, with a key of their own
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "their-home"))
        train(run_with(module), theirs, quiet=True)
    (tmp_path / "trace").unlink()
    for command in (("eval", theirs), ("resume", theirs, "--steps", "300"), ("report", theirs)):
        done = here(*command)
        assert done.returncode == 2 and "set TENFOLD_TRUST=1" in done.stderr
        assert f"names {module}, which would be imported" in done.stderr
    assert not (tmp_path / "trace").exists()
    monkeypatch.setenv("TENFOLD_TRUST", "1")
    assert here("eval", theirs, "--episodes", "1").returncode == 0


def test_settings_that_were_changed_to_name_another_module_are_not_trusted(
    tmp_path: Path, module: str
) -> None:
    train(run_with(module), tmp_path / "run", quiet=True)
    shutil.copy(tmp_path / f"{module}.py", tmp_path / f"{module}_evil.py")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace(f"{module}:half", f"{module}_evil:half"))
    with pytest.raises(UserError, match=f"names {module}_evil"):
        ten.load(tmp_path / "run")


def test_a_run_that_names_no_module_needs_no_mark(finished_once: Path) -> None:
    assert not (finished_once / ".modules").exists()
    assert ten.load(finished_once).updates == 0
