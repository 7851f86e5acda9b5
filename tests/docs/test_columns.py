"""docs/metrics.md explains every column that runs write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.training.loop import train

PAGE = (Path(__file__).parent.parent.parent / "docs" / "metrics.md").read_text()
LINES = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| ")][1:]
COLUMNS = {(kind.strip(), name) for kind, names in LINES for name in re.findall("`([^`]+)`", names)}
SHARES = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("where the time went") :].split("|")[0]))
SMALL: dict[str, Any] = {"net": {"hidden": (8,)}}
REPLAY = {**SMALL, "learning_starts": 20, "batch_size": 8, "capacity": 300}
RUNS = {
    "dqn": {"env": "CartPole-v1", "agent": {"name": "dqn", **REPLAY}},
    "dqn by temperature, two actors": {
        "env": "CartPole-v1",
        "actors": 2,
        "where": "serial",
        "agent": {"name": "dqn", "explore": "boltzmann(1)", **REPLAY},
    },
    "ppo": {"env": "Pendulum-v1", "agent": {"name": "ppo", "horizon": 32, **SMALL}},
    "ppo, successes": {
        "env": "tenfold/Catch-v0",
        "agent": {"name": "ppo", "horizon": 32, "net": {"hidden": (8,), "encoder": "mlp"}},
    },
    "sac": {"env": "Pendulum-v1", "agent": {"name": "sac", **REPLAY}},
    "td3": {"env": "Pendulum-v1", "agent": {"name": "td3", **REPLAY}},
}


@pytest.mark.parametrize("name", RUNS)
def test_every_column_of_a_run_is_explained(name: str, tmp_path: Path) -> None:
    short = {"steps": 240, "log_every": 120, "eval_every": 120, "eval_episodes": 2}
    run = ten.Run.of(short | RUNS[name])
    result = train(run, tmp_path / "run", quiet=True, report=False)
    rows = [json.loads(line) for line in (result.path / "metrics.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"episode", "train", "eval"}
    for row in rows:
        timing = row.pop("timing", {})
        assert {*timing.pop("shares", {})} <= SHARES
        keys = {*row, *(f"timing.{key}" for key in timing)}
        explained = {column for kind, column in COLUMNS if kind in ("all", row["kind"])}
        assert keys <= explained, (name, row["kind"], keys - explained)
