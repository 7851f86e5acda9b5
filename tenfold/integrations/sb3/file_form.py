"""RL-Zoo's files of hyperparameters, as `tenfold train` reads them.

Nothing heavy here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Command, FileForm, Tell

if TYPE_CHECKING:
    from tenfold.config.run import Run


class ZooFiles(FileForm):
    """A mapping of environments' ids (and "default", "atari") to arguments of an algorithm."""

    name, title = "rl_zoo", "RL-Zoo's files"
    options: Mapping[str, str] = {
        "algo": "for a file of RL-Zoo: its algorithm, dqn, ppo, sac, td3, ddpg, qrdqn or ppo_lstm "
        "(the file's name, where it is one of them); --env says whose entry is taken",
        "allow_imports": "for a file of RL-Zoo: true imports the wrappers that it names (those of "
        "Gymnasium and MiniGrid need no leave)",
    }

    def reads(self, content: Mapping[str, Any]) -> bool:
        entries = [entry for entry in content.values() if isinstance(entry, Mapping)]
        return len(entries) == len(content) and any("n_timesteps" in e for e in entries)

    def run_of(
        self, path: Path, content: Mapping[str, Any], change: Mapping[str, Any], tell: Tell
    ) -> "Run":
        from tenfold.integrations.sb3.zoo import run_of

        return run_of(path, content, change, tell)

    def commands(self) -> tuple[Command, ...]:
        from tenfold.integrations.sb3.import_command import IMPORT

        return (IMPORT,)


FORM = ZooFiles()
