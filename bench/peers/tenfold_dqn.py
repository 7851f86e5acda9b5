"""tenfold's own training, measured as the others are: the whole `train`, its metrics included, evaluations and checkpoints off.

--env tenfold/CartPole-v1 takes the compiled environment; the others all step Gymnasium's.
"""

import json
import sys
import tempfile
from pathlib import Path

import peer

sys.path.append(str(peer.HERE.parent.parent))
from tenfold.settings import Run
from tenfold.training import train


def main() -> None:
    options = peer.arguments(__doc__, steps=40_000, env=peer.ENV, engine="auto")
    target = peer.TARGET_EVERY
    agent = {"lr": peer.LR, "gamma": peer.GAMMA, "batch_size": options.batch, "every": options.every, "updates": options.updates,
             "capacity": peer.CAPACITY, "learning_starts": peer.LEARNING_STARTS, "target": f"hard({target})",
             "explore": f"epsilon({peer.EPSILON})", "net": {"hidden": peer.HIDDEN}}
    run = Run.of({"env": options.env, "engine": options.engine, "steps": options.steps, "seed": options.seed, "agent": agent,
                  "eval_every": 0, "checkpoint_every": 0, "log_every": peer.WARM_UP})
    with tempfile.TemporaryDirectory() as folder:
        watch = peer.Stopwatch()
        with watch:
            train(run, Path(folder) / "run", quiet=True)
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = {row["step"]: row["timing"]["seconds"] for row in rows if row["kind"] == "train"}
    first, last = min(logged), max(logged)
    watch.processor *= (logged[last] - logged[first]) / watch.seconds  # of the part that is measured
    watch.seconds = logged[last] - logged[first]
    peer.report(f"tenfold ({options.engine})", "tenfold", options.steps, last - first, watch,
                peer.setting(options, env=options.env, engine=options.engine, loss="mse", adam_eps=1e-8, clip_norm=None,
                             double=False))


if __name__ == "__main__":
    main()
