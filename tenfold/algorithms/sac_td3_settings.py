"""Settings of the algorithms with a policy and critics, sac and td3, and the algorithms as the
registry lists them.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tenfold.algorithms.off_policy_settings import OffPolicyAlgorithm, check_spec
from tenfold.config.action_noise import OU, ActionNoiseOption, Normal
from tenfold.config.agent_config import AgentConfig
from tenfold.config.options import ActorCriticConfig
from tenfold.config.schedules import Schedule
from tenfold.config.schema import Count, Limits, NotNegative, Option, Positive
from tenfold.core.errors import ConfigError
from tenfold.core.registry import deferred, import_by_name
from tenfold.engines.choose import engine_table, tensor_table

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec
    from tenfold.envs.adapter import Environments


@dataclass(frozen=True)
class Auto(Option):
    """The temperature is learned, from `start` on, so that the policy's entropy is near `target`;
    none: minus the numbers of an action, of discrete actions 0.98 log(how many)."""

    target: float | None = None
    start: Positive = 1.0


@dataclass(frozen=True)
class SAC(ActorCriticConfig, AgentConfig):
    """Soft actor-critic: continuous actions within bounds, or one discrete action; twin critics,
    n-step, prioritised, the temperature learned or given."""

    can_sample: ClassVar[bool] = True

    name: Literal["sac"] = "sac"
    """which agent"""
    temperature: Auto | Positive = Auto()
    """what entropy is worth beside reward: learned, auto(target, start), or a number"""
    noise: Normal | OU | None = None
    """what is added to the policy's draws in training: normal(sigma, mean), ou(sigma, theta, dt,
    mean), or none; for continuous actions"""
    critics: Annotated[int, Limits(1, 2)] = 2
    """of two the smaller value counts"""


@dataclass(frozen=True)
class TD3(ActorCriticConfig, AgentConfig):
    """Twin delayed deterministic policy gradient, for continuous actions within bounds. DDPG is
    critics = 1, policy_delay = 1, smoothing = 0."""

    name: Literal["td3"] = "td3"
    """which agent"""
    lr: Schedule = 1e-3
    """learning rate of Adam, for the policy and the critics: a number, linear(start, end, steps),
    exponential(start, end, steps) or a function of one's own"""
    noise: Schedule | Normal | OU = 0.1
    """deviation of the noise on actions in training, which lie between -1 and 1 before they are
    brought to their bounds: a number or a schedule; or normal(sigma, mean) or ou(sigma, theta, dt,
    mean), which uniform actions have too"""
    policy_delay: Count = 2
    """updates of the critics to one of the policy and of the target networks"""
    smoothing: NotNegative = 0.2
    """deviation of the noise on the target policy's action, by which critics are smoothed"""
    smoothing_clip: NotNegative = 0.5
    """the largest of such noise"""
    critics: Annotated[int, Limits(1, 2)] = 2
    """of two the smaller value counts"""


class ActorCriticAlgorithm(OffPolicyAlgorithm):
    """sac and td3: a policy and critics."""

    tensor_engines = tensor_table(
        plain="tenfold.engines.tensor_off_policy:TensorActorCritic",
        cudagraph="tenfold.engines.tensor_off_policy:CudaGraphTensorActorCritic",
    )
    make_tensor_learner = deferred("tenfold.algorithms.off_policy_tensors:TensorOffPolicyLearner")

    def __init__(self, config: Any, agent: str, fused: str, discrete: bool = False) -> None:
        """`agent` and `fused`, its fused engine, are written as module:Class. `discrete`: whether
        one discrete action will do as well."""
        self.name, self.config, self.agent, self.discrete = config.name, config, agent, discrete
        self.engines = engine_table(
            fused=fused,
            compiled="tenfold.engines.compiled:CompiledOffPolicy",
            plain="tenfold.engines.plain:OffPolicyEngine",
            cudagraph="tenfold.algorithms.kernels.actor_critic_gpu:CudaGraphActorCritic",
        )

    def actions(self, run: "Run", space: Any) -> Any:
        """Its actions in such a space."""
        from gymnasium.spaces import Discrete

        from tenfold.core.spaces import bounded_actions, discrete_actions

        if not self.discrete:
            return bounded_actions(space, run.env, self.name)
        if isinstance(space, Discrete):
            return discrete_actions(space, run.env)
        needed = "continuous ones (a Box) or one Discrete action"
        return bounded_actions(space, run.env, self.name, needed)

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        actions = self.actions(run, spec.action_space)
        check_spec(run, spec)
        noise: Any = getattr(run.agent, "noise", None)
        if isinstance(noise, ActionNoiseOption):
            if not actions.reals:
                raise ConfigError(
                    "agent.noise",
                    f"= {noise} is for continuous actions, and those of {run.env} are discrete: "
                    "leave it out.",
                )
            noise.rule(actions.reals)
        device = "cpu" if run.device == "auto" else run.device
        return import_by_name(self.agent)(run.agent, spec.layout, actions, run.seed, device)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        reals, lanes = self.actions(run, envs.action_space).reals, envs.num_envs
        return {"action": ((lanes, reals), "float32") if reals else ((lanes,), "int64")}

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.actor_critic import DrawnPolicy, GreedyPolicy

        if sample and not self.config.can_sample:
            raise ConfigError(
                "--sample", f"is for policies that can be drawn from: {self.name} is greedy."
            )
        return DrawnPolicy(agent) if sample else GreedyPolicy(agent)

    def hidden_layers(self, settings: Any) -> list[tuple[int, ...]]:
        critics = getattr(settings, "critics", 2)
        return [settings.net.hidden, *[settings.net.of_value.hidden] * critics]


ALGORITHMS = (
    ActorCriticAlgorithm(
        SAC,
        agent="tenfold.algorithms.sac:SACAgent",
        fused="tenfold.algorithms.kernels.sac:FusedSAC",
        discrete=True,
    ),
    ActorCriticAlgorithm(
        TD3,
        agent="tenfold.algorithms.td3:TD3Agent",
        fused="tenfold.algorithms.kernels.td3:FusedTD3",
    ),
)
