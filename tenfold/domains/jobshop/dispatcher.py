"""The dispatcher: an agent that schedules any shop by a network on the features of `dispatch`, as a
policy of environments and as a player of instances; and its learner."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.algorithms.agent import FlatAgent, mask_rows, refuse_empty, refuse_state
from tenfold.algorithms.learner import BareLearner
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Description, EnvSpec, Policy, State
from tenfold.core.random import Purpose, draw_bits, key, uniform
from tenfold.core.spaces import policy_actions
from tenfold.core.system import require_memory
from tenfold.domains.jobshop import SHOP, Dispatcher
from tenfold.domains.jobshop.dispatch import RowLayout, ShopBatch, batch, shops_of
from tenfold.domains.jobshop.instances import Instance, RandomShops, reversed_shop
from tenfold.domains.jobshop.players import Player, require_draws
from tenfold.domains.jobshop.policy import DispatchNet, gather_next, likelihood, play_schedules
from tenfold.envs.adapter import Episode
from tenfold.envs.arguments import split_name
from tenfold.envs.making import spec_of
from tenfold.ops.adam import descend

if TYPE_CHECKING:
    from tenfold.config.run import Run

MAX_JOBS = 2**21  # jobs in all schedules that are played at once, which bounds the memory


def random_shops(env: str) -> RandomShops:
    """The random shops that an environment's name asks for."""
    base, arguments = split_name(env)
    if base != SHOP:
        raise ConfigError(
            "env",
            f"= {env} is no job shop, and the dispatcher learns from random ones: give "
            f"{SHOP}(random=6..15x5..10), jobs x machines.",
        )
    if "random" not in arguments or set(arguments) - {"random", "routes"}:
        raise ConfigError(
            "env",
            f"= {env} is one shop, and the dispatcher learns from random ones: give "
            "tenfold/JobShop-v0(random=6..15x5..10), jobs x machines. What it has learned plays "
            "any: tenfold eval RUN --instance FILE.",
        )
    try:
        return RandomShops.parse(**arguments)
    except EnvironmentFault as error:
        raise ConfigError("env", f"= {env}: {error}") from None


class DispatchAgent(FlatAgent):
    """The network, the moments of Adam and the number of updates."""

    reads_masks = masked = True
    config: Dispatcher

    def __init__(self, run: "Run", spec: EnvSpec) -> None:
        assert isinstance(run.agent, Dispatcher)
        self.config, self.seed, self.layout = run.agent, run.seed, spec.layout
        self.random = random_shops(run.env)
        self.row_layout = RowLayout(self.random)
        self.actions = policy_actions(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(draw_bits(key(run.seed, Purpose.INIT), 0)) >> 1)
            net = DispatchNet(self.config.width, self.config.layers)
        self.online = net.to(self.device).flatten()
        self.exp_avg, self.exp_avg_sq = (torch.zeros_like(self.online.flat) for _ in range(2))
        self.count = np.zeros(1, np.int64)

    # acting

    @torch.no_grad()
    def scores(self, rows: np.ndarray, mask: np.ndarray | None) -> torch.Tensor:
        """Scores [B, J] of the jobs."""
        allowed = np.ones((len(rows), self.row_layout.jobs), np.bool_) if mask is None else mask
        inputs = (torch.from_numpy(np.ascontiguousarray(part)) for part in (rows, allowed))
        shops, now, next_op = self.row_layout.read(*(part.to(self.device) for part in inputs))
        memory = self.online.encode(shops)
        return self.online.decode(now, gather_next(memory, next_op))[:, 0].cpu()

    def policy(self, how: str) -> Policy:
        stream = key(self.seed, Purpose.ACTION, self.member)

        def act(rows: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
            scores = self.scores(rows, mask)
            if how != "sampled":
                return scores.argmax(1).numpy()
            u = torch.from_numpy(uniform(stream, episode * 2**32 + step))[:, None]
            cumulative = scores.double().softmax(1).cumsum(1)
            return (cumulative > u * cumulative[:, -1:]).to(torch.uint8).argmax(1).numpy()

        return act

    def act(self, obs: Any, mask: Any = FROM_OBSERVATION, state: Any = None) -> Any:
        """The job to dispatch next, for one observation or a batch. Without a mask (None) it may be
        one that cannot be dispatched now."""
        refuse_state(state)
        rows, single = self.layout.rows_of(obs)
        batch = () if single else (len(rows),)
        allowed = mask_rows(self.mask_form, self.layout, obs, mask, batch, self.masked)
        refuse_empty(self.mask_form, allowed)
        jobs = self.scores(rows, allowed).argmax(1).numpy()
        return int(jobs[0]) if single else jobs

    def player(self) -> Player:
        """A player of instances; those of one size are played together. Every second sample
        schedules the reversed shop, where the policy makes other mistakes."""

        def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
            require_draws(instances, samples, seed)
            backwards = samples // 2
            orders_by_shop = draw_orders(instances, samples - backwards, seed)
            if backwards:
                others = draw_orders(
                    [reversed_shop(instance) for instance in instances], backwards, seed
                )
                for orders, other in zip(orders_by_shop, others, strict=True):
                    orders += [order[::-1] for order in other]
            return orders_by_shop

        def draw_orders(
            instances: Sequence[Instance], samples: int, seed: int
        ) -> list[list[np.ndarray]]:
            orders_by_shop: list[list[np.ndarray]] = [[] for _ in instances]
            sized = sorted(range(len(instances)), key=lambda i: instances[i].machine.shape)
            for _, group in groupby(sized, key=lambda i: instances[i].machine.shape):
                same = list(group)
                shops = batch([instances[i] for i in same], self.device)
                for i, orders in zip(same, self.orders(shops, samples, seed), strict=True):
                    orders_by_shop[i] = list(orders[:, : instances[i].operations])
            return orders_by_shop

        return play

    @torch.no_grad()
    def orders(self, shops: ShopBatch, samples: int, seed: int) -> np.ndarray:
        """Dispatch orders [N, samples, dispatches]; with 0 samples the greedy one."""
        N, J = shops.length.shape
        whole = max(samples, 1)
        piece, source = max(1, min(whole, MAX_JOBS // (N * J))), None
        if samples:
            source = torch.Generator(self.device)
            source.manual_seed(int(draw_bits(key(seed, Purpose.EVALUATE, self.member), 0)) >> 1)
        chunks = [
            play_schedules(self.online, shops, min(piece, whole - first), source)[1]
            for first in range(0, whole, piece)
        ]
        return torch.cat(chunks, 2).permute(1, 2, 0).cpu().numpy()


# learning


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
    """A lower bound on the memory of an update with the largest shops: first all schedules are
    drawn at once, then all dispatches of the best ones are learned from at once."""
    config, jobs, machines = agent.config, agent.random.jobs[1], agent.random.machines[1]
    drawn = config.samples * DRAWN
    learned = jobs * machines * (LEARNED + LEARNED_WIDTH * config.width)
    return config.shops * jobs * max(drawn, learned)


class DispatchLearner(BareLearner):
    """Each round draws shops of one size, schedules them, and makes one update. All random numbers
    are functions of the seed and the step, so a resumed run continues exactly."""

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

    def draw(self, count: int) -> ShopBatch:
        """The random shops of this step, all of one size."""
        random, device = self.agent.random, self.agent.device
        rng = np.random.default_rng(int(key(self.run.seed, Purpose.EPISODE, self.step)))
        machine, duration = (torch.from_numpy(t).to(device) for t in random.draw_tables(rng, count))
        _, jobs, machines = machine.shape
        length = torch.full((count, jobs), machines, device=device)
        return shops_of(machine, duration, length, machines)

    def round(self, until: int | None = None) -> list[Episode]:
        """One update, also beyond `until`, so that logging and evaluation do not change what is
        learned."""
        config, agent, clock = self.config, self.agent, self.clock
        count = min(config.shops, max(self.run.steps - self.step, 1))
        clock.start()
        shops = self.draw(count)
        clock.lap("env")
        address = key(self.run.seed, Purpose.ACTION, self.step)
        self.source.manual_seed(int(draw_bits(address, 0)) >> 1)
        makespan, order = play_schedules(agent.online, shops, config.samples, self.source)
        best = makespan.argmin(1)
        label = order.gather(2, best[None, :, None].expand(len(order), -1, 1)).squeeze(2)
        clock.lap("act")
        agent.online.flat_grad.zero_()
        loss = -likelihood(agent.online, shops, label)
        loss.backward()
        agent.updates += 1
        lr = value_at(config.lr, self.step)
        online, moments = agent.online, (agent.exp_avg, agent.exp_avg_sq)
        parameters = online.flat, online.flat_grad, *moments, agent.updates, lr
        norm = descend(*parameters, limit=config.clip_norm)
        gaps = makespan / shops.bound[:, 0] - 1
        values = (loss.detach(), norm.squeeze(), gaps.mean(), gaps.amin(1).mean())
        self.sums += torch.stack(values).double()
        self.counted += 1
        self.step += count
        clock.lap("update")
        return []

    def statistics(self) -> dict[str, float]:
        """Means over the updates since the last call."""
        if not self.counted:
            return {}
        means: list[float] = (self.sums / self.counted).tolist()
        statistics: dict[str, float] = dict(zip(NAMES, means, strict=True))
        self.sums.zero_()
        self.counted = 0
        return statistics

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
