"""Forecasts and R² where values were not observed.

R² counts the values that were: what nobody saw is neither hit nor missed, nor part of the variance.
A forecast starts where a state was read, from what is believed of it. ARX reads and is fitted to
what the values seen in a row say of the others (`missing`), and to no row of which nothing was
seen; repeating the last value repeats the last one that was seen.
"""

from typing import Any

import numpy as np
import torch

from tenfold.domains.dynamics.forecast import ARX, WORST, forecast, rows_of, steady_share
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import carried_on, mean_seen, unread


def r2_of_seen(found: np.ndarray, following: np.ndarray) -> np.ndarray:
    """1 − Σ (y − foretold)² / Σ (y − mean of y)² of forecasts [n, K, Y], over what was observed:
    [K]. Of a horizon at which nothing varies 0."""
    seen = ~np.isnan(following)
    known = np.where(seen, following, 0.0)
    mean = known.sum((0, 1)) / np.maximum(seen.sum((0, 1)), 1)
    error, spread = (
        np.square(np.where(seen, known - other, 0.0)).sum((0, 2)) for other in (found, mean)
    )
    return np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1.0), 0.0)


@torch.no_grad()
def states_known(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """What is believed of the state at every moment of sequences y [M, B, T, Y], [M, T, B, D]: as
    `forecast.beliefs` has it, and where nothing was observed foretold from the belief before, which
    makes the next reading count for more; before one was read 0, the mean of all states."""
    rows = y.transpose(1, 2)
    mean, _, _ = network.posterior(rows)
    gone, actions = unread(rows)[..., None], a.transpose(1, 2)
    share, steady, wander = steady_share(network.dynamics.share)
    states, known = [torch.where(gone[:, 0], 0.0, mean[:, 0])], ~gone[:, 0]
    before = (1 + wander).expand(*known.shape)  # variance of the next prediction, in a reading's
    for t in range(1, y.shape[2]):
        on, _ = network.dynamics.predict(states[-1], actions[:, t - 1])
        on = torch.where(known, on, 0.0)  # before anything was read nothing moves
        own = torch.where(known, 1 / (1 + before), 0.0)  # a first reading is all there is
        surprise = (mean[:, t] - on) * (own / steady).clamp(max=1)
        states.append(torch.where(gone[:, t], on, mean[:, t] - surprise @ share.mT))
        after = torch.where(gone[:, t], before, 1 - own)
        before = torch.where(known | ~gone[:, t], after + wander, before)
        known = known | ~gone[:, t]
    return torch.stack(states, 1)


@torch.no_grad()
def forecasts_over_gaps(
    network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int
) -> torch.Tensor:
    """As `forecasts` has it: [M, B, S, steps, Y]."""
    starts = min(y.shape[2], a.shape[2] - steps + 1)
    states = states_known(network, y[:, :, :starts], a).transpose(1, 2)
    actions = a.unfold(2, steps, 1)[:, :, :starts].movedim(-1, 3)
    found = forecast(network, states.flatten(1, 2), actions.flatten(1, 2))
    return found.view(*y.shape[:2], starts, steps, -1)


@torch.no_grad()
def k_step_r2_of_seen(
    network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int
) -> np.ndarray:
    """R² [M, steps] of the observations k = 1 … steps after a state that was read."""
    starts = y.shape[2] - steps
    found = forecasts_over_gaps(network, y, a[:, :, :-1], steps)[:, :, :starts]
    following = y[:, :, 1:].unfold(2, steps, 1).movedim(-1, 3)  # [M, B, S, steps, Y]
    from_read = ~unread(y[:, :, :starts])
    rows = [
        r2_of_seen(*(array_of(part[m][from_read[m]]) for part in (found, following)))
        for m in range(len(y))
    ]
    return np.nan_to_num(np.stack(rows), nan=WORST, neginf=WORST)


def array_of(part: torch.Tensor) -> np.ndarray:
    return part.cpu().double().numpy()


# baselines


def repeated_r2_of_seen(y: np.ndarray, steps: int) -> np.ndarray:
    """R² of y [E, T, Y] 1 … steps ahead where every forecast is the last value that was seen;
    before there was one, the mean."""
    starts = y.shape[1] - steps
    last = np.stack(
        [np.stack([carried_forward(column) for column in episode.T], -1)[:starts] for episode in y]
    )
    known = ~unread(y[:, :starts])
    following = np.stack([y[:, k : k + starts] for k in range(1, steps + 1)], 2)  # [E, S, K, Y]
    mean = mean_seen(y.reshape(1, -1, y.shape[-1]))[0]
    last = np.where(np.isnan(last), mean, last)
    found = np.repeat(last[known][:, None], steps, 1)
    return r2_of_seen(found, following[known])


def carried_forward(column: np.ndarray) -> np.ndarray:
    """The last number that was seen until each moment; NaN before there was one."""
    gone = np.isnan(column)
    found = carried_on(column, gone)
    found[: int(np.argmin(gone))] = np.nan
    return found


def arx_r2_of_seen(
    train: tuple[np.ndarray, np.ndarray],
    held: tuple[np.ndarray, np.ndarray],
    over: Any,
    steps: int,
    lags: int,
) -> np.ndarray:
    """R² [steps] on recordings `held` of an ARX fitted to `train`, each y [E, T, Y] and a [E, T,
    A]; `over` fills what is missing in rows [n, Y]."""
    y, a = train
    whole = over(y.reshape(-1, y.shape[-1])).reshape(y.shape)
    both, gone = np.concatenate((whole, a), -1), unread(y)
    times = range(lags, y.shape[1])
    use = np.concatenate([~gone[:, t - lags : t + 1].any(1) for t in times])
    recent = np.concatenate([both[:, t - lags : t] for t in times])[use]
    following = np.concatenate([whole[:, t] for t in times])[use]
    model = ARX(np.linalg.lstsq(rows_of(recent), following, rcond=None)[0].T, lags)
    y, a = held
    filled, gone = over(y.reshape(-1, y.shape[-1])).reshape(y.shape), unread(y)
    starts = range(lags - 1, y.shape[1] - steps)
    use = np.concatenate([~gone[:, t - lags + 1 : t + 1].any(1) for t in starts])
    past_y, past_a, ahead, after = (
        np.concatenate(parts)[use]
        for parts in (
            [filled[:, t - lags + 1 : t + 1] for t in starts],
            [a[:, t - lags + 1 : t + 1] for t in starts],
            [a[:, t : t + steps] for t in starts],
            [y[:, t + 1 : t + 1 + steps] for t in starts],
        )
    )
    return r2_of_seen(model.forecast(past_y, past_a, ahead), after)
