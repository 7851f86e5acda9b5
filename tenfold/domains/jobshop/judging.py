"""How policies that play shops of any size are judged when their runs have ended: `tenfold eval`
and `ten.evaluate` give a table of gaps to the best known makespans."""

import hashlib
import json
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
from tenfold.domains.jobshop.charts import gantt_figure, gantt_text
from tenfold.domains.jobshop.classics import classic, suite
from tenfold.domains.jobshop.formats import WRITERS
from tenfold.domains.jobshop.instances import Instance, RandomShops
from tenfold.domains.jobshop.orders import PlaysAnyShop
from tenfold.domains.jobshop.reading import is_name, read_instances
from tenfold.domains.jobshop.shops import named_instance
from tenfold.domains.jobshop.tables import (
    MOST_SAMPLES,
    SAMPLES,
    ShopTable,
    compare_players,
    lines,
    percent,
)
from tenfold.envs.arguments import split_name
from tenfold.runs.charts import as_png
from tenfold.runs.folder import checkpoint_file
from tenfold.runs.metrics import latest_row
from tenfold.runs.seeds import SeedsFolder, left_out
from tenfold.runs.storage import replace_file
from tenfold.training.learners import load_run

FOLDER = "shops"  # of tables, in a run's folder
NAMED = 3  # instances by which a table is called
NAME_LENGTH = 80  # of its file's name


def asked_samples(options: Mapping[str, Any]) -> int:
    asked = options.get("samples")
    if asked is None:
        return SAMPLES
    found = convert_scalar(str(asked), int, "--samples")
    if not 1 <= found <= MOST_SAMPLES:
        raise ConfigError(
            "--samples", f"= {found} is out of range: it must be from 1 to {MOST_SAMPLES:,}."
        )
    return found


def listed(asked: Any) -> list[Any]:
    return [] if asked is None else list(asked) if isinstance(asked, list | tuple) else [asked]


def asked_instances(options: Mapping[str, Any]) -> tuple[str, list[Instance]]:
    """The shops of --instance and --suite, and what they are called together; none where neither is
    given."""
    suites = [str(name) for name in listed(options.get("suite"))]
    found = [classic(name) for each in suites for name in suite(each)]
    given = [shop for file in listed(options.get("instance")) for shop in read_instances(file)]
    names = [*suites, *(shop.name for shop in given[:NAMED])]
    more = f" and {len(given) - NAMED} others" if len(given) > NAMED else ""
    return f"{', '.join(names)}{more}", found + given


def table_name(words: str, options: Mapping[str, Any]) -> str:
    """Of the file that a table is kept in: what its shops are called together, and where that does
    not tell all of them, as of files or of more than a few, a digest of where they come from."""
    name = re.sub(r"[^\w.-]+", "-", words).strip("-.")[:NAME_LENGTH] or "shops"
    sources = listed(options.get("instance"))
    suites = listed(options.get("suite"))
    all_named = all(map(is_name, sources)) and len(sources) <= NAMED
    if all_named and len(words) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(repr(suites).encode())
    for source in sources:
        if isinstance(source, Instance):
            digest.update(repr(WRITERS["standard"](source)).encode())
        else:
            digest.update(repr(str(source if is_name(source) else Path(source).resolve())).encode())
    return f"{name}-{digest.hexdigest()[:8]}"


def shops_of(request: EvalRequest, run: Run, seed: int) -> tuple[str, list[Instance]]:
    """Those that were asked for, else what the run was trained on: random shops, as many as
    episodes, or its one instance."""
    words, found = asked_instances(request.options)
    if found:
        return words, found
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
def told() -> Iterator[Callable[[str], None]]:
    """Says on the terminal what is played just now."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda words: status.update(Text(words))


class ShopGaps:
    """The `Evaluation` of algorithms whose agents are `PlaysAnyShop`."""

    def table(self, request: EvalRequest, env: Any = None) -> tuple[dict[str, Any], ShopTable]:
        trained = load_run(request.path, request.checkpoint, env, request.trust)
        run, agent = trained.run, trained.agent
        set_threads(run.threads)  # CP-SAT has as many seconds as the policy, and one thread
        seed = run.seed if request.seed is None else request.seed
        if not isinstance(agent, PlaysAnyShop):
            raise UserError(f"The policy of {request.path} cannot play shops of any size.")
        words, instances = shops_of(request, run, seed)
        samples = asked_samples(request.options)
        with told() as tell:
            table = compare_players(instances, agent.player(), samples, seed, tell=tell)
        about = {
            "run": str(request.path),
            "env": run.env,
            "shops": words,
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
        """The table goes into the run's folder as JSON; with schedules, unless a suite was asked
        for, and a picture of the only one."""
        if request.video is not None:
            raise UserError("--video films episodes, and schedules have none.")
        about, table = self.table(request)
        found = about | table.as_json(schedules=not request.options.get("suite"))
        name = table_name(about["shops"], request.options)
        file = checkpoint_file(request.path / FOLDER / f"{name}.json", request.checkpoint)
        file.parent.mkdir(exist_ok=True)
        replace_file(file, json.dumps(found, indent=1).encode())
        found["table"] = str(file)
        if len(table.instances) == 1:
            schedule = table.best_schedule(0)
            chart = checkpoint_file(request.path / "gantt.png", request.checkpoint)
            makespan = max(s.end for s in schedule)
            title = f"{table.instances[0].name}, makespan {makespan}"
            replace_file(chart, as_png(gantt_figure(schedule, title)))
            found |= {"gantt": str(chart), "picture": gantt_text(schedule)}
        return found

    def lines(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        count = len(results["instances"])
        said = [
            f"{results['shops']} ({count} instance{'s' * (count > 1)}), checkpoint "
            f"{results['checkpoint']} (step {results['step']:,}), seed {results['seed']}",
            *lines(results),
        ]
        own, chance = (
            results["mean_gaps"].get(f"{kind}best of {results['samples']}")
            for kind in ("", "random active, ")
        )
        if own is not None and chance is not None and own >= chance:
            said.append(
                f"  after {results['step']:,} steps its samples are no better than chance among "
                "the same choices (random active): train longer"
            )
        if "CP-SAT" in results["players"]:
            seconds = [row["seconds"]["CP-SAT"] for row in results["instances"]]
            said.append(
                "  CP-SAT: one thread, in the seconds that the samples took: "
                f"{min(seconds):.2f} to {max(seconds):.2f} for each instance"
            )
        if "picture" in results:
            said += [results["picture"], f"  chart      {results['gantt']}"]
        return [*said, f"  table      {results['table']}"]

    def evaluate_seeds(self, request: EvalRequest) -> dict[str, Any]:
        folder = SeedsFolder.open(request.path, request.trust)
        ready = folder.ready(request.checkpoint)
        members = [self.evaluate(replace(request, path=folder.member(own))) for own in ready]
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
        said = [f"{results['shops']}, checkpoint {request.checkpoint}: mean gap of each seed"]
        for seed, member in members.items():
            own = "   ".join(f"{name} {percent(member['mean_gaps'][name])}" for name in names[:2])
            said.append(f"  seed {seed:<4} {own}")
        others = "   ".join(
            f"{name} {percent(results['members'][0]['mean_gaps'][name])}" for name in names[2:]
        )
        said.append(f"  beside    {others}")
        return said + ([f"  {left_out(results['left_out'])}"] if results["left_out"] else [])

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
