"""What is to be said of a row of metrics that judges a model of the world."""

from typing import Any

import numpy as np

NOISE = 0.01  # of R²: by less no model is worse
PLAIN = {
    "arx_r2": "a linear autoregression (ARX) fitted to the same data",
    "last_r2": "repeating the last value",
}


def shortfall(row: dict[str, Any]) -> str:
    """A sentence where the model foretells worse than something that needs no model, with what to
    try; else nothing."""
    own = float(np.mean(row["r2"]))
    others = {name: float(np.mean(row[name])) for name in PLAIN if name in row}
    best = max(others, key=lambda name: others[name], default="")
    if not best or own >= others[best] - NOISE:
        return ""
    return (
        f"The model foretells worse than {PLAIN[best]} (R² {own:.3f} against {others[best]:.3f}, "
        f"mean of 1 to {len(row['r2'])} steps ahead): do not rely on it. Try more steps or data, a "
        "hidden state of more numbers (agent.model.latent), agent.model.encoder=gru where one "
        "observation does not tell the state, or agent.model.dynamics=linear."
    )
