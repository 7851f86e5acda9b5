import gc
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest
import torch

from tenfold.config.run import Run
from tenfold.core.system import Clock, capturing
from tenfold.training.learners import make_learner


def test_what_a_compiled_call_knows_is_taken_from_the_stage_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([1000, 1900, 2000, 2200])
    monkeypatch.setattr("tenfold.core.system.perf_counter_ns", lambda: next(moments))
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
def test_the_time_of_every_stage_of_every_round_is_known(
    engine: str, rare: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is scaled up: what stages took together is what passed, and updates that come rarely
    are not missed. Each look at the clock is a second after the one before; what compiled rounds
    know of themselves is real, and less."""
    looks = count(0, 10**9)
    monkeypatch.setattr("tenfold.core.system.perf_counter_ns", lambda: next(looks))
    agent = {"batch_size": 8, "learning_starts": 64, "net": {"hidden": [9]}} | rare
    learner = make_learner(Run.of({"engine": engine, "agent": agent}))
    learner.warm_up()
    learner.clock = clock = Clock()
    began, bursts = next(looks), 0
    while learner.step < 330:
        updates, spent = learner.agent.updates, clock.spent["update"]
        learner.round(330)
        assert (learner.agent.updates > updates) == (clock.spent["update"] > spent)
        bursts += learner.agent.updates > updates
    passed = next(looks) - began
    learner.close()
    assert bursts >= 4
    assert 0.4 * passed < sum(clock.spent.values()) <= passed
    assert {"act", "env", "store", "update"} <= set(clock.shares())


# CUDA graphs


def test_no_garbage_is_collected_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Any = object()
    asked: list[tuple[Any, ...]] = []

    def of_torch(*given: Any, **named: Any) -> Any:
        asked.append((*given, named["pool"]))
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", of_torch)
    before = gc.isenabled()
    try:
        for collects in (True, False):  # it is as it was afterwards, also behind an error
            (gc.enable if collects else gc.disable)()
            with pytest.raises(RuntimeError, match="not recorded"), capturing(graph, "pool"):
                assert not gc.isenabled()
                raise RuntimeError("not recorded")
            assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
    assert asked == [(graph, "pool")] * 2
