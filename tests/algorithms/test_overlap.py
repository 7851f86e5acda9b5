"""Updates that run while environments step: after acting, of what is stored by then."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train

STARTS = 10
SMALL = {"learning_starts": STARTS, "batch_size": 8, "capacity": 200, "net": {"hidden": [8]}}


def a_run(name: str = "dqn", engine: str = "plain", **more: Any) -> Run:
    env = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    given = {"env": env, "engine": engine, "overlap": True, "steps": 60, "eval_every": 0}
    return Run.of(given | {"agent": {"name": name} | SMALL} | more)


@pytest.mark.parametrize("lanes", [1, 3])
def test_updates_come_between_acting_and_the_step(lanes: int) -> None:
    learner: Any = make_learner(a_run(num_envs=lanes))
    calls: list[Any] = []
    explore, update, step = learner.engine.explore, learner.engine.update, learner.envs.step

    def noted(name: str, call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            calls.append((name, learner.step, int(learner.replay.count[0])))
            return call(*arguments)

        return run

    learner.engine.explore, learner.engine.update = noted("act", explore), noted("update", update)
    learner.envs.step = noted("step", step)
    rounds = 30
    for _ in range(rounds):
        learner.round()
    assert calls[:2] == [("act", 0, 0), ("step", 0, 0)]
    late = [(name, at) for name, at, _ in calls if at > STARTS + lanes]
    steps = sorted({at for _, at in late})
    assert late == [(name, at) for at in steps for name in ("act", "update", "step")]
    # all that fell due by then: the last round's come with the next one
    assert learner.agent.updates == lanes * (rounds - 1 - STARTS // lanes)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_engines_make_the_same_updates(name: str, tmp_path: Path) -> None:
    """The fused engine's updates are repeated by the plain one; its rows are the plain run's."""
    learners: list[Any] = [make_learner(a_run(name, engine)) for engine in ("plain", "fused")]
    for learner in learners:
        while learner.agent.updates < 3:
            learner.round()
    plain, fused = learners
    assert fused.description.name == "fused" and fused.rounds_by == "learner"
    assert plain.step == fused.step
    assert np.allclose(plain.agent.online.flat, fused.agent.online.flat, rtol=1e-3, atol=1e-4)
    train(a_run(name, "fused", verify=1), tmp_path / "verified", quiet=True)


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_a_resumed_run_is_that_which_never_stopped(engine: str, tmp_path: Path) -> None:
    run = a_run(engine=engine, num_envs=2, checkpoint_every=30)
    train(run, tmp_path / "whole", quiet=True)
    train(a_run(engine=engine, num_envs=2, steps=30), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", 60, quiet=True)
    whole, half = (
        read_arrays(sorted((tmp_path / name / "checkpoints").glob("step-*.safetensors"))[-1])[0]
        for name in ("whole", "half")
    )
    for name, value in whole.items():
        if "sums" not in name:
            assert np.array_equal(value, half[name]), name


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "ppo"}, "is for agents with a replay memory: ppo has none"),
        ({"actors": 2}, "is for one actor in the learner's process"),
        ({"where": "processes"}, "is for one actor in the learner's process"),
    ],
)
def test_where_nothing_can_overlap_it_is_refused(change: dict[str, Any], sentence: str) -> None:
    agent = {"agent": change} if "name" in change else change
    with pytest.raises(ConfigError, match="overlap = true") as error:
        Run.of({"overlap": True} | agent)
    assert sentence in str(error.value)
