"""The agent that identifies a hidden system: resume, members, what trains when, and what the
evaluation says."""

import numpy as np
import pytest
import torch

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.config import Explorer, LatentModel, Planner
from tenfold.domains.dynamics.coordinates import Alignment
from tenfold.domains.dynamics.learner import ExplorerLearner
from tenfold.domains.dynamics.model_metrics import evaluate_model
from tenfold.domains.dynamics.validation import Recordings, Truth, random_recordings

SMALL = {
    "window": 60,
    "length": 6,
    "batch_size": 3,
    "every": 3,
    "learning_starts": 12,
    "first_updates": 2,
}


def small(policy: str = "active", model: dict[str, object] | None = None, **more: object) -> Run:
    settings = {"hidden": (), "samples": 2, "grid": 4, "ensemble": 2} | (model or {})
    planner = Planner(
        policy=policy,
        samples=6,
        iterations=2,
        elites=3,
        horizon=3,
        goal=(0.5, 0.5) if policy == "goal" else (),
    )  # type: ignore[arg-type]
    env = "tenfold/LimitCycle-v0(size=5, limit=25)"
    return Run(
        **(
            {"env": env, "agent": Explorer(model=LatentModel(**settings), planner=planner, **SMALL)}
            | more
        )
    )  # type: ignore[arg-type]


def played(run: Run, rounds: int) -> ExplorerLearner:
    place = ExplorerLearner(run)
    for _ in range(rounds):
        place.round()
    return place


@pytest.mark.parametrize("policy", ["active", "disagreement", "rnd", "random", "zero", "goal"])
def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(policy: str) -> None:
    run = small(policy, members=2)
    whole, stopped = played(run, 40), played(run, 23)
    resumed = ExplorerLearner(run)
    saved = {
        part: {
            name: value.clone() if isinstance(value, torch.Tensor) else np.array(value)
            for name, value in values.items()
        }
        for part, values in stopped.state().items()
    }
    assert resumed.load_state(saved)
    for _ in range(17):
        resumed.round()
    for part, values in whole.state().items():
        for name, value in values.items():
            assert np.array_equal(
                np.asarray(value.detach() if isinstance(value, torch.Tensor) else value),
                np.asarray(
                    resumed.state()[part][name].detach()
                    if isinstance(value, torch.Tensor)
                    else resumed.state()[part][name]
                ),
            ), (part, name)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one, same, other = (played(small(seed=seed), 30) for seed in (4, 4, 5))
    assert torch.equal(one.agent.online.flat, same.agent.online.flat)
    assert not torch.equal(one.agent.online.flat, other.agent.online.flat)


# a gru of another width than whole vectors: see docs/dynamics.md
@pytest.mark.parametrize("model", [{}, {"encoder": "gru", "hidden": (6,)}, {"dynamics": "linear"}])
def test_a_member_gets_what_its_seed_gets_alone(model: dict[str, object]) -> None:
    together, alone = (
        played(small(model=model, members=3, seed=7), 30),
        played(small(model=model, seed=8), 30),
    )
    assert np.array_equal(together.agent.window.action[1], alone.agent.window.action[0])
    assert np.array_equal(together.envs.obs[1], alone.envs.obs[0])
    flats = together.agent.online.flat[1], alone.agent.online.flat[0]
    assert torch.allclose(*flats, atol=1e-5) if "encoder" in model else torch.equal(*flats)


def test_there_is_one_encoder_call_for_an_observation_and_training_when_it_is_due() -> None:
    place = played(small(), 30)
    # the first one and thirty more, and one again when the units became known
    assert place.agent.belief.encoded == 32
    # steps 12, 15, 18, 21, 24, 27, 30, and two more at the first
    assert place.agent.updates == 7 + 2 and [
        place.agent.due(step) for step in (11, 12, 13, 15)
    ] == [0, 1, 0, 1]
    assert [played(small(), 12).agent.updates, played(small(), 14).agent.updates] == [3, 3]


def test_policies_act_as_they_say() -> None:
    zero, random = played(small("zero"), 30), played(small("random"), 30)
    assert (
        np.abs(zero.agent.window.action[0, :12]).max() > 0
        and np.abs(zero.agent.window.action[0, 12:30]).max() == 0
    )
    # until learning starts
    assert np.array_equal(random.agent.window.action[0, :12], zero.agent.window.action[0, :12])
    drawn = np.array([random.agent.random_action(step)[0] for step in range(400)])
    assert (
        drawn.min() > -1
        and drawn.max() < 1
        and np.abs(drawn.mean(0)).max() < 0.1
        and drawn.std() == pytest.approx(0.577, abs=0.03)
    )
    active = played(small("active"), 40)
    assert (
        np.abs(active.agent.window.action).max() <= 1
        and active.agent.planning.information.known().max() > 1
    )


def test_mlp_dynamics_can_be_planned_with() -> None:
    place = played(small(model={"dynamics": "mlp", "hidden": (4,)}), 16)
    assert np.isfinite(place.agent.window.action).all() and place.agent.updates == 4


def exact(network: ExplorerAgent) -> None:
    """Makes drift and encoder of an agent with decoder identity those of dz/dt = (0.3 − y, 0.1 +
    x), seen as it is."""
    with torch.no_grad():
        network.online.dynamics.weight.copy_(torch.tensor([[0.0, -1.0, 0.3], [1.0, 0.0, 0.1]]))
        network.online.encoder.last.weight.zero_()
        network.online.encoder.last.weight[:, :2] = torch.eye(2)
        network.online.encoder.last.bias[:, :2] = 0


def linear_agent() -> ExplorerAgent:
    config = Explorer(
        model=LatentModel(hidden=(), decoder="identity", dynamics="linear"),
        planner=Planner(policy="random"),
        **SMALL,
    )
    agent = ExplorerAgent(config, 2, -np.ones(2), np.ones(2), 0.1)
    exact(agent)
    return agent


def test_the_field_can_be_asked_in_learned_and_in_other_coordinates() -> None:
    agent = linear_agent()
    z = np.array([[1.0, 2.0], [0.0, -1.0]])
    assert agent.field(z) == pytest.approx(np.array([[-1.7, 1.1], [1.3, 0.1]]), abs=1e-6)
    agent.maps = [Alignment(np.array([[2.0, 0.0], [0.0, -1.0]]), np.array([1.0, 0.0]), 1.0)]
    # x = (2 z_1 + 1, −z_2): at x = (3, −2) z is (1, 2) again, and velocities are scaled alike
    assert agent.field(np.array([[3.0, -2.0]]), true=True) == pytest.approx(
        np.array([[-3.4, -1.1]]), abs=1e-6
    )
    with pytest.raises(ValueError, match="do not fit: give"):
        agent.field(np.zeros((3, 5)))


def test_the_error_of_the_field_is_weighted_by_where_the_system_is() -> None:
    agent = linear_agent()
    points = np.array([[1.0, 0.0], [0.0, 1.0]])
    true = agent.field(points) + np.array([[0.0, 0.0], [3.0, 4.0]])
    y = np.random.default_rng(0).normal(size=(4, 15, 2)).astype(np.float32)
    truth = Truth(y.astype(np.float64), points, true, np.array([3.0, 1.0]))
    seen = Recordings(y, np.zeros((4, 15, 2), np.float32), truth)
    found = evaluate_model(agent, seen, arx=False)
    assert found.field_error is not None
    size = 3 * np.square(true[0]).sum() + np.square(true[1]).sum()
    assert found.field_error[0] == pytest.approx(
        np.sqrt(25 / size)
    ) and found.score == pytest.approx(1 - 25 / size)


def test_recordings_are_the_same_for_all_seeds_and_others_for_the_last_judgement() -> None:
    from tenfold.core.random import Purpose

    name = "tenfold/VanDerPol-v0(size=4)"
    one, same, other = (
        random_recordings(name, 6),
        random_recordings(name, 6),
        random_recordings(name, 6, Purpose.EVALUATE, 0),
    )
    assert np.array_equal(one.y, same.y) and not np.array_equal(one.y, other.y)
    assert one.truth and one.truth.weight.sum() == one.truth.latent[..., 0].size
    # pushes that last
    assert np.array_equal(one.a[:, 0], one.a[:, 9]) and not np.array_equal(
        one.a[:, 9], one.a[:, 10]
    )


@pytest.mark.slow
def test_training_brings_the_field_nearer() -> None:
    settings = {
        "lr": 1e-2,
        "window": 1000,
        "learning_starts": 200,
        "first_updates": 400,
        "every": 10,
    }
    run = Run(
        env="tenfold/LimitCycle-v0(observe=identity, scale=0.02)",
        members=2,
        agent=Explorer(
            model=LatentModel(hidden=(), samples=1, decoder="identity", grid=8),
            planner=Planner(policy="random"),
            **settings,
        ),
    )  # type: ignore[arg-type]
    place, recordings = ExplorerLearner(run), random_recordings(run.env, 32)
    before = evaluate_model(place.agent, recordings).field_error
    for _ in range(300):
        place.round()
    after = evaluate_model(place.agent, recordings)
    assert before is not None and after.field_error is not None
    assert before.min() > 0.8 and after.field_error.max() < 0.5 and after.r2[:, 0].min() > 0.9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"planner": {"elites": 9, "samples": 4}}, "elites = 9 is more than samples = 4"),
        ({"planner": {"horizon": 0}}, "horizon = 0 is out of range"),
        (
            {"model": {"decoder": "identity"}},
            "identity needs observations of latent = 2 numbers, and they have 5",
        ),
        ({"planner": {"policy": "goal"}}, r"planner\.goal"),
        (
            {"planner": {"policy": "disagreement"}, "model": {"ensemble": 1}},
            "disagreement needs models that can disagree",
        ),
        (
            {"length": 30, "window": 40},
            r"agent\.length = 30 does not fit: episodes of .* have 25 steps",
        ),
        ({"length": 20, "window": 10}, r"agent\.length = 20 is more than agent\.window = 10"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_a_sentence(
    change: dict[str, object], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        agent = Explorer.of(change)
        ExplorerLearner(Run(env="tenfold/LimitCycle-v0(size=5, limit=25)", agent=agent))


def test_an_explorer_is_refused_where_others_settings_are_given_and_the_other_way_round() -> None:
    for change, words in (
        ({"num_envs": 4}, "num_envs = 4 is not for agent explorer"),
        ({"engine": "fused"}, "engine = fused cannot"),
        ({"env": "CartPole-v1"}, "does not fit agent explorer"),
    ):
        with pytest.raises(ConfigError, match=words):
            ExplorerLearner(small(**change))
    with pytest.raises(
        ConfigError,
        match="members = 3 is for algorithms that train several seeds as one stack, which dqn",
    ):
        Run(members=3)


def test_any_environment_of_real_numbers_can_be_explored() -> None:
    place = played(small(env="tenfold/Pendulum-v1", model={"latent": 3}), 20)
    assert place.agent.dt == 1.0 and place.agent.updates > 0
    found = evaluate_model(place.agent, random_recordings("tenfold/Pendulum-v1", 3))
    assert found.field_error is None and found.r2.shape == (1, 10)
