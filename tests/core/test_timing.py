from time import perf_counter_ns
from typing import Any

import pytest

from tenfold.config.run import Run
from tenfold.core.timing import Clock
from tenfold.training.learners import make_learner


def test_what_a_compiled_call_knows_is_taken_from_the_stage_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([1000, 1900, 2000, 2200])
    monkeypatch.setattr("tenfold.core.timing.perf_counter_ns", lambda: next(moments))
    clock = Clock()
    clock.start()
    clock.share({"update": 600, "act": 100}, "env")
    clock.lap("store")
    assert {name: spent for name, spent in clock.spent.items() if spent} == {
        "env": 200,
        "update": 600,
        "act": 100,
        "store": 100,
    }
    assert clock.sentence() == "update 60% · env 20% · act 10% · store 10%"
    clock.share({"update": 300, "act": 100}, "env")  # more than the 200 that passed
    assert clock.spent["update"] == 600 + 150 and clock.spent["act"] == 100 + 50
    assert clock.spent["env"] == 200


@pytest.mark.parametrize("rare", [{}, {"every": 64, "updates": 64}])
@pytest.mark.parametrize("engine", ["fused", "plain"])
def test_the_time_of_every_stage_of_every_round_is_known(engine: str, rare: dict[str, Any]) -> None:
    """Nothing is scaled up: what stages took together is what passed, and updates that come rarely
    are not missed. One of batch 256 is most of a round."""
    agent = {"batch_size": 256, "learning_starts": 64, "net": {"hidden": [64, 64]}} | rare
    learner = make_learner(Run.of({"engine": engine, "agent": agent}))
    learner.warm_up()
    while learner.step < 130:  # what PyTorch loads with the first update is no stage's usual time
        learner.round(130)
    learner.clock, began = Clock(), perf_counter_ns()
    while learner.step < 451:
        learner.round(451)
    passed = perf_counter_ns() - began
    learner.close()
    assert 0.7 * passed < sum(learner.clock.spent.values()) <= 1.1 * passed
    shares = learner.clock.shares()
    assert {"act", "env", "store", "update"} <= set(shares)
    assert shares["update"] + shares.get("sample", 0.0) > 0.5
