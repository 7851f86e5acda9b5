"""One default for each setting, whatever the way in."""

from dataclasses import dataclass, field, replace

import pytest

import tenfold as ten
from tenfold.config.agent_config import AgentConfig, field_specs
from tenfold.config.files import named
from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, DerivedDefault, to_mapping


@pytest.mark.parametrize("agent", AgentConfig.kinds())
def test_every_way_in_has_the_same_defaults(agent, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(f"agent: {{name: {agent}}}\n")
    expected = ten.Run(agent=AgentConfig.kind(agent)())
    assert named(agent) == expected
    assert named(str(file)) == expected
    assert ten.Run.of({"agent": {"name": agent}}) == expected
    assert ten.Run.of(to_mapping(expected)) == expected


def test_steps_follow_the_agent_and_the_help_says_so():
    assert (ten.Run(agent=ten.Explorer()).steps, ten.Run(agent=ten.DQN()).steps) == (10_000, 50_000)
    assert ten.Run(agent=ten.Explorer(), steps=3).steps == 3
    assert replace(ten.Run(agent=ten.Explorer()), seed=5).steps == 10_000
    told = {leaf.path: show(leaf.default) for leaf in field_specs(ten.Run)}
    assert told["steps"] == "10000 where agent.name is explorer, else 50000"
    assert told["env"] == (
        "Pendulum-v1 where agent.name is sac, Pendulum-v1 where agent.name is td3, "
        "tenfold/LimitCycle-v0 where agent.name is explorer, else CartPole-v1"
    )


class ByPlace(DerivedDefault):
    def of(self, config):
        return 4 if config.place == "north" else 2

    def __str__(self):
        return "4 where place is north, else 2"


@dataclass(frozen=True)
class Heat(Config):
    rounds: Count = field(default=ByPlace())  # type: ignore[assignment]
    """how often"""
    place: str = "south"
    """where"""


def test_a_default_that_follows_is_decided_when_the_settings_are_made():
    assert (Heat().rounds, Heat(place="north").rounds, Heat(place="north", rounds=7).rounds) == (
        2,
        4,
        7,
    )
    assert Heat.of({"place": "north"}).rounds == 4
    assert show(next(iter(field_specs(Heat))).default) == "4 where place is north, else 2"


def test_minibatches_hold_64_steps_unless_their_number_is_given():
    assert [ten.PPO().minibatch_count(rows) for rows in (1, 63, 64, 2048, 2100)] == [
        1,
        1,
        1,
        32,
        32,
    ]
    assert ten.PPO(minibatches=5).minibatch_count(2048) == 5
