"""Policy gradients by several learner processes: how a minibatch is shared among them
(`engines.parallel`)."""

from typing import Any

import torch

from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.engines.choose import why_not_memory
from tenfold.engines.parallel import Parallel, Share


class ParallelPPO(Parallel, PlainPPO):
    """As the plain engine; every learner has as many rows of each minibatch, to one."""

    @classmethod
    def why_not_shared(cls, agent: Any, run: Any) -> str:
        if found := why_not_memory(agent):
            return found
        rows = run.agent.horizon * run.num_envs * run.actors
        smallest = rows // run.agent.parts(rows)
        if smallest < run.learners:
            return f"a minibatch has {smallest} rows, and there are {run.learners} learners"
        return ""

    def minibatch(self, part: int) -> dict[str, torch.Tensor]:
        """As it travels: graphs are packed by whoever learns from them."""
        return self.picked(part)

    @staticmethod
    def shared(learners: int, *inputs: Any) -> list[Share]:
        """Weights are divided by those of the whole minibatch here: the loss, which divides by the
        sum of the weights it is given but never by less than 1, leaves them as they are."""
        (rows,) = inputs
        rows = rows | {"weight": rows["weight"] / rows["weight"].sum().clamp(min=1)}
        parts = {name: tensor.tensor_split(learners) for name, tensor in rows.items()}
        return [({name: part[rank] for name, part in parts.items()},) for rank in range(learners)]

    @staticmethod
    def readied(agent: Any, *share: Any) -> Share:
        (rows,) = share
        return (rows | {"obs": agent.to_net(rows["obs"])},)

    @staticmethod
    def joined(said: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Sums of weighted shares are the batch's weighted means."""
        return [torch.stack(parts).sum(0) for parts in zip(*said, strict=True)]
