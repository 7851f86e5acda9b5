"""A run of the dispatcher under way: it learns from its own best schedules.

Corsini et al. (2024), "Self-labeling the job shop scheduling problem", show that this needs no
optimal schedules and no rewards: of each random shop draw many schedules, and make the shortest
more likely.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.algorithms.bare_learner import BareLearner
from tenfold.config.options import value_at
from tenfold.core.protocols import Description, State
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.core.system import require_memory
from tenfold.domains.jobshop.dispatch import Shops, shops_of
from tenfold.domains.jobshop.dispatcher import DispatchAgent
from tenfold.domains.jobshop.policy import likelihood, played
from tenfold.envs.adapter import Episode
from tenfold.envs.making import spec_of
from tenfold.ops.adam import descend

if TYPE_CHECKING:
    from tenfold.config.run import Run

# bytes for a job: in a schedule that is drawn; at a dispatch that is learned from, and there for
# each of its `width` numbers (measured, and less than that: 1,290 to 1,600 with a width of 64)
DRAWN, LEARNED, LEARNED_WIDTH = 200, 400, 12
NAMES: tuple[str, ...] = (
    "loss",
    "grad_norm",
    "gap_mean",
    "gap_best",
)  # of the statistics; gaps to the bound


def make_learner(run: "Run") -> "DispatchLearner":
    agent = DispatchAgent(run, spec_of(run.env, policy=True))
    if agent.device.type == "cpu":
        require_memory(
            bytes_of_round(agent),
            f"A round of {agent.config.shops} shops of {agent.random}",
            "agent.shops, agent.samples or the shops' sizes (env)",
        )
    return DispatchLearner(run, agent)


def bytes_of_round(agent: DispatchAgent) -> int:
    """What a round of the largest shops takes at least: schedules are drawn, all at once, and then
    every dispatch of the best ones is learned from, all at once."""
    config, jobs, machines = agent.config, agent.random.jobs[1], agent.random.machines[1]
    drawn = config.samples * DRAWN
    learned = jobs * machines * (LEARNED + LEARNED_WIDTH * config.width)
    return config.shops * jobs * max(drawn, learned)


class DispatchLearner(BareLearner):
    """Each round draws shops of one size, schedules them, and makes one update. Every random number
    follows from the seed and the step, so that a resumed run goes on as if it had never stopped."""

    exact_resume = True
    agent: DispatchAgent

    def __init__(self, run: "Run", agent: DispatchAgent) -> None:
        super().__init__(run, agent)
        self.sums = torch.zeros(len(NAMES), dtype=torch.float64, device=agent.device)
        self.counted = 0
        self.source = torch.Generator(agent.device)

    @property
    def description(self) -> Description:
        config = self.config
        return Description(
            "plain, all schedules of a round at once",
            str(self.agent.device),
            f"{config.shops:,} shops of {self.agent.random}, {config.samples:,} schedules of each",
        )

    def draw(self, count: int) -> Shops:
        """Random shops of one size, those of this step."""
        random, device = self.agent.random, self.agent.device
        rng = np.random.default_rng(int(key(self.run.seed, Purpose.EPISODE, self.step)))
        machine, duration = (torch.from_numpy(t).to(device) for t in random.draw_tables(rng, count))
        _, jobs, machines = machine.shape
        length = torch.full((count, jobs), machines, device=device)
        return shops_of(machine, duration, length, machines)

    def round(self, until: int | None = None) -> list[Episode]:
        """Whole, also beyond `until`: what is learned does not depend on how often it is looked
        at."""
        config, agent, clock = self.config, self.agent, self.clock
        count = min(config.shops, max(self.run.steps - self.step, 1))
        clock.start()
        shops = self.draw(count)
        clock.lap("env")
        address = key(self.run.seed, Purpose.ACTION, self.step)
        self.source.manual_seed(int(draw_bits(address, 0)) >> 1)
        makespan, order = played(agent.online, shops, config.samples, self.source)
        best = makespan.argmin(1)
        label = order.gather(2, best[None, :, None].expand(len(order), -1, 1)).squeeze(2)
        clock.lap("act")
        agent.online.flat_grad.zero_()
        loss = -likelihood(agent.online, shops, label)
        loss.backward()
        agent.updates += 1
        lr = value_at(config.lr, self.step)
        online, moments = agent.online, (agent.mean, agent.square)
        given = online.flat, online.flat_grad, *moments, agent.updates, lr
        norm = descend(*given, limit=config.clip_norm)
        gaps = makespan / shops.bound[:, 0] - 1
        told = (loss.detach(), norm.squeeze(), gaps.mean(), gaps.amin(1).mean())
        self.sums += torch.stack(told).double()
        self.counted += 1
        self.step += count
        clock.lap("update")
        return []

    def statistics(self) -> dict[str, float]:
        """Means since the last call."""
        if not self.counted:
            return {}
        means: list[float] = (self.sums / self.counted).tolist()
        found: dict[str, float] = dict(zip(NAMES, means, strict=True))
        self.sums.zero_()
        self.counted = 0
        return found

    def set_lr(self, lr: Any) -> None:
        self.agent.set_lr(lr)
        self.config = self.agent.config

    def state(self) -> State:
        serial = {"step": self.step, "counted": self.counted}
        return {
            "agent": self.agent.state(),
            "serial": {name: np.array(value) for name, value in serial.items()},
            "sums": {"sums": self.sums.cpu().numpy()},
        }

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.step, self.counted = (int(state["serial"][name]) for name in ("step", "counted"))
        self.sums.copy_(torch.as_tensor(np.array(state["sums"]["sums"])))
        return True
