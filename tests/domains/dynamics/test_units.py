"""A model is as good in any unit: the same numbers inside, and what leaves is in the units that
came."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.belief import repeated_r2
from tenfold.domains.dynamics.config import Explorer, LatentModel, Planner
from tenfold.domains.dynamics.coordinates import STEP, Units, channel_statistics
from tenfold.domains.dynamics.evaluation import baseline_warning
from tenfold.domains.dynamics.learner import (
    ExplorerLearner,
    RecordingLearner,
    action_range,
    untrained,
)
from tenfold.domains.dynamics.model_metrics import ModelMetrics, evaluate_model
from tenfold.domains.dynamics.recording import (
    Recording,
    load_recording,
    read_recording,
    recording_id,
)
from tenfold.domains.dynamics.validation import random_recordings

MODEL: dict[str, Any] = {"hidden": (), "samples": 1, "grid": 4, "ensemble": 2}
AGENT: dict[str, Any] = {
    "window": 200,
    "length": 6,
    "batch_size": 3,
    "every": 2,
    "learning_starts": 12,
    "first_updates": 3,
    "refit": 10,
    "lr": 1e-2,
}
# powers of two: products with them are exact
GAINS, PUSH, CLOCK = np.array([2.0**12, 2.0**-9]), 2.0**-7, 2.0**10


def spiral(steps: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z, y, a = rng.normal(size=2), [], rng.uniform(-1, 1, (steps, 1))
    for t in range(steps):
        y.append(z + 0.02 * rng.normal(size=2))
        z = z + 0.1 * (np.array([[-0.2, 1.0], [-1.0, -0.2]]) @ z + a[t])
    return np.array(y), a


def fitted(
    path: Path, y: np.ndarray, a: np.ndarray, dt: float, **model: Any
) -> tuple[ExplorerAgent, ModelMetrics]:
    """What a few steps of `tenfold fit` learn, as it is read from a checkpoint, and how it is
    judged."""
    np.savez(path / "data.npz", observations=y, actions=a, dt=dt)
    settings = Explorer(
        model=LatentModel(**(MODEL | model)),
        planner=Planner(policy="random"),
        length=10,
        refit=5,
        lr=1e-2,
    )
    place = RecordingLearner(
        Run(
            env=recording_id([path / "data.npz"], read_recording(path / "data.npz")), agent=settings
        )
    )
    for _ in range(12):
        place.round()
    agent = untrained(place.run)
    agent.load_state(place.agent.policy_state())
    return agent, evaluate_model(place.agent, random_recordings(place.run.env, 1))


# recordings


@pytest.mark.parametrize("decoder", ["linear", "identity"])
def test_a_recording_in_other_units_trains_the_same_model_bit_for_bit_and_answers_in_those_units(
    tmp_path: Path, decoder: str
) -> None:
    y, a = spiral()
    plain, before = fitted(tmp_path, y, a, 0.1, decoder=decoder)
    other, after = fitted(tmp_path, y * GAINS, a * PUSH, 0.1 * CLOCK, decoder=decoder)
    assert torch.equal(plain.online.flat, other.online.flat)
    assert other.forecast(y[:20] * GAINS, a[:20] * PUSH, 5) == pytest.approx(
        plain.forecast(y[:20], a[:20], 5) * GAINS, rel=1e-12
    )
    # then the hidden state is what is observed, and else it has no unit
    own = GAINS if decoder == "identity" else 1.0
    assert other.encode(y * GAINS) == pytest.approx(plain.encode(y) * own, rel=1e-12)
    z = np.array([[0.5, -1.0], [1.2, 0.3]])
    assert other.field(z * own) == pytest.approx(plain.field(z) * own / CLOCK, rel=1e-9)
    assert (
        np.array_equal(before.r2, after.r2)
        and before.arx_r2 is not None
        and np.array_equal(before.arx_r2, after.arx_r2)
    )  # type: ignore[arg-type]
    assert before.elbo - after.elbo == pytest.approx(np.log(GAINS).sum())  # a density has a unit


def test_an_offset_and_tiny_numbers_cost_nothing(tmp_path: Path) -> None:
    y, a = spiral()
    before = fitted(tmp_path, y, a, 0.1)[1].r2
    for changed in (y + 1e8, y * 1e-6, y * [1e-4, 1e4] - [0, 1e9]):
        assert fitted(tmp_path, changed, a, 0.1)[1].r2 == pytest.approx(before, abs=1e-3)


def test_what_a_fit_chooses_lies_within_the_actions_that_were_recorded(tmp_path: Path) -> None:
    y, a = spiral()
    agent = fitted(tmp_path, y, 300 + 5 * a, 0.1)[0]
    assert (
        agent.low == pytest.approx(300 + 5 * a[:130].min(), abs=1)
        and 294 < agent.act(y[0])[0] < 306
    )
    still = np.c_[np.full(9, 4.0), np.zeros(9)]
    low, high = action_range(Recording(((still, still),), 0.1))
    assert low.tolist() == [0, -1] and high.tolist() == [8, 1]


def test_a_run_on_recordings_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    y, a = spiral(20)
    np.savez(tmp_path / "data.npz", observations=y, actions=a, dt=0.1)
    name = recording_id([tmp_path / "data.npz"], read_recording(tmp_path / "data.npz"))
    assert load_recording(name).steps == 20
    with pytest.raises(
        UserError,
        match="by an earlier version of tenfold cannot go on in this one: start it anew with `tenfold fit",
    ):
        load_recording(name.replace("sha256f64-", "sha256-"))


# worse than no model


def test_repeating_the_last_value_explains_what_stays() -> None:
    y = np.array([[[0.0], [1.0], [2.0], [3.0]]])
    # 1 ahead: errors of 1 twice, of 1, 2 around 1.5; 2 ahead: errors of 2 twice, of 2, 3 around 2.5
    assert repeated_r2(y, 2) == pytest.approx([1 - 2 / 0.5, 1 - 8 / 0.5]) and repeated_r2(
        np.ones((1, 5, 2)), 2
    ).tolist() == [0, 0]


def test_a_model_worse_than_none_is_told_with_what_to_try() -> None:
    row = {"r2": [0.9, 0.7], "arx_r2": [0.95, 0.85], "last_r2": [0.9, 0.2]}
    assert baseline_warning(row).startswith(
        "The model foretells worse than a linear autoregression (ARX) fitted to the same data (R² 0.800 against "
        "0.900, mean of 1 to 2 steps ahead): do not rely on it. Try more steps or data,"
    )
    assert "worse than repeating the last value (R² 0.800 against 0.850" in baseline_warning(
        {"r2": [0.8], "last_r2": [0.85]}
    )
    assert not baseline_warning(
        {"r2": [0.8], "last_r2": [0.805], "arx_r2": [0.7]}
    ) and not baseline_warning({"r2": [0.1]})


def test_a_fit_that_ends_worse_than_none_says_so_in_terminal_summary_report_and_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y, a = spiral()
    np.savez(tmp_path / "data.npz", observations=y, actions=a, dt=0.1)
    flags = [
        "--steps",
        "2",
        "--eval-every",
        "2",
        "--agent.length",
        "10",
        "--agent.refit",
        "0",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["fit", str(tmp_path / "data.npz"), *flags]) == 0
    told, words = (
        capsys.readouterr(),
        "The model foretells worse than a linear autoregression (ARX)",
    )
    assert f"Warning: seed 0: {words}" in told.err and "agent.model.latent" in told.err
    assert (told.err + told.out).count(words) == 1
    assert words in (tmp_path / "run" / "report.html").read_text()
    assert main(["eval", str(tmp_path / "run")]) == 0 and words in capsys.readouterr().out


# experiments


class Gauge(gym.Env[np.ndarray, np.ndarray]):
    """A damped rotation: gains of the two observations, `far` added to both; actions within ±push;
    a step takes 0.1·clock."""

    def __init__(
        self,
        gain: float = 1,
        other: float = 1,
        far: float = 0,
        push: float = 1,
        clock: float = 1,
        still: int = 0,
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gym.spaces.Box(-push, push, (2,), np.float32)
        self.gains, self.far, self.push, self.dt, self.still = (
            np.array([gain, other, gain]),
            far,
            push,
            0.1 * clock,
            still,
        )

    def look(self) -> np.ndarray:
        last = 0.0 if self.count < self.still else self.z.sum()
        return np.array([*self.z, last]) * self.gains + self.far

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.z, self.count = self.np_random.normal(size=2), 0
        return self.look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.z = self.z + 0.1 * (
            np.array([[-0.2, 1.0], [-1.0, -0.2]]) @ self.z + action / self.push
        )
        self.count += 1
        return self.look(), 0.0, False, self.count >= 70, {}


gym.register("Gauge-v0", Gauge)  # type: ignore[arg-type]


def explored(
    env: str,
    steps: int,
    agent: dict[str, Any] | None = None,
    members: int = 1,
    policy: Any = "active",
    **model: Any,
) -> ExplorerLearner:
    planner = Planner(policy=policy, samples=6, iterations=2, elites=3, horizon=3, action_cost=0.1)
    settings = Explorer(
        model=LatentModel(**(MODEL | model)), planner=planner, **(AGENT | (agent or {}))
    )
    place = ExplorerLearner(Run(env=env, agent=settings, members=members))
    for _ in range(steps):
        place.round()
    return place


def test_an_experiment_in_other_units_takes_the_same_course_bit_for_bit() -> None:
    one = explored("Gauge-v0", 60).agent
    two = explored(
        "Gauge-v0(gain=4096.0, other=0.001953125, push=0.0078125, clock=1024.0)", 60
    ).agent
    assert one.units.rows > 30 and one.updates > 20  # units were taken more than once
    assert torch.equal(one.online.flat, two.online.flat) and torch.equal(
        one.belief.mean, two.belief.mean
    )
    assert np.array_equal(one.window.action * 2.0**-7, two.window.action)
    assert two.field(np.zeros((1, 2))) == pytest.approx(one.field(np.zeros((1, 2))) / 1024)


def test_an_experiment_far_from_zero_learns_as_one_near_it() -> None:
    # environments speak float32
    one, two = (explored(f"Gauge-v0(far={far})", 40, policy="random").agent for far in (0.0, 1e3))
    assert two.online.flat.detach().numpy() == pytest.approx(
        one.online.flat.detach().numpy(), abs=5e-3
    )


KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "mlp": {"decoder": "mlp", "hidden": (5,)},
    "loglinear": {"decoder": "loglinear"},
    "masked": {"mask": 0.3, "hidden": (5,)},
    "gru": {"encoder": "gru", "hidden": (4,)},
    "identity": {"decoder": "identity", "latent": 3, "dynamics": "mlp", "hidden": (5,)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_learned_is_the_same_in_units_that_were_taken_anew(kind: str) -> None:
    env = "Gauge-v0(far=9.0)" if kind == "loglinear" else "Gauge-v0(gain=30.0, far=5.0)"
    agent = explored(env, 20, members=2, **KINDS[kind]).agent
    rng = np.random.default_rng(0)
    y, a = agent.window.obs[:, :12].mean(0) + rng.normal(size=(12, 3)), rng.uniform(-1, 1, (12, 2))
    before, field, belief = (
        agent.forecast(y, a, 4),
        agent.field(agent.encode(y)[0]),
        agent.belief.mean.clone(),
    )
    noise = (
        agent.online.decoder.raw_variance.detach().exp().log1p()
        * torch.from_numpy(agent.units.channels.scale).square()
    )  # type: ignore[union-attr]
    old, states = agent.units.channels, agent.encode(y)
    agent.window.obs *= [3.0, 0.2, 1.0]
    agent.fit_units(100)
    assert (agent.units.channels.scale[:, 1] < old.scale[:, 1] / 3).all()
    assert agent.forecast(y, a, 4) == pytest.approx(before, rel=1e-3, abs=1e-3) and agent.encode(
        y
    ) == pytest.approx(states, abs=1e-3)
    assert agent.field(states[0]) == pytest.approx(field, abs=2e-3)
    if kind != "identity":
        assert torch.equal(belief, agent.belief.mean)
    after = (
        agent.online.decoder.raw_variance.detach().exp().log1p()
        * torch.from_numpy(agent.units.channels.scale).square()
    )  # type: ignore[union-attr]
    assert after.numpy() == pytest.approx(noise.numpy(), rel=1e-2)


def test_a_channel_that_begins_to_vary_late_gets_its_scale_then_and_does_no_harm() -> None:
    agent = explored("Gauge-v0(gain=1000.0, still=40)", 40, members=1).agent
    assert (
        agent.units.channels.varied.tolist() == [[True, True, False]]
        and agent.units.channels.scale[0, 2] == 1
    )
    later = explored("Gauge-v0(gain=1000.0, still=40)", 70, members=1).agent
    assert later.units.channels.varied.all() and later.units.channels.scale[0, 2] > 100
    assert (
        float(later.online.flat.detach().abs().max()) < 20
        and float(later.belief.mean.abs().max()) < 10
    )


# the units themselves


def test_channels_have_mean_0_and_deviation_1_and_those_that_stand_still_their_own_size() -> None:
    # all that numbers of this size can tell apart is 1e-7
    slight = 1e9 + 1e-4 * np.array([[[-1.0], [1.0]]])
    assert (
        channel_statistics(slight, True).scale.item() == pytest.approx(1e-4, rel=1e-2)
        and channel_statistics(slight, True).varied.all()
    )
    assert not channel_statistics(np.full((1, 999, 1), 0.1), True).varied.any()
    rows = np.array([[[1.0, 7.0, 0.0, 1e9], [3.0, 7.0, 0.0, 1e9 + 2]]])
    found = channel_statistics(rows, True)
    assert found.mean.tolist() == [[2, 7, 0, 1e9 + 1]] and found.scale.tolist() == [[1, 7, 1, 1]]
    assert found.varied.tolist() == [[True, False, False, True]]
    assert (
        channel_statistics(rows, False).scale[0, :2] == pytest.approx([5**0.5, 7])
        and not channel_statistics(rows, False).mean.any()
    )


def test_counts_keep_their_scale_and_actions_and_time_do_not() -> None:
    units = Units(1, 2, LatentModel(noise="poisson", decoder="loglinear"), 50.0)
    units.bound(np.array([-4.0, 2.0, 0.0]), np.array([2.0, 6.0, 5.0]))
    assert (
        units.known
        and not units.due_again(10**6)
        and units.observations_in(np.array([[100.0, 3.0]])).tolist() == [[100, 3]]
        and units.log_density.tolist() == [0]
    )
    # from 0 where that is an action, else from the middle
    assert units.actions_in(np.array([2.0, 6.0, 2.5])).tolist() == [0.5, 1.0, 0.5]
    assert units.actions_out(np.array([0.5, -1.0, 1.0])).tolist() == [
        2,
        2,
        5,
    ] and units.pace == pytest.approx(STEP / 50)


def test_the_field_is_the_one_without_action_though_0_was_none_of_them() -> None:
    config = Explorer(
        model=LatentModel(hidden=(), dynamics="linear"),
        planner=Planner(policy="goal", goal=(1.0, 1.0)),
        **AGENT,
    )
    agent = ExplorerAgent(config, 3, np.array([10.0]), np.array([14.0]), 0.5)
    with torch.no_grad():
        agent.online.dynamics.weight.zero_()
        agent.online.dynamics.action_weight[:] = torch.tensor([[1.0], [-2.0]])
    # 0 is six reaches of 2 below the middle, 12; a step inside takes 0.1 and outside 0.5
    assert agent.field(np.zeros((1, 2))) == pytest.approx(np.array([[-6.0, 12.0]]) / 5)
    assert 10 <= agent.act(np.zeros(3))[0] <= 14


def test_a_goal_is_given_in_the_units_of_what_is_observed_where_that_is_the_state() -> None:
    config = Explorer(
        model=LatentModel(decoder="identity", hidden=()),
        planner=Planner(policy="goal", goal=(300.0, -5.0)),
        **AGENT,
    )
    agent = ExplorerAgent(config, 2, -np.ones(2), np.ones(2), 0.1)
    rng = np.random.default_rng(0)
    for t in range(20):
        agent.observe(
            np.array([[200.0, -5.0]]) + rng.normal(size=(1, 2)) * [50, 0.1], np.array([t == 0])
        )
        agent.record_step(agent.no_action())
    agent.learn_units(20)
    expected = agent.units.observations_in(np.array([[300.0, -5.0]]))
    assert (
        agent.planning.objective.goals == pytest.approx(expected, rel=1e-5)
        and 1 < expected[0, 0] < 4
    )
