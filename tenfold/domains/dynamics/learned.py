"""Parameters of the learned system: the input matrix, the loadings, and the fixed points with their
eigenvalues, each with its uncertainty.

The models of an ensemble are fits to the same steps with other random weights (a Bayesian
bootstrap), so that the deviation between them is a standard error. Everything is in the units
outside: states in the model's coordinates (or the environment's own), time in the unit of `dt`.

Eigenvalues are of the field as it was learned: of steps, (next − now) / dt. A step has the matrix
M = I + dt·J, and the system eigenvalues log(eigenvalue of M) / dt in continuous time, as long as it
turns by less than half a turn in a step. Of slow systems both are alike.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from tenfold.core.errors import UserError
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics.closed_form import bootstrap
from tenfold.domains.dynamics.coordinates import STEP, Alignment
from tenfold.domains.dynamics.latent import LatentNetwork

STARTS = 200  # from where fixed points are looked for, normal with deviation SPREAD
SPREAD = 1.2  # states inside have deviation 1
TURNS = 30  # Newton steps at most
STILL = 1e-9  # of a velocity inside: nothing moves there
LONGEST = 0.3  # of one of them, inside: a basis function is about as wide
APART = 1e-2  # of states inside: nearer to each other they are the same point
FARTHEST = 3.0  # deviations: beyond, nothing was seen and the field is the prior's
MAJORITY = 0.5  # of the models must have a fixed point too
ELSEWHERE = 1.0  # deviations: what a model has farther from it is another point
ROUND = 1e-9  # of an imaginary part


class Estimate(NamedTuple):
    """The mean of the models' numbers and their deviation; `models` has each model's own in front.
    Of one model alone the deviation is not known (NaN)."""

    mean: np.ndarray
    std: np.ndarray
    models: np.ndarray


class FixedPoint(NamedTuple):
    """Where the learned field is 0 without action: the point, the field's derivative there, its
    eigenvalues (of steps, and in continuous time), what kind of point it is, and the share of the
    models that have it."""

    point: Estimate
    jacobian: Estimate
    eigenvalues: Estimate
    continuous: Estimate
    kind: str
    support: float


def estimate(models: np.ndarray, mean: np.ndarray | None = None) -> Estimate:
    """Of numbers [N, …] of N models; `mean` where it is not theirs."""
    middle = models.mean(0) if mean is None else mean
    if len(models) < 2:
        unknown = complex(np.nan, np.nan) if np.iscomplexobj(models) else np.nan
        std = np.full(np.shape(middle), unknown)
    elif np.iscomplexobj(models):
        std = np.real(models).std(0, ddof=1) + 1j * np.imag(models).std(0, ddof=1)
    else:
        std = models.std(0, ddof=1)
    return Estimate(middle, std, models)


def input_matrix(
    network: LatentNetwork, m: int, to: Alignment, reach: np.ndarray, pace: float
) -> Estimate:
    """Of member m: what a unit of each action adds to dz/dt, [D, A]."""
    weight = network.dynamics.action_weight[m].detach().double().cpu().numpy()
    return estimate(to.matrix @ weight / reach * pace)


def loadings(
    network: LatentNetwork,
    m: int,
    seed: int,
    scale: np.ndarray,
    back: np.ndarray,
    y: torch.Tensor | None,
) -> Estimate:
    """Of member m: how each channel follows each number of the state, [Y, D], for a linear decoder
    in units of the channel, for a loglinear one (or counts) of what is below the link.

    One decoder serves all models. Its deviation is that of Newton steps with the same random
    weights of the rows y [T, Y] inside that models of dynamics have; without rows it is not known.
    """
    decoder = network.decoder
    if not decoder.layers:
        loading = np.eye(network.config.latent) * scale[:, None] @ back
        return estimate(loading[None])
    if len(decoder.layers) > 1:
        raise UserError(
            "A decoder of kind mlp has no loadings, since a channel follows the state otherwise at "
            "every place: use agent.model.decoder=linear or loglinear."
        )
    layer: Any = decoder.layers[0]
    loading = layer.weight[m].detach().double().cpu().numpy()
    units = np.ones(len(loading)) if decoder.kind == "loglinear" or decoder.poisson else scale
    if y is None or not len(y):
        return estimate((loading * units[:, None] @ back)[None])
    moved = newton_moves(network, m, seed, y, max(network.dynamics.models, 2))
    models = (loading + moved - moved.mean(0)) * units[:, None] @ back
    return estimate(models, loading * units[:, None] @ back)


@torch.no_grad()
def newton_moves(
    network: LatentNetwork, m: int, seed: int, y: torch.Tensor, models: int
) -> np.ndarray:
    """One step of Fisher scoring of member m's weights and constants by rows y [T, Y], with N
    random weightings: [N, Y, D], the constants left out. Of one channel alone a step is that of a
    generalised linear model: score μ'(y − μ)/V, information μ'²/V. What was not observed (NaN)
    counts for neither."""
    rows = y.expand(network.members, -1, -1).unsqueeze(2)
    z = network.posterior(rows)[0][m, :, 0]
    states = z.expand(network.members, -1, -1)
    with torch.enable_grad():
        below = network.decoder(states)[m].detach().requires_grad_()
        mean = network.decoder.link(below)
        slope = torch.autograd.grad(mean.sum(), below)[0].double().cpu().numpy()
    mean = mean.detach().double().cpu().numpy()
    spread = mean if network.decoder.poisson else np.ones_like(mean)
    x = np.concatenate((z.double().cpu().numpy(), np.ones((len(z), 1))), 1)
    targets = y.double().cpu().numpy()
    observed = ~np.isnan(targets)
    score = np.where(observed, slope * (targets - mean) / spread, 0.0)
    certain = np.where(observed, slope**2 / spread, 0.0)
    weight = bootstrap(seed, models, len(x))
    information = np.einsum("nt,tc,ti,tj->ncij", weight, certain, x, x, optimize=True)
    pulled = np.einsum("nt,tc,ti->nci", weight, score, x, optimize=True)
    information += (
        1e-9 * np.trace(information, axis1=-2, axis2=-1)[..., None, None] * np.eye(x.shape[1])
    )
    return np.linalg.solve(information, pulled[..., None])[..., :-1, 0]


# fixed points


class Flow:
    """The learned field of member m without action (`rest` [A], inside), in float64, and its
    derivative; of every model, at states [n, D] inside."""

    def __init__(self, network: LatentNetwork, m: int, rest: np.ndarray) -> None:
        # a copy: Newton's steps end at the rounding of float32 otherwise
        self.dynamics, self.members, self.m = deepcopy(network.dynamics), network.members, m
        self.dynamics.double()
        with torch.no_grad():
            self.steady = self.dynamics.action_weight[m].cpu().numpy() @ rest  # [N, D]

    def broadcast_states(self, z: np.ndarray) -> torch.Tensor:
        states = torch.from_numpy(z).to(self.dynamics.action_weight)
        return states.expand(self.members, self.dynamics.models, *z.shape).contiguous()

    @torch.no_grad()
    def velocity(self, z: np.ndarray) -> np.ndarray:
        """[N, n, D]"""
        drift = self.dynamics.drift(self.broadcast_states(z))[self.m]
        return drift.cpu().numpy() + self.steady[:, None]

    @torch.no_grad()
    def slope(self, z: np.ndarray) -> np.ndarray:
        """[N, n, D, D]"""
        every = self.broadcast_states(z)
        still = every.new_zeros(*every.shape[:-1], self.dynamics.action_weight.shape[-1])
        step = self.dynamics.jacobian(every, still)[self.m].cpu().numpy()
        return (step - np.eye(z.shape[1])) / self.dynamics.dt

    def roots(self, z: np.ndarray, which: slice | int = slice(None)) -> np.ndarray:
        """Where Newton's method ends from states z [n, D]; those from which it finds nothing are
        left out. `which`: one model, or the mean of all."""

        def of(every: np.ndarray) -> np.ndarray:
            return every[which] if isinstance(which, int) else every.mean(0)

        for _ in range(TURNS):
            # a pseudo-inverse: where the field is flat in a direction nothing moves along it
            step = (np.linalg.pinv(of(self.slope(z))) @ of(self.velocity(z))[..., None])[..., 0]
            length = np.linalg.norm(step, axis=-1, keepdims=True)
            if self.dynamics.kind != "linear":
                step = step * (LONGEST / np.maximum(length, LONGEST))
            z = z - step
            if length.max() < STILL:
                break
        still = np.abs(of(self.velocity(z))).max(-1) < STILL
        if self.dynamics.kind != "linear":
            still &= np.abs(z).max(-1) <= FARTHEST
        return z[still]


def fixed_points(
    network: LatentNetwork, m: int, to: Alignment, rest: np.ndarray, pace: float
) -> list[FixedPoint]:
    """Of member m, those nearest to the middle first. A point that most models do not have is left
    out: where no data was a field may pass 0 by chance."""
    flow, size = Flow(network, m, rest), network.config.latent
    starts = np.zeros((1, size))
    if flow.dynamics.kind != "linear":
        drawn = fill_normal(key(0, Purpose.START, 7), 0, np.empty(STARTS * size))
        starts = np.concatenate((starts, SPREAD * drawn.reshape(-1, size)))
    points = []
    for root in distinct(flow.roots(starts)):
        roots = [flow.roots(root[None], n) for n in range(flow.dynamics.models)]
        having = [
            n for n, z in enumerate(roots) if len(z) and np.abs(z[0] - root).max() < ELSEWHERE
        ]
        if len(having) < MAJORITY * len(roots):
            continue
        model_points = np.stack([roots[n][0] for n in having])
        slopes = np.stack([flow.slope(roots[n])[n, 0] for n in having])
        middle = flow.slope(root[None]).mean(0)[0]
        support = len(having) / len(roots)
        points.append(describe_point(root, model_points, middle, slopes, to, pace, support))
    return points


def distinct(z: np.ndarray) -> np.ndarray:
    """States [n, D] without those that lie beside another; those nearest to 0 first."""
    kept: list[np.ndarray] = []
    for point in z[np.argsort(np.linalg.norm(z, axis=1), kind="stable")]:
        if all(np.abs(point - other).max() > APART for other in kept):
            kept.append(point)
    return np.array(kept).reshape(-1, z.shape[1])


def describe_point(
    point: np.ndarray,
    points: np.ndarray,
    middle: np.ndarray,
    slopes: np.ndarray,
    to: Alignment,
    pace: float,
    support: float,
) -> FixedPoint:
    """In the units outside; eigenvalues do not know coordinates."""
    into, back = to.matrix, np.linalg.pinv(to.matrix)
    eigenvalues = sort_eigenvalues(np.linalg.eigvals(middle).astype(complex))
    models = np.stack(
        [
            match_eigenvalues(np.linalg.eigvals(slope).astype(complex), eigenvalues)
            for slope in slopes
        ]
    )
    return FixedPoint(
        estimate(to.to_true(points), to.to_true(point)),
        estimate(into @ slopes @ back * pace, into @ middle @ back * pace),
        estimate(models * pace, eigenvalues * pace),
        estimate(continuous(models) * pace, continuous(eigenvalues) * pace),
        kind_of(eigenvalues),
        support,
    )


def sort_eigenvalues(eigenvalues: np.ndarray) -> np.ndarray:
    """The largest real part first, and of a pair the one that turns to the left."""
    return eigenvalues[np.lexsort((-np.imag(eigenvalues), -np.round(np.real(eigenvalues), 9)))]


def match_eigenvalues(eigenvalues: np.ndarray, to: np.ndarray) -> np.ndarray:
    """In the order of those that they are nearest to."""
    distance = np.abs(eigenvalues[:, None] - to)
    return eigenvalues[np.argsort(linear_sum_assignment(distance)[1])]


def continuous(eigenvalues: np.ndarray) -> np.ndarray:
    """log(1 + STEP·λ) / STEP of eigenvalues λ of steps, inside."""
    return np.log(1 + STEP * eigenvalues) / STEP


def kind_of(eigenvalues: np.ndarray) -> str:
    """In the words of planar systems, by what a step does: whether |1 + STEP·λ| is below 1."""
    inward = np.abs(1 + STEP * eigenvalues) < 1
    turning = np.abs(np.imag(eigenvalues)) > ROUND
    if inward.any() and not inward.all():
        return "saddle"
    return f"{'stable' if inward.all() else 'unstable'} {'focus' if turning.any() else 'node'}"


# in words


def rounded(mean: float, std: float) -> str:
    return f"{mean:.3f}" if np.isnan(std) else f"{mean:.3f} ± {std:.3f}"


def eigenvalue_words(estimates: Estimate, number: Callable[[float, float], str] = rounded) -> str:
    """Each with its error, a pair once: `-0.38 ± 0.03 turning 1.98 ± 0.02`."""
    texts = []
    for mean, std in zip(estimates.mean, estimates.std, strict=True):
        if mean.imag >= -ROUND:
            turn = f" turning {number(mean.imag, std.imag)}" if mean.imag > ROUND else ""
            texts.append(f"{number(mean.real, std.real)}{turn}")
    return "; ".join(texts)


def fixed_point_words(point: FixedPoint) -> str:
    """`stable focus at (0.01 ± 0.02, …), eigenvalues …`."""
    where = ", ".join(map(rounded, point.point.mean, point.point.std))
    inside = eigenvalue_words(point.continuous)
    return f"{point.kind} at ({where}), eigenvalues in continuous time {inside}"


def to_json(numbers: Estimate) -> dict[str, Any]:
    """For JSON: complex numbers as [real, imaginary], what is not known as None."""

    def listed(values: np.ndarray) -> Any:
        if np.iscomplexobj(values):
            values = np.stack((np.real(values), np.imag(values)), -1)
        known: Any = values.astype(object)
        known[~np.isfinite(values)] = None
        return known.tolist()

    return {"mean": listed(numbers.mean), "std": listed(numbers.std)}


def matrix_words(matrix: Estimate) -> str:
    """Rows with semicolons between them."""
    rows = zip(matrix.mean, matrix.std, strict=True)
    return "; ".join(" ".join(map(rounded, mean, std)) for mean, std in rows)


def learned_row(agent: Any) -> list[dict[str, Any]]:
    """Of each member the results of `tenfold eval`, as numbers and in words: in the environment's
    own coordinates where these are known."""
    true, several = bool(agent.maps), agent.members > 1
    answers = agent.input_matrix(true), agent.fixed_points(true)
    rows = []
    for pushed, points in zip(*answers, strict=True) if several else (answers,):
        lines = [f"fixed point: {fixed_point_words(one)}" for one in points]
        if pushed.mean.size:
            lines.append(f"input matrix: {matrix_words(pushed)}")
        if len(pushed.models) < 2:
            lines.append("how sure these are is not known of one model: agent.model.ensemble=5")
        fixed = [
            {name: to_json(getattr(one, name)) for name in ("point", "eigenvalues", "continuous")}
            | {"kind": one.kind, "support": one.support}
            for one in points
        ]
        rows.append({"input_matrix": to_json(pushed), "fixed_points": fixed, "words": lines})
    return rows
