"""The examples run, and do what they say."""

import importlib.util
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.domains.dynamics.recording import read_recording
from tenfold.domains.dynamics.recording_table import Selection
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays

EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.fixture
def swing_up(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("cart_swingup")


def test_the_cart_swings_by_its_equations_and_begins_anew(swing_up) -> None:
    """The pole stays upright by itself and falls from beside it; the track ends an episode, and the
    limit cuts it at an observation that is given."""
    worlds = swing_up.make(num_envs=3)
    worlds.reset(seed=1)
    worlds.state = torch.tensor([[0.0, 0.0, 2.99], [0, 0, 9.0], [0, 0.1, 0], [0, 0, 0]])
    worlds.age[1] = swing_up.LIMIT - 1
    obs, reward, terminated, truncated, last = worlds.step(torch.zeros(3, 1))
    assert terminated.tolist() == [False, False, True]
    assert truncated.tolist() == [False, True, False]
    assert obs[0].tolist() == [0, 0, 1, 0, 0] and reward[0] == 1
    assert last[1, 3] > 0.1 > 0 and last[2, 0] > swing_up.TRACK  # it falls; it left the track
    assert torch.equal(last[0], obs[0]) and not torch.equal(last[1], obs[1])
    again = swing_up.make(num_envs=3)
    assert torch.equal(worlds.reset(seed=4), again.reset(seed=4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "settings", "least"),
    [
        ({"name": "ppo", "horizon": 64}, {"num_envs": 64, "steps": 150_000}, 110),
        (
            {"name": "sac", "every": 8, "lr": 1e-3, "learning_starts": 1000, "net": {"hidden": [64, 64]}},
            {"num_envs": 16, "steps": 40_000},
            80,
        ),
    ],
)  # fmt: skip
def test_the_cart_learns_to_swing_up_its_pole(
    agent: dict, settings: dict, least: float, swing_up, tmp_path: Path
) -> None:
    """A random policy returns 15."""
    for seed in range(3):
        run = ten.Run.of({"env": "cart_swingup:make", "agent": agent, "seed": seed, **settings})
        result = ten.train(run, tmp_path / f"{seed}", quiet=True)
        assert ten.evaluate(result, episodes=20).mean_return > least


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


@pytest.mark.parametrize(("name", "by_chance"), [("own_network", 1 / 6), ("several_agents", 0.1)])
def test_a_network_and_a_world_of_ones_own_are_learned_with(
    name: str, by_chance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as `python examples/NAME.py` has it
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(gymnasium.registry, "Largest-v0", raising=False)
    assert runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]() > 0.9 > 5 * by_chance


def test_own_loop_learns_with_pieces_alone() -> None:
    main = runpy.run_path(str(EXAMPLES / "own_loop.py"))["main"]
    assert main(2) < 0.05 < 0.15 < main(45)  # looking at nothing gets 0


def test_a_shop_of_ones_own_gets_a_schedule_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "scheduling.py"))
    example["main"](600)
    first, *machines = capsys.readouterr().out.splitlines()
    jobs = [list(map(int, line.split())) for line in example["SHOP"].splitlines()[1:]]
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for line in machines:
        machine, busy = int(line.split()[1].rstrip(":")), 0
        for job, start, end in re.findall(r"job (\d+): (\d+) to (\d+)", line):
            assert int(start) >= busy  # one job at a time
            spans[int(job), machine] = (int(start), busy := int(end))
    for job, words in enumerate(jobs):
        ready = 0
        for machine, duration in zip(words[::2], words[1::2], strict=True):
            start, end = spans.pop((job, machine))
            assert start >= ready and end - start == duration  # in turn, and all of it
            ready = end
    assert not spans and 13 <= int(first.split()[1]) <= 29  # 29: one operation after another


def test_the_synthetic_session_is_what_it_says(tmp_path: Path) -> None:
    """Trials, neurons and rates, read back by the reader of NWB."""
    made = runpy.run_path(str(EXAMPLES / "spikes.py"))
    made["write_session"](tmp_path / "session.nwb", 0, 30, 20)
    read = read_recording(tmp_path / "session.nwb", None, Selection((), ("hand",), 0.02))
    assert len(read.episodes) == 20 and read.sizes == (30, 1) and read.dt == 0.02
    assert all(50 <= len(y) <= 80 for y, _ in read.episodes)
    rates = np.concatenate([y for y, _ in read.episodes]).mean(0) / 0.02
    assert (rates > 3).all() and (rates < 60).all()  # spikes a second
    hand = np.concatenate([a - a.mean() for _, a in read.episodes])
    assert 0.3 < hand.std() < 3


@pytest.mark.slow  # learns for seconds
def test_recordings_are_foretold_better_than_by_their_last_observation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLES / "recordings.py"))["main"]() < 0.5


@pytest.mark.slow
def test_a_system_that_tells_its_truth_is_judged_by_both_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(gymnasium.registry, "FitzHughNagumo-v0", raising=False)  # another test's
    runpy.run_path(str(EXAMPLES / "fitzhugh_nagumo.py"), run_name="__main__")
    said = capsys.readouterr().out
    found = re.search(r"error of the field: (0\.\d+) of the mean.*\n +(0\.\d+) of the inst", said)
    assert found and float(found[1]) < 0.3 and float(found[2]) < 0.3
    assert "dz/dt at [0.0, 0.5]: true [0.0, 0.024]" in said
    # the instantaneous field needs the slope of the step too: what active experiments leave out of
    # it is seen by random ones
    run = ten.train(
        "explorer", "random", env="FitzHughNagumo-v0", steps=1_000, eval_every=1_000,
        eval_episodes=64, quiet=True, agent={"planner": {"policy": "random"}},
    )  # fmt: skip
    fit = [row for row in read_rows(run.path / "metrics.jsonl") if row["kind"] == "fit"][-1]
    assert fit["instant_error"] < 0.8 * fit["field_error"] < 0.24


@pytest.mark.slow  # processes that are stopped and killed
def test_a_run_on_a_machine_that_is_taken_away_ends_as_one_that_was_not(tmp_path: Path) -> None:
    def start(folder: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, EXAMPLES / "preemptible.py", folder, "--steps", "12000"]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)

    def reached(folder: str, step: int, process: subprocess.Popen[bytes]) -> None:
        names = tmp_path / folder / "checkpoints"
        while not any(int(p.stem[5:]) >= step for p in names.glob("step-*.safetensors")):
            assert process.poll() is None
            time.sleep(0.02)

    taken = start("taken")
    reached("taken", 2_000, taken)
    os.kill(taken.pid, signal.SIGTERM)
    assert taken.wait(60) == 75
    taken = start("taken")
    reached("taken", 6_000, taken)
    os.kill(taken.pid, signal.SIGKILL)
    assert taken.wait(60) == -signal.SIGKILL
    assert start("taken").wait(120) == 0 == start("whole").wait(120)
    one, other = (
        read_arrays(tmp_path / name / "checkpoints" / "step-000000012000.safetensors")[0]
        for name in ("taken", "whole")
    )
    assert one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)
    returns = [
        [
            row["return"]
            for row in read_rows(tmp_path / name / "metrics.jsonl")
            if row["kind"] == "episode"
        ]
        for name in ("taken", "whole")
    ]
    assert returns[0] == returns[1] and len(returns[0]) > 50
