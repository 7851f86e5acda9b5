"""Several sessions that share one hidden state: an orthogonal matrix and an offset for each,
between the encoder's output and the shared state.

Each session alone finds its states up to a rotation or reflection, depending on its first weights.
No dynamics fits two sessions that turn in opposite directions: gradients lead through the loss of a
dimension, and a shared fit averages to no rotation at all. So from time to time every session is
rotated such that its states move like those of a session of reference,

    R = argmax Σ_k tr(D_kᵀ·R·C_k·Rᵀ)        C_k = E z_{t+k}·z_tᵀ of the session, D_k of the other

and moved to mean 0; its readouts follow, so that the model's output for the session stays the same.
R is found by steps R ← polar(Σ_k D_k·R·C_kᵀ + D_kᵀ·R·C_k + c·R), which never descend for c large
enough, from many starts of both orientations.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.domains.dynamics.coordinates import LEAST, Coordinates, standardise
from tenfold.domains.dynamics.missing import all_missing, forward_fill

if TYPE_CHECKING:
    from tenfold.domains.dynamics.agent import ExplorerAgent
    from tenfold.domains.dynamics.latent import LatentNetwork

LAGS = 10  # of the covariances that are compared
STARTS, ROUNDS = 16, 100  # of the search for a rotation
GAIN = 0.2  # as a share of the best: for less no session is rotated


def session_of(y: torch.Tensor, sessions: tuple[int, ...]) -> torch.Tensor:
    """The session of rows [..., Y], by which channels were observed: [...]; the first where none
    was."""
    observed = [(~torch.isnan(part)).any(-1) for part in y.split(list(sessions), -1)]
    return torch.stack(observed, -1).to(torch.uint8).argmax(-1)


class SessionMap(nn.Module):
    """From the encoder's output for each session to the shared hidden state: rotated by `turn` [M,
    sessions, D, D] and moved by `shift` [M, sessions, D]. No gradient changes them."""

    turn: torch.Tensor
    shift: torch.Tensor

    def __init__(self, members: int, sessions: tuple[int, ...], latent: int) -> None:
        super().__init__()
        self.sessions = sessions
        unit = torch.eye(latent).expand(members, len(sessions), -1, -1).clone()
        self.register_buffer("turn", unit, persistent=False)
        self.register_buffer("shift", torch.zeros(unit.shape[:-1]), persistent=False)

    def forward(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance [M, T, B, D] of rows y [M, T, B, Y]; variances without the covariances
        that a rotation may bring."""
        member = torch.arange(len(mean), device=mean.device)[:, None, None]
        session = session_of(y, self.sessions)
        turn = self.turn[member, session]  # [M, T, B, D, D]
        return (
            (turn @ mean.unsqueeze(-1)).squeeze(-1) + self.shift[member, session],
            (turn.square() @ variance.unsqueeze(-1)).squeeze(-1),
        )

    def state(self) -> dict[str, torch.Tensor]:
        return {"turn": self.turn, "shift": self.shift}

    def load_state(self, state: dict[str, Any]) -> None:
        for name, buffer in self.state().items():
            buffer.copy_(torch.as_tensor(state[name]))


# the search for a rotation


def lagged_covariances(z: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """E z_{t+k}·z_tᵀ of states [n, D] around their mean, [LAGS, D, D], within episodes [n], over
    their variance; rows that belong to no episode (NaN) were not read. 0 where there are none."""
    covariances, read = np.zeros((LAGS, z.shape[1], z.shape[1])), ~np.isnan(episode)
    if not read.any():
        return covariances
    z = z - z[read].mean(0)
    for k in range(1, LAGS + 1):
        same = episode[k:] == episode[:-k]
        if same.any():
            covariances[k - 1] = z[k:][same].T @ z[:-k][same] / same.sum()
    return covariances / max(float(np.square(z[read]).mean()), np.finfo(np.float64).tiny)


def similarity(reference: np.ndarray, covariances: np.ndarray, turn: np.ndarray) -> float:
    """Σ_k tr(D_kᵀ·R·C_k·Rᵀ)."""
    return float(np.sum(reference * (turn @ covariances @ turn.T)))


def best_rotation(reference: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """The orthogonal R that makes covariances C_k like D_k, [LAGS, D, D] each, as far as many
    starts find it."""
    size = covariances.shape[-1]
    rng = np.random.default_rng(0)
    shift = 2 * float(
        np.sum(np.linalg.norm(reference, 2, (1, 2)) * np.linalg.norm(covariances, 2, (1, 2)))
    )
    best = np.eye(size)
    for start in range(STARTS):
        turn = polar(rng.normal(size=(size, size)))
        if start % 2:  # the other orientation
            turn[0] *= -1
        for _ in range(ROUNDS):
            uphill = reference @ turn @ covariances.transpose(0, 2, 1)
            uphill = np.sum(uphill + reference.transpose(0, 2, 1) @ turn @ covariances, 0)
            turn = polar(uphill + 0.5 * shift * turn)
        best = max(best, turn, key=lambda one: similarity(reference, covariances, one))
    return best


def polar(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal matrix nearest to it."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def session_rotations(
    z: np.ndarray, session: np.ndarray, episode: np.ndarray, sessions: int
) -> np.ndarray:
    """For each session a rotation [D, D] of its states z [n, D] such that all move alike; `session`
    [n] is that of a row. The session whose past predicts it best is the reference."""
    lags = np.stack(
        [lagged_covariances(z[session == s], episode[session == s]) for s in range(sessions)]
    )
    reference = lags[int(np.argmax(np.square(lags).sum((1, 2, 3))))]
    rotations = np.stack([np.eye(z.shape[1])] * sessions)
    for s in range(sessions):
        turn = best_rotation(reference, lags[s])
        most = similarity(reference, lags[s], turn)
        if most - similarity(reference, lags[s], rotations[s]) > GAIN * abs(most):
            rotations[s] = turn
    return rotations


# while a model trains


def session_rows(agent: "ExplorerAgent", m: int, rows: np.ndarray) -> np.ndarray:
    """The session of each of member m's rows [n] of the window; a row without any observation
    belongs to that of the row before it."""
    y = agent.window.obs[m, rows]
    return forward_fill(session_of(torch.from_numpy(y), agent.sessions).numpy(), all_missing(y))


def align_sessions(agent: "ExplorerAgent") -> None:
    """Rotates the states of each session in the window such that all sessions share one dynamics;
    readouts are rotated back."""
    rows, z, _ = agent.window_states()
    for m in range(agent.members):
        episode = np.cumsum(agent.window.first[m, rows]).astype(np.float64)
        episode[all_missing(agent.window.obs[m, rows])] = np.nan
        rotations = session_rotations(
            z[m], session_rows(agent, m, rows), episode, len(agent.sessions)
        )
        rotate_sessions(agent.online, m, rotations)


@torch.no_grad()
def rotate_sessions(network: "LatentNetwork", m: int, rotations: np.ndarray) -> None:
    """Rotates member m's states of each session, and its readouts back."""
    layer: Any = network.decoder.layers[0]
    readouts = layer.weight[m].split(list(network.sessions), 0)  # [Y, D]
    every = torch.from_numpy(rotations).to(layer.weight)
    for s, (turn, readout) in enumerate(zip(every, readouts, strict=True)):
        readout.copy_(readout @ turn.T)
        network.session_map.turn[m, s] = turn @ network.session_map.turn[m, s]
        network.session_map.shift[m, s] = turn @ network.session_map.shift[m, s]


def coordinates_for(
    agent: "ExplorerAgent",
    m: int,
    rows: np.ndarray,
    z: np.ndarray,
    variance: np.ndarray,
    read: np.ndarray,
) -> Coordinates:
    """Coordinates in which member m's states z [n, D], read with these variances from rows of the
    window, are standard where they were `read` [n]. The states of several sessions are first moved
    to mean 0 each, in z too, and scaled by one factor to a mean square of 1: no other map commutes
    with every rotation of a session."""
    if not agent.sessions:
        return standardise(z[read], variance[read])
    z[:] = centre_sessions(agent.online, m, z, session_rows(agent, m, rows), read)
    size = np.sqrt(max(float((np.square(z[read]) + variance[read]).mean()), LEAST))
    unit = np.eye(z.shape[1])
    to = Coordinates(unit * size, np.zeros(len(unit)), unit / size)
    agent.online.session_map.shift[m] *= float(to.back[0, 0])
    return to


@torch.no_grad()
def centre_sessions(
    network: "LatentNetwork", m: int, z: np.ndarray, session: np.ndarray, read: np.ndarray
) -> np.ndarray:
    """States z [n, D] of which each session has mean 0 where they were `read` [n]. The encoder's
    output follows, and what the readouts give stays: the origin of a session is free."""
    layer: Any = network.decoder.layers[0]
    split = [part[m].split(list(network.sessions), 0) for part in (layer.weight, layer.bias)]
    centred = z.copy()
    for s, (readout, bias) in enumerate(zip(*split, strict=True)):
        if not (read & (session == s)).any():
            continue
        middle = z[read & (session == s)].mean(0)
        centred[session == s] -= middle
        shift = torch.from_numpy(middle).to(readout)
        bias += readout @ shift
        network.session_map.shift[m, s] -= shift
    return centred
