"""Advantages of a policy: of a finished rollout, of rewards in named components, and counterfactual
ones of a policy with many heads.

The estimate is linear in rewards and values, so the components' advantages, weighted like their
rewards, add up to the advantage of the total under the weighted sum of their values.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.head_layout import one_hot_reference
from tenfold.ops.heads import EQUAL, MaskedHeads, actions_for, choices, policies
from tenfold.ops.returns import gae_into, gae_reference
from tenfold.ops.rollouts import episode_edges

# of a finished rollout


def finish_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for t, b, normalize in ((1, 1, False), (1, 3, True), (17, 5, True), (128, 8, False)):
        reward, value, next_value = (rng.normal(size=(t, b)).astype(np.float32) for _ in range(3))
        terminated, truncated, skipped = rng.random((3, t, b)) < 0.15
        discount, boundary, weight = episode_edges(terminated, truncated, skipped, 0.97)
        weight[0, 0] = 1
        yield (
            reward,
            discount,
            value,
            next_value,
            boundary,
            weight,
            rng.normal(size=b).astype(np.float32),
            0.9,
            normalize,
            np.zeros((t, b), np.float32),
            np.zeros((t, b), np.float32),
        )


def finish_rollout_reference(
    reward,
    discount,
    value,
    next_value,
    boundary,
    weight,
    last_value,
    lam,
    normalize,
    advantage,
    target,
):
    """GAE where next_value is that of the next row within an episode; target = A + V; A ← (A −
    mean) / (deviation + 1e-8)."""
    follow = np.concatenate([value[1:], last_value[None]])
    next_value[:] = np.where(boundary > 0, next_value, follow)
    advantage[:] = gae_reference(reward, discount, value, next_value, boundary, lam)
    target[:] = advantage + value
    if normalize:
        mean = np.average(advantage.astype(np.float64), weights=weight)
        deviation = np.sqrt(np.average((advantage.astype(np.float64) - mean) ** 2, weights=weight))
        advantage[:] = (advantage - mean) / (deviation + 1e-8)
    return next_value, advantage, target


@pair(finish_rollout_reference, finish_examples, rtol=1e-4, atol=1e-4)
@kernel
def finish_rollout(
    reward,
    discount,
    value,
    next_value,
    boundary,
    weight,
    last_value,
    lam,
    normalize,
    advantage,
    target,
):
    steps, rows = reward.shape
    for t in range(steps):
        for b in range(rows):
            if boundary[t, b] == 0:
                next_value[t, b] = value[t + 1, b] if t + 1 < steps else last_value[b]
    gae_into(reward, discount, value, next_value, boundary, lam, advantage)
    total = mean = square = 0.0
    for t in range(steps):
        for b in range(rows):
            target[t, b] = advantage[t, b] + value[t, b]
            total += weight[t, b]
            mean += weight[t, b] * advantage[t, b]
    total = max(total, 1.0)  # every row may be one that is no transition
    mean /= total
    for t in range(steps):
        for b in range(rows):
            square += weight[t, b] * (advantage[t, b] - mean) ** 2
    scale = 1 / (np.sqrt(square / total) + 1e-8)
    if normalize:
        for t in range(steps):
            for b in range(rows):
                advantage[t, b] = (advantage[t, b] - mean) * scale
    return next_value, advantage, target


# one value and one advantage for each component


def component_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for t, b, c in ((1, 1, 1), (1, 3, 4), (17, 5, 11), (64, 8, 3)):
        reward, value, next_value = (rng.normal(size=(t, b, c)).astype(dtype) for _ in range(3))
        terminated, truncated, skipped = rng.random((3, t, b)) < 0.15
        discount, boundary, _ = (
            edge.astype(dtype) for edge in episode_edges(terminated, truncated, skipped, 0.97)
        )
        for lam in (0.0, 0.95, 1.0):
            yield (
                reward,
                discount,
                value,
                next_value,
                boundary,
                rng.normal(size=(b, c)).astype(dtype),
                lam,
                np.zeros((t, b, c), dtype),
            )


def gae_components_reference(reward, discount, value, next_value, boundary, last_value, lam, out):
    """GAE of one component after another. Within an episode the next value is that of the next
    row."""
    follow = np.concatenate([value[1:], last_value[None]])
    next_value[:] = np.where(boundary[..., None] > 0, next_value, follow)
    for c in range(reward.shape[-1]):
        out[..., c] = gae_reference(
            reward[..., c], discount, value[..., c], next_value[..., c], boundary, lam
        )
    return next_value, out


@pair(
    gae_components_reference,
    component_examples,
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
@kernel
def gae_components(reward, discount, value, next_value, boundary, last_value, lam, out):
    """Advantages [T, B, C] into `out`; discount and boundary [T, B] are the same for all
    components."""
    steps, rows, columns = reward.shape
    for t in range(steps - 1, -1, -1):
        for b in range(rows):
            ended = boundary[t, b] > 0
            for c in range(columns):
                if not ended:
                    next_value[t, b, c] = value[t + 1, b, c] if t + 1 < steps else last_value[b, c]
                running = out[t + 1, b, c] if t + 1 < steps and not ended else out.dtype.type(0)
                delta = reward[t, b, c] + discount[t, b] * next_value[t, b, c] - value[t, b, c]
                out[t, b, c] = delta + lam * discount[t, b] * running
    return next_value, out


# counterfactual: Q(s, a) less a baseline for each component, the value of all its alternatives
# while the other components stay as they were (Foerster et al., 2018)

Rest = Callable[[torch.Tensor], torch.Tensor]
# pre-activations of alternatives worked on at a time: 1 MB, a second-level cache
CHUNK_NUMBERS = 1 << 18


def counterfactual_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """A critic of two hidden layers; all components learn, or some, or some in each row."""
    for k, (heads, logits, mask) in enumerate(policies(rng, dtype)):
        width, rows = 7 + k, logits.shape[:-1]
        matrix = [
            torch.from_numpy(rng.normal(size=s) / 3).to(logits.dtype)
            for s in ((width, heads.options), (5, width), (1, 5))
        ]
        actions = actions_for(rng, heads, logits, mask)
        state = torch.from_numpy(rng.normal(size=(*rows, width))).to(logits.dtype)
        hidden = state + one_hot_reference(heads, actions, logits.dtype) @ matrix[0].T

        def rest(
            x: torch.Tensor, second: torch.Tensor = matrix[1], third: torch.Tensor = matrix[2]
        ) -> torch.Tensor:
            return torch.tanh(x.tanh() @ second.T) @ third.T

        learns = (None, rng.random(heads.count) < 0.5, rng.random((*rows, heads.count)) < 0.5)[
            k % 3
        ]
        yield (
            heads,
            hidden,
            matrix[0],
            actions,
            rest,
            None if learns is None else torch.from_numpy(learns),
        )


def counterfactual_reference(heads, hidden, weight, actions, rest, learns):
    """One call of the critic for each alternative: the first layer again, with one component's
    one-hot exchanged."""
    state = hidden - one_hot_reference(heads, actions, hidden.dtype) @ weight.T
    columns = []
    for i, n in enumerate(np.diff(heads.tables.offsets).tolist()):
        for option in range(n):
            other = actions.clone()
            other[..., i] = option
            if learns is not None:
                other = torch.where(learns[..., i, None], other, actions)
            x = state + one_hot_reference(heads, other, hidden.dtype) @ weight.T
            columns.append(rest(x.view(-1, x.shape[-1])).view(x.shape[:-1]))
    return torch.stack(columns, -1)


def baselines_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in policies(rng, dtype):
        yield heads, logits, torch.from_numpy(rng.normal(size=logits.shape)).to(logits.dtype), mask


def baselines_reference(heads, logits, values, mask):
    offsets, expected = heads.tables.offsets, []
    for k, (options, allowed_logits) in enumerate(choices(heads, logits, mask)):
        row, i = divmod(k, heads.count)
        part = values.reshape(-1, heads.options)[row, offsets[i] : offsets[i + 1]]
        expected.append((allowed_logits.softmax(0) * part[options]).sum() if options else part[0])
    return torch.stack(expected).view(*logits.shape[:-1], heads.count).detach()


# all alternatives at once


@pair(
    counterfactual_reference,
    counterfactual_examples,
    **EQUAL,
)
@torch.no_grad()
def counterfactual_values(
    heads: MaskedHeads,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    actions: torch.Tensor,
    rest: Rest,
    learns: torch.Tensor | None = None,
) -> torch.Tensor:
    """Q(s, (a′, a₋ᵢ)) for every alternative a′ of every component i, (..., M), without
    gradient.

    `hidden` (..., H) is what the critic's first layer gives for (s, a), before its activation;
    `weight` (H, M) are that layer's columns for the one-hot actions; `rest` is what follows,
    (N, H) to (N,) or (N, 1). The layer is linear in the one-hot, so an alternative has h − W[i,
    aᵢ] + W[i, a′]. Alternatives of components that do not learn, (C,) or (..., C), are not
    evaluated: they count as what was done, Q(s, a), which makes their advantage 0.
    """
    heads.check_actions(actions)
    rows, table = hidden.reshape(-1, hidden.shape[-1]), weight.t().contiguous()
    option_index = actions.reshape(-1, heads.count) + heads.offsets
    if learns is None:
        values = every_alternative(heads, rows, table, option_index, rest)
    else:
        values = rest(rows).reshape(-1, 1).repeat(1, heads.options)
        learns = (
            learns.expand(*actions.shape).reshape(-1, heads.count).index_select(-1, heads.component)
        )
        row, option = learns.nonzero(as_tuple=True)
        for part in range(0, len(row), step := max(1, CHUNK_NUMBERS // rows.shape[1])):
            r, o = row[part : part + step], option[part : part + step]
            x = (
                rows.index_select(0, r)
                - table.index_select(0, option_index[r, heads.component[o]])
                + table.index_select(0, o)
            )
            values[r, o] = rest(x).flatten()
    return values.view(*actions.shape[:-1], heads.options)


def every_alternative(
    heads: MaskedHeads,
    rows: torch.Tensor,
    table: torch.Tensor,
    option_index: torch.Tensor,
    rest: Rest,
) -> torch.Tensor:
    """(B, M), a few rows at a time so that the pre-activations of their alternatives stay in
    cache."""
    count, width = rows.shape
    values = rows.new_empty(count, heads.options)
    for start in range(0, count, step := max(1, CHUNK_NUMBERS // (heads.options * width))):
        part = slice(start, start + step)
        without = rows[part, None] - nn.functional.embedding(option_index[part], table)
        if heads.equal:
            x = without[:, :, None] + table.view(heads.count, heads.widest, width)
        else:
            x = without.index_select(1, heads.component) + table
        values[part] = rest(x.view(-1, width)).view(-1, heads.options)
    return values


@pair(baselines_reference, baselines_examples, **EQUAL)
@torch.no_grad()
def counterfactual_baselines(
    heads: MaskedHeads, logits: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """bᵢ = Σ_a′ πᵢ(a′|s)·Q(s, (a′, a₋ᵢ)), (..., C), without gradient, from
    `counterfactual_values` (..., M)."""
    probability = heads.log_probs(logits, mask)[0].exp()
    return (probability * heads.padded(values)).sum(-1)


@torch.no_grad()
def counterfactual_advantages(
    value: torch.Tensor, baselines: torch.Tensor, learns: torch.Tensor | None = None
) -> torch.Tensor:
    """Aᵢ = Q(s, a) − bᵢ, (..., C), from Q(s, a) (...); 0 for components that do not learn."""
    advantages = value[..., None] - baselines
    return advantages if learns is None else advantages.masked_fill(~learns, 0)
