"""What carries a custom off-policy algorithm: the user's networks behind the interface of an
agent, a replay memory and a plain engine for the user's `update`. The learner is that of dqn, sac
and td3."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.algorithms.agent import FlatAgent, Tensors, refuse_state
from tenfold.algorithms.custom import Draw, OffPolicy, Transitions
from tenfold.algorithms.custom_learner import Networks
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.protocols import EnvSpec, Policy
from tenfold.core.random import Purpose, draw_bits, fill_uniform, key
from tenfold.core.spaces import bounded_actions, discrete_actions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.ops.adam import ADAM_EPS, adam

if TYPE_CHECKING:
    from tenfold.config.run import Run


def actions_of(space: Any, env: str, name: str) -> Any:
    """One of n actions, or numbers within bounds."""
    if type(space).__name__ == "Discrete":
        return discrete_actions(space, env)
    return bounded_actions(space, env, name)


class CustomOffPolicyAgent(FlatAgent):
    """The user's networks, how they act, Adam's moments and counts."""

    metric_names = ()

    def __init__(self, algorithm: OffPolicy, run: "Run", spec: EnvSpec) -> None:
        self.config: Any = run.agent
        self.layout, self.seed, self.algorithm = spec.layout, run.seed, algorithm
        self.name = type(algorithm).__name__
        self.actions = actions_of(spec.action_space, run.env, self.name)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        algorithm.spec, algorithm.settings, algorithm.agent = spec, self.config, self  # type: ignore[assignment]
        if self.config.normalize_obs:
            self.normalise(self.layout, "mlp" if len(self.layout.net_shape) == 1 else "other")
        with torch.random.fork_rng(), told_of(f"{self.name}.build"):
            torch.manual_seed(run.seed)
            algorithm.build(spec, self.config)
        self.online = Networks(algorithm).to(self.device)
        self.online.flatten()
        self.exp_avg, self.exp_avg_sq = (torch.zeros_like(self.online.flat) for _ in range(2))
        # steps of Adam that each parameter has made
        self.steps = torch.zeros(self.online.flat.numel(), dtype=torch.int32)
        self.count, self.at = np.zeros(1, np.int64), 0  # updates; the environment step they are at
        self.keys = {purpose: key(run.seed, purpose) for purpose in Purpose}

    def make_replay(self, envs: Environments) -> Replay:
        reals = self.actions.reals
        return Replay(self.config, self.layout, envs.num_envs, self.seed, reals=reals)

    def make_engine(self, run: "Run", replay: Any, envs: Environments) -> tuple[Any, str]:
        if run.engine not in ("auto", "plain") or run.verify:
            raise ConfigError(
                "engine",
                f"= {run.engine}, verify = {run.verify}: an algorithm of one's own has "
                "the plain engine only; leave them out.",
            )
        return CustomUpdates(self, replay, envs), "plain, the algorithm's own"

    # acting

    def explore(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Actions for training, as the memory has them; random ones before learning starts."""
        size, reals = len(rows), self.actions.reals
        if step < self.config.learning_starts:
            many = size * max(reals, 1)
            u = fill_uniform(self.keys[Purpose.ACTION], rounds * many, np.empty(many))
            if reals:
                return (2 * u - 1).astype(np.float32).reshape(size, -1)
            return (u * self.actions.n).astype(np.int64)
        self.at = step  # schedules are read while it acts
        return self.choose(rows, rounds * size + np.arange(size))

    def choose(self, rows: np.ndarray, address: np.ndarray | None) -> np.ndarray:
        """Drawn by addresses, or the best; as the algorithm gives them."""
        draw = None
        if address is not None:
            draw = Draw(self.seed, self.member, address, self.device)
        with torch.no_grad(), told_of(f"{self.name}.act"):
            action = self.algorithm.act(self.to_net(torch.from_numpy(rows)), draw).cpu().numpy()
        reals = self.actions.reals
        expected = (len(rows), reals) if reals else (len(rows),)
        if action.shape != expected:
            raise UserError(
                f"{self.name}.act gave actions of shape {action.shape} for {len(rows)} "
                f"observations, and must give {expected}."
            )
        if not reals and not ((action >= 0) & (action < self.actions.n)).all():
            raise UserError(
                f"{self.name}.act gave action {action.max()}, and there are {self.actions.n}, "
                "from 0 on."
            )
        if not np.isfinite(action).all():
            raise UserError(f"{self.name}.act gave an action that is not finite.")
        return action.clip(-1, 1).astype(np.float32) if reals else action.astype(np.int64)

    def policy(self, how: str) -> Policy:
        def act(rows: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
            address = episode * 2**32 + step if how == "sampled" else None
            return self.actions.for_env(self.choose(rows, address))

        return act

    def act(self, obs: Any, mask: Any = None, state: None = None) -> Any:
        """The best action for one observation or a batch, in the environment's own numbers. Masks
        it cannot use, and it remembers nothing: both are None."""
        refuse_state(state)
        if mask is not None:
            raise UserError(f"{self.name} cannot use action masks: call act without one.")
        return self.act_by(lambda rows, _: self.actions.for_env(self.choose(rows, None)), obs, None)

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [B, …] as networks take them: floats, images with their channels in front."""
        rows = self.normalised_rows(rows.to(self.device))
        if len(self.layout.net_shape) == 3 or self.layout.frame:
            rows = self.layout.to_net(rows)
        return rows.float() * (1.0 if self.norm else self.layout.scale)

    def exploring(self, step: int) -> dict[str, float]:
        self.at = step
        return self.algorithm.exploring(step)

    # learning

    def place_of(self, module: nn.Module | nn.Parameter) -> slice:
        """Where its parameters lie in the flat buffer, one after another."""
        parameters = [module] if isinstance(module, nn.Parameter) else list(module.parameters())
        first = parameters[0].storage_offset() - self.online.flat.storage_offset()
        return slice(first, first + sum(p.numel() for p in parameters))

    def learn(self, loss: torch.Tensor, modules: tuple[Any, ...]) -> torch.Tensor:
        """A step of Adam by a loss for these networks, all others as they are; returns the
        gradient's norm before it was clipped."""
        online, networks = self.online, modules or (self.online,)
        limit = getattr(self.config, "clip_norm", None)
        eps, decay = (
            getattr(self.config, name, otherwise)
            for name, otherwise in (("adam_eps", ADAM_EPS), ("weight_decay", 0.0))
        )
        lr = value_at(self.config.lr, self.at)
        parameters = [
            [one] if isinstance(one, nn.Parameter) else list(one.parameters()) for one in networks
        ]
        flat = [p for group in parameters for p in group]
        gradients = torch.autograd.grad(loss, flat, allow_unused=True)
        with torch.no_grad():
            whole = torch.cat(
                [
                    (torch.zeros_like(p) if g is None else g).reshape(-1)
                    for p, g in zip(flat, gradients, strict=True)
                ]
            )
            norm = whole.norm()
            if limit:
                whole *= (limit / (norm + 1e-6)).clamp(max=1.0)
            used = 0
            for network in networks:
                columns = self.place_of(network)
                grad = whole[used : used + columns.stop - columns.start]
                used += len(grad)
                number = int(self.steps[columns.start]) + 1
                self.steps[columns] = number
                moments = self.exp_avg[columns], self.exp_avg_sq[columns]
                adam(online.flat[columns], grad, *moments, number, lr, eps, decay)
        return norm

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        self.algorithm.settings = self.config

    # state

    def policy_state(self) -> Tensors:
        buffers = {f"buffer.{name}": value for name, value in self.online.named_buffers()}
        return super().policy_state() | buffers

    def state(self) -> Tensors:
        return super().state() | {"steps": self.steps}


class CustomUpdates(OffPolicyEngine):
    """Updates by the user's function, from batches of the replay memory."""

    agent: CustomOffPolicyAgent

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)
        self.totals: Tensors = {}  # of the numbers that updates returned

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        agent, number = self.agent, self.agent.updates + 1
        agent.at = step
        self.sample(step, clock)
        rows = dict(self.staging.send(self.batch_tensors))
        for name in ("obs", "next_obs"):
            rows[name] = agent.to_net(rows[name])
        # torch's own random numbers in an update follow from the run's seed, also after a resume
        with torch.random.fork_rng(), told_of(f"{agent.name}.update"):
            torch.manual_seed(int(draw_bits(agent.keys[Purpose.SHUFFLE], number)) >> 1)
            metrics = agent.algorithm.update(Transitions(**rows))
        if not isinstance(metrics, Mapping):
            raise UserError(
                f"{agent.name}.update returned {metrics!r:.40}, and must return a dict."
            )
        agent.updates = number
        errors = torch.as_tensor(metrics.get("td_error", torch.ones(self.batch_items))).detach()
        for name, value in metrics.items():
            with told_of(f"What {agent.name}.update returned as {name} is no number: it"):
                total = torch.as_tensor(value).detach().cpu().float()
                total = total.abs().mean() if name == "td_error" else total.reshape(())
            self.totals[name] = self.totals.get(name, torch.zeros(())) + total
        self.sums[-1] += 1
        return errors.abs()

    def statistics(self) -> dict[str, float]:
        count = float(self.sums[-1])
        means = {name: float(total) / count for name, total in self.totals.items()}
        self.totals, self.sums[:] = {}, 0
        return means

    def state(self) -> Tensors:
        return super().state() | self.totals

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        self.totals = {n: torch.as_tensor(v).clone() for n, v in state.items() if n != "sums"}


class CustomOffPolicyModule(nn.Module):
    """What the user's function does without draws, as a module to be exported."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, agent: CustomOffPolicyAgent, sample: bool) -> None:
        super().__init__()
        if sample:
            raise ConfigError("--sample", "is not for an algorithm of one's own: leave it out.")
        self.agent, self.online = agent, agent.online
        if agent.actions.reals:
            self.register_buffer("low", torch.from_numpy(agent.actions.low))
            self.register_buffer("high", torch.from_numpy(agent.actions.high))

    def forward(
        self, rows: torch.Tensor, *more: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        action = self.agent.algorithm.act(self.agent.to_net(rows), None)
        if not self.agent.actions.reals:
            return action.long()[:, None], action.float()[:, None][:, :0]
        share = (action.clamp(-1, 1).double() + 1) / 2
        return action[:, :0].long(), self.low + share * (self.high - self.low)
