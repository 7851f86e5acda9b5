"""What a new run may begin with instead of drawn weights: those of another run's checkpoint.

Networks, and the running statistics of observations that they were trained with, are taken over.
Adam's moments, counters, exploration and replay memory are a new run's, so that nothing of the
other run's schedule goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tenfold.config.files import Trust
from tenfold.config.notation import show
from tenfold.config.options import Net
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import Learner
from tenfold.core.user_envs import OWN, is_known
from tenfold.runs.archive import opened
from tenfold.runs.checkpoint import Checkpoints, flat_state, nested_state, require_weights
from tenfold.runs.file_schema import INIT
from tenfold.runs.folder import RunFolder, is_seeds
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import Arrays, read_arrays, write_arrays
from tenfold.training.learners import agent_of, agent_with

# settings of an agent that decide what the numbers of its networks mean
MEANING = ("net", "distribution", "frames", "squash")
FILE = "init.safetensors"  # in a folder of many seeds


@dataclass(frozen=True)
class InitialWeights:
    """The weights of a checkpoint, and where they are from: what run.json keeps. They travel to
    other processes and machines as arrays."""

    state: Arrays
    about: dict[str, Any]

    def give(self, learner: Learner) -> None:
        """Into a learner that has not begun."""
        learner.begin_with(nested_state(self.state)["agent"])

    def write(self, folder: Path) -> None:
        """For seeds that begin later."""
        write_arrays(folder / FILE, self.state, self.about)


def initial_weights(
    path: Any, checkpoint: str | int, run: Run, trust: Trust
) -> InitialWeights | None:
    """Of a run's folder or archive, or of what `ten.train` returned; None where none is named.
    Refused where the networks of `run` are others."""
    if path is None:
        return None
    path = getattr(path, "path", path)
    if not isinstance(path, str | Path):
        raise ConfigError(
            "init",
            f"= {path!r:.100} is no run: give its folder, its archive, or what ten.train returned.",
        )
    path, agent = Path(path), agent_of(run)
    if not hasattr(agent, "begin_with"):
        raise ConfigError("init", f"= {path} is not for agent {run.agent.name}: leave it out.")
    with opened(path) as folder:
        if is_seeds(folder):
            raise ConfigError(
                "init",
                f"= {path} holds several seeds, and one run's weights are taken: name a seed's "
                f"folder, such as {SeedsFolder.open(folder, trust).members[0]}.",
            )
        source, settings = RunFolder.open(folder, trust)
        state, step = Checkpoints(source, settings.keep).policy(str(checkpoint))
        if settings.env.startswith(OWN) and not is_known(settings.env):
            settings = replace(settings, env=run.env)  # its own is not in this process
        if run.agent.name != settings.agent.name:
            raise ConfigError(
                "init",
                f"= {path} was trained by {settings.agent.name}, and this run trains "
                f"{run.agent.name}: take the weights of a run of the same agent.",
            )
        trained = agent_with(state, settings, path)
    require_alike(agent, trained, path)
    kept = {name: state[name] for name in (*trained.policy_state(), "target") if name in state}
    about = {
        "run": source.id,
        "path": str(path.absolute()),
        "checkpoint": str(checkpoint),
        "step": step,
    }
    return InitialWeights(flat_state({"agent": kept}), about)


def require_alike(agent: Any, source: Any, path: Path) -> None:
    """Refuses weights of other networks, or whose numbers mean something else."""
    for name, here, there in settings_of_networks(agent, source):
        if here != there:
            raise ConfigError(
                name,
                f"= {show(here)} does not fit --init {path}, whose networks were trained with "
                f"{show(there)}: set it to that, or train without --init.",
            )
    shapes = [
        {name: tuple(value.shape) for name, value in each.online.named_parameters()}
        for each in (agent, source)
    ]
    for name in dict.fromkeys((*shapes[0], *shapes[1])):
        here, there = (" x ".join(map(str, each.get(name, ("nothing",)))) for each in shapes)
        if here != there:
            raise ConfigError(
                "init",
                f"= {path} does not fit: its network's {name} is {there}, and this run's {here}, "
                "since observations, actions or settings of the network differ; train without "
                "--init.",
            )


def settings_of_networks(agent: Any, source: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name and both values of each setting that decides what numbers of a network mean."""
    for name in MEANING:
        here, there = (getattr(each.config, name, None) for each in (agent, source))
        if isinstance(here, Net) and isinstance(there, Net):
            for field in fields(here):
                name = field.name
                yield f"agent.net.{name}", getattr(here, name), getattr(there, name, None)
        else:
            yield f"agent.{name}", here, there
    yield "normalize_obs", agent.norm is not None, source.norm is not None


def kept_weights(folder: Path) -> InitialWeights | None:
    """What the seeds of a folder begin with, where their experiment said so."""
    path = folder / FILE
    if not path.exists():
        return None
    arrays, about = read_arrays(path, schema=INIT)
    require_weights(path, arrays)
    return InitialWeights(arrays, about)
