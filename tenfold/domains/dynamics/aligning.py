"""Sessions of one model brought together while it trains: turned until their states move alike,
each around 0, all of one size. Readouts follow, so that the model says of every session what it
said before."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.domains.dynamics.coordinates import LEAST, Coordinates, standard
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import carried_on, unread
from tenfold.domains.dynamics.turning import session_of, turns

if TYPE_CHECKING:
    from tenfold.domains.dynamics.agent import ExplorerAgent


def session_rows(agent: "ExplorerAgent", m: int, rows: np.ndarray) -> np.ndarray:
    """The session of each of member m's rows [n] of the window; one of which nothing was observed
    goes with the row before it."""
    y = agent.window.obs[m, rows]
    return carried_on(session_of(torch.from_numpy(y), agent.sessions).numpy(), unread(y))


@torch.no_grad()
def align_sessions(agent: "ExplorerAgent") -> None:
    """Turns sessions such that the states that are read from the window move alike."""
    rows, z, _ = agent.window_states()
    for m in range(agent.members):
        episode = np.cumsum(agent.window.first[m, rows]).astype(np.float64)
        episode[unread(agent.window.obs[m, rows])] = np.nan
        own = session_rows(agent, m, rows)
        turn_sessions(agent.online, m, turns(z[m], own, episode, len(agent.sessions)))


def coordinates_for(
    agent: "ExplorerAgent",
    m: int,
    rows: np.ndarray,
    z: np.ndarray,
    variance: np.ndarray,
    read: np.ndarray,
) -> Coordinates:
    """Coordinates in which member m's states z [n, D], read with these variances from rows of the
    window, are standard where they were `read` [n]. Of several sessions they have size 1, and each
    one's states are first moved to mean 0, in z too."""
    if not agent.sessions:
        return standard(z[read], variance[read])
    z[:] = centre_sessions(agent.online, m, z, session_rows(agent, m, rows), read)
    to = even(z[read], variance[read])
    agent.online.together.shift[m] *= float(to.back[0, 0])
    return to


def even(mean: np.ndarray, variance: np.ndarray) -> Coordinates:
    """Coordinates by one factor for all numbers of the state, around 0, so that the mean square of
    a state is 1: no other map goes with every turn of a session."""
    size = np.sqrt(max(float((np.square(mean) + variance).mean()), LEAST))
    unit = np.eye(mean.shape[1])
    return Coordinates(unit * size, np.zeros(len(unit)), unit / size)


@torch.no_grad()
def turn_sessions(network: LatentNetwork, m: int, found: np.ndarray) -> None:
    """Turns what member m's encoder says of each session, and its readouts back."""
    layer: Any = network.decoder.layers[0]
    parts = torch.from_numpy(found).to(layer.weight)
    readouts = layer.weight[m].split(list(network.sessions), 0)  # [Y, D]
    for s, (turn, readout) in enumerate(zip(parts, readouts, strict=True)):
        readout.copy_(readout @ turn.T)
        network.together.turn[m, s] = turn @ network.together.turn[m, s]
        network.together.shift[m, s] = turn @ network.together.shift[m, s]


@torch.no_grad()
def centre_sessions(
    network: LatentNetwork, m: int, z: np.ndarray, own: np.ndarray, read: np.ndarray
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
        network.together.shift[m, s] -= away
    return found
