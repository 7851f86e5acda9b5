"""What the settings of every algorithm have in common.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tenfold.config.family import Family
from tenfold.config.notation import show
from tenfold.config.schema import Config, Decided
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.registry import algorithm, algorithms

if TYPE_CHECKING:
    from tenfold.config.run import Run


@dataclass(frozen=True)
class AgentConfig(Family):
    """The settings of an algorithm. Those of one's own derive from it: a field for each setting,
    the string under it is its help text.

        class Settings(ten.AgentConfig):
            lr: ten.Schedule = 1e-3
            \"""learning rate\"""

    An algorithm of one's own goes by the name module:Name, in which Name has these as `config`.
    """

    usual: ClassVar[str] = "dqn"
    run_defaults: ClassVar[Mapping[str, Any]] = {}  # settings of the run that have another default
    can_sample: ClassVar[bool] = False  # its policy can be drawn from (eval_policy = sampled)
    needs_several_envs: ClassVar[bool] = False  # one environment as an object does not do

    name: str = ""
    """which agent: the algorithm's name, or one's own as module:Name"""

    @classmethod
    def kinds(cls) -> "dict[str, type[AgentConfig]]":
        return {name: found.config for name, found in algorithms().items()}

    @classmethod
    def kind(cls, name: str) -> "type[AgentConfig]":
        config = getattr(algorithm(name), "config", None)
        if not (isinstance(config, type) and issubclass(config, AgentConfig)):
            raise UserError(
                f"{name} is no algorithm: that has a class of settings, `config`, which derives "
                "from tenfold.AgentConfig."
            )
        return config

    def check_run(self, run: "Run") -> None:
        """Rules that hold between these settings and those of the run; raises ConfigError."""
        if run.members > 1:
            raise ConfigError(
                "members",
                f"= {run.members} is for algorithms that train several seeds as one stack, which "
                f"{self.name} does not: use --seeds.",
            )

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
