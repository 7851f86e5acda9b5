"""sac and td3 on a GPU: CUDA graphs whose updates are a few launches of tiles where two hidden
layers are alike and wide, and else the agent's own update, recorded."""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from tenfold.engines.cudagraph import Work
from tenfold.engines.cudagraph_off_policy import (
    ActorCriticTurns,
    CudaGraphOffPolicy,
    RecordedOptimiser,
)
from tenfold.engines.plain import OffPolicyEngine
from tenfold.memory.staging import Shapes, StagingBuffer

# what was held to the plain engine on a GPU
WIDEST, MOST_INPUTS, MOST_ACTIONS = 256, 128, 32
LEAST_BATCH, MOST_BATCH = 64, 256
UNITS = 64  # that layers are multiples of
# Halves hold numbers up to 65,504. Those of the latest batch are looked at every so many updates,
# and from LARGE on products are PyTorch's.
LOOKED_AT, LARGE = 1024, 4096.0
FORMS = {"fp32": "fp16x3", "tf32": "fp16"}


def why_not_wide(agent: Any, batch: int) -> str:
    """What keeps the launches of tiles from an agent; empty if nothing does."""
    settings, actions = agent.config, agent.actions
    hidden = settings.net.hidden
    if settings.net.encoder != "mlp" or settings.net.activation != "relu":
        return "the network is not of fully connected layers with relu"
    if settings.net.of_value.hidden != hidden:
        return "critics have other layers than the policy"
    if len(hidden) != 2 or hidden[0] != hidden[1] or hidden[0] % UNITS or hidden[0] > WIDEST:
        return f"there are no two hidden layers alike, of {UNITS} to {WIDEST} units"
    if not actions.reals or actions.reals > MOST_ACTIONS:
        return f"an action is not of 1 to {MOST_ACTIONS} numbers"
    if agent.layout.size + actions.reals > MOST_INPUTS:
        return f"observation and action are more than {MOST_INPUTS} numbers"
    if len(agent.online.critics) != 2:
        return "there are no two critics"
    if settings.weight_decay:
        return "weights decay"
    least = LEAST_BATCH if agent.device.type == "cuda" else 16
    if batch & (batch - 1) or not least <= batch <= MOST_BATCH:
        return f"batches are not a power of two of {LEAST_BATCH} to {MOST_BATCH} items"
    return ""


class CudaGraphActorCritic(ActorCriticTurns, CudaGraphOffPolicy, OffPolicyEngine):
    """As the plain engine, for agents with a policy and critics: their own `update`, recorded.
    Where the networks are wide, normal numbers are drawn on the GPU, and updates are launches of
    tiles until a number becomes too large for them."""

    def __init__(self, agent: Any, replay: Any, envs: Any) -> None:
        self.large, self.notices = False, list[str]()
        self.batch = replay.batch.reward.shape[-1]
        super().__init__(agent, replay, envs)
        self.recorder = RecordedOptimiser(agent, self.learning.online)
        reals, lanes = agent.actions.reals, len(envs.obs)
        shapes: Shapes = {
            "rows": (envs.obs.shape, envs.obs.dtype),
            "uniform": ((lanes, int(not reals)), np.float64),
            "normal": ((lanes, reals), np.float32),
        }
        self.acting = StagingBuffer(agent.device, shapes, depth=1)
        self.acted = self.host(lanes, reals) if reals else self.host(lanes, dtype=torch.int64)

    @cached_property
    def in_tiles(self) -> bool:
        """Whether updates are launches of tiles, as long as no number is too large."""
        return self.by_kernels and not why_not_wide(self.agent, self.batch)

    @cached_property
    def tiles(self) -> Any:
        from tenfold.algorithms.kernels.actor_critic_gpu_launches import TileUpdates  # needs Triton

        form = FORMS[self.precision] if self.agent.device.type == "cuda" else "ieee"
        return TileUpdates(self.agent, self.mirror.elements, self.sent, form)

    def prepare(self, run: Any) -> None:
        super().prepare(run)
        if self.in_tiles:
            launches, form = self.tiles.launches, self.tiles.shape.form
            self.description = f"updates in {launches} launches each, products in {form}"
        elif self.by_kernels:
            self.description += f", not in tiles: {why_not_wide(self.agent, self.batch)}"

    # what goes to the GPU

    def update_draws(self) -> dict[str, Any]:
        return {} if self.in_tiles else super().update_draws()

    def shapes(self) -> Shapes:
        return super().shapes() | ({"number": ((), np.int64)} if self.in_tiles else {})

    def draw(self, count: int, step: int) -> None:
        self.turn = self.agent.updates % self.agent.delay
        super().draw(count, step)
        if self.in_tiles:
            for k, arrays in enumerate(self.sent.arrays[self.sent.slot_index][:count]):
                arrays["number"][...] = self.agent.updates + k

    def given_to(self, k: int) -> dict[str, torch.Tensor]:
        """What update number k of a graph takes, on the GPU."""
        sent = self.sent.on_device[k]
        return sent | self.tiles.noise_of(k) if self.in_tiles else sent

    def append(self) -> None:
        if self.in_tiles and not self.large:
            rows = self.mirror.parcel.arrays[self.mirror.parcel.slot_index][0]["row"]
            most = float(np.abs(rows.view(self.envs.obs.dtype)).max())
            self.use_torch_from(most * self.agent.layout.scale)
        super().append()

    # learning

    def capture(self) -> None:
        """Records updates of a round, and acting."""
        for turn in range(self.agent.delay):
            self.turn = turn
            self.capture_updates()
        self.capture_all("act", self.acting, self.acting_work)

    def update_name(self) -> Any:
        return (super().update_name(), "large") if self.large else super().update_name()

    def make_updates_work(self, count: int) -> Work:
        if not self.in_tiles:
            return super().make_updates_work(count)
        tiles, turn = self.tiles, self.turn
        by_torch = super().make_updates_work(count)

        def work() -> None:
            tiles.draw_noise(count)
            if self.large:
                by_torch()
                return
            tiles.update_all(count, turn, self.sums)
            if self.replay.priorities:
                self.errors.copy_(tiles.errors, non_blocking=True)

        return work

    def update_work(self, k: int) -> None:
        sent, (obs, next_obs) = self.given_to(k), self.observations(k)
        self.recorder.begin_recorded(sent, (self.turn + k + 1) % self.agent.delay == 0)
        batch = sent | {"obs": obs, "next_obs": next_obs}
        errors, (metrics,) = self.learning.update([(batch,)], self.recorder)
        self.sums[: len(metrics)].add_(metrics)
        self.sums[-1:].add_(1)
        if self.replay.priorities:
            self.errors.copy_(errors, non_blocking=True)

    def update(self, count: int, step: int, clock: Any) -> None:
        looked_at = self.agent.updates // LOOKED_AT
        super().update(count, step, clock)
        if self.in_tiles and not self.large and self.agent.updates // LOOKED_AT > looked_at:
            self.use_torch_from(self.tiles.largest())

    def use_torch_from(self, largest: float) -> None:
        """Products are PyTorch's from now on, where a number is as large as this."""
        if largest < LARGE:
            return
        self.large = True
        self.notices.append(
            f"Numbers inside the networks are as large as {largest:,.0f}, and products of 16-bit "
            "halves hold 65,504: updates go on by PyTorch's products, several times slower."
        )

    def state(self) -> dict[str, torch.Tensor]:
        return super().state() | ({"large": torch.tensor(self.large)} if self.in_tiles else {})

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        super().load_state(state)
        self.large = bool(state.get("large", False))

    # acting

    def explore(self, step: int, rounds: int) -> np.ndarray:
        agent, rows = self.agent, self.acted_on
        if step < agent.config.learning_starts:
            return self.with_noise(agent.random_actions(len(rows), rounds), rounds)
        (inputs,) = self.acting.open()
        inputs["rows"][...] = rows
        inputs["uniform"][...], inputs["normal"][...] = agent.draws(
            len(rows), rounds * len(rows), agent.spread(step)
        )
        self.launch_graph("act", self.acting, self.acting_work)
        self.wait()
        return self.with_noise(self.acted.numpy().copy(), rounds)

    @torch.no_grad()
    def acting_work(self) -> None:
        agent, inputs = self.agent, self.acting.on_device[0]
        if self.in_tiles:
            action = self.tiles.act(inputs["rows"], inputs["normal"])
        else:
            output = agent.online.policy_output(agent.to_net(inputs["rows"]))
            action = agent.sample_action(output, inputs["uniform"], inputs["normal"])
        self.acted.copy_(action, non_blocking=True)
