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
from tenfold.core.protocols import Asked
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
from tenfold.runs.files import replace_file
from tenfold.runs.folder import of_checkpoint
from tenfold.runs.metrics import latest_row
from tenfold.runs.seeds import SeedsFolder, left_out
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


def shops_of(asked: Asked, run: Run, seed: int) -> tuple[str, list[Instance]]:
    """Those that were asked for, else what the run was trained on: random shops, as many as
    episodes, or its one instance."""
    words, found = asked_instances(asked.options)
    if found:
        return words, found
    arguments = split_name(run.env)[1]
    if "random" not in arguments:
        return "as trained", [named_instance(run.env)]
    rng, shops = np.random.default_rng(seed), RandomShops.parse(**arguments)
    drawn = [shops.draw(rng) for _ in range(asked.episodes)]
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

    def table(self, asked: Asked, env: Any = None) -> tuple[dict[str, Any], ShopTable]:
        trained = load_run(asked.path, asked.checkpoint, env, asked.trust)
        run, agent = trained.run, trained.agent
        set_threads(run.threads)  # CP-SAT has as many seconds as the policy, and one thread
        seed = run.seed if asked.seed is None else asked.seed
        if not isinstance(agent, PlaysAnyShop):
            raise UserError(f"The policy of {asked.path} cannot play shops of any size.")
        words, instances = shops_of(asked, run, seed)
        samples = asked_samples(asked.options)
        with told() as tell:
            table = compare_players(instances, agent.player(), samples, seed, tell=tell)
        about = {
            "run": str(asked.path),
            "env": run.env,
            "shops": words,
            "checkpoint": asked.checkpoint,
            "step": trained.step,
            "seed": seed,
            "samples": samples,
        }
        return about, table

    def judge(self, asked: Asked, env: Any = None) -> ShopTable:
        return self.table(asked, env)[1]

    def find(self, asked: Asked, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The table goes into the run's folder as JSON; with schedules, unless a suite was asked
        for, and a picture of the only one."""
        if asked.video is not None:
            raise UserError("--video films episodes, and schedules have none.")
        about, table = self.table(asked)
        found = about | table.as_json(schedules=not asked.options.get("suite"))
        name = table_name(about["shops"], asked.options)
        file = of_checkpoint(asked.path / FOLDER / f"{name}.json", asked.checkpoint)
        file.parent.mkdir(exist_ok=True)
        replace_file(file, json.dumps(found, indent=1).encode())
        found["table"] = str(file)
        if len(table.instances) == 1:
            schedule = table.best_schedule(0)
            chart = of_checkpoint(asked.path / "gantt.png", asked.checkpoint)
            makespan = max(s.end for s in schedule)
            title = f"{table.instances[0].name}, makespan {makespan}"
            replace_file(chart, as_png(gantt_figure(schedule, title)))
            found |= {"gantt": str(chart), "picture": gantt_text(schedule)}
        return found

    def lines(self, asked: Asked, found: dict[str, Any]) -> list[str]:
        count = len(found["instances"])
        said = [
            f"{found['shops']} ({count} instance{'s' * (count > 1)}), checkpoint "
            f"{found['checkpoint']} (step {found['step']:,}), seed {found['seed']}",
            *lines(found),
        ]
        own, chance = (
            found["mean_gaps"].get(f"{kind}best of {found['samples']}")
            for kind in ("", "random active, ")
        )
        if own is not None and chance is not None and own >= chance:
            said.append(
                f"  after {found['step']:,} steps its samples are no better than chance among the "
                "same choices (random active): train longer"
            )
        if "CP-SAT" in found["players"]:
            seconds = [row["seconds"]["CP-SAT"] for row in found["instances"]]
            said.append(
                "  CP-SAT: one thread, in the seconds that the samples took: "
                f"{min(seconds):.2f} to {max(seconds):.2f} for each instance"
            )
        if "picture" in found:
            said += [found["picture"], f"  chart      {found['gantt']}"]
        return [*said, f"  table      {found['table']}"]

    def find_seeds(self, asked: Asked) -> dict[str, Any]:
        folder = SeedsFolder.open(asked.path, asked.trust)
        ready = folder.ready(asked.checkpoint)
        members = [self.find(replace(asked, path=folder.member(own))) for own in ready]
        return {
            "run": str(asked.path),
            "env": members[0]["env"],
            "shops": members[0]["shops"],
            "members": members,
            "played": list(ready),
            "left_out": [seed for seed in folder.seeds if seed not in ready],
        }

    def lines_of_seeds(self, asked: Asked, found: dict[str, Any]) -> list[str]:
        members = dict(zip(found["played"], found["members"], strict=True))
        names = list(found["members"][0]["players"])
        said = [f"{found['shops']}, checkpoint {asked.checkpoint}: mean gap of each seed"]
        for seed, member in members.items():
            own = "   ".join(f"{name} {percent(member['mean_gaps'][name])}" for name in names[:2])
            said.append(f"  seed {seed:<4} {own}")
        others = "   ".join(
            f"{name} {percent(found['members'][0]['mean_gaps'][name])}" for name in names[2:]
        )
        said.append(f"  beside    {others}")
        return said + ([f"  {left_out(found['left_out'])}"] if found["left_out"] else [])

    def conclusion(self, result: Any) -> list[str]:
        last = latest_row(result.path / "metrics.jsonl", "eval")
        if not last or result.best_evaluation is None:
            return []
        return [
            f"makespans of new shops ({result.run.eval_policy}) above their lower bounds: last "
            f"{-last['mean_return']:.1f} %, best {-result.best_evaluation:.1f} %"
        ]

    def onward(self, path: Path, many: bool = False) -> str:
        return f"play any shop: tenfold eval {path} --suite la"
