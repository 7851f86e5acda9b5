"""Agents of a world over several devices: whole agents, balanced by time, and the numbers of one
place. Here both are the CPU."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.dqn import team_choice
from tenfold.algorithms.dqn.learner import QLearner
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import Apart, Placed, Team
from tenfold.algorithms.dqn.team_choice import balance, update_seconds
from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run

AGENT = {
    "name": "dqn",
    "learning_starts": 40,
    "batch_size": 8,
    "every": 5,
    "capacity": 300,
    "n_step": 3,
    "clip_norm": 1.0,
    "target": "hard(5)",
    "net": {"hidden": [16]},
    "replay": "prioritized",
    "frames": 2,
    "explore": "noisy",
}


def world(**more: object) -> Run:
    return Run.of(
        {
            "env": "tenfold/TreasureSmall-v0",
            "num_envs": 2,
            "steps": 400,
            "eval_every": 0,
            "log_every": 100,
            "stack": "apart",
            "checkpoint_every": 150,
            "agent": AGENT | more.pop("agent", {}),
        }
        | more
    )  # type: ignore[operator]


@pytest.fixture
def two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, of which the second takes twice as long; the CPU alone would take longer
    still."""
    seconds = iter([9.0, 1e-3, 2e-3] * 10)
    monkeypatch.setattr(team_choice, "several_devices", lambda: ["cpu", "cpu:0"])
    monkeypatch.setattr(team_choice, "update_seconds", lambda *given: next(seconds))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([[1.0, 1.0]] * 5, [0, 1, 0, 1, 0]),
        # the first would be done at 1, 2, 3 and then 4, the second at 3
        ([[1.0, 3.0]] * 5, [0, 0, 0, 1, 0]),
        ([[1.0, 9.0]] * 3, [0, 0, 0]),
        # 5 | 4, then 3 to the second, then 2 to the first: 7 and 7
        ([[2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0]], [0, 1, 1, 0]),
        ([[4.0, 1.0], [4.0, 8.0]], [1, 0]),
        ([[1.0]] * 2, [0, 0]),
    ],
)
def test_agents_go_the_longest_first_to_where_they_are_done_earliest(
    seconds: list[list[float]], expected: list[int]
) -> None:
    assert balance(seconds) == expected


def test_an_update_is_measured_for_every_form_of_agent() -> None:
    for agent in (
        {},
        {"distribution": "implicit", "frames": 3},
        {"replay": "uniform", "frames": 1, "n_step": 1},
    ):
        team = QLearner(world(agent=agent)).agent
        assert isinstance(team, Team) and 0 < update_seconds(team, "cpu") < 1


@pytest.mark.usefixtures("two_places")
@pytest.mark.parametrize(
    "more", [{}, {"actors": 2, "where": "serial"}], ids=["alone", "two actors"]
)
def test_two_places_learn_what_one_does_bit_for_bit(
    more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = QLearner(world(**more))
    monkeypatch.setattr(team_choice, "several_devices", list)
    one = QLearner(world(**more))
    assert isinstance(two.engine, Placed) and type(one.engine) is Apart
    assert two.engine.devices == ["cpu", "cpu", "cpu:0", "cpu", "cpu"]  # done at 1, 2 | 2, 3, 4 ms
    for place in (one, two):
        while place.step < 200:
            place.round()
    assert one.agent.updates == two.agent.updates > 20
    assert isinstance(two.agent, Team)
    # home before anyone asks for the state: actors are sent it
    assert torch.equal(two.agent.online.flat, one.agent.online.flat)
    for name, value in one.agent.state().items():
        assert torch.equal(value, two.agent.state()[name]), name
    assert (
        np.array_equal(one.envs.obs, two.envs.obs)
        and one.engine.statistics() == two.engine.statistics()
    )
    assert np.array_equal(one.replay.state()["leaves"], two.replay.state()["leaves"])


@pytest.mark.usefixtures("two_places")
def test_all_devices_have_work_before_any_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    place = QLearner(world(agent={"learning_starts": 10**6}))
    while place.step < 60:
        place.round()
    happened: list[str] = []
    for name in ("launch", "finish"):
        real = getattr(PlainEngine, name)
        monkeypatch.setattr(
            PlainEngine,
            name,
            lambda self, *given, real=real, name=name: (
                happened.append(f"{name} {self.agent.member}"),
                real(self, *given),
            )[1],
        )
    place.engine.update(1, 60, place.clock)
    # agents 0 and 2 are the first on their devices
    assert happened == [
        f"{name} {member}" for name in ("launch", "finish") for member in (0, 2, 1, 3, 4)
    ]


@pytest.mark.usefixtures("two_places")
def test_a_run_over_devices_says_so_and_resumes_anywhere_as_if_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = world()
    ten.train(Run.of({**to_mapping(run), "steps": 200}), tmp_path / "parts")
    words = (
        "plain, 5 agents over 2 devices by measured time: cpu has 4 at 1 ms an update, cpu:0 has "
        "1 at 2 ms an update; on cpu, cpu:0;"
    )
    assert words in capsys.readouterr().err.replace("\n", " ")
    ten.resume(tmp_path / "parts", steps=300, quiet=True)
    monkeypatch.setattr(team_choice, "several_devices", list)
    ten.resume(tmp_path / "parts", steps=400, quiet=True)
    ten.train(run, tmp_path / "whole", quiet=True)
    whole, parts = (ten.load(tmp_path / name) for name in ("whole", "parts"))
    assert torch.equal(whole.online.flat, parts.online.flat)
    sessions = json.loads((tmp_path / "parts" / "run.json").read_text())["sessions"]
    assert [session["device"] for session in sessions] == ["cpu, cpu:0", "cpu, cpu:0", "cpu"]


def test_nothing_is_placed_where_the_cpu_is_done_first_or_something_else_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {"cpu": 1e-3, "a": 4e-3, "b": 4e-3}
    monkeypatch.setattr(team_choice, "several_devices", lambda: ["a", "b"])
    monkeypatch.setattr(
        team_choice, "update_seconds", lambda team, device, kind=None: seconds[device]
    )
    small = QLearner(world())
    assert type(small.engine) is Apart
    assert small.description.engine.endswith(
        "as asked; here an update of all takes 5 ms, over 2 devices 12 ms"
    )
    monkeypatch.setattr(
        team_choice, "place_agents", lambda *given, **more: pytest.fail("agents were placed")
    )
    for more in ({"device": "cpu"}, {"stack": "together"}, {"share": True}):
        QLearner(world(**more))
