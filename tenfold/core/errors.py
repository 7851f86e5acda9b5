"""Errors that are addressed to the person who made the mistake: one sentence, no traceback, exit
code 2."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

# what an environment may raise: generators know the second as their own end, and it is no Exception
FAULTS = (Exception, GeneratorExit)


class UserError(Exception):
    """What was wrong, where, and what to do. The command line prints the sentence and stops."""


class ConfigError(UserError, ValueError):
    """A setting that cannot be used. `key` is its dotted path; the sentence follows it."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(f"{key} {sentence}" if key else sentence)
        self.key, self.sentence = key, sentence

    def within(self, parent: str) -> "ConfigError":
        """The same error seen from the settings that contain this one."""
        return ConfigError(f"{parent}.{self.key}" if self.key else parent, self.sentence)


class NoSuchName(UserError, AttributeError):
    """An attribute that there is not, under a name that other libraries have for it."""


class OtherWords:
    """An object that answers names of other libraries, its `other_words`, with what to write
    here."""

    other_words: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a checker would find every name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name in kind.other_words:
                raise NoSuchName(f"{kind.__name__} has no {name}: {kind.other_words[name]}.")
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")


class EnvironmentFault(UserError):
    """An environment that does not exist, cannot be used, or produced a number that is not
    finite."""

    certain = False  # whether a policy that diverged cannot be the cause


class ObservationError(EnvironmentFault, ValueError):
    """An observation that its space does not allow. `key` is the dotted path of the leaf."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(
            f"The observation's key {key} {sentence}" if key else f"The observation {sentence}"
        )
        self.key = key


class ActorFault(UserError):
    """An actor's process that ended, or had to be ended. `trace` is its traceback, for whoever
    wrote the environment."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(f"{sentence}\n{trace}".rstrip())
        self.sentence, self.trace = sentence, trace

    def adding(self, more: str) -> "ActorFault":
        return ActorFault(f"{self.sentence} {more}", self.trace)


class Obstacle(Exception):
    """What keeps an engine from a run, in words, where only trying tells: another one takes its
    place."""


class CheckpointError(UserError):
    """A checkpoint that is missing, torn, foreign or cannot be written."""


@contextmanager
def told_of(what: str) -> Iterator[None]:
    """What the user's own code raises inside, as one sentence that says where. In Python the error
    itself stands behind it."""
    try:
        yield
    except UserError:
        raise
    except FAULTS as error:
        raise UserError(f"{what} {raised(error)}.") from error


def described(error: BaseException) -> str:
    """An exception's type and words in one line."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
    except Exception:  # its own words are a mistake as well
        return type(error).__name__


def raised(error: BaseException) -> str:
    """What an exception says, and the last place in a file that it came through."""
    description = described(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"raised {description}"  # which names its file and line
    places = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    return f"raised {description}{where}"
