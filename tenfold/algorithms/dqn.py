"""Q-learning: DQN, double, dueling, n-step, prioritised, quantile, implicit, categorical, noisy.

The plain reference: networks, acting, the loss of a batch, an update. What can be set is in
`dqn_settings`; HOW an update runs (autograd, one fused call) is an engine's business; what is
learned is decided here.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import FlatAgent, Tensors, refuse_state
from tenfold.algorithms.dqn_settings import DQN, Boltzmann, Epsilon, Hard
from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.layout import ObsLayout
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Policy
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.spaces import DiscreteActions, allowed_actions
from tenfold.engines.choose import choose_engine
from tenfold.envs.adapter import Environments
from tenfold.envs.faults import NOTHING_ALLOWED
from tenfold.memory.replay import Replay
from tenfold.nets.q_network import QNetwork, fit_encoder
from tenfold.ops.adam import polyak
from tenfold.ops.qlearning import categorical_items, categorical_mean, td_items

Values = Callable[[np.ndarray, torch.Tensor | None], np.ndarray]
DQN_ONLINE, DQN_TARGET, DQN_MEAN, DQN_SQUARE, DQN_GRAD = range(5)  # rows of an agent's `block`


class DQNAgent(FlatAgent):
    """Online and target network, Adam's moments, the count of updates.

    Agent `member` of a world draws from streams of its own. `block` is where the numbers live, if
    that is decided elsewhere.
    """

    actor_bits, reads_masks = 32, True
    metric_names = ("loss", "q", "td_error", "grad_norm")
    delay, target_slice = 1, slice(None)  # no delayed policy; the target mirrors all parameters

    def __init__(
        self,
        config: DQN,
        layout: ObsLayout,
        actions: DiscreteActions,
        seed: int,
        device: str = "cpu",
        member: int = 0,
        block: torch.Tensor | None = None,
    ) -> None:
        self.config = replace(config, net=fit_encoder(config.net, layout))
        self.layout, self.actions = layout, actions
        if config.normalize_obs:
            self.normalise(layout, self.config.net.encoder)
        self.online = self.make_network().initialise([seed], member).to(device)
        self.target = self.make_network().to(device)
        # one array for compiled code, five for everyone else
        size = self.online.flat.numel()
        self.block = torch.zeros(5, size, device=device) if block is None else block
        self.online.flatten(self.block[DQN_ONLINE], self.block[DQN_GRAD])
        self.target.flatten(self.block[DQN_TARGET]).flat.copy_(self.online.flat)
        self.exp_avg, self.exp_avg_sq = self.block[DQN_MEAN], self.block[DQN_SQUARE]
        self.count = np.zeros(1, np.int64)  # gradient updates so far
        self.device = self.online.flat.device
        self.seed, self.member = seed, member
        self.keys = {purpose: key(seed, purpose, member) for purpose in Purpose}
        self.noise = np.zeros(self.online.noise_size, np.float32)

    # networks

    @property
    def frames(self) -> int:
        return self.config.frames

    @property
    def input_layout(self) -> ObsLayout:
        """A frame, or several together."""
        return self.layout.stacked(self.frames) if self.frames > 1 else self.layout

    def make_network(self, members: int | None = None) -> Any:
        """One that sees as many frames as the settings say."""
        layout = self.input_layout
        shape = (layout.size,) if self.config.net.encoder == "mlp" else layout.net_shape
        scale = 1.0 if self.norm else layout.scale
        if not self.config.net.module:
            return QNetwork(shape, self.actions.n, self.config, scale, members)
        if members:
            raise ConfigError(
                "agent.net.module",
                "is for one network: with several agents set --share, or leave it out.",
            )
        from tenfold.nets.q_network import OwnQNetwork  # here: few ask for it

        return OwnQNetwork(shape, self.actions.n, self.config, scale)

    def make_replay(self, envs: Environments) -> Any:
        return Replay(
            self.config, self.layout, envs.num_envs, self.seed, options=self.mask_size(envs)
        )

    def mask_size(self, envs: Environments) -> int:
        """The length of a mask, 0 where there is none."""
        return 0 if envs.mask is None else self.actions.n

    def make_engine(self, run: Run, replay: Any, envs: Environments) -> tuple[Any, str]:
        """Its engine, and one sentence about the choice."""
        return choose_engine(run, self, replay, envs)

    # acting

    def values(self, rows: np.ndarray, noise: torch.Tensor | None = None) -> np.ndarray:
        """Mean action values [B, A] for encoded observations [B, *shape]."""
        with torch.no_grad():
            return self.mean_values(torch.from_numpy(rows).to(self.device), noise).cpu().numpy()

    def mean_values(self, rows: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """As `values`, of rows on the device and left there."""
        return self.means(self.online(self.to_net(rows), noise))

    def means(self, values: torch.Tensor) -> torch.Tensor:
        """Of what a network says, [..., A, N] -> [..., A]."""
        how = self.config.categorical
        return categorical_mean(values, how.low, how.high) if how else values.mean(-1)

    def explore(
        self,
        rows: np.ndarray,
        step: int,
        rounds: int,
        mask: np.ndarray | None = None,
        values: Values | None = None,
    ) -> np.ndarray:
        """Actions [B] 0 … n − 1 for training, of those that a mask [B, A] allows. `step` sets the
        schedules; `rounds` counts calls and addresses the draws; `values` does what the method of
        this name does, where an engine has a faster way."""
        ask = values or self.values
        return self.explore_by(lambda noise: ask(rows, noise), len(rows), step, rounds, mask)

    def explore_by(
        self,
        ask: Callable[[torch.Tensor | None], np.ndarray],
        size: int,
        step: int,
        rounds: int,
        mask: np.ndarray | None,
    ) -> np.ndarray:
        """`explore` by action values [B, A], which are asked for only where they count, under noise
        or without."""

        def values(noise: torch.Tensor | None) -> np.ndarray:
            return ask(noise) if mask is None else np.where(mask, ask(noise), -np.inf)

        start, how = rounds * size, self.config.explore
        if self.config.warms_up(step):
            return self.random_actions(start, size, mask)
        if isinstance(how, Epsilon):
            random = fill_uniform(self.keys[Purpose.COIN], start, np.empty(size)) < value_at(
                how.schedule, step
            )
            choice = self.random_actions(start, size, mask)
            return choice if random.all() else np.where(random, choice, values(None).argmax(-1))
        if isinstance(how, Boltzmann):  # argmax(Q / T + Gumbel noise) is a draw from softmax(Q / T)
            u = fill_uniform(
                self.keys[Purpose.ACTION], start * self.actions.n, np.empty(size * self.actions.n)
            )
            gumbel = -np.log(-np.log(np.maximum(u, 2.0**-53)))
            known = values(None).astype(np.float64)
            return (known + value_at(how.temperature, step) * gumbel.reshape(size, -1)).argmax(-1)
        return values(self.draw_noise(Purpose.NOISE_ACT, rounds)).argmax(-1)

    def exploring(self, step: int) -> dict[str, float]:
        """What sets the exploration at this step, for the metrics."""
        how = self.config.explore
        if isinstance(how, Epsilon):
            return {"epsilon": value_at(how.schedule, step)}
        if isinstance(how, Boltzmann):
            return {"temperature": value_at(how.temperature, step)}
        return {}

    def random_actions(self, start: int, size: int, mask: np.ndarray | None) -> np.ndarray:
        u = fill_uniform(self.keys[Purpose.ACTION], start, np.empty(size))
        if mask is None:
            return (u * self.actions.n).astype(np.int64)
        return allowed_actions(u, mask)

    def act(self, obs: Any, mask: Any = FROM_OBSERVATION, state: None = None) -> Any:
        """The greedy action for one observation or a batch, in the environment's own numbers.

        NumPy in, NumPy out; torch in, torch out; one observation gives one action. A batch of Dict
        or Tuple observations is a list of them. `mask` is True where an action is allowed; that of
        a Dict observation, under its key `action_mask`, need not be given. An agent that learned
        with masks refuses to act without one; None allows every action. An agent
        that sees k frames takes [k, …] for one observation, oldest first; before an episode's first
        frame stands that frame again. `state` is for agents that remember.
        """
        refuse_state(state)
        return self.act_by(self.greedy, obs, mask)

    def greedy(self, rows: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """The best actions for encoded rows of those that a mask allows, in the environment's own
        numbers."""
        values = self.values(rows)
        if mask is not None:
            values = np.where(mask, values, -np.inf)
        return values.argmax(-1) + self.actions.start

    def policy(self, how: str) -> Policy:
        """For evaluations, always greedy."""

        def choose(
            rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
        ) -> np.ndarray:
            if mask is not None and not mask.any(-1).all():
                row = int(np.argmin(mask.any(-1)))
                raise EnvironmentFault(
                    f"Evaluation, episode {episode[row]}, step {step[row]}: {NOTHING_ALLOWED}"
                )
            return self.greedy(rows, mask)

        return choose

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        if self.config.net.encoder == "mlp":
            return self.normalised_rows(rows)
        return self.input_layout.to_net(rows)

    def draw_noise(self, purpose: Purpose, count: int) -> torch.Tensor | None:
        """The noise vector number `count` of a purpose; None where the layers are not noisy."""
        if not self.noise.size:
            return None
        fill_normal(self.keys[purpose], count * self.noise.size, self.noise)
        return torch.tensor(self.noise, device=self.device)

    def update_draws(self, items: int) -> dict[str, Any]:
        """The fractions that implicit quantiles are asked at, one row an item."""
        if not (how := self.config.implicit):
            return {}
        return {
            "fractions": (Purpose.FRACTION, fill_uniform, (items, how.samples)),
            "next_fractions": (Purpose.NEXT_FRACTION, fill_uniform, (items, how.target_samples)),
        }

    # learning

    def minibatches(self, rows: Tensors, send: Any, whole: bool) -> Iterator[tuple[Any, ...]]:
        """What `loss` is given of a batch: micro-batches, or all of it. `send` brings rows to the
        device."""
        noise = self.draw_noise(Purpose.NOISE_ONLINE, self.updates)
        target_noise = self.draw_noise(Purpose.NOISE_TARGET, self.updates)
        action = rows["action"]
        # agents of a world stand before the items
        items, effective = action.dim() - 1, action.shape[-1]
        size = effective if whole else self.config.batch_size
        for start in range(0, effective, size):
            part = {name: t.narrow(items, start, size) for name, t in rows.items()}
            yield send(part), noise, target_noise, effective

    def update(
        self, minibatches: Iterable[tuple[Any, ...]], optimiser: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """One gradient update: a step of Adam, then the target network follows. Returns every
        item's TD error, and the metrics of each minibatch."""
        results, norm = optimiser.descend(self.loss, minibatches)
        optimiser.follow()
        errors = torch.cat([errors for _, errors, _ in results], -1)
        metrics = [
            torch.stack([loss / self.members, q * (1 / len(results))]) for loss, _, q in results
        ]
        metrics[-1] = torch.cat([metrics[-1], torch.stack([errors.abs().mean(), norm.mean()])])
        return errors, metrics

    def target_share(self, number: int) -> float:
        """How far the target network moves towards the online one after update `number`."""
        how = self.config.target
        if isinstance(how, Hard):
            return 0.0 if how.steps or number % how.every else how.tau
        return how.tau

    def stepped(self, rounds: int, worlds: int) -> None:
        how = self.config.target
        if isinstance(how, Hard) and how.steps and rounds % how.rounds(worlds) == 0:
            polyak(self.target.flat, self.online.flat, how.tau)

    def loss(
        self,
        batch: Tensors,
        noise: torch.Tensor | None,
        target_noise: torch.Tensor | None,
        effective: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(Σ weight·loss / effective batch, TD error of each item, mean Q of the actions taken)."""
        passes = self.passes(batch, noise, target_noise)
        if how := self.config.categorical:
            weighted, errors, q = categorical_items(batch, *passes, how.low, how.high)
        else:
            weighted, errors, q = td_items(batch, *passes, self.config.loss)
        return weighted.sum() / effective, errors, q.mean()

    def passes(
        self,
        batch: Tensors,
        noise: torch.Tensor | None,
        target_noise: torch.Tensor | None,
        side_stream: Callable[[int], Any] = nullcontext,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(values of s, target network's values of s', values of s' that choose the next action).

        Double Q-learning needs the online network on s' too, a pass of its own without gradient, at
        the same fractions. Inside of `side_stream` is what the other passes do not wait for.
        """
        next_obs, next_fractions = batch["next_obs"], batch.get("next_fractions")
        with torch.no_grad(), side_stream(0):
            next_values = self.target(self.to_net(next_obs), target_noise, next_fractions)
        chooser = next_values
        if self.config.double:
            with torch.no_grad(), side_stream(1):
                chooser = self.online(self.to_net(next_obs), noise, next_fractions)
        values = self.online(self.to_net(batch["obs"]), noise, batch.get("fractions"))
        return values, next_values, chooser

    # state

    def begin_with(self, state: Tensors) -> None:
        """The best checkpoint holds no target network: it is then what acts."""
        super().begin_with(state)
        self.target.flat.copy_(state.get("target", self.online.flat))

    def state(self) -> Tensors:
        return super().state() | {"target": self.target.flat}
