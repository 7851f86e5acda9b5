"""RL-Zoo's files of hyperparameters, as `tenfold train` reads them.

Nothing heavy here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.run_files import RunFile, Tell

if TYPE_CHECKING:
    from tenfold.config.run import Run

KEYS = {"n_timesteps", "policy", "n_envs", "env_wrapper", "normalize", "learning_rate"}


class ZooFile(RunFile):
    """A mapping of environments' ids (and "default", "atari") to arguments of an algorithm."""

    options: Mapping[str, str] = {
        "algo": "for a file of RL-Zoo: its algorithm, dqn, ppo, sac, td3, ddpg, qrdqn or ppo_lstm "
        "(the file's name, where it is one of them); --env says whose entry is taken",
        "allow_imports": "for a file of RL-Zoo: true imports the wrappers that it names (those of "
        "Gymnasium and MiniGrid need no leave)",
    }

    def reads(self, content: Mapping[str, Any]) -> bool:
        entries = [entry for entry in content.values() if isinstance(entry, Mapping)]
        return len(entries) == len(content) and any(KEYS & entry.keys() for entry in entries)

    def run(
        self, path: Path, content: Mapping[str, Any], change: Mapping[str, Any], tell: Tell
    ) -> "Run":
        from tenfold.integrations.sb3.zoo import run_of

        return run_of(path, content, change, tell)


RUN_FILES = (ZooFile(),)
