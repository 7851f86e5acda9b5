"""The runs that are killed: small ones of every kind, and what `tenfold resume` must make of
them."""

from dataclasses import dataclass
from pathlib import Path

from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.files import Arrays, read_arrays

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


@dataclass(frozen=True)
class Kind:
    """`children`: what the processes besides the main one are called. `exact`: a resumed run equals
    one that never stopped."""

    command: str
    steps: int
    evaluates: int  # the steps between two evaluations
    children: str = ""
    seeds: int = 0
    exact: bool = True

    def arguments(self, out: Path) -> list[str]:
        more = ["--seeds", str(self.seeds), "--jobs", "2"] if self.seeds else []
        return [
            "train",
            *self.command.split(),
            "--steps",
            str(self.steps),
            *more,
            "--out",
            str(out),
        ]

    def members(self, out: Path) -> list[Path]:
        """The folders of its runs."""
        return [out / f"seed-{seed}" for seed in range(self.seeds)] or [out]


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
}


def learned(kind: Kind, out: Path) -> list[Arrays]:
    """Everything in the last checkpoints; of runs that are not exact only how far they came."""
    found = []
    for member in kind.members(out):
        steps = checkpoint_steps(member)
        if not steps or steps[-1] < kind.steps:
            raise ValueError(
                f"{member} ended at step {steps[-1] if steps else 'none'} of {kind.steps}"
            )
        arrays, _ = read_arrays(member / "checkpoints" / f"step-{steps[-1]:012d}.safetensors")
        found.append(arrays if kind.exact else {})
    return found


def different(one: list[Arrays], other: list[Arrays]) -> list[str]:
    """Names of arrays that are not the same bit for bit."""
    return sorted(
        {
            name
            for a, b in zip(one, other, strict=True)
            for name in a.keys() | b.keys()
            if name not in a
            or name not in b
            or a[name].tobytes() != b[name].tobytes()
            or a[name].shape != b[name].shape
        }
    )
