"""Policies of ten masked heads: acting, one-hot actions, constant tables, counterfactual baselines,
closed forms.

The opponents are what people write: a loop over heads, or a thread for each head. Both sides are
given the same inputs, and before timing their results are compared on them.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from measure import row
from torch import nn
from torch.distributions import Categorical, Normal

from tenfold.core.system import set_threads
from tenfold.integrations.masked.acting import act_on_observations
from tenfold.ops.advantages import counterfactual_baselines, counterfactual_values
from tenfold.ops.gaussian import entropy, kl
from tenfold.ops.head_tables import some_mask
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.mlp import RELU

HEADS, OPTIONS, WIDTH = 10, 8, 64
SIZES = (OPTIONS,) * HEADS
RAGGED = (3, 8, 5, 12, 2, 8, 9, 4, 16, 13)
DRAWS = 1_000  # of the Monte Carlo estimates


def setting(batch: int, **more: Any) -> dict[str, Any]:
    return {"heads": HEADS, "options": OPTIONS, "batch": batch, **more}


def apart(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(
        float((f.double() - e.double()).abs().max()) for f, e in zip(found, expected, strict=True)
    )


# acting


def from_uniform(policy: Categorical, uniform: torch.Tensor) -> torch.Tensor:
    return (policy.probs.cumsum(-1) <= uniform[:, None]).sum(-1)


def acting_row(batch: int) -> dict[str, Any]:
    """Features to actions and log-probabilities: a task for each head in a pool of threads, and the
    compiled form."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, OPTIONS) for _ in range(HEADS)]
    features, mask = (
        torch.from_numpy(rng.normal(size=(batch, WIDTH)).astype(np.float32)),
        some_mask(rng, SIZES, (batch,), False),
    )
    masks = [part.contiguous() for part in mask.split(OPTIONS, 1)]
    uniform = torch.from_numpy(rng.random((batch, HEADS)).astype(np.float32))
    pool = ThreadPoolExecutor(HEADS)

    def task(i: int, u: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            logits = layers[i](features).masked_fill(~masks[i], torch.finfo(torch.float32).min)
            policy = Categorical(logits=logits, validate_args=False)
            action = policy.sample() if u is None else from_uniform(policy, u)
            return action, policy.log_prob(action)

    def threads() -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(pool.map(task, range(HEADS)))

    heads, sizes = MaskedHeads(SIZES), np.array([WIDTH, HEADS * OPTIONS])
    flat = torch.cat(
        [layer.weight.detach().flatten() for layer in layers]
        + [layer.bias.detach() for layer in layers]
    ).numpy()
    x, allowed, u = features.numpy(), mask.numpy(), uniform.numpy()

    def compiled() -> tuple[np.ndarray, ...]:
        return act_on_observations(heads, flat, sizes, RELU, x, allowed, u)

    _, actions, log_prob = compiled()
    expected = [
        torch.stack(parts, 1)
        for parts in zip(*(task(i, uniform[:, i]) for i in range(HEADS)), strict=True)
    ]
    expected[1] = expected[1].sum(1)
    difference = apart([torch.from_numpy(actions), torch.from_numpy(log_prob)], expected)
    found = row(
        "masked-heads-acting",
        setting(batch, features=WIDTH),
        ("a thread a head", threads),
        ("compiled, one pass", compiled),
        difference < 1e-5,
        difference,
    )
    pool.shutdown()
    return found


# one-hot actions and constant tables


def one_hot_row(batch: int) -> dict[str, Any]:
    heads = MaskedHeads(SIZES)
    actions = torch.from_numpy(np.random.default_rng(0).integers(0, OPTIONS, (batch, HEADS)))

    def each() -> torch.Tensor:
        return torch.cat(
            [nn.functional.one_hot(actions[:, i], OPTIONS) for i in range(HEADS)], 1
        ).float()

    difference = apart([heads.one_hot(actions)], [each()])
    return row(
        "masked-heads-one-hot",
        setting(batch),
        ("one_hot of each head", each),
        ("one scatter", lambda: heads.one_hot(actions)),
        difference == 0,
        difference,
    )


def tables_row(batch: int) -> dict[str, Any]:
    """Ragged logits and masks brought to [B, C, n_max], forbidden options and padding at the
    minimum."""
    rng = np.random.default_rng(0)
    heads, widest = MaskedHeads(RAGGED), max(RAGGED)
    logits = torch.from_numpy(rng.normal(size=(batch, sum(RAGGED))).astype(np.float32))
    mask = some_mask(rng, RAGGED, (batch,), False)
    low = torch.finfo(torch.float32).min

    def rebuilt() -> torch.Tensor:
        padded, start = torch.full((batch, len(RAGGED), widest), low), 0
        for i, n in enumerate(RAGGED):
            index = torch.arange(start, start + n)
            own, allowed = logits[:, index], mask[:, index]
            if not allowed.any(-1).all():
                raise ValueError(f"component {i} has no allowed option")
            padded[:, i, :n] = own.masked_fill(~allowed, low)
            start += n
        return padded

    def once() -> torch.Tensor:
        return heads.padded_logits(logits, mask)

    difference = apart([once()], [rebuilt()])
    return row(
        "masked-heads-tables",
        setting(batch) | {"options": list(RAGGED)},
        ("index tables of each call", rebuilt),
        ("index tables made once", once),
        difference == 0,
        difference,
    )


# counterfactual baselines


def baselines_row(batch: int) -> dict[str, Any]:
    """A critic over trunk features and one-hot actions, two hidden layers."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    heads = MaskedHeads(SIZES)
    first = nn.Linear(WIDTH + heads.options, WIDTH)
    rest = nn.Sequential(
        nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, 1)
    )
    features, logits = (
        torch.from_numpy(rng.normal(size=(batch, n)).astype(np.float32))
        for n in (WIDTH, heads.options)
    )
    mask = some_mask(rng, SIZES, (batch,), False)
    actions = heads.sample(logits, mask, torch.from_numpy(rng.random((batch, HEADS))))

    @torch.no_grad()
    def each() -> torch.Tensor:
        values = []
        for i in range(HEADS):
            for option in range(OPTIONS):
                other = actions.clone()
                other[:, i] = option
                values.append(rest(first(torch.cat([features, heads.one_hot(other)], 1))))
        return counterfactual_baselines(heads, logits, torch.cat(values, 1), mask)

    @torch.no_grad()
    def broadcast() -> torch.Tensor:
        hidden = first(torch.cat([features, heads.one_hot(actions)], 1))
        values = counterfactual_values(heads, hidden, first.weight[:, WIDTH:], actions, rest)
        return counterfactual_baselines(heads, logits, values, mask)

    difference = apart([broadcast()], [each()])
    return row(
        "masked-heads-baselines",
        setting(batch, hidden=[WIDTH, WIDTH]),
        ("a critic call an alternative", each),
        ("one broadcast, in chunks", broadcast),
        difference < 1e-5,
        difference,
    )


# closed forms


def closed_row(
    batch: int, name: str, estimate: Callable[[], torch.Tensor], exact: Callable[[], torch.Tensor]
) -> dict[str, Any]:
    """Equal when the mean of twenty estimates lies within five standard errors of the closed
    form."""
    found = exact()
    trials = torch.stack([estimate() for _ in range(20)])
    difference = float((trials.mean(0) - found).abs().max())
    error = 5 * float(trials.std(0).max()) / 20**0.5
    return row(
        "closed-forms",
        setting(batch, work=name),
        (f"{DRAWS} draws", estimate),
        ("closed form", exact),
        difference < error,
        difference,
    )


def closed_rows(batch: int) -> list[dict[str, Any]]:
    set_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    heads = MaskedHeads(SIZES)
    old, new = (
        torch.from_numpy(rng.normal(size=(batch, heads.options)).astype(np.float32))
        for _ in range(2)
    )
    mask = some_mask(rng, SIZES, (batch,), False)
    shape = (batch, HEADS)
    mean, log_std, new_mean, new_log_std = (
        torch.from_numpy(0.5 * rng.normal(size=shape).astype(np.float32)) for _ in range(4)
    )

    def policy(logits: torch.Tensor) -> Categorical:
        return Categorical(
            logits=heads.masked_logits(logits, mask).view(*shape, OPTIONS), validate_args=False
        )

    def drawn(first: Any, second: Any) -> torch.Tensor:
        draws = first.sample((DRAWS,))
        return (first.log_prob(draws) - (second.log_prob(draws) if second else 0)).mean(0)

    gaussian, other = Normal(mean, log_std.exp()), Normal(new_mean, new_log_std.exp())
    works: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
        "entropy of the heads": (
            lambda: -drawn(policy(old), None),
            lambda: heads.entropy(old, mask),
        ),
        "divergence of the heads": (
            lambda: drawn(policy(old), policy(new)),
            lambda: heads.kl(old, new, mask),
        ),
        "entropy of a Gaussian": (lambda: -drawn(gaussian, None), lambda: entropy(log_std)),
        "divergence of Gaussians": (
            lambda: drawn(gaussian, other),
            lambda: kl(mean, log_std, new_mean, new_log_std),
        ),
    }
    return [closed_row(batch, name, *work) for name, work in works.items()]


def table(
    work: Callable[[int], dict[str, Any]], *batches: int
) -> Callable[[], list[dict[str, Any]]]:
    def rows() -> list[dict[str, Any]]:
        set_threads(1)
        return [work(batch) for batch in batches]

    return rows


NAMES = {
    "masked-heads-acting": table(acting_row, 1, 32, 512),
    "masked-heads-one-hot": table(one_hot_row, 512),
    "masked-heads-tables": table(tables_row, 32),
    "masked-heads-baselines": table(baselines_row, 32, 256),
    "closed-forms": lambda: closed_rows(32),
}
