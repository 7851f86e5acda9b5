"""The examples run, and do what they say."""

import importlib.util
import re
import runpy
from pathlib import Path

import gymnasium
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_demo_ends_with_both_engines_rates_and_the_report(
    small_run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `make demo` runs, with a run of a moment."""
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert spec and spec.loader
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.RUN.agent.every == 1  # what the line says
    demo.main(small_run({"every": 1}), str(tmp_path / "demo"), {"plain": 100, "fused": 1000})
    *_, solved, rates, report = capsys.readouterr().out.splitlines()
    assert re.match(
        r"CartPole-v1: mean return \d+\.\d of 100 episodes by the best policy, trained in \d+\.\d s",
        solved,
    )
    found = re.search(
        r"plain engine ([\d,]+) steps/s, fused engine ([\d,]+) steps/s, (\d+\.\d) times as fast$",
        rates,
    )
    assert found and float(found[3]) > 0
    assert (
        report == f"report: {tmp_path}/demo/report.html"
        and Path(report.removeprefix("report: ")).is_file()
    )
    assert (
        "examples/demo.py"
        in (EXAMPLES.parent / "Makefile").read_text().split("demo: install")[1].split("\n\n")[0]
    )


def test_own_environment_learns_to_go_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(gymnasium.registry, "Corridor-v0", raising=False)  # another test's
    runpy.run_path(str(EXAMPLES / "own_environment.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "actions by cell: [1, 1, 1, 1, 1, 1, 1, 1, 1]" in said
    assert "in a batch: [1 1 1 1 1 1 1 1 1]" in said


def test_own_gridworld_is_played_drawn_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_gridworld.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "#" * 14
        and "########" in lines[4][3:11]
        and "frames in wood.gif: 41" in lines[9]
    )
    means = {
        name.strip("' "): float(mean)
        for name, _, mean in (item.partition(":") for item in lines[10].strip("{}").split(","))
    }
    assert (
        means["scripted"] > 50 > 5 > means["random"]
        and (tmp_path / "wood.gif").stat().st_size > 1000
    )


def test_the_readmes_python_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's snippet, with fewer steps."""
    text = (EXAMPLES.parent / "README.md").read_text()
    code = (
        text.split("```python\n")[1]
        .split("```")[0]
        .replace("20_000", "600")
        .replace("run =", "import numpy as np\nobs = np.zeros(4)\nrun =", 1)
    )
    monkeypatch.chdir(tmp_path)
    exec(code + "\nprint(action, len(score.returns))", {})
    said = capsys.readouterr().out.split()
    assert said[-1] == "20" and said[-2] in "01"
