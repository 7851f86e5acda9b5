"""Settings of the agent that learns latent dynamics by experiments of its own choice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tenfold.config.agent_config import AgentConfig
from tenfold.config.schema import Config, Count, Limits, NotNegative, Positive, Share, Whole
from tenfold.core.errors import ConfigError

if TYPE_CHECKING:
    from tenfold.config.run import Run


@dataclass(frozen=True)
class LatentModel(Config):
    """A sequential variational autoencoder: encoder, latent dynamics, decoder."""

    latent: Annotated[int, Limits(1, 64)] = 2
    """numbers of the hidden state"""
    encoder: Literal["mlp", "gru"] = "mlp"
    """how an observation is read: alone (mlp) or with those before it (gru)"""
    hidden: tuple[Annotated[int, Limits(1, 2**14)], ...] = (64,)
    """widths of the hidden layers of encoder, decoder and mlp dynamics"""
    dynamics: Literal["linear", "mlp", "rbf"] = "rbf"
    """z + dt f(z) + dt g(a), with f linear, an mlp, or weights on a grid of radial basis
    functions"""
    grid: Annotated[int, Limits(2, 200)] = 10
    """centres of the radial basis functions in each dimension"""
    span: Positive = 3.0
    """the grid reaches from -span to span; a closed-form fit gives states a deviation of 1"""
    ensemble: Annotated[int, Limits(1, 256)] = 1
    """dynamics models side by side, with one encoder and one decoder"""
    decoder: Literal["identity", "linear", "loglinear", "mlp"] = "linear"
    """from the hidden state to the observation's mean"""
    noise: Literal["gaussian", "poisson"] = "gaussian"
    """of the observation around its mean; for poisson counts decoders other than loglinear pass
    through softplus"""
    samples: Count = 5
    """posterior paths of the evidence bound"""
    steps: Count = 5
    """horizons of the KL terms: 1 ... steps"""
    decay: Annotated[float, Limits(0, 1, above=True)] = 0.8
    """weight of horizon k is decay^(k-1), normalised to sum 1"""
    mask: Share = 0.0
    """probability that an observation is hidden from the encoder while the model trains"""
    missing: bool = False
    """whether observations may have values that were not observed (NaN): the encoder is told which.
    `fit` sets it where a recording has any"""
    held_out: Annotated[float, Limits(0, 0.9)] = 0.0
    """share of the neurons (of counts: poisson) that the encoder never reads and the decoder
    foretells all the same: co-bps says how well"""
    coordinated_dropout: Annotated[float, Limits(0, 0.9)] = 0.0
    """share of the values that the encoder does not read in a gradient step, and that alone count
    in the likelihood then, so that no value explains itself; for counts of few spikes, such as
    0.2"""
    beta: Literal["none", "linear", "cyclic", "warm-up"] = "none"
    """schedule of the KL terms' weight"""
    beta_steps: Count = 1_000
    """gradient steps of that schedule, or of one of its cycles"""

    def check(self) -> None:
        if self.held_out and self.noise != "poisson":
            raise ConfigError(
                "held_out",
                f"= {self.held_out} is for counts, whose bits per spike it measures: set noise to "
                "poisson, or leave it at 0.",
            )


@dataclass(frozen=True)
class Planner(Config):
    """What to do next."""

    policy: Literal["active", "disagreement", "rnd", "random", "zero", "goal"] = "active"
    """active maximises Fisher information of the dynamics, disagreement the variance of the
    ensemble's means, rnd the error of a network that imitates a random one, goal the nearness to a
    place; random and zero plan nothing"""
    optimality: Literal["a", "d"] = "a"
    """of the information matrix: trace of its inverse (a) or log-determinant (d)"""
    matrix: Literal["diagonal", "full"] = "full"
    """how much of the information matrix is kept: the diagonal alone does not see that neighbouring
    features overlap"""
    forget: Annotated[float, Limits(0, 1, above=True)] = 0.9999
    """discount of information gathered, for each step"""
    goal: tuple[float, ...] = ()
    """a hidden state to come near to, in the model's coordinates, for policy goal and where
    goal_weight is above 0"""
    horizon: Count = 10
    """steps looked ahead"""
    samples: Count = 32
    """action sequences tried in each iteration"""
    iterations: Count = 10
    """rounds of sampling and refitting"""
    elites: Count = 8
    """best sequences that the next round is fitted to"""
    keep: Share = 0.3
    """share of the elites that stays in the next round, and shifted in the next plan"""
    momentum: Annotated[float, Limits(0, 0.999)] = 0.1
    """share of the old mean and deviation in the refitted ones"""
    colour: Annotated[float, Limits(0, 10)] = 2.0
    """exponent of the samples' power spectrum over time: 0 is white, 2 moves like a random walk"""
    action_cost: NotNegative = 0.0
    """weight of the actions' mean square, subtracted"""
    goal_weight: NotNegative = 0.0
    """weight of nearness to the goal, added"""
    information_weight: NotNegative = 0.0
    """weight of Fisher information, added to another policy's objective; 0 is 1 for policy
    active"""
    disagreement_weight: NotNegative = 0.0
    """weight of the ensemble's disagreement, added to another policy's objective; 0 is 1 for policy
    disagreement"""
    novelty_weight: NotNegative = 0.0
    """weight of novelty (rnd), added to another policy's objective; 0 is 1 for policy rnd"""

    def check(self) -> None:
        if self.elites > self.samples:
            raise ConfigError(
                "elites",
                f"= {self.elites} is more than samples = {self.samples}: the best are chosen among "
                "those tried.",
            )


@dataclass(frozen=True)
class Explorer(AgentConfig):
    """Active learning of latent dynamics: plan an experiment, act, correct the belief, train the
    model."""

    run_defaults: ClassVar[Mapping[str, Any]] = {
        "env": "tenfold/LimitCycle-v0",
        "steps": 10_000,
        "eval_every": 1_000,
    }
    needs_several_envs: ClassVar[bool] = True  # of each member, and of its evaluations
    wrappable: ClassVar[bool] = False

    name: Literal["explorer"] = "explorer"
    """which agent"""
    model: LatentModel = field(default_factory=LatentModel)
    """the model of the world"""
    planner: Planner = field(default_factory=Planner)
    """how actions are chosen"""
    lr: Positive = 3e-3
    """learning rate of Adam"""
    window: Count = 10_000
    """latest steps that online training draws from"""
    length: Annotated[int, Limits(2, 10**6)] = 20
    """steps of a training sequence"""
    batch_size: Count = 8
    """sequences of a gradient step"""
    every: Count = 2
    """environment steps between rounds of training"""
    updates: Count = 1
    """gradient steps of a round"""
    learning_starts: Whole = 200
    """environment steps, by random actions, before the first plan and the first gradient step"""
    first_updates: Whole = 500
    """gradient steps before the first plan: a plan needs a model"""
    refit: Whole = 100
    """environment steps (of recordings: gradient steps) between fits of linear or rbf dynamics in
    closed form to all that the window holds; 0: gradients only"""
    clip_norm: Positive | None = 10.0
    """longest gradient (Euclidean norm over all parameters), or none"""

    def check_run(self, run: "Run") -> None:
        for name, value, usual in (
            ("num_envs", run.num_envs, 1),
            ("actors", run.actors, 1),
            ("verify", run.verify, 0),
        ):
            if value != usual:
                raise ConfigError(
                    name,
                    f"= {value} is not for agent explorer, which runs one experiment for each "
                    f"member: leave it at {usual}.",
                )
        if run.engine not in ("auto", "plain"):
            raise ConfigError(
                "engine", f"= {run.engine} cannot train agent explorer: leave it at auto."
            )
