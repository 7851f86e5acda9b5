"""The learner of a run, and its agent as it was trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError
from tenfold.core.given import lend
from tenfold.core.protocols import Learner
from tenfold.core.registry import algorithm
from tenfold.envs.making import spec_of
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder


def make_learner(run: Run) -> Learner:
    return algorithm(run.agent.name).make_learner(run)


def agent_of(run: Run) -> Any:
    """The agent of a run, untrained, on the CPU."""
    chosen, run = algorithm(run.agent.name), replace(run, device="cpu")
    if (agent := chosen.untrained(run)) is not None:
        return agent
    return chosen.make_agent(run, spec_of(run.env, "scalar", chosen.reads_masks))


def load(path: str | Path, checkpoint: str | int = "last", env: Any = None) -> Any:
    """The trained agent of a run, ready to act: `checkpoint` is last, best or a step; `env` is the
    run's environment again, where it was an object or a function."""
    folder, run = RunFolder.open(Path(path))
    lend(run.env, env)
    state, _ = Checkpoints(folder, run.keep).policy(str(checkpoint))
    agent = agent_of(run)
    if state["online"].shape != agent.online.flat.shape:
        raise CheckpointError(
            f"The checkpoint of {path} holds {state['online'].numel():,} parameters and its "
            f"settings ask for {agent.online.flat.numel():,}: config.yaml was changed after "
            "training."
        )
    try:
        agent.load_policy(state)
    except CheckpointError as error:
        raise CheckpointError(f"The checkpoint of {path} {error}") from None
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        words = " ".join(str(error).split())
        raise CheckpointError(
            f"The checkpoint of {path} holds something else than its settings ask for "
            f"({type(error).__name__}: {words})."
        ) from None
    return agent
