"""The compiled tasks are Gymnasium's: the same dynamics, rewards, endings and observations."""

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import Purpose, key
from tenfold.envs.control import ControlEnvironments, reset_all, step_once
from tenfold.envs.control_dynamics import KINDS, advance
from tenfold.envs.making import make_env, make_environments
from tenfold.envs.scalar import ScalarEnvironments

NAMES = list(KINDS)
PARTS = (
    "obs",
    "final_obs",
    "reward",
    "terminated",
    "truncated",
    "states",
    "length",
    "episode",
    "ret",
)
# Acrobot is chaotic: a difference in a number's last bit, which libraries may have in cos, grows up
# to 10¹¹ times in an episode
# steps after which Gymnasium's state is set to ours again; otherwise once an episode
TOGETHER = {"tenfold/Acrobot-v1": 20}


def draw_actions(
    name: str, rng: np.random.Generator, states: np.ndarray, chance: float
) -> np.ndarray:
    """Good actions, replaced with a probability by any: good ones balance the pole, swing up and
    reach the goal."""
    lanes = len(states)
    if name == "tenfold/Pendulum-v1":
        return rng.uniform(-3, 3, lanes)
    good = {
        "tenfold/CartPole-v1": lambda: states @ [0.1, 0.3, 3, 1] > 0,
        "tenfold/CartPoleNoVel-v1": lambda: states @ [0.1, 0.3, 3, 1] > 0,
        "tenfold/Acrobot-v1": lambda: 2 * (states[:, 3] > 0),
        "tenfold/MountainCar-v0": lambda: 2 * (states[:, 1] >= 0),
    }[name]()
    return np.where(rng.random(lanes) < chance, rng.integers(KINDS[name].actions, size=lanes), good)


def assert_close(found: Any, expected: Any) -> None:
    """Within 1e-6, relative to numbers above 1: float32 observations cannot be closer (Acrobot's
    speeds reach 28)."""
    assert (abs(found - expected) <= 1e-6 * (1 + abs(expected))).all(), (found, expected)


def play_both(name: str, num_envs: int, seed: int, steps: int, chance: float) -> Counter[str]:
    """Steps ours and Gymnasium's with the same actions, and compares everything. Returns how
    episodes ended."""
    kind, rng, ends = KINDS[name], np.random.default_rng(seed % 2**32), Counter[str]()
    envs = ControlEnvironments(name, num_envs, seed)
    others = [gym.make(kind.original, disable_env_checker=True) for _ in range(num_envs)]
    returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)

    def put(i: int) -> None:
        others[i].unwrapped.state = envs.states[i, : kind.used].copy()  # type: ignore[attr-defined]

    for i, other in enumerate(others):
        other.reset(seed=0)
        put(i)
    for _ in range(steps):
        actions = draw_actions(name, rng, envs.states, chance)
        envs.step(actions)
        finished = {e.env: e for e in envs.finished}
        for i, other in enumerate(others):
            seen, reward, terminated, truncated, _ = other.step(
                int(actions[i]) if kind.actions else actions[i : i + 1]
            )
            returns[i] += float(reward)
            lengths[i] += 1
            assert (envs.terminated[i], envs.truncated[i]) == (terminated, truncated)
            assert_close(envs.reward[i], np.float64(reward))
            shown = envs.final_obs[i] if terminated or truncated else envs.obs[i]
            assert_close(shown, kind.select(seen))
            assert (i in finished) == (terminated or truncated)
            if terminated or truncated:
                ends["terminated"] += terminated
                ends["truncated"] += truncated
                assert finished[i].length == lengths[i]
                assert_close(finished[i].ret, returns[i])
                returns[i] = lengths[i] = 0
                other.reset(seed=0)
            if lengths[i] % TOGETHER.get(name, 10**9) == 0:
                put(i)
            assert (envs.length[i], envs.ret[i]) == (lengths[i], pytest.approx(returns[i]))
    return ends


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 4), st.integers(0, 2**63 - 1), st.floats(0, 1))
def test_every_step_equals_gymnasiums(name: str, num_envs: int, seed: int, chance: float) -> None:
    play_both(name, num_envs, seed, 250, chance)


@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes_equal_gymnasiums_whether_they_terminate_or_run_out_of_time(
    name: str,
) -> None:
    ends = sum(
        (
            play_both(name, 2, seed, 1100, chance)
            for seed, chance in ((0, 0.05), (1, 0.3), (2, 1.0))
        ),
        Counter[str](),
    )
    assert ends["truncated"] >= 2
    assert (ends["terminated"] >= 2) == (name != "tenfold/Pendulum-v1")


@pytest.mark.parametrize(
    ("name", "state", "action", "after", "reward", "terminated"),
    [
        # upright and at rest: a = 10/1.1, θ̈ = −a / (½·(4/3 − 1/11)) = −600/41, ẍ = a + 0.05·600/41
        # / 1.1 = 400/41
        ("tenfold/CartPole-v1", [0, 0, 0, 0], 1, [0, 8 / 41, 0, -12 / 41], 1, False),
        ("tenfold/CartPole-v1", [2.39, 1, 0, 0], 0, [2.41, 1 - 8 / 41, 0, 12 / 41], 1, True),
        ("tenfold/Acrobot-v1", [0, 0, 0, 0], 1, [0, 0, 0, 0], -1, False),  # hangs at rest
        (
            "tenfold/Acrobot-v1",
            [np.pi, 0, 0, 0],
            1,
            [np.pi, 0, 0, 0],
            0,
            True,
        ),  # stands on its head
        # no slope at the bottom
        (
            "tenfold/MountainCar-v0",
            [-np.pi / 6, 0, 0, 0],
            2,
            [-np.pi / 6 + 0.001, 0.001, 0, 0],
            -1,
            False,
        ),
        # into the wall
        ("tenfold/MountainCar-v0", [-1.19, -0.07, 0, 0], 1, [-1.2, 0, 0, 0], -1, False),
        (
            "tenfold/MountainCar-v0",
            [np.pi / 6 - 0.05, 0.069, 0, 0],
            2,
            [np.pi / 6 - 0.05 + 0.07 - 0.0025 * np.sin(0.15), 0.07 - 0.0025 * np.sin(0.15), 0, 0],
            -1,
            True,
        ),
        # torque 2
        (
            "tenfold/Pendulum-v1",
            [np.pi / 2, 0, 0, 0],
            5,
            [np.pi / 2 + 0.0525, 1.05, 0, 0],
            -(np.pi**2) / 4 - 0.004,
            False,
        ),
        (
            "tenfold/Pendulum-v1",
            [np.pi / 2 + 4 * np.pi, 8, 0, 0],
            0,
            [4.5 * np.pi + 0.4, 8, 0, 0],
            -(np.pi**2) / 4 - 6.4,
            False,
        ),
    ],
)
def test_a_step_worked_out_by_hand(name, state, action, after, reward, terminated) -> None:
    row = np.array(state, float)
    assert advance(KINDS[name].number, row, action) == (
        pytest.approx(reward, abs=1e-12),
        terminated,
    )
    assert row == pytest.approx(after, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_spaces_limits_and_registration_are_gymnasiums(name: str) -> None:
    ours, original = gym.make(name), gym.make(KINDS[name].original)
    seen: Any = original.observation_space
    low, high = (KINDS[name].select(bound) for bound in (seen.low, seen.high))
    assert ours.observation_space == gym.spaces.Box(low, high, dtype=seen.dtype)
    assert ours.action_space == original.action_space
    assert ours.spec.max_episode_steps == KINDS[name].limit == original.spec.max_episode_steps  # type: ignore[union-attr]
    assert ours.metadata["render_fps"] == original.metadata["render_fps"]


def test_velocities_are_hidden_and_nothing_else_is_different() -> None:
    """The same seed and actions: the cart's position and the pole's angle, numbers 0 and 2."""
    whole, part = (make_env(f"tenfold/{n}-v1") for n in ("CartPole", "CartPoleNoVel"))
    first, other = whole.reset(seed=3)[0], part.reset(seed=3)[0]
    for t in range(12):
        assert other.tolist() == [first[0], first[2]] and first[1] != 0
        (first, *rest, _), (other, *others, _) = whole.step(t % 2), part.step(t % 2)
        assert rest == others


def test_an_episode_that_terminates_at_its_time_limit_reports_both() -> None:
    fallen, other = np.array([[2.39, 3.0, 0, 0]]), gym.make("CartPole-v1", max_episode_steps=500)
    other.reset(seed=0)
    other.unwrapped.state = fallen[0].copy()  # type: ignore[attr-defined]
    other._elapsed_steps = 499  # type: ignore[attr-defined]
    assert other.step(1)[2:4] == (True, True)
    _, _, _, terminated, truncated, _, length, episode = step_once(
        KINDS["tenfold/CartPole-v1"],
        fallen,
        np.array([499]),
        np.array([4]),
        np.array([key(0, Purpose.EPISODE)]),
        np.array([1]),
    )
    assert (terminated.tolist(), truncated.tolist(), length.tolist(), episode.tolist()) == (
        [True],
        [True],
        [0],
        [5],
    )


def starts(name: str, num_envs: int, seed: int, episodes: int) -> np.ndarray:
    """First states [episodes, B, 4], reached by playing: every episode is ended by its time
    limit."""
    envs = ControlEnvironments(name, num_envs, seed)
    found = [envs.states.copy()]
    for _ in range(episodes - 1):
        envs.length[:] = envs.kind.limit - 1
        envs.step(np.ones(num_envs, np.int64))
        assert envs.truncated.all() and len(envs.finished) == num_envs
        found.append(envs.states.copy())
    return np.array(found)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("tenfold/CartPole-v1", [-0.05] * 4, [0.05] * 4),
        ("tenfold/Acrobot-v1", [-0.1] * 4, [0.1] * 4),
        ("tenfold/MountainCar-v0", [-0.6, 0, 0, 0], [-0.4, 0, 0, 0]),
        ("tenfold/Pendulum-v1", [-np.pi, -1, 0, 0], [np.pi, 1, 0, 0]),
    ],
)
def test_episodes_start_anywhere_in_gymnasiums_range_by_seed_lane_and_number(
    name: str, low: list, high: list
) -> None:
    found = starts(name, 8, 7, 100)
    assert (found >= low).all() and (found <= high).all()
    width = np.subtract(high, low)
    assert (np.abs(found.min((0, 1)) - low) <= width / 50).all() and (
        np.abs(found.max((0, 1)) - high) <= width / 50
    ).all()
    assert np.abs(found.mean((0, 1)) - np.add(low, high) / 2).max() <= width.max() / 20
    drawn = ((found - low) / np.where(width, width, 1))[..., width > 0].round(12)
    assert len(np.unique(drawn)) == drawn.size  # no two alike, in one state or in several
    assert np.array_equal(found, starts(name, 8, 7, 100))
    # lane i does not depend on how many there are
    assert np.array_equal(found[:, :3], starts(name, 3, 7, 100))
    assert not np.isin(found[..., 0], starts(name, 8, 8, 100)[..., 0]).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_plays_what_it_plays_alone(name: str) -> None:
    rng = np.random.default_rng(3)
    five, alone = (
        ControlEnvironments(name, 5, 21),
        [ControlEnvironments(name, 1, 0) for _ in range(5)],
    )
    for i, one in enumerate(alone):
        one.streams[0] = five.streams[i]
        reset_all(one.kind.number, one.states, one.length, one.episode, one.streams, one.obs)
    for _ in range(520):
        actions = draw_actions(name, rng, five.states, 0.5)
        five.step(actions)
        for i, one in enumerate(alone):
            one.step(actions[i : i + 1])
            for part in PARTS:
                assert np.array_equal(getattr(five, part)[i], getattr(one, part)[0]), part
    assert five.episode.min() >= 1


@pytest.mark.parametrize("name", NAMES)
def test_restoring_goes_on_to_the_last_bit(name: str) -> None:
    rng = np.random.default_rng(1)
    first, second = ControlEnvironments(name, 3, 11), ControlEnvironments(name, 3, 11)
    for _ in range(333):
        first.step(draw_actions(name, rng, first.states, 0.5))
    state = first.state()
    kept = {k: v.copy() for k, v in state.items()}
    for _ in range(5):  # what was saved is not what is stepped
        first.step(draw_actions(name, rng, first.states, 0.5))
    assert all(np.array_equal(state[k], kept[k]) for k in kept)
    assert first.restore(kept) and second.restore(kept) and second.exact_resume
    for _ in range(520):
        actions = draw_actions(name, rng, first.states, 0.5)
        for envs in (first, second):
            envs.step(actions)
        ended = first.terminated | first.truncated
        for part in PARTS:
            rows = ended if part == "final_obs" else slice(None)
            assert np.array_equal(getattr(first, part)[rows], getattr(second, part)[rows]), part
        assert first.finished == second.finished
    spoiled = kept | {"obs": kept["obs"] + np.float32(0.01)}
    assert not second.restore(spoiled)


@pytest.mark.parametrize(
    ("name", "entry", "bad", "what"),
    [
        ("tenfold/CartPole-v1", 0, np.nan, "observation"),
        ("tenfold/CartPole-v1", 0, np.inf, "observation"),
        ("tenfold/CartPole-v1", 1, 1e300, "observation"),
        ("tenfold/Acrobot-v1", 0, np.nan, "observation"),
        ("tenfold/Acrobot-v1", 3, np.inf, "observation"),
        ("tenfold/MountainCar-v0", 1, np.nan, "observation"),
        ("tenfold/MountainCar-v0", 0, np.nan, "observation"),
        ("tenfold/Pendulum-v1", 0, np.nan, "reward"),
        ("tenfold/Pendulum-v1", 1, 1e200, "reward"),
    ],
)
def test_a_number_that_is_not_finite_is_an_error_that_names_its_place(
    name: str, entry: int, bad: float, what: str
) -> None:
    envs = ControlEnvironments(name, 3, 0)
    for _ in range(2):
        envs.step(np.ones(3, np.int64))
    envs.states[1, entry] = bad
    before = envs.states[2].copy()
    with pytest.raises(
        EnvironmentFault,
        match=rf"{name}, environment 1, episode 0, step 3: the {what} is not finite",
    ):
        envs.step(np.ones(3, np.int64))
    assert np.array_equal(envs.states[2], before)


def test_torques_come_in_a_column_and_are_numbers() -> None:
    column, row = (
        ControlEnvironments("tenfold/Pendulum-v1", 2, 0),
        ControlEnvironments("tenfold/Pendulum-v1", 2, 0),
    )
    column.step(np.array([[0.5], [-7.0]], np.float32))
    row.step(np.array([0.5, -2.0]))
    assert np.array_equal(column.states, row.states)
    with pytest.raises(EnvironmentFault, match="environment 1, episode 0, step 2"):
        row.step(np.array([0.0, np.nan]))


@pytest.mark.filterwarnings("ignore:.*(Box|render_mode)")
@pytest.mark.parametrize("name", NAMES)
def test_the_environment_passes_gymnasiums_checker(name: str) -> None:
    pytest.importorskip("pygame")
    check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_plays_the_episodes_of_the_first_lane(name: str) -> None:
    envs, env = ControlEnvironments(name, 1, 5), make_env(name)
    rng, episodes = np.random.default_rng(0), 0
    seen, _ = env.reset(seed=5)
    for _ in range(1100):
        assert np.array_equal(seen, envs.obs[0])
        action = draw_actions(name, rng, envs.states, 0.7)
        envs.step(action)
        seen, reward, terminated, truncated, _ = env.step(
            int(action[0]) if envs.kind.actions else action
        )
        assert (reward, terminated, truncated) == (
            envs.reward[0],
            envs.terminated[0],
            envs.truncated[0],
        )
        if terminated or truncated:
            assert np.array_equal(seen, envs.final_obs[0])
            seen, _ = env.reset()
            episodes += 1
    # unseeded ones differ
    assert episodes >= 2 == len(np.unique([make_env(name).reset()[0][0] for _ in range(2)]))


def test_an_action_that_is_none_is_refused() -> None:
    env = make_env("tenfold/MountainCar-v0")
    env.reset(seed=0)
    with pytest.raises(AssertionError, match="7 is not one of the 3 actions"):
        env.step(7)


def test_compiled_tasks_are_chosen_by_their_name() -> None:
    assert isinstance(make_environments("tenfold/CartPole-v1", 2, 0), ControlEnvironments)
    assert isinstance(make_environments("CartPole-v1", 2, 0), ScalarEnvironments)
    shorter = make_environments("tenfold/CartPole-v1(max_episode_steps=3)", 1, 0)
    for _ in range(3):
        shorter.step(np.array([1]))
    assert shorter.truncated.tolist() == [True]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_drawn_as_gymnasium_draws_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    ours, original = (make_env(n, render_mode="rgb_array") for n in (name, KINDS[name].original))
    ours.reset(seed=1)
    original.reset(seed=0)
    original.unwrapped.state = ours.unwrapped.row[: KINDS[name].used].copy()  # type: ignore[attr-defined]
    first = ours.render()
    for env in (ours, original):
        for _ in range(4):
            env.step(1 if KINDS[name].actions else np.float32([1.5]))
    assert np.array_equal(ours.render(), original.render())
    assert not np.array_equal(ours.render(), first)
    ours.close()
    original.close()
