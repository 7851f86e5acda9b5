"""Masks nested as the actions are: an environment that raises on what they forbid is played by
every agent that can, wherever it acts; agents that cannot use masks are refused it."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.evaluation.player import play, random_policy
from tenfold.training.learners import agent_of, make_learner
from tenfold.training.loop import resume, train
from tenfold.training.run_group import train_seeds

BENCH = Path(__file__).parent.parent.parent / "bench"
NESTED, INSIDE = "strict_environment:Nested-v0", "strict_environment:Nested-v0(inside=true)"
ROBOTS = "pettingzoo/strict_environment:Robots"
SMALL: dict[str, Any] = {
    "name": "ppo",
    "horizon": 32,
    "epochs": 2,
    "minibatches": 2,
    "lr": 1e-3,
    "net": {"hidden": [16]},
}


@pytest.fixture(autouse=True)
def strict_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


def nested_run(env: Any = NESTED, **more: Any) -> Run:
    """Of an environment that raises when an action is taken that its mask forbids."""
    agent = SMALL | more.pop("agent", {})
    usual = {"eval_every": 0, "checkpoint_every": 0, "env": env, "num_envs": 2, "agent": agent}
    return Run.of(usual | {"steps": 256} | more)


@pytest.mark.parametrize(
    ("env", "more"),
    [
        (NESTED, {"engine": "fused"}),
        (NESTED, {"engine": "plain"}),
        (INSIDE, {"engine": "fused", "num_envs": 3}),
        (NESTED, {"agent": {"net": {"memory": "gru(8)", "hidden": [8]}}}),
        (INSIDE, {"agent": {"net": {"memory": "lstm(8)", "hidden": [8]}}, "engine": "plain"}),
        (ROBOTS, {}),
        (NESTED, {"where": "serial", "actors": 2}),
    ],
)
def test_no_forbidden_part_is_ever_chosen(env: str, more: dict[str, Any]) -> None:
    """2,000 steps and some evaluations in an environment that raises."""
    learner = make_learner(nested_run(env, **more))
    try:
        while learner.step < 2_000:
            learner.round()
        agent = learner.agent
        assert agent.updates > 20 and learner.envs.mask.shape[1] == 13
        assert learner.envs.layout.size == 6
        for policy in ("greedy", "sampled"):
            assert play(env, agent, agent.policy(policy), 3, 0).episodes == 3
        assert play(env, agent, random_policy(agent, 0), 3, 0).episodes == 3
    finally:
        learner.close()


def test_the_rollout_holds_the_masks_that_the_environment_gave() -> None:
    from strict_environment import Robot  # type: ignore[import-not-found]

    learner = make_learner(nested_run(num_envs=1, engine="plain"))
    for _ in range(10):
        learner.round()
    robot: Any = learner.envs.envs[0].unwrapped.robot
    assert isinstance(robot, Robot)
    turn, reach = robot.mask["arm"]
    grip, lamp = reach or (np.ones(2), np.ones(4))
    lamps = np.array([[value != 1, value != 0] for value in robot.mask["lamps"]]).ravel()
    expected = np.concatenate([turn, grip, lamp, lamps]).astype(bool)
    assert learner.envs.mask[0].tolist() == expected.tolist()


def test_resume_with_nested_masks_is_never_having_stopped(tmp_path: Path) -> None:
    run = nested_run(steps=512, checkpoint_every=256)
    train(run, tmp_path / "whole", quiet=True)
    train(Run.of(to_mapping(run) | {"steps": 256}), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", steps=512, quiet=True)
    whole, parts = (ten.load(tmp_path / name).online.flat for name in ("whole", "half"))
    assert torch.equal(whole, parts)


def test_actors_in_processes_do_what_they_do_here(tmp_path: Path) -> None:
    found = []
    for where in ("serial", "processes"):
        run = nested_run(where=where, actors=2, ahead=0)
        train(run, tmp_path / where, quiet=True)
        found.append(ten.load(tmp_path / where).online.flat)
    assert torch.equal(*found)


def test_seeds_together_are_each_seed_alone(tmp_path: Path) -> None:
    train_seeds(nested_run(), 2, tmp_path / "both", quiet=True)
    train(nested_run(seed=1), tmp_path / "one", quiet=True)
    alone, beside = (ten.load(tmp_path / name) for name in ("one", "both/seed-1"))
    assert torch.equal(alone.online.flat, beside.online.flat)
    assert ten.evaluate(tmp_path / "both" / "seed-1", episodes=3).episodes == 3


# act, as a person calls it


def shown() -> tuple[Any, list[Any], list[Any]]:
    """An untrained agent; observations; masks in Gymnasium's form."""
    from strict_environment import Robot

    robots = [Robot(np.random.default_rng(seed)) for seed in range(20)]
    agent = agent_of(nested_run())
    return agent, [robot.seen() for robot in robots], [robot.mask for robot in robots]


def allowed_by(agent: Any, action: Any, mask: Any) -> bool:
    flat = agent.mask_form.read(mask)
    (turn, reach), lamps = action["arm"], action["lamps"]
    options = [turn + 1, 3 + reach[0], 5 + reach[1], 9 + lamps[0], 11 + lamps[1]]
    return bool(flat[np.array(options, int)].all())


@pytest.mark.parametrize("sample", [False, True])
def test_act_takes_masks_in_the_form_of_gymnasium(sample: bool) -> None:
    agent, seen, masks = shown()
    for one, mask in zip(seen, masks, strict=True):
        assert allowed_by(agent, agent.act(one, mask, sample=sample), mask)
    together = agent.act(np.stack(seen), masks, sample=sample)
    assert all(allowed_by(agent, a, m) for a, m in zip(together, masks, strict=True))
    for action, one, mask in zip(together, seen, masks, strict=True):
        if not sample:
            assert str(agent.act(one, mask)) == str(action)
    tensors = agent.act(torch.from_numpy(np.stack(seen)), masks, sample=sample)
    assert all(allowed_by(agent, a, m) for a, m in zip(tensors, masks, strict=True))


def test_a_mask_inside_the_observation_counts_in_any_form() -> None:
    agent = agent_of(nested_run(INSIDE))
    env = gym.make(INSIDE.partition("(")[0], inside=True)
    seen = [env.reset(seed=seed)[0] for seed in range(8)]
    chosen = [agent.act(one) for one in seen]
    assert all(
        allowed_by(agent, a, one["action_mask"]) for a, one in zip(chosen, seen, strict=True)
    )
    assert str(agent.act(seen)) == str(chosen)


def test_what_a_person_gives_is_refused_by_its_path() -> None:
    agent, seen, _ = shown()
    none = {"arm": None, "lamps": None, "push": None}
    with pytest.raises(UserError, match=r"^The action mask of arm\.0 has shape \(2,\); expected"):
        agent.act(seen[0], none | {"arm": (np.ones(2), None)})
    nothing = none | {"arm": (None, (np.ones(2), np.zeros(4)))}
    with pytest.raises(
        UserError, match=r"no option of the action's component arm\.1\[1\] in row 0"
    ):
        agent.act(seen[0], nothing)
    with pytest.raises(UserError, match=r"component arm\.1\[1\] in row 1"):
        agent.act(np.stack(seen[:2]), [none, nothing])


def test_a_batch_of_gymnasiums_vector_environments_is_understood() -> None:
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(NESTED)] * 3)
    obs, info = envs.reset(seed=5)
    agent = agent_of(nested_run())
    for _ in range(5):
        actions = agent.act(obs, info["action_mask"], sample=True)
        assert len(actions) == 3
        # a batch of actions as such environments take it
        joined = gym.vector.utils.concatenate(
            envs.single_action_space,
            actions,
            gym.vector.utils.create_empty_array(envs.single_action_space, 3),
        )
        obs, _, ended, cut, info = envs.step(joined)
        if (ended | cut).any():
            break


# components without an option


class Empty(gym.Env[Any, Any]):
    """Nothing of arm.1 is allowed in step `when`."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Dict({"arm": gym.spaces.MultiDiscrete([2, 3])})

    def __init__(self, when: int = 1) -> None:
        self.when = when

    def told(self) -> Any:
        lower = np.full(3, self.t != self.when, np.int8)
        return np.zeros(1, np.float32), {"action_mask": {"arm": (np.ones(2, np.int8), lower)}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.told()

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, info = self.told()
        return obs, 0.0, self.t == 4, False, info


gym.register("Empty-v0", Empty)
NOTHING = r"the action mask allows no option of the action's component arm\[1\]; mend the mask"


@pytest.mark.parametrize(
    "more",
    [
        {"engine": "plain"},
        {"engine": "fused"},
        {"agent": {"net": {"memory": "gru(8)", "hidden": [8]}}},
        {"where": "serial", "actors": 2},
    ],
)
def test_a_component_without_an_option_is_refused_with_its_place(more: dict[str, Any]) -> None:
    learner = make_learner(nested_run("Empty-v0", **more))
    place = r"Empty-v0, environment 0, episode 0, step 1: "
    with pytest.raises(EnvironmentFault, match=place + NOTHING):
        for _ in range(4):
            learner.round()
    learner.close()


@pytest.mark.parametrize("memory", [{}, {"net": {"memory": "gru(8)", "hidden": [8]}}])
def test_an_evaluation_says_where_nothing_is_allowed(memory: dict[str, Any]) -> None:
    agent = agent_of(nested_run("Empty-v0", agent=memory))
    for how in ("greedy", "sampled"):
        with pytest.raises(EnvironmentFault, match="Evaluation, episode 0, step 1: " + NOTHING):
            play("Empty-v0", agent, agent.policy(how), 1, 0)


def test_where_a_component_may_be_absent_it_is() -> None:
    learner = make_learner(nested_run("Empty-v0", agent={"on_empty": "absent"}))
    for _ in range(40):
        learner.round()
    assert learner.agent.updates > 0
    # where an episode terminates no action is needed
    ending = make_learner(nested_run("Empty-v0(when=4)"))
    for _ in range(40):
        ending.round()
    assert ending.agent.updates > 0
