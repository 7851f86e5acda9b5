"""Evaluates policies of job shops: of one shop by makespans, compared with the optimum, an
untrained policy and dispatching rules; of any shop by gaps to the best known makespan."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from tenfold.config.run import Run
from tenfold.config.schema import convert_scalar
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import EvalRequest
from tenfold.core.system import set_threads
from tenfold.domains.jobshop.formats import WRITERS
from tenfold.domains.jobshop.instances import Instance, RandomShops, lower_bound
from tenfold.domains.jobshop.players import RULES, dispatch
from tenfold.domains.jobshop.reading import classic, is_name, read_instances, suite
from tenfold.domains.jobshop.schedule import Schedule, check_schedule, gantt_figure, gantt_text
from tenfold.domains.jobshop.shops import is_random, named_instance
from tenfold.domains.jobshop.tables import (
    MOST_SAMPLES,
    SAMPLES,
    ShopTable,
    compare_players,
    lines,
    percent,
)
from tenfold.envs.arguments import split_name
from tenfold.evaluation.evaluate import EvaluatedRun
from tenfold.runs.charts import as_png
from tenfold.runs.folder import checkpoint_file
from tenfold.runs.metrics import latest_row
from tenfold.runs.seeds import SeedsFolder, left_out
from tenfold.runs.storage import replace_file, write_json
from tenfold.training.learners import load_run


def check_deployment(env: str, options: Mapping[str, Any]) -> str:
    """Refuses other instances: a policy with one head for each machine plays its own shop only."""
    requested_samples(options)
    instances = requested_instances(options)[1]
    if instances and is_random(env):
        raise UserError(
            "--instance and --suite are for policies that know no sizes, which agent.name = "
            "dispatcher learns; this one plays random shops of the sizes it was trained on."
        )
    trained_on = named_instance(env) if instances else None
    for other in instances:
        if trained_on and not (
            np.array_equal(trained_on.machine, other.machine)
            and np.array_equal(trained_on.duration, other.duration)
        ):
            raise UserError(
                f"This policy has one head for each machine of {trained_on.name} and knows that "
                f"shop alone, so it cannot play {other.name}: `tenfold train jobshop-any` "
                "trains one that plays any."
            )
    return env


def evaluate_shop(played: EvaluatedRun) -> dict[str, Any]:
    """Makespans of the policy and of dispatching rules with the same number of samples, each
    schedule verified. Draws the best one into the run's gantt.png (gantt-best.png of the best
    checkpoint). Random shops are evaluated by returns alone."""
    run, agent = played.run, played.agent
    chart, table = (
        checkpoint_file(played.path / name, played.checkpoint)
        for name in ("gantt.png", "makespans.json")
    )
    if is_random(run.env):
        return {}
    samples = requested_samples(played.options)
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
    greedy, greedy_schedule = best_of(agent, "greedy", 1)
    schedule = greedy_schedule if greedy < best else schedule
    rules = {
        rule: min(
            check_schedule(instance, dispatch(instance, rule, seed=i))
            for i in range(samples if rule == "random" else 1)
        )
        for rule in RULES
    }
    result = {
        "greedy_makespan": greedy,
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
    figure = gantt_figure(schedule, f"{instance.name}, makespan {min(best, greedy)}")
    replace_file(chart, as_png(figure))
    result["picture"] = gantt_text(schedule)
    # for the report
    about = {"checkpoint": played.checkpoint, "step": played.step}
    write_json(table, about | result)
    return result


# policies of any shop


FOLDER = "shops"  # of tables, in a run's folder
NAMED = 3  # instances by which a table is called
NAME_LENGTH = 80  # of its file's name


def requested_samples(options: Mapping[str, Any]) -> int:
    value = options.get("samples")
    if value is None:
        return SAMPLES
    samples = convert_scalar(str(value), int, "--samples")
    if not 1 <= samples <= MOST_SAMPLES:
        raise ConfigError(
            "--samples", f"= {samples} is out of range: it must be from 1 to {MOST_SAMPLES:,}."
        )
    return samples


def as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def requested_instances(options: Mapping[str, Any]) -> tuple[str, list[Instance]]:
    """A title for the shops of --instance and --suite, and the shops; none where neither is
    given."""
    suites = [str(name) for name in as_list(options.get("suite"))]
    classics = [classic(name) for name in suites for name in suite(name)]
    files = [shop for file in as_list(options.get("instance")) for shop in read_instances(file)]
    names = [*suites, *(shop.name for shop in files[:NAMED])]
    more = f" and {len(files) - NAMED} others" if len(files) > NAMED else ""
    return f"{', '.join(names)}{more}", classics + files


def table_name(title: str, options: Mapping[str, Any]) -> str:
    """The name of a table's file: its title, with a digest of the sources where the title does not
    identify them all."""
    name = re.sub(r"[^\w.-]+", "-", title).strip("-.")[:NAME_LENGTH] or "shops"
    sources = as_list(options.get("instance"))
    suites = as_list(options.get("suite"))
    all_named = all(map(is_name, sources)) and len(sources) <= NAMED
    if all_named and len(title) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(repr(suites).encode())
    for source in sources:
        if isinstance(source, Instance):
            digest.update(repr(WRITERS["standard"](source)).encode())
        else:
            digest.update(repr(str(source if is_name(source) else Path(source).resolve())).encode())
    return f"{name}-{digest.hexdigest()[:8]}"


def shops_to_play(request: EvalRequest, run: Run, seed: int) -> tuple[str, list[Instance]]:
    """The requested shops, else those of training: random shops, as many as episodes, or the one
    instance."""
    title, instances = requested_instances(request.options)
    if instances:
        return title, instances
    arguments = split_name(run.env)[1]
    if "random" not in arguments:
        return "as trained", [named_instance(run.env)]
    rng, shops = np.random.default_rng(seed), RandomShops.parse(**arguments)
    drawn = [shops.draw(rng) for _ in range(request.episodes)]
    drawn.sort(key=lambda i: (i.jobs, i.machines))
    return f"random {shops}", [
        Instance(f"random-{n}", i.machine, i.duration, i.machines) for n, i in enumerate(drawn)
    ]


@contextmanager
def show_progress() -> Iterator[Callable[[str], None]]:
    """Shows on the terminal which player plays which shops."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(Text(message))


class ShopGaps:
    """The `Evaluation` of algorithms whose agents have a method `player`."""

    def table(self, request: EvalRequest, env: Any = None) -> tuple[dict[str, Any], ShopTable]:
        trained = load_run(request.path, request.checkpoint, env, request.trust)
        run, agent = trained.run, trained.agent
        set_threads(run.threads)  # CP-SAT has as many seconds as the policy, and one thread
        seed = run.seed if request.seed is None else request.seed
        if not hasattr(agent, "player"):
            raise UserError(f"The policy of {request.path} cannot play shops of any size.")
        title, instances = shops_to_play(request, run, seed)
        samples = requested_samples(request.options)
        with show_progress() as tell:
            table = compare_players(instances, agent.player(), samples, seed, tell=tell)
        about = {
            "run": str(request.path),
            "env": run.env,
            "shops": title,
            "checkpoint": request.checkpoint,
            "step": trained.step,
            "seed": seed,
            "samples": samples,
        }
        return about, table

    def score(self, request: EvalRequest, env: Any = None) -> ShopTable:
        return self.table(request, env)[1]

    def evaluate(
        self, request: EvalRequest, first: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Writes the table into the run's folder as JSON; with schedules, unless a suite was
        requested, and with a Gantt chart if there is one instance."""
        if request.video is not None:
            raise UserError("--video films episodes, and schedules have none.")
        about, table = self.table(request)
        result = about | table.as_json(schedules=not request.options.get("suite"))
        name = table_name(about["shops"], request.options)
        file = checkpoint_file(request.path / FOLDER / f"{name}.json", request.checkpoint)
        file.parent.mkdir(exist_ok=True)
        write_json(file, result)
        result["table"] = str(file)
        if len(table.instances) == 1:
            schedule = table.best_schedule(0)
            chart = checkpoint_file(request.path / "gantt.png", request.checkpoint)
            makespan = max(s.end for s in schedule)
            title = f"{table.instances[0].name}, makespan {makespan}"
            replace_file(chart, as_png(gantt_figure(schedule, title)))
            result |= {"gantt": str(chart), "picture": gantt_text(schedule)}
        return result

    def lines(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        count = len(results["instances"])
        text = [
            f"{results['shops']} ({count} instance{'s' * (count > 1)}), checkpoint "
            f"{results['checkpoint']} (step {results['step']:,}), seed {results['seed']}",
            *lines(results),
        ]
        policy_gap, chance = (
            results["mean_gaps"].get(f"{kind}best of {results['samples']}")
            for kind in ("", "random active, ")
        )
        if policy_gap is not None and chance is not None and policy_gap >= chance:
            text.append(
                f"  after {results['step']:,} steps its samples are no better than chance among "
                "the same choices (random active): train longer"
            )
        if "CP-SAT" in results["players"]:
            seconds = [row["seconds"]["CP-SAT"] for row in results["instances"]]
            text.append(
                "  CP-SAT: one thread, in the seconds that the samples took: "
                f"{min(seconds):.2f} to {max(seconds):.2f} for each instance"
            )
        if "picture" in results:
            text += [results["picture"], f"  chart      {results['gantt']}"]
        return [*text, f"  table      {results['table']}"]

    def evaluate_seeds(self, request: EvalRequest) -> dict[str, Any]:
        folder = SeedsFolder.open(request.path, request.trust)
        ready = folder.ready(request.checkpoint)
        members = [self.evaluate(replace(request, path=folder.member(seed))) for seed in ready]
        return {
            "run": str(request.path),
            "env": members[0]["env"],
            "shops": members[0]["shops"],
            "members": members,
            "played": list(ready),
            "left_out": [seed for seed in folder.seeds if seed not in ready],
        }

    def lines_of_seeds(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        members = dict(zip(results["played"], results["members"], strict=True))
        names = list(results["members"][0]["players"])
        text = [f"{results['shops']}, checkpoint {request.checkpoint}: mean gap of each seed"]
        for seed, member in members.items():
            gaps = "   ".join(f"{name} {percent(member['mean_gaps'][name])}" for name in names[:2])
            text.append(f"  seed {seed:<4} {gaps}")
        others = "   ".join(
            f"{name} {percent(results['members'][0]['mean_gaps'][name])}" for name in names[2:]
        )
        text.append(f"  beside    {others}")
        return text + ([f"  {left_out(results['left_out'])}"] if results["left_out"] else [])

    def conclusion(self, result: Any) -> list[str]:
        last = latest_row(result.path / "metrics.jsonl", "eval")
        if not last or result.best_evaluation is None:
            return []
        return [
            f"makespans of new shops ({result.run.eval_policy}) above their lower bounds: last "
            f"{-last['mean_return']:.1f} %, best {-result.best_evaluation:.1f} %"
        ]

    def next_steps(self, path: Path, many: bool = False) -> str:
        return f"play any shop: tenfold eval {path} --suite la"
