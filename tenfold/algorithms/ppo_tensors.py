"""PPO where environments are tensors: whole rollouts on their device, learned from by the plain
engine or by CUDA graphs. What is learned is `PPOAgent`'s."""

from collections.abc import Callable
from typing import Any

import torch

from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.algorithms.ppo_recorded import RecordedMinibatches
from tenfold.algorithms.tensor_learner import TensorLearner
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose, normal_torch, uniform_torch
from tenfold.engines.cudagraph import Work
from tenfold.envs.adapter import Episode
from tenfold.envs.tensor_actions import ActionForm
from tenfold.envs.tensors import TensorStep
from tenfold.memory.tensor_rollout import TensorRollout
from tenfold.ops.minibatch_loss import KL
from tenfold.ops.moments import TensorNorm


class TensorPhase:
    """Mixin: list it before the plain engine. Acting and storing on tensors that stay where they
    are, by the draws that agents on the host make."""

    agent: PPOAgent
    rollout: TensorRollout
    perform: Callable[[str, Work], None]  # does the work of this name, or launches what it became

    def __init__(self, agent: PPOAgent, rollout: TensorRollout, envs: Any) -> None:
        super().__init__(agent.unchecked(), rollout, envs)  # type: ignore[call-arg]
        device, lanes = agent.device, envs.num_envs
        self.norm = TensorNorm(agent.norm, device) if agent.norm else None
        self.form = ActionForm(agent.actions, envs.name, device, agent.config.squash)
        self.sums = torch.zeros(len(self.names) + 1, dtype=torch.float64, device=device)  # type: ignore[attr-defined]
        self.obs = torch.zeros(lanes, rollout.obs.shape[-1], device=device)  # acted on next
        self.seen_rows, self.final_obs = torch.zeros_like(self.obs), torch.zeros_like(self.obs)
        self.final_value = torch.zeros(lanes, device=device)
        self.round_number = torch.zeros((), dtype=torch.int64, device=device)
        self.no_state = torch.zeros(lanes, 0, device=device)
        names = (rollout.chosen, rollout.real, rollout.log_p, rollout.value)
        self.acted = tuple(torch.zeros_like(rows[0]) for rows in names)

    def set_lr(self, lr: Any) -> None:
        self.agent.set_lr(lr)

    # running statistics of observations, which are the agent's too

    def load_norm(self) -> None:
        if self.norm:
            self.norm.load()

    def store_norm(self) -> None:
        if self.norm:
            self.norm.store()

    def normalised(self, obs: torch.Tensor) -> torch.Tensor:
        return self.norm.normalise(obs) if self.norm else obs

    @torch.no_grad()
    def begin(self, obs: torch.Tensor) -> None:
        """Observations to act on next."""
        self.obs.copy_(obs)
        if self.norm:
            self.norm.update(self.obs)

    # acting and storing

    @torch.no_grad()
    def act(self, rounds: int) -> torch.Tensor:
        """Actions for the environments; `rounds` addresses their draws."""
        self.round_number.fill_(rounds)
        self.perform("act", self.acting_work)
        self.rollout.act(self.seen_rows, self.acted)
        return self.form.of_policy(*self.acted[:2])

    def draws(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As `PPOAgent.draws`."""
        agent, device, lanes = self.agent, self.agent.device, len(self.obs)
        c, d = len(agent.actions.sizes), len(agent.actions.low)
        counter = self.round_number * (lanes * c) + torch.arange(lanes * c, device=device)
        uniform = uniform_torch(agent.keys[Purpose.ACTION], counter)
        first: Any = self.round_number * (lanes * d)
        noise = normal_torch(agent.keys[Purpose.NOISE_ACT], first, lanes * d, device)
        return uniform.view(lanes, c), noise.float().view(lanes, d)

    @torch.no_grad()
    def acting_work(self) -> None:
        self.seen_rows.copy_(self.normalised(self.obs))
        obs = self.agent.to_net(self.seen_rows)
        acted = self.agent.distribution.act(obs, self.no_state, None, *self.draws())
        for buffer, value in zip(self.acted, acted, strict=False):
            buffer.copy_(value)

    @torch.no_grad()
    def value_work(self) -> None:
        """Values of what is in `final_obs`."""
        obs = self.agent.to_net(self.normalised(self.final_obs))
        self.final_value.copy_(self.agent.online.values(obs, self.no_state))

    @torch.no_grad()
    def add_step(self, step: TensorStep) -> None:
        """The step of the current row, and the values of last observations where they are given:
        which episodes ended is not asked, so that nobody waits."""
        self.rollout.add(step, self.value_of(step.final_obs))
        self.begin(step.obs)

    def value_of(self, obs: torch.Tensor | None) -> torch.Tensor | None:
        if obs is None:
            return None
        self.final_obs.copy_(obs)
        self.perform("value", self.value_work)
        return self.final_value

    @torch.no_grad()
    def finish(self) -> None:
        """Advantages of a full rollout."""
        last_value = self.value_of(self.obs)
        assert last_value is not None
        self.rollout.finish(last_value)
        self.agent.value_step.add(self.rollout.target)


class TensorPPO(TensorPhase, PlainPPO):
    """By eager autograd."""

    description = "rows stay on the environment's device"

    def perform(self, name: str, work: Work) -> None:
        work()

    def update_once(self, part: int, step: int) -> Any:
        """As the plain engine's, but that nobody waits for the numbers."""
        lr = value_at(self.agent.config.lr, step)
        statistics, norm = self.descend(lr, self.minibatch(part))
        if norm is not None:
            self.sums += torch.cat([statistics, norm.view(1), norm.new_ones(1)])
        return statistics[KL]

    def gather(self, part: int) -> Tensors:
        numbers = self.rollout.order[self.bounds[part] : self.bounds[part + 1]]
        index = torch.from_numpy(numbers).to(self.agent.device)
        batch = {name: rows.index_select(0, index) for name, rows in self.rows.items()}
        return batch | {name: batch[name][:, None] for name in ("advantage", "log_p")}


class CudaGraphTensorPPO(TensorPhase, RecordedMinibatches, PlainPPO):
    """By CUDA graphs: minibatches, acting and values."""

    phase_slots = 0  # nothing comes from the host

    def capture(self) -> None:
        super().capture()
        self.recorded("act", self.acting_work)
        self.recorded("value", self.value_work)

    def perform(self, name: str, work: Work) -> None:
        self.launch_alone(name, work)

    def finish(self) -> None:
        """Also brings the rows side by side, as the graphs read them."""
        super().finish()
        phase = self.phase.on_device[0]
        for name, rows in self.rows.items():
            if name in self.columns:
                columns = phase["numbers"][:, slice(*self.columns[name])]
                columns.copy_(rows.reshape(columns.shape))
            else:
                phase[name].copy_(rows)


class TensorPPOLearner(TensorLearner):
    """A round is a rollout and what is learned from it, so that evaluations and checkpoints come
    between rollouts."""

    def make_parts(self) -> None:
        envs, settings = self.envs, self.agent.config
        if settings.baseline == "counterfactual":
            raise ConfigError(
                "agent.baseline", "= counterfactual is not for environments of tensors: use value."
            )
        self.memory = TensorRollout(
            settings, envs.spec.layout.size, self.agent.actions, envs.num_envs, envs.device
        )
        self.read_every = self.memory.horizon

    def round(self, until: int | None = None) -> list[Episode]:
        self.follow_resets()
        clock, first = self.clock, self.step
        clock.start()
        for _ in range(self.memory.horizon):
            action = self.engine.act(self.rounds)
            clock.lap("act")
            step = self.envs.step(action)
            clock.lap("env")
            self.engine.add_step(step)
            self.episodes.add(step)
            clock.lap("store")
            self.rounds += 1
            self.step += self.envs.num_envs
        episodes = self.read_episodes(first)
        self.engine.learn_from_rollout(self.step, clock)
        return episodes
