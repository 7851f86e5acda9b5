"""Masks in Q-learning: a forbidden action is never taken, never bootstrapped from, by any engine,
wherever actors act; and what masks that allow nothing are told."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.off_policy import OffPolicyActing, OffPolicyLearner
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, EnvironmentFault, UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.evaluation.player import play, random_policy
from tenfold.memory.replay import Replay
from tenfold.ops.qlearning import td_items
from tenfold.runs.file_schema import current
from tenfold.training.loop import resume, train

BENCH = Path(__file__).parent.parent.parent / "bench"
STRICT, WALKERS = "strict_environment:Strict-v0", "pettingzoo/strict_environment:Walkers"
SMALL: dict[str, Any] = {
    "name": "dqn",
    "learning_starts": 50,
    "batch_size": 16,
    "capacity": 2_000,
    "explore": "epsilon(0.3)",
    "net": {"hidden": [24]},
}
EVERYTHING = {
    "dueling": True,
    "n_step": 3,
    "replay": "prioritized",
    "distribution": "categorical(11, -1, 1)",
    "explore": "noisy",
}
YES = True


@pytest.fixture(autouse=True)
def strict_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


def strict_run(env: str = STRICT, engine: str = "auto", **more: Any) -> Run:
    """Of an environment that raises when an action is taken that its mask forbids."""
    agent = SMALL | more.pop("agent", {})
    usual = {"eval_every": 0, "checkpoint_every": 0, "env": env, "engine": engine, "agent": agent}
    return Run.of(usual | {"steps": 300} | more)


@pytest.mark.parametrize(
    ("engine", "agent"),
    [
        ("fused", {"n_step": 3, "replay": "prioritized"}),
        ("fused", {"explore": "boltzmann(0.5)"}),
        ("fused", EVERYTHING),
        ("plain", {"explore": "noisy"}),
        ("plain", {"explore": "boltzmann(0.5)", "distribution": "implicit(3, 3, 8, 4)"}),
        ("plain", {"frames": 3, "distribution": "quantile(3)"}),
    ],
)
def test_no_forbidden_action_is_ever_taken(engine: str, agent: dict[str, Any]) -> None:
    learner = OffPolicyLearner(strict_run(engine=engine, agent=agent, num_envs=3))
    while learner.step < 900:
        learner.round()
    assert learner.engine_choice.startswith(engine) and learner.agent.updates > 100
    assert learner.statistics()["loss"] > 0
    stored = learner.replay.action[learner.replay.ready]
    mask = learner.replay.mask[learner.replay.ready]
    assert mask[np.arange(len(stored)), stored].all() and not mask.all()


@pytest.mark.slow
def test_a_million_steps_without_a_forbidden_action(tmp_path: Path) -> None:
    """As bench/masks.py, which wrote bench/results/masks.json."""
    agent = {"n_step": 3, "replay": "prioritized", "every": 4, "explore": "epsilon(0.1)"}
    run = strict_run(steps=1_000_000, agent=agent | {"lr": "linear(1e-3, 0, 1M)"})
    train(run, tmp_path / "run", quiet=True)
    assert ten.evaluate(tmp_path / "run", episodes=100).mean_return > 0.85


def test_every_allowed_action_is_drawn_equally_often() -> None:
    run = strict_run(agent={"explore": "epsilon(1)"})
    agent = OffPolicyLearner(run).agent
    mask = np.tile([False, True, True, False, True], (3_000, 1))
    drawn = agent.explore(np.zeros((3_000, 4), np.float32), 0, 0, mask)
    counts = np.bincount(drawn, minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0] and (abs(counts[[1, 2, 4]] - 1_000) < 100).all()


def test_the_key_of_a_dict_observation_is_a_mask_and_nothing_that_is_seen() -> None:
    run = strict_run("strict_environment:Strict-v0(inside=true)")
    learner = OffPolicyLearner(run)
    while learner.step < 300:
        learner.round()
    assert learner.envs.layout.size == 4 and learner.envs.mask.shape == (1, 5)
    agent, allowed = learner.agent, np.array([0, 0, 1, 0, 0], np.int8)
    assert agent.act({"seen": np.zeros(4, np.float32), "action_mask": allowed}) == 2
    seen = {"seen": np.zeros(4, np.float32)}
    assert agent.act([seen, seen], mask=np.stack([allowed, allowed])).tolist() == [2, 2]
    with pytest.raises(UserError, match="allows no action in row 0"):
        agent.act(seen, mask=0 * allowed)


# worked out by hand


def batch_of(next_mask: Any) -> dict[str, torch.Tensor]:
    return {
        "action": torch.tensor([0]),
        "reward": torch.tensor([1.0]),
        "discount": torch.tensor([0.5]),
        "weight": torch.tensor([1.0]),
    } | ({} if next_mask is None else {"next_mask": torch.tensor([next_mask])})


@pytest.mark.parametrize(
    ("double", "next_mask", "error"),
    [
        # the target network's values of s' are 1, 8, 4, the online network's 9, 2, 5; Q(s, 0) = 2
        (False, None, 1 + 0.5 * 8 - 2),
        (False, [True, False, True], 1 + 0.5 * 4 - 2),
        (True, None, 1 + 0.5 * 1 - 2),
        (True, [False, True, True], 1 + 0.5 * 4 - 2),
        (True, [False, True, False], 1 + 0.5 * 8 - 2),
    ],
)
def test_the_best_next_action_is_an_allowed_one(double: bool, next_mask: Any, error: float) -> None:
    target, online = (torch.tensor(v).view(1, 3, 1) for v in ([1.0, 8, 4], [9.0, 2, 5]))
    values = torch.tensor([2.0, 0, 0]).view(1, 3, 1)
    chooser = online if double else target
    _, found, _ = td_items(batch_of(next_mask), values, target, chooser, "mse")
    assert found.item() == error


def test_masks_lie_beside_the_observations_they_belong_to() -> None:
    """Two steps, the second cut by a time limit: the return of the first ends in the true last
    observation, whose mask is not that of the next episode."""
    config = DQN(n_step=2, batch_size=1, capacity=10)
    replay = Replay(config, ObsLayout((1,), np.dtype(np.float32), (1,), 1.0), 1, 0, options=2)
    no, one, obs = np.zeros(1, bool), np.zeros(1, np.int64), np.zeros((1, 1), np.float32)
    first, second, last, begun = np.array([[[1, 0]], [[0, 1]], [[1, 1]], [[1, 0]]], bool)
    replay.begin(obs, first)
    replay.add(one, np.ones(1), no, no, no, obs, obs, second, begun)
    replay.add(one, np.ones(1), no, ~no, no, obs, obs, begun, last)
    assert np.array_equal(replay.mask[:4], np.concatenate([first, second, last, begun]))
    for _ in range(5):
        batch = replay.sample()
        assert batch.row[0] in (0, 1) and np.array_equal(batch.next_mask, last)


# wherever it runs


def test_resume_with_masks_is_never_having_stopped(tmp_path: Path) -> None:
    """Also of a run whose settings are those of a version that could not use masks."""
    run = strict_run(steps=400, checkpoint_every=200, agent={"n_step": 3, "replay": "prioritized"})
    train(run, tmp_path / "whole", quiet=True)
    half = Run.of(to_mapping(run) | {"steps": 200})
    train(half, tmp_path / "half", quiet=True)
    settings = tmp_path / "half" / "config.yaml"
    settings.write_text(settings.read_text().replace("agent:", "agent:\n  ignore_mask: true", 1))
    resume(tmp_path / "half", steps=400, quiet=True)
    whole, parts = (ten.load(tmp_path / name).online.flat for name in ("whole", "half"))
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("agent", [{"replay": "prioritized", "n_step": 2}, EVERYTHING])
def test_a_fused_run_with_masks_is_held_to_the_plain_engine(
    agent: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(strict_run(agent=agent, verify=5), tmp_path / "run")
    assert "verified: 50 updates" in capsys.readouterr().err


def test_actors_in_processes_do_what_they_do_here(tmp_path: Path) -> None:
    found = []
    for where in ("serial", "processes"):
        run = strict_run(where=where, actors=2, ahead=0, agent={"n_step": 2})
        train(run, tmp_path / where, quiet=True)
        found.append(ten.load(tmp_path / where).online.flat)
    assert torch.equal(*found)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("engine", ["fused", "plain"])
def test_agents_of_a_world_keep_to_their_masks(share: bool, engine: str) -> None:
    learner = OffPolicyLearner(strict_run(WALKERS, engine, share=share, num_envs=2))
    while learner.step < 300:
        learner.round()
    agent = learner.agent
    assert agent.updates > 50 and learner.replay.memories[0].mask.shape[1] == 5
    assert play(WALKERS, agent, agent.policy("greedy"), 2, 0).episodes == 2


def test_cudagraph_has_masks_as_the_plain_engine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code without a graph, on the CPU."""
    found = []
    for engine in ("plain", "cudagraph"):
        with monkeypatch.context() as patch:
            if engine == "cudagraph":
                patch_device(patch)
            learner = OffPolicyLearner(strict_run(engine=engine, agent={"n_step": 2}))
            while learner.step < 150:
                learner.round()
            found.append(learner.agent.online.flat.clone())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def patch_device(patch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tenfold.algorithms.dqn_settings import QLearning

    entry = QLearning.engines["cudagraph"]
    patch.setitem(QLearning.engines, "cudagraph", replace(entry, device=""))


def test_resident_says_that_it_has_no_masks() -> None:
    from tenfold.algorithms.kernels.dqn_gpu import ResidentDQN

    config = DQN.of({"net": {"hidden": [8]}})
    layout = ObsLayout((4,), np.dtype(np.float32), (4,), 1.0)
    agent = DQNAgent(config, layout, DiscreteActions(2, 0), 0)
    agent.masked = True
    assert ResidentDQN.why_not(agent) == "actions are masked"


# masks that allow nothing


class Stuck(gym.Env):
    """An episode of four steps, whose mask allows nothing in step `empty`; `ends`: how it ends."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Discrete(2)

    def __init__(self, empty: int = 2, ends: str = "terminated") -> None:
        self.empty, self.ends = empty, ends

    def told(self) -> Any:
        seen = np.array([self.t], np.float32)
        return seen, {"action_mask": np.full(2, self.t != self.empty)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.told()

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, info = self.told()
        over = self.t == 4
        return obs, 0.0, over and self.ends == "terminated", over and self.ends == "cut", info


gym.register("Stuck-v0", Stuck)


@pytest.mark.parametrize("engine", ["plain", "fused"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("empty=2", "environment 0, episode 0, step 2: the action mask allows no action"),
        ("empty=0", "environment 0, episode 0, step 0: the action mask allows no action"),
        (
            "empty=4, ends=cut",
            "environment 0, episode 0, step 4: the episode was cut at an observation whose",
        ),
    ],
)
def test_a_mask_that_allows_nothing_is_named_with_its_place(
    engine: str, options: str, said: str
) -> None:
    with pytest.raises(EnvironmentFault, match=rf"Stuck-v0\({options}\), {said}"):
        learner = OffPolicyLearner(strict_run(f"Stuck-v0({options})", engine))
        for _ in range(20):
            learner.round()


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_where_an_episode_terminates_nothing_need_be_allowed(engine: str) -> None:
    learner = OffPolicyLearner(strict_run("Stuck-v0(empty=4)", engine))
    for _ in range(120):
        learner.round()
    assert learner.agent.updates > 0


def test_an_evaluation_keeps_to_masks_and_says_where_nothing_is_allowed() -> None:
    agent = OffPolicyLearner(strict_run()).agent
    for policy in (agent.policy("greedy"), random_policy(agent, 0)):
        assert play(STRICT, agent, policy, 5, 0).episodes == 5
    agent = OffPolicyLearner(strict_run("Stuck-v0(empty=4)")).agent
    with pytest.raises(EnvironmentFault, match="Evaluation, episode 0, step 2: the action mask"):
        play("Stuck-v0", agent, agent.policy("greedy"), 1, 0)


# what there was before


def test_a_run_that_ignored_masks_loads_and_the_setting_is_refused() -> None:
    old = to_mapping(strict_run())
    old["agent"]["ignore_mask"] = YES
    assert Run.of(current(old)) == strict_run()
    with pytest.raises(ConfigError, match="dqn uses the masks that an environment offers"):
        Run.of(old)


def test_environments_of_ones_own_must_have_masks_of_last_observations_too() -> None:
    learner = OffPolicyLearner(strict_run())
    learner.envs.final_mask = None
    with pytest.raises(EnvironmentFault, match="has masks, but none of the observations that"):
        OffPolicyActing(learner.agent, learner.envs)
