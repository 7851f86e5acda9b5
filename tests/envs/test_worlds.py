"""Worlds with several agents as lanes: their order, ends, seeds, resume, and PettingZoo
environments of every temper."""

import sys
from types import ModuleType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import Purpose, key
from tenfold.domains.pettingzoo.worlds import ParallelWorlds
from tenfold.domains.treasure.play import TreasureWorlds
from tenfold.envs.adapter import Environments, Worlds
from tenfold.envs.making import is_multiagent, known_environments, make_environments
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.evaluation.player import EpisodeQueue, play_on
from tenfold.memory.frames import FrameStack

SMALL, SPREAD = "tenfold/TreasureSmall-v0", "pettingzoo/mpe2.simple_spread_v3(N=3, max_cycles=7)"


class Relay:
    """Three runners. Runner k is done after `ends[k]` steps (terminated, or truncated where
    negative); everybody sees (number of the agent, step, start) and earns its own number + 1.
    `start` is drawn from the episode's seed."""

    possible_agents: ClassVar[list[str]] = ["ann", "bob", "cid"]
    spoil: ClassVar[dict[str, Any]] = {}

    def __init__(self, ends: str = "2+4+-4", late: bool = False, shape: int = 3) -> None:
        self.ends, self.late, self.shape = [int(e) for e in ends.split("+")], late, shape
        self.closed = False

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Box(-np.inf, np.inf, (self.shape if agent == "cid" else 3,), np.float32)

    def action_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Discrete(2, start=self.spoil.get("start", 0))

    def seen(self, agent: str) -> np.ndarray:
        return np.array(
            [self.possible_agents.index(agent), self.t, self.start + self.sum], np.float32
        )

    def reset(
        self, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.sum, self.start = 0, 0, np.random.default_rng(seed).integers(1000)
        self.agents = self.possible_agents[:2] if self.late else list(self.possible_agents)
        return {a: self.seen(a) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents), "only those who are there may act"
        self.t += 1
        self.sum += sum(actions.values())
        acting = list(self.agents)
        ended = {a: self.t >= abs(self.ends[self.possible_agents.index(a)]) for a in acting}
        terminated = {
            a: e and self.ends[self.possible_agents.index(a)] > 0 for a, e in ended.items()
        }
        truncated = {a: e and not terminated[a] for a, e in ended.items()}
        reward = {a: float(self.possible_agents.index(a) + 1) for a in acting}
        self.agents = [a for a in acting if not ended[a]]
        if self.late and self.t == 1:
            self.agents.append("cid")
        obs = {a: self.seen(a) for a in {*acting, *self.agents}}
        if self.t == self.spoil.get("at"):
            self.spoil["how"](self, obs, reward, terminated)
        return obs, reward, terminated, truncated, {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def relay(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("relay")
    module.parallel_env = module.Relay = Relay  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "relay", module)
    monkeypatch.setattr(Relay, "spoil", {})


def random_step(envs: Environments, rng: np.random.Generator) -> None:
    envs.step(rng.integers(2, size=envs.num_envs))


@pytest.mark.parametrize(
    ("name", "agents"),
    [(SMALL, 5), ("tenfold/Treasure-v0(agents=3)", 3), (SPREAD, 3), ("pettingzoo/relay:Relay", 3)],
)
def test_lanes_are_agents_times_worlds_agent_by_agent(name: str, agents: int) -> None:
    envs = make_environments(name, 4, 0)
    assert is_multiagent(name) and (envs.agents, envs.worlds, envs.num_envs) == (
        agents,
        4,
        4 * agents,
    )
    for part in (
        envs.obs,
        envs.final_obs,
        envs.reward,
        envs.terminated,
        envs.truncated,
        envs.skipped,
    ):
        assert len(part) == 4 * agents
    if isinstance(envs, ParallelWorlds) and "relay" in name:
        assert envs.obs[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
        # worlds differ
        assert (
            envs.obs[:4, 2].tolist() == envs.obs[4:8, 2].tolist() and len(set(envs.obs[:4, 2])) == 4
        )
    envs.close()


def test_single_agents_are_worlds_of_one() -> None:
    envs = make_environments("CartPole-v1", 3, 0)
    assert (envs.agents, envs.worlds, envs.num_envs) == (1, 3, 3) and not is_multiagent(
        "CartPole-v1"
    )
    assert {"tenfold/Treasure-v0", SMALL} <= set(known_environments())


def test_agents_that_end_early_leave_their_lanes_skipped_until_the_world_begins_again() -> None:
    # ann is done after 2 steps, bob and cid after 4
    envs = make_environments("pettingzoo/relay", 2, 0)
    start = envs.obs[:, 2].copy()
    expected = [  # terminated, truncated, skipped of ann, bob, cid in each of both worlds
        ("......", "......", "......"),
        ("xx....", "......", "......"),
        ("......", "......", "xx...."),
        ("..xx..", "....xx", "xx...."),
    ]
    for terminated, truncated, skipped in expected:
        envs.step(np.zeros(6, int))
        assert envs.terminated.tolist() == [
            c == "x" for c in terminated
        ] and envs.truncated.tolist() == [c == "x" for c in truncated]
        assert envs.skipped.tolist() == [c == "x" for c in skipped]
        assert envs.reward.tolist() == [
            0 if s == "x" else r for s, r in zip(skipped, (1, 1, 2, 2, 3, 3), strict=True)
        ]
    assert (
        envs.final_obs[:, 1].tolist() == [2, 2, 4, 4, 4, 4]
        and envs.final_obs[:, 2].tolist() == start.tolist()
    )
    assert [(e.env, e.length, e.agent_returns) for e in envs.finished] == [
        (w, 4, (2.0, 8.0, 12.0)) for w in range(2)
    ]
    assert envs.finished[0].ret == pytest.approx(22 / 3)
    # the next episode's first
    assert envs.obs[:, 1].tolist() == [0] * 6 and not np.array_equal(envs.obs[:, 2], start)
    envs.step(np.zeros(6, int))
    assert not envs.skipped.any() and not envs.finished


def test_agents_that_come_later_are_skipped_until_then() -> None:
    envs = make_environments("pettingzoo/relay(late=true)", 1, 0)
    envs.step(np.zeros(3, int))
    assert envs.skipped.tolist() == [False, False, True] and envs.obs[2].tolist()[:2] == [2, 1]
    envs.step(np.zeros(3, int))
    assert not envs.skipped.any() and envs.reward.tolist() == [1, 2, 3]


def test_actions_reach_the_agent_of_their_lane() -> None:
    class Told(Relay):
        told: ClassVar[list[dict[str, int]]] = []

        def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
            self.told.append(actions)
            return super().step(actions)

    sys.modules["relay"].Told = Told  # type: ignore[attr-defined]
    envs = make_environments("pettingzoo/relay:Told", 2, 0)
    envs.step(np.array([1, 0, 0, 1, 1, 1]))  # ann's in both worlds, then bob's, then cid's
    assert Told.told == [{"ann": 1, "bob": 0, "cid": 1}, {"ann": 0, "bob": 1, "cid": 1}]


def not_a_number(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    reward["bob"] = float("nan")


def endless(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    obs["bob"][1] = np.inf


def undecided(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    ended["bob"] = float("nan")


def silent(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    del reward["bob"]


def gone(env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]) -> None:
    env.agents.remove("bob")


def blind(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    del obs["bob"]


def strange(
    env: Relay, obs: dict[str, Any], reward: dict[str, float], ended: dict[str, bool]
) -> None:
    env.agents.append("dan")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (not_a_number, "the reward is not finite"),
        (endless, "the observation is not finite"),
        (undecided, "terminated is nan, and must be True or False"),
        (silent, "nothing of its reward"),
        (gone, "bob is gone, neither terminated nor truncated"),
        (blind, "no observation for bob"),
    ],
)
def test_faults_name_world_agent_episode_and_step(
    how: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = make_environments("pettingzoo/relay", 2, 0, first=10)
    for _ in range(4):
        envs.step(np.zeros(6, int))
    monkeypatch.setattr(Relay, "spoil", {"at": 2, "how": how})
    envs.step(np.zeros(6, int))
    with pytest.raises(EnvironmentFault, match=rf"world 10, agent 1, episode 1, step 2: .*{said}"):
        envs.step(np.zeros(6, int))


def test_environments_that_cannot_be_lanes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (
        ("pettingzoo/relay(shape=4)", "ann has observations .* and cid .* equal spaces"),
        ("pettingzoo/nowhere", "module nowhere"),
        (
            "pettingzoo/mpe2.simple_sprad_v3",
            "mpe2 has no simple_sprad_v3; perhaps simple_spread_v3",
        ),
        ("pettingzoo/relay:Missing", "has no Missing"),
        ("pettingzoo/relay(speed=1)", "cannot be made: TypeError"),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            make_environments(name, 1, 0)
    monkeypatch.setattr(Relay, "spoil", {"at": 1, "how": strange})
    with pytest.raises(EnvironmentFault, match="dan is none of the possible agents ann, bob, cid"):
        make_environments("pettingzoo/relay", 1, 0).step(np.zeros(3, int))


@pytest.mark.parametrize(
    "name",
    [
        SMALL,
        "tenfold/Treasure-v0(turns=20)",
        SPREAD,
        "pettingzoo/relay",
        "pettingzoo/relay(late=true)",
    ],
)
@pytest.mark.parametrize("steps", [3, 26])
def test_a_restored_world_goes_on_as_if_it_had_never_stopped(name: str, steps: int) -> None:
    first, second = (
        make_environments(name, 3, 11),
        make_environments(name, 3, 11),
    )
    rng = np.random.default_rng(0)
    for _ in range(steps):
        random_step(first, rng)
    assert second.exact_resume and second.restore(first.state())
    for _ in range(60):
        actions = rng.integers(2, size=first.num_envs)
        for envs in (first, second):
            envs.step(actions)
        for part in ("obs", "reward", "terminated", "truncated", "skipped"):
            assert np.array_equal(getattr(first, part), getattr(second, part)), part
        ended = first.terminated | first.truncated
        assert (
            np.array_equal(first.final_obs[ended], second.final_obs[ended])
            and first.finished == second.finished
        )
    assert not make_environments(name, 3, 12).restore(first.state()) or isinstance(
        first, TreasureWorlds
    )


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        (SMALL, False),
        ("pettingzoo/relay", False),
        ("CartPole-v1", False),
        ("tenfold/CartPole-v1", False),
        ("tenfold/Assign-v0", True),
        ("tenfold/JobShop-v0", True),
    ],
)
def test_parts_of_a_run_are_the_same_worlds_as_the_whole(name: str, policy: bool) -> None:
    whole = make_environments(name, 5, 3, policy)
    part = make_environments(name, 2, 3, policy, first=3)
    assert part.keys == whole.keys[3:] == [key(3, Purpose.EPISODE, i) for i in (3, 4)]
    lanes = [a * 5 + w for a in range(whole.agents) for w in (3, 4)]
    for _ in range(12 if whole.agents > 1 else 0):
        actions = np.arange(whole.num_envs) % 2
        whole.step(actions)
        part.step(actions[lanes])
        assert np.array_equal(part.obs, whole.obs[lanes]) and np.array_equal(
            part.reward, whole.reward[lanes]
        )
    assert np.array_equal(part.obs, whole.obs[lanes])
    assert isinstance(make_environments("CartPole-v1", 1, 0), ScalarEnvironments)


def test_masks_of_pettingzoo_agents_are_read() -> None:
    class Masked(Relay):
        def observation_space(self, agent: str) -> gym.Space[Any]:
            return gym.spaces.Dict(
                {
                    "observation": super().observation_space(agent),
                    "action_mask": gym.spaces.MultiBinary(2),
                }
            )

        def seen(self, agent: str) -> Any:
            return {
                "observation": super().seen(agent),
                "action_mask": np.array([1, agent != "bob"], np.int8),
            }

    sys.modules["relay"].Masked = Masked  # type: ignore[attr-defined]
    envs = make_environments("pettingzoo/relay:Masked", 2, 0, policy=True)
    assert envs.obs.shape == (6, 3) and envs.mask is not None
    assert envs.mask.tolist() == [[True, True]] * 2 + [[True, False]] * 2 + [[True, True]] * 2
    for _ in range(4):
        envs.step(np.zeros(6, int))
    assert envs.mask.tolist() == [[True, True]] * 2 + [[True, False]] * 2 + [[True, True]] * 2


def test_closing_closes_every_world() -> None:
    envs = make_environments("pettingzoo/relay", 2, 0)
    envs.close()
    assert isinstance(envs, ParallelWorlds) and all(env.closed for env in envs.envs)


# bytes as observations are another fused engine to compile
@pytest.mark.parametrize(
    ("env", "engine"),
    [
        (SMALL, "plain"),
        pytest.param(SMALL, "fused", marks=pytest.mark.slow),
        ("pettingzoo/relay", "plain"),
        ("pettingzoo/relay", "fused"),
    ],
)
def test_q_learning_and_ppo_train_on_lanes_of_agents(env: str, engine: str) -> None:
    dqn = {
        "name": "dqn",
        "learning_starts": 100,
        "capacity": 2000,
        "batch_size": 8,
        "net": {"hidden": [16]},
    }
    ppo = {"name": "ppo", "horizon": 16, "minibatches": 2, "epochs": 2, "net": {"hidden": [16]}}
    for agent, place in ((dqn, OffPolicyLearner), (ppo, PPOLearner)):
        run = Run.of({"env": env, "num_envs": 2, "engine": engine, "agent": agent})
        running, finished = place(run), []
        begun = running.agent.online.flat.detach().clone()
        while running.step < 600:
            finished += running.round(600)
        assert (
            running.description.name == engine
            and finished
            and {len(e.agent_returns) for e in finished} == {running.envs.agents}
        )
        assert not np.array_equal(begun, running.agent.online.flat.detach())
        kept, again = running.state(), place(run)
        if isinstance(running, OffPolicyLearner) and isinstance(again, OffPolicyLearner):
            again.replay.load_rows(running.replay.written(np.zeros_like(running.replay.head)))
        assert again.load_state(kept)
        for _ in range(40):
            running.round(running.step + 1)
            again.round(again.step + 1)
        assert running.step == again.step and np.array_equal(running.envs.obs, again.envs.obs)
        assert np.array_equal(running.agent.online.flat.detach(), again.agent.online.flat.detach())
        running.close()


@pytest.mark.parametrize("name", ["pettingzoo/relay", SMALL])
def test_a_world_cut_at_the_limit_of_an_evaluation_begins_its_next_episode_anew(name: str) -> None:
    """Two worlds cut after two steps: what is seen first in each of their episodes is what a new
    world shows there."""
    envs, alone = (make_environments(name, 2, 3) for _ in range(2))
    assert isinstance(alone, Worlds)
    agents, first = envs.agents, []

    def policy(rows: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        first.extend(row.copy() for row, t in zip(rows, step, strict=True) if t == 0)
        return np.zeros(len(rows), int)

    found = play_on(envs, 1, policy, EpisodeQueue(6, most=2), limit=2)
    assert found.lengths == [2] * 6 and found.cut == 6
    for e in range(3):
        for w in range(2):
            alone.episode[w] = e
            alone.begin(w)
        assert np.array_equal(first[e * agents * 2 : (e + 1) * agents * 2], alone.obs), (
            f"episode {e} of both worlds"
        )


def test_a_network_of_several_frames_sees_nothing_of_the_episode_before_a_cut() -> None:
    envs = make_environments("pettingzoo/relay", 1, 0)
    assert isinstance(envs, Worlds)
    seen = FrameStack(3, envs)
    for _ in range(2):
        envs.step(np.zeros(3, int))
        seen.step()
    envs.step(np.zeros(3, int))
    envs.cut(0)
    seen.step()
    assert (seen.rows == envs.obs[:, None]).all() and envs.episode == [1] and envs.length == [0]


def test_what_a_world_raises_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("the motor\nis hot")

    envs = make_environments("pettingzoo/relay", 2, 0, first=10)
    monkeypatch.setattr(Relay, "spoil", {"at": 1, "how": break_down})
    with pytest.raises(
        EnvironmentFault,
        match=r"world 10, episode 0, step 1: step raised RuntimeError: the motor is hot in test_worlds.py",
    ):
        envs.step(np.zeros(6, int))
    monkeypatch.setattr(Relay, "reset", break_down)
    with pytest.raises(
        EnvironmentFault, match="world 0, episode 0, step 0: reset raised RuntimeError"
    ):
        make_environments("pettingzoo/relay", 2, 0)
