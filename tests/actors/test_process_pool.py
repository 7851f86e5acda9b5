"""Actors in processes of their own: with nobody ahead the run is the serial one, bit for bit."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.actors import pool as choose
from tenfold.actors.pool import InProcessPool
from tenfold.actors.process_pool import ProcessPool
from tenfold.actors.remote import RemotePool
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Learner
from tenfold.training.learners import make_learner
from tenfold.training.loop import train

DQN = {
    "name": "dqn",
    "learning_starts": 30,
    "batch_size": 8,
    "every": 2,
    "capacity": 400,
    "net": {"hidden": [16]},
}
IMPLICIT = DQN | {
    "frames": 3,
    "n_step": 3,
    "double": True,
    "dueling": True,
    "explore": "noisy",
    "clip_norm": 1.0,
    "distribution": "implicit(samples=3, target_samples=3, cosines=8, acting=4)",
}
PPO = {"name": "ppo", "horizon": 16, "epochs": 2, "minibatches": 2, "net": {"hidden": [16]}}
CASES = {
    "dqn": {"env": "CartPole-v1", "agent": DQN, "num_envs": 2},
    "compiled task, prioritised": {
        "env": "tenfold/CartPole-v1",
        "agent": DQN | {"replay": "prioritized", "n_step": 2},
    },
    "five agents": {"env": "tenfold/TreasureSmall-v0", "agent": IMPLICIT, "num_envs": 2},
    "soft actor-critic": {
        "env": "tenfold/Pendulum-v1",
        "agent": DQN | {"name": "sac", "replay": "prioritized", "n_step": 2, "normalize_obs": True},
        "num_envs": 2,
    },
    "td3": {"env": "tenfold/Pendulum-v1", "agent": DQN | {"name": "td3"}},
    "policy": {"env": "tenfold/CartPole-v1", "agent": PPO, "num_envs": 2},
    "normalised policy": {
        "env": "CartPole-v1",
        "agent": PPO | {"normalize_obs": True},
        "num_envs": 2,
    },
    "masked policy": {
        "env": "tenfold/JobShop-v0(instance=ft06)",
        "agent": PPO | {"on_empty": "absent"},
        "num_envs": 1,
    },
    "colony's policy": {
        "env": "tenfold/Durotaxis-v0(mode=nodes,substrate=bend)",
        "num_envs": 2,
        "agent": PPO | {"on_empty": "absent", "squash": True, "net": {"hidden": [16, 16]}},
    },
}


@contextmanager
def playing(case: dict, **more: object) -> Iterator[Learner]:
    place = make_learner(Run.of(case | {"actors": 2, "seed": 3, "steps": 10_000} | more))
    try:
        yield place
    finally:
        place.close()


def play(place: Learner, steps: int) -> None:
    while place.step < steps:
        place.round(steps)


# Q-learning's plainest case is also below, in a run that moves, and a policy's in that which
# normalises
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if case in ("dqn", "policy", "td3") else case
        for case in CASES
    ],
)
def test_synchronous_processes_equal_the_serial_run_bit_for_bit(case: str) -> None:
    ahead = 3 if "policy" in case else 0  # a policy waits for its learner anyway
    ends = {"steps": 260, "checkpoint_every": 200}
    with (
        playing(CASES[case], where="serial", **ends) as serial,
        playing(CASES[case], where="processes", ahead=ahead, **ends) as processes,
    ):
        assert isinstance(processes.pool, ProcessPool)
        for place in (serial, processes):
            play(place, 200)
            place.settle()
            play(place, 260)
            place.settle()  # as before checkpoints: nobody is ahead there
        assert serial.step == processes.step == 260
        assert serial.agent.updates == processes.agent.updates > 10
        assert torch.equal(serial.agent.block, processes.agent.block)
        for name, value in serial.agent.state().items():
            assert torch.equal(value, processes.agent.state()[name]), name
        assert np.array_equal(serial.envs.obs, processes.envs.obs)
        if case == "colony's policy":
            assert (
                isinstance(processes, PPOLearner)
                and processes.rollout.rewards[..., 1:].any(axis=(0, 1)).sum() > 4
            )
        if serial.rows and processes.rows:
            for name, value in serial.rows.state().items():
                assert np.array_equal(value, processes.rows.state()[name]), name


def test_actors_have_environments_and_draws_of_their_own() -> None:
    with playing(CASES["dqn"], where="serial") as place:
        first = place.envs.obs.copy()
        assert len({tuple(row) for row in first.tolist()}) == 4
        assert place.pool
        agents = [actor.agent for actor in place.pool.actors]
        draws = [agent.random_actions(0, 50, None).tolist() for agent in agents]
        assert draws[0] != draws[1]
    with playing(CASES["dqn"], num_envs=4, actors=1) as alone:
        # the partition changes nothing in the environments
        assert np.array_equal(alone.envs.obs, first)


@pytest.mark.parametrize(
    "case", ["dqn", pytest.param("policy", marks=pytest.mark.slow), "colony's policy"]
)
def test_a_run_moves_from_one_process_to_several_and_back(case: str) -> None:
    """State saved in either arrangement goes on in the other as if nothing had happened."""
    many = case == "colony's policy"  # a state that is more than a pipe holds
    wide, longer = {"num_envs": 8} if many else {}, 4 if many else 1
    with playing(CASES[case], where="serial", **wide) as whole:
        play(whole, 300 * longer)
        expected = whole.agent.block.clone()
    state, rows = None, None
    for where, until in (("serial", 120), ("processes", 200), ("serial", 300)):
        with playing(CASES[case], where=where, ahead=0, **wide) as place:
            if state:
                if place.rows:
                    assert rows
                    place.rows.load_rows(rows)
                assert place.load_state(state)
            play(place, until * longer)
            place.settle()
            state = {
                part: {
                    k: torch.as_tensor(v).clone() if part in ("agent", "engine") else np.array(v)
                    for k, v in values.items()
                }
                for part, values in place.state().items()
            }
            rows = place.rows.written(np.zeros_like(place.rows.head)) if place.rows else None
    assert torch.equal(place.agent.block, expected)


@pytest.mark.parametrize("case", ["dqn", pytest.param("policy", marks=pytest.mark.slow)])
def test_asynchronous_actors_deliver_every_row_once(case: str) -> None:
    """Steps, updates and episodes add up, the policies that acted are not older than allowed, and
    the state can be saved."""
    with playing(CASES[case], where="processes", ahead=4, steps=800) as place:
        finished = []
        while place.step < 600:
            finished += place.round()
        finished += place.settle()
        assert place.pool
        report = place.pool.report()
        assert sum(episode.length for episode in finished) <= place.step
        assert len(finished) > 4 and {episode.env for episode in finished} == {0, 1, 2, 3}
        # a policy learns when all rows are there
        assert report["policy_age_most"] <= (2 * (4 + 1) + 4 if case == "dqn" else 0)
        assert 0 < report["actors_env"] < 1
        state = place.state()
        assert int(state["envs"]["0.rounds"]) + int(state["envs"]["1.rounds"]) == place.step / 2
        if place.rows:
            assert place.rows.rows == place.step if place.step < 300 else place.rows.rows > 300
        play(place, 800)  # and it goes on, to its end and no further
        assert place.settle() == [] and place.step == 800


def test_what_can_be_done_about_a_mask_without_an_option_is_said_in_the_runs_own_words() -> None:
    with (
        playing(CASES["masked policy"], where="serial", agent=PPO) as place,
        pytest.raises(
            UserError, match=r"allows no option of .* component 0.*set agent\.on_empty to absent"
        ),
    ):
        play(place, 500)


def test_one_network_for_a_single_agent_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="share = true is for worlds of several agents, and CartPole-v1 has one"
    ):
        make_learner(Run.of(CASES["dqn"] | {"share": True}))


def test_auto_measures_a_round_and_takes_one_process_where_processes_would_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with playing(CASES["compiled task, prioritised"]) as place:
        assert not isinstance(place.pool, ProcessPool) and place.pool
        assert re.fullmatch(
            r"2 actors in this process: an actor's round takes \d+ us, and processes pay from 300 us on",
            place.where,
        )
    monkeypatch.setattr(choose, "PAYS", 1e-9)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with playing(CASES["compiled task, prioritised"]) as place:
        assert isinstance(place.pool, ProcessPool) and place.where.startswith(
            "2 actors in processes: an actor's round takes"
        )
    with playing(CASES["compiled task, prioritised"], actors=1) as place:
        assert isinstance(place.pool, InProcessPool) and place.where == ""


@pytest.mark.parametrize(
    ("case", "settings", "exact"),
    [
        ("dqn", {"where": "auto"}, True),
        ("dqn", {"where": "auto", "ahead": 4}, False),
        ("dqn", {"where": "serial", "ahead": 4}, True),
        ("dqn", {"where": "processes", "ahead": 0}, True),
        ("dqn", {"where": "processes"}, False),
        ("dqn", {"where": "ray"}, False),
        ("policy", {"where": "auto"}, True),
        ("policy", {"where": "processes"}, True),
        ("policy", {"where": "ray"}, True),
    ],
)
@pytest.mark.parametrize("slow", [False, True])
def test_no_measured_time_decides_what_is_learned(
    case: str,
    settings: dict[str, Any],
    exact: bool,
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`auto` puts actors elsewhere only in step with the learner; who goes on meanwhile is said not
    to be exact."""

    def made(run: Run) -> RemotePool:
        pool = RemotePool.__new__(RemotePool)
        pool.actors = []
        pool.probe_schema(run)
        return pool

    monkeypatch.setattr(choose, "PAYS", 0.0 if slow else 1e9)
    monkeypatch.setattr(choose, "LOOK", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(choose, "in_processes", made)
    monkeypatch.setattr("tenfold.actors.ray_pool.RayPool", made)
    run = Run.of(CASES[case] | {"actors": 2, "num_envs": 1} | settings)
    pool, words = choose.make_pool(run)
    assert pool.asynchronous is not exact
    if settings == {"where": "auto"}:
        assert ("in processes: an actor's round takes" in words) is slow


def test_actors_that_go_on_while_the_learner_learns_are_said_not_to_be_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"actors": 2, "where": "processes", "ahead": 2, "steps": 60, "eval_every": 0}
    run = Run.of(CASES["dqn"] | settings)
    train(run, tmp_path / "run")
    assert (
        "Note: actors go on by up to 2 steps while the learner learns (--ahead 0: none): another "
        "run with this seed, and a resume, will not be exactly the same."
    ) in capsys.readouterr().err
    (session,) = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    assert session["exact_resume"] is False
    assert "; not exact" in (tmp_path / "run" / "report.html").read_text()
