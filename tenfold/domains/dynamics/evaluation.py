"""How models of hidden systems are judged, while they train and when their runs have ended: on
recordings that no training saw."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.protocols import Asked, Evaluated
from tenfold.core.random import Purpose
from tenfold.domains.dynamics import is_recording
from tenfold.domains.dynamics.model_metrics import Recordings, Verdict, judge, random_recordings
from tenfold.domains.dynamics.offline import recalled
from tenfold.domains.dynamics.phase_portrait import write_portrait
from tenfold.domains.dynamics.reporter import KIND, fit_words, latest_fit, shortfall
from tenfold.runs.folder import RunFolder
from tenfold.runs.seeds import SeedsFolder, left_out, sentence, together
from tenfold.training.learners import load


class ModelEvaluator:
    """While a model trains. The recordings are made once, when they are first needed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.recordings: Recordings | None = None

    def judge(self, learner: Any) -> Verdict:
        run = self.run
        self.recordings = self.recordings or random_recordings(run.env, run.eval_episodes)
        return judge(learner.agent, self.recordings)

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        found = self.judge(learner)
        row = {"kind": KIND, "step": learner.step, **found.row()}
        over = learner.step >= self.run.steps
        return Evaluated(row, found.score, warning=shortfall(row) if over else "")

    def final(self, learner: Any) -> Evaluated | None:
        """Of a run that is over, unless its end has been judged already."""
        run = self.run
        if learner.step < run.steps or not run.eval_every or learner.step % run.eval_every == 0:
            return None
        return self.evaluate(learner, [], bool)

    def draw(self, folder: RunFolder, learner: Any) -> None:
        """What the report shows, as arrays beside it. A run that was stopped before it saw anything
        has nothing to show."""
        if learner.step:
            self.judge(learner)
            write_portrait(folder.path, learner.agent, self.run.env, self.recordings)


class Models:
    """An `Evaluation`: the error of the field where the truth is known, and R² of forecasts."""

    def judge(self, asked: Asked, env: Any = None) -> Verdict:
        agent: Any = load(asked.path, asked.checkpoint, env)
        run = RunFolder.open(asked.path)[1]
        seed = run.seed if asked.seed is None else asked.seed
        return judge(agent, random_recordings(run.env, asked.episodes, Purpose.EVALUATE, seed))

    def find(self, asked: Asked) -> dict[str, Any]:
        refuse_film(asked)
        return {"run": str(asked.path), **self.judge(asked).row()}

    def lines(self, asked: Asked, found: dict[str, Any]) -> list[str]:
        return fit_lines(found, steps_judged(RunFolder.open(asked.path)[1].env))

    def find_seeds(self, asked: Asked) -> dict[str, Any]:
        """Every seed's model judged on the same new recordings."""
        refuse_film(asked)
        folder = SeedsFolder.open(asked.path)
        seed = folder.run.seed if asked.seed is None else asked.seed
        ready = folder.ready(asked.checkpoint)
        rows = [
            self.judge(replace(asked, path=folder.member(own), seed=seed)).row() for own in ready
        ]
        found: dict[str, Any] = {
            "run": str(folder.path),
            "env": folder.run.env,
            "members": rows,
            "played": list(ready),
            "left_out": [own for own in folder.seeds if own not in ready],
            "r2": np.mean([row["r2"] for row in rows], 0).tolist(),
        }
        if all("field_error" in row for row in rows):
            found["field_error"] = together([row["field_error"] for row in rows])
        return found

    def lines_of_seeds(self, asked: Asked, found: dict[str, Any]) -> list[str]:
        lines = [f"{found['env']}, checkpoint {asked.checkpoint}, {asked.episodes} recordings"]
        for seed, row in zip(found["played"], found["members"], strict=True):
            error = (
                f"error of the field {row['field_error']:.3f}   " if "field_error" in row else ""
            )
            lines.append(
                f"  seed {seed:<4} {error}R² 1 ahead {row['r2'][0]:.3f}, {len(row['r2'])} ahead "
                f"{row['r2'][-1]:.3f}"
            )
            if words := shortfall(row):
                lines.append(f"            {words}")
        if found["left_out"]:
            lines.append(f"  {left_out(found['left_out'])}")
        if "field_error" in found:
            lines.append(
                f"  error of the field: mean {found['field_error']['mean']:.3f}; "
                f"{sentence(found['field_error'])}"
            )
        r2 = found["r2"]
        lines.append(f"  R²: mean {r2[0]:.3f} 1 ahead, {r2[-1]:.3f} {len(r2)} ahead")
        return lines

    def conclusion(self, result: Any) -> list[str]:
        if result.best_evaluation is None:
            return []
        chose = "on steps that choose the best checkpoint" if is_recording(result.run.env) else ""
        return fit_lines(latest_fit(result.path), chose)

    def onward(self, path: Path, many: bool = False) -> str:
        """There is a model to ask, and no game to play."""
        if many:
            return f"judge them: tenfold eval {path}"
        return f'judge it: tenfold eval {path}   ask it: tenfold.load("{path}").field(z)'


def refuse_film(asked: Asked) -> None:
    if asked.video is not None:
        raise UserError(
            "--video films a policy at play, and an explorer has a field to show: see its report."
        )


def fit_lines(row: dict[str, Any], where: str) -> list[str]:
    """How well a model of the world fits, and on what."""
    lines = [f"{where}:"] if where else []
    return lines + [f"{name}: {value}" for name, value in fit_words(row).items()]


def steps_judged(env: str) -> str:
    """Of a run on recordings, which steps `tenfold eval` judges it by; nothing of other runs."""
    if not is_recording(env):
        return ""
    division = recalled(env).divided()
    steps = division.judging[0].shape[0] * division.judging[0].shape[1]
    chose = (
        "that also chose the best checkpoint: the recording is too short for others"
        if division.alone
        else "that chose nothing"
    )
    return f"on {steps:,} steps held back from training {chose}"
