"""What the agents of sac and td3 share: a policy and critics in flat buffers, acting, and the state
to save. What a policy's numbers mean, and the two losses, each agent says for itself."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.algorithms.agent import FlatAgent, Tensors, refuse_state
from tenfold.config.action_noise import ActionNoiseOption
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Policy
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.spaces import BoundedActions, DiscreteActions
from tenfold.engines.choose import choose_engine
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.nets.policy import ActorCritics, Sizes
from tenfold.nets.q_network import fit_encoder
from tenfold.ops.exploration_noise import ActionNoise

# parts of the networks, of which a loss may be
ACTOR, CRITICS, TEMPERATURE = "actor", "critics", "temperature"


class ActorCriticAgent(FlatAgent):
    """Online and target networks, Adam's moments, the count of updates."""

    # of an update; a policy may have more to say of its loss
    metric_names: tuple[str, ...] = ("critic_loss", "q", "td_error", "grad_norm", "actor_loss")
    delay = 1  # updates of the critics to one of the policy
    # what an update draws beside its batch, a row an item, and the purposes
    extra_noise: Mapping[str, Purpose] = MappingProxyType({})
    actor_parts: tuple[str, ...] = (ACTOR,)  # that the policy's loss is about
    # where updates are recorded: a stream on which the critics' targets are computed, and waiting
    # for it
    side_stream: Callable[[int], Any] = nullcontext
    wait_side_streams: Callable[[], Any] = nullcontext

    def __init__(
        self,
        config: Any,
        layout: ObsLayout,
        actions: BoundedActions | DiscreteActions,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self.layout, self.actions, self.seed = layout, actions, seed
        self.config = replace(config, net=fit_encoder(config.net, layout))
        if config.normalize_obs:
            self.normalise(layout, self.config.net.encoder)
        self.online, self.target = self.make_networks()
        self.online.to(device)
        self.target.to(device)
        many, fewer = self.online.flat.numel(), self.target.flat.numel()
        # one array for compiled code, five for everyone else
        self.block = torch.zeros(4 * many + fewer, device=device)
        online, target, self.exp_avg, self.exp_avg_sq, grad = self.block.split(
            [many, fewer, many, many, many]
        )
        self.online.flatten(online, grad)
        self.target.flatten(target).flat.copy_(self.online.flat[self.target_slice])
        self.count = np.zeros(1, np.int64)  # gradient updates so far
        self.device = self.online.flat.device
        self.keys = {purpose: key(seed, purpose) for purpose in Purpose}

    # networks

    def make_networks(self) -> tuple[ActorCritics, ActorCritics]:
        """Online, initialised, and target."""
        raise NotImplementedError

    def sizes(self, output: int, values: int) -> Sizes:
        layout = self.layout
        shape = (layout.size,) if self.config.net.encoder == "mlp" else layout.net_shape
        scale = 1.0 if self.norm else layout.scale
        return Sizes(shape, output, self.actions.reals, values, self.config.critics, scale)

    @property
    def target_slice(self) -> slice:
        """What of the online networks the target follows."""
        places = self.online.places
        first = ACTOR if self.target.actor else CRITICS
        return slice(places[first].start, places[CRITICS].stop)

    def make_replay(self, envs: Environments) -> Replay:
        lanes, reals = envs.num_envs, self.actions.reals
        return Replay(self.config, self.layout, lanes, self.seed, reals=reals)

    def make_engine(self, run: Run, replay: Any, envs: Environments) -> tuple[Any, str]:
        """Its engine, and one sentence about the choice."""
        return choose_engine(run, self, replay, envs)

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        if self.config.net.encoder == "mlp":
            return self.normalised_rows(rows)
        return self.layout.to_net(rows)

    # acting

    def make_noise(self, envs: Any) -> ActionNoise | None:
        how = self.config.noise
        if not isinstance(how, ActionNoiseOption):
            return None
        rule = how.rule(self.actions.reals)
        return ActionNoise(self.keys[Purpose.ACTION_NOISE], rule, envs.num_envs)

    def policy_output(self, rows: np.ndarray) -> torch.Tensor:
        """What the policy says of encoded rows."""
        with torch.no_grad():
            return self.online.policy_output(self.to_net(torch.from_numpy(rows).to(self.device)))

    def explore(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Actions for training, as the memory has them. `step` sets the schedules, and tells
        whether learning has begun, before which they are random; `rounds` counts calls and
        addresses the draws."""
        if step < self.config.learning_starts:
            return self.random_actions(len(rows), rounds)
        draws = self.draws(len(rows), rounds * len(rows), self.spread(step))
        return self.sample_by(self.policy_output(rows), *draws)

    def random_actions(self, size: int, rounds: int) -> np.ndarray:
        many = size * max(self.actions.reals, 1)
        u = fill_uniform(self.keys[Purpose.ACTION], rounds * many, np.empty(many))
        if isinstance(self.actions, DiscreteActions):
            return (u * self.actions.n).astype(np.int64)
        return (2 * u - 1).astype(np.float32).reshape(size, -1)

    def spread(self, step: int) -> float:
        """Of the normal numbers by which actions are drawn in training."""
        return 1.0

    def draws(self, size: int, first: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Uniform [B, C] and normal [B, D] numbers by which actions are drawn, of the rows from
        `first` on."""
        reals = self.actions.reals
        u, noise = np.empty(size * (not reals)), np.empty(size * reals, np.float32)
        fill_uniform(self.keys[Purpose.ACTION], first * (not reals), u)
        fill_normal(self.keys[Purpose.NOISE_ACT], first * reals, noise)
        return u.reshape(size, -1), (np.float32(spread) * noise).reshape(size, -1)

    def sample_by(self, output: torch.Tensor, *draws: np.ndarray) -> np.ndarray:
        """`sample_action`, by draws on the host."""
        tensors = (torch.from_numpy(drawn).to(self.device) for drawn in draws)
        return self.sample_action(output, *tensors).cpu().numpy()

    def sample_action(
        self, output: torch.Tensor, uniform: torch.Tensor, normal: torch.Tensor
    ) -> torch.Tensor:
        """Actions drawn from the policy by given numbers."""
        raise NotImplementedError

    def greedy_action(self, output: torch.Tensor) -> torch.Tensor:
        """Actions without exploration."""
        raise NotImplementedError

    def greedy(self, rows: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Actions without exploration for encoded rows, in the environment's own numbers."""
        return self.actions.for_env(self.greedy_action(self.allowed(rows, mask)).cpu().numpy())

    def sampled(self, rows: np.ndarray, mask: np.ndarray | None, first: int) -> np.ndarray:
        """Actions drawn from the policy, by the agent's draws from row number `first` on."""
        draws = self.draws(len(rows), first)
        return self.actions.for_env(self.sample_by(self.allowed(rows, mask), *draws))

    def sampled_by_step(
        self, rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        """Actions drawn from the policy by (episode, step): the draws of `sampled` for each row
        alone, one pass for all."""
        per_row = [self.draws(1, address) for address in (episode * 2**32 + step).tolist()]
        draws = (np.concatenate(part) for part in zip(*per_row, strict=True))
        return self.actions.for_env(self.sample_by(self.allowed(rows, mask), *draws))

    def allowed(self, rows: np.ndarray, mask: np.ndarray | None) -> torch.Tensor:
        """What the policy says of encoded rows; masked options are out of the question."""
        output = self.policy_output(rows)
        if mask is None:
            return output
        return torch.where(torch.from_numpy(mask).to(self.device), output, -torch.inf)

    def policy(self, how: str) -> Policy:
        """For evaluations: greedy or sampled."""
        if how == "sampled":
            return self.sampled_by_step
        return lambda rows, mask, episode, step: self.greedy(rows, mask)

    def act(
        self, obs: Any, mask: Any = FROM_OBSERVATION, sample: bool = False, state: None = None
    ) -> Any:
        """The action for one observation or a batch, in the environment's own numbers: without
        exploration, or with `sample` one drawn from the policy.

        NumPy in, NumPy out; torch in, torch out; one observation gives one action. A batch of Dict
        or Tuple observations is a list of them. `mask` is True where a discrete action is allowed.
        `state` is for agents that remember.
        """
        refuse_state(state)
        if not sample:
            return self.act_by(self.greedy, obs, mask)
        if not self.config.can_sample:
            raise UserError(f"Actions of {self.config.name} cannot be drawn: its policy is greedy.")
        first = self.sampled_rows

        def draw(rows: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
            self.sampled_rows = first + len(rows)
            return self.sampled(rows, mask, first)

        return self.act_by(draw, obs, mask)

    # learning

    def minibatches(self, rows: Tensors, send: Any, whole: bool) -> Iterator[tuple[Tensors]]:
        """What `update` is given: a batch is learned from as a whole. `send` brings rows to the
        device."""
        yield (send(rows),)

    def update(
        self, minibatches: Iterable[tuple[Tensors]], optimiser: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """One gradient update: first the critics learn, then, every `delay` updates, the policy by
        what they say now, and the target networks follow. Returns every item's TD error, and the
        metrics."""
        ((batch,),) = minibatches
        loss, errors, q = optimiser.descend_networks(self.critic_loss, batch, (CRITICS,))
        policy: list[torch.Tensor] = []
        if optimiser.policy_due:
            policy = optimiser.descend_networks(
                self.actor_loss, batch, self.actor_parts, self.delay
            )
            optimiser.follow()
        # means are over all updates, and these come rarer
        rarer = [self.delay * value for value in policy]
        metrics = [loss, q, errors.mean(), optimiser.gradient_norm(), *rarer]
        return errors, [torch.stack(metrics)]

    def target_share(self, number: int) -> float:
        """How far the target networks move towards the online ones after update `number`."""
        return self.config.tau

    def update_draws(self, items: int) -> dict[str, Any]:
        """Normal numbers, one row an item."""
        shape = items, self.actions.reals
        return {name: (purpose, fill_normal, shape) for name, purpose in self.extra_noise.items()}

    def td_target(self, batch: Tensors) -> torch.Tensor:
        """What the critics' values of the stored actions should be [B]."""
        raise NotImplementedError

    def values(self, batch: Tensors) -> torch.Tensor:
        """The critics' values of the stored actions [critics, B]."""
        return self.online(self.to_net(batch["obs"]), batch["action"]).squeeze(-1)

    def critic_loss(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(loss, every item's TD error, mean of the critics' values)."""
        with torch.no_grad(), self.side_stream(0):
            target = self.td_target(batch)
        values = self.values(batch)
        self.wait_side_streams()
        return self.td_loss(batch, values, target)

    def actor_loss(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """(loss of the parts `actor_parts`, what else there is to say of it)."""
        raise NotImplementedError

    def td_loss(
        self, batch: Tensors, values: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The critics' loss, ½ Σ_i mean(w·(Q_i − y)²), for their values [critics, B] and what those
        should be [B]. A priority is the mean of |Q_i − y| over the critics."""
        td_error = values - target
        loss = 0.5 * (batch["weight"] * td_error.square()).mean(-1).sum()
        return loss, td_error.detach().abs().mean(0), values.detach().mean()

    # state

    @property
    def acted_by(self) -> torch.Tensor:
        """The policy alone: actors need no critics."""
        return self.online.flat[self.online.places[ACTOR]]

    def begin_with(self, state: Tensors) -> None:
        """The best checkpoint holds no target networks: they are then what is learned."""
        super().begin_with(state)
        online: torch.Tensor = self.online.flat[self.target_slice]
        self.target.flat.copy_(state.get("target", online))

    def state(self) -> Tensors:
        return super().state() | {"target": self.target.flat}


class GreedyPolicy(nn.Module):
    """To be exported: actions without exploration; critics stay behind. Options that a mask forbids
    are out of the question."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.agent = copy.copy(agent)
        self.online = self.agent.online = agent.online.detached_copy()
        self.online.critics, self.online.temperature = nn.ModuleList(), None
        actions: Any = agent.actions
        if actions.reals:
            self.register_buffer("low", torch.from_numpy(actions.low))
            self.register_buffer("high", torch.from_numpy(actions.high))

    def forward(
        self, rows: torch.Tensor, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.online.policy_output(self.agent.to_net(rows))
        if mask is not None:
            output = torch.where(mask, output, -torch.inf)
        action = self.choose(output, *draws)
        if not self.agent.actions.reals:
            return action[:, None], output[:, :0]
        share, low, high = (action.double() + 1) / 2, self.low, self.high
        return output[:, :0].long(), low + share * (high - low)

    def choose(self, output: torch.Tensor, *draws: torch.Tensor | None) -> torch.Tensor:
        return self.agent.greedy_action(output)


class DrawnPolicy(GreedyPolicy):
    """Drawn by given numbers: a uniform one for a discrete action, normal ones for real numbers."""

    def choose(self, output: torch.Tensor, *draws: torch.Tensor | None) -> torch.Tensor:
        none = output[:, :0]
        uniform, normal = (none if drawn is None else drawn for drawn in draws)
        return self.agent.sample_action(output, uniform, normal)
