"""tenfold's own PPO, measured as the others are: the whole `train`, its metrics included, evaluations and checkpoints off."""

import json
import sys
import tempfile
from pathlib import Path

import peer

sys.path.append(str(peer.HERE.parent.parent))
from tenfold.settings import Run
from tenfold.training import train


def main() -> None:
    options = peer.arguments(__doc__, steps=163_840, env=peer.ENV, engine="auto")
    ppo = peer.PPO
    minibatches = ppo["num_envs"] * ppo["horizon"] // ppo["batch"]
    names = ("lr", "horizon", "epochs", "lam", "clip", "entropy", "value_weight", "clip_norm")
    agent = {"name": "ppo", "gamma": peer.GAMMA, "minibatches": minibatches, "net": {"hidden": peer.HIDDEN},
             **{name: ppo[name] for name in names}}
    run = Run.of({"env": options.env, "engine": options.engine, "steps": options.steps, "seed": options.seed, "agent": agent,
                  "num_envs": ppo["num_envs"], "eval_every": 0, "checkpoint_every": 0, "log_every": 8192})
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
                peer.ppo_setting(options, env=options.env, engine=options.engine))


if __name__ == "__main__":
    main()
