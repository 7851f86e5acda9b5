"""A Dict observation of 20 keys into one normalised float32 array, against key by key in torch and
in NumPy.

Key by key is what people write: as_tensor, reshape, float, subtract the mean, divide by the
standard deviation, clip, and cat at the end. The standard deviations lie ready there, as ours do.
Ours also refuses what is not finite; the others do not look. With `learn` both sides take the batch
into the running mean and variance first. Equality is checked on the inputs timed.
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from measure import row

from tenfold.core.system import set_threads
from tenfold.ops.moments import CLIP, EPSILON, RunningNorm
from tenfold.ops.observations import FlattenPlan

SHAPES = (
    (3,),
    (4,),
    (),
    (2, 2),
    (1,),
    (6,),
    (3,),
    (),
    (5,),
    (2, 3),
    (1,),
    (8,),
    (2,),
    (3,),
    (4,),
    (),
    (7,),
    (3, 3),
    (2,),
    (10,),
)
WIDE, WHOLE = (3, 9, 15), (5, 12)  # keys that are float64, and whole numbers
TOLERANCE = 1e-5


def stacked(observations: list[Any]) -> Any:
    """Observations as one whose leaves have the batch in front."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: stacked([o[key] for o in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked([o[i] for o in observations]) for i in range(len(first)))
    return np.stack(observations)


def keys_of(batch: int) -> tuple[gym.spaces.Dict, list[dict[str, np.ndarray]]]:
    """Twenty keys of assorted small shapes, mostly float32; `batch` observations of them."""
    dtypes = [
        np.float64 if i in WIDE else np.int64 if i in WHOLE else np.float32
        for i in range(len(SHAPES))
    ]
    space = gym.spaces.Dict(
        {
            f"key{i}": gym.spaces.Box(-9, 9, shape, dtype)
            for i, (shape, dtype) in enumerate(zip(SHAPES, dtypes, strict=True))
        }
    )
    space.seed(0)
    return space, [space.sample() for _ in range(batch)]


class TorchByKey:
    """Running moments per key, as tensors."""

    def __init__(self, plan: FlattenPlan, norm: RunningNorm) -> None:
        self.count = float(norm.count[0])
        part = {leaf.path[0]: slice(leaf.column, leaf.column + leaf.size) for leaf in plan.leaves}
        self.mean = {key: torch.from_numpy(norm.mean[at]).float() for key, at in part.items()}
        self.m2 = {key: torch.from_numpy(norm.m2[at]).float() for key, at in part.items()}
        self.std = {key: torch.sqrt(m2 / self.count + EPSILON) for key, m2 in self.m2.items()}

    def flat(self, observation: dict[str, np.ndarray], batch: int) -> torch.Tensor:
        parts = []
        for key, mean in self.mean.items():
            x = torch.as_tensor(observation[key]).reshape(batch, -1).float()
            parts.append(((x - mean) / self.std[key]).clamp(-CLIP, CLIP))
        return torch.cat(parts, dim=1)

    def learn(self, observation: dict[str, np.ndarray], batch: int) -> torch.Tensor:
        total = self.count + batch
        for key, mean in self.mean.items():
            x = torch.as_tensor(observation[key]).reshape(batch, -1).float()
            own = x.mean(0)
            delta = own - mean
            self.mean[key] = mean + delta * (batch / total)
            self.m2[key] = (
                self.m2[key] + ((x - own) ** 2).sum(0) + delta**2 * (self.count * batch / total)
            )
            self.std[key] = torch.sqrt(self.m2[key] / total + EPSILON)
        self.count = total
        return self.flat(observation, batch)


class NumpyByKey:
    """The same in NumPy."""

    def __init__(self, plan: FlattenPlan, norm: RunningNorm) -> None:
        part = {leaf.path[0]: slice(leaf.column, leaf.column + leaf.size) for leaf in plan.leaves}
        self.mean = {key: norm.mean[at].astype(np.float32) for key, at in part.items()}
        self.std = {
            key: np.sqrt(norm.variance[at] + EPSILON).astype(np.float32) for key, at in part.items()
        }

    def flat(self, observation: dict[str, np.ndarray], batch: int) -> np.ndarray:
        parts = []
        for key, mean in self.mean.items():
            x = np.asarray(observation[key]).reshape(batch, -1).astype(np.float32)
            parts.append(np.clip((x - mean) / self.std[key], -CLIP, CLIP))
        return np.concatenate(parts, axis=1)


def compare(
    work: str, batch: int, baseline: str, theirs: Callable[[], Any], ours: Callable[[], np.ndarray]
) -> dict[str, Any]:
    difference = float(np.abs(np.asarray(theirs()) - ours()).max())
    return row(
        "observations",
        {"keys": len(SHAPES), "batch": batch, "work": work},
        (baseline, theirs),
        ("one pass", ours),
        difference < TOLERANCE,
        difference,
    )


def rows_of(batch: int) -> list[dict[str, Any]]:
    space, observations = keys_of(batch)
    plan, together = FlattenPlan(space), stacked(observations)
    norm, out = RunningNorm(plan.size), np.zeros((batch, plan.size), np.float32)
    norm.update(
        plan.flatten([space.sample() for _ in range(1000)], np.zeros((1000, plan.size), np.float32))
    )
    in_torch, learning_torch, in_numpy = (
        TorchByKey(plan, norm),
        TorchByKey(plan, norm),
        NumpyByKey(plan, norm),
    )
    learner = RunningNorm(plan.size)
    learner.load_state(norm.state())

    def ours() -> np.ndarray:
        return plan.flatten(together, out, norm)

    return [
        compare(
            "flatten and normalise",
            batch,
            "torch, key by key",
            lambda: in_torch.flat(together, batch),
            ours,
        ),
        compare(
            "flatten and normalise",
            batch,
            "NumPy, key by key",
            lambda: in_numpy.flat(together, batch),
            ours,
        ),
        compare(
            "flatten and normalise a list",
            batch,
            "stack, then torch key by key",
            lambda: in_torch.flat(stacked(observations), batch),
            lambda: plan.flatten(observations, out, norm),
        ),
        compare(
            "flatten, update and normalise",
            batch,
            "torch, key by key",
            lambda: learning_torch.learn(together, batch),
            lambda: plan.flatten(together, out, learner, learn=True),
        ),
    ]


def one_pass() -> list[dict[str, Any]]:
    set_threads(1)
    return [found for batch in (1, 32) for found in rows_of(batch)]


NAMES = {"observations": one_pass}
