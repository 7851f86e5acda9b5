"""The agent that schedules any shop: a network on the features of `dispatch`, as a policy of
environments and as a player of instances."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.algorithms.agent import FlatAgent, mask_rows, refuse_empty, refuse_state
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import EnvSpec, Policy
from tenfold.core.random import Purpose, draw_bits, key, uniform
from tenfold.core.spaces import policy_actions
from tenfold.domains.jobshop import SHOP
from tenfold.domains.jobshop.config import Dispatcher
from tenfold.domains.jobshop.dispatch import Shops, batch
from tenfold.domains.jobshop.dispatching import Sheet
from tenfold.domains.jobshop.instances import Instance, RandomShops, turned
from tenfold.domains.jobshop.orders import Player, require_draws
from tenfold.domains.jobshop.policy import DispatchNet, played, recalled
from tenfold.envs.arguments import split_name

if TYPE_CHECKING:
    from tenfold.config.run import Run

ROOM = 2**21  # jobs in all schedules that are played at once, which bounds the memory


def random_shops(env: str) -> RandomShops:
    """Those that an environment's name asks for."""
    base, asked = split_name(env)
    if base != SHOP:
        raise ConfigError(
            "env",
            f"= {env} is no job shop, and the dispatcher learns from random ones: give "
            f"{SHOP}(random=6..15x5..10), jobs x machines.",
        )
    if "random" not in asked or set(asked) - {"random", "routes"}:
        raise ConfigError(
            "env",
            f"= {env} is one shop, and the dispatcher learns from random ones: give "
            "tenfold/JobShop-v0(random=6..15x5..10), jobs x machines. What it has learned plays "
            "any: tenfold eval RUN --instance FILE.",
        )
    try:
        return RandomShops.parse(**asked)
    except EnvironmentFault as error:
        raise ConfigError("env", f"= {env}: {error}") from None


class DispatchAgent(FlatAgent):
    """The network, Adam's moments and the count of updates."""

    reads_masks = masked = True
    config: Dispatcher

    def __init__(self, run: "Run", spec: EnvSpec) -> None:
        assert isinstance(run.agent, Dispatcher)
        self.config, self.seed, self.layout = run.agent, run.seed, spec.layout
        self.random = random_shops(run.env)
        self.sheet = Sheet(self.random)
        self.actions = policy_actions(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(draw_bits(key(run.seed, Purpose.INIT), 0)) >> 1)
            net = DispatchNet(self.config.width, self.config.layers)
        self.online = net.to(self.device).flatten()
        self.mean, self.square = (torch.zeros_like(self.online.flat) for _ in range(2))
        self.count = np.zeros(1, np.int64)

    # acting

    @torch.no_grad()
    def scores(self, rows: np.ndarray, mask: np.ndarray | None) -> torch.Tensor:
        """Of jobs [B, J]."""
        allowed = np.ones((len(rows), self.sheet.jobs), np.bool_) if mask is None else mask
        given = (torch.from_numpy(np.ascontiguousarray(part)) for part in (rows, allowed))
        shops, now, following = self.sheet.read(*(part.to(self.device) for part in given))
        memory = self.online.encode(shops)
        return self.online.decode(now, recalled(memory, following))[:, 0].cpu()

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
        """The job to dispatch next, for one observation or a batch, of those that a mask allows.
        With None for a mask, one that may not be chosen now can come out."""
        refuse_state(state)
        rows, single = self.layout.rows_of(obs)
        batch = () if single else (len(rows),)
        allowed = mask_rows(self.mask_form, self.layout, obs, mask, batch, self.masked)
        refuse_empty(self.mask_form, allowed)
        found = self.scores(rows, allowed).argmax(1).numpy()
        return int(found[0]) if single else found

    def player(self) -> Player:
        """Plays instances of any size, those of one size together. Every second sample is of the
        shop backwards: the policy errs elsewhere there."""

        def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
            require_draws(instances, samples, seed)
            backwards = samples // 2
            found = ahead(instances, samples - backwards, seed)
            if backwards:
                others = ahead([turned(each) for each in instances], backwards, seed)
                for orders, other in zip(found, others, strict=True):
                    orders += [order[::-1] for order in other]
            return found

        def ahead(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
            found: list[list[np.ndarray]] = [[] for _ in instances]
            sized = sorted(range(len(instances)), key=lambda i: instances[i].machine.shape)
            for _, those in groupby(sized, key=lambda i: instances[i].machine.shape):
                same = list(those)
                shops = batch([instances[i] for i in same], self.device)
                for i, orders in zip(same, self.orders(shops, samples, seed), strict=True):
                    found[i] = list(orders[:, : instances[i].operations])
            return found

        return play

    @torch.no_grad()
    def orders(self, shops: Shops, samples: int, seed: int) -> np.ndarray:
        """[N, samples, dispatches]; with 0 samples the greedy one."""
        N, J = shops.length.shape
        whole = max(samples, 1)
        piece, source = max(1, min(whole, ROOM // (N * J))), None
        if samples:
            source = torch.Generator(self.device)
            source.manual_seed(int(draw_bits(key(seed, Purpose.EVALUATE, self.member), 0)) >> 1)
        pieces = [
            played(self.online, shops, min(piece, whole - first), source)[1]
            for first in range(0, whole, piece)
        ]
        return torch.cat(pieces, 2).permute(1, 2, 0).cpu().numpy()
