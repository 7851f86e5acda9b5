"""Golden runs: for every family of presets a short run, and a hash of all numbers in its last
checkpoint and in its replay memory. A change that should change nothing must leave every hash as it
is.

    python tests/golden/run.py --write before.json      # on the code before the change
    python tests/golden/run.py --against before.json    # on the code after it, on the same machine

Names of arrays are no part of a hash, so renaming is allowed. Processors round products
differently: compare on one machine. Exit code 1 where a hash differs.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from tenfold.cli.main import main as tenfold
from tenfold.core.system import machine_card, versions
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.storage import read_arrays

DQN = "--agent.learning-starts 200 --agent.capacity 2k --eval-every 0 --checkpoint-every 0"
# plain values, in larger batches and rarer rounds than the preset's
VALUES = (
    f"{DQN} --agent.distribution none --agent.lr linear(1e-3,0,50k) --agent.batch-size 128 "
    "--agent.every 64 --agent.updates 32 --agent.target hard(128) --agent.net.hidden 256,256"
)
SAC = f"{DQN} --agent.batch-size 32 --agent.net.hidden 32,32"
PPO = "--eval-every 0 --checkpoint-every 0"
# the preset's when the hashes were written
REMEMBER = (
    f"train cartpole-novel {PPO} --steps 2k --agent.lr linear(2e-3,0,100k) --agent.epochs 10 "
    "--agent.lam 0.9"
)
COLONY = (
    "--num-envs 4 --agent.horizon 16 --agent.net.hidden 16,16 --agent.minibatches 2 --eval-every 0 --checkpoint-every 0 "
    "--steps 256"
)
EXPLORER = (
    "--eval-every 0 --checkpoint-every 0 --agent.window 100 --agent.length 6 --agent.batch-size 2 "
    "--agent.learning-starts 10 --agent.first-updates 3 --agent.model.grid 4 --agent.model.ensemble 2 "
    "--agent.planner.samples 6 --agent.planner.iterations 2 --agent.planner.elites 3 --steps 40"
)
FIELD = "--env tenfold/LimitCycle-v0(size=5,limit=40)"
TEAM = f"train treasure-small {DQN} --steps 600"
PROCESSES = "--where processes --actors 2 --ahead 0"
CONTINUOUS = f"--env Pendulum-v1 {SAC} --steps 400"
WRAPPED = "--action-repeat 2 --normalize-obs true --normalize-reward true --clip-reward 5"
ROOT = Path(__file__).parents[2]
OLD = Path(__file__).parent / "old" / "runs.tar.xz"  # folders that an earlier version wrote
IMPORTED = (ROOT / "bench", ROOT / "examples")  # modules that runs name are there
RUNS = {
    "dqn": f"train cartpole {VALUES} --steps 1500",
    "dqn, plain engine": f"train cartpole {VALUES} --steps 600 --engine plain",
    "dqn, compiled environment": f"train cartpole {VALUES} --steps 1500 --env tenfold/CartPole-v1 --num-envs 3",
    "dqn, every option": f"train cartpole {VALUES} --steps 800 --agent.replay prioritized --agent.dueling true "
    "--agent.distribution quantile(5) --agent.target polyak(0.01) --agent.loss huber --agent.clip-norm 1",
    "dqn, implicit": f"train cartpole {VALUES} --steps 400 --agent.distribution implicit",
    "dqn, noisy": f"train cartpole {VALUES} --steps 400 --agent.explore noisy",
    "dqn, boltzmann": f"train cartpole {VALUES} --steps 600 --agent.explore boltzmann(0.5)",
    "dqn, categorical": f"train cartpole {DQN} --steps 800",
    "dqn, default": f"train dqn --env CartPole-v1 {DQN} --steps 600",
    "dqn, images": f"train catch {DQN} --steps 400",
    "dqn, acrobot": f"train acrobot {DQN} --steps 600",
    "dqn, team": TEAM,
    "dqn, team together": f"{TEAM} --stack together --agent.explore epsilon(0.1)",
    "dqn, team apart": f"{TEAM} --stack apart --agent.distribution none --agent.explore epsilon(0.1) --agent.frames 1",
    "dqn, actors": f"train cartpole {VALUES} --steps 600 --num-envs 1 {PROCESSES}",
    "dqn, masked": f"train dqn --env strict_environment:Strict-v0 {DQN} --steps 600",
    "dqn, frames": f"train cartpole {VALUES} --steps 600 --frames 3",
    "dqn, wrapped": f"train cartpole {VALUES} --steps 600 {WRAPPED}",
    "dqn, seeds": f"train cartpole {VALUES} --steps 600 --seeds 3 --jobs 1",
    "own algorithm": "train reinforce:Reinforce --env CartPole-v1 --steps 2k --eval-every 0 --checkpoint-every 0",
    "sac, alone": f"train sac {CONTINUOUS}",
    "sac, actors": f"train sac {CONTINUOUS} --num-envs 1 {PROCESSES}",
    "td3, alone": f"train td3 {CONTINUOUS}",
    "td3, actors": f"train td3 {CONTINUOUS} --num-envs 1 {PROCESSES}",
    "sac, wrapped": f"train sac {CONTINUOUS} {WRAPPED}",
    "sac": f"train sac --env Pendulum-v1 {SAC} --steps 500 --agent.replay prioritized --agent.n-step 3",
    "sac, discrete": f"train sac --env tenfold/CartPole-v1 {SAC} --steps 500 --num-envs 2",
    "td3": f"train td3 --env tenfold/Pendulum-v1 {SAC} --steps 500",
    "ppo": f"train cartpole-ppo {PPO} --steps 4k",
    "ppo, plain engine": f"train cartpole-ppo {PPO} --steps 2k --engine plain",
    "ppo, default": f"train ppo --env CartPole-v1 {PPO} --steps 4096",
    "ppo, continuous": f"train pendulum-ppo {PPO} --steps 4k",
    "ppo, normalised": f"train acrobot-ppo {PPO} --steps 4k --agent.normalize-obs true",
    "ppo, many heads": f"train assign {PPO} --steps 2k",
    "ppo, counterfactual": f"train assign {PPO} --steps 1k --agent.baseline counterfactual",
    "ppo, job shop": f"train jobshop-ft06 {PPO} --steps 2k --num-envs 16 --agent.entropy 0.05 "
    "--agent.lr linear(1e-3,0,150k)",
    "ppo, actors": f"train cartpole-ppo {PPO} --steps 2k --where processes --actors 2",
    "ppo, masked": f"train ppo --env strict_environment:Strict-v0 {PPO} --steps 4096",
    "ppo, remembering": REMEMBER,
    "ppo, remembering, plain engine": f"{REMEMBER} --engine plain",
    "ppo, remembering, lstm": f"{REMEMBER} --agent.net.memory lstm(8)",
    "ppo, wrapped": f"train pendulum-ppo {PPO} --steps 4k --frames 2 {WRAPPED}",
    "colony": f"train durotaxis {COLONY}",
    "colony, nodes": f"train durotaxis-nodes {COLONY}",
    "colony, bend": f"train durotaxis-bend {COLONY}",
    "explorer": f"train limit-cycle {FIELD} {EXPLORER}",
    "explorer, members": f"train limit-cycle {FIELD} {EXPLORER} --members 2 --agent.planner.policy disagreement",
    "explorer, goal": f"train limit-cycle {FIELD} {EXPLORER} --agent.planner.policy goal --agent.planner.goal 0.5,0.5",
    "explorer, van der Pol": f"train van-der-pol {EXPLORER}",
    **{
        f"old {name}": f"resume OLD/{name} --steps {steps}"
        for name, steps in {
            "dqn-options": 400,
            "dqn-team-together": 400,
            "dqn-wrapped": 400,
            "sac": 400,
            "td3": 400,
            "ppo-continuous": 4096,
            "ppo-remembering": 4096,
            "own": 1500,
            "colony": 320,
            "explorer": 50,
        }.items()
    },
    "recording": "fit RECORDING --dt 0.1 --eval-every 0 --steps 5 --agent.length 10",
}


def hash_of(folder: Path) -> str:
    """Of the numbers in the last checkpoint and in the replay memory, whatever they are called; of
    every seed's."""
    digests: list[bytes] = []
    for run in sorted(folder.glob("seed-*")) or [folder]:
        last = f"{checkpoint_steps(run)[-1]:012d}.safetensors"
        files = [
            run / "checkpoints" / f"step-{last}",
            *sorted((run / "replay").glob("*.safetensors")),
        ]
        digests += sorted(
            hashlib.sha256(
                f"{a.dtype} {a.shape}".encode() + np.ascontiguousarray(a).tobytes()
            ).digest()
            for file in files
            for a in read_arrays(file)[0].values()
        )
    return hashlib.sha256(b"".join(digests)).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="the file to write")
    parser.add_argument("--against", type=Path, help="the file to compare with")
    parser.add_argument("--only", default="", help="runs with this in their name")
    arguments = parser.parse_args()
    before = json.loads(arguments.against.read_text())["runs"] if arguments.against else {}
    hashes: dict[str, str] = {}
    sys.path[:0] = map(str, IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        with tarfile.open(OLD) as file:
            file.extractall(old, filter="data")
        recording, rng = f"{folder}/recording.npz", np.random.default_rng(0)
        np.savez(
            recording,
            observations=rng.normal(size=(400, 2)).cumsum(0),
            actions=rng.normal(size=(400, 1)),
        )
        for number, (name, command) in enumerate(
            (n, c) for n, c in RUNS.items() if arguments.only in n
        ):
            out, start = Path(folder) / str(number), time.monotonic()
            words = command.replace("RECORDING", recording).replace("OLD", str(old)).split()
            if words[0] == "resume":
                out = Path(words[1])
                words.append("--trust")
            else:
                words += ["--out", str(out)]
            with contextlib.redirect_stdout(io.StringIO()):
                failed = tenfold([*words, "--quiet"])
            if failed:
                raise SystemExit(f"{name}: `tenfold {command}` failed.")
            hashes[name] = hash_of(out)
            verdict = (
                ""
                if not before
                else "equal"
                if before.get(name) == hashes[name]
                else f"DIFFERS from {before.get(name)}"
            )
            print(
                f"{name:32} {hashes[name]} {time.monotonic() - start:5.1f} s {verdict}", flush=True
            )
    if arguments.write:
        arguments.write.write_text(
            json.dumps(
                {"runs": hashes, "versions": versions(), "machine": machine_card()}, indent=1
            )
            + "\n"
        )
    return int(any(before.get(name) != value for name, value in hashes.items())) if before else 0


if __name__ == "__main__":
    sys.exit(main())
