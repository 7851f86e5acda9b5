"""The model card of a packed run, in Markdown; all names are escaped."""

import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.runs.archive import CURVE
from tenfold.runs.charts import Chart, Line, as_png, figure_of
from tenfold.runs.reporter import reporter_of

RESAMPLES = 2000  # of the bootstrap
NORMAL = 1.96  # deviations to either side that hold 95 % of a normal distribution
UNSTATED = "not stated"
# of Markdown inside a line, and what GitHub makes links of
SPECIAL = re.compile(r"([\\`*_\[\]|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


@dataclass(frozen=True)
class Scored:
    """Episodes that a checkpoint played for the card."""

    checkpoint: str
    step: int
    returns: list[float]
    success_rate: float | None = None


@dataclass(frozen=True)
class Card:
    """The content of a card."""

    run: Run
    about: Mapping[str, Any]  # the run's run.json
    rows: list[dict[str, Any]]  # of its metrics, without single episodes
    settings: str  # its config.yaml
    file: str  # the archive's name
    licence: str
    version: str  # of tenfold, when it was packed
    scored: Sequence[Scored] = ()
    random: Sequence[float] = ()  # returns of random actions
    # lines of an algorithm with its own evaluation, instead of scores
    evaluation: Sequence[str] = ()
    seeds: Mapping[str, str] = field(default_factory=dict)  # of all seeds of its experiment


def text(value: Any) -> str:
    """A value as escaped Markdown in one line."""
    line = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return SPECIAL.sub(r"\\\1", html.escape(line, quote=False))


def quoted(value: Any) -> str:
    """A value of the YAML front matter, safe if read as Markdown."""
    return json.dumps(value).replace("<", "\\u003c")


def fenced(content: str, language: str = "") -> str:
    """A code block, with a fence longer than any in the content."""
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content.rstrip()}\n{fence}"


def table(head: Sequence[Any], lines: Iterable[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *([text(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def interval(values: Sequence[float]) -> str:
    """The 95 % percentile bootstrap interval of the mean, with fixed resamples."""
    array = np.array(values, np.float64)
    drawn = np.random.default_rng(0).integers(len(array), size=(RESAMPLES, len(array)))
    low, high = np.quantile(array[drawn].mean(1), [0.025, 0.975])
    return f"{low:.2f} to {high:.2f}"


def card(content: Card) -> str:
    run = content.run
    front = {"library_name": "tenfold", "tags": ["reinforcement-learning", run.agent.name]}
    front |= {"license": content.licence} if content.licence else {}
    facts = {
        "environment": run.env,
        "agent": run.agent.name,
        "seed": run.seed,
        "environment steps": f"{max((row['step'] for row in content.rows), default=0):,}",
        "licence": content.licence or UNSTATED,
        "trained": content.about.get("created", UNSTATED),
        "packed by": f"tenfold {content.version}",
    }
    name = shlex.quote(content.file)
    use = f"tenfold eval {name} --episodes 20\ntenfold export {name} --out policy.onnx"
    python = (
        f"import tenfold as ten\n\nagent = ten.load({content.file!r})\n"
        "action = agent.act(obs)  # mask=mask, where the environment offers masks"
    )
    return "\n\n".join(
        [
            "---\n"
            + "\n".join(f"{key}: {quoted(value)}" for key, value in front.items())
            + "\n---",
            f"# {text(run.agent.name)} on {text(run.env)}",
            f"![Returns over environment steps]({CURVE})",
            table(("", ""), facts.items()),
            "## Scores",
            *scores(content),
            "## Use",
            fenced(use, "bash"),
            fenced(python, "python"),
            "Settings that name modules (`module:Name`) need `--trust`, in Python `trust=True`: "
            "those modules are then imported, and run.",
            "## Command",
            fenced(shlex.join(content.about["command"]) or UNSTATED),
            "## Settings",
            "`tenfold train config.yaml` trains it again.",
            fenced(content.settings, "yaml"),
            "## Versions and machine",
            table(("", ""), {**content.about["versions"], **content.about["machine"]}.items()),
            "",
        ]
    )


def scores(content: Card) -> list[str]:
    """Blocks about episodes played for the card, evaluations during training, and all seeds."""
    blocks = []
    if content.evaluation:
        blocks.append(fenced("\n".join(content.evaluation)))
    if content.scored:
        head = ("policy", "step", "mean return", "95 % interval of the mean", "episodes")
        success = any(score.success_rate is not None for score in content.scored)
        lines = [
            [
                f"{score.checkpoint} checkpoint, {content.run.eval_policy}",
                f"{score.step:,}",
                f"{np.mean(score.returns):.2f}",
                interval(score.returns),
                len(score.returns),
                *(
                    [f"{score.success_rate:.1%}" if score.success_rate is not None else "–"]
                    * success
                ),
            ]
            for score in content.scored
        ]
        mean = f"{np.mean(content.random):.2f}"
        lines.append(["random actions", "–", mean, interval(content.random), len(content.random)])
        lines[-1] += ["–"] * success
        blocks.append("Episodes played for this card, other than those that chose the checkpoint:")
        blocks.append(table((*head, *(["success"] * success)), lines))
    if judged := [row for row in content.rows if row["kind"] == "eval"]:
        best = max(judged, key=lambda row: row["mean_return"])
        kinds = {"last evaluation": judged[-1], "best evaluation": best}
        blocks.append("Evaluations while it trained (the best of many is better by chance too):")
        blocks.append(table(("", "", ""), ([name, *evaluated(row)] for name, row in kinds.items())))
    if content.seeds:
        blocks.append("All seeds of the experiment that this run is one of:")
        blocks.append(table(("", ""), content.seeds.items()))
    return blocks or ["None were measured."]


def evaluated(row: Mapping[str, Any]) -> tuple[str, str]:
    half = NORMAL * row["std_return"] / max(row["episodes"], 1) ** 0.5
    return (
        f"{row['mean_return']:.2f} (95 % interval {row['mean_return'] - half:.2f} to "
        f"{row['mean_return'] + half:.2f}, {row['episodes']} episodes)",
        f"step {row['step']:,}",
    )


def curve(run: Run, rows: list[dict[str, Any]]) -> bytes:
    """The algorithm's main curves over training, as PNG."""
    reporter, lines = reporter_of(run), []
    for spec in reporter.curves(run):
        points = [
            (row["step"], row[spec.column])
            for row in rows
            if row["kind"] == spec.kind and row.get(spec.column) is not None
        ]
        if points:
            steps, values = zip(*points, strict=True)
            lines.append(Line(spec.label, steps, values, None, spec.colour, "dots"))
    drawn = Chart("", lines, reporter.counted(run), reporter.course)
    return as_png(figure_of([drawn], f"{run.agent.name} on {run.env}, seed {run.seed}"))
