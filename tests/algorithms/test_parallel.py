"""Several learners that sum their gradients: equal to one learner on the joined batch."""

import os
import signal
from typing import Any

import pytest
import ray
import torch

from tenfold.config.run import Run
from tenfold.core.errors import ActorFault, ConfigError
from tenfold.training.learners import make_learner

AGENT = {"batch_size": 16, "learning_starts": 40, "every": 4, "capacity": 400, "double": True}
AGENT |= {"net": {"hidden": [16]}, "replay": "prioritized", "target": "hard(5)"}


def learner(**more: Any) -> Any:
    base = {"env": "tenfold/CartPole-v1", "agent": AGENT, "steps": 10_000, "seed": 3}
    return make_learner(Run.of(base | more))


def test_two_learners_equal_one_on_the_joined_batch_and_a_lost_one_ends_the_run() -> None:
    one, two = learner(engine="plain"), learner(engine="parallel", learners=2)
    try:
        for place in (one, two):
            while place.step < 160:
                place.round()
        assert one.agent.updates == two.agent.updates == 30
        for name, value in one.agent.state().items():
            assert torch.allclose(value, two.agent.state()[name], rtol=1e-4, atol=1e-5), name
        assert torch.allclose(
            torch.from_numpy(one.replay.tree), torch.from_numpy(two.replay.tree), rtol=1e-3
        )
        (other,) = two.engine.others
        theirs = ray.get(
            other.__ray_call__.remote(lambda self: (self.agent.online.flat.numpy(), os.getpid()))
        )
        assert torch.equal(torch.tensor(theirs[0]), two.agent.online.flat)  # bit for bit
        os.kill(theirs[1], signal.SIGKILL)
        with pytest.raises(ActorFault, match="Learner 1 was lost: the run stops"):
            while two.step < 400:
                two.round()
    finally:
        one.close()
        two.close()
    assert not ray.is_initialized()


POLICY = {"name": "ppo", "horizon": 32, "minibatches": 3, "epochs": 2, "net": {"hidden": [16]}}
IMPLICIT = "implicit(samples=3, target_samples=3, cosines=8, acting=4)"
TEAM = AGENT | {"distribution": IMPLICIT, "explore": "noisy", "clip_norm": 1.0, "frames": 2}
SHARED: dict[str, Any] = {
    "a policy": {"env": "tenfold/CartPole-v1", "agent": POLICY, "num_envs": 2},
    "a policy of masked choices": {
        "env": "tenfold/JobShop-v0(instance=ft06)",
        "agent": POLICY | {"on_empty": "absent"},
    },
    "a policy on graphs": {
        "env": "tenfold/Durotaxis-v0(mode=nodes,substrate=bend)",
        "num_envs": 2,
        "agent": POLICY | {"on_empty": "absent", "squash": True, "net": {"hidden": [16, 16]}},
    },
    "agents with a network each": {"env": "tenfold/TreasureSmall-v0", "agent": TEAM},
}


@pytest.mark.parametrize(
    "case",
    [case if case == "a policy" else pytest.param(case, marks=pytest.mark.slow) for case in SHARED],
)
def test_shares_of_every_kind_of_batch_add_up_to_the_joined_batch(case: str) -> None:
    one = learner(engine="plain", **SHARED[case])
    two = learner(engine="parallel", learners=2, **SHARED[case])
    try:
        for place in (one, two):
            while place.agent.updates < 6:
                place.round()
        assert one.agent.updates == two.agent.updates
        for name, value in one.agent.state().items():
            assert torch.allclose(value, two.agent.state()[name], rtol=1e-3, atol=2e-5), name
        told = two.engine.statistics()
        for name, number in one.engine.statistics().items():
            assert told[name] == pytest.approx(number, rel=1e-3, abs=1e-5), name
        theirs = ray.get(
            two.engine.others[0].__ray_call__.remote(lambda self: self.agent.online.flat.numpy())
        )
        assert torch.equal(torch.tensor(theirs), two.agent.online.flat)  # bit for bit
    finally:
        one.close()
        two.close()


def test_learners_and_engine_have_to_fit() -> None:
    with pytest.raises(ConfigError, match=r"learners = 2 does not fit engine = auto"):
        learner(learners=2)
    with pytest.raises(ConfigError, match=r"batch_size = 16 does not divide by 3"):
        learner(learners=3, engine="parallel")
    with pytest.raises(ConfigError, match=r"a minibatch has 2 rows, and there are 3 learners"):
        small = POLICY | {"horizon": 6}
        learner(learners=3, engine="parallel", agent=small)
    with pytest.raises(ConfigError, match=r"stack = apart does not fit engine = parallel"):
        learner(
            learners=2, engine="parallel", stack="apart", **SHARED["agents with a network each"]
        )
