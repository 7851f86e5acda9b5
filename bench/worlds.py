"""What the agents of a world learn, beside moving at random and a script; and whether actors in
processes learn the same.

    python bench/worlds.py [NAME …]

Mean return of an agent over the last 100 training epochs, by seed; `closed` is the share of the way
from the random policy to the script. The asynchronous run has the same number of worlds and steps,
divided between two processes.
"""

import json
import sys
import tempfile
from typing import Any

import numpy as np
from measure import FOLDER, write
from policies import train

from tenfold.config.files import named
from tenfold.domains.treasure.play import yardsticks
from tenfold.runs.statistics import bootstrap_interval

SEEDS, BAR = 5, 0.85
ASYNC = ["--actors", "2", "--num-envs", "8", "--where", "processes"]
WHAT = {
    "treasure-small": ["treasure-small"],
    "treasure": ["treasure"],
    "treasure-small, 2 actors": ["treasure-small", *ASYNC],
}


def learn(name: str) -> dict[str, Any]:
    command = WHAT[name]
    with tempfile.TemporaryDirectory() as folder:
        run, minutes = train(command, SEEDS, folder)
        summary = json.loads((run / "summary.json").read_text())
    returns = [member["return"] for member in summary["seeds"].values()]
    marks = yardsticks(named(command[0]).env)
    low, high = (float(bound) for bound in bootstrap_interval(np.array(returns)))
    closed = [(r - marks["random"]) / (marks["scripted"] - marks["random"]) for r in returns]
    steps = min(member["step"] for member in summary["seeds"].values())
    return {
        "name": name,
        "command": f"tenfold train {' '.join(command)} --seeds {SEEDS}",
        "steps": steps,
        "returns": returns,
        "interval": [low, high],
        "mean": float(np.mean(returns)),
        **marks,
        "closed": float(np.mean(closed)),
        "least_closed": min(closed),
        "bar": BAR,
        "minutes": minutes,
    }


def main() -> None:
    file = FOLDER / "results" / "worlds.json"
    rows = {
        row["name"]: row for row in (json.loads(file.read_text())["rows"] if file.exists() else [])
    }
    for name in sys.argv[1:] or WHAT:
        rows[name] = learn(name)
        alone, with_actors = rows.get("treasure-small"), rows.get("treasure-small, 2 actors")
        if alone and with_actors:
            difference = (np.array(with_actors["returns"]) - np.array(alone["returns"])) / abs(
                alone["mean"]
            )
            with_actors["paired_interval"] = [
                float(bound) for bound in bootstrap_interval(difference)
            ]
        write("worlds", [rows[n] for n in WHAT if n in rows])


if __name__ == "__main__":
    main()
