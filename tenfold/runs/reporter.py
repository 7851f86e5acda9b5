"""How the runs of an algorithm are described: while they train, at their end, as one of many seeds,
and on their page (`report`).

`Reporter` is the usual one, of agents that play episodes. An algorithm whose results are others has
one of its own (`Algorithm.make_reporter`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.core.registry import algorithm
from tenfold.runs.charts import Curve
from tenfold.runs.metrics import WINDOW, latest_row, rank
from tenfold.runs.page import Section
from tenfold.runs.schema import Schema

Row = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """One that a run comes to: what it is called in a table, and how it is written."""

    heading: str
    form: str = ","

    def told(self, value: float | None) -> str:
        return "–" if value is None else f"{value:{self.form}}"


class Reporter:
    """Rows are those of a run's metrics without episodes (of a long run some of them, the last and
    the best among them), `path` is the run's folder."""

    # kinds of rows that the algorithm adds to the metrics; all of them are evaluations, with a
    # `score` that the best checkpoint has most of
    rows: dict[str, Schema] = {}
    # what `last_numbers` finds; all but the step are also given for all seeds together
    numbers = {
        "step": Number("step"),
        "return": Number(f"return (last {WINDOW} training episodes)", ",.2f"),
        "last_evaluation": Number("last evaluation", ",.2f"),
        "best_evaluation": Number("best evaluation", ",.2f"),
        "success_rate": Number("success in the best evaluation", ".1%"),
        "steps_to_goal": Number("steps to the goal there", ".1f"),
    }
    course = "return"  # what the curves show

    # while it trains

    def now(self, latest: Row) -> dict[str, str]:
        """For the display, from the latest numbers of all kinds of rows; returns of training are
        shown anyway."""
        return {"evaluated": f"{latest['mean_return']:.1f}"} if "mean_return" in latest else {}

    def progress(self, paths: Sequence[Path]) -> dict[str, str]:
        """Every run's latest number, by what it is called."""
        rows = [latest_row(path / "metrics.jsonl") for path in paths]
        shown = [f"{row['return']:.0f}" if "return" in row else "–" for row in rows]
        return {"returns": " ".join(shown)}

    # when it has ended

    def warning(self, path: Path) -> str:
        """What a person must not miss about what was learned."""
        return ""

    # on its page

    def counted(self, run: Run) -> str:
        return "environment steps"

    def summary(self, rows: list[Row], run: Run) -> dict[str, Any]:
        """The table in front."""
        return returns_summary(rows, run.eval_policy) | updates_summary(rows, self.counted(run))

    def sections(self, path: Path, rows: list[Row], run: Run) -> list[Section]:
        """Behind the curves: what only this algorithm shows."""
        return []

    def curves(self, run: Run) -> tuple[Curve, ...]:
        return (
            Curve("train", "return", "C0", f"training (mean of {WINDOW} episodes)"),
            Curve("eval", "mean_return", "C3", f"evaluation ({run.eval_policy})"),
        )

    # as one of many seeds

    def last_numbers(self, rows: list[Row]) -> dict[str, float | None]:
        """What a run came to; of evaluations that tell successes the best is the one its best
        checkpoint is from."""
        trained = [row for row in rows if row["kind"] == "train"]
        judged = [row for row in rows if row["kind"] == "eval"]
        best = max(judged, key=rank, default={})
        found = {
            "step": trained[-1]["step"] if trained else 0,
            "return": trained[-1].get("return") if trained else None,
            "last_evaluation": judged[-1]["mean_return"] if judged else None,
            "best_evaluation": best.get("mean_return"),
        }
        if "success_rate" in best:
            names = ("success_rate", "steps_to_goal")
            found |= {name: best.get(name) for name in names}
        return found


USUAL = Reporter()


def reporter_of(run: Run) -> Reporter:
    """The one of a run's algorithm."""
    return algorithm(run.agent.name).make_reporter() or USUAL


def returns_summary(rows: list[Row], policy: str) -> dict[str, str]:
    """Of training episodes and of evaluations."""
    last = next((row for row in reversed(rows) if row["kind"] == "train"), {})
    evaluated = [row for row in rows if row["kind"] == "eval"]
    found = {}
    if last.get("episodes") and "return" in last:
        episodes = int(last["episodes"])
        found["episodes"] = f"{episodes:,}"
        found[f"mean return of the last {min(WINDOW, episodes)} training episodes"] = (
            f"{last['return']:.2f}"
        )
    if evaluated:
        final, best = evaluated[-1], max(evaluated, key=rank)
        found[f"last evaluation ({policy})"] = (
            f"{final['mean_return']:.2f} ± {final['std_return']:.2f}"
        )
        found[f"best evaluation ({policy})"] = f"{best['mean_return']:.2f} at step {best['step']:,}"
        if "success_rate" in best and "mean_length" in best:
            found["best evaluation, successes"] = (
                f"{best['success_rate']:.1%}, {best['mean_length']:.1f} steps an episode"
            )
    return found


def updates_summary(rows: list[Row], steps: str) -> dict[str, str]:
    """How far it is, and how fast it was; `steps` says what it counts."""
    last = next((row for row in reversed(rows) if row["kind"] == "train"), None)
    if last is None:
        return {}
    return {
        steps: f"{last['step']:,}",
        "gradient updates": f"{last['updates']:,}",
        "steps per second": f"{last['timing'].get('steps_per_second', 0):,.0f}",
    }
