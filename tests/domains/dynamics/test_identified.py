"""A loaded explorer answers: the field in either coordinates, states, forecasts, and the next
experiment."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError, ConfigError, UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.belief import k_step_r2
from tenfold.domains.dynamics.config import Explorer, LatentModel, Planner
from tenfold.domains.dynamics.coordinates import Alignment, align
from tenfold.domains.dynamics.fields import Field, FieldState
from tenfold.domains.dynamics.learner import ExplorerLearner
from tenfold.domains.dynamics.model_metrics import evaluate_model
from tenfold.domains.dynamics.phase_portrait import draw_fields
from tenfold.domains.dynamics.validation import axis_over, random_recordings
from tenfold.envs.making import make_env
from tenfold.runs.storage import read_arrays, write_arrays

ENV = "tenfold/LimitCycle-v0(size=5, limit=25)"
MODEL: dict[str, Any] = {"hidden": (), "samples": 2, "grid": 4, "ensemble": 2}
AGENT: dict[str, Any] = {
    "window": 60,
    "length": 6,
    "batch_size": 3,
    "every": 3,
    "learning_starts": 12,
    "first_updates": 2,
}


def small(
    model: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
    policy: Any = "active",
    **more: Any,
) -> Run:
    planner = Planner(policy=policy, samples=6, iterations=2, elites=3, horizon=3)
    settings = Explorer(
        model=LatentModel(**(MODEL | (model or {}))), planner=planner, **(AGENT | (agent or {}))
    )
    usual: dict[str, Any] = {
        "env": ENV,
        "agent": settings,
        "steps": 40,
        "eval_every": 15,
        "eval_episodes": 4,
    }
    return Run(**(usual | more))


def played(run: Run, rounds: int) -> ExplorerLearner:
    place = ExplorerLearner(run)
    for _ in range(rounds):
        place.round()
    return place


def made(
    model: dict[str, Any], observations: int = 5, members: int = 1, policy: Any = "random"
) -> ExplorerAgent:
    config = Explorer(
        model=LatentModel(**(MODEL | model)),
        planner=Planner(policy=policy, samples=6, iterations=2, elites=3),
        **AGENT,
    )
    return ExplorerAgent(config, observations, -np.ones(2), np.ones(2), 0.1, tuple(range(members)))


# the field in true coordinates


def test_the_end_of_a_run_is_judged_and_its_map_saved_and_a_longer_run_keeps_the_row_alone(
    tmp_path: Path,
) -> None:
    run = small()  # 40 steps, evaluations at 15, 30 and the end
    result = ten.train(run, tmp_path / "run", quiet=True)
    fits = [row["step"] for row in ten_rows(result.path) if row["kind"] == "fit"]
    assert fits == [15, 30, 40] and result.best_evaluation is not None
    agent = ten.load(result.path)
    state = read_arrays(result.path / "checkpoints" / "step-000000000040.safetensors")[0]
    judged = played(run, 40).agent
    evaluate_model(judged, random_recordings(ENV, 4))
    assert (
        np.array_equal(state["agent.matrix"][0], judged.maps[0].matrix)
        and state["agent.aligned"][0] == judged.maps[0].r2
    )
    point = [[0.5, -0.3]]
    assert np.array_equal(agent.field(point, true=True), judged.field(np.array(point), true=True))  # type: ignore[union-attr]
    ten.resume(result.path, 50, quiet=True)
    whole = ten.train(small(steps=50), tmp_path / "whole", quiet=True)
    plain = [
        [{k: v for k, v in row.items() if k != "timing"} for row in ten_rows(path)]
        for path in (result.path, whole.path)
    ]
    assert [row for row in plain[0] if (row["kind"], row["step"]) != ("fit", 40)] == plain[1]


def ten_rows(path: Path) -> list[dict[str, Any]]:
    from tenfold.runs.metrics import read_rows

    return list(read_rows(path / "metrics.jsonl"))


def test_true_coordinates_are_refused_where_the_map_to_them_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="map from the model's coordinates to the environment's own is not known"
    ):
        made({}).field(np.zeros((1, 2)), true=True)
    # what is seen is the state
    assert made({"decoder": "identity"}, 2).field(np.zeros((1, 2)), true=True).shape == (1, 2)
    never = ten.train(small(eval_every=0, steps=20), tmp_path / "never", quiet=True)
    with pytest.raises(UserError, match="not known"):
        ten.load(never.path).field([[0.0, 0.0]], true=True)  # type: ignore[union-attr]
    ring = played(small(env="tenfold/RingCartPole-v0(size=5)"), 1).agent
    evaluate_model(ring, random_recordings("tenfold/RingCartPole-v0(size=5)", 2))
    with pytest.raises(UserError, match="not known"):
        ring.field(np.zeros((1, 2)), true=True)


def test_a_checkpoint_without_units_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = ten.train(small(steps=14), tmp_path / "run", quiet=True)
    for file in (result.path / "checkpoints").glob("*.safetensors"):
        arrays, note = read_arrays(file)
        write_arrays(file, {k: v for k, v in arrays.items() if "units." not in k}, note)
    for attempt in (
        lambda: ten.load(result.path),
        lambda: ten.resume(result.path, 16, quiet=True),
        lambda: ten.fit(result.path, tmp_path / "fit", quiet=True),
    ):
        with pytest.raises(
            CheckpointError,
            match="is of an earlier version of tenfold, and its model cannot be read in this one",
        ):
            attempt()


def test_a_model_with_more_numbers_than_the_system_is_judged_where_its_states_are() -> None:
    """z = (x, y, 3 + x − y): the states lie on a plane that does not pass through 0, and dz/dt
    there is that of x and y."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    lift = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    found = align(x @ lift.T + [0, 0, 3], x)
    z = found.to_learned(np.array([[0.4, -0.7]]))
    assert found.to_true(z) == pytest.approx(np.array([[0.4, -0.7]])) and z[0] == pytest.approx(
        [0.4, -0.7, 4.1]
    )
    place = played(small({"latent": 3}), 30)
    verdict = evaluate_model(place.agent, random_recordings(ENV, 6))
    assert verdict.field_error is not None and place.agent.maps[0].matrix.shape == (2, 3)
    points = np.array([[0.5, -0.2], [0.1, 0.9]])
    own = place.agent.maps[0]
    expected = place.agent.field(own.to_learned(points)) @ own.matrix.T
    assert place.agent.field(points, true=True) == pytest.approx(expected) and expected.shape == (
        2,
        2,
    )
    again = made({"latent": 3})
    again.load_state(
        {
            k: np.array(v) if not isinstance(v, torch.Tensor) else v.clone()
            for k, v in place.agent.policy_state().items()
        }
    )
    assert again.field(points, true=True) == pytest.approx(expected, abs=1e-6)


def test_of_equal_sizes_the_map_back_is_the_plain_inverse() -> None:
    place = Alignment(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([1.0, -1.0]), 1.0)
    assert place.to_learned(np.array([[3.0, 2.0]])) == pytest.approx(np.array([[1.0, 2.0]]))


# states and forecasts


@pytest.mark.parametrize("encoder", ["mlp", "gru"])
def test_forecasts_are_those_that_r2_is_made_of(encoder: str) -> None:
    agent = made({"encoder": encoder, "hidden": (4,)}, members=2)
    rng = np.random.default_rng(1)
    y, a = rng.normal(size=(3, 9, 5)), rng.uniform(-1, 1, (3, 9, 2))
    found = agent.forecast(y, a, 4)
    assert found.shape == (2, 3, 6, 4, 5)  # moments 0 … 5 have four actions
    # moments whose four observations are there too
    following = np.stack([y[:, t + 1 : t + 5] for t in range(5)], 1)
    error = np.square(found[:, :, :5] - following).sum((1, 2, 4))
    spread = np.square(following - following.mean((0, 1, 2))).sum((0, 1, 3))
    tensors = (torch.from_numpy(part).float().expand(2, *part.shape) for part in (y, a))
    assert 1 - error / spread == pytest.approx(k_step_r2(agent.online, *tensors, 4), abs=1e-5)  # type: ignore[call-arg]


def test_a_forecast_rolls_the_dynamics_by_hand_from_the_encoded_state_and_may_go_beyond_the_recording() -> (
    None
):
    agent = made({"ensemble": 1})
    rng = np.random.default_rng(2)
    y, a = rng.normal(size=(4, 5)).astype(np.float32), rng.uniform(-1, 1, (6, 2)).astype(np.float32)
    z = agent.encode(y)
    assert z.shape == (4, 2)
    found = agent.forecast(y, a, 3)
    assert found.shape == (4, 3, 5)  # six actions: the last observation has three of them
    with torch.no_grad():
        state = torch.from_numpy(z[3]).float().view(1, 1, 1, 2)
        for k in range(3):
            state = agent.online.dynamics(state, torch.from_numpy(a[3 + k]).view(1, 1, 1, 2))[0]
            assert found[3, k] == pytest.approx(
                agent.online.decode(state[:, 0])[0, 0].numpy(), abs=1e-5
            )
    with pytest.raises(ValueError, match="7 steps ahead need as many actions, and there are 6"):
        agent.forecast(y, a, 7)
    with pytest.raises(ValueError, match="0 steps ahead are none: give 1 or more"):
        agent.forecast(y, a, 0)
    for given in (a, None):
        with pytest.raises(ValueError, match=r"1\.5 steps ahead are no whole number"):
            agent.forecast(y, given, 1.5)
    assert np.array_equal(agent.forecast(y, a, np.int64(3)), found)
    with pytest.raises(ValueError, match=r"do not fit: give \[T, 5\] or \[E, T, 5\]"):
        agent.encode(np.zeros((3, 4)))


# acting


def test_a_loaded_explorer_acts_as_it_would_have_gone_on(tmp_path: Path) -> None:
    """From the checkpoint of step 25, where the environment begins its second episode, without
    further training."""
    run = small(agent={"every": 1_000, "first_updates": 5}, steps=25, eval_every=0)
    result = ten.train(run, tmp_path / "run", quiet=True)
    place = ExplorerLearner(run)
    for _ in range(25):
        place.round()
    env = make_env(ENV)
    env.reset(seed=0)
    obs, _ = env.reset()
    assert np.array_equal(obs, place.envs.obs[0])
    agent: Any = ten.load(result.path)
    for step in range(25, 33):
        action = agent.act(obs)
        assert action.shape == (2,) and np.array_equal(action, place.agent.choose(step)[0])
        obs = env.step(action)[0]
        place.envs.step(action[None])
        place.agent.observe(place.envs.obs, place.envs.truncated)


def test_an_episode_begins_without_what_was_believed_before() -> None:
    one, other, fresh = (made({"encoder": "gru", "hidden": (4,)}, policy="zero") for _ in range(3))
    for agent in (one, other):
        agent.act(np.full(5, 2.0))
    other.begin()
    for agent in (one, other, fresh):
        agent.act(np.linspace(-1, 1, 5))
    assert torch.equal(other.belief.mean, fresh.belief.mean) and not torch.equal(
        one.belief.mean, fresh.belief.mean
    )


def test_every_policy_acts_on_an_observation_and_wrong_ones_are_refused() -> None:
    for policy in ("active", "disagreement", "rnd", "random", "zero"):
        agent = made({}, members=2, policy=policy)
        first, second = agent.act(np.zeros((2, 5))), agent.act(np.ones((2, 5)))
        assert (
            first.shape == (2, 2)
            and np.abs(first).max() <= 1
            and (policy == "zero") == np.array_equal(first, second)
        )
    with pytest.raises(ValueError, match=r"does not fit: give \[5\] of each of 2 members"):
        made({}, members=2).act(np.zeros(5))
    with pytest.raises(ValueError, match="not finite"):
        made({}).act(np.full(5, np.nan))


def test_the_documented_python_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "dynamics.md").read_text()
    code = next(part for part in text.split("```python\n")[1:] if "agent.begin()" in part).split(
        "```"
    )[0]
    monkeypatch.chdir(tmp_path)
    ten.train(
        named(
            "limit-cycle",
            {"steps": 60, "eval_every": 0, "agent": {"learning_starts": 30, "first_updates": 3}},
        ),
        "runs/limit-cycle",
        quiet=True,
    )
    exec(code + "\nprint(states.shape, ahead.shape, action.shape)", {})
    assert capsys.readouterr().out.strip() == "(50, 2) (41, 10, 20) (2,)"


# what trains when


def test_first_updates_happen_as_soon_as_there_is_a_sequence_though_learning_starts_before() -> (
    None
):
    run = small(agent={"learning_starts": 2, "first_updates": 7, "length": 10})
    assert [played(run, rounds).agent.updates for rounds in (9, 10, 12)] == [0, 7, 8]
    actions = played(run, 10).agent.window.action[0, :10]
    assert np.array_equal(
        actions, np.array([ExplorerLearner(run).agent.random_action(step)[0] for step in range(10)])
    )


def test_states_of_the_window_are_read_in_the_order_of_time_and_a_gru_starts_anew_with_each_episode() -> (
    None
):
    run = small(
        {"encoder": "gru", "hidden": (4,)},
        policy="random",
        env="tenfold/LimitCycle-v0(size=5, limit=9)",
    )
    agent = played(run, 70).agent  # the ring holds 60: rows 10 … 69
    rows, states, _ = agent.window_states()
    assert rows[0] == 10 and rows[-1] == 9 and states.shape == (1, 60, 2)
    y, first = agent.window.obs[0, rows], agent.window.first[0, rows]
    starts = [0, *(np.flatnonzero(first[1:]) + 1).tolist(), 60]
    assert len(starts) > 6
    for begin, end in pairwise(starts):
        assert states[0, begin:end] == pytest.approx(agent.encode(y[begin:end]), abs=1e-6)


@pytest.mark.parametrize("members", [2, 3])
def test_a_member_with_a_gru_of_whole_vectors_equals_its_seed_alone_bit_for_bit(
    members: int,
) -> None:
    model, agent = {"encoder": "gru", "hidden": (32,)}, {"refit": 10}
    together, alone = (played(small(model, agent, members=m, seed=7), 45) for m in (members, 1))
    assert torch.equal(together.agent.online.flat[0], alone.agent.online.flat[0])
    assert np.array_equal(together.envs.obs[0], alone.envs.obs[0])


# environments of one's own


class Spin(gym.Env[np.ndarray, np.ndarray]):
    """A damped rotation pushed by the sum of a 2 × 2 action's rows."""

    def __init__(self, limit: int = 30, dt: Any = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2, 2), np.float32)
        self.limit = limit
        if dt is not None:
            self.dt = dt

    def look(self) -> np.ndarray:
        return np.array([self.z[0], self.z[1], self.z.sum()], np.float32)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.z, self.count = self.np_random.normal(size=2), 0
        return self.look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action.shape == (2, 2)
        self.z = self.z + 0.1 * (np.array([[-0.2, 1.0], [-1.0, -0.2]]) @ self.z + action.sum(1))
        self.count += 1
        return self.look(), 0.0, False, self.count >= self.limit, {}


gym.register("Spin-v0", Spin)  # type: ignore[arg-type]


def test_actions_of_two_dimensions_reach_the_environment_in_their_shape() -> None:
    place = played(small(env="Spin-v0(dt=0.25)", policy="random"), 20)
    assert (
        place.agent.dt == 0.25
        and place.agent.window.action.shape[-1] == 4
        and place.agent.updates > 0
    )
    assert not place.notices and evaluate_model(
        place.agent, random_recordings("Spin-v0", 3)
    ).r2.shape == (
        1,
        10,
    )


def test_a_run_says_when_the_time_of_a_step_is_not_known_and_when_nothing_can_be_trained() -> None:
    place = ExplorerLearner(small(env="Spin-v0(limit=4)", policy="random"))
    assert place.agent.dt == 1.0 and place.notices == [
        "Spin-v0(limit=4) has no attribute dt or tau: the time of a step counts as 1"
    ]
    for _ in range(30):
        place.round()
    assert (
        place.agent.updates == 0
        and "no episode has lasted agent.length = 6 steps" in place.notices[1]
        and len(place.notices) == 2
    )
    with pytest.raises(ConfigError, match="says that a step takes -1"):
        ExplorerLearner(small(env="Spin-v0(dt=-1)"))


def test_episodes_of_one_step_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="has episodes of one step under random actions"):
        random_recordings("Spin-v0(limit=1)", 3)
    place = played(small(env="Spin-v0(limit=4)", agent={"length": 3}, policy="random"), 30)
    verdict = evaluate_model(place.agent, random_recordings("Spin-v0(limit=4)", 3))
    # two lags and three steps do not fit into four
    assert verdict.r2.shape == (1, 3) and verdict.arx_r2 is None


# numbers that cannot be


def test_counts_below_zero_are_refused_by_name() -> None:
    with pytest.raises(
        ConfigError,
        match=r"agent\.model\.noise = poisson is for counts, and observations of .* can be below 0",
    ):
        ExplorerLearner(small({"noise": "poisson", "decoder": "loglinear"}))
    counts = "tenfold/LimitCycle-v0(size=5, limit=25, observe=loglinear, noise=poisson)"
    assert (
        played(small({"noise": "poisson", "decoder": "loglinear"}, env=counts), 20).agent.updates
        > 0
    )
    with pytest.raises(
        UserError,
        match=r"poisson is for counts, and an observation has -1\.5, which is below 0: use gaussian",
    ):
        made({"noise": "poisson", "decoder": "loglinear"}).act(np.array([0, 1, -1.5, 2, 3]))
    agent = made({"noise": "poisson", "decoder": "loglinear"})
    for t in range(8):
        agent.window.append(
            np.full((1, 5), -2, np.float32), np.zeros((1, 2), np.float32), np.array([t == 0])
        )
    with pytest.raises(UserError, match="poisson is for counts, and an observation has -2"):
        agent.train_step()


def test_what_is_not_finite_never_comes_into_the_metrics() -> None:
    agent = made({})
    y, a = torch.ones(1, 2, 12, 5), torch.zeros(1, 2, 12, 2)
    # nothing varies: nothing is explained
    assert k_step_r2(agent.online, y, a, 3).tolist() == [[0.0] * 3]
    with torch.no_grad():
        agent.online.decoder.layers[0].weight.fill_(1e38)  # type: ignore[operator]
    assert np.isfinite(k_step_r2(agent.online, torch.randn(1, 2, 12, 5), a, 3)).all()
    place = played(small(agent={"length": 2}), 30)
    row = evaluate_model(place.agent, random_recordings(ENV, 3)).row()
    assert "arx_r2" not in row and np.isfinite(row["r2"]).all()


def test_matrices_that_no_memory_holds_are_refused_with_what_to_do() -> None:
    run = small({"dynamics": "mlp", "hidden": (2048, 2048)})
    with pytest.raises(
        ConfigError,
        match=r"agent\.planner\.matrix = full keeps 2 matrices of 4,2.* set it to diagonal",
    ):
        ExplorerLearner(run)
    assert isinstance(run.agent, Explorer)
    quiet = replace(run.agent, planner=replace(run.agent.planner, policy="random"))
    # nothing is planned: no matrix is needed
    assert ExplorerLearner(replace(run, agent=quiet)).agent.planning.idle


@pytest.mark.usefixtures("pictures")
def test_true_and_learned_field_are_drawn_in_the_same_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from matplotlib.axes import Axes

    drawn, plain = [], Axes.streamplot

    def noted(axes: Any, *given: Any, **more: Any) -> Any:
        drawn.append((more["norm"].vmin, more["norm"].vmax))
        return plain(axes, *given, **more)

    monkeypatch.setattr(Axes, "streamplot", noted)
    axis, true = np.linspace(-1, 1, 25), np.zeros((25, 25, 2))
    true[..., 0] = 2.0
    arrays = {"x": axis, "y": axis, "true": true, "learned": 3 * true, "visited": np.zeros((4, 2))}
    assert draw_fields(arrays, {"seed": 5, "members": 2})[1:4] == b"PNG" and drawn == [(0, 2.0)] * 2
    assert np.ptp(axis_over(np.full(9, 3.0), 5)) == 1.0  # states that do not vary can be drawn too


def test_the_true_field_of_a_lane_is_what_the_error_is_taken_against() -> None:
    truth = random_recordings(ENV, 4).truth
    assert truth is not None
    lanes = FieldState(Field.named(ENV), [(0, 0)])
    assert np.array_equal(truth.field, lanes.velocity(truth.points))
