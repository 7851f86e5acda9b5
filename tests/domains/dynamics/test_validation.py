"""Systems of one's own that tell their hidden state and field, and the field of continuous time
behind a model of steps."""

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import EnvironmentFault
from tenfold.domains.dynamics.coordinates import field_error
from tenfold.domains.dynamics.dynamics import instantaneous, logarithm
from tenfold.domains.dynamics.validation import field_at, random_recordings
from tenfold.runs.metrics import read_rows


def flow(field: Any, z: Any, dt: float, parts: int = 20) -> Any:
    """Runge and Kutta's steps of fourth order; of arrays or tensors."""
    h = dt / parts
    for _ in range(parts):
        k1 = field(z)
        k2 = field(z + h / 2 * k1)
        k3 = field(z + h / 2 * k2)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(z + h * k3))
    return z


def stack(like: Any, *parts: Any) -> Any:
    return torch.stack(parts, -1) if isinstance(like, torch.Tensor) else np.stack(parts, -1)


def fitzhugh_nagumo(z: Any) -> Any:
    v, w = z[..., 0], z[..., 1]
    return stack(z, v - v**3 / 3 - w + 0.5, 0.08 * (v + 0.7 - 0.8 * w))


def pendulum(z: Any) -> Any:
    angle, turn = z[..., 0], z[..., 1]
    sine = torch.sin(angle) if isinstance(z, torch.Tensor) else np.sin(angle)
    return stack(z, turn, -9.8 * sine - 0.2 * turn)


EXAMPLES = str(Path(__file__).parents[3] / "examples")
SYSTEMS = {"fhn": (fitzhugh_nagumo, 0.5, (2.0, 1.0)), "pendulum": (pendulum, 0.1, (1.5, 2.0))}


class Own(gym.Env[np.ndarray, np.ndarray]):
    """One of these seen through ten numbers, pushed along its first or second number."""

    def __init__(self, system: str = "fhn", tells: str = "all") -> None:
        self.true, self.dt, self.start = SYSTEMS[system]
        self.tells, self.push = tells, np.array([0.5, 0.0] if system == "fhn" else [0.0, 1.0])
        self.read = np.random.default_rng(5).normal(size=(10, 2))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        if tells != "state":
            self.field = self.asked

    def asked(self, z: np.ndarray) -> np.ndarray:
        return self.true(z)[..., :1] if self.tells == "wrong field" else self.true(z)

    def look(self) -> tuple[np.ndarray, dict[str, Any]]:
        y = self.read @ self.z + 0.02 * self.np_random.normal(size=10)
        told = {"wrong state": [[1.0]], "field": None}.get(self.tells, self.z.copy())
        return y.astype(np.float32), {} if told is None else {"latent": told}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.z, self.t = self.np_random.uniform(-1, 1, 2) * self.start, 0
        return self.look()

    def step(self, action: Any) -> Any:
        push = self.push * float(np.asarray(action).ravel()[0])
        self.z = flow(lambda z: self.true(z) + push, self.z, self.dt)
        self.t += 1
        y, info = self.look()
        return y, 0.0, False, self.t >= 50, info


gym.register("OwnSystem-v0", Own)  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def registered() -> None:
    if "OwnSystem-v0" not in gym.registry:
        gym.register("OwnSystem-v0", Own)  # pyright: ignore[reportArgumentType]


def test_what_an_environment_tells_is_the_truth_of_its_recordings() -> None:
    found = random_recordings("OwnSystem-v0(system=pendulum)", 6)
    truth = found.truth
    assert truth is not None and truth.continuous and truth.latent.shape == (6, 20, 2)
    assert np.allclose(truth.field, pendulum(truth.points)) and len(truth.points) == 625
    assert truth.weight.sum() == 6 * 20
    env: Any = gym.make("OwnSystem-v0", system="pendulum").unwrapped
    seen = truth.latent.reshape(-1, 2) @ env.read.T
    assert np.abs(found.y.reshape(-1, 10) - seen).max() < 0.15  # noise of 0.02 between them


def test_a_part_of_the_truth_is_none_and_a_wrong_one_is_refused() -> None:
    for part in ("state", "field"):
        assert random_recordings(f"OwnSystem-v0(tells={part})", 2).truth is None
    for part, words in (
        ("wrong state", r'info\["latent"\] must be the hidden state, finite numbers in one dim'),
        ("wrong field", r"field\(z\) gives 1 numbers for a state of 2"),
    ):
        with pytest.raises(EnvironmentFault, match=words):
            random_recordings(f'OwnSystem-v0(tells="{part}")', 2)


def test_a_field_of_one_state_is_asked_one_by_one() -> None:
    def alone(z: np.ndarray) -> list[float]:
        x, y = z
        return [float(y), -float(x)]

    points = np.array([[1.0, 2.0], [3.0, 4.0]])  # as many as numbers: rows look like columns
    assert field_at("x", alone, points).tolist() == [[2.0, -1.0], [4.0, -3.0]]
    with pytest.raises(EnvironmentFault, match=r"field\(z\) is not finite at z = \[3. 4.\]"):
        field_at("x", lambda z: np.where(z[..., :1] > 2, np.nan, z), points)


def test_what_a_field_raises_is_told_once_with_its_place() -> None:
    """By one state, by all at once, or by both in another way: none is passed over."""

    def never(z: np.ndarray) -> np.ndarray:
        raise KeyError("gain")

    def for_rows(z: np.ndarray) -> np.ndarray:
        return z[:, [1, 5]]  # a slip of the pen, which one state alone would hide

    points = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with pytest.raises(EnvironmentFault) as told:
        field_at("x", never, points)
    assert str(told.value).startswith(
        "x, z = [1. 2.]: field(z) raised KeyError: 'gain' in test_validation.py, line "
    )
    assert str(told.value).count("gain") == 1
    with pytest.raises(EnvironmentFault) as told:
        field_at("x", for_rows, points)
    assert "too many indices" in str(told.value)
    assert "Given all states at once, as rows, it raised IndexError: index 5" in str(told.value)
    with pytest.raises(
        EnvironmentFault, match=r"z = \[1. 2.\]: what field\(z\) returned cannot be"
    ):
        field_at("x", lambda z: "fast", points)


def test_policies_on_a_system_of_ones_own_are_compared_by_the_fields_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(EXAMPLES)
    small = {"length": 6, "batch_size": 2, "learning_starts": 20, "first_updates": 5, "refit": 20}
    agent = small | {"model": {"grid": 4, "samples": 2}}
    settings = {
        "env": "fitzhugh_nagumo:FitzHughNagumo-v0",
        "steps": 40,
        "eval_every": 40,
        "eval_episodes": 4,
    }
    run = ten.Run.of({**settings, "agent": {"name": "explorer", **agent}})
    found = ten.compare(run, ("random",), 2, tmp_path / "own", jobs=1, quiet=True)
    row = found.rows["random"]
    assert 0 < row["field_error"]["iqm"] < 50 and 0 < row["instant_error"]["iqm"] < 50
    from tenfold.domains.dynamics.compare import table_of

    head, line, *_ = table_of(found.rows)
    assert head[2:5] == ["field error", "95 % interval", "instantaneous"]
    assert line[4] == f"{row['instant_error']['iqm']:.3f}" and len(line) == len(head)
    fit = [row for row in read_rows(found.path / "random" / "metrics.jsonl") if "r2" in row][-1]
    assert len(fit["instant_errors"]) == 2
    assert main(["eval", str(found.path / "random"), "--episodes", "4"]) == 0
    assert "of the instantaneous field" in capsys.readouterr().out
    loaded: Any = ten.load(found.path / "random", checkpoint="last")
    points = np.array([[0.5, 0.5]])
    assert loaded.field(points, true=True).shape == (2, 1, 2)
    assert loaded.field(points, true=True, instantaneous=True).shape == (2, 1, 2)


# continuous time


def test_a_linear_systems_field_is_the_logarithm_of_its_steps() -> None:
    slope = torch.tensor([[-0.3, 2.0], [-2.0, -0.3]], dtype=torch.float64)
    step = torch.linalg.matrix_exp(0.3 * slope)
    z = torch.tensor([[1.0, 0.5], [-2.0, 0.1]], dtype=torch.float64)

    def average(states: torch.Tensor) -> torch.Tensor:
        return (states @ step.T - states) / 0.3

    found = instantaneous(average, step.expand(2, 2, 2), z, 0.3)
    assert torch.allclose(found, z @ slope.T, atol=1e-9)
    assert not torch.allclose(average(z), z @ slope.T, atol=0.1)


def test_where_a_step_turns_over_the_mean_is_given_as_it_is() -> None:
    """z' = −z/2 is no flow of a single number."""
    mean = torch.tensor([[-1.5], [0.7]])
    assert torch.equal(logarithm(torch.tensor([[[-1.5]], [[-1.5]]]), mean), mean)
    # two directions at once, alike or not: the determinant of the step is above 0
    both = torch.tensor([[1.0, 0.5]])
    for least in (-0.5, -0.45):
        over = torch.diag(torch.tensor([-0.5, least])) - torch.eye(2)
        assert torch.equal(logarithm(over[None], both), both)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_field_of_exact_steps_is_found_to_a_fifth_of_the_means_error(name: str) -> None:
    """The steps are the system's own; what is left is of third order in dt."""
    field, dt, reach = SYSTEMS[name]
    axes = [torch.linspace(-r, r, 9, dtype=torch.float64) for r in reach]
    z = torch.cartesian_prod(*axes)

    def average(states: torch.Tensor) -> torch.Tensor:
        return (flow(field, states, dt) - states) / dt

    slope = torch.func.vmap(torch.func.jacrev(lambda one: flow(field, one, dt)))(z)
    found = instantaneous(average, slope, z, dt)
    errors = [field_error(own.numpy(), field(z).numpy()) for own in (average(z), found)]
    assert errors[0] > 0.07 and errors[1] < errors[0] / 5


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_learned_fields_error_is_about_halved(tmp_path: Path, name: str) -> None:
    ten.train(
        "explorer",
        tmp_path / "run",
        env=f"OwnSystem-v0(system={name})",
        steps=2000,
        eval_every=2000,
        eval_episodes=64,
        quiet=True,
        agent={"planner": {"policy": "random"}},
    )
    fit = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl") if "r2" in row][-1]
    assert fit["instant_error"] < 0.65 * fit["field_error"]
