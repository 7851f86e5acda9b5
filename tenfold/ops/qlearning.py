"""The equations of Q-learning. Values are [..., B, A, N]: batch, actions, N atoms of the return (N
= 1 is the mean).

Members, if any, are further leading dimensions. The references do one item at a time, as the papers
write them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import pair

SHAPES = ((1, 2, 1), (5, 3, 1), (4, 1, 6), (7, 4, 3))  # B, A, N
STACKED = (2, 5, 3, 4)  # M, B, A, N


def tensor(rng: np.random.Generator, dtype: str, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.normal(size=shape).astype(dtype))


def dueling_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b, a, n in SHAPES:
        yield (tensor(rng, dtype, b, 1 + a, n),)
    yield (tensor(rng, dtype, 2, 5, 4, 3),)


def dueling_reference(outputs):
    rows = outputs.reshape(-1, *outputs.shape[-2:])
    joined = [
        torch.stack(
            [row[0] + row[1 + a] - sum(row[1:]) / (len(row) - 1) for a in range(len(row) - 1)]
        )
        for row in rows
    ]
    return torch.stack(joined).view(*outputs.shape[:-2], -1, outputs.shape[-1])


@pair(
    dueling_reference,
    dueling_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0,),
)
def dueling(outputs: torch.Tensor) -> torch.Tensor:
    """Q(s, a) = V(s) + A(s, a) − mean_a A(s, a), from outputs [..., 1 + A, N] (Wang et al.,
    2016)."""
    value, advantage = outputs[..., :1, :], outputs[..., 1:, :]
    return value + advantage - advantage.mean(dim=-2, keepdim=True)


def action_atoms_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *lead, a, n in (*SHAPES, STACKED):
        yield tensor(rng, dtype, *lead, a, n), torch.from_numpy(rng.integers(0, a, lead))


def action_atoms_reference(values, action):
    if action.dim() > 1:
        return torch.stack(
            [action_atoms_reference(*member) for member in zip(values, action, strict=True)]
        )
    return torch.stack([values[b, int(a)] for b, a in enumerate(action)])


@pair(action_atoms_reference, action_atoms_examples, dtypes=("float32", "float64"), gradients=(0,))
def action_atoms(values: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The atoms [..., B, N] of the actions [..., B] that were taken."""
    index = action[..., None, None].expand(*action.shape, 1, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)


def among(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Values [..., A] with −∞ for actions that a mask forbids."""
    return values if mask is None else values.where(mask, -torch.inf)


def bootstrap_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *lead, a, n in (*SHAPES, STACKED):
        discount = torch.from_numpy((0.9 * rng.integers(0, 2, lead)).astype(dtype))
        tensors = (
            tensor(rng, dtype, *lead),
            discount,
            tensor(rng, dtype, *lead, a, n),
            tensor(rng, dtype, *lead, a, n),
        )
        yield *tensors, None
        yield *tensors, torch.from_numpy(rng.random((*lead, a)) < 0.5)


def bootstrap_reference(reward, discount, next_values, chooser, next_mask):
    if reward.dim() > 1:
        masks = [None] * len(reward) if next_mask is None else next_mask
        members = zip(reward, discount, next_values, chooser, masks, strict=True)
        return torch.stack([bootstrap_reference(*member) for member in members])
    rows, actions = [], chooser.shape[1]
    for b in range(len(reward)):
        # where nothing is allowed, which is at an episode's end, it does not matter
        allowed = [a for a in range(actions) if next_mask is None or next_mask[b, a]] or [0]
        best = max(allowed, key=lambda a: float(chooser[b, a].sum()))
        rows.append(reward[b] + discount[b] * next_values[b, best])
    return torch.stack(rows)


@pair(bootstrap_reference, bootstrap_examples, rtol=1e-6, atol=1e-7, dtypes=("float32", "float64"))
@torch.no_grad()
def bootstrap(
    reward: torch.Tensor,
    discount: torch.Tensor,
    next_values: torch.Tensor,
    chooser: torch.Tensor,
    next_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Target atoms y = R + discount·Q'(s', argmax_a Σ chooser(s', a)), [..., B, N], without
    gradient.

    `chooser` is the target network's own values, or the online network's (double Q-learning, van
    Hasselt et al., 2016). The best action is one that `next_mask` [..., B, A] allows in s'.
    """
    best = among(chooser.sum(-1), next_mask).argmax(-1)
    return reward[..., None] + discount[..., None] * action_atoms(next_values, best)


def loss_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *lead, _, n in (*SHAPES, STACKED):
        yield 2 * tensor(rng, dtype, *lead, n), tensor(rng, dtype, *lead, n), "huber", None
        yield 2 * tensor(rng, dtype, *lead, n), tensor(rng, dtype, *lead, n), "mse", None
        drawn = torch.from_numpy(rng.random((*lead, n)).astype(dtype))
        yield 2 * tensor(rng, dtype, *lead, n), tensor(rng, dtype, *lead, n + 2), "mse", drawn


def item_loss_reference(predicted, target, kind, fractions):
    """N = 1: squared error or Huber (½e² inside ±1, |e| − ½ outside). N > 1: Σ_i mean_j |τ_i −
    1{u<0}|·Huber(u), u = y_j − θ_i, τ_i = (i + ½)/N (Dabney et al., 2018); with fractions this for
    any N, and τ_i is the item's own."""
    if predicted.dim() > 2:
        member_fractions = [None] * len(predicted) if fractions is None else fractions
        members = zip(predicted, target, member_fractions, strict=True)
        return torch.stack([item_loss_reference(p, y, kind, f) for p, y, f in members])
    losses, n, targets = [], predicted.shape[1], target.shape[1]
    for b in range(len(predicted)):
        total = predicted.new_zeros(())
        for i in range(n):
            level = (i + 0.5) / n if fractions is None else float(fractions[b, i])
            for j in range(targets):
                u = target[b, j] - predicted[b, i]
                size = abs(float(u.detach()))
                huber = 0.5 * u * u if size <= 1 else abs(u) - 0.5
                if n == 1 and fractions is None:
                    total = total + (u * u if kind == "mse" else huber)
                else:
                    total = total + abs(level - float(u.detach() < 0)) * huber / targets
        losses.append(total)
    return torch.stack(losses)


@pair(
    item_loss_reference,
    loss_examples,
    rtol=2e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0,),
)
def item_loss(
    predicted: torch.Tensor, target: torch.Tensor, kind: str, fractions: torch.Tensor | None = None
) -> torch.Tensor:
    """The loss of each item, [..., B], from predicted atoms [..., B, N] and target atoms [..., B,
    N']. Weighting and mean come after. `fractions` [..., B, N] are those the atoms were asked for;
    without them N atoms stand at the midpoints."""
    n = predicted.shape[-1]
    if n == 1 and fractions is None:
        error = (target - predicted).squeeze(-1)
        return error.square() if kind == "mse" else huber(error)
    error = target[..., None, :] - predicted[..., :, None]
    level = midpoints(n, predicted) if fractions is None else fractions
    return (
        ((level[..., None] - (error.detach() < 0).to(predicted.dtype)).abs() * huber(error))
        .mean(-1)
        .sum(-1)
    )


def huber(error: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")


def midpoints(n: int, like: torch.Tensor) -> torch.Tensor:
    """The fractions (i + ½)/n in the middle of n equal parts."""
    return (torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n


def td_items(
    batch: dict[str, torch.Tensor],
    values: torch.Tensor,
    next_values: torch.Tensor,
    chooser: torch.Tensor,
    kind: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weighted loss, TD error, Q of the action taken) of every item, [..., B], from the networks'
    values [..., B, A, N].

    The TD error is the difference of means, whatever the distribution. Only the first of the three
    has a gradient.
    """
    predicted = action_atoms(values, batch["action"])
    target = bootstrap(
        batch["reward"], batch["discount"], next_values, chooser, batch.get("next_mask")
    )
    q = predicted.detach().mean(-1)
    return (
        batch["weight"] * item_loss(predicted, target, kind, batch.get("fractions")),
        target.mean(-1) - q,
        q,
    )


# the return's distribution as probabilities of fixed values (C51; Bellemare et al., 2017): outputs
# are logits [..., B, A, N] of N atoms z_i = low + i·Δ, Δ = (high − low) / (N − 1)

LEAST = 1e-30  # of a probability whose logarithm is taken


def atoms_of(n: int, low: float, high: float, like: torch.Tensor) -> torch.Tensor:
    """z_0 … z_{n−1}."""
    return torch.linspace(low, high, n, dtype=like.dtype, device=like.device)


def categorical_mean(logits: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Σ_i p_i z_i: [..., N] -> [...]."""
    return logits.softmax(-1) @ atoms_of(logits.shape[-1], low, high, logits)


def project_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, n, low, high in (
        ((1,), 2, -1.0, 1.0),
        ((6,), 5, 0.0, 3.0),
        ((2, 7), 51, -10.0, 10.0),
    ):
        discount = torch.from_numpy((0.9 * rng.integers(0, 2, lead)).astype(dtype))
        shifted = 0.5 * (high - low) * tensor(rng, dtype, *lead)
        yield shifted, discount, tensor(rng, dtype, *lead, n).softmax(-1), low, high


def project_reference(reward, discount, probabilities, low, high):
    """Atom by atom: T z_j = R + discount·z_j, cut at the ends, lies at b = (T z_j − low) / Δ; its
    mass goes to the atoms below and above b in the shares that b is near to them."""
    n = probabilities.shape[-1]
    delta = (high - low) / (n - 1)
    projected = torch.zeros_like(probabilities)
    for item in np.ndindex(*reward.shape):
        for j in range(n):
            moved = float(reward[item]) + float(discount[item]) * (low + j * delta)
            b = min(max((min(max(moved, low), high) - low) / delta, 0.0), n - 1.0)
            below = int(b)
            above = min(below + 1, n - 1)
            projected[(*item, below)] += float(probabilities[(*item, j)]) * (1 - (b - below))
            projected[(*item, above)] += float(probabilities[(*item, j)]) * (b - below)
    return projected


@pair(project_reference, project_examples, rtol=1e-4, atol=1e-5, dtypes=("float32", "float64"))
@torch.no_grad()
def project(
    reward: torch.Tensor,
    discount: torch.Tensor,
    probabilities: torch.Tensor,
    low: float,
    high: float,
) -> torch.Tensor:
    """The distribution of R + discount·Z on Z's own atoms, [..., B, N]: an atom takes of every
    moved one the share 1 − distance / Δ."""
    n = probabilities.shape[-1]
    z = atoms_of(n, low, high, probabilities)
    moved = (reward[..., None] + discount[..., None] * z).clamp(low, high)
    position = (moved - low) * ((n - 1) / (high - low))
    share = 1 - (position[..., None] - torch.arange(n, dtype=z.dtype, device=z.device)).abs()
    return (probabilities[..., None, :] @ share.clamp(min=0)).squeeze(-2)


def categorical_items(
    batch: dict[str, torch.Tensor],
    values: torch.Tensor,
    next_values: torch.Tensor,
    chooser: torch.Tensor,
    low: float,
    high: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weighted loss, error, Q of the action taken) of every item, [..., B], from logits
    [..., B, A, N].

    The loss is the cross-entropy of the projected target and what was predicted; the error, by
    which priorities are set, that less the target's own entropy, their divergence. Only the first
    of the three has a gradient.
    """
    log_p = action_atoms(values, batch["action"]).log_softmax(-1)
    with torch.no_grad():
        best = among(categorical_mean(chooser, low, high), batch.get("next_mask")).argmax(-1)
        after = action_atoms(next_values, best).softmax(-1)
        target = project(batch["reward"], batch["discount"], after, low, high)
        entropy = -(target * target.clamp(min=LEAST).log()).sum(-1)
        q = log_p.exp() @ atoms_of(log_p.shape[-1], low, high, log_p)
    loss = -(target * log_p).sum(-1)
    return batch["weight"] * loss, (loss.detach() - entropy).clamp(min=0), q
