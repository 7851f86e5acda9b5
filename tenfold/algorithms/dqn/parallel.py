"""Q-learning by several learner processes: how a batch is shared (`engines.parallel`)."""

from typing import Any

import torch

from tenfold.algorithms.dqn.plain import PlainEngine, renew_target
from tenfold.engines.parallel import Parallel, Share


class ParallelEngine(Parallel, PlainEngine):
    """As the plain engine, also for the agents of a world in one call; every learner has as many
    items of each batch."""

    @classmethod
    def why_not_shared(cls, agent: Any, run: Any) -> str:
        if agent.norm:
            return "observations are normalised, by statistics of the first learner alone"
        if agent.config.batch_size % run.learners:
            return f"batch_size = {agent.config.batch_size} does not divide by {run.learners}"
        return ""

    @staticmethod
    def shared(learners: int, *inputs: Any) -> list[Share]:
        rows, *given = inputs
        items = rows["action"].dim() - 1  # agents of a world stand before the items
        parts = {name: tensor.chunk(learners, items) for name, tensor in rows.items()}
        return [
            ({name: part[rank] for name, part in parts.items()}, *given) for rank in range(learners)
        ]

    @staticmethod
    def joined(said: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """The loss's sum, every item's error, the mean value."""
        loss, errors, q = zip(*said, strict=True)
        return [torch.stack(loss).sum(0), torch.cat(errors, -1), torch.stack(q).mean(0)]

    @staticmethod
    def stepped(agent: Any) -> None:
        renew_target(agent)
