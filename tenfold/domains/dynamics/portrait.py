"""The picture of an identified system as arrays, `portrait.safetensors` in the run's folder; the
report draws it."""

from pathlib import Path

import numpy as np
import torch

from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.model_metrics import Recordings, axis_over, judge, random_recordings
from tenfold.domains.dynamics.portrait_section import FILE
from tenfold.runs.files import write_arrays

GRID = 25  # points in each dimension


def write_portrait(path: Path, agent: ExplorerAgent, env: str, episodes: int) -> None:
    recordings = random_recordings(env, episodes)
    judge(agent, recordings)
    write_arrays(
        path / FILE,
        portrait(agent, recordings),
        {
            "env": env,
            "known": recordings.true is not None,
            "seed": agent.seeds[0],
            "members": agent.members,
        },
    )


@torch.no_grad()
def portrait(agent: ExplorerAgent, recordings: Recordings) -> dict[str, np.ndarray]:
    """Of the first member, in true coordinates where they are known: states visited, and for
    systems of two numbers fields and information on a grid."""
    known = bool(agent.maps)
    place = agent.maps[0] if known else agent.own[0]
    visited = place.to_true(visited_states(agent))
    if visited.shape[1] != 2:
        return {"visited": visited}
    spread = visited if recordings.latent is None else recordings.latent.reshape(-1, 2)
    axes = [axis_over(spread[:, k], GRID) for k in range(2)]
    points = np.stack(np.meshgrid(*axes, indexing="xy"), -1).reshape(-1, 2)
    learned = agent.field(points, true=known).reshape(agent.members, GRID, GRID, 2)[0]
    found = {"x": axes[0], "y": axes[1], "learned": learned, "visited": visited}
    if agent.config.model.dynamics != "mlp":
        found["information"] = information_at(
            agent, place.to_learned(points), place.to_learned(visited)
        ).reshape(GRID, GRID)
    if recordings.true is not None and recordings.points is not None:
        found["true"] = true_at(recordings, points).reshape(GRID, GRID, 2)
    return found


def true_at(recordings: Recordings, points: np.ndarray) -> np.ndarray:
    """The recordings' own field: their grid is this one, its first dimension slowest."""
    assert recordings.true is not None
    return recordings.true.reshape(GRID, GRID, 2).transpose(1, 0, 2).reshape(points.shape)


def visited_states(agent: ExplorerAgent) -> np.ndarray:
    """Learned states [n, D] of the first member's window, in the order of time."""
    return agent.window_states()[1][0]


def information_at(agent: ExplorerAgent, z: np.ndarray, visited: np.ndarray) -> np.ndarray:
    """log₁₀ of the information that visited states give about the weights that count at states z
    [n, D]: the harmonic mean of A_p = 1 + Σ_t (dt·φ_p(z_t))² / v, the Fisher information's
    diagonal, weighted by φ_p(z)²."""
    dynamics = agent.online.dynamics

    def features(states: np.ndarray) -> np.ndarray:
        given = (
            torch.from_numpy(states)
            .to(agent.online.flat)
            .expand(agent.members, dynamics.models, *states.shape)
        )
        return dynamics.features(given)[0, 0].cpu().double().numpy()

    variance = float(dynamics.variance()[0, 0].mean())
    gathered = 1 + np.square(dynamics.dt * features(visited)).sum(0) / variance
    weight = np.square(features(z)) + 1e-300  # far outside the grid all features vanish
    return np.log10(weight.sum(-1) / (weight / gathered).sum(-1))
