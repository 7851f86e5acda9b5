"""Files of other libraries that say what to train, such as RL-Zoo's: which kinds there are.

A kind is an object in `RUN_FILES` of a module `tenfold.integrations.…_settings`, which imports
nothing heavy, or of an installed package (entry point `tenfold.run_files`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import discover

if TYPE_CHECKING:
    from tenfold.config.run import Run

Tell = Callable[[str], None]


class RunFile:
    """One kind of file. `options` are what it needs besides the settings of a run, with their help:
    flags on the command line, and names in Python."""

    options: Mapping[str, str] = {}

    def reads(self, content: Mapping[str, Any]) -> bool:
        """Whether a YAML file with this content is one."""
        raise NotImplementedError

    def run(
        self, path: Path, content: Mapping[str, Any], change: Mapping[str, Any], tell: Tell
    ) -> "Run":
        """The run that it describes, with `change`, settings and options, on top. `tell` is given
        sentences about what was read, and about what is not the same here."""
        raise NotImplementedError


def run_files() -> tuple[RunFile, ...]:
    return discover("RUN_FILES")


def run_file_options() -> dict[str, str]:
    """The options of all kinds, with their help."""
    return {name: text for kind in run_files() for name, text in kind.options.items()}
