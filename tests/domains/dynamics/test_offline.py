"""How many numbers the hidden state has, chosen on steps that are held back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import UserError
from tenfold.domains.dynamics import offline
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.fields import Field, FieldState
from tenfold.domains.dynamics.offline import LatentSearch, sized, smallest_within
from tenfold.domains.dynamics.phase_portrait import kept_notes

SETTINGS: dict[str, Any] = {
    "steps": 6,
    "eval_every": 6,
    "agent": {"length": 8, "model": {"dynamics": "linear", "hidden": (4,), "samples": 2}},
}


@pytest.fixture
def rotation(tmp_path: Path) -> Path:
    rng, z = np.random.default_rng(0), np.exp(0.2j * np.arange(600))
    y = np.stack([z.real, z.imag], -1) @ rng.normal(size=(2, 4)) + 0.05 * rng.normal(size=(600, 4))
    np.savez(tmp_path / "rotation.npz", observations=y, dt=0.1)
    return tmp_path / "rotation.npz"


def test_the_smallest_within_one_standard_error_of_the_best_is_taken() -> None:
    assert smallest_within([0.2, 0.90, 0.91, 0.905], [0.1, 0.01, 0.011, 0.01]) == 1
    assert smallest_within([0.2, 0.89, 0.91, 0.905], [0.1, 0.50, 0.011, 0.01]) == 2
    assert smallest_within([0.5], [0.0]) == 0


def test_grids_stay_small_where_states_have_many_numbers() -> None:
    grids = [sized(LatentModel(grid=10), d).grid for d in range(1, 7)]
    assert grids == [10, 10, 10, 5, 3, 3]
    assert sized(LatentModel(dynamics="mlp"), 6).grid == 10


def test_auto_tries_all_sizes_shows_them_and_trains_with_the_chosen_one(
    rotation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(offline, "LEAST", 5)
    result = ten.fit(rotation, tmp_path / "run", latent="auto", settings=SETTINGS)
    said = capsys.readouterr().err
    assert all(f"latent {d} of 1 … 4: R² " in said for d in range(1, 5))
    _, found = kept_notes(result.path)
    assert found is not None and found.tried == (1, 2, 3, 4) and found.steps == 5
    assert result.run.agent.model.latent == found.size  # type: ignore[union-attr]
    assert found.sentence in said
    page = (result.path / "report.html").read_text()
    assert "over the size of the state" in page and "least within one standard error" in page
    # the same again, bit for bit, and a resumed run does not search
    again = ten.fit(rotation, tmp_path / "again", latent="auto", settings=SETTINGS, quiet=True)
    assert kept_notes(again.path)[1] == found
    capsys.readouterr()
    assert ten.resume(result.path, steps=8).step == 8
    assert "latent 1 of" not in capsys.readouterr().err and kept_notes(result.path)[1] == found


def test_the_steps_that_judge_a_run_choose_nothing(
    rotation: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    asked = []
    scores = iter([np.array([0.1, 0.2]), np.array([0.8, 0.9]), np.array([0.81, 0.9]), np.zeros(2)])

    def trial(run: Any, kept: Any, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
        asked.append((kept, y))
        return next(scores)

    monkeypatch.setattr(offline, "trial", trial)
    result = ten.fit(rotation, tmp_path / "run", latent="auto", settings=SETTINGS, quiet=True)
    assert result.run.agent.model.latent == 2  # type: ignore[union-attr]
    from tenfold.domains.dynamics.recording import read_recording

    division = read_recording(rotation).divided()
    held = np.concatenate([division.choosing[0], division.judging[0]]).reshape(-1, 4)
    used = np.concatenate([asked[0][1].reshape(-1, 4), *(y for y, _ in asked[0][0].episodes)])
    assert not set(map(tuple, held.tolist())) & set(map(tuple, used.tolist()))
    assert len(used) + len(held) == 600


def test_latent_is_a_number_or_auto(
    rotation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--steps", "2", "--agent.length", "8", "--eval-every", "2"]
    out = ["--out", str(tmp_path / "run")]
    assert main(["fit", str(rotation), "--latent", "many", *out, *short]) == 2
    assert "--latent many is neither auto nor a whole number" in capsys.readouterr().err
    assert main(["fit", str(rotation), "--latent", "3", *out, *short]) == 0
    model = ten.load(tmp_path / "run", checkpoint="last").config.model  # type: ignore[union-attr]
    assert model.latent == 3
    with pytest.raises(UserError, match="nothing to choose"):
        settings = SETTINGS | {
            "agent": {"length": 8, "model": {"decoder": "identity", "latent": 4}}
        }
        ten.fit(rotation, tmp_path / "no", latent="auto", settings=settings, quiet=True)
    y = np.load(rotation)["observations"][:60]
    np.savez(tmp_path / "short.npz", observations=y, dt=0.1)
    with pytest.raises(UserError, match="too short to choose the size"):
        ten.fit(tmp_path / "short.npz", tmp_path / "no", latent="auto", settings=SETTINGS)


def test_what_is_kept_notes_a_recording_may_be_broken(tmp_path: Path) -> None:
    assert kept_notes(tmp_path) == ([], None)
    (tmp_path / "recording.json").write_text("{")
    assert kept_notes(tmp_path) == ([], None)
    told = {"tried": [1, 2], "r2": [0.1], "error": [0.1], "chosen": 1, "steps": 3, "pieces": 2}
    (tmp_path / "recording.json").write_text(json.dumps({"notes": ["a"], "latent": told}))
    assert kept_notes(tmp_path) == (["a"], None)
    told |= {"r2": [0.1, 0.5], "error": [0.1, 0.2]}
    (tmp_path / "recording.json").write_text(json.dumps({"notes": [], "latent": told}))
    assert kept_notes(tmp_path) == ([], LatentSearch((1, 2), (0.1, 0.5), (0.1, 0.2), 1, 3, 2))


@pytest.mark.slow
def test_auto_finds_two_numbers_behind_twenty_channels_of_a_limit_cycle(tmp_path: Path) -> None:
    lanes = FieldState(Field.named("tenfold/LimitCycle-v0"), [(0, 0)])
    rng, steps = np.random.default_rng(0), 2000
    y, a = np.zeros((steps, 20), np.float32), np.zeros((steps, 2))
    lanes.begin(0)
    for t in range(steps):
        a[t] = rng.uniform(-1, 1, 2) if t % 5 == 0 else a[t - 1]
        lanes.observe(y[t : t + 1])
        lanes.advance(a[t : t + 1])
    np.savez(tmp_path / "cycle.npz", observations=y, actions=a, dt=0.1)
    settings = {"steps": 1000, "eval_every": 0}
    ten.fit(tmp_path / "cycle.npz", tmp_path / "run", latent="auto", settings=settings)
    found = kept_notes(tmp_path / "run")[1]
    assert found is not None and found.size == 2
