"""Learning by several processes, started through Ray: each has the networks, takes its share of
every batch, and the one flat gradient is summed over all of them (torch.distributed: gloo on the
CPU, NCCL on GPUs) before all make the same step. A loss is a sum over items divided by a number of
the whole batch, so the sum of the shares' gradients is the gradient of the joined batch.

Memory, draws, metrics and checkpoints are the first learner's, which is this process; the others
are given rows and keep up by making the same steps. One that is lost ends the run, which can be
resumed: nobody else has anything to save.
"""

import contextlib
import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run
from tenfold.core.errors import ActorFault
from tenfold.core.ray_cluster import connect, disconnect, is_placed, require_ray
from tenfold.core.registry import algorithm, own
from tenfold.core.system import set_threads
from tenfold.engines.plain import AutogradEngine, apply_gradient

Share = tuple[Any, ...]  # what `agent.loss` is given of a part of a batch
START_UP = 120.0  # seconds for a process of Ray's to import what it needs


def join_group(store: Any, rank: int, run: Run, device: str) -> None:
    """Sums gradients with the others from now on."""
    backend = "nccl" if device == "cuda" else "gloo"
    limit = timedelta(seconds=max(run.patience, START_UP))
    dist.init_process_group(backend, store=store, rank=rank, world_size=run.learners, timeout=limit)


def gradient(kind: Any, agent: Any, shares: Iterable[Share]) -> list[list[torch.Tensor]]:
    """That of the whole batch into the agent's buffer, of which these shares are one learner's;
    what the loss said of each. All learners call it at once."""
    grad = agent.online.flat_grad
    grad.zero_()
    said = []
    for share in shares:
        loss, *more = agent.loss(*kind.readied(agent, *share))
        loss.backward()
        said.append([loss.detach(), *more])
    whole = grad.contiguous()  # agents of a world have theirs apart from one another
    dist.all_reduce(whole)
    if whole is not grad:
        grad.copy_(whole)
    return said


class RemoteLearner:
    """One of the others, in a process of Ray's."""

    def __init__(self, settings: dict[str, Any], spec: Any) -> None:
        self.run = Run.of(settings)
        set_threads(self.run.threads)
        learns = algorithm(self.run.agent.name)
        self.kind = own(learns.engines[self.run.engine].home)
        self.agent = learns.make_agent(self.run, spec)

    def join(self, host: str, port: int, rank: int) -> None:
        on_one_host(host)
        store = TCPStore(host, port, self.run.learners, is_master=False)
        join_group(store, rank, self.run, self.agent.device.type)

    def load(self, state: dict[str, np.ndarray]) -> None:
        self.agent.load_state({name: torch.tensor(value) for name, value in state.items()})

    def learn(self, shares: list[Share], lr: float) -> list[list[np.ndarray]]:
        device = self.agent.device
        given = [tuple(moved(part, device) for part in share) for share in shares]
        said = gradient(self.kind, self.agent, given)
        apply_gradient(self.agent, lr)
        self.kind.stepped(self.agent)
        return [[part.cpu().numpy() for part in one] for one in said]


def moved(part: Any, device: Any) -> Any:
    """What came through Ray and cannot be written to, as tensors of one's own."""
    if isinstance(part, dict):
        return {name: moved(value, device) for name, value in part.items()}
    return torch.tensor(part, device=device) if isinstance(part, np.ndarray) else part


def sent(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: sent(value) for name, value in part.items()}
    return part.cpu().numpy() if isinstance(part, torch.Tensor) else part


def on_one_host(host: str) -> None:
    """Learners on loopback are not looked for elsewhere."""
    if host.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


class Parallel(AutogradEngine):
    """The first of the learners, which has the memory. Stands before a plain engine among the bases
    of a class, which says how a batch is shared and what its parts said is joined."""

    others: tuple[Any, ...] = ()
    connected = False
    envs: Any

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        if run is None or run.learners == 1:
            return "there is one learner (learners = 1)"
        return cls.why_not_shared(agent, run)

    @classmethod
    def why_not_shared(cls, agent: Any, run: Any) -> str:
        """What keeps batches from being shared, in words."""
        raise NotImplementedError

    @staticmethod
    def shared(learners: int, *inputs: Any) -> list[Share]:
        """What the loss is given of a batch, in parts whose losses add up to that of the batch."""
        raise NotImplementedError

    @staticmethod
    def joined(said: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """What the loss said of all parts, as it would of the batch."""
        raise NotImplementedError

    @staticmethod
    def readied(agent: Any, *share: Any) -> Share:
        """A share as it travels, as the loss is given it."""
        return share

    @staticmethod
    def stepped(agent: Any) -> None:
        """What another learner does after a step, as this one's engine does by itself."""

    def prepare(self, run: Run) -> None:
        ray = require_ray()
        connect(run.address, run.learners + run.actors)
        self.ray, self.run, self.connected = ray, run, True
        self.words = f"{run.learners} learners on Ray"
        try:
            gpus = int(self.agent.device.type == "cuda")
            kind = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(RemoteLearner)
            settings = to_mapping(run) | {"device": self.agent.device.type}
            self.others = tuple(
                kind.remote(settings, self.envs.spec) for _ in range(run.learners - 1)
            )
            host = ray.util.get_node_ip_address()
            on_one_host(host)
            store = TCPStore(host, 0, run.learners, is_master=True, wait_for_workers=False)
            joined = [
                other.join.remote(host, store.port, rank + 1)
                for rank, other in enumerate(self.others)
            ]
            self.all(joined, lambda: join_group(store, 0, run, self.agent.device.type))
            self.share_state()
        except BaseException:
            self.close()
            raise

    def all(self, refs: list[Any], own: Any) -> tuple[Any, list[Any]]:
        """What this learner and the others do together, which each of them waits for; whoever is
        lost ends the run."""
        ray = self.ray
        try:
            done = own()
        except RuntimeError as error:  # the others' end of the line is gone
            done, broken = None, error
        else:
            broken = None
        said = []
        for rank, ref in enumerate(refs):
            try:
                said.append(ray.get(ref, timeout=self.run.patience if broken else None))
            except ray.exceptions.RayTaskError as error:
                words = str(error).strip().splitlines()[-1]
                raise ActorFault(f"Learner {rank + 1} stopped: {words}: the run stops.") from None
            except ray.exceptions.RayError:
                placed = is_placed(self.others[rank])
                how = "was lost" if placed else "found no free CPU (or GPU) in the cluster"
                raise ActorFault(f"Learner {rank + 1} {how}: the run stops.") from None
        if broken:
            raise broken
        return done, said

    def share_state(self) -> None:
        """The others go on from what this learner has."""
        state = self.ray.put({k: v.cpu().numpy() for k, v in self.agent.state().items()})
        self.all([other.load.remote(state) for other in self.others], lambda: None)

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        super().load_state(state)
        self.share_state()

    def descend(
        self, lr: float, parts: Iterable[tuple[Any, ...]]
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        shares = [self.shared(self.run.learners, *part) for part in parts]
        refs = [
            other.learn.remote([sent_share(each[rank + 1]) for each in shares], lr)
            for rank, other in enumerate(self.others)
        ]
        said, theirs = self.all(
            refs, lambda: gradient(type(self), self.agent, [each[0] for each in shares])
        )
        norm, device = apply_gradient(self.agent, lr), self.agent.device
        return [
            self.joined(
                [own, *([torch.tensor(p, device=device) for p in one[k]] for one in theirs)]
            )
            for k, own in enumerate(said)
        ], norm

    def close(self) -> None:
        """Ends the others and leaves the cluster."""
        for other in self.others:
            with contextlib.suppress(Exception):
                self.ray.kill(other)
        self.others = ()
        if dist.is_initialized():
            dist.destroy_process_group()
        if self.connected:
            self.connected = False
            disconnect()


def sent_share(share: Share) -> Any:
    return tuple(sent(part) for part in share)
