"""How sessions find one another: an orthogonal matrix for each between what its encoder says and
the hidden state that all share.

Each session alone finds its states up to a rotation or reflection, by chance of its first weights.
Of two that turn against each other no dynamics is both, gradients lead through the loss of a
dimension, and a shared fit averages to no rotation at all. So from time to time every session is
turned such that its states move like those of a session of reference,

    R = argmax Σ_k tr(D_kᵀ·R·C_k·Rᵀ)        C_k = E z_{t+k}·z_tᵀ of the session, D_k of the other

and its readouts are turned back, so that nothing that the model says of the session changes.
R is found by steps R ← polar(Σ_k D_k·R·C_kᵀ + D_kᵀ·R·C_k + c·R), which never descend for c large
enough, from many starts of both orientations.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

LAGS = 10  # of the covariances that are compared
STARTS, ROUNDS = 16, 100  # of the search for a turn
GAIN = 0.2  # as a share of the best: for less no session is turned


def session_of(y: torch.Tensor, sessions: tuple[int, ...]) -> torch.Tensor:
    """The session of rows [..., Y], by which channels were observed: [...]; the first where none
    was."""
    there = [(~torch.isnan(part)).any(-1) for part in y.split(list(sessions), -1)]
    return torch.stack(there, -1).to(torch.uint8).argmax(-1)


class Together(nn.Module):
    """From what the encoder says of each session to the hidden state that all share: turned by
    `turn` [M, sessions, D, D] and moved by `shift` [M, sessions, D]. No gradient changes them."""

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
        that a turn may bring."""
        member = torch.arange(len(mean), device=mean.device)[:, None, None]
        own = session_of(y, self.sessions)
        turn = self.turn[member, own]  # [M, T, B, D, D]
        return (
            (turn @ mean.unsqueeze(-1)).squeeze(-1) + self.shift[member, own],
            (turn.square() @ variance.unsqueeze(-1)).squeeze(-1),
        )

    def state(self) -> dict[str, torch.Tensor]:
        return {"turn": self.turn, "shift": self.shift}

    def load_state(self, state: dict[str, Any]) -> None:
        for name, own in self.state().items():
            own.copy_(torch.as_tensor(state[name]))


def lagged(z: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """E z_{t+k}·z_tᵀ of states [n, D] around their mean, [LAGS, D, D], within episodes [n], over
    their variance; rows that belong to no episode (NaN) were not read. 0 where there are none."""
    found, read = np.zeros((LAGS, z.shape[1], z.shape[1])), ~np.isnan(episode)
    if not read.any():
        return found
    z = z - z[read].mean(0)
    for k in range(1, LAGS + 1):
        same = episode[k:] == episode[:-k]
        if same.any():
            found[k - 1] = z[k:][same].T @ z[:-k][same] / same.sum()
    return found / max(float(np.square(z[read]).mean()), np.finfo(np.float64).tiny)


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
