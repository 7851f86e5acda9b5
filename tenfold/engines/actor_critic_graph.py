"""Updates of agents with a policy and critics as CUDA graphs; acting is one too."""

import copy
from typing import Any

import numpy as np
import torch

from tenfold.config.options import value_at
from tenfold.core.random import fill_normal
from tenfold.engines.off_policy import OffPolicyEngine
from tenfold.engines.plain import gradients
from tenfold.engines.replay_graph import DRAWN, ReplayGraph
from tenfold.memory.staging import Shapes, StagingBuffer
from tenfold.nets.actor_critic import Stacked
from tenfold.ops.adam import adam_recorded


class ActorCriticGraph(ReplayGraph, OffPolicyEngine):
    """As the plain engine; where the policy learns rarer than the critics, a graph for each place
    in that turn."""

    def __init__(self, agent: Any, replay: Any, envs: Any) -> None:
        self.turn = 0  # updates since the policy last learned
        super().__init__(agent, replay, envs)
        reals, lanes = agent.actions.reals, len(envs.obs)
        shapes: Shapes = {
            "rows": (envs.obs.shape, envs.obs.dtype),
            "uniform": ((lanes, int(not reals)), np.float64),
            "normal": ((lanes, reals), np.float32),
        }
        self.acting = StagingBuffer(agent.device, shapes, depth=1)
        self.acted = self.host(lanes, reals) if reals else self.host(lanes, dtype=torch.int64)

    def unchecked_agent(self) -> Any:
        """The agent on the same buffers, its critics one product a layer."""
        agent = copy.copy(self.agent)
        agent.online, agent.target = (
            Stacked(network, agent.config.net) for network in (agent.online, agent.target)
        )
        return agent

    # what goes to the GPU

    def shapes(self) -> Shapes:
        """What is sent for an update."""
        items, reals = self.batch_items, self.agent.actions.reals
        found: Shapes = {
            "places": ((2, items, 1), np.int64),
            "action": ((items, reals), np.float32) if reals else ((items,), np.int64),
            **dict.fromkeys(DRAWN[1:], ((items,), np.float32)),
            **dict.fromkeys(self.agent.extra_noise, ((items, reals), np.float32)),
        }
        return found | dict.fromkeys(("lr", "before", "late"), ((), np.float32))

    def draw(self, count: int, step: int) -> None:
        """Everything that the next `count` updates need, into what is sent."""
        agent, replay = self.agent, self.replay
        self.turn = agent.updates % agent.delay
        beta = value_at(replay.priorities.beta, step) if replay.priorities else 1.0
        lr, parts = value_at(agent.config.lr, step), self.sent.open()
        for number, part in enumerate(parts[:count], agent.updates):
            replay.sample_indices(beta, 0, [part[name] for name in ("places", *DRAWN)])
            for name, purpose in agent.extra_noise.items():
                out = part[name].reshape(-1)
                fill_normal(agent.keys[purpose], number * out.size, out)
            part["lr"][...], part["before"][...] = lr, number
            part["late"][...] = (number + 1) // agent.delay - 1

    # learning

    def record(self) -> None:
        """Updates of a round, and acting."""
        for turn in range(self.agent.delay):
            self.turn = turn
            self.record_updates()
        self.record_all("act", self.acting, self.act_there)

    def called(self) -> Any:
        return "update" if self.agent.delay == 1 else ("update", self.turn)

    def update_there(self, k: int) -> None:
        """Update number k of those that were sent, as it is recorded."""
        agent, sent, grad = self.learning, self.sent.on_device[k], self.agent.online.flat_grad
        obs, next_obs = self.mirror.at(sent["places"]).unbind(0)
        shape = self.replay.batch.obs.shape
        batch = sent | {"obs": obs.reshape(shape), "next_obs": next_obs.reshape(shape)}
        with torch.no_grad(), self.aside(0):
            wanted = agent.wanted(batch)
        values = agent.values(batch)
        self.join()
        loss, errors, q = agent.errors_of(batch, values, wanted)
        grad.zero_()
        self.step_there(loss, ("critics",), sent["before"], sent["lr"])
        told = [loss.detach(), q, errors.mean()]
        late: list[torch.Tensor] = []
        if (self.turn + k + 1) % agent.delay == 0:
            late = list(agent.actor_loss(batch))
            self.step_there(late[0], agent.actor_parts, sent["late"], sent["lr"])
            followed = self.agent.online.flat[self.agent.followed]
            with torch.no_grad():
                self.agent.target.flat.lerp_(followed, agent.config.tau)
        told += [grad.norm(), *(agent.delay * value.detach() for value in late)]
        told += [grad.new_zeros(())] * (len(self.names) - len(told)) + [grad.new_ones(())]
        self.sums.add_(torch.stack(told))
        if self.replay.priorities:
            self.errors.copy_(errors, non_blocking=True)

    def step_there(
        self, loss: torch.Tensor, parts: tuple[str, ...], before: torch.Tensor, lr: torch.Tensor
    ) -> None:
        """A step of Adam for these parts of the networks, all others as they are."""
        agent, eps = self.agent, self.agent.config.adam_eps
        for flat, grad, mean, square in gradients(loss, agent, self.learning.online, parts):
            # it counts a step by itself, and another part may take the same
            adam_recorded(flat, grad, mean, square, before.clone(), lr, eps)

    # acting

    def explore(self, step: int, rounds: int) -> np.ndarray:
        agent, rows = self.agent, self.looked_at
        if step < agent.config.learning_starts:
            return agent.random_actions(len(rows), rounds)
        (given,) = self.acting.open()
        given["rows"][...] = rows
        given["uniform"][...], given["normal"][...] = agent.draws(
            len(rows), rounds * len(rows), agent.spread(step)
        )
        self.replay_graph("act", self.acting, self.act_there)
        self.wait()
        return self.acted.numpy().copy()

    @torch.no_grad()
    def act_there(self) -> None:
        agent, given = self.agent, self.acting.on_device[0]
        said = agent.online.policy_output(agent.to_net(given["rows"]))
        found = agent.chosen(said, given["uniform"], given["normal"])
        self.acted.copy_(found, non_blocking=True)
