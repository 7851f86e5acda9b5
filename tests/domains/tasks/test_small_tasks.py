"""Workers and tasks: masks, the joint reward, and numbers that are functions of their address."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tenfold.envs  # noqa: F401
from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import uniform
from tenfold.domains.tasks import small_tasks
from tenfold.domains.tasks.small_tasks import (
    DRAWS,
    OPTIONS,
    STEPS,
    TASKS,
    WORKERS,
    AssignEnvironments,
)
from tenfold.envs.making import make_env
from tenfold.envs.scalar import ScalarEnvironments

NAME = "tenfold/Assign-v0"
PARTS = ("obs", "mask", "reward", "terminated", "truncated", "length", "episode", "ret")


def random_actions(rng: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    options = mask.reshape(*mask.shape[:-1], WORKERS, TASKS)
    return np.argmax(rng.random(options.shape) * options, -1)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], 0.5),  # two to a task: nobody pays
        ([0, 0, 0, 1, 2, 2, 3, 3, 4, 4], 0.5 - 0.3),  # three in task 0 pay one each
        ([7] * 10, 0.5 - 1),
        ([0, 0, 0, 5, 5, 5, 5, 1, 2, 3], 0.5 - 0.7),
    ],
)
def test_everybody_in_a_crowded_task_pays(action: list[int], expected: float) -> None:
    assert small_tasks.earn(np.full(OPTIONS, 0.5, np.float32), np.array(action)) == pytest.approx(
        expected, abs=1e-12
    )


def test_each_worker_earns_its_own_value() -> None:
    obs = np.arange(OPTIONS, dtype=np.float32)  # worker w has 8w + t of task t
    action = np.array([3, 7, 0, 1, 2, 4, 5, 6, 3, 7])
    assert small_tasks.earn(obs, action) == pytest.approx(np.mean(8 * np.arange(10) + action))


def test_masks_leave_everybody_a_task_and_hide_the_rest() -> None:
    envs, rng = AssignEnvironments(NAME, 64, 3), np.random.default_rng(0)
    legal, shown = [], []
    for _ in range(200):
        options = envs.mask.reshape(64, WORKERS, TASKS)
        assert options.any(-1).all() and np.array_equal(envs.mask, envs.obs > 0)
        legal.append(options.copy())
        shown.append(envs.obs[envs.mask])
        envs.step(random_actions(rng, envs.mask))
    counts = np.array(legal).sum(-1)
    assert (
        np.mean(legal) == pytest.approx(0.6, abs=0.005)
        and (counts == 1).any()
        and (counts == 8).any()
    )
    values = np.concatenate(shown)
    assert (
        values.min() == pytest.approx(0.1, abs=1e-3)
        and values.max() == pytest.approx(1, abs=1e-3)
        and values.mean() == pytest.approx(0.55, abs=0.005)
    )


def test_a_worker_without_a_legal_task_gets_one_at_random() -> None:
    stream, tasks = np.uint64(1), []
    seen, mask = np.zeros(OPTIONS, np.float32), np.zeros(OPTIONS, np.bool_)
    for episode in range(3000):  # 0.4⁸ · 10 workers · 3000 steps: about 20 cases
        legality = uniform(
            stream, episode * (STEPS + 1) * DRAWS + OPTIONS + np.arange(OPTIONS)
        ).reshape(WORKERS, TASKS)
        for w in np.flatnonzero((legality >= 0.6).all(1)):
            small_tasks.show(stream, episode, 0, seen, mask)
            options = np.flatnonzero(mask.reshape(WORKERS, TASKS)[w])
            obs, expected = small_tasks.show_reference(stream, episode, 0)
            assert (
                len(options) == 1 and np.array_equal(mask, expected) and np.array_equal(seen, obs)
            )
            tasks.append(int(options[0]))
    assert len(tasks) > 5 and len(set(tasks)) > 2


def test_an_episode_is_cut_after_sixteen_steps_and_keeps_its_last_observation() -> None:
    envs, rng, total = AssignEnvironments(NAME, 2, 0), np.random.default_rng(0), np.zeros(2)
    for step in range(STEPS):
        assert not envs.finished and not envs.truncated.any() and envs.length.tolist() == [step] * 2
        envs.step(random_actions(rng, envs.mask))
        total += envs.reward
    assert envs.truncated.all() and not envs.terminated.any() and envs.episode.tolist() == [1, 1]
    assert [(e.env, e.length) for e in envs.finished] == [(0, STEPS), (1, STEPS)]
    assert [e.ret for e in envs.finished] == pytest.approx(total)
    for i in range(2):
        assert np.array_equal(
            envs.final_obs[i], small_tasks.show_reference(envs.streams[i], 0, STEPS)[0]
        )
        obs, mask = small_tasks.show_reference(envs.streams[i], 1, 0)
        assert np.array_equal(envs.obs[i], obs) and np.array_equal(envs.mask[i], mask)


def test_what_a_lane_sees_is_a_function_of_seed_lane_episode_and_step() -> None:
    def seen(num_envs: int, seed: int, choices: int) -> np.ndarray:
        envs, rng = AssignEnvironments(NAME, num_envs, seed), np.random.default_rng(choices)
        found = [envs.obs.copy()]
        for _ in range(40):
            envs.step(random_actions(rng, envs.mask))
            found.append(envs.obs.copy())
        return np.array(found)

    five = seen(5, 7, 0)
    # neither the number of lanes nor what was chosen matters
    assert np.array_equal(five[:, :2], seen(2, 7, 1))
    assert len(np.unique(five.reshape(-1, OPTIONS), axis=0)) == 41 * 5
    # of 10,000 in float32 a few may meet by chance
    assert np.isin(five[five > 0], seen(5, 8, 0)).mean() < 0.01


def test_the_single_environment_plays_the_episodes_of_the_first_lane() -> None:
    envs, env, rng = AssignEnvironments(NAME, 1, 5), gym.make(NAME), np.random.default_rng(0)
    assert env.action_space == gym.spaces.MultiDiscrete([8] * 10)
    obs, info = env.reset(seed=5)
    for _ in range(3 * STEPS):
        assert np.array_equal(obs, envs.obs[0]) and np.array_equal(
            info["action_mask"], envs.mask[0]
        )
        action = random_actions(rng, envs.mask)
        envs.step(action)
        obs, reward, terminated, truncated, info = env.step(action[0])
        assert (reward, terminated, truncated) == (envs.reward[0], False, envs.truncated[0])
        if truncated:
            assert np.array_equal(obs, envs.final_obs[0])
            obs, info = env.reset()
    first, second = make_env(NAME).reset()[0], make_env(NAME).reset()[0]
    assert not np.array_equal(first, second)  # unseeded ones differ


def test_restoring_goes_on_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    first, second = AssignEnvironments(NAME, 3, 11), AssignEnvironments(NAME, 3, 11)
    for _ in range(25):
        first.step(random_actions(rng, first.mask))
    kept = first.state()
    first.step(random_actions(rng, first.mask))
    assert (
        first.restore(kept)
        and second.restore(kept)
        and kept["length"].tolist() == [9, 9, 9]
        and second.exact_resume
    )
    for _ in range(40):
        actions = random_actions(rng, first.mask)
        for envs in (first, second):
            envs.step(actions)
        assert (
            all(np.array_equal(getattr(first, part), getattr(second, part)) for part in PARTS)
            and first.finished == second.finished
        )
    assert not AssignEnvironments(NAME, 3, 12).restore(kept)  # another seed shows other numbers


def test_a_masked_action_names_the_worker_and_moves_nothing() -> None:
    envs, rng = AssignEnvironments(NAME, 2, 0), np.random.default_rng(0)
    good, before = random_actions(rng, envs.mask), envs.obs.copy()
    options = envs.mask[1].reshape(WORKERS, TASKS)[4]
    for bad in (int(np.flatnonzero(~options)[0]), -1, 8):
        actions = good.copy()
        actions[1, 4] = bad
        legal = ", ".join(map(str, np.flatnonzero(options)))
        with pytest.raises(
            EnvironmentFault,
            match=f"{NAME}, environment 1, episode 0, step 1: worker 4 may not choose task {bad}: its options are {legal}",
        ):
            envs.step(actions)
        assert np.array_equal(envs.obs, before) and not envs.length.any()
    with pytest.raises(
        EnvironmentFault, match=r"\(10,\) actions do not fit lanes and workers \(2, 10\)"
    ):
        envs.step(good[0])
    env = make_env(NAME)
    _, info = env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="worker 0 may not choose task 9"):
        env.step(np.full(WORKERS, 9))
    with pytest.raises(EnvironmentFault, match="one action for each of its 10 workers"):
        env.step(np.zeros(3, int))
    for _ in range(STEPS):
        info = env.step(random_actions(rng, info["action_mask"]))[-1]
    with pytest.raises(EnvironmentFault, match=r"call reset\(\)"):
        env.step(np.zeros(WORKERS, int))


def test_thinking_of_oneself_earns_less_than_choosing_together() -> None:
    from scipy.optimize import linear_sum_assignment

    def mean_return(choose) -> float:
        envs, total = AssignEnvironments(NAME, 8, 2), 0.0
        for _ in range(10 * STEPS):
            envs.step(choose(envs))
            total += envs.reward.mean()
        return total / 10

    def together(envs: AssignEnvironments) -> np.ndarray:
        """The best assignment to two places a task."""
        values = np.where(envs.mask, envs.obs, -9).reshape(-1, WORKERS, TASKS).repeat(2, axis=2)
        return np.array([linear_sum_assignment(-v)[1] // 2 for v in values])

    rng = np.random.default_rng(0)
    assert mean_return(lambda e: random_actions(rng, e.mask)) == pytest.approx(3.8, abs=0.3)
    assert mean_return(lambda e: e.obs.reshape(-1, WORKERS, TASKS).argmax(-1)) == pytest.approx(
        8.3, abs=0.3
    )
    assert mean_return(together) == pytest.approx(13.2, abs=0.2)


def test_it_plays_through_the_ordinary_adapter_too() -> None:
    envs = ScalarEnvironments(NAME, 1, 0)
    mask = envs.obs[0].reshape(WORKERS, TASKS) > 0
    envs.step(mask.argmax(1)[None])
    assert envs.reward[0] <= 1


# Catch


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_catch_passes_gymnasiums_checker() -> None:
    env = gym.make("tenfold/Catch-v0").unwrapped
    check_env(env, skip_render_check=False)
    assert env.observation_space.dtype == np.uint8


def play(policy, episodes: int = 300) -> float:
    env, total = gym.make("tenfold/Catch-v0"), 0.0
    rng = np.random.default_rng(0)
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        done, steps = False, 0
        while not done:
            obs, reward, done, _, _ = env.step(policy(obs, rng))
            total, steps = total + reward, steps + 1
        assert steps == 9
    return total / episodes


def follow(obs: np.ndarray, rng) -> int:
    ball, paddle = int(obs[:9].max(0).argmax()), int((obs[9] == 128).argmax())
    return 1 + int(np.sign(ball - paddle))


def test_following_the_ball_always_catches_it_and_chance_seldom_does() -> None:
    assert play(follow) == 1.0
    assert play(lambda obs, rng: int(rng.integers(3))) == pytest.approx(-0.77, abs=0.15)


def test_catch_draws_itself() -> None:
    env = gym.make("tenfold/Catch-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3)
