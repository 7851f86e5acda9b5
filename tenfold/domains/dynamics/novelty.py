"""Random network distillation: a state is new where a trained network does not yet imitate a random
one (Burda et al., 2019).

Both networks are `ops.mlp` of the same sizes; members have their own. The predictor takes one step
of Adam for every batch of visited states, towards the target's output.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import ConfigError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform
from tenfold.ops.adam import adam
from tenfold.ops.mlp import TANH, mlp_forward, mlp_of, parameter_count

OUTPUTS = 8  # of the random network
HIDDEN = (32, 32)
LR, EPS = 1e-3, 1e-8


def error_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size, samples in ((1, 1), (2, 7), (3, 32), (2, 320)):
        sizes = np.array([size, 9, 5, 4])
        target, predictor = (
            rng.normal(size=parameter_count(sizes)).astype(dtype) for _ in range(2)
        )
        yield target, predictor, sizes, rng.normal(size=(size, samples)).astype(dtype)


def novelty_reference(target, predictor, sizes, z):
    """Mean over outputs of (predictor(z) − target(z))², one state after another."""
    found = []
    for state in torch.from_numpy(z).T:
        given, asked = (
            mlp_of(torch.from_numpy(flat), sizes, TANH, state[None]) for flat in (predictor, target)
        )
        found.append((given - asked).square().mean())
    return torch.stack(found)


@pair(novelty_reference, error_examples, rtol=1e-4, atol=1e-5)
@kernel
def novelty(target, predictor, sizes, z):
    """How new states [D, B] are to one member, [B]."""
    samples, outputs = z.shape[1], sizes[-1]
    hidden = np.empty((2, samples * sizes[1:].sum()), np.float32)
    asked = mlp_forward(target, sizes, TANH, z, hidden[0])
    given = mlp_forward(predictor, sizes, TANH, z, hidden[1])
    found = np.zeros(samples, np.float32)
    for j in range(outputs):
        for b in range(samples):
            found[b] += (given[j, b] - asked[j, b]) ** 2 / outputs
    return found


class Novelty:
    """Targets and predictors [M, P] of M members, and the predictors' optimiser."""

    def __init__(self, seeds: list[int], size: int) -> None:
        if size < 1:
            raise ConfigError("latent", f"= {size} is no state to be new: it must be at least 1.")
        self.sizes = np.array([size, *HIDDEN, OUTPUTS])
        count = parameter_count(self.sizes)
        self.target, self.predictor = (self.drawn(seeds, count, start) for start in (0, count))
        self.mean, self.square = (np.zeros_like(self.target) for _ in range(2))
        self.steps = 0

    def drawn(self, seeds: list[int], count: int, start: int) -> np.ndarray:
        """Uniform within ±√(3 / inputs): outputs keep the spread of inputs."""
        draws = [uniform(key(seed, Purpose.NOVELTY), start + np.arange(count)) for seed in seeds]
        layers = pairwise(self.sizes.tolist())
        scale = [np.full((into + 1) * out, np.sqrt(3 / into)) for into, out in layers]
        return ((2 * np.array(draws) - 1) * np.concatenate(scale)).astype(np.float32)

    def train(self, z: np.ndarray) -> np.ndarray:
        """One step on visited states [M, B, D]; the mean novelty before it, [M]."""
        self.steps += 1
        flat = torch.from_numpy(self.predictor).clone().requires_grad_()
        states, targets = torch.from_numpy(z.astype(np.float32)), torch.from_numpy(self.target)
        errors = [
            mlp_of(own, self.sizes, TANH, state) - mlp_of(target, self.sizes, TANH, state)
            for own, target, state in zip(flat, targets, states, strict=True)
        ]
        losses = torch.stack([error.square().mean() for error in errors])
        losses.sum().backward()
        assert flat.grad is not None
        mean, square = torch.from_numpy(self.mean), torch.from_numpy(self.square)
        adam(torch.from_numpy(self.predictor), flat.grad, mean, square, self.steps, LR, EPS)
        return losses.detach().double().numpy()

    def state(self) -> dict[str, np.ndarray]:
        """The targets are drawn again from the seeds."""
        return {
            "predictor": self.predictor,
            "mean": self.mean,
            "square": self.square,
            "steps": np.array(self.steps),
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        if state["predictor"].shape != self.predictor.shape:
            raise ConfigError(
                "novelty",
                f"was saved as {state['predictor'].shape} and is {self.predictor.shape} here.",
            )
        self.predictor, self.mean, self.square = (
            state[k].copy() for k in ("predictor", "mean", "square")
        )
        self.steps = int(state["steps"])
