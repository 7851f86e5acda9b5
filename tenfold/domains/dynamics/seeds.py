"""What several seeds found of one hidden system: each seed's numbers, and their mean."""

from typing import Any

import numpy as np

from tenfold.domains.dynamics.shortfall import shortfall
from tenfold.evaluation.evaluate import evaluate
from tenfold.runs.seeds import SeedsFolder, left_out
from tenfold.runs.statistics import sentence, together


def judge_seeds(
    folder: SeedsFolder, episodes: int, checkpoint: str, seed: int | None
) -> dict[str, Any]:
    """Every seed's model judged on the same new recordings."""
    chosen = folder.run.seed if seed is None else seed
    ready = folder.ready(checkpoint)
    verdicts: list[Any] = [evaluate(folder.member(s), episodes, checkpoint, chosen) for s in ready]
    rows = [verdict.row() for verdict in verdicts]
    found: dict[str, Any] = {
        "run": str(folder.path),
        "env": folder.run.env,
        "members": rows,
        "played": list(ready),
        "left_out": [seed for seed in folder.seeds if seed not in ready],
        "r2": np.mean([row["r2"] for row in rows], 0).tolist(),
    }
    if all("field_error" in row for row in rows):
        found["field_error"] = together([row["field_error"] for row in rows])
    return found


def tell_identified(found: dict[str, Any], checkpoint: str, episodes: int) -> None:
    print(f"{found['env']}, checkpoint {checkpoint}, {episodes} recordings")
    for seed, row in zip(found["played"], found["members"], strict=True):
        error = f"error of the field {row['field_error']:.3f}   " if "field_error" in row else ""
        print(
            f"  seed {seed:<4} {error}R² 1 ahead {row['r2'][0]:.3f}, {len(row['r2'])} ahead "
            f"{row['r2'][-1]:.3f}"
        )
        if words := shortfall(row):
            print(f"            {words}")
    if found["left_out"]:
        print(f"  {left_out(found['left_out'])}")
    if "field_error" in found:
        print(
            f"  error of the field: mean {found['field_error']['mean']:.3f}; "
            f"{sentence(found['field_error'])}"
        )
    print(
        f"  R²: mean {found['r2'][0]:.3f} 1 ahead, {found['r2'][-1]:.3f} {len(found['r2'])} ahead"
    )
