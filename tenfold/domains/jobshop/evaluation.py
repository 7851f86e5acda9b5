"""How good a policy is on a job shop: makespans beside the optimum, an untrained policy's and
dispatching rules'; a picture."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.charts import gantt_figure, gantt_text
from tenfold.domains.jobshop.instances import lower_bound
from tenfold.domains.jobshop.judging import asked_instances, asked_samples
from tenfold.domains.jobshop.schedule import (
    RULES,
    Schedule,
    check_schedule,
    dispatch,
)
from tenfold.domains.jobshop.shops import is_random, named_instance
from tenfold.evaluation.evaluate import EvaluatedRun
from tenfold.runs.charts import as_png
from tenfold.runs.folder import checkpoint_file
from tenfold.runs.storage import replace_file


def deployed(env: str, options: Mapping[str, Any]) -> str:
    """Where a policy with one head for each machine is tried: in its own shop."""
    asked_samples(options)
    found = asked_instances(options)[1]
    if found and is_random(env):
        raise UserError(
            "--instance and --suite are for policies that know no sizes, which agent.name = "
            "dispatcher learns; this one plays random shops of the sizes it was trained on."
        )
    own = named_instance(env) if found else None
    for other in found:
        if own and not (
            np.array_equal(own.machine, other.machine)
            and np.array_equal(own.duration, other.duration)
        ):
            raise UserError(
                f"This policy has one head for each machine of {own.name} and knows that shop "
                f"alone, so it cannot play {other.name}: `tenfold train jobshop-any` trains one "
                "that plays any."
            )
    return env


def judge(played: EvaluatedRun) -> dict[str, Any]:
    """Makespans by the same budget for everyone, each schedule verified; the best is drawn into
    the run's gantt.png (gantt-best.png of the best checkpoint). Of random shops, each another,
    returns say it all."""
    run, agent = played.run, played.agent
    chart, table = (
        checkpoint_file(played.path / name, played.checkpoint)
        for name in ("gantt.png", "makespans.json")
    )
    if is_random(run.env):
        return {}
    samples = asked_samples(played.options)
    instance = named_instance(run.env)

    def best_of(player: Any, how: str, count: int) -> tuple[int, Schedule]:
        infos = played.play(player, how, count).infos
        if any("schedule" not in info for info in infos):
            raise UserError(
                f"A schedule was cut off after episode_limit = {run.episode_limit} steps: raise it "
                "in config.yaml."
            )
        return min(
            ((check_schedule(instance, info["schedule"]), info["schedule"]) for info in infos),
            key=lambda f: f[0],
        )

    best, schedule = best_of(agent, "sampled", samples)
    steady, its_schedule = best_of(agent, "greedy", 1)
    schedule = its_schedule if steady < best else schedule
    rules = {
        rule: min(
            check_schedule(instance, dispatch(instance, rule, seed=i))
            for i in range(samples if rule == "random" else 1)
        )
        for rule in RULES
    }
    found = {
        "greedy_makespan": steady,
        "best_makespan": best,
        "samples": samples,
        "optimum": instance.optimum,
        "best_known": instance.best_known,
        "lower_bound": max(lower_bound(instance), instance.bounds[0] if instance.bounds else 0),
        "rules": rules,
        "untrained_best_makespan": best_of(played.untrained(), "sampled", samples)[0],
        "gantt": str(chart),
        "schedule": [list(map(int, operation)) for operation in schedule],
    }
    figure = gantt_figure(schedule, f"{instance.name}, makespan {min(best, steady)}")
    replace_file(chart, as_png(figure))
    found["picture"] = gantt_text(schedule)
    # for the report
    about = {"checkpoint": played.checkpoint, "step": played.step}
    replace_file(table, json.dumps(about | found, indent=1).encode())
    return found
