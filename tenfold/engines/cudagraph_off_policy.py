"""Updates from a replay memory as CUDA graphs: rows are drawn on the host by the plain engine's
draws, their observations are found on the GPU, and up to eight updates are one launch."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tenfold.config.schedules import value_at
from tenfold.core.system import Clock
from tenfold.engines.cudagraph import MOST, CudaGraphCapture, Work, at_once
from tenfold.engines.plain import EagerOptimiser
from tenfold.memory.replay import replay_bytes
from tenfold.memory.staging import DeviceReplay, Shapes, StagingBuffer
from tenfold.nets.policy import Stacked
from tenfold.ops.adam import adam_recorded

COLUMNS = ("action", "reward", "discount", "weight")  # of the rows that were drawn


class CudaGraphOffPolicy(CudaGraphCapture):
    """Mixin: list it before the plain engine. The class says what a recorded update is
    (`update_work`) and which numbers change from update to update (`update_scalars`)."""

    replay: Any
    envs: Any
    update_scalars: Callable[[int], dict[str, float]]  # of an update by its number, counted from 1
    update_work: Callable[[int], None]  # number k of those that were sent

    def __init__(self, agent: Any, replay: Any, envs: Any) -> None:
        super().__init__(agent, replay, envs)
        self.agents = getattr(agent, "agents", [agent])
        self.draws = self.update_draws()
        self.mirror = DeviceReplay(replay.memories, agent.device)
        count = 1 if replay.priorities else MOST
        self.sent = StagingBuffer(agent.device, self.shapes(), count, depth=2)
        for slot in self.sent.arrays:
            for arrays in slot:
                arrays["weight"][...] = 1
        # what the draws of every agent are written to, by slot and update
        self.outputs = [
            [[self.outputs_of(arrays, m) for m in range(agent.members)] for arrays in slot]
            for slot in self.sent.arrays
        ]
        self.errors = self.host(*replay.batch.reward.shape)

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        if obstacle := super().why_not(agent, run):
            return obstacle
        if agent.norm:
            return "observations are normalised, which is done on the CPU"
        if run is None or agent.device.type != "cuda":
            return ""
        reals = agent.actions.reals
        needed = agent.members * replay_bytes(agent.config, agent.layout, run.num_envs, reals)
        free = torch.cuda.mem_get_info(agent.device)[0]
        if needed > free:
            return (
                f"the replay's observations take {needed / 2**30:.1f} GiB, and the GPU has "
                f"{free / 2**30:.1f} free"
            )
        return ""

    # what goes to the GPU

    def update_draws(self) -> dict[str, Any]:
        """What an agent's update draws besides its rows, as `FlatAgent.update_draws` has it."""
        return self.agent.update_draws(self.replay.batch.reward.shape[-1])

    def lead(self, *shape: int) -> tuple[int, ...]:
        """Agents of a world stand in front."""
        return (self.agent.members, *shape) if self.agent.members > 1 else shape

    def shapes(self) -> Shapes:
        """What is sent for an update."""
        batch, frames = self.replay.batch, self.replay.memories[0].frames
        items = batch.reward.shape[-1]
        shapes: Shapes = {
            "places": (self.lead(2, items, frames), np.int64),
            "action": (batch.action.shape, batch.action.dtype),
            **dict.fromkeys(COLUMNS[1:], (self.lead(items), np.float32)),
            "before": (self.lead(), np.float32),
            **dict.fromkeys(("lr", *self.update_scalars(1)), ((), np.float32)),
        }
        if batch.next_mask.shape[-1]:
            shapes["next_mask"] = batch.next_mask.shape, np.bool_
        return shapes | {
            name: (self.lead(*shape), np.float32) for name, (*_, shape) in self.draws.items()
        }

    def outputs_of(self, arrays: dict[str, np.ndarray], member: int) -> tuple[Any, ...]:
        """Of one agent: what `sample_indices` writes; the next masks, where there are any; what
        else is drawn, with its purpose and how."""
        of_agent = {
            name: array[member] if self.agent.members > 1 else array
            for name, array in arrays.items()
            if array.ndim > 0
        }
        draws = [
            (purpose, fill, of_agent[name].reshape(-1))
            for name, (purpose, fill, _) in self.draws.items()
        ]
        return [of_agent[name] for name in ("places", *COLUMNS)], of_agent.get("next_mask"), draws

    def draw(self, count: int, step: int) -> None:
        """Everything that the next `count` updates need, into what is sent."""
        replay, updates = self.replay, self.agent.updates
        beta = value_at(replay.priorities.beta, step) if replay.priorities else 1.0
        lr, slot = value_at(self.agent.config.lr, step), self.sent.open()
        outputs = self.outputs[self.sent.slot_index]
        for k in range(count):
            for m, (agent, memory) in enumerate(zip(self.agents, replay.memories, strict=True)):
                rows, next_mask, draws = outputs[k][m]
                memory.sample_indices(beta, m * self.mirror.rows, rows)
                if next_mask is not None:
                    memory.gather_masks(next_mask)
                for purpose, fill, out in draws:
                    fill(agent.keys[purpose], (updates + k) * out.size, out)
            arrays = slot[k]
            arrays["lr"][...], arrays["before"][...] = lr, updates + k
            for name, number in self.update_scalars(updates + k + 1).items():
                arrays[name][...] = number

    def observations(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations and next observations of update number k of those that were sent."""
        obs, next_obs = self.mirror.at(self.sent.on_device[k]["places"]).unbind(len(self.lead()))
        shape = self.replay.batch.obs.shape
        return obs.reshape(shape), next_obs.reshape(shape)

    # learning

    def capture_updates(self) -> None:
        """Records the updates of a round, and how new rows follow."""
        settings, lanes = self.agent.config, len(self.envs.obs) // self.agent.members
        left = settings.usual_updates(lanes)
        while left:
            count = self.at_once(left)
            self.capture_all(self.update_name(), self.sent, self.make_updates_work(count), count)
            left -= count
        self.capture_all("append", self.mirror.parcel, self.mirror.put)

    def update_name(self) -> Any:
        """The name of the next updates' graph; those that differ have names of their own."""
        return "update"

    def at_once(self, count: int) -> int:
        """Updates of the next graph: one where its errors decide what is drawn next."""
        return 1 if self.replay.priorities else at_once(count)

    def make_updates_work(self, count: int) -> Work:
        """The work of so many updates as it is recorded."""

        def work() -> None:
            for k in range(count):
                self.update_work(k)

        return work

    def append(self) -> None:
        """New rows, to the table."""
        self.launch_graph("append", self.mirror.parcel, self.mirror.put)

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.mirror.follow(self.append)
        while count:
            now = self.at_once(count)
            self.draw(now, step)
            clock.lap("sample")
            self.launch_graph(self.update_name(), self.sent, self.make_updates_work(now), now)
            self.agent.updates += now
            count -= now
            if self.replay.priorities:
                self.wait()
                self.replay.prioritise(self.errors.numpy())
            clock.lap("update")

    def load_state(self, state: Any) -> None:
        super().load_state(state)  # type: ignore[misc]
        self.mirror.forget()


class RecordedOptimiser(EagerOptimiser):
    """Steps on numbers that were sent, which a CUDA graph reads anew each time."""

    def __init__(self, agent: Any, network: Any) -> None:
        """`network`: what `agent` learns, on the same buffers."""
        super().__init__(agent)
        self.network, self.tau = network, agent.config.tau

    def begin_recorded(self, sent: dict[str, torch.Tensor], policy_due: bool) -> None:
        self.sent, self.policy_due = sent, policy_due
        self.agent.online.flat_grad.zero_()

    def step(self, buffers: list[torch.Tensor], every: int) -> None:
        flat, grad, mean, square = buffers
        # a step counts itself, and another part of the networks takes the same number
        before = self.sent["before" if every == 1 else "policy_before"].clone()
        eps, decay = self.agent.config.adam_eps, self.agent.config.weight_decay
        adam_recorded(flat, grad, mean, square, before, self.sent["lr"], eps, decay)


class ActorCriticTurns:
    """Mixin: list it before `CudaGraphCapture`. What is recorded of agents with a policy and
    critics; where the policy learns rarer than these, a graph for each place in that turn."""

    agent: Any
    side_stream: Any
    wait_side_streams: Any
    turn = 0  # updates since the policy last learned

    def unchecked_agent(self) -> Any:
        """The agent on the same buffers, its critics one product a layer, what the critics are
        compared with beside them."""
        agent = copy.copy(self.agent)
        agent.online, agent.target = (
            Stacked(network, agent.config.net) for network in (agent.online, agent.target)
        )
        agent.side_stream, agent.wait_side_streams = self.side_stream, self.wait_side_streams
        return agent

    def update_scalars(self, number: int) -> dict[str, float]:
        return {"policy_before": number // self.agent.delay - 1}

    def update_name(self) -> Any:
        return "update" if self.agent.delay == 1 else ("update", self.turn)
