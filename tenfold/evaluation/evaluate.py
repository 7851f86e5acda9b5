"""What `tenfold eval` and `ten.evaluate` find of runs that ended, and how it is said: of each
algorithm by an `Evaluation` of its own, or by playing episodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Asked, Evaluation
from tenfold.core.registry import algorithm, domain_of, domains
from tenfold.evaluation.episodes import Episodes
from tenfold.runs.folder import RunFolder, is_seeds
from tenfold.runs.seeds import SeedsFolder


def evaluation_of(run: Any) -> Evaluation:
    """How runs of this algorithm are judged."""
    return algorithm(run.agent.name).evaluation() or Episodes()


def evaluate(
    run: Any,
    episodes: int = 20,
    checkpoint: str | int = "last",
    seed: int | None = None,
    *,
    env: Any = None,
    **options: Any,
) -> Any:
    """How good a run is, given by its folder or by what `ten.train` returned: the returns of its
    policy, greedy or as its settings say, or what its algorithm judges itself by. `env` is the
    run's environment again, where it was an object or a function; `options` are those that its
    domain adds to `tenfold eval`."""
    path = Path(getattr(run, "path", run))
    if episodes < 1:
        raise ConfigError("episodes", f"= {episodes} is out of range: it must be at least 1.")
    settings = RunFolder.open(path)[1]
    asked = Asked(path, str(checkpoint), episodes, seed, None, known(options, settings.env))
    return evaluation_of(settings).judge(asked, env)


def known(options: Mapping[str, Any], env: str) -> dict[str, Any]:
    """The options that were given; those that say nothing to this environment are refused."""
    every = {name: domain for domain in domains() for name in domain.flags}
    given = {
        name: value
        for name, value in options.items()
        if not (value is None or value is False or (isinstance(value, str) and not value))
    }
    for name in options:
        if name not in every:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}")
    for name in given:
        if every[name] is not domain_of(env):
            flags = [f"--{flag}" for flag in every[name].flags]
            raise UserError(
                f"{', '.join(flags[:-1])} and {flags[-1]} are for {every[name].title}, and this "
                f"run is on {env}."
            )
    return given


def scores(
    path: Path,
    checkpoint: str = "last",
    episodes: int = 20,
    seed: int | None = None,
    video: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """What `tenfold eval` finds of a run or of a folder of many seeds, as JSON takes it, and as
    lines for a terminal."""
    many = is_seeds(path)
    run = SeedsFolder.open(path).run if many else RunFolder.open(path)[1]
    asked = Asked(path, checkpoint, episodes, seed, video, known(options or {}, run.env))
    how = evaluation_of(run)
    if many:
        found = how.find_seeds(asked)
        return found, how.lines_of_seeds(asked, found)
    found = how.find(asked)
    return found, how.lines(asked, found)


def conclusion(result: Any) -> list[str]:
    """How good a run that ended is, in lines."""
    return evaluation_of(result.run).conclusion(result)


def onward(result: Any, many: bool = False) -> str:
    """What can be done with a run that ended."""
    return evaluation_of(result.run).onward(result.path, many)
