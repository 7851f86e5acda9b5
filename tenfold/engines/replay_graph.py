"""Updates from a replay memory as CUDA graphs: rows are drawn on the host by the plain engine's
draws, their observations are found on the GPU, and up to eight updates are one launch."""

from collections.abc import Callable
from typing import Any

import torch

from tenfold.core.system import Clock
from tenfold.engines.cudagraph import MOST, Captured, Work, at_once
from tenfold.memory.device_replay import DeviceReplay
from tenfold.memory.replay import replay_bytes
from tenfold.memory.staging import Shapes, StagingBuffer

DRAWN = ("action", "reward", "discount", "weight")


class ReplayGraph(Captured):
    """Stands before a plain engine among the bases of a class, which says what is sent for an
    update (`shapes`), drawn for some (`draw`), and what one is (`update_there`)."""

    replay: Any
    envs: Any
    shapes: Callable[[], Shapes]  # what is sent for an update
    draw: Callable[[int, int], None]  # everything that the next updates need, into what is sent
    update_there: Callable[[int], None]  # number k of those that were sent, as it is recorded

    def __init__(self, agent: Any, replay: Any, envs: Any) -> None:
        super().__init__(agent, replay, envs)
        self.mirror = DeviceReplay(replay.memories, agent.device)
        parts = 1 if replay.priorities else MOST
        self.sent = StagingBuffer(agent.device, self.shapes(), parts, depth=2)
        for slot in self.sent.arrays:
            for part in slot:
                part["weight"][...] = 1
        self.errors = self.host(*replay.batch.reward.shape)

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        if found := super().why_not(agent, run):
            return found
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

    def record_updates(self) -> None:
        """Those of a round, and how new rows follow."""
        settings, lanes = self.agent.config, len(self.envs.obs) // self.agent.members
        left = settings.updates * max(1, lanes // settings.every)
        while left:
            count = self.at_once(left)
            self.record_all(self.called(), self.sent, self.updates(count), count)
            left -= count
        self.record_all("append", self.mirror.parcel, self.mirror.put)

    def called(self) -> Any:
        """The name of the next updates' graph; those that differ have names of their own."""
        return "update"

    def at_once(self, count: int) -> int:
        """Updates of the next graph: one where its errors decide what is drawn next."""
        return 1 if self.replay.priorities else at_once(count)

    def updates(self, count: int) -> Work:
        """So many updates as they are recorded."""

        def work() -> None:
            for k in range(count):
                self.update_there(k)

        return work

    def append(self) -> None:
        """New rows, to the table."""
        self.replay_graph("append", self.mirror.parcel, self.mirror.put)

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.mirror.follow(self.append)
        while count:
            now = self.at_once(count)
            self.draw(now, step)
            clock.lap("sample")
            self.replay_graph(self.called(), self.sent, self.updates(now), now)
            self.agent.updates += now
            count -= now
            if self.replay.priorities:
                self.wait()
                self.replay.prioritise(self.errors.numpy())
            clock.lap("update")

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.mirror.forget()
