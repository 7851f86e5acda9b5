"""The common settings of all algorithms; the list of all settings for flags and help, and
suggestions for unknown names.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tenfold.config.notation import nearest, show
from tenfold.config.schema import Config, DerivedDefault, Option, describe, docs, hints
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import (
    EXAMPLE_VALUES,
    MIGRATION_HINTS,
    SETTINGS_OF_ALIAS,
    UNIT_OF,
    UNITS,
    algorithm_elsewhere,
)
from tenfold.core.registry import algorithm, algorithms

if TYPE_CHECKING:
    from tenfold.config.run import Run

# an evaluation's step takes two to three times as long as one of training (ppo on CartPole and
# LunarLander)
EVALUATION_SHARE = 1 / 25


@dataclass(frozen=True)
class AgentConfig(Config):
    """The settings of an algorithm. Your own derive from it: a field for each setting, the string
    under it is its help text.

        class Settings(ten.AgentConfig):
            lr: ten.Schedule = 1e-3
            \"""learning rate\"""

    An algorithm of one's own goes by the name module:Name, in which Name has these as `config`.
    """

    usual: ClassVar[str] = "dqn"  # where no name is given
    run_defaults: ClassVar[Mapping[str, Any]] = {}  # settings of the run that have another default
    can_sample: ClassVar[bool] = False  # its policy can be drawn from (eval_policy = sampled)
    needs_several_envs: ClassVar[bool] = False  # one environment as an object does not do
    has_replay: ClassVar[bool] = False  # it learns from a replay memory
    wrappable: ClassVar[bool] = True  # the run may wrap its environments (frames, action_repeat …)

    name: str = ""
    """which agent: the algorithm's name, or one's own as module:Name"""

    @classmethod
    def kinds(cls) -> "dict[str, type[AgentConfig]]":
        return {name: algorithm_class.config for name, algorithm_class in algorithms().items()}

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
        """The settings of the algorithm that `name` says."""
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
        """Refuses a setting of another algorithm, and names its owner."""
        for raw, value_given in value.items():
            word = str(raw).replace("-", "_")
            owners = [other for other, those in cls.kinds().items() if word in hints(those)]
            if owners and word not in hints(cls) and not alias_here(cls, word):
                raise ConfigError(
                    f"{key}.{raw}",
                    f"= {show(value_given)} is not a setting of {name}, which this run trains: it "
                    f"belongs to {', '.join(owners)}.",
                )

    def check_run(self, run: "Run") -> None:
        """Rules that hold between these settings and those of the run; raises ConfigError."""
        if run.normalize_reward == "drawn" and not self.has_replay:
            raise ConfigError(
                "normalize_reward",
                f"= drawn is for agents with a replay memory: {self.name} has none; use true.",
            )
        if run.members > 1:
            raise ConfigError(
                "members",
                f"= {run.members} is for algorithms that train several seeds as one stack, which "
                f"{self.name} does not: use --seeds.",
            )

    def check_change(self, before: Any) -> None:
        """Checks these settings against those `before`, which a run was saved with; raises
        ConfigError."""

    @property
    def evaluation_share(self) -> float:
        """Evaluation steps per training step that take about a tenth of a run's time: an evaluation
        steps few environments, in Python, while training may be one compiled call."""
        return EVALUATION_SHARE

    def first_update(self, run: "Run") -> tuple[int, str] | None:
        """The environment step of the first update, and its condition in words; None if unknown."""
        return None


@dataclass(frozen=True)
class AgentDefault(DerivedDefault):
    """A default of a run's setting that the algorithm may override (`run_defaults`)."""

    setting: str
    otherwise: Any

    def of(self, config: Config) -> Any:
        agent: AgentConfig = config.agent  # type: ignore[attr-defined]
        return agent.run_defaults.get(self.setting, self.otherwise)

    def __str__(self) -> str:
        defaults = {name: kind.run_defaults for name, kind in AgentConfig.kinds().items()}
        values = {
            n: settings[self.setting]
            for n, settings in defaults.items()
            if self.setting in settings
        }
        cases = [f"{show(value)} where agent.name is {name}" for name, value in values.items()]
        return ", ".join([*cases, f"else {show(self.otherwise)}"])


@dataclass(frozen=True)
class FieldSpec:
    """One setting that is not a group: its dotted path, type, default and help."""

    path: str
    hint: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.path.replace("_", "-")


def field_specs(cls: type[Config], prefix: str = "") -> Iterator[FieldSpec]:
    types = hints(cls)
    for f in fields(cls):
        hint = types[f.name]
        if isinstance(hint, type) and issubclass(hint, AgentConfig):
            yield from agent_field_specs(f"{prefix}{f.name}.")
        elif isinstance(hint, type) and issubclass(hint, Config) and not issubclass(hint, Option):
            yield from field_specs(hint, f"{prefix}{f.name}.")
        else:
            default = f.default if f.default_factory is MISSING else f.default_factory()
            yield FieldSpec(prefix + f.name, hint, default, docs(cls).get(f.name, ""))


def agent_field_specs(prefix: str) -> Iterator[FieldSpec]:
    """The settings of all algorithms, each once; the help names the algorithms that have it."""
    groups = AgentConfig.kinds()
    by_path: dict[str, dict[str, FieldSpec]] = {}
    for name, group in groups.items():
        for spec in field_specs(group, prefix):
            by_path.setdefault(spec.path, {})[name] = spec
    for path, owners in by_path.items():
        first = next(iter(owners.values()))
        if path == f"{prefix}name":
            yield FieldSpec(
                path,
                Literal[(*groups, "module:Name")],
                AgentConfig.usual,
                docs(AgentConfig)["name"],
            )  # type: ignore[valid-type]
            continue
        whose = "" if len(owners) == len(groups) else f"{', '.join(owners)}: "
        other = "".join(
            f"; {name}: default {show(spec.default)}"
            for name, spec in owners.items()
            if spec.default != first.default
        )
        yield FieldSpec(path, first.hint, first.default, f"{whose}{first.help}{other}")


def suggest_setting(cls: type[Config], word: str) -> str:
    """A suggestion for an unknown setting."""
    if alias := alias_here(cls, word):
        return alias
    if word in SETTINGS_OF_ALIAS:  # one of another group, or of another agent
        return f": tenfold calls it {' or '.join(SETTINGS_OF_ALIAS[word])}"
    if word in MIGRATION_HINTS:
        return f": {MIGRATION_HINTS[word]}"
    specs = {spec.path: spec for spec in field_specs(cls)}
    return misspelled_alias(specs, word) or nearest_setting(cls, word)


def alias_here(cls: type[Config], word: str) -> str:
    return alias_of({spec.path: spec for spec in field_specs(cls)}, word)


def alias_of(specs: Mapping[str, FieldSpec], word: str) -> str:
    """Our name for another library's word, with its help; "" if there is none. The keys of `specs`
    are the names as users write them."""
    answers = []
    for ours in SETTINGS_OF_ALIAS.get(word, ()):
        example = f", such as {EXAMPLE_VALUES[ours]}" if ours in EXAMPLE_VALUES else ""
        answers += [
            f"{written} ({spec.help}{example}{unit_of(ours, word)})"
            for written, spec in specs.items()
            if ours == spec.path or ours.endswith(f".{spec.path}")
        ]
    return f": tenfold calls it {' or '.join(answers)}" if answers else ""


def meaning_of(specs: Mapping[str, FieldSpec], word: str) -> str:
    """Our name for another library's word, or for the last part of one of our names."""
    same = [written for written, spec in specs.items() if spec.path.split(".")[-1] == word]
    return alias_of(specs, word) or (f": write {' or '.join(same)}" if same else "")


def misspelled_alias(specs: Mapping[str, FieldSpec], word: str) -> str:
    """The same for a word that is nearly another library's, and not nearer to a setting of ours."""
    ours = {spec.path.split(".")[-1] for spec in specs.values()}
    close = get_close_matches(word, sorted(ours | SETTINGS_OF_ALIAS.keys()), 1, 0.8)
    answer = alias_of(specs, close[0]) if close else ""
    return f" (did you mean {close[0]}?){answer}" if answer else ""


def unit_of(ours: str, word: str) -> str:
    """A note where the other library's number has another unit."""
    unit = UNITS.get((ours, UNIT_OF.get(word, word)), "")
    return f"; {unit}" if unit else ""


def nearest_setting(cls: type[Config], name: str) -> str:
    """The nearest setting here or in a nested group, with the values it accepts."""
    specs = {spec.path.split(".")[-1]: spec for spec in field_specs(cls)} | {
        spec.path: spec for spec in field_specs(cls)
    }
    close = get_close_matches(name, [*specs, *(f.name for f in fields(cls))], 1, 0.5)
    if not close:
        return ""
    spec = specs.get(close[0])
    return (
        f": the nearest is {spec.path}, {describe(spec.hint)}"
        if spec
        else f": the nearest is {close[0]}, a group of settings"
    )
