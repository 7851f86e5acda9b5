"""Actions of C components with n₁ … n_C options each, masked: all heads in one pass.

The M = Σ nᵢ options of all components lie side by side: logits and masks are [..., M], actions [..., C]. Equal components are a
reshape to [..., C, n]; ragged ones one gather to [..., C, n_max]. Which of the two is decided once, in the constructor.
Inside, a forbidden option is −∞, so its probability and gradient are exactly 0; outside it is the dtype's finite minimum, so
that 0·(min − min) in a divergence is 0 and never NaN. 16-bit logits are worked on in float32.
The references take one row and one component at a time, and look at allowed options only.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import nn
from torch.distributions import Categorical

from tenfold.ops.pairs import pair

OnEmpty = Literal["raise", "absent"] | int
Rest = Callable[[torch.Tensor], torch.Tensor]
RAISE = -1  # the `fallback` of a component for which having no allowed option is an error
CHUNK_NUMBERS = 1 << 18  # pre-activations of alternatives worked on at a time: 1 MB, a second-level cache
MASK_DTYPES = (torch.bool, torch.int8, torch.uint8, torch.float32, torch.float64, torch.float16, torch.bfloat16)
EMPTY, NOT_FINITE, NOT_UNIFORM, OUT_OF_RANGE = range(4)
FINE = -1
FAULTS = ("has no allowed option: allow one, or declare on_empty (\"absent\" or the index of a no-op)",
          "has a logit that is not finite: the network diverged, or its output was masked with infinities before",
          "was given a uniform number outside 0 … 1", "was given an action outside its range")


class HeadTables(NamedTuple):
    """The constants as NumPy arrays, for compiled code, with its scratch space: one thread at a time."""

    offsets: np.ndarray  # [C + 1], where each component begins; the last is M
    fallback: np.ndarray  # [C], the option that is left when every one is masked, or RAISE
    absent: bool  # such a component is no part of the action, rather than one that does its no-op
    weight: np.ndarray  # [M] float32, scratch
    bits: np.ndarray  # [M] int32, scratch

    @classmethod
    def of(cls, sizes: Sequence[int], on_empty: OnEmpty = "raise") -> "HeadTables":
        if not len(sizes) or any(int(n) != n or n < 1 for n in sizes):
            raise ValueError(f"sizes must be whole numbers of at least 1, one for each component; they are {tuple(sizes)}")
        if isinstance(on_empty, str):
            if on_empty not in ("raise", "absent"):
                raise ValueError(f'on_empty must be "raise", "absent" or the index of a no-op; it is {on_empty!r}')
            fallback = [RAISE if on_empty == "raise" else 0] * len(sizes)
        else:
            for i, n in enumerate(sizes):
                if not -n <= on_empty < n:
                    raise ValueError(f"on_empty = {on_empty} is no option of component {i}, which has {n}")
            fallback = [on_empty % n for n in sizes]  # −1 is the last option
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        size = int(offsets[-1])
        return cls(offsets, np.array(fallback, np.int64), on_empty == "absent", np.zeros(size, np.float32),
                   np.zeros(size, np.int32))


# examples and references --------------------------------------------------------------------------------------------------


def some_mask(rng: np.random.Generator, sizes: Sequence[int], rows: tuple[int, ...], empty: bool) -> torch.Tensor:
    """About half the options, at least one of each component; with `empty` a third of the components have none."""
    parts = []
    for n in sizes:
        part = rng.random((*rows, n)) < 0.5
        np.put_along_axis(part, rng.integers(0, n, (*rows, 1)), True, -1)
        parts.append(part & (rng.random((*rows, 1)) > 0.33) if empty else part)
    return torch.from_numpy(np.concatenate(parts, -1))


def cases(rng: np.random.Generator, dtype: str) -> Iterator[tuple["MaskedHeads", torch.Tensor, torch.Tensor | None]]:
    """Heads, logits and mask: equal and ragged, one option, batch 1, sequences, no mask, empty components."""
    settings: list[tuple[tuple[int, ...], tuple[int, ...], OnEmpty]] = [
        ((3,), (1,), "raise"), ((4, 4, 4), (5,), "raise"), ((2, 5, 1, 3), (4,), "raise"), ((2, 5, 1, 3), (2, 3), "absent"),
        ((3, 3), (6,), "absent"), ((2, 4), (5,), -1), ((8,) * 10, (8,), "raise")]
    for sizes, rows, on_empty in settings:
        heads = MaskedHeads(sizes, on_empty)
        logits = torch.from_numpy(3 * rng.normal(size=(*rows, sum(sizes)))).to(getattr(torch, dtype))
        yield heads, logits, some_mask(rng, sizes, rows, on_empty != "raise")
        if on_empty == "raise":
            yield heads, 3 * logits, None


def actions_for(rng: np.random.Generator, heads: "MaskedHeads", logits: torch.Tensor,
                mask: torch.Tensor | None) -> torch.Tensor:
    return heads.sample(logits, mask, torch.from_numpy(rng.random((*logits.shape[:-1], heads.count))))


def entropy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield from cases(rng, dtype)


def log_prob_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in cases(rng, dtype):
        yield heads, logits, actions_for(rng, heads, logits, mask), mask


def kl_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in cases(rng, dtype):
        yield heads, logits, logits + torch.from_numpy(rng.normal(size=logits.shape)).to(logits.dtype), mask


def sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in cases(rng, dtype):
        yield heads, logits, mask, torch.from_numpy(rng.random((*logits.shape[:-1], heads.count)))


class Choice(NamedTuple):
    """One component of one row, for the references: its allowed options and their logits. Absent: none."""

    options: list[int]
    logits: torch.Tensor

    def policy(self) -> Categorical:
        return Categorical(logits=self.logits)


def choices(heads: "MaskedHeads", logits: torch.Tensor, mask: torch.Tensor | None) -> Iterator[Choice]:
    """Row by row, component by component. An empty component is absent, or is left its no-op."""
    offsets, fallback, absent = heads.tables[:3]
    allowed = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
    for row, permitted in zip(logits.reshape(-1, heads.options), allowed.reshape(-1, heads.options), strict=True):
        for i in range(heads.count):
            part = row[offsets[i]:offsets[i + 1]]
            options = permitted[offsets[i]:offsets[i + 1]].nonzero().flatten().tolist()
            if not options and not absent:
                options = [int(fallback[i])]
            yield Choice(options, part[options])


def per_component(heads: "MaskedHeads", logits: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(values).view(*logits.shape[:-1], heads.count)


def padded_logits_reference(heads, logits, mask):
    padded = logits.new_full((*logits.shape[:-1], heads.count, heads.widest), torch.finfo(logits.dtype).min)
    offsets, fallback = heads.tables[:2]
    for row in np.ndindex(*logits.shape[:-1]):
        for i, (start, stop) in enumerate(pairwise(offsets.tolist())):
            options = [k for k in range(stop - start) if mask is None or mask[row][start + k]]
            for k in options:
                padded[row][i, k] = logits[row][start + k]
            if not options:
                padded[row][i, fallback[i]] = 0
    return padded


def log_softmax_reference(heads, logits, mask):
    low = torch.finfo(logits.dtype).min
    parts = []
    for k, (options, own) in enumerate(choices(heads, logits, mask)):
        i = k % heads.count
        part = logits.new_full((int(np.diff(heads.tables.offsets)[i]),), low)
        parts.append(part.index_put((torch.tensor(options or [0]),), own.log_softmax(0) if options else part.new_zeros(1)))
    return torch.cat(parts).view(logits.shape) + 0 * logits


def log_prob_reference(heads, logits, actions, mask):
    found = []
    for (options, own), action in zip(choices(heads, logits, mask), actions.flatten().tolist(), strict=True):
        found.append(Categorical(logits=own).log_prob(torch.tensor(options.index(action))) if options else logits.new_zeros(()))
    return per_component(heads, logits, found) + 0 * logits.sum()


def entropy_reference(heads, logits, mask):
    found = [choice.policy().entropy() if choice.options else logits.new_zeros(()) for choice in choices(heads, logits, mask)]
    return per_component(heads, logits, found)


def kl_reference(heads, old_logits, new_logits, mask):
    both = zip(choices(heads, old_logits, mask), choices(heads, new_logits, mask), strict=True)
    found = [torch.distributions.kl_divergence(old.policy(), new.policy()) if old.options else old_logits.new_zeros(())
             for old, new in both]
    return per_component(heads, old_logits, found)


def sample_reference(heads, logits, mask, uniform):
    """The first option at which Σ π exceeds u."""
    found = []
    for (options, own), u in zip(choices(heads, logits, mask), uniform.flatten().tolist(), strict=True):
        running, action = 0.0, options[-1] if options else 0
        for option, p in zip(options, own.double().softmax(0).tolist(), strict=True):
            running += p
            if running > u:
                action = option
                break
        found.append(torch.tensor(action))
    return per_component(heads, logits, found)


def mode_reference(heads, logits, mask):
    found = [torch.tensor(options[int(own.argmax())] if options else 0) for options, own in choices(heads, logits, mask)]
    return per_component(heads, logits, found)


def one_hot_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in cases(rng, dtype):
        yield heads, actions_for(rng, heads, logits, mask), logits.dtype


def one_hot_reference(heads, actions, dtype):
    sizes = np.diff(heads.tables.offsets).tolist()
    return torch.cat([nn.functional.one_hot(actions[..., i], n) for i, n in enumerate(sizes)], -1).to(dtype)


def counterfactual_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """A critic of two hidden layers; all components learn, or some, or some in each row."""
    for k, (heads, logits, mask) in enumerate(cases(rng, dtype)):
        width, rows = 7 + k, logits.shape[:-1]
        matrix = [torch.from_numpy(rng.normal(size=s) / 3).to(logits.dtype) for s in ((width, heads.options), (5, width), (1, 5))]
        actions = actions_for(rng, heads, logits, mask)
        state = torch.from_numpy(rng.normal(size=(*rows, width))).to(logits.dtype)
        hidden = state + one_hot_reference(heads, actions, logits.dtype) @ matrix[0].T

        def rest(x: torch.Tensor, second: torch.Tensor = matrix[1], third: torch.Tensor = matrix[2]) -> torch.Tensor:
            return torch.tanh(x.tanh() @ second.T) @ third.T
        learns = (None, rng.random(heads.count) < 0.5, rng.random((*rows, heads.count)) < 0.5)[k % 3]
        yield heads, hidden, matrix[0], actions, rest, None if learns is None else torch.from_numpy(learns)


def counterfactual_reference(heads, hidden, weight, actions, rest, learns):
    """One call of the critic for each alternative: the first layer again, with one component's one-hot exchanged."""
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
    for heads, logits, mask in cases(rng, dtype):
        yield heads, logits, torch.from_numpy(rng.normal(size=logits.shape)).to(logits.dtype), mask


def baselines_reference(heads, logits, values, mask):
    offsets, found = heads.tables.offsets, []
    for k, (options, own) in enumerate(choices(heads, logits, mask)):
        row, i = divmod(k, heads.count)
        part = values.reshape(-1, heads.options)[row, offsets[i]:offsets[i + 1]]
        found.append((own.softmax(0) * part[options]).sum() if options else part[0])
    return per_component(heads, logits, found).detach()


def sample_numba_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in cases(rng, dtype):
        flat = logits.reshape(-1, heads.options).numpy()
        allowed = np.ones(flat.shape, np.bool_) if mask is None else mask.reshape(flat.shape).numpy()
        shape = (len(flat), heads.count)
        yield heads.tables, flat, allowed, rng.random(shape).astype(dtype), np.zeros(shape, np.int64), np.ones(shape, dtype)


def heads_like(tables: HeadTables) -> "MaskedHeads":
    """The module of the examples' tables, whose no-op is the last option."""
    on_empty = "raise" if tables.fallback[0] == RAISE else "absent" if tables.absent else -1
    return MaskedHeads(np.diff(tables.offsets).tolist(), on_empty)


def sample_numba_reference(tables, logits, mask, uniform, actions, log_prob):
    heads, x, allowed = heads_like(tables), torch.from_numpy(logits), torch.from_numpy(mask)
    drawn = sample_reference(heads, x, allowed, torch.from_numpy(uniform))
    return drawn, log_prob_reference(heads, x, drawn, allowed)


def log_prob_numba_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tables, logits, mask, uniform, actions, log_prob in sample_numba_examples(rng, dtype):
        sample_numba(tables, logits, mask, uniform, actions, log_prob)
        yield tables, logits, mask, actions, np.zeros_like(log_prob)


def log_prob_numba_reference(tables, logits, mask, actions, log_prob):
    heads = heads_like(tables)
    return log_prob_reference(heads, torch.from_numpy(logits), torch.from_numpy(actions), torch.from_numpy(mask))


def linear_sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tables, logits, mask, uniform, actions, log_prob in sample_numba_examples(rng, dtype):
        features, weight = rng.normal(size=(len(logits), 9)).astype(dtype), rng.normal(size=(logits.shape[1], 9)).astype(dtype)
        yield tables, features, weight, logits[0].copy(), mask, uniform, np.zeros_like(logits), actions, log_prob


def linear_sample_reference(tables, features, weight, bias, mask, uniform, logits, actions, log_prob):
    return sample_numba_reference(tables, features @ weight.T + bias, mask, uniform, actions, log_prob)


# all heads at once --------------------------------------------------------------------------------------------------------

EQUAL = {"rtol": 2e-5, "atol": 5e-6, "dtypes": ("float32", "float64")}


class MaskedHeads(nn.Module):
    """A policy over C components of given sizes. Holds constants only: logits, masks and actions are given to each call.

    `on_empty` says what a component with every option masked is: an error ("raise"), no part of the action ("absent":
    log-probability, entropy and divergence 0, no gradient, sampled as 0), or one that does its no-op (the no-op's index; −1 is
    the last option). `check` looks for bad values in every call, which on a GPU waits for the device; shapes and dtypes are
    looked at always.
    """

    offsets: torch.Tensor  # (C,)
    limits: torch.Tensor  # (C,), the sizes
    gather: torch.Tensor  # (C·n_max,), the option at each slot; padding points at the component's first
    padding: torch.Tensor  # (C, n_max), −∞ for padding and else 0
    slots: torch.Tensor  # (M,), where each option lies in (C·n_max,)
    component: torch.Tensor  # (M,)
    fallback: torch.Tensor  # (C, n_max) bool, the option that is left to an empty component

    def __init__(self, sizes: Sequence[int], on_empty: OnEmpty = "raise", check: bool = True) -> None:
        super().__init__()
        self.tables = HeadTables.of(sizes, on_empty)
        if on_empty == "raise" and not check:
            raise ValueError('on_empty="raise" needs check=True; without checks say "absent" or the index of a no-op')
        self.sizes, self.check, self.raises = tuple(int(n) for n in sizes), check, on_empty == "raise"
        self.count, self.options, self.widest = len(self.sizes), sum(self.sizes), max(self.sizes)
        self.equal = len(set(self.sizes)) == 1
        limits = torch.tensor(self.sizes)
        offsets = limits.cumsum(0) - limits
        position = torch.arange(self.widest)
        real = position < limits[:, None]
        slot = torch.arange(self.count)[:, None] * self.widest + position
        constants = {"limits": limits, "offsets": offsets, "slots": slot[real],
                     "gather": torch.where(real, offsets[:, None] + position, offsets[:, None]).flatten(),
                     "component": torch.arange(self.count).repeat_interleave(limits),
                     "padding": torch.where(real, 0.0, -torch.inf),
                     "fallback": position == torch.from_numpy(self.tables.fallback)[:, None]}
        for name, constant in constants.items():
            self.register_buffer(name, constant, persistent=False)

    # the two layouts

    def padded(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., M) as (..., C, n_max); what stands in the padding means nothing."""
        return (flat if self.equal else flat.index_select(-1, self.gather)).unflatten(-1, (self.count, self.widest))

    def flat(self, padded: torch.Tensor) -> torch.Tensor:
        """(..., C, n_max) as (..., M)."""
        return padded.flatten(-2) if self.equal else padded.flatten(-2).index_select(-1, self.slots)

    # masks

    def shaped(self, logits: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The logits as (..., C, n_max), −∞ where an option is forbidden or padding, and the components that had no option,
        (..., C), or None. Such a component keeps its fallback, so that no row is without one."""
        if mask is not None and compiled(logits):
            return self.shaped_without_gradient(logits, mask)
        self.check_logits(logits)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if mask is not None:
            logits = torch.where(self.as_bool(mask, logits.shape), logits, -torch.inf)
        shaped = self.padded(logits)
        if not self.equal:
            shaped = shaped + self.padding.to(shaped.dtype)  # adding is faster than filling
        if mask is None:
            return shaped, None
        highest = shaped.detach().amax(-1)
        if not self.raises:
            empty = highest == -torch.inf
            return torch.where(empty[..., None] & self.fallback, 0, shaped), empty
        if highest.numel() and highest.amin().item() == -torch.inf:
            raise ValueError(f"{where(highest == -torch.inf)} {FAULTS[EMPTY]}")
        return shaped, None

    def shaped_without_gradient(self, logits: torch.Tensor, mask: torch.Tensor,
                                floor: float = -math.inf) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The same in one compiled pass, for acting on a CPU; `floor` stands for −∞."""
        self.check_logits(logits, values=False)
        mask = self.as_bool(mask, logits.shape)
        rows, x, allowed = logits.shape[:-1], logits.detach().numpy(), mask.numpy()
        if len(rows) != 1:
            x, allowed = x.reshape(-1, self.options), allowed.reshape(-1, self.options)
        shaped = np.empty((len(x), self.count, self.widest), np.float32)
        empty = np.empty((len(x), self.count), np.bool_)
        fault = spread(x, allowed, self.tables.offsets, self.tables.fallback, self.check, floor, shaped, empty)
        if fault >= 0:
            bad = torch.arange(empty.size).view(*rows, self.count) == fault // 4
            raise ValueError(f"{where(bad)} {FAULTS[fault % 4]}")
        found = torch.from_numpy(shaped)
        return (found if len(rows) == 1 else found.view(*rows, self.count, self.widest),
                None if self.raises else torch.from_numpy(empty).view(*rows, self.count))

    def present(self, mask: torch.Tensor) -> torch.Tensor:
        """The components with an option, (..., C): those that are part of the action when `on_empty` is "absent"."""
        mask = self.padded(self.as_bool(mask, mask.shape))
        return (mask if self.equal else mask & (self.padding == 0)).any(-1)

    def as_bool(self, mask: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if mask.shape != shape:
            raise ValueError(f"the mask must have the shape of the logits, {tuple(shape)}; it has {tuple(mask.shape)}")
        if mask.dtype not in MASK_DTYPES:
            raise ValueError(f"the mask must be bool, int8, uint8 or a float of 0 and 1; it is {mask.dtype}")
        if mask.dtype == torch.bool:
            return mask
        if self.check and (strange := (mask != 0) & (mask != 1)).any():
            raise ValueError(f"the mask at {self.where_option(strange)} is neither 0 nor 1")
        return mask != 0

    def masked_logits(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The logits (..., M), the finite minimum of their dtype where an option is forbidden. The fallback of an empty
        component is 0."""
        return self.flat(self.padded_logits(logits, mask))

    @pair(padded_logits_reference, entropy_examples, dtypes=("float32", "float64"))
    def padded_logits(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The same as (..., C, n_max), the padding at the minimum too."""
        low = torch.finfo(logits.dtype).min
        if mask is not None and compiled(logits):
            return self.shaped_without_gradient(logits, mask, low)[0]
        return self.shaped(logits, mask)[0].to(logits.dtype).clamp_min(low)

    # checks of values

    def check_logits(self, logits: torch.Tensor, values: bool = True) -> None:
        if logits.shape[-1:] != (self.options,) or not logits.is_floating_point():
            raise ValueError(f"the logits must be floats (..., {self.options}); they are {logits.dtype} {tuple(logits.shape)}")
        # a sum is finite only if all its terms are; it may also overflow, then one looks closer
        if values and self.check and not math.isfinite(logits.detach().sum()) and not (finite := logits.isfinite()).all():
            raise ValueError(f"{self.where_option(~finite)} {FAULTS[NOT_FINITE]}")

    def check_actions(self, actions: torch.Tensor) -> None:
        """An action out of range would count as the neighbour's."""
        if actions.shape[-1:] != (self.count,) or actions.dtype != torch.int64:
            raise ValueError(f"actions must be int64 (..., {self.count}); they are {actions.dtype} {tuple(actions.shape)}")
        if self.check and actions.numel() and (actions.amin() < 0 or (actions - self.limits).amax() >= 0):
            outside = (actions < 0) | (actions >= self.limits)
            action, size = int(actions[outside][0]), self.sizes[place(outside)[1]]
            raise ValueError(f"{where(outside)} was given action {action}, which is outside its range 0 … {size - 1}")

    def where_option(self, bad: torch.Tensor) -> str:
        row, option = place(bad)
        component = int(self.component[option])
        return f"row {row}, component {component} (option {option - int(self.offsets[component])})"

    # the policy

    def log_probs(self, logits: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """log π as (..., C, n_max), forbidden options and padding at the finite minimum; and what was empty, (..., C)."""
        shaped, empty = self.shaped(logits, mask)
        return shaped.log_softmax(-1).clamp_min(torch.finfo(shaped.dtype).min), empty

    @pair(log_softmax_reference, entropy_examples, gradients=(1,), **EQUAL)
    def log_softmax(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """log π of every option, (..., M), normalised within each component."""
        return self.flat(self.log_probs(logits, mask)[0])

    def taken(self, log_probs: torch.Tensor, empty: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        found = log_probs.gather(-1, actions[..., None]).squeeze(-1)
        return found if empty is None or not self.tables.absent else found.masked_fill(empty, 0)

    @pair(log_prob_reference, log_prob_examples, gradients=(1,), **EQUAL)
    def log_prob(self, logits: torch.Tensor, actions: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """log π(aᵢ) of each component, (..., C). That of a forbidden action is the finite minimum."""
        self.check_actions(actions)
        return self.taken(*self.log_probs(logits, mask), actions)

    @staticmethod
    def joint(per_component: torch.Tensor) -> torch.Tensor:
        """Of the whole action, (...): the sum over components, kept finite."""
        return per_component.sum(-1).clamp_min(torch.finfo(per_component.dtype).min)

    @pair(entropy_reference, entropy_examples, gradients=(1,), **EQUAL)
    def entropy(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """−Σ π log π over the allowed options of each component, (..., C)."""
        log_probs, _ = self.log_probs(logits, mask)
        return -(log_probs.exp() * log_probs).sum(-1)

    def evaluate(self, logits: torch.Tensor, actions: torch.Tensor,
                 mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """`log_prob` and `entropy` from one softmax: what a policy-gradient loss needs."""
        self.check_actions(actions)
        log_probs, empty = self.log_probs(logits, mask)
        return self.taken(log_probs, empty, actions), -(log_probs.exp() * log_probs).sum(-1)

    @pair(kl_reference, kl_examples, gradients=(1, 2), **EQUAL)
    def kl(self, old_logits: torch.Tensor, new_logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """KL(old ‖ new) of each component, (..., C), the same mask on both sides."""
        old, new = self.log_probs(old_logits, mask)[0], self.log_probs(new_logits, mask)[0]
        return (old.exp() * (old - new)).sum(-1)

    @pair(mode_reference, entropy_examples, dtypes=("float32", "float64"))
    @torch.no_grad()
    def mode(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The most probable allowed option of each component, (..., C); the first of equals."""
        return self.log_probs(logits, mask)[0].argmax(-1)

    @pair(sample_reference, sample_examples, dtypes=("float32", "float64"))
    @torch.no_grad()
    def sample(self, logits: torch.Tensor, mask: torch.Tensor | None = None, uniform: torch.Tensor | None = None,
               generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions (..., C): the first option at which Σ π exceeds u, from `uniform` (..., C) or torch's generator."""
        return self.drawn(self.log_probs(logits, mask)[0], uniform, generator)

    @torch.no_grad()
    def act(self, logits: torch.Tensor, mask: torch.Tensor | None = None, uniform: torch.Tensor | None = None,
            generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """`sample` and the `log_prob` of what was drawn, from one softmax."""
        log_probs, empty = self.log_probs(logits, mask)
        actions = self.drawn(log_probs, uniform, generator)
        return actions, self.taken(log_probs, empty, actions)

    def drawn(self, log_probs: torch.Tensor, uniform: torch.Tensor | None, generator: torch.Generator | None) -> torch.Tensor:
        """An option without probability is never at a step of the sum, and the aim stays below the last step: whatever u is and
        however the sum was rounded, what is drawn has positive probability."""
        rows = log_probs.shape[:-1]
        if uniform is None:
            uniform = torch.rand(rows, generator=generator, dtype=log_probs.dtype, device=log_probs.device)
        elif uniform.shape != rows:
            raise ValueError(f"uniform must be {tuple(rows)}; it is {tuple(uniform.shape)}")
        elif self.check and (strange := ~((uniform >= 0) & (uniform <= 1))).any():
            raise ValueError(f"{where(strange)} {FAULTS[NOT_UNIFORM]}")
        weight = log_probs.exp()
        steps = weight.cumsum(-1).masked_fill_(weight <= 0, -1)
        top = steps.amax(-1)
        aim, last = uniform.to(top.dtype) * top, torch.nextafter(top, torch.zeros_like(top))
        return (steps > torch.where(aim < last, aim, last)[..., None]).to(torch.uint8).argmax(-1)

    # actions and their critic

    @pair(one_hot_reference, one_hot_examples, dtypes=("float32", "float64"))
    def one_hot(self, actions: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """(..., M), one 1 in each component: one scatter, or on a CPU one compiled pass that looks at the range too."""
        if dtype == torch.float32 and on_cpu(actions) and actions.dtype == torch.int64 and actions.shape[-1:] == (self.count,):
            taken = actions.numpy()
            out = np.empty((*taken.shape[:-1], self.options), np.float32)
            if mark(taken.reshape(-1, self.count), self.tables.offsets, out.reshape(-1, self.options)):
                return torch.from_numpy(out)
        self.check_actions(actions)
        empty = torch.zeros(*actions.shape[:-1], self.options, dtype=dtype, device=actions.device)
        return empty.scatter_(-1, actions + self.offsets, 1)

    @pair(counterfactual_reference, counterfactual_examples, rtol=2e-5, atol=5e-6, dtypes=("float32", "float64"))
    @torch.no_grad()
    def counterfactual_values(self, hidden: torch.Tensor, weight: torch.Tensor, actions: torch.Tensor, rest: Rest,
                              learns: torch.Tensor | None = None) -> torch.Tensor:
        """Q(s, (a′, a₋ᵢ)) for every alternative a′ of every component i, (..., M), without gradient.

        `hidden` (..., H) is what the critic's first layer gives for (s, a), before its activation; `weight` (H, M) are that
        layer's columns for the one-hot actions; `rest` is what follows, (N, H) to (N,) or (N, 1). The layer is linear in the
        one-hot, so an alternative has h − W[i, aᵢ] + W[i, a′]. Alternatives of components that do not learn, (C,) or (..., C),
        are not evaluated: they count as what was done, Q(s, a), which makes their advantage 0.
        """
        self.check_actions(actions)
        rows, table = hidden.reshape(-1, hidden.shape[-1]), weight.t().contiguous()
        chosen = actions.reshape(-1, self.count) + self.offsets
        if learns is None:
            values = self.every_alternative(rows, table, chosen, rest)
        else:
            values = rest(rows).reshape(-1, 1).repeat(1, self.options)
            learns = learns.expand(*actions.shape).reshape(-1, self.count).index_select(-1, self.component)
            row, option = learns.nonzero(as_tuple=True)
            for part in range(0, len(row), step := max(1, CHUNK_NUMBERS // rows.shape[1])):
                r, o = row[part:part + step], option[part:part + step]
                x = rows.index_select(0, r) - table.index_select(0, chosen[r, self.component[o]]) + table.index_select(0, o)
                values[r, o] = rest(x).flatten()
        return values.view(*actions.shape[:-1], self.options)

    def every_alternative(self, rows: torch.Tensor, table: torch.Tensor, chosen: torch.Tensor, rest: Rest) -> torch.Tensor:
        """(B, M), a few rows at a time so that the pre-activations of their alternatives stay in cache."""
        count, width = rows.shape
        values = rows.new_empty(count, self.options)
        for start in range(0, count, step := max(1, CHUNK_NUMBERS // (self.options * width))):
            part = slice(start, start + step)
            without = rows[part, None] - nn.functional.embedding(chosen[part], table)
            if self.equal:
                x = without[:, :, None] + table.view(self.count, self.widest, width)
            else:
                x = without.index_select(1, self.component) + table
            values[part] = rest(x.view(-1, width)).view(-1, self.options)
        return values

    @pair(baselines_reference, baselines_examples, **EQUAL)
    @torch.no_grad()
    def baselines(self, logits: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """bᵢ = Σ_a′ πᵢ(a′|s)·Q(s, (a′, a₋ᵢ)), (..., C), without gradient, from `counterfactual_values` (..., M)."""
        probability = self.log_probs(logits, mask)[0].exp()
        return (probability * self.padded(values)).sum(-1)

    @torch.no_grad()
    def advantages(self, value: torch.Tensor, baselines: torch.Tensor, learns: torch.Tensor | None = None) -> torch.Tensor:
        """Aᵢ = Q(s, a) − bᵢ, (..., C), from Q(s, a) (...); 0 for components that do not learn."""
        advantages = value[..., None] - baselines
        return advantages if learns is None else advantages.masked_fill(~learns, 0)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether compiled code may look at its memory."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def compiled(logits: torch.Tensor) -> bool:
    return logits.dtype == torch.float32 and on_cpu(logits) and not (logits.requires_grad and torch.is_grad_enabled())


def place(bad: torch.Tensor) -> tuple[int | tuple[int, ...], int]:
    """(row, column) of the first True; the row is a tuple when there are several leading dimensions."""
    *row, column = bad.nonzero()[0].tolist()
    return row[0] if len(row) == 1 else tuple(row), column


def where(bad: torch.Tensor) -> str:
    row, component = place(bad)
    return f"row {row}, component {component}"


# acting: compiled, without torch and without an allocation ----------------------------------------------------------------

LOWEST, MINUS_INFINITY, LEAST = np.float32(np.finfo(np.float32).min), np.float32(-np.inf), np.float32(-87)
PER_LN_2 = np.float32(1 / math.log(2))
ROUNDER = np.float32(1.5 * 2**23)  # added and taken away again it leaves a whole number
LN_2_UPPER = np.float32(710 / 1024)  # few bits, so that its product with k is exact
LN_2_LOWER = np.float32(math.log(2) - 710 / 1024)
ONE, E2, E3, E4, E5, E6, E7 = (np.float32(1 / math.factorial(k)) for k in range(1, 8))

@njit(cache=True, error_model="numpy")
def mark(actions, offsets, out):
    """One-hot actions into `out` [B, M]; False where one is out of range."""
    for b in range(actions.shape[0]):
        out[b] = 0
        for i in range(actions.shape[1]):
            if not 0 <= actions[b, i] < offsets[i + 1] - offsets[i]:
                return False
            out[b, offsets[i] + actions[b, i]] = 1
    return True


@njit(cache=True, error_model="numpy")
def spread(logits, mask, offsets, fallback, check, floor, out, empty):
    """Logits [B, M] into `out` [B, C, n_max], `floor` where forbidden or padding, and which components have no option into
    `empty` [B, C]; the fallback of such a one is 0. Returns as `draw_heads` does."""
    count, widest = out.shape[1:]
    low = np.float32(floor)
    for b in range(logits.shape[0]):
        for i in range(count):
            start, size = offsets[i], offsets[i + 1] - offsets[i]
            off = some = 0
            for k in range(size):
                x, allowed = logits[b, start + k], mask[b, start + k]
                off += np.int32(not abs(x) <= -LOWEST)
                some += np.int32(allowed)
                out[b, i, k] = x if allowed else low
            for k in range(size, widest):
                out[b, i, k] = low
            if off and check:
                return (b * count + i) * 4 + NOT_FINITE
            empty[b, i] = some == 0
            if some == 0:
                if fallback[i] < 0:
                    return (b * count + i) * 4 + EMPTY
                out[b, i, fallback[i]] = np.float32(0)
    return FINE


@njit(cache=True, error_model="numpy", inline="always")
def exponentials(x, bits):
    """x ← exp(x) for x ≤ 0, and 0 below LEAST: 2ᵏ·eʳ with x = k·ln 2 + r, |r| ≤ ½ ln 2, eʳ by its series. A plain loop over
    np.exp calls the library once a number; this one is vectorised. Relative error below 3e-7."""
    scale = bits.view(np.float32)
    for m in range(x.size):
        clipped = max(x[m], LEAST)
        k = (clipped * PER_LN_2 + ROUNDER) - ROUNDER
        r = (clipped - k * LN_2_UPPER) - k * LN_2_LOWER
        series = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7))))))
        bits[m] = (np.int32(k) + np.int32(127)) << np.int32(23)  # the float 2ᵏ
        x[m] = series if x[m] > LEAST else np.float32(0)
    for m in range(x.size):
        x[m] *= scale[m]


@njit(cache=True, error_model="numpy", inline="always")
def weigh(logits, mask, b, offsets, fallback, weight, bits, highest):
    """exp(x − max) of row b's options into `weight`, 0 where forbidden, and each component's maximum into `highest`. Of an
    empty component the fallback is left. Returns a fault or FINE. No branch depends on the mask: a processor would guess wrong
    at every second option of a random one."""
    off = 0
    for m in range(logits.shape[1]):
        x = logits[b, m]
        off += np.int32(not abs(x) <= -LOWEST)  # counted as integers, which a processor adds in any order
        weight[m] = x if mask[b, m] else MINUS_INFINITY
    for i in range(offsets.size - 1):
        most = MINUS_INFINITY
        for m in range(offsets[i], offsets[i + 1]):
            most = max(most, weight[m])
        if most == MINUS_INFINITY and off == 0:
            if fallback[i] < 0:
                return i * 4 + EMPTY
            most = logits[b, offsets[i] + fallback[i]]
            weight[offsets[i] + fallback[i]] = most
        highest[i] = most
        for m in range(offsets[i], offsets[i + 1]):
            weight[m] -= most
    if off != 0:
        for i in range(offsets.size - 1):
            for m in range(offsets[i], offsets[i + 1]):
                if not np.isfinite(logits[b, m]):
                    return i * 4 + NOT_FINITE
    exponentials(weight, bits)
    return FINE


@njit(cache=True, error_model="numpy")
def draw_heads(logits, mask, uniform, offsets, fallback, weight, bits, actions, log_prob):
    """For use inside other kernels: writes `actions` [B, C] and each component's log-probability. Returns FINE, or where
    it stopped and why: (row·C + component)·4 + fault. `weight` and `bits` [M] are scratch."""
    count = offsets.size - 1
    for b in range(logits.shape[0]):
        fault = weigh(logits, mask, b, offsets, fallback, weight, bits, log_prob[b])
        if fault != FINE:
            return b * count * 4 + fault
        for i in range(count):
            u = uniform[b, i]
            if not 0 <= u <= 1:
                return (b * count + i) * 4 + NOT_UNIFORM
            total = np.float32(0)
            for m in range(offsets[i], offsets[i + 1]):
                total += weight[m]
            # the first option at which the sum exceeds the aim; the last of positive weight where rounding put the aim past all
            aim, running, place, beyond = u * total, np.float32(0), offsets[i], False
            for m in range(offsets[i], offsets[i + 1]):
                place = m if weight[m] > 0 and not beyond else place
                running += weight[m]
                beyond = beyond or running > aim
            actions[b, i] = place - offsets[i]
            log_prob[b, i] = logits[b, place] - log_prob[b, i] - np.log(total)
    return FINE


@njit(cache=True, error_model="numpy")
def score_heads(logits, mask, actions, offsets, fallback, absent, weight, bits, log_prob):
    """For use inside other kernels: writes the log-probability [B, C] of given actions. Returns as `draw_heads` does."""
    count = offsets.size - 1
    for b in range(logits.shape[0]):
        fault = weigh(logits, mask, b, offsets, fallback, weight, bits, log_prob[b])
        if fault != FINE:
            return b * count * 4 + fault
        for i in range(count):
            place = offsets[i] + actions[b, i]
            if not offsets[i] <= place < offsets[i + 1]:
                return (b * count + i) * 4 + OUT_OF_RANGE
            if mask[b, place]:
                total = np.float32(0)
                for m in range(offsets[i], offsets[i + 1]):
                    total += weight[m]
                log_prob[b, i] = logits[b, place] - log_prob[b, i] - np.log(total)
            else:
                empty = not np.any(mask[b, offsets[i]:offsets[i + 1]])
                log_prob[b, i] = np.float32(0) if empty and (absent or actions[b, i] == fallback[i]) else LOWEST
    return FINE


@njit(cache=True, error_model="numpy")
def linear_draw_heads(features, weight, bias, mask, uniform, offsets, fallback, weights, bits, logits, actions, log_prob):
    """`draw_heads` on logits = features·Wᵀ + b, which are written into `logits` [B, M]."""
    np.dot(features, weight.T, logits)
    for b in range(logits.shape[0]):
        for m in range(logits.shape[1]):
            logits[b, m] += bias[m]
    return draw_heads(logits, mask, uniform, offsets, fallback, weights, bits, actions, log_prob)


def raise_fault(fault: int, components: int) -> None:
    (row, component), kind = divmod(fault // 4, components), fault % 4
    raise ValueError(f"row {row}, component {component} {FAULTS[kind]}")


def check_shapes(tables: HeadTables, logits: np.ndarray, mask: np.ndarray, per_component: tuple[np.ndarray, ...]) -> None:
    """Compiled code does not look at bounds."""
    offsets = tables.offsets
    if logits.shape[1:] != (offsets[-1],) or mask.shape != logits.shape or mask.dtype != np.bool_:
        raise ValueError(f"logits and a bool mask must be [B, {offsets[-1]}]; they are {logits.shape}, {mask.dtype} {mask.shape}")
    for array in per_component:
        if array.shape != (len(logits), offsets.size - 1):
            raise ValueError(f"arrays of one number a component must be {(len(logits), offsets.size - 1)}; one is {array.shape}")


@pair(sample_numba_reference, sample_numba_examples, rtol=2e-5, atol=5e-6)
def sample_numba(tables: HeadTables, logits: np.ndarray, mask: np.ndarray, uniform: np.ndarray, actions: np.ndarray,
                 log_prob: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`MaskedHeads.act` on float32 arrays: writes `actions` and `log_prob` [B, C] and returns them."""
    check_shapes(tables, logits, mask, (uniform, actions, log_prob))
    fault = draw_heads(logits, mask, uniform, tables.offsets, tables.fallback, tables.weight, tables.bits, actions, log_prob)
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return actions, log_prob


@pair(log_prob_numba_reference, log_prob_numba_examples, rtol=2e-5, atol=5e-6)
def log_prob_numba(tables: HeadTables, logits: np.ndarray, mask: np.ndarray, actions: np.ndarray,
                   log_prob: np.ndarray) -> np.ndarray:
    """`MaskedHeads.log_prob` on float32 arrays: writes `log_prob` [B, C] and returns it."""
    check_shapes(tables, logits, mask, (actions, log_prob))
    fault = score_heads(logits, mask, actions, tables.offsets, tables.fallback, tables.absent, tables.weight, tables.bits,
                        log_prob)
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return log_prob


@pair(linear_sample_reference, linear_sample_examples, rtol=2e-5, atol=1e-5)
def linear_sample_numba(tables: HeadTables, features: np.ndarray, weight: np.ndarray, bias: np.ndarray, mask: np.ndarray,
                        uniform: np.ndarray, logits: np.ndarray, actions: np.ndarray,
                        log_prob: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The output layer too: logits = features·Wᵀ + b into `logits` [B, M], then as `sample_numba`."""
    check_shapes(tables, logits, mask, (uniform, actions, log_prob))
    fault = linear_draw_heads(features, weight, bias, mask, uniform, tables.offsets, tables.fallback, tables.weight, tables.bits,
                              logits, actions, log_prob)
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return actions, log_prob
