"""Settings of proximal policy optimisation.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from tenfold.config.agent import AgentConfig
from tenfold.config.nets import PolicyNet
from tenfold.config.schedules import Schedule
from tenfold.config.schema import Count, NotNegative, Positive, Share
from tenfold.core.errors import ConfigError

if TYPE_CHECKING:
    from tenfold.config.run import Run

MINIBATCH = 64  # steps of a minibatch, where the settings do not say how many there are


@dataclass(frozen=True)
class PPO(AgentConfig):
    """Proximal policy optimisation: discrete, masked, continuous and mixed actions in one joint
    probability."""

    can_sample: ClassVar[bool] = True

    name: Literal["ppo"] = "ppo"
    """which agent"""
    gamma: Share = 0.99
    """discount of the next step's value"""
    lam: Share = 0.95
    """lambda of the generalised advantage estimate: 0 trusts the value, 1 the return"""
    lr: Schedule = 3e-4
    """learning rate of Adam: a number, linear(start, end, steps), exponential(start, end, steps) or
    a function of one's own"""
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

    def check_run(self, run: "Run") -> None:
        super().check_run(run)
        if self.horizon * run.num_envs * run.actors < (self.minibatches or 1):
            raise ConfigError(
                "agent.minibatches",
                f"= {self.minibatches} is more than the {self.horizon} x "
                f"{run.num_envs * run.actors} steps of a learning phase: raise agent.horizon "
                "or num_envs.",
            )

    def first_update(self, run: "Run") -> tuple[int, str]:
        steps = self.horizon * run.num_envs * run.actors
        return steps, f"a rollout of agent.horizon = {self.horizon:,}"
