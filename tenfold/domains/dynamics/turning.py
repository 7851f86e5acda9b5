"""How sessions find one another: an orthogonal matrix for each between what its encoder says and the
hidden state that all share.

Each session alone finds its states up to a rotation or reflection, by chance of its first weights.
Of two that turn against each other no dynamics is both, gradients lead through the loss of a
dimension, and a shared fit averages to no rotation at all. So from time to time every session is
turned such that its states move like those of a session of reference,

    R = argmax Σ_k tr(D_kᵀ·R·C_k·Rᵀ)        C_k, D_k = E z_{t+k}·z_tᵀ of the session, of the reference

and its readouts are turned back, so that nothing that the model says of the session changes.
R is found by steps R ← polar(Σ_k D_k·R·C_kᵀ + D_kᵀ·R·C_k + c·R), which never descend for c large
enough, from many starts of both orientations.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from tenfold.domains.dynamics.latent import LatentNetwork

LAGS = 10  # of the covariances that are compared
STARTS, ROUNDS = 16, 100  # of the search for a turn
GAIN = 0.2  # as a share of the best: for less no session is turned


def session_of(y: torch.Tensor, sessions: tuple[int, ...]) -> torch.Tensor:
    """The session of rows [..., Y], by which channels were observed: [...]; the first where none
    was."""
    there = [(~torch.isnan(part)).any(-1) for part in y.split(list(sessions), -1)]
    return torch.stack(there, -1).to(torch.uint8).argmax(-1)


def turned(
    network: "LatentNetwork", own: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance [M, T, B, D] that the encoder says of rows of sessions `own` [M, T, B], as
    hidden states that all share; variances without the covariances that a turn may bring."""
    member = torch.arange(len(mean), device=mean.device)[:, None, None]
    turn = network.turn[member, own]  # [M, T, B, D, D]
    return (
        (turn @ mean.unsqueeze(-1)).squeeze(-1) + network.shift[member, own],
        (turn.square() @ variance.unsqueeze(-1)).squeeze(-1),
    )


def lagged(z: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """E z_{t+k}·z_tᵀ of states [n, D] around their mean, [LAGS, D, D], within episodes [n], over
    their variance."""
    z = z - z.mean(0)
    found = np.zeros((LAGS, z.shape[1], z.shape[1]))
    for k in range(1, LAGS + 1):
        same = episode[k:] == episode[:-k]
        if same.any():
            found[k - 1] = z[k:][same].T @ z[:-k][same] / same.sum()
    return found / max(float(np.square(z).mean()), np.finfo(np.float64).tiny)


def likeness(reference: np.ndarray, own: np.ndarray, turn: np.ndarray) -> float:
    """Σ_k tr(D_kᵀ·R·C_k·Rᵀ)."""
    return float(np.sum(reference * (turn @ own @ turn.T)))


def best_turn(reference: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The orthogonal R that makes covariances C_k like D_k, [LAGS, D, D] each, as far as many
    starts find it."""
    size = own.shape[-1]
    rng = np.random.default_rng(0)
    shift = 2 * float(np.sum(np.linalg.norm(reference, 2, (1, 2)) * np.linalg.norm(own, 2, (1, 2))))
    best = np.eye(size)
    for start in range(STARTS):
        turn = polar(rng.normal(size=(size, size)))
        if start % 2:  # the other orientation
            turn[0] *= -1
        for _ in range(ROUNDS):
            uphill = np.sum(
                reference @ turn @ own.transpose(0, 2, 1)
                + reference.transpose(0, 2, 1) @ turn @ own,
                0,
            )
            turn = polar(uphill + 0.5 * shift * turn)
        best = max(best, turn, key=lambda one: likeness(reference, own, one))
    return best


def polar(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal matrix nearest to it."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def turns(z: np.ndarray, own: np.ndarray, episode: np.ndarray, sessions: int) -> np.ndarray:
    """For each session a turn [D, D] of its states z [n, D] such that all move alike; `own` [n] is
    the session of a row. The session that its past tells most of is the reference."""
    lags = np.stack([lagged(z[own == s], episode[own == s]) for s in range(sessions)])
    reference = lags[int(np.argmax(np.square(lags).sum((1, 2, 3))))]
    found = np.stack([np.eye(z.shape[1])] * sessions)
    for s in range(sessions):
        turn = best_turn(reference, lags[s])
        most = likeness(reference, lags[s], turn)
        if most - likeness(reference, lags[s], found[s]) > GAIN * abs(most):
            found[s] = turn
    return found


@torch.no_grad()
def turn_sessions(
    network: "LatentNetwork", m: int, found: np.ndarray, sessions: tuple[int, ...]
) -> None:
    """Turns what member m's encoder says of each session, and its readouts back."""
    layer: Any = network.decoder.layers[0]
    parts = torch.from_numpy(found).to(layer.weight)
    readouts = layer.weight[m].split(list(sessions), 0)  # [Y, D]
    for s, (turn, readout) in enumerate(zip(parts, readouts, strict=True)):
        readout.copy_(readout @ turn.T)
        network.turn[m, s] = turn @ network.turn[m, s]
        network.shift[m, s] = turn @ network.shift[m, s]


@torch.no_grad()
def centre_sessions(
    network: "LatentNetwork", m: int, z: np.ndarray, own: np.ndarray, read: np.ndarray
) -> np.ndarray:
    """States z [n, D] of which each session has mean 0 where they were `read` [n]; so has the
    encoder's from now on, and what the readouts say stays. Where a session's states lie is free."""
    layer: Any = network.decoder.layers[0]
    parts = [part[m].split(list(network.sessions), 0) for part in (layer.weight, layer.bias)]
    found = z.copy()
    for s, (readout, bias) in enumerate(zip(*parts, strict=True)):
        if not (read & (own == s)).any():
            continue
        middle = z[read & (own == s)].mean(0)
        found[own == s] -= middle
        away = torch.from_numpy(middle).to(readout)
        bias += readout @ away
        network.shift[m, s] -= away
    return found
