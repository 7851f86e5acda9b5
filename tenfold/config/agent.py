"""What the settings of every algorithm have in common: a run's agent is of several kinds, told
apart by name.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tenfold.config.notation import nearest, show
from tenfold.config.schema import Config, Decided, hints
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import algorithm_elsewhere
from tenfold.core.registry import algorithm, algorithms

if TYPE_CHECKING:
    from tenfold.config.run import Run

# an evaluation's step takes two to three times as long as one of training (ppo on CartPole and
# LunarLander)
EVALUATION_SHARE = 1 / 25


@dataclass(frozen=True)
class AgentConfig(Config):
    """The settings of an algorithm. Those of one's own derive from it: a field for each setting,
    the string under it is its help text.

        class Settings(ten.AgentConfig):
            lr: ten.Schedule = 1e-3
            \"""learning rate\"""

    An algorithm of one's own goes by the name module:Name, in which Name has these as `config`.
    """

    usual: ClassVar[str] = "dqn"  # where no name is given
    run_defaults: ClassVar[Mapping[str, Any]] = {}  # settings of the run that have another default
    can_sample: ClassVar[bool] = False  # its policy can be drawn from (eval_policy = sampled)
    needs_several_envs: ClassVar[bool] = False  # one environment as an object does not do
    wrappable: ClassVar[bool] = True  # the run may wrap its environments (frames, action_repeat …)

    name: str = ""
    """which agent: the algorithm's name, or one's own as module:Name"""

    @classmethod
    def kinds(cls) -> "dict[str, type[AgentConfig]]":
        return {name: found.config for name, found in algorithms().items()}

    @classmethod
    def kind(cls, name: str, key: str = "agent") -> "type[AgentConfig]":
        """The settings of the algorithm of this name."""
        if not name:
            raise ConfigError(
                f"{key}.name", "is missing: say whose settings these are, such as my_module:Mine."
            )
        if (answer := algorithm_elsewhere(name)) and name not in cls.kinds():
            raise ConfigError(f"{key}.name", f"= {name} is no agent here: {answer}.")
        if name not in cls.kinds() and ":" not in name:
            raise ConfigError(
                f"{key}.name",
                f"= {name} is not one of {', '.join(cls.kinds())}"
                f"{nearest(name, tuple(cls.kinds()))}; one of your own is written module:Name.",
            )
        try:
            config = getattr(algorithm(name), "config", None)
        except UserError as error:
            raise ConfigError(f"{key}.name", f"= {error}") from None
        if not (isinstance(config, type) and issubclass(config, AgentConfig)):
            raise ConfigError(
                f"{key}.name",
                f"= {name} is no algorithm: that has a class of settings, `config`, which derives "
                "from tenfold.AgentConfig.",
            )
        return config

    @classmethod
    def converted(cls, value: Any, key: str) -> "AgentConfig":  # type: ignore[override]
        """Those of the algorithm that `name` says."""
        if isinstance(value, cls):
            kind = cls.kind(value.name, key)
            if type(value) is not kind:
                raise ConfigError(
                    f"{key}.name",
                    f"= {value.name} has settings of its own, {kind.__name__}, and these are "
                    f"{type(value).__name__}.",
                )
            return value
        if isinstance(value, str) and value.strip():  # an algorithm with its defaults
            value = {"name": value.strip()}
        if isinstance(value, type):
            raise ConfigError(key, f"= {value.__name__} is a class: write {value.__name__}().")
        if not isinstance(value, Mapping):
            raise ConfigError(key, f"= {show(value)} is not a group of settings.")
        name = str(value.get("name", cls.usual))
        kind = cls.kind(name, key)
        kind.refuse_others(value, name, key)
        try:
            return kind.of({"name": name, **value})
        except ConfigError as error:
            raise error.within(key) from None

    @classmethod
    def refuse_others(cls, value: Mapping[str, Any], name: str, key: str) -> None:
        """Refuses a setting of another algorithm, and says whose it is."""
        from tenfold.config.leaves import known_here  # here: it reads this module

        for raw, given in value.items():
            word = str(raw).replace("-", "_")
            owners = [other for other, those in cls.kinds().items() if word in hints(those)]
            if owners and word not in hints(cls) and not known_here(cls, word):
                raise ConfigError(
                    f"{key}.{raw}",
                    f"= {show(given)} is not a setting of {name}, which this run trains: it "
                    f"belongs to {', '.join(owners)}.",
                )

    def check_run(self, run: "Run") -> None:
        """Rules that hold between these settings and those of the run; raises ConfigError."""
        if run.members > 1:
            raise ConfigError(
                "members",
                f"= {run.members} is for algorithms that train several seeds as one stack, which "
                f"{self.name} does not: use --seeds.",
            )

    def check_change(self, before: Any) -> None:
        """Rules for a run that goes on with these settings and was saved with those `before`;
        raises ConfigError."""

    @property
    def evaluation_share(self) -> float:
        """Steps of evaluations to a step of training that take about a tenth of a run's time: an
        evaluation steps few environments, in Python, and training may be one compiled call."""
        return EVALUATION_SHARE

    def first_update(self, run: "Run") -> tuple[int, str] | None:
        """The environment step of the first update, and what has to come before it; None where
        nobody knows."""
        return None


@dataclass(frozen=True)
class ByAgent(Decided):
    """A default of a run's setting that the algorithm may set (`run_defaults`)."""

    setting: str
    otherwise: Any

    def of(self, config: Config) -> Any:
        agent: AgentConfig = config.agent  # type: ignore[attr-defined]
        return agent.run_defaults.get(self.setting, self.otherwise)

    def __str__(self) -> str:
        defaults = {name: kind.run_defaults for name, kind in AgentConfig.kinds().items()}
        values = {n: own[self.setting] for n, own in defaults.items() if self.setting in own}
        cases = [f"{show(value)} where agent.name is {name}" for name, value in values.items()]
        return ", ".join([*cases, f"else {show(self.otherwise)}"])
