"""Learning at the frames of SLM-Lab's published benchmark, reported as it reports: the mean of the
last 100 training episodes.

SLM-Lab's averages are from its benchmark page (DQN; double DQN with prioritised replay). Eight
seeds each, one command a row. Beside our minutes those of Stable-Baselines3's DQN for as many
steps, updates, batches and seeds on as many cores, from its rate over SB3_STEPS steps alone on the
machine (it has no double, dueling or quantile DQN, so its returns are not compared).

    python bench/published.py [NAME …]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import FOLDER, write
from rates import rate

from tenfold.config.files import named

SEEDS = 8
SB3_STEPS = 12_000
# preset, SLM-Lab's two averages, bar, goal
ROWS = {
    "cartpole-200k": (239.9, 451.5, 475, 490),
    "acrobot": (-94.2, -83.9, -85, -80),
    "lunarlander": (195.2, 265.9, 240, 266),
    "lunarlander-rainbow": (195.2, 265.9, 266, 266),
}


def measure(preset: str) -> dict:
    dqn, per, bar, goal = ROWS[preset]
    command = ["train", preset, "--seeds", str(SEEDS)]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "tenfold", *command, "--out", f"{folder}/run", "--quiet"],
            check=True,
        )
        minutes = (time.monotonic() - start) / 60
        found = json.loads((Path(folder) / "run" / "summary.json").read_text())
    steps = min(member["step"] for member in found["seeds"].values())
    return {
        "name": preset,
        "command": f"tenfold {' '.join(command)}",
        "steps": steps,
        **found["return"],
        "slm_dqn": dqn,
        "slm_ddqn_per": per,
        "bar": bar,
        "goal": goal,
        "minutes": round(minutes, 2),
        "returns": [member["return"] for member in found["seeds"].values()],
    }


def sb3_minutes(preset: str) -> float:
    run = named(preset)
    agent = run.agent
    flags = {
        "env": run.env,
        "batch": agent.batch_size,
        "every": agent.every,
        "updates": agent.updates,
        "hidden": "-".join(map(str, agent.net.hidden)),
    }
    found = rate(
        "Stable-Baselines3",
        *(str(part) for name, value in flags.items() for part in (f"--{name}", value)),
        steps=SB3_STEPS,
    )
    return round(SEEDS * run.steps / found / (os.cpu_count() or 1) / 60, 1)


def main() -> None:
    file = FOLDER / "results" / "published.json"
    rows = {
        row["name"]: row for row in (json.loads(file.read_text())["rows"] if file.exists() else [])
    }
    for name in sys.argv[1:] or ROWS:
        rows[name] = measure(name) | {"sb3_minutes": sb3_minutes(name)}
        write("published", [rows[n] for n in ROWS if n in rows])


if __name__ == "__main__":
    main()
