from time import perf_counter_ns
from typing import Any

import pytest

from tenfold.config.run import Run
from tenfold.core.timing import Clock
from tenfold.training.learners import make_learner


def test_what_a_compiled_call_knows_is_taken_from_the_stage_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([1000, 1900, 2000])
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


@pytest.mark.parametrize("rare", [{}, {"every": 64, "updates": 64}])
@pytest.mark.parametrize("engine", ["fused", "plain"])
def test_from_the_first_round_on_the_time_of_every_stage_is_known(
    engine: str, rare: dict[str, Any]
) -> None:
    """Nothing is scaled up: what stages took together is what passed, and updates that come rarely
    are not missed. One of batch 256 is most of a round."""
    agent = {"batch_size": 256, "learning_starts": 64, "net": {"hidden": [64, 64]}} | rare
    learner = make_learner(Run.of({"engine": engine, "agent": agent}))
    learner.warm_up()
    began = perf_counter_ns()
    while learner.step < 321:
        learner.round(321)
    passed = perf_counter_ns() - began
    learner.close()
    assert 0.7 * passed < sum(learner.clock.spent.values()) <= 1.1 * passed
    shares = learner.clock.shares()
    assert {"act", "env", "store", "update"} <= set(shares)
    assert shares["update"] > 0.5
