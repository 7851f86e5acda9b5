"""The runs that are killed: small ones of every kind, and what `tenfold resume` must make of
them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.storage import Arrays, read_arrays

DQN = (
    "dqn --env CartPole-v1 --agent.net.hidden 16 --agent.batch-size 8 --agent.learning-starts 100 --agent.capacity 2k "
    "--agent.every 1 --num-envs 1 --log-every 100 --eval-every 500 --eval-episodes 3 --checkpoint-every 250"
)
PPO = (
    "ppo --env CartPole-v1 --agent.net.hidden 16 --agent.horizon 16 --agent.minibatches 2 --agent.epochs 2 --num-envs 2 "
    "--log-every 128 --eval-every 512 --eval-episodes 3 --checkpoint-every 256"
)
COLONY = (
    "durotaxis --num-envs 4 --agent.horizon 16 --agent.net.hidden 16,16 --agent.minibatches 2 --log-every 64 --eval-every 128 "
    "--eval-episodes 2 --checkpoint-every 64"
)
EXPLORER = (
    "limit-cycle --env tenfold/LimitCycle-v0(size=5,limit=40) --eval-every 30 --eval-episodes 4 --checkpoint-every 15 "
    "--log-every 10 --agent.window 100 --agent.length 6 --agent.batch-size 2 --agent.learning-starts 10 "
    "--agent.first-updates 3 --agent.model.grid 4 --agent.model.ensemble 2 --agent.planner.samples 6 "
    "--agent.planner.iterations 2 --agent.planner.elites 3"
)
CONTINUOUS = (
    "--env tenfold/Pendulum-v1 --agent.net.hidden 16,16 --agent.batch-size 8 --agent.learning-starts 100 --agent.capacity 2k "
    "--num-envs 1 --log-every 100 --eval-every 500 --eval-episodes 2 --checkpoint-every 250"
)
THREADS = (
    "--env Hopper-v5 --env-threads 2 --agent.net.hidden 16,16 --agent.batch-size 8 --agent.capacity 2k "
    "--num-envs 4 --log-every 100 --eval-every 200 --eval-episodes 2 --checkpoint-every 100"
)
WIDE = (
    "--env tenfold/Pendulum-v1 --agent.net.hidden 256,256 --agent.batch-size 64 --agent.learning-starts 100 --agent.capacity 2k "
    "--threads 2 --num-envs 1 --log-every 50 --eval-every 200 --eval-episodes 1 --checkpoint-every 100"
)
SPLIT = (
    "--env-threads 2 --num-envs 4 --agent.net.hidden 16 --log-every 100 --eval-every 500 --eval-episodes 2 "
    "--checkpoint-every 248 --patience 600"
)
GONE = 5.0  # seconds until nothing of a run may be there, nor of a Ray that it started


@dataclass(frozen=True)
class Kind:
    """`children`: what the processes besides the main one are called. `exact`: a resumed run equals
    one that never stopped. A sweep has `trials`, of `seeds` each."""

    command: str
    steps: int
    evaluates: int  # the steps between two evaluations
    children: str = ""
    seeds: int = 0
    exact: bool = True
    trials: int = 0

    def arguments(self, out: Path) -> list[str]:
        more = ["--seeds", str(self.seeds), "--jobs", "2"] if self.seeds else []
        more += ["--trials", str(self.trials)] if self.trials else []
        return [
            "sweep" if self.trials else "train",
            *self.command.split(),
            "--steps",
            str(self.steps),
            *more,
            "--out",
            str(out),
        ]

    def members(self, out: Path) -> list[Path]:
        """The folders of its runs, but for those in which a sweep's winner is confirmed."""
        folders = [out / f"trial-{trial}" for trial in range(self.trials)] or [out]
        if not self.seeds:
            return folders
        return [folder / f"seed-{seed}" for folder in folders for seed in range(self.seeds)]


ACTORS = " --where processes --actors 2 --patience 600"  # a busy machine is no fault of theirs
KINDS = {
    "dqn": Kind(DQN, 4000, 500),
    "ppo": Kind(PPO, 4096, 512),
    "seeds": Kind(DQN, 3000, 500, "worker", seeds=3),
    "actors": Kind(DQN + ACTORS + " --ahead 0", 1500, 500, "actor"),
    "actors ahead": Kind(DQN + ACTORS + " --ahead 4", 1500, 500, "actor", exact=False),
    "actors ppo": Kind(PPO + ACTORS, 2048, 512, "actor"),
    "explorer": Kind(EXPLORER, 90, 30),
    "colony": Kind(COLONY, 512, 128),
    "sac": Kind(f"sac {CONTINUOUS}", 1500, 500),
    "td3": Kind(f"td3 {CONTINUOUS}", 1500, 500),
    "wide sac": Kind(f"sac {WIDE}", 500, 200),
    "overlap": Kind(f"{DQN} --overlap", 3000, 500),
    "mujoco": Kind(f"sac {THREADS}", 600, 200),
    "split dqn": Kind(
        f"dqn {SPLIT} --env CartPole-v1 --agent.batch-size 8 --agent.capacity 2k",
        4000,
        500,
        "stepper",
    ),
    "split ppo": Kind(
        f"ppo {SPLIT} --env Acrobot-v1 --agent.horizon 31 --agent.minibatches 2",
        2480,
        500,
        "stepper",
    ),
    "recurrent": Kind(f"{PPO} --agent.net.memory lstm(8)", 2048, 512),
    "sweep": Kind(
        f"{DQN} --search agent.lr=log(1e-4,1e-2) --pruner none --confirm 1",
        1000,
        500,
        seeds=2,
        trials=3,  # no worker of which is struck: its trial would have failed for good
    ),
    "ray": Kind(f"{DQN} --where ray --actors 2 --ahead 0 --patience 600", 1000, 500),
    "ray seeds": Kind(f"{DQN} --where ray", 1000, 500, seeds=2),
}


def learned(kind: Kind, out: Path) -> dict[str, Arrays]:
    """Everything in the last checkpoints, by the folders of runs, and what a sweep came to; of runs
    that are not exact only how far they came."""
    members = kind.members(out)
    if kind.trials:
        members += sorted([*out.glob("winner/seed-*"), *out.glob("default/seed-*")])
    state: dict[str, Arrays] = {}
    for member in members:
        steps = checkpoint_steps(member)
        if not steps or steps[-1] < kind.steps:
            raise ValueError(
                f"{member} ended at step {steps[-1] if steps else 'none'} of {kind.steps}"
            )
        arrays, _ = read_arrays(member / "checkpoints" / f"step-{steps[-1]:012d}.safetensors")
        state[str(member.relative_to(out))] = arrays if kind.exact else {}
    if kind.trials:
        state["sweep"] = {"results": np.fromfile(out / "results.json", np.uint8)}
    return state


def different(one: dict[str, Arrays], other: dict[str, Arrays]) -> list[str]:
    """Names of arrays that are not the same bit for bit, behind those of their runs where there are
    several; a run that only one of both has is one of them."""
    names = []
    for member in sorted(one.keys() | other.keys()):
        a, b = one.get(member), other.get(member)
        if a is None or b is None:
            names.append(f"{member} as a whole")
            continue
        names += [
            f"{member}: {name}" if len(one) > 1 else name
            for name in sorted(a.keys() | b.keys())
            if name not in a
            or name not in b
            or a[name].tobytes() != b[name].tobytes()
            or a[name].shape != b[name].shape
        ]
    return names
