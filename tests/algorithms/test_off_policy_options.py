"""What dqn, sac and td3 share with other libraries: targets copied by steps, uniform warm-up,
updates by episodes, small memories, noise on actions, rewards normalised when drawn, one critic.
Each in the plain engine, and the same in the fused one."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.kernels.dqn_gpu import ResidentDQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.sac_td3_settings import SAC, TD3
from tenfold.config.action_noise import OU, Normal
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.engines.fused_engine import FusedRounds
from tenfold.memory.replay_rows import TERMINATED, TRUNCATED
from tenfold.runs.checkpoint import flat_state
from tenfold.training.learners import make_learner

CARTPOLE, PENDULUM = "tenfold/CartPole-v1", "tenfold/Pendulum-v1"
SMALL = {"batch_size": 8, "net": {"hidden": [8]}, "learning_starts": 20, "capacity": 500}
ENGINES = pytest.mark.parametrize("engine", ["plain", "fused"])
NEVER = 10**6


def learner_of(agent: dict[str, Any], engine: str = "plain", **run: Any) -> Any:
    name = agent.get("name", "dqn")
    env = {"env": CARTPOLE if name == "dqn" else PENDULUM}
    return make_learner(Run.of(env | {"agent": SMALL | agent, "engine": engine} | run))


def play(learner: OffPolicyLearner, until: int) -> OffPolicyLearner:
    while learner.step < until:
        learner.round(until)
    return learner


def resumed(learner: OffPolicyLearner) -> OffPolicyLearner:
    """Another learner that goes on from the state of this one."""
    other: Any = make_learner(learner.run)
    other.load_rows(learner.rows.written(np.zeros_like(learner.rows.head)))
    state = {part: dict(values) for part, values in learner.state().items()}
    assert other.load_state(state)
    return other


def contents(learner: OffPolicyLearner) -> dict[str, np.ndarray]:
    arrays = {name: np.array(value) for name, value in flat_state(learner.state()).items()}
    rows = {name: getattr(learner.rows, name).copy() for name in learner.rows.stored}
    return arrays | rows


def assert_same(one: OffPolicyLearner, other: OffPolicyLearner) -> None:
    mine, others = contents(one), contents(other)
    assert mine.keys() == others.keys()
    assert [name for name in mine if not np.array_equal(mine[name], others[name])] == []


# target networks


@ENGINES
@pytest.mark.parametrize(
    ("lanes", "steps", "tau", "every"), [(4, 10, 1.0, 2), (1, 3, 0.25, 3), (3, 2, 1.0, 1)]
)
def test_targets_are_copied_by_calls_of_step_before_the_updates_of_that_round(
    engine: str, lanes: int, steps: int, tau: float, every: int
) -> None:
    """Every max(steps // environments, 1) calls, from the first on, also before learning starts;
    nothing resets the count."""
    target = f"hard(steps={steps}, tau={tau})"
    agent = {"target": target, "every": 3 * lanes, "lr": 0.1, "learning_starts": 5 * lanes}
    learner = learner_of(agent, engine, num_envs=lanes)
    online, follower = learner.agent.online.flat, learner.agent.target.flat
    follower.add_(1)
    for call in range(1, 19):
        learned, before = online.clone(), follower.clone()
        learner.round(learner.step + lanes)
        moved = before + tau * (learned - before) if call % every == 0 else before
        torch.testing.assert_close(follower, moved, rtol=1e-6, atol=1e-7)
        if tau == 1 and call % every == 0:
            assert torch.equal(follower, learned)
    assert learner.agent.updates > 2


@ENGINES
def test_targets_that_count_updates_may_move_by_a_share(engine: str) -> None:
    learner = learner_of({"target": "hard(2, tau=0.5)", "learning_starts": 0}, engine)
    play(learner, 1)
    for _ in range(4):
        before = learner.agent.target.flat.clone()
        play(learner, learner.step + 1)
        even = learner.agent.updates % 2 == 0
        moved = torch.lerp(before, learner.agent.online.flat, 0.5) if even else before
        torch.testing.assert_close(learner.agent.target.flat, moved, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("stack", ["together", "apart"])
def test_agents_of_a_world_copy_their_targets_by_steps(stack: str) -> None:
    """Two worlds of several agents: a call of step is two steps."""
    agent = {"target": "hard(steps=4)", "learning_starts": NEVER, "warm_up": "uniform"}
    run = {"env": "tenfold/TreasureSmall-v0", "num_envs": 2, "stack": stack}
    learner = learner_of(agent, "auto", **run)
    follower, online = learner.agent.target.flat, learner.agent.online.flat
    follower.add_(1)
    copied = []
    for _ in range(4):
        learner.round()
        copied.append(torch.equal(follower, online))
        follower.add_(1)
    assert copied == [False, True, False, True]
    with pytest.raises(ConfigError, match="is for one environment with one agent"):
        learner_of({"every": "episodes(1)"}, env="tenfold/TreasureSmall-v0")


# warm-up


@ENGINES
@pytest.mark.parametrize("explore", ["epsilon(0)", "boltzmann(0.001)"])
def test_actions_are_uniform_until_learning_starts(engine: str, explore: str) -> None:
    """Without it greedy exploration never tries the other action here."""
    actions = {}
    for warm_up in ("explore", "uniform"):
        agent = {"explore": explore, "warm_up": warm_up, "learning_starts": 400, "every": NEVER}
        learner = learner_of(agent | {"capacity": 2000}, engine)
        with torch.no_grad():
            learner.agent.online.layers[-1].bias.copy_(torch.tensor([0.0, 50.0]))
        stored = play(learner, 600).replay
        taken = stored.action[: stored.head[0]][stored.kind[: stored.head[0]] <= TRUNCATED]
        actions[warm_up] = taken[:600]
    assert actions["explore"].mean() == 1
    assert 0.4 < actions["uniform"][:400].mean() < 0.6
    assert actions["uniform"][400:].mean() == 1


# when updates are due


@ENGINES
@pytest.mark.parametrize("updates", [-1, 3, 0])
def test_updates_come_after_so_many_episodes(engine: str, updates: int) -> None:
    """With −1 as many as the steps of these episodes; none before learning starts."""
    agent = {"every": "episodes(2)", "updates": updates, "learning_starts": 60}
    learner, lengths, expected = learner_of(agent, engine), [], 0
    while learner.step < 250:
        ended = learner.round(250)
        lengths += [episode.length for episode in ended]
        if ended and len(lengths) % 2 == 0 and learner.step > 60:
            expected += sum(lengths[-2:]) if updates < 0 else updates
        assert learner.agent.updates == expected
    assert len(lengths) > 6


@ENGINES
def test_as_many_updates_as_steps_with_several_environments(engine: str) -> None:
    learner = learner_of({"every": 12, "updates": -1}, engine, num_envs=4)
    assert play(learner, 120).agent.updates == 8 * 12 + 12  # from step 24 on


@pytest.mark.parametrize("engine", ["plain", "fused"])
@pytest.mark.parametrize(
    "agent",
    [
        {"every": "episodes(2)", "updates": -1, "target": "hard(steps=7)", "warm_up": "uniform"},
        {"name": "td3", "noise": "ou([0.5])", "every": 3},
        {"name": "sac", "noise": "normal(0.3)", "critics": 1},
    ],
    ids=["dqn", "td3", "sac"],
)
def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(
    engine: str, agent: dict[str, Any]
) -> None:
    """In the middle of an episode, and where one has just ended."""
    learner = learner_of(agent, engine, normalize_reward="drawn")
    for until in (33, 200, 240):
        play(learner, until)
        other = resumed(learner)
        assert_same(play(resumed(learner), until + 30), play(other, until + 30))
    straight = play(learner_of(agent, engine, normalize_reward="drawn"), 270)
    assert_same(play(other, 270), straight)


def test_episodes_are_for_one_environment_with_one_agent() -> None:
    with pytest.raises(
        ConfigError, match=r"every = episodes.* is for one environment, and there ar"
    ):
        learner_of({"every": "episodes(1)"}, num_envs=2)


# memories


@ENGINES
def test_a_memory_may_be_smaller_than_a_batch(engine: str) -> None:
    """Of capacity 1 it holds what one return needs: the latest step, whatever ends."""
    learner = learner_of({"capacity": 1, "learning_starts": 0}, engine)
    assert learner.replay.lane_rows == 3
    for _ in range(60):
        learner.round(learner.step + 1)
        memory = learner.replay
        latest = (memory.head[0] - 1) % 3
        if learner.envs.terminated[0] or learner.envs.truncated[0]:
            latest = (memory.head[0] - 2) % 3
        assert memory.ready[latest]
    assert learner.agent.updates == 60 and "replay of 3 rows" in learner.memory_text


def test_capacity_is_shared_by_environments_and_none_is_left_without_rows() -> None:
    learner = learner_of({"capacity": 100, "n_step": 3}, num_envs=50)
    assert learner.replay.lane_rows == 5
    play(learner, 500)
    assert learner.replay.rows >= 50


# noise


@ENGINES
@pytest.mark.parametrize("name", ["td3", "sac"])
def test_noise_is_added_to_the_policys_actions_and_to_uniform_ones(engine: str, name: str) -> None:
    """Normal noise with a deviation and a mean for each number: here sigma 0, so that the mean
    alone is added."""
    with_noise = {"name": name, "noise": "normal(0, mean=0.25)", "learning_starts": 30}
    without = {"name": name, "learning_starts": 30} | ({"noise": 0} if name == "td3" else {})
    for start in (0, 30):
        noisy, plain = (learner_of(a | {"every": NEVER}, engine) for a in (with_noise, without))
        for learner in (noisy, plain):
            learner.step = start
        one = plain.engine.explore(start, 0).copy()
        other = noisy.engine.explore(start, 0)
        np.testing.assert_allclose(other, np.clip(one + 0.25, -1, 1), atol=1e-6)
        assert not np.array_equal(one, other)


def test_a_process_follows_its_equation_and_begins_with_every_episode() -> None:
    """x ← x + θ(μ − x)dt + σ√dt·z. Without σ: 0.1, 0.19, and anew after the episode's end. What is
    asked twice for a round is the same."""
    agent = {"name": "td3", "noise": "ou(0, theta=0.5, dt=0.2, mean=1)"}
    noise = learner_of(agent).agent.make_noise(learner_of(agent, num_envs=2).envs)
    still, none = np.zeros((2, 1), np.float32), np.zeros(2, np.bool_)
    rounds = [(0, none), (1, none), (1, none), (2, np.array([True, False])), (3, none)]
    added = [noise.add(still, number, ended)[:, 0].tolist() for number, ended in rounds]
    expected = [[0.1] * 2, [0.19] * 2, [0.19] * 2, [0.1, 0.271], [0.19, 0.3439]]
    np.testing.assert_allclose(added, expected, rtol=1e-6)


def test_the_deviation_is_sigma_and_of_a_process_sigma_root_dt() -> None:
    run = {"name": "td3", "capacity": 500}
    for option, deviation in (("normal(0.1)", 0.1), ("ou(0.5, dt=0.04)", 0.1)):
        learner = learner_of(run | {"noise": option})
        noise = learner.agent.make_noise(learner.envs)
        zeros, ended = np.zeros((1, 1), np.float32), np.ones(1, np.bool_)
        draws = np.array([noise.add(zeros, number, ended)[0, 0] for number in range(4000)])
        assert abs(draws.std() - deviation) < 0.005 and abs(draws.mean()) < 0.006


@pytest.mark.parametrize("noise", ["normal(0.4, mean=0.1)", "ou(0.6)"])
def test_noisy_actions_of_the_fused_engine_are_the_plain_ones(noise: str) -> None:
    """Through whole rounds, resets at the episodes' ends included."""
    for name in ("td3", "sac"):
        agent = {"name": name, "noise": noise, "learning_starts": NEVER}
        plain, fused = (
            play(learner_of(agent, engine, num_envs=2, max_episode_steps=None), 440)
            for engine in ("plain", "fused")
        )
        assert isinstance(fused.engine, FusedRounds)
        np.testing.assert_allclose(plain.replay.action, fused.replay.action, atol=1e-6)


def test_actors_elsewhere_have_noise_of_their_own() -> None:
    agent = {"name": "td3", "noise": "ou(0.6)", "learning_starts": NEVER}
    learner = learner_of(agent, where="serial", actors=2)
    play(learner, 40)
    first, second = learner.replay.action[:20, 0], learner.replay.action[250:270, 0]
    assert not np.array_equal(first, second)
    without = play(learner_of(agent | {"noise": 0}, where="serial", actors=2), 40)
    assert not np.array_equal(first, without.replay.action[:20, 0])
    other = resumed(learner)
    assert_same(play(learner, 80), play(other, 80))


def test_options_take_numbers_lists_and_arrays_and_are_written_as_they_are_read() -> None:
    normal: Any = Normal
    process: Any = OU
    arrays = normal(np.array([1.0, 2.0])), normal(np.float32(0.5))
    for option in (normal(0.1), normal((0.1, 0.2), 0.5), process(0.3), *arrays):
        agent = TD3(noise=option)
        assert TD3.of({"noise": str(option)}) == agent and SAC(noise=option).noise == option
    assert normal([1, 2]).rule(2) == [(0.0, 0.0), (0.0, 0.0), (1.0, 2.0)]


def test_noise_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"normal.sigma = 1,2 is 2 numbers, and an action has 1"):
        learner_of({"name": "td3", "noise": "normal([1, 2])"})
    with pytest.raises(ConfigError, match=r"agent.noise = ou.* is for continuous actions"):
        learner_of({"name": "sac", "noise": "ou(0.1)"}, env=CARTPOLE)


class Counting:
    """Noise of one's own: 0.01 more every step of an episode."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> np.ndarray:
        self.value += 0.01
        return np.array([self.value])

    def reset(self) -> None:
        self.value = 0.0


@ENGINES
def test_a_python_object_may_give_the_noise(engine: str) -> None:
    agent = {"name": "td3", "noise": 0, "learning_starts": 0, "every": NEVER}
    noisy, still = (learner_of(agent, engine, num_envs=2) for _ in range(2))
    noisy.use_noise(Counting())
    assert not noisy.exact_resume and "Python object" in noisy.engine_choice
    for step, value in ((0, 0.01), (2, 0.02)):
        first, second = noisy.engine.envs.obs.copy(), still.engine.envs.obs
        second[:] = first
        base = still.engine.explore(step, step // 2).copy()
        noisy.round()
        np.testing.assert_allclose(noisy.action, np.clip(base + value, -1, 1), atol=1e-6)
    play(noisy, 402)  # past the end of both episodes: the count has begun again
    own: Any = noisy.own_noise
    assert [one.value for one in own.noises] == pytest.approx([0.01, 0.01])
    with pytest.raises(UserError, match="cannot be called"):
        noisy.use_noise(3)
    with pytest.raises(UserError, match="is for continuous actions"):
        learner_of({}).use_noise(Counting())


# rewards


@ENGINES
def test_rewards_are_stored_raw_and_normalised_when_they_are_drawn(engine: str) -> None:
    """By the deviation of now, each step's by itself before returns are summed and clipped."""
    agent = {"n_step": 2, "gamma": 0.9, "learning_starts": NEVER}
    learner = learner_of(agent | {"name": "td3"}, engine, normalize_reward="drawn", clip_reward=0.8)
    raw = learner_of(agent | {"name": "td3"}, engine)
    for one in (learner, raw):
        play(one, 250)
    assert np.array_equal(learner.replay.reward, raw.replay.reward)
    memory, returns, total = learner.replay, [], 0.0
    for kind, reward in zip(memory.kind[:251], memory.reward[:251], strict=True):
        if kind > TRUNCATED:
            continue
        total = 0.9 * total + float(reward)
        returns.append(total)
        total = 0.0 if kind >= TERMINATED else total
    scale = 1 / np.std(returns)
    scaled = np.clip(memory.reward * scale, -0.8, 0.8)
    batch = memory.sample()
    rows = batch.row
    last = np.isin(memory.kind[rows], (TERMINATED, TRUNCATED))
    expected = scaled[rows] + np.where(last, 0, 0.9 * scaled[rows + 1])
    np.testing.assert_allclose(batch.reward, expected, rtol=1e-4)
    assert len(returns) == 250 and (np.abs(scaled) == 0.8).any()


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_updates_by_drawn_rewards_equal_the_plain_engines(name: str) -> None:
    agent = {"name": name, "n_step": 3}
    learner = learner_of(agent, "fused", normalize_reward="drawn", clip_reward=0.5, verify=1)
    play(learner, 70)
    assert learner.lockstep.compared + learner.lockstep.ties >= 48
    assert learner.lockstep.ties <= 2 and learner.lockstep.largest < 5e-6


def test_drawn_rewards_are_refused_where_nothing_is_drawn_or_signs_are() -> None:
    with pytest.raises(ConfigError, match="sign does not go with normalize_reward = drawn"):
        learner_of({}, normalize_reward="drawn", clip_reward="sign")


# critics


@pytest.mark.parametrize("env", [PENDULUM, CARTPOLE])
def test_one_critic_of_sac_learns_alike_in_both_engines(env: str) -> None:
    learner = learner_of({"name": "sac", "critics": 1}, "fused", env=env, verify=1)
    assert len(learner.agent.online.critics) == 1
    play(learner, 70)
    assert learner.lockstep.compared >= 48 and learner.lockstep.largest < 5e-6


# faster engines


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ({"target": "hard(steps=10)"}, "the target network is hard"),
        ({"target": "hard(tau=0.5)"}, "the target network is hard"),
        ({"warm_up": "uniform"}, "uniform until learning starts"),
        ({"every": "episodes(1)"}, "not a fixed number"),
        ({"updates": -1}, "not a fixed number"),
    ],
)
def test_the_resident_engine_says_what_it_does_not_do(agent: dict[str, Any], reason: str) -> None:
    learner = learner_of(agent)
    assert reason in ResidentDQN.why_not(learner.agent, learner.run)
