"""What the policies of the old runs choose for fixed observations: written by the code that trained
them, compared by `tests/resume/test_old_runs.py`.

    python tests/golden/old/actions.py --write
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import tenfold as ten

HERE = Path(__file__).parent
RUNS, ACTIONS = HERE / "runs.tar.xz", HERE / "actions.json"
ALONE = ("dqn", "dqn-options", "dqn-actors", "sac", "td3", "ppo", "ppo-continuous")
ARCHIVES = ("dqn.tenfold", "sac.tenfold", "ppo-continuous.tenfold")


def unpack(folder: Path) -> Path:
    with tarfile.open(RUNS) as file:
        file.extractall(folder, filter="data")
    return folder


def actions(path: Path) -> list[float]:
    """Greedy actions for 32 observations, one after another."""
    agent = ten.load(path)
    shape = agent.layout.shape
    obs = np.random.default_rng(3).normal(size=(32, *shape)).astype(np.float32)
    return np.asarray(agent.act(obs)).ravel().tolist()


if __name__ == "__main__" and "--write" in sys.argv:
    with tempfile.TemporaryDirectory() as folder:
        unpacked = unpack(Path(folder))
        chosen = {name: actions(unpacked / name) for name in (*ALONE, *ARCHIVES)}
    ACTIONS.write_text(json.dumps(chosen) + "\n")
