"""Paths of a dynamics model whose drift is linear in its weights: z' = z + dt·W·φ(z) + dt·B·a, with
everything a planner needs.

φ(z) is z itself, (z, 1), or a grid of Gaussians exp(−‖z − c‖² / 2w²), the last dimension running
fastest. Then analytically

    ∂z'/∂z = I + dt·W·φ'(z),    ∂φ_p/∂z_k = φ_p·(c_pk − z_k) / w²,    ∂z'_i/∂W_ip = dt·φ_p(z)

A Gaussian on a grid is a product of one number for each dimension, and neighbours c + h on one axis
have the ratio exp(−β(2j − 1))·exp(2βu), β = h²/2w²: two exponentials for each dimension of a state,
whatever the size of the grid, each factor at most 1 when one starts from the nearest centre. Arrays
keep the samples last, so that every inner loop is elementwise.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair


class Drift(NamedTuple):
    """Arrays of the dynamics of M members with N models each: D numbers of state, P features, A
    numbers of action.

    weight [M, N, D, P], push [M, N, D, A] (the action's matrix B), variance [M, N, D], all float32;
    axis [G] holds the grid's evenly spaced centres, the same in each dimension, and is empty where
    φ is linear.
    """

    weight: np.ndarray
    push: np.ndarray
    variance: np.ndarray
    axis: np.ndarray
    width: float
    dt: float


def features(drift: Drift, z: np.ndarray) -> np.ndarray:
    """φ(z) [..., P] of states [..., D]."""
    parameters, size = drift.weight.shape[-1], z.shape[-1]
    if not drift.axis.size:
        return z if parameters == size else np.concatenate([z, np.ones_like(z[..., :1])], -1)
    return grid_features(z, drift.axis, drift.width)


def grid_features(z: np.ndarray, axis: np.ndarray, width: float) -> np.ndarray:
    """Gaussians [..., G^D] around the points of a grid, at states [..., D]."""
    bells = np.exp(-(((z[..., None] - axis) / width) ** 2) / 2)  # [..., D, G]
    product = bells[..., 0, :]
    for k in range(1, z.shape[-1]):
        product = (product[..., :, None] * bells[..., k, None, :]).reshape(*z.shape[:-1], -1)
    return product


def centres(axis: np.ndarray, size: int) -> np.ndarray:
    """[P, D], the last dimension running fastest."""
    return np.stack(np.meshgrid(*[axis] * size, indexing="ij"), -1).reshape(-1, size)


def jacobian(drift: Drift, m: int, n: int, z: np.ndarray) -> np.ndarray:
    """∂z'/∂z [D, D] of model n of member m at a state [D]."""
    weight, size = drift.weight[m, n].astype(z.dtype), len(z)
    if not drift.axis.size:
        return np.eye(size) + drift.dt * weight[:, :size]
    # ∂φ/∂z [P, D]
    slope = features(drift, z)[:, None] * (centres(drift.axis, size) - z) / drift.width**2
    return np.eye(size) + drift.dt * weight @ slope


def random_drift(
    rng: np.random.Generator,
    members: int,
    models: int,
    size: int,
    grid: int,
    action: int = 2,
    constant: bool = False,
) -> Drift:
    """Grid 0 is a linear drift, with a constant if asked for."""
    count = grid**size if grid else size + constant
    weight = rng.normal(size=(members, models, size, count)) * (1 if grid else 0.5)
    push = rng.normal(size=(members, models, size, action))
    axis = np.linspace(-2.5, 2.5, grid).astype(np.float32) if grid else np.zeros(0, np.float32)
    return Drift(
        weight.astype(np.float32),
        push.astype(np.float32),
        rng.uniform(0.01, 0.1, (members, models, size)).astype(np.float32),
        axis,
        float(5 / (grid - 1)) if grid else 1.0,
        0.1,
    )


def system_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """A drift, states [M, D] and actions [M, B, H, A]. One sample and one step; odd numbers of
    each; grids in one to three dimensions; states far outside the grid."""
    for members, models, samples, horizon, size, grid in (
        (1, 1, 1, 1, 2, 10),
        (2, 3, 5, 4, 2, 7),
        (1, 2, 7, 3, 3, 3),
        (1, 1, 3, 2, 1, 5),
        (2, 1, 4, 6, 2, 0),
        (1, 5, 33, 10, 2, 10),
    ):
        drift = random_drift(rng, members, models, size, grid, constant=samples % 2 == 0)
        start = rng.normal(size=(members, size)) * (1 if horizon < 10 else 3)
        yield (
            drift,
            start.astype(dtype),
            rng.uniform(-1, 1, (members, samples, horizon, 2)).astype(dtype),
        )


def path_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for drift, start, actions in system_examples(rng, dtype):
        samples, horizon, _ = actions.shape[1:]
        size, count = drift.weight.shape[2:]
        shapes = (horizon + 1, size), (horizon, count), (horizon, size, size)
        room = [np.zeros((*shape, samples), np.float32) for shape in shapes]
        moved = np.ascontiguousarray(actions[-1].transpose(1, 2, 0))
        yield drift, len(start) - 1, drift.weight.shape[1] - 1, start[-1], moved, *room


def path_reference(drift, m, n, start, actions, *room):
    """One sample and one step after another."""
    samples = []
    for b in range(actions.shape[2]):
        state, phi, slope = [start.astype(np.float64)], [], []
        for a in actions[:, :, b]:
            z = state[-1]
            phi.append(features(drift, z))
            slope.append(jacobian(drift, m, n, z))
            state.append(z + drift.dt * (drift.weight[m, n] @ phi[-1] + drift.push[m, n] @ a))
        samples.append((state, phi, slope))
    return tuple(np.stack(part, -1) for part in zip(*samples, strict=True))


@pair(path_reference, path_examples, rtol=1e-4, atol=2e-5)
@kernel
def path(drift, m, n, start, actions, state, phi, slope):
    """All samples of one model of one member. actions [H, A, B]; fills state [H + 1, D, B], phi [H,
    P, B], slope [H, D, D, B]."""
    weight, push, dt = drift.weight[m, n], drift.push[m, n], np.float32(drift.dt)
    size, count = weight.shape
    horizon, controls, samples = actions.shape
    grid, narrow = drift.axis.size, np.float32(1 / drift.width**2)
    rows = drift_rows(weight, drift.axis) if grid else weight
    spread = np.empty((rows.shape[0], samples), np.float32)
    bells = np.empty((size, max(grid, 1), samples), np.float32)
    for d in range(size):
        for b in range(samples):
            state[0, d, b] = start[d]
    for t in range(horizon):
        z, after, phi_t, slope_t = state[t], state[t + 1], phi[t], slope[t]
        if grid:
            gaussians(drift.axis, drift.width, z, bells)
            outer(bells, phi_t)
        else:
            for p in range(count):
                for b in range(samples):
                    phi_t[p, b] = z[p, b] if p < size else np.float32(1)
        np.dot(rows, phi_t, spread)
        for d in range(size):
            for b in range(samples):
                after[d, b] = z[d, b] + dt * spread[d, b]
            for a in range(controls):
                factor = dt * push[d, a]
                for b in range(samples):
                    after[d, b] += factor * actions[t, a, b]
            for k in range(size):
                same = np.float32(d == k)
                if grid:
                    line = spread[size + d * size + k]
                    for b in range(samples):
                        slope_t[d, k, b] = same + dt * narrow * (line[b] - z[k, b] * spread[d, b])
                else:
                    slope_t[d, k, :] = same + dt * weight[d, k]
    return state, phi, slope


@kernel
def drift_rows(weight, axis):
    """The rows W_d, then W_d·c_k for each d and k: one product with φ gives the drift and what its
    Jacobian needs."""
    size, count = weight.shape
    rows = np.empty((size + size * size, count), np.float32)
    for d in range(size):
        for p in range(count):
            rows[d, p] = weight[d, p]
        for k in range(size):
            every = axis.size ** (size - 1 - k)
            for p in range(count):
                rows[size + d * size + k, p] = weight[d, p] * axis[(p // every) % axis.size]
    return rows


@kernel
def gaussians(axis, width, z, bells):
    """exp(−(z_k − c_g)² / 2w²) for every dimension, centre and sample, outwards from the nearest
    centre."""
    grid, (size, samples) = axis.size, z.shape
    step = (axis[grid - 1] - axis[0]) / (grid - 1)
    beta = 0.5 * (step / width) ** 2
    fall = np.exp(-beta * (2.0 * np.arange(grid) - 1))
    for k in range(size):
        for b in range(samples):
            u = (z[k, b] - axis[0]) / step
            if u != u:  # a path that ran away: int() of NaN would be any index
                u = 0.0
            near = int(min(max(u + 0.5, 0.0), grid - 1.0))
            u -= near
            top = np.exp(-beta * u * u)
            bells[k, near, b] = top
            ratio, value = np.exp(2 * beta * u), top
            for j in range(1, grid - near):
                value *= ratio * fall[j]
                bells[k, near + j, b] = value
            ratio, value = 1 / ratio, top
            for j in range(1, near + 1):
                value *= ratio * fall[j]
                bells[k, near - j, b] = value


@kernel
def outer(bells, phi):
    """Products over dimensions, the last fastest. The dimensions so far stand at the start of φ and
    are spread from the end."""
    size, grid, samples = bells.shape
    # for `phi[:grid] = bells[0]` Numba compiles, for seconds, the sentence about shapes that differ
    for g in range(grid):
        for b in range(samples):
            phi[g, b] = bells[0, g, b]
    done = grid
    for k in range(1, size):
        for p in range(done - 1, -1, -1):
            # row p·grid + g is never one still to be read, but p = g = 0 itself, which is last
            for g in range(grid - 1, -1, -1):
                for b in range(samples):
                    phi[p * grid + g, b] = phi[p, b] * bells[k, g, b]
        done *= grid
