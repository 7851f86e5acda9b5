"""How many numbers the hidden state has: `latent="auto"`.

A model of each size is trained on the same steps of a recording and foretells others, held back
from it. These come from what a run trains on, not from what judges the run. R² is the mean over 1
to 10 steps ahead, and over the pieces that are held back; the error of that mean comes from how the
pieces differ. The smallest model within one standard error of the best one is taken (Breiman et
al., Classification and Regression Trees, 1984): numbers too few are missed at every piece, numbers
too many change little.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Callback
from tenfold.core.system import set_threads
from tenfold.domains.dynamics.config import Explorer, LatentModel
from tenfold.domains.dynamics.forecast import forecasts
from tenfold.domains.dynamics.gap_metrics import forecasts_over_gaps
from tenfold.domains.dynamics.missing import unread
from tenfold.domains.dynamics.recording import Recording
from tenfold.runs.charts import Chart, Line
from tenfold.runs.files import replace_file

MOST = 6  # numbers of a state that are tried
MOST_CENTRES = 1_000  # of a grid of radial basis functions, while sizes are tried
SHARE, LEAST = 3, 1_000  # a trial takes a third of the run's steps, but at least so many
HORIZON = 10  # steps ahead
FEW = 3  # pieces, below which nothing can be said of an error
FILE = "recording.json"  # in a run's folder: what was done with the recording, and this search
BAR = 40  # characters of the longest bar in the terminal


@dataclass(frozen=True)
class Search:
    """Sizes tried, the mean R² of each, its standard error, and the size taken; gradient steps of
    each trial and the pieces it was judged by."""

    tried: tuple[int, ...]
    r2: tuple[float, ...]
    error: tuple[float, ...]
    chosen: int
    steps: int
    pieces: int

    @property
    def sentence(self) -> str:
        return (
            f"a hidden state of {self.chosen} {'numbers' if self.chosen > 1 else 'number'}: the "
            f"least within one standard error of the best R², {max(self.r2):.3f} ± "
            f"{self.error[int(np.argmax(self.r2))]:.3f} with {self.tried[int(np.argmax(self.r2))]} "
            f"({self.pieces} pieces held back from {self.steps:,} gradient steps each)"
        )


def smallest_within(r2: Sequence[float], error: Sequence[float]) -> int:
    """The place of the first one that is no more than one standard error below the best."""
    best = int(np.argmax(r2))
    return next(k for k, found in enumerate(r2) if found >= r2[best] - error[best])


def sized(model: LatentModel, latent: int) -> LatentModel:
    """The same model with so many numbers, and a grid that a trial can bear."""
    grid = min(model.grid, int(MOST_CENTRES ** (1 / latent) + 1e-9))
    return replace(model, latent=latent, grid=grid if model.dynamics == "rbf" else model.grid)


def search(run: Run, recording: Recording, quiet: bool = False) -> Search:
    """Tries 1 … 6 numbers on the steps that a run on the recording trains on."""
    set_threads(run.threads)
    config = run.agent
    assert isinstance(config, Explorer)
    if config.model.decoder == "identity":
        raise ConfigError(
            "latent",
            "= auto has nothing to choose: with decoder identity the state is what is observed.",
        )
    division = recording.divided().kept.divided()
    y, a = (
        np.concatenate(parts) if not division.alone else parts[0]
        for parts in zip(division.choosing, division.judging, strict=True)
    )
    if len(y) < FEW:
        raise UserError(
            f"The recording is too short to choose the size of its hidden state by: {len(y)} "
            f"{'pieces' if len(y) > 1 else 'piece'} could be held back, and {FEW} are needed; say "
            "it with --latent 2."
        )
    steps = min(max(run.steps // SHARE, LEAST), run.steps)
    tried = tuple(range(1, min(MOST, recording.sizes[0]) + 1))
    means, errors = [], []
    for latent in tried:
        start = time.monotonic()
        own = replace(run, agent=replace(config, model=sized(config.model, latent)), members=1)
        scores = trial(own, division.kept, y, a, steps)
        means.append(float(scores.mean()))
        errors.append(float(scores.std(ddof=1) / np.sqrt(len(scores))))
        if not quiet:
            print(
                f"latent {latent} of {tried[0]} … {tried[-1]}: R² {means[-1]:.3f} ± "
                f"{errors[-1]:.3f}   {bar(means[-1])}   {time.monotonic() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    chosen = tried[smallest_within(means, errors)]
    return Search(tried, tuple(means), tuple(errors), chosen, steps, len(y))


def bar(r2: float) -> str:
    return ("█" * round(BAR * max(min(r2, 1.0), 0.0))).ljust(BAR, "·")


def trial(run: Run, kept: Recording, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """R² of each piece y [E, T, Y] under actions a [E, T, A], mean over horizons, by a model that
    was trained on other steps."""
    from tenfold.domains.dynamics.learner import make_agent, put_into
    from tenfold.domains.dynamics.offline import source_of

    bound = np.ones(kept.sizes[1], np.float32)
    sessions = source_of(run.env).sessions
    agent = make_agent(run, kept.sizes[0], -bound, bound, kept.dt, sessions)
    put_into(agent, kept)
    for step in range(1, steps + 1):
        agent.train_step()
        if agent.refit_due(step):
            agent.refit()
    return piece_scores(agent, y, a)


@torch.no_grad()
def piece_scores(agent: Any, y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Mean over horizons of 1 − squared error / variance over all pieces, [E]: their mean is R²."""
    ahead = min(HORIZON, y.shape[1] - 1)
    inner, actions = agent.inner(y[None]), agent.inner_actions(a)[None]
    rolled = forecasts_over_gaps if agent.config.model.missing else forecasts
    found = rolled(agent.online, inner, actions[:, :, :-1], ahead)[0].cpu().double().numpy()
    inside = inner[0].cpu().double().numpy()
    starts = y.shape[1] - ahead
    following = np.stack([inside[:, k : k + starts] for k in range(1, ahead + 1)], 2)
    seen = ~np.isnan(following) & ~unread(inside[:, :starts])[:, :, None, None]
    known = np.where(seen, following, 0.0)
    mean = known.sum((0, 1, 2)) / np.maximum(seen.sum((0, 1, 2)), 1)
    error, spread = (
        np.square(np.where(seen, known - other, 0.0)).sum((1, 3))
        for other in (found[:, :starts], mean)
    )  # [E, K]
    usual = np.maximum(spread.mean(0), np.finfo(np.float64).tiny)
    return np.nan_to_num(1 - error / usual, nan=-1e9, neginf=-1e9).mean(1)


# kept with the run


class Kept(Callback):
    """Writes what was done with a recording into the run's folder, as soon as there is one."""

    def __init__(self, notes: Sequence[str], found: Search | None) -> None:
        self.told = {"notes": list(notes), "latent": asdict(found) if found else None}

    def on_start(self, training: Any) -> None:
        replace_file(Path(training.path) / FILE, json.dumps(self.told, indent=1).encode())


def told_of(path: Path) -> tuple[list[str], Search | None]:
    """What is said in a run's folder; nothing where the file is not there or not whole."""
    try:
        told = json.loads((path / FILE).read_text())
        notes, found = [str(note) for note in told["notes"]], told["latent"]
        if found is None:
            return notes, None
        columns = {name: tuple(map(float, found[name])) for name in ("r2", "error")}
        sizes = tuple(map(int, found["tried"]))
        if not len(sizes) == len(columns["r2"]) == len(columns["error"]) > 0:
            return notes, None
        whole = {name: int(found[name]) for name in ("chosen", "steps", "pieces")}
        return notes, Search(sizes, columns["r2"], columns["error"], **whole)
    except (OSError, ValueError, KeyError, TypeError):
        return [], None


def search_chart(found: Search) -> Chart:
    """R² over sizes with one standard error on each side."""
    r2, error = np.array(found.r2), np.array(found.error)
    line = Line(
        "R² on pieces held back ± its error", found.tried, r2, (r2 - error, r2 + error), 0, "dots"
    )
    taken = r2[found.tried.index(found.chosen)] if found.chosen in found.tried else r2.max()
    chosen = Line("taken", [found.chosen], np.array([taken]), None, 3, "dots")
    words = "numbers of the hidden state"
    return Chart("R² over the size of the state", [line, chosen], words, small=True)
