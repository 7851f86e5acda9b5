"""Every setting of a run, with its meaning: the one place to read what tenfold can do.

No torch here, so that help and errors appear at once.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from tenfold.config.schema import (
    Config,
    Count,
    Follows,
    Limits,
    NotNegative,
    Option,
    Positive,
    Share,
    Whole,
    follows,
    merge,
    nearest,
    read_yaml,
    show,
)
from tenfold.core.errors import ConfigError
from tenfold.core.given import is_object, name_of
from tenfold.domains.dynamics.config import Explorer

PRESETS = (
    Path(__file__).parent / "presets",
    *sorted(Path(__file__).parent.parent.glob("domains/*/presets")),
)
MINIBATCH = 64  # steps of a policy's minibatch, where the settings do not say how many there are
LEAST_EVALUATION = 5_000  # steps of one, however often there is one: ten episodes of CartPole


@dataclass(frozen=True)
class Linear(Option):
    """From `start` to `end` in a straight line over `steps` environment steps, then constant."""

    start: NotNegative
    end: NotNegative
    steps: Count

    def at(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Exponential(Option):
    """From `start` to `end` by equal factors over `steps` environment steps, then constant."""

    start: Positive
    end: Positive
    steps: Count

    def at(self, step: int) -> float:
        return self.start * math.exp(math.log(self.end / self.start) * min(step / self.steps, 1.0))


Schedule = NotNegative | Linear | Exponential


def value_at(schedule: Schedule, step: int) -> float:
    """A schedule is a pure function of the environment step; a number is constant."""
    return schedule.at(step) if isinstance(schedule, Linear | Exponential) else schedule


def highest(schedule: Schedule) -> float:
    return (
        max(schedule.start, schedule.end)
        if isinstance(schedule, Linear | Exponential)
        else schedule
    )


@dataclass(frozen=True)
class Hard(Option):
    """The target network is a copy of the online one, renewed every `every` gradient updates."""

    every: Count = 500


@dataclass(frozen=True)
class Polyak(Option):
    """The target network moves by `tau` of the difference after every gradient update."""

    tau: Annotated[float, Limits(0, 1, above=True)] = 0.005


@dataclass(frozen=True)
class Uniform(Option):
    """Every stored transition is equally likely."""


@dataclass(frozen=True)
class Prioritized(Option):
    """P(i) ~ (|TD error| + eps)^alpha, corrected by importance weights (N P(i))^-beta."""

    alpha: Share = 0.6
    beta: Schedule = Linear(0.4, 1.0, 50_000)
    eps: Positive = 1e-6

    def check(self) -> None:
        if highest(self.beta) > 1:
            raise ConfigError(
                "beta", f"= {show(self.beta)} is out of range: it must stay between 0 and 1."
            )


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
class Epsilon(Option):
    """A random action with the scheduled probability, otherwise the best one."""

    schedule: Schedule = Linear(1.0, 0.05, 10_000)

    def check(self) -> None:
        if highest(self.schedule) > 1:
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
class Net(Config):
    """The network between observation and action values."""

    encoder: Literal["auto", "mlp", "nature", "small", "graph"] = "auto"
    """how an observation is read: mlp, nature (three convolutions, for images from 36 x 36), small
    (one, for tiny images), graph (attention along edges, a layer for each of `hidden`); auto picks
    by the observation space"""
    hidden: tuple[Annotated[int, Limits(1, 2**14)], ...] = (64, 64)
    """widths of the fully connected layers, after the convolutions if there are any"""
    activation: Literal["relu", "tanh", "elu"] = "relu"
    """the function between layers"""


@dataclass(frozen=True)
class DQN(Config):
    """Q-learning: DQN, double, dueling, n-step, prioritised, quantile, implicit, noisy, as fields
    of one agent."""

    name: Literal["dqn"] = "dqn"
    """which agent"""
    gamma: Share = 0.99
    """discount of the next step's value"""
    lr: Schedule = 5e-4
    """learning rate of Adam: a number, linear(start, end, steps) or exponential(start, end,
    steps)"""
    adam_eps: Positive = 1e-8
    """Adam's denominator offset"""
    batch_size: Count = 128
    """transitions per micro-batch"""
    accumulate: Count = 1
    """micro-batches per gradient step: the effective batch is batch_size x accumulate, equal to one
    large batch"""
    capacity: Count = 50_000
    """rows of replay memory; an episode of T steps takes T + 1 (its true final observation has a
    row)"""
    learning_starts: Whole = 1_000
    """environment steps before the first update"""
    every: Count = 1
    """environment steps between rounds of updates"""
    updates: Count = 1
    """gradient updates per round, run as one call"""
    target: Hard | Polyak = Polyak()
    """bootstrap network: hard(every) or polyak(tau), counted in gradient updates"""
    double: bool = True
    """choose the next action by the online network and value it by the target network"""
    dueling: bool = False
    """value and advantages as separate outputs: Q = V + A - mean(A)"""
    n_step: Count = 1
    """rewards summed before bootstrapping, cut at the episode's end"""
    frames: Annotated[int, Limits(1, 64)] = 1
    """observations the network sees together: the current one and those before it in its episode"""
    replay: Uniform | Prioritized = Uniform()
    """uniform, or prioritized(alpha, beta, eps)"""
    distribution: Quantile | Implicit | None = None
    """none (the mean), quantile(n), or implicit(samples, target_samples, cosines, acting)"""
    explore: Epsilon | Boltzmann | Noisy = Epsilon()
    """epsilon(schedule), boltzmann(temperature) or noisy(sigma)"""
    loss: Literal["mse", "huber"] = "mse"
    """squared or Huber (kappa = 1) TD error; quantiles always use quantile Huber, but for
    quantile(1), which is the mean"""
    clip_norm: Positive | None = None
    """longest gradient (Euclidean norm over all parameters), or none"""
    ignore_mask: bool = False
    """train where the environment offers an action mask, which dqn cannot use: masked actions are
    chosen like any other"""
    net: Net = field(default_factory=Net)
    """the network"""

    def check(self) -> None:
        if self.batch_size * self.accumulate > self.capacity:
            raise ConfigError(
                "batch_size",
                f"= {self.batch_size} x accumulate = {self.accumulate} is more than capacity = "
                f"{self.capacity}: a batch must fit into the replay memory.",
            )
        if self.n_step + self.frames + 1 > self.capacity:
            raise ConfigError(
                "n_step",
                f"= {self.n_step} does not fit: it must be at most capacity - frames - 1 = "
                f"{self.capacity - self.frames - 1}.",
            )


@dataclass(frozen=True)
class PolicyNet(Net):
    """The network of a policy, and that of its value (one body with two heads where observations
    are graphs)."""

    activation: Literal["relu", "tanh", "elu"] = "tanh"
    """the function between layers"""
    attention: Count = 4
    """heads of a graph encoder's attention, each with its share of the width"""


@dataclass(frozen=True)
class PPO(Config):
    """Proximal policy optimisation: discrete, masked, continuous and mixed actions in one joint
    probability."""

    name: Literal["ppo"] = "ppo"
    """which agent"""
    gamma: Share = 0.99
    """discount of the next step's value"""
    lam: Share = 0.95
    """lambda of the generalised advantage estimate: 0 trusts the value, 1 the return"""
    lr: Schedule = 3e-4
    """learning rate of Adam: a number, linear(start, end, steps) or exponential(start, end,
    steps)"""
    adam_eps: Positive = 1e-5
    """Adam's denominator offset"""
    horizon: Count = 2048
    """steps of every environment between two learning phases"""
    epochs: Count = 10
    """times each step of a learning phase is learned from"""
    minibatches: Count | None = None
    """parts an epoch is divided into, one gradient update each; none: as many as make parts of 64
    steps"""
    clip: Positive = 0.2
    """how far the ratio of new to old probability counts, up and down"""
    value_clip: Positive | None = None
    """how far a value may move from the one at acting before its loss stops counting, or none"""
    value_weight: NotNegative = 0.5
    """weight of the value's loss beside the policy's"""
    entropy: NotNegative = 0.0
    """weight of the policy's entropy in the loss"""
    clip_norm: Positive | None = 0.5
    """longest gradient (Euclidean norm over all parameters), or none"""
    target_kl: Positive | None = None
    """a learning phase ends early after an epoch whose mean KL divergence from the acting policy
    exceeds this, or none"""
    normalize_advantage: bool = True
    """advantages of a learning phase are shifted and scaled to mean 0 and deviation 1"""
    advantage_of: Literal["components", "total"] = "components"
    """where rewards come in components, each with a value of its own: the weighted sum of their
    advantages counts, or the advantage of the total"""
    normalize_obs: bool = False
    """observations are shifted and scaled by their running mean and deviation, which the checkpoint
    keeps"""
    reward_scale: Positive = 1.0
    """rewards are multiplied by this before learning; returns are reported as they are"""
    baseline: Literal["value", "counterfactual"] = "value"
    """what an action is compared with: the state's value, or for each component the mean over its
    alternatives"""
    squash: bool = False
    """continuous actions pass through tanh into their bounds, instead of being cut at them"""
    std: Positive = 1.0
    """deviation of continuous actions at the start"""
    least_std: Positive = 0.05
    """deviation below which a graph policy, whose deviations depend on what it sees, cannot go"""
    on_empty: Literal["raise", "absent"] = "raise"
    """a component without an allowed option: raise an error, or leave it out of action and loss"""
    net: PolicyNet = field(default_factory=PolicyNet)
    """policy and value are two such networks"""

    def parts(self, rows: int) -> int:
        """Minibatches of an epoch over `rows` steps."""
        return self.minibatches or max(1, rows // MINIBATCH)

    def check(self) -> None:
        if self.squash and self.baseline == "counterfactual":
            raise ConfigError(
                "baseline",
                "= counterfactual is for discrete actions, and squash for continuous ones.",
            )


Agent = DQN | PPO | Explorer


@dataclass(frozen=True)
class Run(Config):
    """One training run."""

    env: str = follows("agent.name", {"explorer": "tenfold/LimitCycle-v0"}, "CartPole-v1")
    """a Gymnasium environment id, with its arguments if any: "FrozenLake-v1(is_slippery=false)";
    "my_module:MyEnv-v0" imports my_module first. From Python also a function that makes an
    environment, or one environment as an object"""
    agent: Agent = field(default_factory=DQN)
    """the agent's settings"""
    steps: Count = follows("agent.name", {"explorer": 10_000}, 50_000)
    """environment steps in all"""
    seed: Annotated[int, Limits(0, 2**63 - 1)] = 0
    """one number that determines the whole run"""
    members: Annotated[int, Limits(1, 1024)] = 1
    """seeds of an explorer that are trained together as one stack, each as it would be alone: seed,
    seed + 1, …"""
    num_envs: Count = 1
    """environments stepped together (by each actor); of worlds with several agents, worlds"""
    actors: Annotated[int, Limits(1, 1024)] = 1
    """how many act for the one learner, each with environments and draws of its own"""
    where: Literal["auto", "serial", "processes"] = "auto"
    """where actors act: in this process one after another (serial), or each in its own; auto
    measures a round of an actor and takes processes where they pay"""
    ahead: Whole = 8
    """steps an actor's process may be ahead of the learner; 0: none, and the run equals the serial
    one bit for bit"""
    on_death: Literal["stop", "restart"] = "stop"
    """when an actor's process dies: stop the run, which can be resumed, or start another in its
    place"""
    patience: Positive = 60.0
    """seconds an actor's process may take for one step before the run gives it up"""
    share: bool = False
    """the agents of a world are one network (dqn; policies always are) instead of one each"""
    vectorize: Literal["scalar", "native"] = "scalar"
    """scalar: our loop over ordinary environments, resumed exactly; native: the environment's own
    vector class"""
    engine: Literal["auto", "plain", "fused", "compiled"] = "auto"
    """how an update runs: fused (one compiled call, for fully connected networks on the CPU),
    compiled (any network on the CPU through torch.compile), plain (eager PyTorch, the reference);
    auto picks fused or plain"""
    stack: Literal["auto", "together", "apart"] = "auto"
    """agents of one world are updated in one call (together) or one after another (apart); auto
    picks by the shapes"""
    verify: Whole = 0
    """repeat every N-th update with the plain engine from a copy of the same state and compare; 0:
    never"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where the networks live; auto is cpu, or several CUDA devices where there are agents with a
    network each"""
    threads: Annotated[int, Limits(1, 1024)] = 1
    """threads of PyTorch"""
    eval_every: Whole = follows("agent.name", {"explorer": 1_000}, 10_000)
    """environment steps between evaluations by the greedy policy (they choose the best checkpoint);
    0: never"""
    eval_episodes: Annotated[int, Limits(1, 10**6)] = 10
    """episodes of such an evaluation"""
    eval_policy: Literal["greedy", "sampled"] = "greedy"
    """evaluations take the most probable action, or draw from the policy (ppo) as training does"""
    eval_steps: Count | None = None
    """environment steps an evaluation may take in all: no episode begins that would not end within
    them, and one that has no end is cut there, so that fewer than eval_episodes may be played;
    none: half of eval_every, at least 5,000"""
    episode_limit: Count = 30_000
    """steps after which an episode of an evaluation is cut, for environments that have no time
    limit of their own"""
    checkpoint_every: Whole = 10_000
    """environment steps between checkpoints; 0: only at the end and on interrupt"""
    keep: Count = 2
    """how many of the latest checkpoints to keep (the best by evaluation is kept besides)"""
    log_every: Count = 1_000
    """environment steps between rows of training metrics"""

    @property
    def evaluation_steps(self) -> int:
        """`eval_steps`, also where nothing is said of it."""
        return self.eval_steps or max(self.eval_every // 2, LEAST_EVALUATION)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the members."""
        return tuple(range(self.seed, self.seed + self.members))

    def __post_init__(self) -> None:
        if not isinstance(self.env, str | Follows):  # an object, or a function that makes one
            object.__setattr__(self, "env", name_of(self.env))
        super().__post_init__()

    def check(self) -> None:
        several = (
            "agent explorer"
            if isinstance(self.agent, Explorer)
            else f"num_envs = {self.num_envs}"
            if self.num_envs > 1
            else f"actors = {self.actors}"
            if self.actors > 1
            else ""
        )
        if is_object(self.env) and several:
            raise ConfigError(
                "env",
                f"= {self.env} is one object, and {several} needs several environments: give a "
                "function that makes one, such as env=lambda: MyEnv().",
            )
        if self.eval_policy == "sampled" and not isinstance(self.agent, PPO):
            raise ConfigError(
                "eval_policy", "= sampled is for policies that can be drawn from (ppo): use greedy."
            )
        if isinstance(self.agent, Explorer):
            for name, value, usual in (
                ("num_envs", self.num_envs, 1),
                ("actors", self.actors, 1),
                ("verify", self.verify, 0),
            ):
                if value != usual:
                    raise ConfigError(
                        name,
                        f"= {value} is not for agent explorer, which runs one experiment for each "
                        f"member: leave it at {usual}.",
                    )
            if self.engine not in ("auto", "plain"):
                raise ConfigError(
                    "engine", f"= {self.engine} cannot train agent explorer: leave it at auto."
                )
            return
        if self.members > 1:
            raise ConfigError(
                "members", f"= {self.members} is for agent explorer: other agents take --seeds."
            )
        if isinstance(self.agent, PPO):
            if self.agent.horizon * self.num_envs * self.actors < (self.agent.minibatches or 1):
                raise ConfigError(
                    "agent.minibatches",
                    f"= {self.agent.minibatches} is more than the {self.agent.horizon} x "
                    f"{self.num_envs * self.actors} steps of a learning phase: raise agent.horizon "
                    "or num_envs.",
                )
            return
        rows = self.agent.capacity // (self.num_envs * self.actors)
        if rows < self.agent.n_step + self.agent.frames + 1:
            raise ConfigError(
                "num_envs",
                f"= {self.num_envs} leaves {rows} rows of replay for each environment, too few for "
                f"agent.n_step = {self.agent.n_step}: raise agent.capacity or lower num_envs.",
            )


AGENTS: dict[str, type[DQN] | type[PPO] | type[Explorer]] = {
    "dqn": DQN,
    "ppo": PPO,
    "explorer": Explorer,
}
ENGINES = {
    "fused": "a whole round in one compiled call: fully connected networks on the CPU",
    "compiled": "the update as one graph through torch.compile: on the CPU, not for graphs; half "
    "a minute to compile",
    "plain": "eager PyTorch autograd, any network, any device: the reference",
}


def presets() -> dict[str, Path]:
    found = (path for folder in PRESETS for path in folder.glob("*.yaml"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.name)}


def named(what: str, change: dict[str, Any] | None = None) -> Run:
    """A run from a preset's name, an agent's name or a YAML file, with `change` on top."""
    if what in presets():
        base = read_yaml(presets()[what])
    elif what in AGENTS:
        base = {"agent": {"name": what}}
    elif what.endswith((".yaml", ".yml")):
        if not Path(what).is_file():
            raise ConfigError(
                "",
                f"{what} is not there: give a YAML file, a preset or an agent (tenfold list shows "
                "them).",
            )
        base = read_yaml(Path(what))
    else:
        raise ConfigError(
            "",
            f"{what} is no preset, agent or YAML file{nearest(what, [*AGENTS, *presets()])}: "
            f"agents are {', '.join(AGENTS)}, presets {', '.join(presets())}; a file ends in "
            ".yaml.",
        )
    return Run.of(merge(base, change or {}))
