"""How well a latent model foretells: k-step means, and the share of the observations' variance they
explain."""

import torch

from tenfold.domains.dynamics.latent import LatentNetwork

WORST = -1e9  # R² of what is not finite


def forecast(network: LatentNetwork, z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Means of the observations 1 … K steps after state z [M, B, D] under actions a [M, B, K, A]:
    [M, B, K, Y].

    Every model of the ensemble rolls on its own, without noise; their observations are averaged.
    """
    models = network.dynamics.models
    z = z.unsqueeze(1).expand(-1, models, -1, -1)
    ahead = []
    for k in range(a.shape[2]):
        z, _ = network.dynamics(z, a[:, None, :, k].expand(-1, models, -1, -1))
        ahead.append(network.decode(z.flatten(1, 2)).view(*z.shape[:3], -1).mean(1))
    return torch.stack(ahead, 2)


def forecasts(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> torch.Tensor:
    """The same from every moment of sequences y [M, B, T, Y] that has `steps` actions in a [M, B,
    T', A]: [M, B, S, steps, Y]."""
    starts = min(y.shape[2], a.shape[2] - steps + 1)
    mean, _, _ = network.posterior(y.transpose(1, 2))
    actions = a.unfold(2, steps, 1)[:, :, :starts].movedim(-1, 3)  # [M, B, S, steps, A]
    found = forecast(network, mean[:, :starts].transpose(1, 2).flatten(1, 2), actions.flatten(1, 2))
    return found.view(*y.shape[:2], starts, steps, -1)


@torch.no_grad()
def k_step_r2(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> torch.Tensor:
    """R² of the observations k = 1 … steps after a state that was encoded, [M, steps]; y [M, B, T,
    Y], a [M, B, T, A].

    1 − Σ (y − foretold)² / Σ (y − mean of y)², over all sequences, starts and numbers. Below 0:
    worse than the mean. Noise of the observations keeps it below 1 even for the true system. Starts
    are those from which all horizons fit. Observations that do not vary have nothing to be
    explained: 0; a forecast that is not finite counts as worse than all: WORST.
    """
    starts = y.shape[2] - steps
    if starts < 1:
        raise ValueError(f"Sequences of {y.shape[2]} steps are too short to look {steps} ahead.")
    mean, _, _ = network.posterior(y.transpose(1, 2))
    z = mean[:, :starts].flatten(1, 2)
    # [M, B, starts, steps, …] of what follows each start, then time before batch
    following, actions = (
        x.unfold(2, steps, 1).movedim(-1, 3).transpose(1, 2).flatten(1, 2)
        for x in (y[:, :, 1:], a[:, :, :-1])
    )
    error = (forecast(network, z, actions) - following).square().sum((1, 3))
    spread = (following - following.mean((1, 2), keepdim=True)).square().sum((1, 3))
    return torch.where(spread > 0, 1 - error / spread, 0.0).nan_to_num(nan=WORST, neginf=WORST)
