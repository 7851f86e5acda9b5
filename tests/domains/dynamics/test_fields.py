"""Hidden systems: their equations by hand, their noise, their observations, and what is refused."""

import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics import IDS, SYSTEMS
from tenfold.domains.dynamics.field_rules import CONSTANTS, random_vectors
from tenfold.domains.dynamics.fields import CONSTANTS_OF, Field, FieldEnvironments, FieldState
from tenfold.envs.making import make_env, make_environments


def field_at(name: str, x: float, y: float, **constants: float) -> list[float]:
    return FieldState(Field(name, **constants), [(0, 0)]).velocity(np.array([[x, y]]))[0].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("limit-cycle", 2.0, 1.0, (2 * (1 - 5) - 1, 1 * (1 - 5) + 2)),
        ("double-limit-cycle", 3.0, 4.0, (3 * (1 - 5) - 4 * (2 - 5), 4 * (1 - 5) + 3 * (2 - 5))),
        ("van-der-pol", 2.0, 3.0, (3.0, (1 - 4) * 3 - 2)),
        ("duffing", 2.0, 1.0, (1.0, 0.1 * 1 - 2 * (-0.1 + 0.1 * 4))),
        # far right: the cycle around (1, 0), turning the other way
        ("snowman", 3.0, 1.0, (2 * (1 - 5) + 1, 1 * (1 - 5) - 2)),
        ("snowman", -3.0, 1.0, (-2 * (1 - 5) - 1, 1 * (1 - 5) - 2)),
        # between the centres: half of (1(1 - 2) - 1, (1 - 2) + 1) and half of (-1(1 - 2) + 1, (1 -
        # 2) + 1)
        ("snowman", 0.0, 1.0, (0.0, 0.0)),
    ],
)
def test_fields_follow_their_equations(
    name: str, x: float, y: float, expected: tuple[float, float]
) -> None:
    assert field_at(name, x, y) == pytest.approx(expected, abs=1e-9)


def test_the_multi_attractor_lies_between_its_knots_and_pulls_inward() -> None:
    table = random_vectors(0)
    assert np.linalg.norm(table, axis=-1) == pytest.approx(np.full((40, 40), 0.25))
    step = 4 / 39
    x, y = -2 + 10.5 * step, -2 + 20 * step
    expected = 0.5 * (table[10, 20] + table[11, 20]) - 0.1 * np.array([x, y]) * math.hypot(x, y)
    assert field_at("multi-attractor", x, y) == pytest.approx(expected.tolist())
    # the edge holds
    assert field_at("multi-attractor", 30.0, 0.0)[0] == pytest.approx(
        table[39, 19:21, 0].mean() - 0.1 * 900
    )


def test_a_cart_at_rest_under_a_hanging_pole_stays_and_a_push_accelerates_it() -> None:
    lanes = FieldState(Field("ring-cart-pole", process_noise=None), [(0, 0)])
    assert lanes.velocity(np.array([[0.3, 0.0, np.pi, 0.0]]))[0] == pytest.approx(
        [0, 0, 0, 0], abs=1e-9
    )
    force = 10 / 1.1
    bend = force / (0.5 * (4 / 3 - 0.1 / 1.1))  # hanging: the cosine is -1
    pushed = lanes.velocity(np.array([[0.0, 0.0, np.pi, 0.0]]), np.array([[1.0]]))[0]
    assert pushed == pytest.approx([0, force + 0.1 * 0.5 * bend / 1.1, 0, bend], abs=1e-9)


def test_a_step_adds_drift_action_and_noise_of_its_own_address() -> None:
    name = "tenfold/VanDerPol-v0(process_noise=0.04, observe=identity, noise=none, start=1)"
    envs = FieldEnvironments(name, 2, 5)
    before = envs.latent.copy()
    envs.step(np.array([[0.5, -3.0], [0.0, 0.25]]))  # -3 is cut at the bound
    for i, action in enumerate(([0.5, -1.0], [0.0, 0.25])):
        noise = fill_normal(key(5, Purpose.PROCESS, i), 0, np.empty(2))
        x, y = before[i]
        drift = np.array([y, (1 - x * x) * y - x])
        assert envs.latent[i] == pytest.approx(
            before[i] + (drift + action) * 0.1 + math.sqrt(0.04 * 0.1) * noise
        )
    assert envs.obs == pytest.approx(envs.latent.astype(np.float32))


def test_a_longer_step_is_several_inner_ones_with_the_same_action() -> None:
    long, short = (
        FieldEnvironments(f"tenfold/Duffing-v0(every={every}, noise=none)", 1, 3)
        for every in (4, 1)
    )
    assert Field.named("tenfold/Duffing-v0(every=4)").step_time == pytest.approx(0.4)
    action = np.array([[0.3, -0.2]])
    for _ in range(3):
        long.step(action)
        for _ in range(4):
            short.step(action)
        assert long.latent == pytest.approx(short.latent, abs=0, rel=0)


def test_observations_are_their_mean_and_noise() -> None:
    z = np.array([[0.4, -0.7]])
    for observe in ("linear", "loglinear", "mlp"):
        lanes = FieldState(Field(observe=observe, noise="none", size=7, rate=2.0), [(0, 0)])
        lanes.z[:] = z
        seen = np.zeros((1, 7), np.float32)
        lanes.observe(seen)
        first, *rest = lanes.weights
        expected = 2 * np.exp(z @ first.T) if observe == "loglinear" else z @ first.T + rest[0]
        expected = np.tanh(expected) @ rest[1].T + rest[2] if observe == "mlp" else expected
        assert seen == pytest.approx(expected, rel=1e-6)
    counting = FieldState(
        Field(observe="loglinear", noise="poisson", size=3, rate=4.0),
        [(seed, 0) for seed in range(4000)],
    )
    counts = np.zeros((4000, 3), np.float32)
    counting.z[:] = 0.0
    counting.observe(counts)
    assert np.array_equal(counts, counts.round()) and counts.mean() == pytest.approx(4, abs=0.1)
    assert counts.var() == pytest.approx(4, abs=0.25)
    noisy = FieldState(
        Field(noise="gaussian", scale=0.5, size=3), [(seed, 0) for seed in range(4000)]
    )
    noisy.observe(counts)
    assert (counts - noisy.weights[1]).std() == pytest.approx(0.5, abs=0.02)


@pytest.mark.filterwarnings("ignore:.*infinity")
@pytest.mark.parametrize("name", sorted(IDS))
def test_every_system_is_a_gymnasium_environment(name: str) -> None:
    check_env(gym.make(name).unwrapped, skip_render_check=True)


def test_one_environment_plays_what_a_lane_plays_and_shows_the_hidden_state() -> None:
    name = "tenfold/Snowman-v0(limit=5, noise=poisson, observe=loglinear)"
    env, envs = make_env(name), make_environments(name, 1, 9, True)
    assert isinstance(envs, FieldEnvironments)
    obs, info = env.reset(seed=9)
    for step in range(12):
        assert np.array_equal(obs, envs.obs[0]) and np.array_equal(info["latent"], envs.latent[0])
        action = np.array([0.1 * step, -0.5], np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        envs.step(action[None])
        assert (reward, terminated, truncated) == (
            0.0,
            False,
            (step + 1) % 5 == 0,
        ) and envs.truncated[0] == truncated
        if truncated:
            assert np.array_equal(obs, envs.final_obs[0]) and envs.finished[0].length == 5
            obs, info = env.reset()


def test_lanes_given_seeds_play_what_each_seed_plays_alone_and_can_be_restored() -> None:
    name = "tenfold/LimitCycle-v0(limit=7)"
    together, alone = FieldEnvironments(name, 3, 0, seeds=(4, 5, 6)), FieldEnvironments(name, 1, 5)
    for _ in range(10):
        together.step(np.full((3, 2), 0.2))
        alone.step(np.full((1, 2), 0.2))
        assert np.array_equal(together.obs[1], alone.obs[0])
    again = FieldEnvironments(name, 3, 0, seeds=(4, 5, 6))
    assert again.restore(together.state())
    for envs in (together, again):
        envs.step(np.zeros((3, 2)))
    assert np.array_equal(together.obs, again.obs) and together.length == again.length == [4, 4, 4]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "tenfold/Field-v0(field=limit-cicle)",
            "limit-cicle is not one of .*did you mean limit-cycle",
        ),
        ("tenfold/LimitCycle-v0(scale=0)", "scale = 0 is out of range: it must be above 0"),
        ("tenfold/LimitCycle-v0(process_noise=-0.1)", "process_noise = -0.1 is out of range"),
        (
            "tenfold/LimitCycle-v0(observe=identity, size=7)",
            "size = 7 does not fit: observe = identity shows the 2 numbers",
        ),
        ("tenfold/LimitCycle-v0(noise=poisson)", "poisson needs means above 0"),
        ("tenfold/LimitCycle-v0(sise=7)", "sise = 7 is not a setting: the nearest is size"),
        ("tenfold/LimitCycle-v0(dt=fast)", "dt = fast is not a number"),
        ("tenfold/LimitCycle-v0(limit=2.5)", "limit = 2.5 is not a whole number"),
        ("tenfold/LimitCycle-v0(scale=none)", "scale = none is not a number"),
        ("tenfold/LimitCycle-v0(dt=none)", "dt = none is not a number"),
        ("tenfold/LimitCycle-v0(edge=none)", "edge = none is not a number"),
        ("tenfold/LimitCycle-v0(world=none)", "world = none is not a whole number"),
        ("tenfold/LimitCycle-v0(world=-1)", "world = -1 is out of range: it must be at least 0"),
        ("tenfold/LimitCycle-v0(every=true)", "every = true is not a whole number"),
        ("tenfold/LimitCycle-v0(alpha=abc)", "alpha = abc is not a number"),
        ("tenfold/VanDerPol-v0(w=abc)", "w = abc is not a number"),
        (
            "tenfold/LimitCycle-v0(mu=2)",
            "mu = 2 is no constant of limit-cycle, which has alpha, w, d",
        ),
        (
            "tenfold/RingCartPole-v0(alpha=2)",
            "alpha = 2 is no constant of ring-cart-pole, which has none",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, words: str) -> None:
    for make in (make_env, lambda n: make_environments(n, 1, 0, True)):
        with pytest.raises(UserError, match=words):
            make(name)


def test_an_action_of_another_size_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="takes 2 numbers as an action, not 3"):
        FieldEnvironments("tenfold/LimitCycle-v0", 2, 0).step(np.zeros((2, 3)))
    env = make_env("tenfold/RingCartPole-v0")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="takes 1 numbers as an action, not 2"):
        env.step(np.zeros(2))


def test_an_action_that_is_not_finite_is_refused_before_it_spoils_the_state() -> None:
    env = make_env("tenfold/LimitCycle-v0")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="action that is not finite"):
        env.step(np.array([np.nan, 0.0]))
    assert np.isfinite(env.step(np.zeros(2))[4]["latent"]).all()
    with pytest.raises(EnvironmentFault, match="was given an action that is not finite"):
        FieldEnvironments("tenfold/LimitCycle-v0", 1, 0).step(np.full((1, 2), np.nan))


def test_each_field_has_the_constants_that_move_it() -> None:
    """A constant that a field is said to have changes its velocity somewhere; all others do not."""
    z = np.array([[0.7, -0.4], [1.3, 0.9]])
    for field, own in CONSTANTS_OF.items():
        lanes = FieldState(Field(field), [(0, 0)])
        states = np.concatenate([z, z], 1) if field == "ring-cart-pole" else z
        for place, name in enumerate(CONSTANTS):
            before = lanes.velocity(states)
            lanes.constants[place] += 0.5
            assert (np.abs(lanes.velocity(states) - before).max() > 1e-6) == (name in own), (
                field,
                name,
            )


def test_an_episode_is_over_where_a_state_passes_the_edge() -> None:
    """Every step is one of the field: no state is held back at a wall, and the last observation is
    of beyond the edge."""
    name = "tenfold/Duffing-v0(edge=2, limit=400, process_noise=none, observe=identity, noise=none)"
    envs, env = (
        FieldEnvironments(name, 1, 0),
        gym.make(
            "tenfold/Duffing-v0",
            edge=2,
            limit=400,
            process_noise=None,
            observe="identity",
            noise="none",
        ),
    )
    obs, _ = env.reset(seed=0)
    ended = 0
    for _ in range(100):
        expected = obs + 0.1 * np.array(field_at("duffing", *obs.tolist())) + 0.1
        obs, _, terminated, truncated, _ = env.step(np.ones(2))
        np.testing.assert_allclose(obs, expected, atol=1e-5)
        envs.step(np.ones((1, 2)))
        assert not terminated and truncated == envs.truncated[0] == (np.abs(obs).max() > 2)
        np.testing.assert_allclose(envs.final_obs[0] if truncated else envs.obs[0], obs, atol=1e-6)
        if truncated:
            ended += 1
            obs, _ = env.reset()
            np.testing.assert_allclose(envs.obs[0], obs, atol=1e-6)
            assert np.abs(obs).max() <= 0.5
    assert ended > 2
    with pytest.raises(UserError, match="edge = 0 is out of range"):
        Field("duffing", edge=0)
    with pytest.raises(
        UserError, match=r"start = 0\.5 does not fit: episodes end beyond edge = 0\.3"
    ):
        Field("duffing", edge=0.3)


def test_every_field_has_an_id() -> None:
    assert sorted(IDS.values()) == sorted(SYSTEMS) and "tenfold/DoubleLimitCycle-v0" in IDS
