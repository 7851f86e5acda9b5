"""Policies that remember: what is stored is what acted, resets are exact wherever acting happens,
and whoever plays the policy remembers by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.algorithms.ppo_settings import PolicyOptimisation
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.graph_spaces import BoundedGraph
from tenfold.core.layout import observation_layout
from tenfold.core.random import Purpose
from tenfold.core.spaces import policy_actions
from tenfold.evaluation.player import play
from tenfold.memory.rollout import sequences_per_env
from tenfold.training.learners import make_learner

SMALL = {"horizon": 24, "epochs": 2, "minibatches": 3}


def place(
    env: str = "tenfold/CartPole-v1",
    engine: str = "plain",
    memory: str = "lstm(5)",
    num_envs: int = 3,
    more: dict[str, Any] | None = None,
    **agent: object,
) -> Any:
    net = {"hidden": [6], "memory": memory}
    settings = {"env": env, "num_envs": num_envs, "engine": engine, "seed": 5, "steps": 10_000}
    settings |= more or {}
    return make_learner(Run.of(settings | {"agent": {"name": "ppo", "net": net, **SMALL, **agent}}))


@contextmanager
def placed(*given: Any, **more: Any) -> Iterator[Any]:
    found = place(*given, **more)
    try:
        yield found
    finally:
        found.close()


def fill(p: Any) -> None:
    """Until the rollout's last row is in, and before it is learned from."""
    p.learn = lambda: None
    while p.rollout.left:
        p.round()


def compare_with_acting(p: Any) -> None:
    """The ratio of every row to the policy that acted is 1, and its value is what it was."""
    plain = PlainPPO(p.agent, p.rollout, p.envs)
    plain.finish()
    p.rollout.order[:] = np.arange(p.rollout.order.size)
    assert p.rollout.boundary[:-1].any()  # or there was nothing to forget
    for part in range(p.rollout.minibatches):
        batch = plain.minibatch(part)
        output, value = p.agent.online(batch["obs"])
        each, _ = p.agent.distribution.evaluate(output, batch)
        assert torch.allclose(each, batch["log_p"], atol=2e-6)
        assert torch.allclose(value, batch["value"], atol=2e-6)


class Leaving:
    """Two agents; the second leaves the world three steps before the first ends it, and its rows
    until then are no step."""

    possible_agents = ("long", "short")

    def observation_space(self, agent: str) -> Any:
        return gym.spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return gym.spaces.Discrete(3)

    def seen(self) -> dict[str, np.ndarray]:
        return {a: np.float32([len(a) / 9, self.t / 9]) for a in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, list(self.possible_agents)
        return self.seen(), {a: {} for a in self.agents}

    def step(self, actions: Any) -> Any:
        self.t += 1
        over = {a: self.t >= (7 if a == "long" else 4) for a in actions}
        self.agents = [a for a in actions if not over[a]]
        obs = {a: row for a, row in self.seen().items() if a in actions}
        return obs, dict.fromkeys(actions, 1.0), over, dict.fromkeys(actions, False), {}

    def close(self) -> None:
        """Nothing is open."""


APART = {"hidden": [6], "value_hidden": [3], "memory": "lstm(5)", "after": [4], "init": "torch"}
CASES = {
    "lstm": ("tenfold/CartPole-v1", {}),
    "gru": ("tenfold/CartPole-v1", {"memory": "gru(7)"}),
    "pieces": ("tenfold/CartPole-v1", {"minibatches": 5}),
    "normalised": ("tenfold/CartPole-v1", {"normalize_obs": True}),
    "masked": ("tenfold/Assign-v0", {"horizon": 60}),
    "rows that are no step": (f"pettingzoo/{__name__.rpartition('.')[2]}:Leaving", {}),
    "real numbers": ("tenfold/Pendulum-v1", {"horizon": 216, "squash": True}),
}


@pytest.fixture(params=["plain", "fused", "cudagraph"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`cudagraph` runs on the CPU as well."""
    if request.param == "cudagraph":
        entry = replace(PolicyOptimisation.engines["cudagraph"], device="")
        monkeypatch.setitem(PolicyOptimisation.engines, "cudagraph", entry)
    return request.param


@pytest.mark.parametrize("case", CASES)
def test_what_is_learned_from_is_what_acted_across_the_borders_of_episodes(
    case: str, engine: str
) -> None:
    """Also of the second rollout, which begins in the middle of episodes."""
    env, agent = CASES[case]
    p = place(env, engine, **agent)
    for _ in range(2):
        fill(p)
        compare_with_acting(p)


def test_a_missing_reset_would_be_seen_by_that() -> None:
    p = place()
    fill(p)
    p.rollout.boundary[:-1] = 0
    plain = PlainPPO(p.agent, p.rollout, p.envs)
    plain.rollout.order[:] = np.arange(plain.rollout.order.size)
    batch = plain.minibatch(0)
    _, value = p.agent.online(batch["obs"])
    assert (value - batch["value"]).abs().max() > 1e-4


def test_sequences_are_whole_lanes_or_the_fewest_pieces_that_are_enough() -> None:
    counts = [sequences_per_env(32, 8, parts) for parts in (1, 8, 9, 17, 64, 256)]
    assert counts == [1, 1, 2, 4, 8, 32]
    assert sequences_per_env(30, 1, 4) == 5  # a divisor
    assert sequences_per_env(7, 2, 3) == 7
    p = place(minibatches=5)
    assert (p.rollout.start_states.shape[0], p.rollout.sequence_length, p.rollout.order.size) == (
        2,
        12,
        6,
    )
    # the second piece of lane 1 is sequence 4: rows 12 to 23 of that lane
    assert p.rollout.rows_of(np.array([4, 0])).reshape(12, 2)[:2].tolist() == [[37, 0], [40, 3]]


class Counting(gym.Env):
    """Shows 0, 1, 2 … and is cut, not ended, after five steps."""

    observation_space, action_space = gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return np.array([self.t], np.float32), 1.0, False, self.t == 5, {}


gym.register("Counting-v0", lambda **more: Counting())


def test_values_at_time_limits_and_behind_the_rollout_come_from_the_whole_episode(
    engine: str,
) -> None:
    """V(final observation) after 0 … 4 were seen, V(next observation) after what its episode has
    shown: by the value's own tower on those rows, from nothing."""
    p = place("Counting-v0", engine, num_envs=1, horizon=8, minibatches=1)
    fill(p)
    p.engine.finish()
    tower = p.agent.online.value

    def value_after(*shown: int) -> float:
        rows = torch.tensor([[float(x)] for x in shown])
        nothing = torch.zeros(1, tower.memory.state_size)
        with torch.no_grad():
            return float(tower(rows, nothing, torch.ones(len(shown), 1))[0][-1])

    next_value = p.rollout.next_value[:, 0].tolist()
    assert next_value[4] == pytest.approx(value_after(0, 1, 2, 3, 4, 5), rel=1e-5)
    assert next_value[7] == pytest.approx(value_after(0, 1, 2, 3), rel=1e-5)
    assert next_value[2] == pytest.approx(value_after(0, 1, 2, 3), rel=1e-5)
    assert abs(next_value[4] - value_after(5)) > 1e-3


def saved(p: Any) -> dict[str, Any]:
    p.settle()
    return {
        part: {
            k: torch.as_tensor(v).clone() if part in ("agent", "engine") else np.array(v)
            for k, v in values.items()
        }
        for part, values in p.state().items()
    }


def run_to(p: Any, step: int) -> None:
    while p.step < step:
        p.round(step)


@pytest.mark.parametrize(
    "agent",
    [
        {},
        {"memory": "gru(4)", "normalize_obs": True},
        {"engine": "fused"},
        {"engine": "fused", "env": "CartPole-v1", "memory": "gru(4)", "minibatches": 5},
        {"net": APART, "weight_decay": 1.0},
    ],
)
def test_resume_is_as_if_never_stopped(agent: dict) -> None:
    whole, first, second = (place(**agent) for _ in range(3))
    run_to(whole, 300)
    run_to(first, 100)  # in the middle of a rollout and of episodes
    assert first.rollout.left not in (0, 24) and first.rollout.hidden.any()
    assert second.load_state(saved(first))
    run_to(second, 300)
    assert torch.equal(whole.agent.block, second.agent.block)
    assert np.array_equal(whole.rollout.hidden, second.rollout.hidden)


def test_environments_that_began_anew_are_remembered_nothing_of() -> None:
    first, second = place(), place()
    run_to(first, 100)
    second.pool.restore = lambda *given: False
    assert not second.load_state(saved(first))
    assert not second.rollout.hidden.any() and second.rollout.left == 24


@pytest.mark.parametrize("case", CASES)
def test_the_fused_engine_makes_the_plain_ones_updates(case: str) -> None:
    """In lockstep, both from the same state: every update of a run through ends of episodes."""
    env, agent = CASES[case]
    settings = {"entropy": 0.01, "value_clip": 0.2, "target_kl": 0.05} | agent
    squashed = {"entropy": 0.0} if "squash" in agent else {}
    settings |= squashed | {"more": {"verify": 1} | agent.get("more", {})}
    p = place(env, "fused", **settings)
    while p.agent.updates < 12:
        p.round()
    assert p.lockstep.compared == p.agent.updates


@pytest.mark.parametrize("env", ["tenfold/CartPoleNoVel-v1", "CartPole-v1"])
def test_whole_rounds_are_the_stages_one_by_one(env: str) -> None:
    """The fused engine by itself, and round for round as it is timed."""
    whole, stages = place(env, "fused"), place(env, "fused")
    stages.time_every_round()
    assert (whole.rounds_by, stages.rounds_by) == ("engine", "learner")
    for p in (whole, stages):
        run_to(p, 400)
    assert torch.equal(whole.agent.block, stages.agent.block)
    assert np.array_equal(whole.rollout.hidden, stages.rollout.hidden)


ACTORS = {"actors": 2, "where": "serial"}


def test_actors_bring_what_they_remember() -> None:
    """Rows of several actors are learned from as they acted, from the second rollout on too, and a
    run of them that stops goes on as if it had not."""
    whole, first, second = (place(num_envs=2, more=ACTORS) for _ in range(3))
    for _ in range(2):
        fill(whole)
        compare_with_acting(whole)
    whole = place(num_envs=2, more=ACTORS)
    run_to(whole, 400)
    run_to(first, 220)
    assert second.load_state(saved(first))
    run_to(second, 400)
    assert torch.equal(whole.agent.block, second.agent.block)


@pytest.mark.slow
def test_processes_equal_serial_actors_bit_for_bit_masked_and_normalised() -> None:
    agent = {"normalize_obs": True, "horizon": 12, "minibatches": 2}
    env = "tenfold/JobShop-v0(instance=ft06)"
    blocks = []
    for where in ("serial", "processes"):
        more = {"actors": 2, "where": where, "ahead": 0}
        with placed(env, num_envs=1, more=more, on_empty="absent", **agent) as p:
            run_to(p, 72)
            p.settle()
            blocks.append(p.agent.block.clone())
            assert p.agent.updates == 12
    assert torch.equal(*blocks)


def test_an_actor_in_anothers_place_remembers_nothing() -> None:
    """The rollout begins again; the others go on with what they remember."""
    with placed(num_envs=2, more={"actors": 2, "where": "processes"}) as p:
        run_to(p, 40)
        dead = p.pool.children[1].process
        dead.kill()
        dead.join()
        object.__setattr__(p.pool.failures.run, "on_death", "restart")
        fill(p)
        assert len(p.warnings) == 1
        assert not p.rollout.start_states[0, 2:].any() and p.rollout.start_states[0, :2].any()
        compare_with_acting(p)


def trained() -> PPOAgent:
    p = place()
    run_to(p, 200)
    return p.agent


def test_evaluations_remember_by_episode_and_begin_each_from_nothing() -> None:
    """Episodes side by side and one after another, in lanes that others had before, are those that
    each one alone is."""
    agent = trained()
    for how in ("greedy", "sampled"):
        together = play("CartPole-v1", agent, agent.policy(how), 20, 7)
        alone = [play_alone(agent, how, e, 20).lengths[0] for e in (0, 1, 17, 19)]
        assert [together.lengths[e] for e in (0, 1, 17, 19)] == alone


def play_alone(agent: PPOAgent, how: str, number: int, episodes: int) -> Any:
    """Episode `number` by itself."""
    from tenfold.envs.adapter import episode_seeds
    from tenfold.evaluation.player import ChosenEpisodes, EpisodeQueue, play_on

    seed = episode_seeds(7, Purpose.EVALUATE, episodes)[number]
    policy = agent.policy(how)

    def numbered(rows: Any, mask: Any, episode: Any, step: Any) -> np.ndarray:
        return policy(rows, mask, episode + number, step)

    envs = ChosenEpisodes("CartPole-v1", 1, [seed], True)
    return play_on(envs, 1, numbered, EpisodeQueue(1), 10_000)


def test_a_person_who_acts_keeps_the_state() -> None:
    agent = trained()
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(6, 2, 4)).astype(np.float32)
    policy, state = agent.policy("greedy"), None
    each: list[Any] = [None, None]
    for t in range(6):
        if t == 3:
            assert state is not None
            state[1], each[1] = 0, None  # lane 1 begins an episode
        action, state = agent.act(shown[t], state=state)
        for lane in range(2):
            one, each[lane] = agent.act(shown[t, lane], state=each[lane])
            assert one == action[lane]
            assert np.allclose(each[lane], state[lane], atol=1e-6)
        episode, step = np.array([0, 1 + (t > 2)]), np.array([t, t % 3 if t > 2 else t])
        assert (policy(shown[t], None, episode, step) == action).all()
    told, after = agent.act(torch.from_numpy(shown[0]))
    assert isinstance(told, torch.Tensor) and after.shape == (2, agent.state_size)
    mask = np.array([[True, False], [False, True]])
    assert agent.act(shown[0], mask=mask)[0].tolist() == [0, 1]
    with pytest.raises(UserError, match=r"The state has shape \(3,\); it must be \(2, 10\)"):
        agent.act(shown[0], state=np.zeros(3))


def test_an_agent_without_a_memory_takes_no_state() -> None:
    p = place(memory="none")
    assert isinstance(p.agent.act(np.zeros(4, np.float32)), int)
    with pytest.raises(UserError, match="This agent remembers nothing"):
        p.agent.act(np.zeros(4, np.float32), state=np.zeros(4))


def test_a_run_is_trained_loaded_and_judged(tmp_path: Path) -> None:
    net = ten.PolicyNet(hidden=(6,), memory=ten.GRU(4))
    run = ten.Run(
        env="tenfold/CartPole-v1",
        steps=200,
        num_envs=2,
        engine="plain",
        agent=ten.PPO(horizon=16, epochs=1, minibatches=2, net=net),
    )
    ten.train(run, out=tmp_path / "run")
    assert ten.evaluate(tmp_path / "run", episodes=3).episodes == 3
    agent = ten.load(tmp_path / "run")
    assert str(agent.config.net.memory) == "gru(size=4)"
    action, state = agent.act(np.zeros(4, np.float32))
    assert action in (0, 1) and state.shape == (4,) and state.any()


@pytest.mark.parametrize("sample", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_exported_policy_is_given_its_state(sample: bool, tmp_path: Path) -> None:
    """By torch.export; whether the file's actions and states are the agent's is checked by the
    export itself, and once more here over an episode."""
    net = ten.PolicyNet(hidden=(6,), memory=ten.LSTM(4), after=(5,), activation="silu")
    agent = ten.PPO(horizon=16, epochs=1, minibatches=2, net=net)
    ten.train(ten.Run(env="CartPole-v1", steps=64, agent=agent), out=tmp_path / "run", quiet=True)
    found = ten.export(tmp_path / "run", "torch", tmp_path / "policy.pt2", sample=sample)
    assert "1,000 of 1,000 actions" in found.checked
    assert [port["name"] for port in found.about["outputs"]] == ["action", "next_state"]
    assert found.about["inputs"][-1]["shape"] == ["batch", 8]
    if sample:
        return
    program, agent = torch.export.load(tmp_path / "policy.pt2").module(), ten.load(tmp_path / "run")
    mine, theirs = None, torch.zeros(1, 8)
    for row in np.random.default_rng(1).normal(size=(5, 1, 4)).astype(np.float32):
        action, mine = agent.act(row, state=mine)
        told, theirs = program(torch.from_numpy(row), theirs)
        assert told.tolist() == action.tolist()
        assert np.allclose(theirs.numpy(), mine, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "compiled"}, "= compiled does not fit: the policy remembers"),
        ({"baseline": "counterfactual"}, "does not go with counterfactual baselines"),
        ({"memory": "lstm(0)"}, "= 0 is out of range"),
        ({"memory": "rnn(8)"}, "= rnn(8) is not gru(size) or lstm(size) or none"),
        ({"net": {"module": "my:Net", "memory": "gru"}}, "a network of one's own"),
    ],
)
def test_where_a_memory_does_not_fit_one_sentence_says_so(given: dict, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        place(**given)
    assert words in str(error.value)


def test_graphs_are_remembered_by_nobody() -> None:
    actions = policy_actions(gym.spaces.Discrete(2), "Graphs-v0")
    seen = gym.spaces.Box(0, 1, (3,)), gym.spaces.Box(0, 1, (1,))
    layout = observation_layout(BoundedGraph(*seen, max_nodes=4, max_edges=5), "Graphs-v0")
    net = ten.PolicyNet(hidden=(8,), memory=ten.GRU(8))
    with pytest.raises(ConfigError, match="the observations are graphs, whose nodes come and go"):
        PPOAgent(ten.PPO(net=net), layout, actions, 0)


def test_the_resident_engine_says_that_it_has_no_memory() -> None:
    from tenfold.algorithms.ppo_gpu import ResidentPPO

    p = place()
    assert ResidentPPO.why_not(p.agent, p.run).startswith("the policy remembers (lstm(size=5))")
    assert (
        "plain"
        in place(
            engine="auto",
            net={"hidden": [6], "memory": "gru", "encoder": "small"},
            env="tenfold/Catch-v0",
        ).engine_choice
    )


def test_q_learning_says_whose_the_setting_is() -> None:
    with pytest.raises(ConfigError, match=r"memory = lstm\(8\) is not a setting") as error:
        Run.of({"agent": {"name": "dqn", "net": {"memory": "lstm(8)"}}})
    assert "ppo" in str(error.value)
