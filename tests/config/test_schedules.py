"""Schedules: tables, lines that begin later, and functions of other libraries as such."""

import math
from typing import Any

import numpy as np
import pytest
import yaml

import tenfold as ten
from tenfold.config.changes import cut_short, idle_from
from tenfold.config.run import Run
from tenfold.config.schedules import (
    Exponential,
    Linear,
    Schedule,
    Table,
    callable_table,
    custom_schedule,
    exceeds,
    value_at,
)
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError
from tenfold.core.kernels import SCHEDULE, as_numbers, schedule_at, side_by_side

TABLE = Table((100, 200, 1000), (3.0, 1.0, 2.0))


def test_a_table_is_straight_between_its_points_and_constant_beyond() -> None:
    values = {0: 3.0, 100: 3.0, 150: 2.0, 200: 1.0, 600: 1.5, 1000: 2.0, 10**9: 2.0}
    assert {step: TABLE.at(step) for step in values} == values
    assert Table((7,), (0.5,)).at(0) == Table((7,), (0.5,)).at(99) == 0.5


def test_a_line_waits_until_its_first_step() -> None:
    line = Linear(1.0, 0.2, 100, after=50)
    assert [line.at(step) for step in (0, 50, 75, 100, 150, 999)] == pytest.approx(
        [1, 1, 0.8, 0.6, 0.2, 0.2]
    )
    assert line.last == 150 and str(line) == "linear(start=1, end=0.2, steps=100, after=50)"
    assert str(Linear(1.0, 0.2, 100)) == "linear(start=1, end=0.2, steps=100)"


@pytest.mark.parametrize(
    ("agent", "schedule"),
    [
        ({"name": "ppo", "lr": "table(0:1e-3, 10k:1e-4, 50k:0)"}, "agent.lr"),
        ({"name": "ppo", "clip": "linear(0.2, 0, 10k, after=2k)"}, "agent.clip"),
        ({"name": "dqn", "explore": "epsilon(table(0:1, 10k:0.05))"}, "agent.explore.schedule"),
        ({"name": "td3", "noise": "table(0: 0.3, 9: 0.1)"}, "agent.noise"),
        ({"name": "dqn", "replay": "prioritized(0.6, table(0:0.4, 50k:1))"}, "agent.replay.beta"),
    ],
)
def test_schedules_are_read_from_text_and_written_so(agent: dict[str, Any], schedule: str) -> None:
    run: Any = Run.of({"agent": agent})
    value = run
    for name in schedule.split("."):
        value = getattr(value, name)
    assert isinstance(value, Table | Linear)
    assert Run.of(yaml.safe_load(yaml.safe_dump(to_mapping(run)))) == run
    assert custom_schedule(run.agent) == ""  # nothing keeps compiled code from it


def test_a_table_is_written_to_the_last_digit() -> None:
    table = Table((0, 1, 12_345_678), (1 / 3, 0.1 + 0.2, 1e-17))
    config = ten.PPO(lr=str(table))  # type: ignore[arg-type]
    assert config.lr == table and str(TABLE) == "table(100:3, 200:1, 1000:2)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("table(0, 1)", "lr, table is written as step:value, such as table"),
        ("table(start=1)", "lr, table is written as step:value"),
        ("table()", "lr, table.steps and values are as many"),
        ("table(5:1, 5:2)", "lr, table.steps of a table must rise"),
        ("table(0:-1)", "lr, table.values = -1 is out of range"),
        ("table(0.5:1)", "lr, table.steps = 0.5 is not a whole number"),
        ("linear(1, 0, 10, -1)", "lr, linear.after = -1 is out of range"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ten.PPO(lr=text)  # type: ignore[arg-type]


def test_limits_and_ends_are_known_of_every_schedule() -> None:
    assert exceeds(Table((0, 1), (0.5, 1.5)), 1) and not exceeds(Table((0, 1), (0.5, 1)), 1)
    with pytest.raises(ConfigError, match="a probability lies between 0 and 1"):
        ten.DQN(explore="epsilon(table(0:1, 9:2))")  # type: ignore[arg-type]
    run = {"steps": 100, "agent": {"name": "ppo", "lr": "table(0:1, 40:0)"}}
    assert idle_from(Run.of(run)) == 40
    run["agent"] = {"name": "ppo", "lr": "linear(1, 0, 90, 20)"}
    assert "is made for 110 steps" in cut_short(Run.of(run)) and idle_from(Run.of(run)) is None


SCHEDULES: tuple[Schedule, ...] = (
    0.25,
    TABLE,
    Linear(1.0, 0.1, 100, 30),
    Table((3,), (0.5,)),
    Exponential(1.0, 0.01, 300),
)


def test_compiled_code_has_their_values() -> None:
    """Alone and side by side, to the last bit."""
    together = np.array(side_by_side(SCHEDULES))
    for place, schedule in enumerate(SCHEDULES):
        alone = np.array(as_numbers(schedule), np.float64)
        for step in (0, 1, 3, 29, 77, 100, 130, 199, 200, 650, 10**9):
            expected = value_at(schedule, step)
            assert schedule_at(alone, 0, step) == expected
            assert schedule_at(together, place * SCHEDULE, step) == expected


def test_a_function_of_what_remains_is_a_number_a_line_or_a_table() -> None:
    steps = range(0, 10_241, 2048)  # SB3's learn(10_000) plays five rollouts
    assert callable_table(lambda left: 3e-4, 10_000, steps) == 3e-4
    line = callable_table(lambda left: 3e-4 * left, 10_000, steps)
    assert line == Linear(3e-4, 0.0, 10_000)  # behind the end it would be negative: 0
    half = callable_table(lambda left: 0.1 + 0.2 * left, 10_000, steps)
    assert isinstance(half, Linear) and half.steps == 10_240
    assert half.at(10_240) == pytest.approx(0.1 + 0.2 * (1 - 1.024), abs=1e-12)
    curve = callable_table(lambda left: math.exp(-left), 10_000, steps)
    assert isinstance(curve, Table) and curve.steps == tuple(steps)
    assert [curve.at(k) for k in steps] == [math.exp(-(1 - k / 10_000)) for k in steps]
    with pytest.raises(ConfigError, match="gave nan at step 0"):
        callable_table(lambda left: math.nan, 10_000, steps)
