"""What a colony lives on."""

import math
from pathlib import Path

import numpy as np
import pytest

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.rules import sense
from tenfold.domains.durotaxis.setting import read_setting
from tenfold.domains.durotaxis.substrate import (
    Ground,
    SubstrateKind,
    intensity_reference,
    make_substrate,
)
from tenfold.envs.making import resolve_paths

NAME = "tenfold/Durotaxis-v0"


def at(envs: DurotaxisEnvironments, x: float, y: float, i: int = 0) -> float:
    c, rules = envs.colonies, envs.rules
    return sense(int(c.ground[i, 0]), c.level[i], c.ridge[i], rules.grid, rules.height, x, y)[0]


def test_intensities_worked_out_by_hand() -> None:
    linear, steep = (
        DurotaxisEnvironments(f"{NAME}({a})", 1, 0)
        for a in ("slope=0.1, intercept=2", "substrate=exponential")
    )
    assert at(linear, 10.9, 7) == pytest.approx(3)  # looked up at the integer position
    assert at(linear, -5, 0) == 2 and at(linear, 900, 0) == pytest.approx(2 + 0.1 * 599)  # clamped
    assert at(steep, 20, 0) == pytest.approx(math.e)
    assert at(steep, 500, 0) == 1000


def test_a_bend_is_highest_on_its_ridge_which_starts_in_the_middle_and_can_be_followed() -> None:
    envs = DurotaxisEnvironments(f"{NAME}(substrate=bend)", 200, 0)
    ridge = envs.colonies.ridge
    np.testing.assert_allclose(ridge[:, 0], 200)
    assert np.abs(np.diff(ridge, axis=1)).max() < math.tan(math.pi / 6)
    assert ridge.min() > 4 and ridge.max() < 396
    assert ridge.std(axis=0)[300:].min() > 10  # every episode has its own
    x = 300
    for i in range(20):
        top = at(envs, x, round(ridge[i, x]), i)
        assert top == pytest.approx(16, rel=1e-3)
        assert at(envs, x, round(ridge[i, x]) + 25, i) == pytest.approx(16 / math.e, rel=0.1)
    wide = DurotaxisEnvironments(f"{NAME}(substrate=bend, size=900x200)", 200, 0).colonies.ridge
    assert (
        wide.min() > 2
        and wide.max() < 198
        and np.abs(np.diff(wide, axis=1)).max() < math.tan(math.pi / 6)
    )


def test_random_substrates_are_of_both_kinds_with_coefficients_in_their_ranges() -> None:
    ground = DurotaxisEnvironments(f"{NAME}(substrate=random)", 400, 0).colonies.ground
    for kind, slopes, intercepts in (
        (SubstrateKind.LINEAR, (0.01, 0.1), (0.5, 2)),
        (SubstrateKind.EXPONENTIAL, (0.01, 0.05), (0.5, 1.5)),
    ):
        own = ground[ground[:, Ground.KIND] == kind]
        assert 150 < len(own) < 250
        for column, (low, high) in ((Ground.SLOPE, slopes), (Ground.INTERCEPT, intercepts)):
            assert low <= own[:, column].min() < low + 0.1 * (high - low)
            assert high >= own[:, column].max() > high - 0.1 * (high - low)


@pytest.mark.parametrize("substrate", ["linear", "exponential", "bend", "random"])
def test_compiled_look_up_equals_the_equations(substrate: str) -> None:
    envs, rng = (
        DurotaxisEnvironments(f"{NAME}(substrate={substrate}, size=300x120)", 5, 3),
        np.random.default_rng(0),
    )
    for i in range(5):
        for x, y in rng.uniform(-20, 320, (50, 2)):
            expected = intensity_reference(
                envs.setting.ground, envs.colonies.extent[i], envs.colonies.ground[i], x, y
            )
            assert at(envs, x, y, i) == pytest.approx(expected, rel=1e-12)


def test_an_array_a_function_and_a_file_of_ones_own_are_the_linear_substrate(
    tmp_path: Path,
) -> None:
    _, x = np.mgrid[:400, :600]
    np.save(tmp_path / "mine.npy", 0.05 * x + 1)
    linear, act = DurotaxisEnvironments(NAME, 3, 0), np.tile([0.4, 9, 1, 0.3, 0.2], (3, 1))
    same = [
        DurotaxisEnvironments(NAME, 3, 0, setting=read_setting(substrate=s))
        for s in (0.05 * x + 1, lambda x, y: 0.05 * x + 1)
    ]
    same.append(DurotaxisEnvironments(f"{NAME}(substrate={tmp_path / 'mine.npy'})", 3, 0))
    linear.step(act)
    for envs in same:
        envs.step(act)
        np.testing.assert_allclose(envs.obs, linear.obs, rtol=1e-6, atol=1e-6)


def test_a_file_means_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.ones((50, 300)))
    assert (
        resolve_paths(f"{NAME}(substrate=mine.npy, soft=0)")
        == f"{NAME}(substrate={tmp_path / 'mine.npy'}, soft=0)"
    )
    assert resolve_paths(f"{NAME}(substrate=bend)") == f"{NAME}(substrate=bend)"


def test_another_substrate_than_the_saved_one_is_refused() -> None:
    one, other = (
        DurotaxisEnvironments(NAME, 1, 0, setting=read_setting(substrate=np.full((50, 300), v)))
        for v in (1.0, 2.0)
    )
    with pytest.raises(
        EnvironmentFault, match="the substrate is not the one this run was trained on"
    ):
        other.restore(one.state())


@pytest.mark.parametrize(
    ("substrate", "size", "why"),
    [
        (
            np.ones((50, 300)),
            "300x60",
            r"shape \(50, 300\), and a size of 300 x 60 needs \(60, 300\)",
        ),
        (np.ones(300), None, r"two dimensions \[height, width\]"),
        (np.full((50, 300), np.nan), None, "finite numbers from 0"),
        (-np.ones((50, 300)), None, "finite numbers from 0"),
        (np.ones((50, 300), complex), None, "type complex128"),
        (
            lambda x, y: 1 / 0,
            None,
            "function raised ZeroDivisionError: division by zero; it is called with two arrays",
        ),
        (lambda x, y: np.ones(3), "300x60", r"function returned the shape \(3,\), and \(60, 300\)"),
        (
            lambda x, y: (x + y).T,
            None,
            r"function returned the shape \(600, 400\), and \(400, 600\), that of its x and y, is needed",
        ),
        (lambda x, y: x + 1j, None, "function's result has real numbers .* the type complex128"),
        (
            lambda x, y: np.where(x > 3, np.inf, 1.0),
            None,
            "function's result must hold finite numbers",
        ),
        (lambda x, y: "stiff", None, "function's result has real numbers .* the type <U5"),
        (lambda x, y: None, None, "the type object"),
        (lambda x, y: [[1], [2, 3]], None, "function raised ValueError"),
        ([[1.0, 2.0], [3.0]], None, "is no array of numbers"),
        (3, None, "no substrate 3: take linear"),
        (None, None, "no substrate None"),
        (np.ones((2, 10_001)), None, "10001 x 2 is too large: a side is at most 10,000"),
    ],
)
def test_substrates_of_ones_own_that_cannot_be_are_refused(
    substrate: object, size: str | None, why: str
) -> None:
    with pytest.raises(EnvironmentFault, match=why):
        make_substrate(substrate, size)


def test_a_constant_function_and_an_array_that_changes_later_are_what_they_were() -> None:
    assert (
        make_substrate(lambda x, y: 2, "300x60").grid.tolist() == np.full((60, 300), 2.0).tolist()
    )
    mine = np.ones((60, 300))
    own = make_substrate(mine)
    mine[:] = 7
    assert own.grid.max() == 1


def test_files_that_hold_no_array_are_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npy"
    np.save(whole, np.ones((60, 300)))
    bytes_of = {
        "empty": b"",
        "torn": whole.read_bytes()[:-100],
        "header": whole.read_bytes()[:40],
        "zip": b"PK\x03\x04torn",
        "text": b"1 2 3",
    }
    for name, content in bytes_of.items():
        (tmp_path / f"{name}.npy").write_bytes(content)
        with pytest.raises(
            EnvironmentFault, match=rf"{name}\.npy holds no array of numbers: [^\n]+\.$"
        ):
            make_substrate(str(tmp_path / f"{name}.npy"))
    with open(tmp_path / "several.npy", "wb") as file:
        np.savez(file, a=np.ones(3))
    with pytest.raises(EnvironmentFault, match=r"several\.npy is an archive of arrays"):
        make_substrate(tmp_path / "several.npy")
    assert make_substrate(whole).width == 300


@pytest.mark.parametrize("substrate", [np.ones((60, 300)), lambda x, y: 1 + x])
def test_a_slope_beside_a_substrate_of_ones_own_is_refused(substrate: object) -> None:
    with pytest.raises(
        EnvironmentFault,
        match=r"^A substrate of your own has no slope and intercept: leave them out",
    ):
        make_substrate(substrate, slope=3)
