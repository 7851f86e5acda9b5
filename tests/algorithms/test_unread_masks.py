"""An environment that offers masks to an agent that cannot use them is refused, wherever they are
offered and whenever; never are they overlooked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tenfold as ten
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.evaluation.player import play
from tenfold.training.learners import agent_of, make_learner

ONE, REAL = gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))
SEEN = gym.spaces.Box(-1, 1, (2,))


class Offering(gym.Env[Any, Any]):
    """Offers masks from step `first` of episode `episode` on: in the info, in the observation, or
    in an observation whose space does not tell of it."""

    def __init__(
        self, where: str = "info", first: int = 0, episode: int = 0, real: bool = False
    ) -> None:
        self.where, self.first, self.episode, self.count = where, first, episode, -1
        self.action_space = REAL if real else ONE
        self.observation_space = {
            "obs": gym.spaces.Dict({"seen": SEEN, "action_mask": gym.spaces.MultiBinary(3)}),
            "hidden": gym.spaces.Dict({"seen": SEEN}),
        }.get(where, SEEN)

    def told(self) -> tuple[Any, dict[str, Any]]:
        seen: Any = np.zeros(2, np.float32)
        offers = self.t >= self.first and self.count >= self.episode
        mask = {"action_mask": np.ones(3, np.int8)} if offers else {}
        if self.where == "info":
            return seen, mask
        return seen if self.where == "nowhere" else {"seen": seen, **mask}, {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.count = 0, self.count + 1
        return self.told()

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, info = self.told()
        return obs, 0.0, self.t == 5, False, info


class Own(ten.Algorithm):
    """Does nothing, and knows nothing of masks."""

    class Config(ten.AgentConfig):
        lr: float = 1e-3
        """learning rate"""

    config = Config

    def build(self, spec: Any, config: Any) -> None:
        self.policy = ten.nets.mlp(spec.layout.size, (4,), max(spec.options, spec.numbers))

    def act(self, obs: Any, draw: Any) -> Any:
        found = self.policy(obs)
        return found if self.spec.numbers else found.argmax(-1)

    def round(self, rollout: Any) -> Any:
        return self.step(self.policy(rollout.obs[0]).sum())


@pytest.fixture(autouse=True)
def offering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    gym.register("Offering-v0", Offering)
    yield
    del gym.registry["Offering-v0"]


OWN = f"{__name__.rpartition('.')[2]}:Own"


def run_of(agent: str, env: str, **more: Any) -> Run:
    settings: dict[str, Any] = {"name": agent}
    if agent in ("sac", "td3"):
        settings |= {"learning_starts": 10, "net": {"hidden": [8]}}
    return Run.of({"env": env, "agent": settings, "steps": 100, "eval_every": 0} | more)


def play_some(run: Run) -> None:
    learner = make_learner(run)
    try:
        for _ in range(30):
            learner.round()
    finally:
        learner.close()


@pytest.mark.parametrize(
    ("agent", "options", "way_out"),
    [
        ("sac", "", "train dqn or ppo"),
        ("sac", "(where=obs)", "train dqn or ppo"),
        ("td3", "(real=true)", "leave the mask out, since real numbers have no options to forbid"),
        (OWN, "", "train dqn or ppo"),
        (OWN, "(where=obs)", "train dqn or ppo"),
    ],
)
def test_masks_are_refused_before_anything_is_learned(
    agent: str, options: str, way_out: str
) -> None:
    env = f"Offering-v0{options}"
    said = f"offers an action mask, which agent {agent} cannot use: {way_out}."
    for made in (make_learner, agent_of):
        with pytest.raises(EnvironmentFault) as error:
            made(run_of(agent, env))
        assert str(error.value) == f"{env} {said}"


@pytest.mark.parametrize("where", ["serial", "processes"])
def test_actors_elsewhere_are_refused_them_as_well(where: str) -> None:
    run = run_of("sac", "Offering-v0", actors=2, where=where)
    with pytest.raises(EnvironmentFault, match="offers an action mask, which agent sac cannot use"):
        make_learner(run)


@pytest.mark.parametrize("agent", ["sac", OWN])
@pytest.mark.parametrize(
    ("options", "place"),
    [("first=1", "episode 0, step 1"), ("episode=1", "episode 1, step 0")],
)
def test_a_mask_that_comes_only_later_is_refused_then(agent: str, options: str, place: str) -> None:
    env = f"Offering-v0({options})"
    with pytest.raises(EnvironmentFault) as error:
        play_some(run_of(agent, env))
    assert f"environment 0, {place} offers an action mask, which this agent" in str(error.value)


@pytest.mark.parametrize("agent", ["dqn", "ppo", "sac"])
def test_a_mask_that_the_observation_space_does_not_tell_of_is_refused(agent: str) -> None:
    said = "episode 0, step 0: the observation has a key action_mask, and its space has none"
    with pytest.raises(EnvironmentFault, match=said):
        make_learner(run_of(agent, "Offering-v0(where=hidden)"))


def test_the_explorer_and_policies_of_real_numbers_have_no_options_to_mask() -> None:
    for agent in ("explorer", "ppo"):
        with pytest.raises(EnvironmentFault, match=r"step 0: the action mask has shape \(3,\)"):
            make_learner(run_of(agent, "Offering-v0(real=true)"))
    with pytest.raises(EnvironmentFault, match="which agent explorer cannot use: train dqn or ppo"):
        make_learner(run_of("explorer", "Offering-v0"))


def test_an_evaluation_elsewhere_is_refused_them() -> None:
    """The agent was trained without."""
    agent = agent_of(run_of("sac", "Offering-v0(where=nowhere)"))
    for env, said in (("Offering-v0", "v0"), ("Offering-v0(first=3)", "episode 0, step 3")):
        with pytest.raises(EnvironmentFault, match=f"{said} offers an action mask, which this"):
            play(env, agent, agent.policy("greedy"), 1, 0)


def test_own_agents_say_that_they_cannot_use_a_mask() -> None:
    agent = agent_of(run_of(OWN, "CartPole-v1"))
    with pytest.raises(UserError, match="Own cannot use action masks: call act without one"):
        agent.act(np.zeros(4, np.float32), mask=[True, False])


class Pair:
    """Two agents; masks from step `first` on."""

    possible_agents = ("one", "two")

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def observation_space(self, agent: str) -> Any:
        return SEEN

    def action_space(self, agent: str) -> Any:
        return ONE

    def told(self) -> tuple[Any, Any]:
        info = {"action_mask": np.ones(3, np.int8)} if self.t >= self.first else {}
        names = self.possible_agents
        return {a: np.zeros(2, np.float32) for a in names}, {a: dict(info) for a in names}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, list(self.possible_agents)
        return self.told()

    def step(self, actions: Any) -> Any:
        self.t += 1
        obs, infos = self.told()
        rewards, no = dict.fromkeys(actions, 0.0), dict.fromkeys(actions, False)
        return obs, rewards, no, no, infos

    def close(self) -> None:
        """Nothing is open."""


PAIR = f"pettingzoo/{__name__.rpartition('.')[2]}:Pair"


def test_worlds_of_several_agents_are_refused_too() -> None:
    with pytest.raises(EnvironmentFault, match="offers an action mask, which agent sac cannot use"):
        make_learner(run_of("sac", PAIR, share=True))
    with pytest.raises(EnvironmentFault, match="step 2 offers an action mask, which this agent"):
        play_some(run_of("sac", f"{PAIR}(first=2)", share=True))


def test_agents_that_remember_nothing_take_the_state_none() -> None:
    """And give the action alone, as without it."""
    for name, env in (
        ("dqn", "CartPole-v1"),
        ("ppo", "CartPole-v1"),
        ("sac", "Pendulum-v1"),
        (OWN, "CartPole-v1"),
    ):
        agent = agent_of(run_of(name, env))
        obs = np.zeros(agent.layout.shape, np.float32)
        assert np.array_equal(agent.act(obs, state=None), agent.act(obs))
        with pytest.raises(UserError, match="remembers nothing: call act without a state"):
            agent.act(obs, state=np.zeros(3))
