"""Settings of Q-learning, and the algorithm as the registry lists it.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tenfold.algorithms.off_policy_settings import OffPolicyAlgorithm
from tenfold.config.agent_config import AgentConfig
from tenfold.config.networks import Net
from tenfold.config.notation import show
from tenfold.config.options import Episodes, OffPolicyConfig, Prioritized, Uniform
from tenfold.config.schedules import Linear, Schedule, exceeds
from tenfold.config.schema import Count, Limits, NotNegative, Option, Positive, Share, Whole
from tenfold.core.errors import ConfigError
from tenfold.engines.choose import engine_table

if TYPE_CHECKING:
    from tenfold.algorithms.dqn import DQNAgent
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec
    from tenfold.envs.adapter import Environments


EVERY_UPDATES = 500


@dataclass(frozen=True)
class Hard(Option):
    """The target network is a copy of the online one, renewed every `every` gradient updates; or,
    with `steps`, after every so many environment steps from the first on, counted in whole steps of
    all environments, before the updates of that step. With `tau` below 1 it moves by that share of
    the difference."""

    every: Count = EVERY_UPDATES
    steps: Count | None = None
    tau: Annotated[float, Limits(0, 1, above=True)] = 1.0

    def check(self) -> None:
        if self.steps and self.every != EVERY_UPDATES:
            raise ConfigError(
                "steps",
                f"= {self.steps} and every = {self.every} contradict each other: leave one of them "
                "out.",
            )

    def rounds(self, lanes: int) -> int:
        """Steps of all environments from one copy to the next; 0: updates are counted instead."""
        return max(self.steps // lanes, 1) if self.steps else 0


@dataclass(frozen=True)
class Polyak(Option):
    """The target network moves by `tau` of the difference after every gradient update."""

    tau: Annotated[float, Limits(0, 1, above=True)] = 0.005


@dataclass(frozen=True)
class Quantile(Option):
    """The return's distribution as `n` equally likely values (QR-DQN)."""

    n: Annotated[int, Limits(1, 4096)] = 32


@dataclass(frozen=True)
class Implicit(Option):
    """The return's quantile function itself, asked at fractions drawn anew for every item (IQN):
    `samples` of s, `target_samples` of s'. A fraction enters the network as `cosines` cosines;
    acting takes the mean over `acting` fixed fractions, evenly spaced, so that the greedy policy is
    deterministic."""

    samples: Annotated[int, Limits(1, 4096)] = 12
    target_samples: Annotated[int, Limits(1, 4096)] = 12
    cosines: Annotated[int, Limits(1, 4096)] = 64
    acting: Annotated[int, Limits(1, 4096)] = 32


@dataclass(frozen=True)
class Categorical(Option):
    """The return's distribution as probabilities of `atoms` values, evenly spaced from `low` to
    `high` (C51); returns beyond the ends count as the ends."""

    atoms: Annotated[int, Limits(2, 4096)] = 51
    low: float = -10.0
    high: float = 10.0

    def check(self) -> None:
        if not self.low < self.high:
            raise ConfigError(
                "low",
                f"= {self.low:g} must be below high = {self.high:g}: the ends of the returns.",
            )


@dataclass(frozen=True)
class Epsilon(Option):
    """A random action with the scheduled probability, otherwise the best one."""

    schedule: Schedule = Linear(1.0, 0.05, 10_000)

    def check(self) -> None:
        if exceeds(self.schedule, 1):
            raise ConfigError(
                "schedule",
                f"= {show(self.schedule)} is out of range: a probability lies between 0 and 1.",
            )


@dataclass(frozen=True)
class Boltzmann(Option):
    """An action with probability ~ exp(Q / temperature)."""

    temperature: Schedule = Linear(1.0, 0.05, 10_000)


@dataclass(frozen=True)
class Noisy(Option):
    """Factorised Gaussian noise on every weight, its scale learned; the greedy policy uses the
    means. Before learning starts actions are drawn uniformly."""

    sigma: Positive = 0.5


@dataclass(frozen=True)
class DQN(OffPolicyConfig, AgentConfig):
    """Q-learning: DQN, double, dueling, n-step, prioritised, quantile, implicit, categorical,
    noisy, as fields of one agent."""

    name: Literal["dqn"] = "dqn"
    """which agent"""
    gamma: Share = 0.99
    """discount of the next step's value"""
    lr: Schedule = 5e-4
    """learning rate of Adam: a number, linear(start, end, steps), exponential(start, end, steps) or
    a function of one's own"""
    adam_eps: Positive = 1e-8
    """Adam's denominator offset"""
    weight_decay: NotNegative = 0.0
    """share of every parameter, times lr, that a step takes away besides (AdamW)"""
    batch_size: Count = 128
    """transitions per micro-batch"""
    accumulate: Count = 1
    """micro-batches per gradient step: the effective batch is batch_size x accumulate, equal to one
    large batch"""
    capacity: Count = 50_000
    """rows of replay memory, those that one return of each environment needs at least; an episode
    of T steps takes T + 1 (its true final observation has a row)"""
    learning_starts: Whole = 1_000
    """environment steps before the first update"""
    warm_up: Literal["explore", "uniform"] = "explore"
    """how actions are drawn until learning starts: by `explore` (noisy: uniformly), or uniformly"""
    every: Count | Episodes = 1
    """environment steps between rounds of updates, or episodes(n)"""
    updates: Annotated[int, Limits(-1)] = 1
    """gradient updates per round, run as one call; -1: as many as environment steps since the last
    round; 0: none"""
    target: Hard | Polyak = Polyak()
    """bootstrap network: hard(every) or polyak(tau), counted in gradient updates, or hard(steps=n),
    in environment steps"""
    double: bool = True
    """choose the next action by the online network and value it by the target network"""
    dueling: bool = False
    """value and advantages as separate outputs: Q = V + A - mean(A)"""
    n_step: Count = 1
    """rewards summed before bootstrapping, cut at the episode's end"""
    frames: Annotated[int, Limits(1, 64)] = 1
    """observations the network sees together: the current one and those before it in its episode"""
    normalize_obs: bool = False
    """observations are shifted and scaled by their running mean and deviation, which the checkpoint
    keeps; the replay memory holds them as they are"""
    replay: Uniform | Prioritized = Uniform()
    """uniform, or prioritized(alpha, beta, eps)"""
    distribution: Quantile | Implicit | Categorical | None = None
    """none (the mean), quantile(n), implicit(samples, target_samples, cosines, acting), or
    categorical(atoms, low, high)"""
    explore: Epsilon | Boltzmann | Noisy = Epsilon()
    """epsilon(schedule), boltzmann(temperature) or noisy(sigma)"""
    loss: Literal["mse", "huber"] = "mse"
    """squared or Huber (kappa = 1) TD error; quantiles always use quantile Huber, but for
    quantile(1), which is the mean; categorical always uses cross-entropy"""
    clip_norm: Positive | None = None
    """longest gradient (Euclidean norm over all parameters), or none"""
    net: Net = field(default_factory=Net)
    """the network"""

    @property
    def atoms(self) -> int:
        """Values that the network has for each action."""
        how = self.distribution
        if isinstance(how, Categorical):
            return how.atoms
        return how.n if isinstance(how, Quantile) else 1

    @property
    def categorical(self) -> Categorical | None:
        return self.distribution if isinstance(self.distribution, Categorical) else None

    @property
    def implicit(self) -> Implicit | None:
        return self.distribution if isinstance(self.distribution, Implicit) else None

    @property
    def sigma(self) -> float:
        """Scale of the noise on weights at the start; 0: none."""
        return self.explore.sigma if isinstance(self.explore, Noisy) else 0.0

    def warms_up(self, step: int) -> bool:
        """Whether actions are drawn uniformly at this step whatever the network says: before
        learning starts, since an untrained one's favourite action would fill the memory."""
        uniform = self.warm_up == "uniform" or isinstance(self.explore, Noisy)
        return uniform and step < self.learning_starts

    def check_change(self, before: Any) -> None:
        kinds = {type(settings.explore) for settings in (self, before)}
        if Noisy in kinds and self.explore != before.explore:
            raise ConfigError(
                "explore",
                f"= {show(self.explore)} cannot be on resume: noise is part of the networks that "
                f"were saved with {show(before.explore)}; leave it at that.",
            )


class QLearning(OffPolicyAlgorithm):
    """DQN and its relatives, in environments with one discrete action."""

    name = "dqn"
    config, reads_masks = DQN, True
    engines = engine_table(
        fused="tenfold.algorithms.kernels.dqn:FusedDQN",
        compiled="tenfold.engines.compiled:CompiledOffPolicy",
        plain="tenfold.engines.plain:OffPolicyEngine",
        cudagraph="tenfold.algorithms.kernels.dqn_gpu:CudaGraphDQN",
        resident="tenfold.algorithms.kernels.dqn_gpu:ResidentDQN",
    )

    def make_agent(self, run: "Run", spec: "EnvSpec") -> "DQNAgent":
        """One, or one for each agent of a world."""
        from tenfold.algorithms.dqn import DQNAgent
        from tenfold.algorithms.dqn_team import Team
        from tenfold.core.spaces import discrete_actions

        settings: Any = run.agent
        device = "cpu" if run.device == "auto" else run.device
        actions = discrete_actions(spec.action_space, run.env)
        if run.share and spec.agents == 1:
            raise ConfigError(
                "share",
                f"= true is for worlds of several agents, and {run.env} has one: leave it out.",
            )
        if spec.agents > 1 and not run.share:
            if settings.normalize_obs:
                raise ConfigError(
                    "normalize_obs",
                    "= true is for one network, and each agent has its own here: set --share, or "
                    "leave it out.",
                )
            agent: DQNAgent = Team(settings, spec.layout, actions, run.seed, spec.agents, device)
        else:
            agent = DQNAgent(settings, spec.layout, actions, run.seed, device)
        for one in (agent, *getattr(agent, "agents", ())):
            one.masked = spec.masked
        return agent

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        fields: dict[str, Any] = {"action": ((envs.num_envs,), "int64")}
        if envs.mask is not None:
            fields |= dict.fromkeys(("mask", "final_mask"), (envs.mask.shape, "bool"))
        return fields

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.dqn_export import QPolicy

        if sample:
            raise ConfigError("--sample", "is for policies that can be drawn from: dqn is greedy.")
        return QPolicy(agent)

    def hidden_layers(self, settings: Any) -> list[tuple[int, ...]]:
        """Noise on their weights counts as one more."""
        return [settings.net.hidden] * (1 + isinstance(settings.explore, Noisy))


ALGORITHMS = (QLearning(),)
