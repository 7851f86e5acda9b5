"""Policies of C components with n₁ … n_C options each, masked: all heads in one pass.

How options, masks and actions lie is said in `head_layout`. The references take one row and one
component at a time, and look at allowed options only.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.distributions import Categorical, kl_divergence

from tenfold.core.pairs import pair
from tenfold.core.random import RandomSource
from tenfold.ops.device import on_gpu
from tenfold.ops.head_layout import HeadLayout
from tenfold.ops.head_tables import cases, describe_first

# examples and references


def policies(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Heads, logits and mask."""
    yield from cases(rng, dtype, MaskedHeads)


def actions_for(
    rng: np.random.Generator, heads: "MaskedHeads", logits: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    return heads.sample(
        logits, mask, torch.from_numpy(rng.random((*logits.shape[:-1], heads.count)))
    )


def log_prob_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in policies(rng, dtype):
        yield heads, logits, actions_for(rng, heads, logits, mask), mask


def kl_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in policies(rng, dtype):
        yield (
            heads,
            logits,
            logits + torch.from_numpy(rng.normal(size=logits.shape)).to(logits.dtype),
            mask,
        )


def sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in policies(rng, dtype):
        yield heads, logits, mask, torch.from_numpy(rng.random((*logits.shape[:-1], heads.count)))


def choices(
    heads: "MaskedHeads", logits: torch.Tensor, mask: torch.Tensor | None
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Row by row, component by component: its allowed options and their logits. An empty component
    is absent, without any, or is left its no-op."""
    offsets, fallback, absent = heads.tables
    allowed = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
    for row, permitted in zip(
        logits.reshape(-1, heads.options), allowed.reshape(-1, heads.options), strict=True
    ):
        for i in range(heads.count):
            part = row[offsets[i] : offsets[i + 1]]
            options = permitted[offsets[i] : offsets[i + 1]].nonzero().flatten().tolist()
            if not options and not absent:
                options = [int(fallback[i])]
            yield options, part[options]


def per_component(
    heads: "MaskedHeads",
    logits: torch.Tensor,
    mask: torch.Tensor | None,
    value: Callable[[int, list[int], torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The value of each (number, options, their logits), 0 where a component is absent."""
    values = [
        value(k, *choice) if choice[0] else logits.new_zeros(())
        for k, choice in enumerate(choices(heads, logits, mask))
    ]
    return torch.stack(values).view(*logits.shape[:-1], heads.count)


def log_softmax_reference(heads, logits, mask):
    low = torch.finfo(logits.dtype).min
    log_probs = []
    for k, (options, allowed_logits) in enumerate(choices(heads, logits, mask)):
        i = k % heads.count
        part = logits.new_full((int(np.diff(heads.tables.offsets)[i]),), low)
        log_probs.append(
            part.index_put(
                (torch.tensor(options or [0]),),
                allowed_logits.log_softmax(0) if options else part.new_zeros(1),
            )
        )
    return torch.cat(log_probs).view(logits.shape) + 0 * logits


def log_prob_reference(heads, logits, actions, mask):
    def value(k, options, allowed_logits):
        position = options.index(int(actions.flatten()[k]))
        return Categorical(logits=allowed_logits).log_prob(torch.tensor(position))

    return per_component(heads, logits, mask, value) + 0 * logits.sum()


def entropy_reference(heads, logits, mask):
    return per_component(heads, logits, mask, lambda k, o, x: Categorical(logits=x).entropy())


def kl_reference(heads, old_logits, new_logits, mask):
    new = list(choices(heads, new_logits, mask))

    def value(k, options, allowed_logits):
        return kl_divergence(Categorical(logits=allowed_logits), Categorical(logits=new[k][1]))

    return per_component(heads, old_logits, mask, value)


def sample_reference(heads, logits, mask, uniform):
    """The first option at which Σ π exceeds u."""

    def value(k, options, x):
        reached = x.double().softmax(0).cumsum(0) > float(uniform.flatten()[k])
        return x.new_tensor(options[int(reached.int().argmax()) if reached.any() else -1])

    return per_component(heads, logits, mask, value).long()


def mode_reference(heads, logits, mask):
    return per_component(
        heads, logits, mask, lambda k, options, x: x.new_tensor(options[x.argmax()])
    ).long()


# all heads at once


def in_one_launch(heads: "MaskedHeads", logits: torch.Tensor) -> Any:
    """The Triton form for these logits, on a GPU; else None."""
    if not on_gpu(logits):
        return None
    form = import_module("tenfold.ops.device.heads")
    return form if form.fits(heads, logits) else None


EQUAL = {"rtol": 2e-5, "atol": 5e-6, "dtypes": ("float32", "float64")}


class MaskedHeads(HeadLayout):
    """A policy over C components of given sizes, masked; logits and masks are (..., M), the options
    of all side by side.

        heads = MaskedHeads([3, 5])                          # two components, M = 8
        actions = heads.sample(logits, mask)                 # (..., 2); mask is True where an
        option is allowed
        log_p = heads.log_prob(logits, actions, mask)        # (..., 2), one of each component;
        heads.joint(log_p) is their sum entropy, best = heads.entropy(logits, mask),
        heads.mode(logits, mask)

    A component with every option masked is an error (`on_empty="raise"`), no part of the action
    ("absent": log-probability and entropy 0, no gradient), or does its no-op (an option's index).
    `check=False` leaves out the search for bad values.
    """

    def log_probs(
        self, logits: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """log π as (..., C, n_max), forbidden options and padding at the finite minimum; and what
        was empty, (..., C)."""
        shaped, empty = self.shaped(logits, mask)
        return shaped.log_softmax(-1).clamp_min(torch.finfo(shaped.dtype).min), empty

    @pair(log_softmax_reference, policies, gradients=(1,), **EQUAL)
    def log_softmax(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """log π of every option, (..., M), normalised within each component."""
        return self.flat(self.log_probs(logits, mask)[0])

    def gather_actions(
        self, log_probs: torch.Tensor, empty: torch.Tensor | None, actions: torch.Tensor
    ) -> torch.Tensor:
        gathered = log_probs.gather(-1, actions[..., None]).squeeze(-1)
        return (
            gathered if empty is None or not self.tables.absent else gathered.masked_fill(empty, 0)
        )

    @pair(log_prob_reference, log_prob_examples, gradients=(1,), **EQUAL)
    def log_prob(
        self, logits: torch.Tensor, actions: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """log π(aᵢ) of each component, (..., C). That of a forbidden action is the finite
        minimum."""
        if fast := in_one_launch(self, logits):
            return fast.evaluate(self, logits, actions, mask)[0]
        self.check_actions(actions)
        return self.gather_actions(*self.log_probs(logits, mask), actions)

    @staticmethod
    def joint(per_component: torch.Tensor) -> torch.Tensor:
        """Of the whole action, (...): the sum over components, kept finite."""
        return per_component.sum(-1).clamp_min(torch.finfo(per_component.dtype).min)

    @pair(entropy_reference, policies, gradients=(1,), **EQUAL)
    def entropy(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """−Σ π log π over the allowed options of each component, (..., C)."""
        if fast := in_one_launch(self, logits):
            return fast.evaluate(self, logits, None, mask)[1]
        log_probs, _ = self.log_probs(logits, mask)
        return -(log_probs.exp() * log_probs).sum(-1)

    def evaluate(
        self, logits: torch.Tensor, actions: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`log_prob` and `entropy` from one softmax: what a policy-gradient loss needs."""
        if fast := in_one_launch(self, logits):
            return fast.evaluate(self, logits, actions, mask)
        self.check_actions(actions)
        log_probs, empty = self.log_probs(logits, mask)
        return self.gather_actions(log_probs, empty, actions), -(log_probs.exp() * log_probs).sum(
            -1
        )

    @pair(kl_reference, kl_examples, gradients=(1, 2), **EQUAL)
    def kl(
        self, old_logits: torch.Tensor, new_logits: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """KL(old ‖ new) of each component, (..., C), the same mask on both sides."""
        old, new = self.log_probs(old_logits, mask)[0], self.log_probs(new_logits, mask)[0]
        return (old.exp() * (old - new)).sum(-1)

    @pair(mode_reference, policies, dtypes=("float32", "float64"))
    @torch.no_grad()
    def mode(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The most probable allowed option of each component, (..., C); the first of equals."""
        return self.log_probs(logits, mask)[0].argmax(-1)

    @pair(sample_reference, sample_examples, dtypes=("float32", "float64"))
    @torch.no_grad()
    def sample(
        self,
        logits: torch.Tensor,
        mask: torch.Tensor | None = None,
        uniform: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Actions (..., C): the first option at which Σ π exceeds u, from `uniform` (..., C) or
        torch's generator."""
        if fast := in_one_launch(self, logits):
            return fast.draw(self, logits, mask, uniform, generator)[0]
        return self.drawn(self.log_probs(logits, mask)[0], uniform, generator)

    @torch.no_grad()
    def act(
        self,
        logits: torch.Tensor,
        mask: torch.Tensor | None = None,
        uniform: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`sample` and the `log_prob` of what was drawn, from one softmax."""
        if fast := in_one_launch(self, logits):
            return fast.draw(self, logits, mask, uniform, generator)[:2]
        log_probs, empty = self.log_probs(logits, mask)
        actions = self.drawn(log_probs, uniform, generator)
        return actions, self.gather_actions(log_probs, empty, actions)

    def drawn(
        self,
        log_probs: torch.Tensor,
        uniform: torch.Tensor | None,
        generator: torch.Generator | None,
    ) -> torch.Tensor:
        """An option without probability is never at a step of the sum, and the last step is always
        reached: whatever u is and however the sum was rounded, what is drawn has positive
        probability."""
        rows = log_probs.shape[:-1]
        if uniform is None:
            uniform = torch.rand(
                rows, generator=generator, dtype=log_probs.dtype, device=log_probs.device
            )
        elif uniform.shape != rows:
            raise ValueError(f"uniform must be {tuple(rows)}; it is {tuple(uniform.shape)}")
        elif self.check and (strange := ~((uniform >= 0) & (uniform <= 1))).any():
            raise ValueError(f"{describe_first(strange)} was given a uniform number outside 0 … 1")
        weight = log_probs.exp()
        steps = weight.cumsum(-1).masked_fill_(weight <= 0, -1)
        top = steps.amax(-1, keepdim=True)
        reached = (steps > uniform.to(top.dtype)[..., None] * top) | (steps >= top)
        return reached.to(torch.uint8).argmax(-1)


def categorical_sample(logits: torch.Tensor, draw: RandomSource | None) -> torch.Tensor:
    """Options [B] drawn with softmax probabilities of logits [B, n]; without `draw` the most
    probable ones."""
    if draw is None:
        return logits.argmax(-1)
    cumulative = logits.softmax(-1).cumsum(-1)
    exceeds = (cumulative > draw.uniform() * cumulative[:, -1:]).to(torch.uint8)
    return exceeds.argmax(-1)


def categorical_log_prob(logits: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """log π(a) for options [...] under logits [..., n]."""
    return logits.log_softmax(-1).gather(-1, action[..., None])[..., 0]


def categorical_entropy(logits: torch.Tensor) -> torch.Tensor:
    """−Σ π log π for logits [..., n]."""
    log_prob = logits.log_softmax(-1)
    return -(log_prob.exp() * log_prob).sum(-1)
