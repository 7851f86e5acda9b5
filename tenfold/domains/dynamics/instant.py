"""The vector field of continuous time behind a model of steps.

A model says where a step leads, Φ(z) = z + dt·F(z); F is what the field f was on the way, on the
mean. The system has the flow of f: Φ is its exponential, and f the logarithm of Φ,

    F = f + dt/2·f'f + dt²/6·(f'f'f + f''(f, f)) + …
    f = F − dt/2·F'F + dt²·(F'F'F/3 + F''(F, F)/12) − …

Where f is linear this is the logarithm of a matrix, f = log(J)·(J − I)⁻¹·F with J = ∂Φ/∂z, whose
series has the terms with F' alone. It is the integral ∫₀¹ (I + s·dt·F')⁻¹ ds·F, which needs no
eigenvectors, that some matrices do not have. The term with F'' is added: along the step it is a
second difference of F, (F(z + dt·F) − 2·F(z) + F(z − dt·F))/12. What is left is of order dt³.

A logarithm exists where no direction is turned over in a step (no eigenvalue of J is 0 or below).
Elsewhere dt is too long to tell, and F is given as it is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.dynamics import Dynamics
from tenfold.ops.qlearning import tensor

# of the integral: exact to 1e-7 for eigenvalues of J from 0.05 to 20, and for those that turn by
# up to 120 degrees in a step; to 1e-3 by 150 degrees, to a tenth by 170
NODES = 16
OVER = 1e-3  # of an angle: nearer to half a turn than this, a direction is turned over

Field = Callable[[torch.Tensor], torch.Tensor]


def logarithm_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Steps that turn, grow and shrink; a matrix without eigenvectors of its own; one number."""
    for rows, size in ((1, 1), (5, 2), (3, 4)):
        slope = 0.2 * tensor(rng, dtype, rows, size, size)
        yield slope, tensor(rng, dtype, rows, size)
    yield (
        torch.tensor([[[0.0, 0.3], [0.0, 0.0]]], dtype=getattr(torch, dtype)),
        tensor(rng, dtype, 1, 2),
    )


def logarithm_reference(slope, average):
    """log(J)·(J − I)⁻¹·F by SciPy's logarithm of a matrix, [n, D]: J = I + slope. Where J − I has
    no inverse, the series F − X·F/2 + X²·F/3 …"""
    from scipy.linalg import logm

    found = []
    for x, f in zip(slope.double().numpy(), average.double().numpy(), strict=True):
        if abs(np.linalg.det(x)) > 1e-9:
            found.append(np.real(logm(np.eye(len(x)) + x)) @ np.linalg.solve(x, f))
        else:
            powers = [np.linalg.matrix_power(-x, k) / (k + 1) for k in range(60)]
            found.append(np.sum(powers, 0) @ f)
    return torch.from_numpy(np.stack(found)).to(average)


@pair(logarithm_reference, logarithm_examples, rtol=1e-5, atol=1e-6, dtypes=("float32", "float64"))
def logarithm(slope: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
    """∫₀¹ (I + s·X)⁻¹ ds·F of X = `slope` [..., D, D] and F = `average` [..., D], by Gauss and
    Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    unit = torch.eye(average.shape[-1], dtype=average.dtype, device=average.device)
    right, found = average.unsqueeze(-1), torch.zeros_like(average)
    values = torch.linalg.eigvals((unit + slope).nan_to_num().cpu())
    turned = ((values.real <= 0) & (values.imag.abs() <= -OVER * values.real)).any(-1)
    turned = turned.to(average.device)
    slope = torch.where(turned[..., None, None], 0.0, slope)
    for s, w in zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
        found = found + w * torch.linalg.solve(unit + s * slope, right).squeeze(-1)
    return torch.where(turned.unsqueeze(-1), average, found)


def instantaneous(field: Field, slope: torch.Tensor, z: torch.Tensor, dt: float) -> torch.Tensor:
    """The field of continuous time at states z [..., D], of the field of steps `field` whose map
    has the Jacobian `slope` [..., D, D] there."""
    average = field(z)
    unit = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    found = logarithm(slope - unit, average)
    bend = field(z + dt * average) - 2 * average + field(z - dt * average)
    as_it_is = (found == average).all(-1, keepdim=True)
    return torch.where(as_it_is, average, found + bend / 12)


def of_continuous_time(dynamics: Dynamics, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The instantaneous field of every model at states z [M, N, B, D] under an action [M, N, 1,
    A]; its Jacobian is that of the model."""

    def steps(states: torch.Tensor) -> torch.Tensor:
        return dynamics.drift(states) + dynamics.push(action)

    held = action.expand(*z.shape[:-1], -1)
    return instantaneous(steps, dynamics.jacobian(z, held), z, dynamics.dt)
