"""The interfaces of the house: what each part promises the others.

A run is an ALGORITHM in an ENVIRONMENT. The algorithm makes an AGENT (networks: acting and the
loss) and a LEARNER (rounds of act, step, store, update) for what an ENVSPEC says of the
environment. Rows come to the learner from an ACTORPOOL, stay in a MEMORY, and are learned from by
an ENGINE. CALLBACKS are the user's. A DOMAIN, in `core.registry`, knows the environments of one
field of work, and what is worth saying about them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tenfold.core.errors import UserError

if TYPE_CHECKING:  # what the interfaces speak of; none of it is needed to state them
    import numpy as np

    from tenfold.config.agent_config import AgentConfig
    from tenfold.config.run import Run
    from tenfold.core.layout import ObsLayout
    from tenfold.core.system import Clock
    from tenfold.envs.adapter import Environments, Episode
    from tenfold.runs.reporter import Reporter

Arrays = dict[str, Any]  # by name: NumPy arrays or tensors
State = dict[str, Arrays]  # by part
# encoded rows [B, …], masks [B, options] or None, episodes [B], steps [B] -> the environments'
# actions. Steps of an episode come one after another from 0, whatever lane it has: a policy that
# remembers does so by the episode's number
Policy = Callable[["np.ndarray", "np.ndarray | None", "np.ndarray", "np.ndarray"], "np.ndarray"]


@dataclass(frozen=True)
class EnvSpec:
    """What an environment is like, asked once."""

    name: str
    layout: "ObsLayout"  # how an observation becomes a row of numbers
    action_space: Any
    agents: int = 1
    masked: bool = False  # a mask of allowed actions comes with every observation
    unread_mask: bool = False  # one is offered, and the algorithm does not ask for it
    component_names: tuple[str, ...] = ()  # of the rewards, where they come in components
    # the time of a step, where the environment says it; NaN where what it says is none
    step_time: float | None = None
    exact_resume: bool = True

    @property
    def options(self) -> int:
        """How many actions there are to choose from, where one is chosen; else 0."""
        return int(getattr(self.action_space, "n", 0))

    @property
    def numbers(self) -> int:
        """How many real numbers an action has; 0 where it has none."""
        low = getattr(self.action_space, "low", None)
        return 0 if low is None else int(low.size)


class Agent(Protocol):
    """Networks, how they act, and what they have learned. All parameters are one flat vector,
    `online.flat`."""

    config: Any
    online: Any
    layout: Any
    actions: Any
    reads_masks: bool

    @property
    def frames(self) -> int: ...  # observations that the network sees together
    @property
    def device(self) -> Any: ...
    @property
    def updates(self) -> int: ...
    # the mask may be left out, where the agent learned without masks
    def act(self, obs: Any, mask: Any = ...) -> Any: ...
    def policy(self, how: str) -> Policy: ...  # greedy or sampled, for evaluations
    def exploring(self, step: int) -> dict[str, float]: ...  # for the metrics: epsilon and the like
    def for_actor(self, actor: int) -> "Agent": ...  # the same networks, draws of its own
    def policy_state(self) -> Arrays: ...  # what acting needs
    def state(self) -> Arrays: ...  # everything
    def load_state(self, state: Arrays) -> None: ...


class Memory(Protocol):
    """What the learner learns from."""

    @property
    def bytes(self) -> int: ...
    def state(self) -> Arrays: ...
    def load_state(self, state: Arrays) -> None: ...


# who goes from stage to stage of a round (act, step, store, update): the learner, one call each;
# the engine, by its `run_rounds(learner, most, until)`; or a GPU, which has no separate stages
RoundDriver = Literal["learner", "engine", "device"]


class Engine(Protocol):
    """How an update runs. Plain is the reference; every other engine does the same from the same
    random numbers. Besides these, engines with a replay memory have `update(count, step, clock)`,
    those with a rollout `store()` and `learn_from_rollout(step, clock)`."""

    description: str  # what is special about it, for the person who watches
    notices: Any  # sentences about what happened, a list where it ever has any, else ()
    rounds_by: RoundDriver

    @classmethod  # what keeps it from an agent, in words; empty if nothing does
    def why_not(cls, agent: Any, run: Any = None) -> str: ...
    def prepare(self, run: "Run") -> None: ...  # takes what it needs to know of a run
    def warm_up(self) -> None: ...  # compiles kernels; no side effects
    # actions for the environments' current observations
    def explore(self, step: int, rounds: int) -> "np.ndarray": ...
    def set_lr(self, lr: Any) -> None: ...  # from the next update on
    def statistics(self) -> dict[str, float]: ...  # means since the last call
    def settle(self) -> None: ...  # before the state is saved: what is held elsewhere comes back
    def state(self) -> Arrays: ...
    def load_state(self, state: Arrays) -> None: ...


class ActorPool(Protocol):
    """Where rows come from: actors here, in processes, or elsewhere."""

    direct: bool  # the learner's own engine acts, and rows are in their place already
    envs: Any  # the latest step of all actors
    notices: list[str]  # about actors that were lost and replaced
    # whether actors act while the learner learns: then timing, and not only the seed, decides by
    # which weights
    asynchronous: bool

    # starts with this agent's networks; `explore` acts where the pool is direct, on the rows that
    # this returns
    def bind_agent(self, agent: Any, explore: "Callable[[int, int], np.ndarray]") -> Any: ...
    # a row of every actor
    def collect(self, step: int, rounds: int, left: int, clock: "Clock") -> Iterator[Any]: ...
    def rounds_until(self, step: int, end: int) -> int: ...  # that actors play, at least one
    def pause(self) -> int: ...  # pauses all actors; the largest number of buffered rounds
    def drain(self) -> Iterator[Any]: ...  # pauses all actors; yields the buffered rows
    # actors act by what the agent has learned now
    def publish(self, agent: Any, step: int, clock: "Clock") -> None: ...
    def report(self) -> dict[str, float]: ...  # for the metrics
    def state(self) -> State: ...
    def restore(self, state: State, agent: Any, step: int) -> bool: ...  # False: not exactly
    def close(self) -> None: ...


@dataclass(frozen=True)
class Description:
    """A learner in words, for the person who watches."""

    engine: str  # its name, then why it was chosen: "fused, one compiled call a round"
    device: str
    memory_text: str
    where: str = ""  # of actors
    inexact: str = ""  # why neither another run with this seed nor a resume would be the same
    inexact_resume: str = ""  # why a resume would not be
    notes: tuple[str, ...] = ()  # to know before the first step

    @property
    def name(self) -> str:
        """Of the engine, without the reasons."""
        return self.engine.split(",")[0].split()[0]


class Learner(Protocol):
    """One run under way: everything that a round needs and a checkpoint holds."""

    run: "Run"
    agent: Any
    step: int  # environment steps so far
    clock: "Clock"
    notices: list[str]  # for the person, about what happened
    tells_episodes: bool  # whether episodes of it have returns

    @property
    def warnings(self) -> list[str]: ...  # what a person must not miss
    @property
    def lockstep(self) -> Any: ...  # what verifies updates, where a run asks for it
    @property
    def description(self) -> Description: ...
    @property
    def exact_resume(self) -> bool: ...
    @property
    def rows(self) -> Any: ...  # a replay memory whose rows a checkpoint appends to, or None
    def warm_up(self) -> None: ...
    # not beyond step `until`; the episodes that ended
    def round(self, until: int | None = None) -> "list[Episode]": ...
    def settle(self) -> "list[Episode]": ...  # before the state is saved
    def statistics(self) -> dict[str, float]: ...  # of updates and actors, since the last call
    def set_lr(self, lr: Any) -> None: ...
    def begin_with(self, state: Arrays) -> None: ...  # weights of another run, before a first round
    def time_every_round(self) -> None: ...  # for a profile
    def state(self) -> State: ...
    def load_rows(self, rows: "dict[str, np.ndarray]") -> None: ...
    # False: not an exact resume
    def load_state(self, state: State, with_rows: bool = True) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found: the row for the metrics, the score that the best checkpoint has
    most of, and what to notice."""

    row: dict[str, Any]
    score: float
    notice: str = ""
    warning: str = ""


class Evaluator(Protocol):
    """How the policy or model of a run is judged while it trains."""

    # what evaluations take, for the first lines; "": not worth a word
    def cost(self, learner: Learner) -> str: ...
    def evaluate(  # None: stopped
        self, learner: Learner, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None: ...


@dataclass(frozen=True)
class EvalRequest:
    """What `ten.evaluate` and `tenfold eval` evaluate: a run, or a folder of many seeds."""

    path: Path
    checkpoint: str = "last"
    episodes: int = 20
    seed: int | None = None  # the run's own
    video: str | None = None  # where a film goes; empty: a file's usual name
    options: Mapping[str, Any] = field(default_factory=dict)  # flags of the domains that were given
    trust: bool | frozenset[str] = False  # modules that are imported, whoever named them


class Evaluation(Protocol):
    """How an algorithm's runs are evaluated after training, by `ten.evaluate` and `tenfold eval`,
    and how the results are printed."""

    def score(self, request: EvalRequest, env: Any = None) -> Any: ...  # for `ten.evaluate`
    # for `tenfold eval`, as JSON takes it: of one run, and of many seeds
    def evaluate(self, request: EvalRequest) -> dict[str, Any]: ...
    def evaluate_seeds(self, request: EvalRequest) -> dict[str, Any]: ...
    def lines(self, request: EvalRequest, results: dict[str, Any]) -> list[str]: ...
    def lines_of_seeds(self, request: EvalRequest, results: dict[str, Any]) -> list[str]: ...
    # the last words of a run: how good it is, and what can be done with it
    def conclusion(self, result: Any) -> list[str]: ...
    def next_steps(self, path: Path, many: bool = False) -> str: ...


class Acting(Protocol):
    """How an actor acts in its environments: what it sees, and what it adds to a row."""

    def act(self, row: "dict[str, np.ndarray]", step: int, rounds: int) -> "np.ndarray": ...
    def stepped(self) -> None: ...  # after a step of the environments
    def state(self) -> "dict[str, np.ndarray]": ...
    def restore(self, state: "dict[str, np.ndarray]", exact: bool) -> None: ...


class AlgorithmSpec:
    """A way to learn: its settings, and how its parts are made. What raises NotImplementedError
    every algorithm has; the rest is as for agents that play episodes."""

    name = ""
    config: "type[AgentConfig]"
    reads_masks = False  # environments are asked for masks, and may have any kind of action
    # its agents normalise observations, where the run asks for it, without a setting of their own
    normalises = False
    on_policy = False  # rows of all actors make one row of a rollout
    overlaps = False  # updates may run while environments step
    engines: Mapping[str, Any] = {}  # by name, the preferred first (`engines.choose.EngineEntry`)
    tensor_engines: Mapping[str, Any] = {}  # those where environments are tensors

    def make_agent(self, run: "Run", spec: EnvSpec) -> Any:
        """Raises UserError with one sentence where the spec does not fit."""
        raise NotImplementedError

    def make_learner(self, run: "Run") -> Learner:
        raise NotImplementedError

    def make_tensor_learner(self, run: "Run") -> Learner:
        raise NotImplementedError

    def untrained(self, run: "Run") -> Any:
        """The agent of a run where no environment has to be asked for it; None: by
        `make_agent`."""
        return None

    def make_evaluator(self, run: "Run") -> Evaluator | None:
        """How it is judged while it trains; None: by episodes of its policy."""
        return None

    def evaluation(self) -> Evaluation | None:
        """How its runs are judged when they have ended; None: its policy plays episodes."""
        return None

    def make_reporter(self) -> "Reporter | None":
        """How its runs are described; None: as those of agents that play episodes."""
        return None

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What its actors add to a row: shape and type by name."""
        raise NotImplementedError

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> Acting:
        raise NotImplementedError

    def exported(self, agent: Any, sample: bool) -> Any:
        """The agent's policy as a torch module that can be traced: encoded rows [B, …], masks
        [B, options] or None, uniform [B, C] and normal [B, D] numbers or None -> components
        [B, C] and real numbers [B, D], before they are brought within their bounds. Raises
        UserError with one sentence where that cannot be."""
        raise UserError(
            f"Runs of {self.name} cannot be exported: what they learn is not one network that "
            "maps observations to actions."
        )

    def hidden_layers(self, settings: Any) -> list[tuple[int, ...]]:
        """Widths of the fully connected layers of each network that an agent has."""
        return []


class Callback:
    """The user's, called at moments of a run: `ten.train(run, callbacks=[MyCallback()])`, or
    `tenfold train … --callback my_module:MyCallback`. Overwrite what you need.

    `training` is the run under way: `training.learner`, `.run`, `.step`, and what may be done with
    it, `.stop()`, `.evaluate()`, `.save()`, `.set_lr(1e-4)`. `on_log` and `on_evaluate` may add
    numbers to the row. `on_row` is given every row of the metrics, for a place of one's own to keep
    them.
    """

    def on_start(self, training: Any) -> None:
        """Before the first step, or the first after a resume."""

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        """A row of training metrics, every log_every steps."""

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        """What an evaluation found, every eval_every steps."""

    def on_checkpoint(self, training: Any) -> None:
        """After a checkpoint."""

    def on_row(self, row: dict[str, Any]) -> None:
        """Every row of the metrics, episodes too."""

    def on_end(self, training: Any) -> None:
        """After the last step, when all is saved."""
