"""What the page of a sweep draws."""

from typing import Any

import pytest

from tenfold.runs.reporter import parallel_coordinates, trial_curves


def trial(number: int, state: str, value: float | None, lr: float) -> dict[str, Any]:
    values = {} if value is None else {"100": value / 2, "200": value}
    params = {"agent.lr": lr, "agent.gamma": 0.9 + number / 100}
    return {"number": number, "state": state, "value": value, "values": values, "params": params}


ROWS = [
    trial(0, "complete", 10.0, 1e-4),
    trial(1, "complete", 30.0, 1e-3),
    trial(2, "pruned", 20.0, 1e-2),
    trial(3, "fail", None, 1.0),
]


def test_a_parameter_that_is_searched_by_its_logarithm_is_drawn_on_such_a_scale() -> None:
    """And one that is not is not, however far its values are apart."""
    by_log, evenly = parallel_coordinates(ROWS, {"agent.lr"}), parallel_coordinates(ROWS, set())
    heights = {line.name.split(":")[0]: list(line.y) for line in by_log.lines}
    assert heights["trial 0"][0] == 0 and heights["trial 2"][0] == 1
    assert heights["trial 1"][0] == pytest.approx(0.5)
    assert heights["trial 1"][1] == pytest.approx(0.5)  # 0.91 between 0.90 and 0.92
    middle = next(line for line in evenly.lines if line.name.startswith("trial 1"))
    assert next(iter(middle.y)) == pytest.approx((1e-3 - 1e-4) / (1e-2 - 1e-4))


def test_a_trial_has_one_colour_on_all_charts_and_no_two_that_differ_have_the_same() -> None:
    over, along = trial_curves(ROWS, 1), parallel_coordinates(ROWS, set())
    colours = {line.name.split(",")[0].split(":")[0]: line.colour for line in over.lines}
    assert colours == {line.name.split(":")[0]: line.colour for line in along.lines}
    assert len(set(colours.values())) == len(colours) == 3
    assert colours["trial 1"] == "hsl(0 75% 50%)"  # the best
    assert [line.style for line in over.lines] == ["", "dash", "dots"]
