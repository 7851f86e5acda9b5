"""What a colony's world can be asked for: every argument is taken, or refused in one sentence."""

import math
from typing import Any

import numpy as np
import pytest

from tenfold.cli.main import main
from tenfold.core.errors import EnvironmentFault
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.setting import WEIGHTS, read_setting
from tenfold.envs.making import make_environments

NAME = "tenfold/Durotaxis-v0"
REAL = (
    "slope",
    "intercept",
    "soft",
    "target",
    "gamma",
    "alpha",
    "noise",
    "theta",
    "margin",
    "w_goal",
)
WHOLE = ("init_nodes", "max_nodes", "max_steps")


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("value", ["abc", "nan", "none", "inf", "true", "1" + "0" * 400])
def test_what_is_no_number_in_a_name_is_refused(name: str, value: str) -> None:
    if (value == "none" and name in ("slope", "intercept", "margin")) or (
        value == "true" and name == "w_goal"
    ):
        read_setting(**{name: {"none": None, "true": True}[value]})  # as if it were left out
        return
    with pytest.raises(
        EnvironmentFault, match=rf"^(The weight )?{name} must be a finite number, and not [^\n]+\.$"
    ):
        make_environments(f"{NAME}({name}={value})", 1, 0, policy=True)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(
    "value", [np.ones(3), [1], "1", {}, math.nan, -math.inf, np.float32(np.nan), 1j, 10**400]
)
def test_what_is_no_number_from_python_is_refused(name: str, value: Any) -> None:
    with pytest.raises(
        EnvironmentFault, match=rf"^(The weight )?{name} must be a finite number, and not [^\n]+\.$"
    ):
        read_setting(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [True, "5", None, 2.5, 0, -1, 10**30, np.ones(2), math.nan])
def test_counts_are_whole_numbers_within_their_limits(name: str, value: Any) -> None:
    most = "1,000,000,000" if name == "max_steps" else "10,000"
    with pytest.raises(
        EnvironmentFault,
        match=rf"^{name} must be a whole number of at least 1 and at most {most}, and not [^\n]+\.$",
    ):
        read_setting(**{name: value})


def test_numbers_of_numpy_are_numbers_and_compiled_code_sees_pythons() -> None:
    setting = read_setting(
        init_nodes=np.int64(3),
        max_nodes=np.int32(50),
        max_steps=1e3,
        soft=np.float32(0.5),
        size=np.array([300, 60]),
    )
    assert (setting.init_nodes, setting.max_nodes, setting.max_steps, setting.soft) == (
        3,
        50,
        1000,
        0.5,
    )
    assert {type(number) for number in setting.rules[:-1]} <= {int, float, bool}
    assert DurotaxisEnvironments(NAME, 1, 0, setting=setting).colonies.nodes.tolist() == [3]


@pytest.mark.parametrize(
    "size",
    [
        600,
        True,
        0,
        "",
        "600",
        "600x",
        "600.5x400",
        "600x400x2",
        (600.9, 400.9),
        (math.inf, 400),
        (True, 400),
        (600,),
        np.ones((2, 2)),
        [[600, 400]],
        {600, 400},
        "nanx400",
        ("a", "b"),
        None,
    ],
)
def test_a_size_is_two_whole_numbers(size: Any) -> None:
    if size is None:
        assert read_setting(size=size).ground.width == 600
        return
    with pytest.raises(
        EnvironmentFault,
        match=r"^A substrate's size is two whole numbers, such as 600x400, and not [^\n]*\.$",
    ):
        read_setting(size=size)


@pytest.mark.parametrize("size", ["600x100000000000000000000", "10001x400", (400, 10**30)])
def test_a_size_beyond_all_memory_is_refused(size: Any) -> None:
    with pytest.raises(EnvironmentFault, match=r"is too large: a side is at most 10,000\.$"):
        read_setting(size=size)


@pytest.mark.parametrize("name", ["mode", "rounding", "learn"])
@pytest.mark.parametrize("value", [3, None, True, np.array(["ratio", "nodes"]), ["ratio"]])
def test_words_are_words(name: str, value: Any) -> None:
    with pytest.raises(EnvironmentFault, match=rf"^Durotaxis knows no {name}=[^\n]+: take "):
        read_setting(**{name: value})


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (3, "weights must be a dict"),
        ("abc", "weights must be a dict"),
        ([1, 2], "weights must be a dict"),
        (False, "weights must be a dict"),
        ({"goal": None}, "w_goal must be a finite number, and not None"),
        ({"goal": "2"}, "w_goal must be a finite number"),
        ({"goal": 1e300}, r"w_goal = 1e\+300 is too large: take one between -1e\+06 and 1e\+06"),
        ({1: 2}, "no reward component 1, the nearest is"),
        ({"gaol": 1}, "no reward component gaol, the nearest is goal"),
    ],
)
def test_weights_are_numbers_by_component(weights: Any, why: str) -> None:
    with pytest.raises(EnvironmentFault, match=why):
        read_setting(weights=weights)


def test_true_is_the_usual_weight_and_false_none_however_they_are_given() -> None:
    usual, heavy = (
        read_setting(weights={"goal": True, "survival": False}),
        read_setting(w_goal=True, w_survival=np.False_),
    )
    assert usual.weights == heavy.weights == {"goal": WEIGHTS["goal"], "survival": 0.0}
    assert read_setting(weights={"goal": 1}, w_goal=2, w_distance=-1e6).weights == {
        "goal": 2.0,
        "distance": -1e6,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        "slope=abc",
        "size=600",
        "soft=nan",
        "weights=3",
        "max_nodes=1000000000",
        "w_goal=1e300",
        "init_nodes=true",
    ],
)
def test_the_command_line_says_it_in_one_sentence(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "train",
                "durotaxis",
                "--env",
                f"{NAME}({arguments})",
                "--steps",
                "64",
                "--out",
                "/nonexistent",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert said.startswith("tenfold: ") and said.count("\n") == 1
