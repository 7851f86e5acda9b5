"""The evidence bound as it is usually written, for comparison: horizons rolled anew each, and plain
loops."""

import torch

from tenfold.domains.dynamics.elbo import kl_variance, windows
from tenfold.domains.dynamics.latent import LatentNetwork


def step_from(
    network: LatentNetwork, z: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of all models: z [M, N, B, D], the same action [M, B, A] for all."""
    return network.dynamics(z, a.unsqueeze(1).expand(-1, z.shape[1], -1, -1))


def start_divergence(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """KL(q(z_0) ‖ N(0, I)) from [M, T, B, D], mean over the batch: [M]."""
    first, none = mean[:, 0], torch.zeros_like(mean[:, 0])
    return kl_variance(first, variance[:, 0], none, none + 1).sum(-1).mean(-1)


def horizon_weights(t: int, steps: int, decay: float) -> list[float]:
    """w_t1, w_t2, …"""
    raw = [decay ** (k - 1) for k in range(1, min(steps, t) + 1)]
    return [w / sum(raw) for w in raw]


def loops_reference(network, y, a, normal, seen=None, beta=1.0):
    """Loops over samples s, starts t and horizons k; members, models and the batch stay
    together."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if seen is None else seen.transpose(1, 2)
    )
    bound = -beta * start_divergence(mean, variance)
    for s in range(config.samples):
        for t in range(length):
            z = mean[:, t] + variance[:, t].sqrt() * normal[:, t, s]
            bound = bound + network.decoder.log_likelihood(y[:, :, t], z).mean(-1) / config.samples
            z = z.unsqueeze(1).expand(-1, config.ensemble, -1, -1)
            for k in range(1, min(config.steps, length - 1 - t) + 1):
                z, spread = step_from(network, z, a[:, :, t + k - 1])
                apart = (
                    kl_variance(mean[:, None, t + k], variance[:, None, t + k], z, k * spread)
                    .sum(-1)
                    .mean((1, 2))
                )
                bound = (
                    bound
                    - beta
                    * horizon_weights(t + k, config.steps, config.decay)[k - 1]
                    * apart
                    / config.samples
                )
    return bound


def rerolled_reference(network, y, a, normal, seen=None, beta=1.0):
    """Samples and starts together; every horizon is rolled from its beginning."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if seen is None else seen.transpose(1, 2)
    )
    z0 = mean.unsqueeze(2) + variance.sqrt().unsqueeze(2) * normal  # [M, T, S, B, D]
    likelihood = network.decoder.log_likelihood(y.transpose(1, 2).unsqueeze(2), z0)
    bound = likelihood.mean((2, 3)).sum(1) - beta * start_divergence(mean, variance)
    actions = a.transpose(1, 2).unsqueeze(2).expand(-1, -1, config.samples, -1, -1)
    weights = windows(length, config.steps, config.decay, y.device, y.dtype).weight.split(
        [length - k for k in range(1, min(config.steps, length - 1) + 1)]
    )
    for k, weight in enumerate(weights, 1):
        starts = length - k
        shape = (len(y), config.ensemble, starts, *z0.shape[2:])
        z = spread = z0[:, None, :starts].expand(shape).flatten(2, 4)
        for j in range(k):
            z, spread = step_from(network, z, actions[:, j : j + starts].flatten(1, 3))
        apart = kl_variance(
            mean[:, None, k:, None],
            variance[:, None, k:, None],
            z.view(shape),
            k * spread[:, :, None, None],
        )
        bound = bound - beta * (apart.sum(-1).mean((1, 3, 4)) * weight).sum(-1)
    return bound
