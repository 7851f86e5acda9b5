"""How good a policy is on a job shop: makespans beside the optimum, an untrained policy's and
dispatching rules'; a picture."""

from pathlib import Path
from typing import Any

from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.domains.jobshop.schedule import (
    RULES,
    Schedule,
    check_schedule,
    dispatch,
    gantt_png,
    gantt_text,
    optimum,
    read_instance,
)
from tenfold.envs.adapter import SHOP, split_name
from tenfold.evaluation.player import Agent, Policy, greedy, play, sampling
from tenfold.training.learners import agent_of

SAMPLES = 64  # schedules drawn from a policy, of which the best counts


def is_job_shop(env: str) -> bool:
    return split_name(env)[0] == SHOP


def judge(run: Run, agent: Agent, seed: int, path: Path) -> dict[str, Any]:
    """Makespans by the same budget for everyone, each schedule verified; the best is drawn into
    path/gantt.png."""
    asked = split_name(run.env)[1].get("instance", "ft06")
    instance = read_instance(asked)

    def best_of(player: PPOAgent, policy: Policy, count: int) -> tuple[int, Schedule]:
        played = play(run.env, player, policy, count, seed, limit=run.episode_limit)
        if any("schedule" not in info for info in played.infos):
            raise UserError(
                f"A schedule was cut off after episode_limit = {run.episode_limit} steps: raise it "
                "in config.yaml."
            )
        return min(
            (
                (check_schedule(instance, info["schedule"]), info["schedule"])
                for info in played.infos
            ),
            key=lambda f: f[0],
        )

    untrained = agent_of(run)
    # no other agent takes these actions
    assert isinstance(agent, PPOAgent) and isinstance(untrained, PPOAgent)
    best, schedule = best_of(agent, sampling(agent), SAMPLES)
    steady, its_schedule = best_of(agent, greedy(agent), 1)
    schedule = its_schedule if steady < best else schedule
    rules = {
        rule: min(
            check_schedule(instance, dispatch(instance, rule, seed=i))
            for i in range(SAMPLES if rule == "random" else 1)
        )
        for rule in RULES
    }
    found = {
        "greedy_makespan": steady,
        "best_makespan": best,
        "samples": SAMPLES,
        "optimum": optimum(str(asked)),
        "rules": rules,
        "untrained_best_makespan": best_of(untrained, sampling(untrained), SAMPLES)[0],
        "gantt": str(path / "gantt.png"),
        "schedule": [list(map(int, operation)) for operation in schedule],
    }
    gantt_png(schedule, path / "gantt.png", f"{instance.name}, makespan {min(best, steady)}")
    return found | {"picture": gantt_text(schedule)}


def sentences(found: dict[str, Any]) -> str:
    """For a terminal."""
    gap = "" if found["optimum"] is None else f", the optimum is {found['optimum']}"
    rules = ", ".join(f"{rule} {makespan}" for rule, makespan in found["rules"].items())
    return (
        f"  makespan   best of {SAMPLES} samples {found['best_makespan']}, "
        f"greedy {found['greedy_makespan']}{gap}\n"
        f"  untrained  best of {SAMPLES} samples {found['untrained_best_makespan']}\n"
        f"  rules      {rules} (random: best of {SAMPLES})\n{found['picture']}\n"
        f"  chart      {found['gantt']}"
    )
