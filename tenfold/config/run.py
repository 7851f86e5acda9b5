"""The settings of a run; those of its algorithm are with the algorithm.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self

from tenfold.config.agent_config import AgentConfig, AgentDefault, FieldSpec, field_specs
from tenfold.config.notation import parse_call, show, with_arguments
from tenfold.config.options import Sign
from tenfold.config.schema import (
    Config,
    Count,
    DerivedDefault,
    Limits,
    OneOf,
    Positive,
    Whole,
)
from tenfold.core.errors import ConfigError
from tenfold.core.registry import algorithm, algorithms
from tenfold.core.user_envs import is_object, is_single, name_of

AHEAD, AHEAD_ON_RAY = 8, 32  # steps of actors beyond the learner, where nothing is said of it
USUAL_EPISODES = 10  # of an evaluation, where nothing is said of it
# steps of one that are not too many, however often there is one: two episodes of CartPole
LEAST_EVALUATION = 1_000


def agent_default(setting: str, otherwise: Any) -> Any:
    """A default that the algorithm may override."""
    return field(default=AgentDefault(setting, otherwise))


def engine_names() -> list[str]:
    """The names of all algorithms' engines."""
    return ["auto", *dict.fromkeys(name for one in algorithms().values() for name in one.engines)]


# settings of the run that are the agent's own where it has one of this name
AGENTS_OWN = ("frames", "normalize_obs")
# with what they are where nobody asks for them
USUAL: dict[str, Any] = {
    "action_repeat": 1,
    "max_episode_steps": None,
    "frames": None,
    "normalize_obs": None,
    "normalize_reward": False,
    "clip_reward": None,
}

# settings of former versions: the value that changes nothing, and why there is no other
REMOVED = {
    "vectorize": ("scalar", "environments are stepped by tenfold's own adapter"),
    "learners": (1, "one process learns"),
}


@dataclass(frozen=True)
class Run(Config):
    """One training run."""

    env: str = agent_default("env", "CartPole-v1")
    """a Gymnasium environment id, with its arguments if any: "FrozenLake-v1(is_slippery=false)";
    "my_module:MyEnv-v0" imports my_module first; "my_module:make(num_envs=4096)" calls a function
    that makes environments of tensors (ppo, sac, td3). From Python also a function that makes an
    environment, or one environment as an object"""
    agent: AgentConfig = field(default_factory=lambda: AgentConfig.kind(AgentConfig.usual)())
    """the agent's settings"""
    steps: Count = agent_default("steps", 50_000)
    """environment steps in all"""
    seed: Annotated[int, Limits(0, 2**63 - 1)] = 0
    """one number that determines the whole run"""
    members: Annotated[int, Limits(1, 1024)] = 1
    """seeds that are trained together, each as it would be alone: seed, seed + 1, … (for algorithms
    that train several seeds as one stack)"""
    num_envs: Annotated[int, Limits(1, 2**24)] = 1
    """environments stepped together (by each actor), in several processes where they are slow
    (env_threads); of worlds with several agents, worlds"""
    actors: Annotated[int, Limits(1, 1024)] = 1
    """how many act for the one learner, each with environments and draws of its own"""
    where: Literal["auto", "serial", "processes", "ray"] = "auto"
    """where actors act: in this process one after another (serial), each in its own, or on the
    machines of a Ray cluster (ray); auto uses processes if a round of an actor takes long enough,
    in step with the learner (ahead = 0), so that no measured time decides what is learned. With
    several seeds ray is about them: each is a task of the cluster"""
    address: str = ""
    """of the Ray cluster, host:port or auto (the one of this machine), where something is to run on
    Ray; without it that of RAY_ADDRESS, or one that is started here for this run"""
    ahead: Whole | None = None
    """steps an actor's process may be ahead of the learner; 0: none, and the run equals the serial
    one bit for bit; above 0 neither a second run nor a resume is exact (but for ppo's kind, which
    waits for its learner); none: 0 with where = auto, 8 with processes, 32 with ray, where a call
    costs more"""
    overlap: bool = False
    """updates from a replay memory run while the environments step (on a GPU that takes the longer
    of both instead of their sum), so that actions come from parameters one round older; for one
    actor in the learner's process"""
    on_death: Literal["stop", "restart"] = "stop"
    """when an actor's process dies: stop the run, which can be resumed, or start another in its
    place"""
    patience: Positive = 60.0
    """seconds another process may take for a step of an actor, or of each environment that it steps
    for one, before the run gives it up"""
    env_form: Literal["auto", "gymnasium"] = "auto"
    """how MuJoCo tasks are stepped: auto, in compiled code on several threads where it gives the
    very numbers that Gymnasium's classes give; gymnasium, by those, one after another"""
    env_threads: Annotated[int, Limits(0, 1024)] = 0
    """threads that step compiled MuJoCo tasks and Atari games, or processes that step an actor's
    other environments; they change no number. 0: as many as there are cores and environments (an
    actor's process has one thread), processes where steps take long, more of them where steps wait;
    1: all in this process"""
    share: bool = False
    """the agents of a world are one network (dqn; policies always are) instead of one each"""
    action_repeat: Annotated[int, Limits(1, 1000)] = 1
    """an action is played this many times, its rewards added up, and stops where the episode ends;
    a step, here and in every other setting, is one such choice of the agent"""
    max_episode_steps: Count | None = None
    """steps after which an episode is cut (truncated: its last value still counts), instead of the
    environment's own limit; none: that one, which does not count repeated actions as one"""
    frames: Annotated[int, Limits(1, 64)] | None = None
    """observations an agent sees together: the current one and those before it in its episode;
    none: 1, or what agent.frames says"""
    normalize_obs: bool | None = None
    """observations are shifted and scaled by their running mean and deviation, which the checkpoint
    keeps, and evaluations and exports use; none: what agent.normalize_obs says"""
    normalize_reward: bool | Literal["drawn"] = False
    """rewards for learning are divided by the running deviation of the discounted return, and
    clipped to +-10; returns are reported as they are. drawn: a replay memory holds them as they
    are, and what it draws is divided by the deviation of then"""
    clip_reward: Sign | Positive | None = None
    """rewards for learning are clipped to plus and minus this number (after they were normalised),
    or are their signs alone; returns are reported as they are"""
    engine: Annotated[str, OneOf(engine_names)] = "auto"
    """how an update runs: fused (one compiled call, for fully connected networks on the CPU),
    compiled (any network on the CPU through torch.compile), resident (environments and learning
    inside a GPU), cudagraph (updates as CUDA graphs), plain (eager PyTorch, the reference); auto
    picks the first that fits: fused or plain, on a GPU resident, cudagraph or plain"""
    stack: Literal["auto", "together", "apart"] = "auto"
    """agents of one world are updated in one call (together) or one after another (apart); auto
    picks by the shapes"""
    verify: Whole = 0
    """repeat every N-th update with the plain engine from a copy of the same state and compare; 0:
    never"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where the networks live; auto is cpu, or where an environment's tensors are"""
    precision: Literal["fp32", "bf16x3", "tf32"] = "fp32"
    """of products on a GPU, by the engines resident and cudagraph: fp32 (to rounding), bf16x3 (the
    resident engine's alone; gradients to 1e-5, faster) or tf32 (to 1e-2, fastest)"""
    threads: Annotated[int, Limits(0, 1024)] = 0
    """threads that share an update: of the fused engine where networks are wide (such as 256, 256
    in batches of 64), which changes no number, and of PyTorch, whose sums may differ in their last
    bits; 0: of the fused engine as many as there are cores and work for (one in each of several
    processes), of PyTorch one"""
    eval_every: Whole = agent_default("eval_every", 50_000)
    """environment steps between evaluations by the greedy policy (they choose the best checkpoint);
    the end of a run is evaluated as well; 0: never"""
    eval_episodes: Annotated[int, Limits(1, 10**6)] | None = None
    """episodes of such an evaluation, all of them; none: 10, or as many as fit into eval_steps"""
    eval_policy: Literal["greedy", "sampled"] = "greedy"
    """evaluations take the most probable action, or draw from the policy (ppo, sac) as training
    does"""
    eval_steps: Count | None = None
    """environment steps an evaluation may take in all: no episode begins that would not end within
    them, and one that goes on is cut there, so that fewer than eval_episodes may be played; none:
    no bound where eval_episodes is set, else about a tenth of the time that training to the next
    evaluation takes, counted in steps (ppo: 1/25 of eval_every), at least 1,000, and none is cut"""
    episode_limit: Count = 30_000
    """steps after which an episode of an evaluation is cut, for environments that have no time
    limit of their own; while a run trains after 5,000, or ten times the mean of training's"""
    checkpoint_every: Whole = 10_000
    """environment steps between checkpoints; 0: only at the end and on interrupt"""
    keep: Count = 2
    """how many of the latest checkpoints to keep (the best by evaluation is kept besides)"""
    log_every: Count = 1_000
    """environment steps between rows of training metrics"""

    @property
    def lanes(self) -> int:
        """Environments of all actors, as the settings say; those of tensors may say it in their
        name."""
        arguments = parse_call(self.env, "env")[2] if "num_envs" in self.env else {}
        count = arguments.get("num_envs", "")
        return max(int(count), 1) if count.isdigit() else self.num_envs * self.actors

    @property
    def steps_ahead(self) -> int:
        """`ahead`, or its default."""
        usual = {"processes": AHEAD, "ray": AHEAD_ON_RAY}.get(self.where, 0)
        return usual if self.ahead is None else self.ahead

    @property
    def evaluation_episodes(self) -> int:
        """`eval_episodes`, or its default."""
        return self.eval_episodes or USUAL_EPISODES

    @property
    def evaluation_steps(self) -> int | None:
        """`eval_steps`, or its default; None: no limit. It follows from the settings alone, never
        from a clock, so that runs are reproducible."""
        if self.eval_steps or self.eval_episodes:
            return self.eval_steps
        between = min(self.eval_every, self.steps)
        return max(int(between * self.agent.evaluation_share), LEAST_EVALUATION)

    @property
    def world(self) -> str:
        """The environment's name with its step settings as arguments."""
        repeat = self.action_repeat if self.action_repeat > 1 else None
        form = None if self.env_form == "auto" else self.env_form
        arguments = {
            "action_repeat": repeat,
            "max_episode_steps": self.max_episode_steps,
            "env_form": form,
        }
        return with_arguments(self.env, {k: v for k, v in arguments.items() if v is not None})

    @property
    def stacked(self) -> int:
        """Frames stacked by the environments; an agent with `frames` of its own stacks them
        itself."""
        agent_fields = {setting.name for setting in fields(self.agent)}
        return 1 if "frames" in agent_fields else self.frames or 1

    @property
    def shapes_rewards(self) -> bool:
        return bool(self.normalize_reward) or self.clip_reward is not None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the members."""
        return tuple(range(self.seed, self.seed + self.members))

    def __post_init__(self) -> None:
        if not isinstance(self.env, str | DerivedDefault):  # an object or a function
            object.__setattr__(self, "env", name_of(self.env))
        super().__post_init__()

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Self:
        refuse_contradictions(mapping)
        return super().of(without_removed(mapping))

    def check(self) -> None:
        tell_agent(self)
        check_wrappers(self)
        if not self.env.strip():
            raise ConfigError("env", "is empty: give an environment's id, such as CartPole-v1.")
        several = (
            f"agent {self.agent.name}"
            if self.agent.needs_several_envs
            else f"num_envs = {self.num_envs}"
            if self.num_envs > 1 and is_single(self.env)
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
        if self.overlap and not getattr(algorithm(self.agent.name), "overlaps", False):
            raise ConfigError(
                "overlap", f"= true is for agents with a replay memory: {self.agent.name} has none."
            )
        if self.eval_policy == "sampled" and not self.agent.can_sample:
            those = [name for name, kind in AgentConfig.kinds().items() if kind.can_sample]
            raise ConfigError(
                "eval_policy",
                f"= sampled is for policies that can be drawn from ({', '.join(those)}): use "
                "greedy.",
            )
        self.agent.check_run(self)


# settings that wrap environments: what an agent is shown of them and learns from


def refuse_contradictions(mapping: Mapping[str, Any]) -> None:
    """Refuses different values of a setting of the run and the same setting of its agent."""
    agent: Any = mapping.get("agent")
    for name in AGENTS_OWN if isinstance(agent, Mapping) else ():
        dashed = name.replace("_", "-")
        values = [show(group.get(name, group.get(dashed))) for group in (mapping, agent)]
        if "none" not in values and values[0] != values[1]:
            raise ConfigError(
                name,
                f"= {values[0]} and agent.{name} = {values[1]} contradict each other: they are one "
                "setting, so leave one of them out.",
            )


def without_removed(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those of earlier versions."""
    for name, (usual, why) in REMOVED.items():
        if mapping.get(name, usual) != usual:
            raise ConfigError(
                name,
                f"= {show(mapping[name])} is no longer offered: {why}. Leave it out and train "
                "anew.",
            )
    return {key: value for key, value in mapping.items() if key not in REMOVED}


def tell_agent(run: "Run") -> None:
    """Moves settings that are the agent's own to the agent."""
    for name in AGENTS_OWN:
        value = getattr(run, name)
        if value is not None and name in {setting.name for setting in fields(run.agent)}:
            object.__setattr__(run, "agent", replace(run.agent, **{name: value}))
            object.__setattr__(run, name, None)


def check_wrappers(run: "Run") -> None:
    """Refuses wrappers that the agent does not support, or that the environment's name sets too."""
    _ = run.world
    wrappers = {name: getattr(run, name) for name, usual in USUAL.items()}
    wrappers = {name: value for name, value in wrappers.items() if value != USUAL[name]}
    if wrappers and not run.agent.wrappable:
        name, value = next(iter(wrappers.items()))
        raise ConfigError(
            name,
            f"= {show(value)} is not for agent {run.agent.name}, which takes environments as they "
            "are: leave it out.",
        )
    if run.normalize_obs and not getattr(algorithm(run.agent.name), "normalises", False):
        raise ConfigError(
            "normalize_obs", f"= true is not for agent {run.agent.name}: leave it out."
        )


def specs_for(run: Run | None) -> list[FieldSpec]:
    """The settings of a run with this one's agent, with the agent's own defaults and help; of any
    agent without a run."""
    specs = list(field_specs(Run))
    if run is None:
        return specs
    of_agent = field_specs(type(run.agent), "agent.")
    return [
        *(spec for spec in of_agent if spec.path != "agent.name"),
        *(s for s in specs if s.path == "agent.name" or not s.path.startswith("agent.")),
    ]
