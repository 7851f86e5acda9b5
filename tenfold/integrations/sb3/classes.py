"""The eight classes: what differs between them beside their arguments, which are in `signatures`."""

from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar

from tenfold.integrations.sb3.model import ActorCriticModel, OnPolicyModel, QLearningModel, SB3Model
from tenfold.integrations.sb3.signatures import CONSTRUCTORS, learn_arguments, signature

Kind = TypeVar("Kind", bound=type[SB3Model])


def with_signatures(kind: Kind) -> Kind:
    """Gives a class the constructor and `learn` of Stable-Baselines3's of the same name."""
    kind.class_name = name = kind.__name__
    constructor, learn = signature(CONSTRUCTORS[name]), signature(learn_arguments(name))
    build, train = kind.__init__, kind.learn

    @wraps(build)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, filled(constructor, arguments, named))

    @wraps(train)
    def learned(self: Any, *arguments: Any, **named: Any) -> Any:
        return train(self, **filled(learn, arguments, named))

    for method, form in ((init, constructor), (learned, learn)):
        first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        method.__signature__ = form.replace(parameters=[first, *form.parameters.values()])  # type: ignore[attr-defined]
    kind.__init__, kind.learn = init, learned  # type: ignore[method-assign]
    return kind


def filled(form: Signature, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, with the defaults."""
    bound = form.bind(*arguments, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


@with_signatures
class PPO(OnPolicyModel):
    """Proximal policy optimisation."""


@with_signatures
class MaskablePPO(OnPolicyModel):
    """PPO whose policy leaves out the actions that `action_masks()` of the environment forbids."""

    masking = True

    def learn(self, *, use_masking: bool = True, **arguments: Any) -> Any:
        """As PPO's; without `use_masking` every action is allowed."""
        self.use_masking = use_masking
        return super().learn(**arguments)

    def open_learner(self, *arguments: Any) -> None:
        if self.source and self.source.adapter:
            self.source.adapter.use_masking = self.use_masking
        super().open_learner(*arguments)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> Any:
        """As PPO's, of the actions that are allowed."""
        return self.predictor(observation, state, episode_start, deterministic, action_masks)


@with_signatures
class RecurrentPPO(OnPolicyModel):
    """PPO whose policy remembers."""


@with_signatures
class DQN(QLearningModel):
    """Q-learning with a replay memory and a target network."""


@with_signatures
class QRDQN(QLearningModel):
    """Q-learning of quantiles of the return."""


@with_signatures
class SAC(ActorCriticModel):
    """Soft actor-critic."""

    draws_actions = True

    def make_agent(self, *arguments: Any) -> None:
        super().make_agent(*arguments)
        self.target_entropy = float(self.agent.target_entropy)

    @property
    def log_ent_coef(self) -> Any:
        """The logarithm of the temperature, as a tensor."""
        return self.agent.log_alpha.detach()


@with_signatures
class TD3(ActorCriticModel):
    """Twin delayed deterministic policy gradient."""


@with_signatures
class DDPG(ActorCriticModel):
    """Deep deterministic policy gradient."""
