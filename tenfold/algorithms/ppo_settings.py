"""Settings of proximal policy optimisation, and the algorithm as the registry lists it.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, field
from math import inf, isfinite
from operator import lt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tenfold.config.agent_config import AgentConfig
from tenfold.config.networks import PolicyNet
from tenfold.config.notation import show
from tenfold.config.schedules import Custom, Exponential, Linear, Schedule, Table
from tenfold.config.schema import Count, NotNegative, Positive, Share
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import AlgorithmSpec
from tenfold.core.registry import deferred
from tenfold.engines.choose import engine_table, tensor_table

if TYPE_CHECKING:
    from tenfold.algorithms.ppo import PPOAgent
    from tenfold.algorithms.ppo_learner import PPOActing
    from tenfold.config.run import Run
    from tenfold.core.layout import ObsLayout
    from tenfold.core.protocols import EnvSpec
    from tenfold.core.spaces import PolicyActions
    from tenfold.envs.adapter import Environments

MINIBATCH = 64  # steps of a minibatch, where the settings do not say how many there are
MINIBATCH_KL = 1.5  # times target_kl: where a minibatch's divergence ends a phase

ClipRange = Positive | Linear | Exponential | Table | Custom


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
    """learning rate of Adam: a number, linear(start, end, steps, after),
    exponential(start, end, steps), table(step:value, ...) or a function of one's own"""
    adam_eps: Positive = 1e-5
    """Adam's denominator offset"""
    weight_decay: NotNegative = 0.0
    """share of every parameter, times lr, that a step takes away besides (AdamW)"""
    value_lr: Schedule | None = None
    """learning rate of the value's network; none: lr"""
    horizon: Count = 2048
    """steps of every environment between two learning phases"""
    epochs: Count = 10
    """times each step of a learning phase is learned from"""
    minibatches: Count | None = None
    """equal parts an epoch is divided into, one gradient update each; none: as many as make parts
    of 64 steps"""
    minibatch_size: Count | None = None
    """steps of a minibatch, instead of how many there are: an epoch is cut into such slices, and
    the last one is what remains"""
    clip: ClipRange = 0.2
    """how far the ratio of new to old probability counts, up and down: a number, or a schedule as
    lr's"""
    value_clip: ClipRange | None = None
    """how far a value may move from the one at acting before its loss stops counting: a number, a
    schedule, or none"""
    value_clip_kind: Literal["larger", "clipped"] = "larger"
    """the value's loss where value_clip is set: the larger one of the value and the clipped value,
    or that of the clipped value alone"""
    value_weight: NotNegative = 0.5
    """weight of the value's loss beside the policy's"""
    normalize_value: bool = False
    """the value's loss is divided by the running variance of its targets"""
    entropy: NotNegative = 0.0
    """weight of the policy's entropy in the loss"""
    clip_norm: Positive | None = 0.5
    """longest gradient (Euclidean norm over all parameters), or none"""
    target_kl: Positive | None = None
    """a learning phase ends early where the mean KL divergence from the acting policy exceeds this
    (kl_stop says where), or none"""
    kl_stop: Literal["epoch", "minibatch"] = "epoch"
    """where target_kl is looked at: after an epoch, or before the step of every minibatch, which is
    not made beyond 1.5 x target_kl"""
    normalize_advantage: bool | Literal["minibatch"] = True
    """advantages are shifted and scaled to mean 0 and deviation 1: true, over a learning phase;
    minibatch, over each minibatch by itself (N - 1 deviation)"""
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

    def minibatch_count(self, rows: int) -> int:
        """Minibatches of an epoch over `rows` steps."""
        if self.minibatch_size:
            return -(-rows // self.minibatch_size)
        return self.minibatches or max(1, rows // MINIBATCH)

    def minibatch_bounds(self, sequences: int, length: int) -> list[int]:
        """Where the minibatches of an epoch over sequences of so many steps begin, and where the
        last one ends."""
        if self.minibatch_size:
            return [*range(0, sequences, max(1, self.minibatch_size // length)), sequences]
        count = self.minibatch_count(sequences * length)
        return [sequences * part // count for part in range(count + 1)]

    @property
    def epoch_kl_limit(self) -> float:
        """The mean KL divergence of an epoch behind which the phase ends."""
        return self.target_kl or inf if self.kl_stop == "epoch" else inf

    @property
    def minibatch_kl_limit(self) -> float:
        """The KL divergence of a minibatch beyond which its step is not made."""
        return MINIBATCH_KL * self.target_kl if self.target_kl and self.kl_stop != "epoch" else inf

    def check(self) -> None:
        if self.minibatches and self.minibatch_size:
            raise ConfigError(
                "minibatch_size",
                f"= {self.minibatch_size} says how long minibatches are, and minibatches = "
                f"{self.minibatches} how many: leave one of them out.",
            )
        if self.normalize_advantage == "minibatch" and self.baseline == "counterfactual":
            raise ConfigError(
                "normalize_advantage",
                "= minibatch does not go with counterfactual baselines, whose advantages are those "
                "of components: set it to true or false.",
            )
        if self.squash and self.baseline == "counterfactual":
            raise ConfigError(
                "baseline",
                "= counterfactual is for discrete actions, and squash for continuous ones.",
            )

    def check_spaces(
        self, layout: "ObsLayout", actions: "PolicyActions", components: int = 0
    ) -> None:
        """Refuses settings that do not fit the spaces, or rewards in components."""
        memory, counterfactual = self.net.memory, self.baseline == "counterfactual"
        refusals = (
            (
                counterfactual and memory,
                "agent.net.memory",
                f"= {memory} does not go with counterfactual baselines, whose critic "
                "remembers nothing: set agent.baseline to value.",
            ),
            (
                actions.gates and self.on_empty != "absent",
                "agent.on_empty",
                "= raise does not fit: this environment has choices that may be absent; set it to "
                "absent.",
            ),
            (
                counterfactual and (actions.low or not actions.sizes),
                "agent.baseline",
                "= counterfactual compares discrete alternatives, and this environment has "
                "continuous actions: use value.",
            ),
            (
                counterfactual and components,
                "agent.baseline",
                "= counterfactual values one reward, and this environment's come in components: "
                "use value.",
            ),
            (
                counterfactual and self.net.encoder != "mlp",
                "agent.baseline",
                "= counterfactual needs vector observations: use value.",
            ),
        )
        squash_refusals = self.squash_refusals(actions)
        for refused, key, why in (*self.net_refusals(layout), *refusals, *squash_refusals):
            if refused:
                raise ConfigError(key, why)

    def net_refusals(self, layout: "ObsLayout") -> tuple[tuple[Any, str, str], ...]:
        net = self.net
        uneven = not net.hidden or len(set(net.hidden)) > 1 or net.hidden[0] % net.attention
        one_body = "does not fit a graph encoder, one body with heads for policy and value"
        return (
            (
                layout.graph and uneven,
                "agent.net.hidden",
                f"= {show(net.hidden)} does not fit a graph encoder: its layers have one width, a "
                f"multiple of net.attention = {net.attention}.",
            ),
            (
                layout.graph and net.memory,
                "agent.net.memory",
                f"= {net.memory} does not fit: the observations are graphs, whose nodes come "
                "and go; leave it out.",
            ),
            (
                layout.graph and net.value_hidden is not None,
                "agent.net.value_hidden",
                f"= {show(net.value_hidden)} {one_body}: leave it out.",
            ),
            (
                layout.graph and net.init != "default",
                "agent.net.init",
                f"= {net.init} {one_body}: leave it out.",
            ),
            (
                net.shared_body and net.encoder in ("mlp", "graph"),
                "agent.net.shared_body",
                "= true is for images, whose convolutions policy and value then share, and these "
                f"observations are read by {net.encoder}: leave it out.",
            ),
        )

    def squash_refusals(self, actions: "PolicyActions") -> tuple[tuple[Any, str, str], ...]:
        bounds = [*actions.low, *actions.high]
        return (
            (
                self.squash and not actions.low,
                "agent.squash",
                "= true is for continuous actions, and this environment has none: leave it out.",
            ),
            (
                self.squash and not all(map(isfinite, bounds)),
                "agent.squash",
                "= true needs bounded actions, and this environment's have no bounds.",
            ),
            (
                self.squash and not all(map(lt, actions.low, actions.high)),
                "agent.squash",
                "= true needs room between the bounds, and one action has none.",
            ),
        )

    def check_run(self, run: "Run") -> None:
        super().check_run(run)
        if self.horizon * run.lanes < (self.minibatches or 1):
            raise ConfigError(
                "agent.minibatches",
                f"= {self.minibatches} is more than the {self.horizon} x {run.lanes} steps of a "
                "learning phase: raise agent.horizon or num_envs.",
            )

    def first_update(self, run: "Run") -> tuple[int, str]:
        steps = self.horizon * run.lanes
        return steps, f"a rollout of agent.horizon = {self.horizon:,}"


class PolicyOptimisation(AlgorithmSpec):
    """PPO, in environments with any kind of action."""

    name = "ppo"
    config = PPO
    engines = engine_table(
        fused="tenfold.algorithms.ppo_cpu:FusedPPO",
        compiled="tenfold.algorithms.ppo_cpu:CompiledPPO",
        plain="tenfold.algorithms.ppo:PlainPPO",
        cudagraph="tenfold.algorithms.ppo_gpu:CudaGraphPPO",
        resident="tenfold.algorithms.ppo_gpu:ResidentPPO",
    )
    tensor_engines = tensor_table(
        plain="tenfold.algorithms.ppo_tensors:TensorPPO",
        cudagraph="tenfold.algorithms.ppo_tensors:CudaGraphTensorPPO",
    )
    reads_masks = True
    on_policy = True
    make_learner = deferred("tenfold.algorithms.ppo_learner:PPOLearner")
    make_tensor_learner = deferred("tenfold.algorithms.ppo_tensors:TensorPPOLearner")
    exported = deferred("tenfold.algorithms.ppo_policy:TracedPolicy")

    def make_agent(self, run: "Run", spec: "EnvSpec") -> "PPOAgent":
        from tenfold.algorithms.ppo import PPOAgent
        from tenfold.core.spaces import policy_actions

        settings: Any = run.agent
        actions = policy_actions(spec.action_space, run.env)
        device = "cpu" if run.device == "auto" else run.device
        components = len(spec.component_names)
        agent = PPOAgent(settings, spec.layout, actions, run.seed, device, components)
        agent.masked = spec.masked
        return agent

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """Type and shape of the fields that an actor adds to a row."""
        from tenfold.core.spaces import policy_actions

        settings: Any = run.agent
        actions, lanes = policy_actions(envs.action_space, run.env), envs.num_envs
        components = len(envs.component_names)
        fields: dict[str, Any] = {
            "chosen": ((lanes, len(actions.sizes)), "int64"),
            "real": ((lanes, len(actions.low)), "float32"),
            "log_p": ((lanes,), "float32"),
            "value": ((lanes, 1 + components) if components else (lanes,), "float32"),
        }
        if components:
            fields["components"] = ((lanes, components), "float32")
        if envs.mask is not None:
            fields["mask"] = (envs.mask.shape, "bool")
        if memory := settings.net.memory:  # before the row, and behind it
            size = 2 * memory.size * memory.kinds
            fields |= dict.fromkeys(("memory", "following"), ((lanes, size), "float32"))
        return fields

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "PPOActing":
        from tenfold.algorithms.ppo_learner import PPOActing

        return PPOActing(agent, envs)

    def hidden_layers(self, settings: Any) -> list[tuple[int, ...]]:
        net = settings.net
        values = 1 + (settings.baseline == "counterfactual")
        return [net.hidden, *[net.of_value.hidden] * values, net.after, net.after]


ALGORITHMS = (PolicyOptimisation(),)
