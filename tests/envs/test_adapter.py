"""The adapter shows what a scalar rollout of the same environments shows."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.errors import EnvironmentFault
from tenfold.envs.making import make_env
from tenfold.envs.scalar import ScalarEnvironments


class Counter(gym.Env):
    """Observation (episode's seed, step); ends by rule, so that every number can be foretold.
    Registered below."""

    def __init__(
        self,
        last: int = 5,
        limit: int = 0,
        bad_step: int = 0,
        bad: float = float("nan"),
        where: str = "reward",
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Discrete(3, start=2)
        self.last, self.limit, self.bad_step, self.bad, self.where = (
            last,
            limit,
            bad_step,
            bad,
            where,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.t = float(seed % 1000 if seed is not None else -1), 0
        return np.array([self.seed, 0.0]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        spoiled = self.bad if self.t == self.bad_step else 0.0
        obs = np.array([self.seed, self.t + (spoiled if self.where == "observation" else 0.0)])
        reward = float(action) + (spoiled if self.where == "reward" else 0.0)
        return obs, reward, self.t == self.last, bool(self.limit) and self.t == self.limit, {}


gym.register("tests/Counter-v0", Counter)

KINDS = [
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "tenfold/Catch-v0",
    "FrozenLake-v1",
    "Taxi-v3",
    "Blackjack-v1",
    "tests/Counter-v0(last=9, limit=4)",
    "LunarLander-v3",
]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 2**63 - 1), st.integers(0, 2**32))
def test_equals_a_scalar_rollout(name: str, num_envs: int, seed: int, choices: int) -> None:
    together = ScalarEnvironments(name, num_envs, seed)
    alone = [make_env(name) for _ in range(num_envs)]
    rng = np.random.default_rng(choices)
    encode = together.layout.encode
    for i, env in enumerate(alone):
        together.episode[i] = 0
        assert np.array_equal(encode(env.reset(seed=together.episode_seed(i))[0]), together.obs[i])
    returns, episodes = np.zeros(num_envs), np.zeros(num_envs, int)
    space = alone[0].action_space
    for _ in range(60):
        actions = rng.integers(space.n, size=num_envs) + space.start
        together.step(actions)
        ended = {e.env: e for e in together.finished}
        for i, env in enumerate(alone):
            obs, reward, terminated, truncated, _ = env.step(int(actions[i]))
            returns[i] += reward
            assert (together.reward[i], together.terminated[i], together.truncated[i]) == (
                reward,
                terminated,
                truncated,
            )
            if terminated or truncated:
                assert np.array_equal(together.final_obs[i], encode(obs))
                assert ended[i].ret == pytest.approx(returns[i])
                returns[i] = 0
                episodes[i] += 1
                obs, _ = env.reset(seed=together.episode_seed(i))
            else:
                assert i not in ended
            assert np.array_equal(together.obs[i], encode(obs))
    assert (together.episode == episodes).all()


def test_time_limit_and_termination_are_kept_apart() -> None:
    envs = ScalarEnvironments("tests/Counter-v0(last=3, limit=3)", 1, 0)
    for _ in range(3):
        envs.step(np.array([2]))
    assert envs.terminated[0] and envs.truncated[0]
    envs = ScalarEnvironments("tests/Counter-v0(last=9, limit=3)", 1, 0)
    for _ in range(3):
        envs.step(np.array([2]))
    assert not envs.terminated[0] and envs.truncated[0]
    # the true last one, and the next episode's first
    assert envs.final_obs[0, 1] == 3 and envs.obs[0, 1] == 0


def test_episodes_are_seeded_by_seed_environment_and_number() -> None:
    def seeds(seed: int, num_envs: int) -> np.ndarray:
        envs = ScalarEnvironments("tests/Counter-v0(last=1)", num_envs, seed)
        rows = [envs.obs[:, 0].copy()]
        for _ in range(4):
            envs.step(np.full(num_envs, 2))
            rows.append(envs.obs[:, 0].copy())
        return np.array(rows)

    four = seeds(7, 4)
    assert np.array_equal(four, seeds(7, 4))
    # environment i does not depend on how many there are
    assert np.array_equal(four[:, :2], seeds(7, 2))
    assert len(np.unique(four)) > 15
    assert not np.array_equal(four, seeds(8, 4))


@pytest.mark.parametrize("name", KINDS)
def test_restoring_replays_the_episode_to_the_last_bit(name: str) -> None:
    rng = np.random.default_rng(1)
    first = ScalarEnvironments(name, 2, 11)
    space = first.action_space
    draw = lambda: rng.integers(space.n, size=2) + space.start  # noqa: E731
    for _ in range(130):
        first.step(draw())
    state = {k: v.copy() for k, v in first.state().items()}
    second = ScalarEnvironments(name, 2, 11)
    assert second.restore(state)
    # nothing of earlier episodes either
    assert all(np.array_equal(second.state()[part], own) for part, own in state.items())
    for _ in range(130):
        actions = draw()
        for envs in (first, second):
            envs.step(actions)
        for part in (
            "obs",
            "final_obs",
            "reward",
            "terminated",
            "truncated",
            "ret",
            "length",
            "episode",
        ):
            mine, other = getattr(first, part), getattr(second, part)
            if part == "final_obs":
                ended = first.terminated | first.truncated
                mine, other = mine[ended], other[ended]
            assert np.array_equal(mine, other), part


def test_an_environment_that_does_not_repeat_itself_is_noticed() -> None:
    class Forgetful(Counter):
        def step(self, action):
            obs, *rest = super().step(action)
            return obs + np.random.default_rng().normal(), *rest

    gym.register("tests/Forgetful-v0", Forgetful)
    try:
        envs = ScalarEnvironments("tests/Forgetful-v0", 1, 0)
        for _ in range(3):
            envs.step(np.array([2]))
        assert not ScalarEnvironments("tests/Forgetful-v0", 1, 0).restore(envs.state())
    finally:
        gym.registry.pop("tests/Forgetful-v0")


def test_an_environment_that_writes_into_its_actions_changes_nobody_elses() -> None:
    class Clipping(gym.Env):
        observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            self.sum = np.zeros(1, np.float32)
            return self.sum.copy(), {}

        def step(self, action):
            self.sum += action
            action *= 0
            return self.sum.copy(), 0.0, False, False, {}

    gym.register("tests/Clipping-v0", Clipping)
    try:
        envs, again = (ScalarEnvironments("tests/Clipping-v0", 2, 0) for _ in range(2))
        actions = np.array([[0.5], [-0.25]], np.float32)
        for _ in range(3):
            envs.step(actions)
        assert actions.tolist() == [[0.5], [-0.25]] and envs.obs.tolist() == [[1.5], [-0.75]]
        for _ in range(2):  # what was replayed is replayed again
            assert again.restore((envs if again.length == [0, 0] else again).state())
    finally:
        gym.registry.pop("tests/Clipping-v0")


def test_long_episodes_grow_the_record_of_actions() -> None:
    envs = ScalarEnvironments("tests/Counter-v0(last=5000)", 1, 0)
    for _ in range(3000):
        envs.step(np.array([3]))
    assert envs.state()["actions"].shape == (1, 3000)
    again = ScalarEnvironments("tests/Counter-v0(last=5000)", 1, 0)
    assert again.restore(envs.state()) and again.obs[0, 1] == 3000 and again.ret[0] == 9000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("bad_step=3", r"environment 1, episode 0, step 3: the reward is not finite"),
        (
            "bad_step=2, bad=inf, where=observation",
            r"environment 1, episode 0, step 2: the observation is not finite",
        ),
        ("bad_step=2, bad=nan, where=observation", "the observation is not finite"),
        (
            "bad_step=2, last=2, bad=nan, where=observation",
            r"episode 0, step 2: the observation is not finite",
        ),
    ],
)
def test_a_number_that_is_not_finite_is_an_error_that_names_its_place(
    arguments: str, complaint: str
) -> None:
    envs = ScalarEnvironments("tests/Counter-v0", 2, 0)
    broken = Counter(
        **{
            k: float(v) if k == "bad" else int(v) if k in ("bad_step", "last") else v  # type: ignore[arg-type]
            for k, v in (part.split("=") for part in arguments.split(", "))
        }
    )
    broken.reset(seed=3)
    envs.envs[1] = broken
    with pytest.raises(EnvironmentFault, match=complaint):
        for _ in range(5):
            envs.step(np.array([2, 2]))


def test_large_but_finite_numbers_are_no_error() -> None:
    class Large(Counter):
        def step(self, action):
            _, *rest = super().step(action)
            return np.array([3e38, -3e38]), *rest

    envs = ScalarEnvironments("tests/Counter-v0", 1, 0)
    envs.envs[0] = Large()
    envs.envs[0].reset(seed=1)
    envs.step(np.array([2]))
    assert envs.obs[0].tolist() == pytest.approx([3e38, -3e38])


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("CartPole-v7", "CartPole-v1"),
        ("CartPol-v1", "nearest are CartPole-v1"),
        ("Nonsense", "no environment Nonsense"),
        ("CartPole-v1(colour=red)", "CartPole-v1.*cannot be made.*colour"),
        ("CartPole-v1(3)", "name each argument"),
        (
            "no_such_module:Env-v0",
            "module no_such_module, which is not installed: run this in its folder, or put that folder on PYTHONPATH",
        ),
        ("CartPole-v1(", "cannot be read"),
        ("FrozenLake-v1(map_name=9x9)", "cannot be made: KeyError"),
        (":Env-v0", "cannot be made"),
        ("Ant-v3", "cannot be made|not installed"),
    ],
)
def test_an_environment_that_cannot_be_made_is_one_sentence(name: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint) as raised:
        make_env(name)
    assert "\n" not in str(raised.value)
