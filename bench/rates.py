"""Whole training runs, environment steps a second: ours and other people's, each in a process of
its own, in turns.

One thread, CartPole, 64-64, replay of 50,000, learning from step 1,000 on, steady state only; the
scripts in bench/peers say what could not be made equal. A turn whose process got less than
MOST_SHARED of a core is taken again.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import timed_row

HERE = Path(__file__).parent
OURS, THEIRS = sys.executable, str(HERE.parent / ".venv-peers" / "bin" / "python")
TURNS = 5
MOST_SHARED, ATTEMPTS = 0.9, 3
GYMNASIUM, COMPILED = "CartPole-v1", "tenfold/CartPole-v1"
# interpreter, script, steps of a turn
WHO = {
    "tenfold": (OURS, "tenfold_dqn", 42_000),
    "usual script": (OURS, "usual", 6_000),
    "Stable-Baselines3": (THEIRS, "sb3", 5_000),
    "SBX": (THEIRS, "sbx", 5_000),
    "Tianshou": (THEIRS, "tianshou", 4_000),
    "JAX whole loop": (THEIRS, "jax_loop", 60_000),
    "tenfold's PPO": (OURS, "tenfold_ppo", 163_840),
    "Stable-Baselines3's PPO": (THEIRS, "sb3_ppo", 30_720),
    "SBX's PPO": (THEIRS, "sb3_ppo", 30_720),
    "tenfold's SAC": (OURS, "tenfold_sac", 22_000),
    "Stable-Baselines3's SAC": (THEIRS, "sb3_sac", 4_000),
    "SBX's SAC": (THEIRS, "sb3_sac", 4_000),
}


def rate(who: str, *flags: str, steps: int = 0) -> float:
    interpreter, script, usual = WHO[who]
    command = [
        interpreter,
        str(HERE / "peers" / f"{script}.py"),
        "--steps",
        str(steps or usual),
        *flags,
    ]
    found: dict[str, Any] = {}
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        if found["cores_used"] >= MOST_SHARED:
            break
    return found["steps_per_second"]


def race(
    name: str,
    rivals: list[str],
    batch: int = 32,
    every: int = 1,
    env: str = GYMNASIUM,
    steps: dict[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Ours against each rival, A/B/C/A/B/C, medians."""
    flags = ["--batch", str(batch), "--every", str(every), "--updates", str(every)]
    rates: dict[str, list[float]] = {who: [] for who in ("tenfold", *rivals)}
    for _ in range(TURNS):
        for who, found in rates.items():
            own = ["--env", env] if who == "tenfold" else []
            found.append(rate(who, *flags, *own, steps=(steps or {}).get(who, 0)))
    median = {who: statistics.median(found) for who, found in rates.items()}
    setting = {"batch": batch, "updates": f"{every} every {every} steps", "env": env}
    return [
        timed_row(
            name,
            setting,
            (rival, 1e6 / median[rival]),
            ("tenfold", 1e6 / median["tenfold"]),
            baseline_per_second=round(median[rival]),
            candidate_per_second=round(median["tenfold"]),
        )
        for rival in rivals
    ]


def ppo_race(name: str, env: str) -> list[dict[str, Any]]:
    """8 environments x 128 steps, 4 epochs x 4 minibatches, 64-64: ours against theirs,
    A/B/C/A/B/C, medians."""
    flags = {
        "tenfold's PPO": ["--env", env],
        "Stable-Baselines3's PPO": [],
        "SBX's PPO": ["--package", "sbx"],
    }
    rates: dict[str, list[float]] = {who: [] for who in flags}
    for _ in range(TURNS):
        for who, found in rates.items():
            found.append(rate(who, *flags[who]))
    ours, *theirs = ((who, statistics.median(found)) for who, found in rates.items())
    setting = {"env": env, "work": "8 x 128 steps, 4 epochs x 4 minibatches, 64-64"}
    return [
        timed_row(
            name,
            setting,
            (who, 1e6 / median),
            ("tenfold", 1e6 / ours[1]),
            baseline_per_second=round(median),
            candidate_per_second=round(ours[1]),
        )
        for who, median in theirs
    ]


def racing(*arguments: Any, **more: Any) -> Callable[[], list[dict[str, Any]]]:
    return lambda: race(*arguments, **more)


NAMES = {
    "cartpole-dqn": racing("cartpole-dqn", ["usual script"]),
}
PEERS = {
    "cartpole-dqn": racing(
        "cartpole-dqn", ["usual script", "Stable-Baselines3", "SBX", "Tianshou"]
    ),
    "cartpole-dqn-128": racing("cartpole-dqn-128", ["Stable-Baselines3"], batch=128),
    "cartpole-dqn-by-64": racing("cartpole-dqn-by-64", ["SBX"], every=64, steps={"SBX": 12_000}),
    "cartpole-compiled-dqn": racing("cartpole-compiled-dqn", ["JAX whole loop"], env=COMPILED),
    "cartpole-compiled-dqn-128": racing(
        "cartpole-compiled-dqn-128", ["JAX whole loop"], batch=128, env=COMPILED
    ),
    "cartpole-ppo": lambda: ppo_race("cartpole-ppo", GYMNASIUM),
    "cartpole-compiled-ppo": lambda: ppo_race("cartpole-compiled-ppo", COMPILED),
}
