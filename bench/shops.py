"""One policy for any job shop: gaps to the best known makespans on instances that no training saw
and no setting was chosen by (random shops did that), beside published results.

    python bench/shops.py                     trains the preset jobshop-any here, and judges it
    python bench/shops.py --run FOLDER WHERE [MINUTES [OTHER]]   judges a run that was trained
    elsewhere; OTHER is a second training, whose gaps stand beside

Published mean gaps in percent, greedy / best of so many: L2D (Zhang et al. 2020), self-labelling
(Corsini et al. 2024), L2S with 500 moves (Zhang et al. 2024), CP-SAT with an hour, as Corsini et
al. give them for all of Taillard's and Lawrence's instances.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import write

import tenfold as ten
from tenfold.domains.jobshop.reading import classic, suite

SAMPLES = 512
# suite -> bars of the gap in percent, greedy and best of 512; what others reach
CASES: dict[str, tuple[float, float, str]] = {
    "la": (12, 5, "L2D 17.4; self-labelling 7.8 / 2.5; L2S 3.3; CP-SAT 0"),
    "orb": (12, 5, ""),
    "ta15x15": (16, 10, "all of ta: L2D 25.5; self-labelling 13.4 / 7.8; L2S 12.4; CP-SAT 1.6"),
    "ta20x20": (16, 10, "the same"),
}


def judge(
    folder: Path, where: str, minutes: float | None, other: Path | None = None
) -> list[dict[str, Any]]:
    agent, rows = ten.load(folder), []
    again = ten.load(other) if other else None
    for name, (greedy, best, others) in CASES.items():
        instances = [classic(one) for one in suite(name)]
        table = ten.compare_players(instances, agent.player(), SAMPLES, 0)
        gaps = {c.name: round(100 * (table.mean_gap(c.name) or 0), 2) for c in table.columns}
        rows.append(
            {
                "name": name,
                "instances": len(instances),
                "gaps": gaps,
                "bars": [greedy, best],
                "others": others,
                "seconds": round(sum(table.columns[1].seconds), 1),
                "trained": where,
                "minutes": minutes,
            }
        )
        if again:
            second = ten.compare_players(instances, again.player(), SAMPLES, 0, solver=False)
            rows[-1]["again"] = [
                round(100 * (second.mean_gap(c.name) or 0), 2) for c in second.columns[:2]
            ]
        print(name, gaps, rows[-1].get("again"), flush=True)
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        folder, where = sys.argv[2:4]
        minutes = float(sys.argv[4]) if len(sys.argv) > 4 else None
        other = Path(sys.argv[5]) if len(sys.argv) > 5 else None
        write("shops", judge(Path(folder), where, minutes, other))
        return
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        run = ten.train("jobshop-any", Path(folder) / "run")
        minutes = round((time.monotonic() - start) / 60, 1)
        write("shops", judge(run.path, "here", minutes))


if __name__ == "__main__":
    main()
