"""An agent that learned with masks and is asked to act without one refuses, whatever is asked of it
and in whatever form; None, given on purpose, allows everything. Also the draws of `act`, which no
two observations share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.evaluation.player import play
from tenfold.training.learners import agent_of

BENCH = Path(__file__).parent.parent.parent / "bench"
STRICT = "strict_environment:Strict-v0"  # the info of every reset and step has a mask
INSIDE = "strict_environment:Strict-v0(inside=true)"
NESTED = "strict_environment:Nested-v0"
NET = {"hidden": [8]}
REMEMBERING = {"name": "ppo", "net": NET | {"memory": "gru(3)"}}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": (STRICT, {"name": "dqn", "net": NET}),
    "ppo": (STRICT, {"name": "ppo", "net": NET}),
    "ppo, nested actions": (NESTED, {"name": "ppo", "net": NET}),
    "remembering": (STRICT, REMEMBERING),
    "dispatcher": ("tenfold/JobShop-v0(random=2..3x2..3)", {"name": "dispatcher"}),
}
REFUSED = r"^This agent learned with action masks, and act was given none: call act\(obs, mask=mask"


@pytest.fixture(autouse=True)
def strict_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


def made(env: str, agent: dict[str, Any], **more: Any) -> Any:
    return agent_of(Run.of({"env": env, "agent": agent} | more))


@pytest.mark.parametrize("which", AGENTS)
def test_an_agent_that_learned_with_masks_refuses_to_act_without_one(which: str) -> None:
    agent = made(*AGENTS[which])
    one = np.zeros(agent.layout.shape, agent.layout.dtype)
    batch = np.stack([one, one])
    for obs in (one, batch, torch.from_numpy(one), torch.from_numpy(batch)):
        if which == "dispatcher" and isinstance(obs, torch.Tensor):
            continue  # it takes arrays alone
        with pytest.raises(UserError, match=REFUSED):
            agent.act(obs)
        agent.act(obs, mask=None)
    if "ppo" in which or which == "remembering":
        with pytest.raises(UserError, match=REFUSED):
            agent.act(batch, sample=True)
        agent.act(batch, None, sample=True)


def test_the_members_of_a_team_refuse_as_the_team_does() -> None:
    team = made("pettingzoo/strict_environment:Walkers", {"name": "dqn", "net": NET})
    obs = np.zeros((team.members, *team.layout.shape), team.layout.dtype)
    masks = np.zeros((team.members, team.actions.n), np.bool_)
    masks[:, 1] = True
    for who, seen in ((team, obs), (team.agents[1], obs[1])):
        with pytest.raises(UserError, match=REFUSED):
            who.act(seen)
        who.act(seen, None)
    assert team.act(obs, masks).tolist() == [1] * team.members
    with pytest.raises(UserError, match="The masks of 1 agents were given, and this team has"):
        team.act(obs, masks[:1])


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_mask_inside_the_observation_is_enough_and_of_a_batch_every_one_has_it(name: str) -> None:
    agent = made(INSIDE, {"name": name, "net": NET})
    seen = np.zeros(4, np.float32)
    with_mask = {"seen": seen, "action_mask": np.array([0, 0, 1, 0, 0], np.int8)}
    without = {"seen": seen}
    assert agent.act(with_mask) == 2
    assert agent.act([with_mask, with_mask]).tolist() == [2, 2]
    # whoever says None allows what the observation itself does not forbid
    assert agent.act(with_mask, None) == 2
    for batch, row in (([without, with_mask], 0), ([with_mask, without], 1)):
        with pytest.raises(UserError, match=f"Observation {row} of the batch has no key action_ma"):
            agent.act(batch)
    for obs in (without, [without, without], {"seen": np.stack([seen, seen])}):
        with pytest.raises(UserError, match=REFUSED):
            agent.act(obs)


def test_an_agent_that_learned_without_masks_needs_none() -> None:
    for name in ("dqn", "ppo", "sac"):
        agent = made("tenfold/CartPole-v1", {"name": name, "net": NET})
        assert agent.act(np.zeros(4, np.float32)) in (0, 1)
        assert agent.act(np.zeros(4, np.float32), mask=[False, True]) == 1


def test_episodes_without_masks_are_not_played_by_an_agent_that_learned_with_them() -> None:
    agent = made("tenfold/Assign-v0", {"name": "ppo", "net": NET})
    with pytest.raises(EnvironmentFault, match=r"offers no action masks, and this agent learned"):
        play("tenfold/CartPole-v1", agent, agent.policy("greedy"), 1, 0)


@pytest.mark.parametrize("agent", [{"name": "ppo"}, REMEMBERING, {"name": "sac"}])
def test_batches_of_any_sizes_are_drawn_as_one_after_another(agent: dict[str, Any]) -> None:
    """Of 14 observations in batches of 4, 6, 1 and 3 each has its own random numbers: those that it
    has in one batch of 14."""
    run = ("Pendulum-v1", agent | {"net": {"hidden": [8]} | agent.get("net", {})})
    rows = np.random.default_rng(0).normal(size=(14, 3)).astype(np.float32)

    def drawn(sizes: list[int]) -> np.ndarray:
        acting, ends = made(*run), np.cumsum(sizes)
        found = []
        for size, end in zip(sizes, ends, strict=True):
            action = acting.act(rows[end - size : end], sample=True)
            found.append(action[0] if isinstance(action, tuple) else action)
        return np.concatenate(found)

    whole = drawn([14])
    np.testing.assert_allclose(drawn([4, 6, 1, 3]), whole, atol=1e-5)
    assert len(np.unique(whole)) == 14
