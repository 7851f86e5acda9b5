"""Evaluations on the GPU play the episodes that the host plays: the same starts, the same returns
and lengths. Without a GPU in Triton's interpreter."""

from dataclasses import replace
from typing import Any

import pytest
from test_resident import learner

from tenfold.algorithms.kernels.dqn_resident_runs import HostRun, ResidentDQNRuns
from tenfold.core.random import Purpose
from tenfold.engines.resident import Group
from tenfold.evaluation.evaluator import EpisodeEvaluator
from tenfold.evaluation.player import EpisodeQueue, Score, StepBudget

KINDS: dict[str, dict[str, Any]] = {
    "CartPole": {"double": False},
    "dueling Acrobot": {"env": "tenfold/Acrobot-v1", "dueling": True},
    "quantiles of a car": {"env": "tenfold/MountainCar-v0", "distribution": "quantile(3)"},
}


def both(
    options: dict[str, Any], device: str, episodes: int, limit: int = 30_000, steps: int = 10**6
) -> list[tuple[Score, Score]]:
    """Of two seeds: what the host finds, and the device."""
    learners = [learner(options, 8, seed) for seed in (1, 4)]
    for each in learners:
        each.agent.online.flat.mul_(3)  # so that actions differ from state to state
        each.run = replace(each.run, eval_episodes=episodes, episode_limit=limit, eval_steps=steps)
    group = Group(
        learners,
        ResidentDQNRuns([HostRun(each.agent, each.replay, each.envs) for each in learners], device),
    )
    allowance = StepBudget(steps, min(500, limit))
    found = []
    for each in learners:
        judge = EpisodeEvaluator(each.run)
        found.append(
            (
                judge.play(each, limit, allowance, bool),
                judge.play_together(group, each, limit, allowance, bool),
            )
        )
    return found


def require_same(scores: list[tuple[Score, Score]]) -> None:
    for host, device in scores:
        assert host.lengths == device.lengths and host.cut == device.cut
        assert device.returns == pytest.approx(host.returns)


def test_episodes_are_those_of_the_host() -> None:
    scores = both(KINDS["CartPole"], "cpu", 18)  # more than a program plays
    require_same(scores)
    assert scores[0][0].returns != scores[1][0].returns


@pytest.mark.parametrize("kind", list(KINDS)[1:])
def test_episodes_are_cut_as_on_the_host(kind: str) -> None:
    scores = both(KINDS[kind], "cpu", 2, limit=6)
    require_same(scores)
    assert scores[0][0].cut == 2 and scores[0][0].lengths == [6, 6]


def test_an_allowance_leaves_the_same_episodes_out() -> None:
    scores = both(KINDS["CartPole"], "cpu", 5, limit=20, steps=42)
    require_same(scores)
    assert len(scores[0][0].returns) < 5


@pytest.mark.parametrize("steps", [30, 100, 260, 400, 1000])
def test_a_rota_knows_beforehand_whom_there_is_an_allowance_for(steps: int) -> None:
    """Against steps made one by one: each lane's episode ends after its length."""
    lengths = [(7 * number) % 23 + 1 for number in range(60)]
    rota, told = (EpisodeQueue(60, StepBudget(steps, 23)) for _ in range(2))
    number, left = list(range(rota.lanes)), lengths[: rota.lanes]
    begun = list(number)
    while any(each < 60 for each in number):
        left = [each - 1 for each in left]
        rota.spend(sum(each < 60 for each in number))
        for lane in range(rota.lanes):
            if number[lane] < 60 and left[lane] == 0:
                number[lane] = 60
                number[lane] = rota.following(sum(each < 60 for each in number))
                if number[lane] < 60:
                    begun.append(number[lane])
                    left[lane] = lengths[number[lane]]
    assert told.played(lengths) == sorted(begun)


def test_one_evaluation_serves_all_learners_until_they_have_learned_on() -> None:
    learners = [learner({}, 4, seed) for seed in (3, 8)]
    seeds = ResidentDQNRuns(
        [HostRun(each.agent, each.replay, each.envs) for each in learners], "cpu"
    )
    group, played = Group(learners, seeds), []
    play = seeds.play
    seeds.play = lambda *given: played.append(given) or play(*given)  # type: ignore[method-assign]
    asked = (2, 5, Purpose.SELECT, "greedy")
    for each in learners:
        assert group.evaluate(each, *asked).lengths.tolist() == [5, 5]
    assert len(played) == 1
    group.run(1)
    group.evaluate(learners[0], *asked)
    assert len(played) == 2
    assert group.evaluate(learners[0], 2, 900, Purpose.SELECT, "greedy", lambda: True) is not None


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_episodes_are_those_of_the_host(kind: str) -> None:
    require_same(both(KINDS[kind], "cuda", 20))
