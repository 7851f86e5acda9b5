"""What the scripts of tenfold's own agents share: the whole `train`, its metrics included,
evaluations and checkpoints off."""

import json
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import peer

sys.path.append(str(peer.HERE.parent.parent))
from tenfold.config.run import Run
from tenfold.training.loop import train


def measure(
    options: Namespace, agent: dict[str, Any], log_every: int, setting: dict[str, Any], **more: Any
) -> None:
    """Trains and reports the part from the first line of metrics to the last: what is compiled, is
    compiled before it."""
    run = Run.of(
        {
            "env": options.env,
            "engine": options.engine,
            "steps": options.steps,
            "seed": options.seed,
            "agent": agent,
            "eval_every": 0,
            "checkpoint_every": 0,
            "log_every": log_every,
            **more,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        watch = peer.Stopwatch()
        with watch:
            train(run, Path(folder) / "run", quiet=True)
        rows = [
            json.loads(line)
            for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        ]
    logged = {row["step"]: row["timing"]["seconds"] for row in rows if row["kind"] == "train"}
    first, last = min(logged), max(logged)
    # of the part that is measured
    watch.processor *= (logged[last] - logged[first]) / watch.seconds
    watch.seconds = logged[last] - logged[first]
    peer.report(
        f"tenfold ({options.engine})", "tenfold", options.steps, last - first, watch, setting
    )
