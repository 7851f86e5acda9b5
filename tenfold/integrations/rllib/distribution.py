"""The action distribution of RLlib's new API stack for many masked heads: one pass over all of
them."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.distribution.distribution import Distribution
from ray.rllib.core.distribution.torch.torch_distribution import TorchDeterministic

from tenfold.core.layout import ObsLayout
from tenfold.integrations.masked.normalise import HeadTerms, normalise
from tenfold.ops.heads import MaskedHeads


def sizes_of(space: Any) -> tuple[int, ...]:
    if (
        not isinstance(space, gym.spaces.MultiDiscrete)
        or space.nvec.ndim != 1
        or np.any(space.start)
    ):
        raise ValueError(
            "MultiHeadActionMaskRLModule needs MultiDiscrete actions of one dimension that start "
            f"at 0, not {space} (a single head is MultiDiscrete([n]))"
        )
    return tuple(int(n) for n in space.nvec)


@cache
def heads_of(sizes: tuple[int, ...], device: torch.device) -> MaskedHeads:
    """Constants only. The module has looked at logits and masks before; actions are looked at where
    no device has to wait."""
    return MaskedHeads(sizes, "absent", check=device.type == "cpu").to(device)


class MaskedMultiCategorical(Distribution):
    """Independent categorical heads of any sizes, forbidden options at the finite minimum of the
    logits' dtype.

    RLlib makes it by `from_logits(logits, input_lens=sizes)`. No method loops over heads. A head
    with no option left is a certain choice of its first one: log-probability, entropy and
    divergence 0.
    """

    def __init__(self, logits: torch.Tensor, heads: MaskedHeads) -> None:
        super().__init__()
        self.logits, self.heads = logits, heads
        self.known: HeadTerms | None = None

    @classmethod
    def from_logits(
        cls,
        logits: Any,
        *,
        input_lens: Sequence[int],
        temperatures: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> "MaskedMultiCategorical":
        """`logits` (..., Σ input_lens); `temperatures`, one for each head, divide the allowed
        logits."""
        heads = heads_of(tuple(input_lens), logits.device)
        if logits.shape[-1] != heads.options:
            raise ValueError(
                f"input_lens {list(input_lens)} ask for rows of {heads.options} logits, not "
                f"{logits.shape[-1]}"
            )
        if temperatures:
            if len(temperatures) != heads.count or min(temperatures) <= 0:
                raise ValueError(
                    f"temperatures must be {heads.count} numbers above 0, one a head; they are "
                    f"{temperatures}"
                )
            warm = torch.tensor(
                temperatures, dtype=logits.dtype, device=logits.device
            ).index_select(0, heads.component)
            low = torch.finfo(logits.dtype).min
            logits = torch.where(logits > low, logits / warm, low)
        return cls(logits, heads)

    @property
    def normalised(self) -> HeadTerms:
        """Computed once for this distribution's logits."""
        if self.known is None:
            compiled = self.logits.device.type == "cpu" and self.logits.dtype == torch.float32
            self.known = self.normalise_compiled() if compiled else self.normalise_plainly()
        return self.known

    def normalise_plainly(self) -> HeadTerms:
        """The reference of `normalise_compiled`; on other devices and in other precisions."""
        padded, empty = self.heads.log_probs(self.logits, self.allowed)
        log_prob, prob = self.heads.flat(padded), self.heads.flat(padded.exp())
        if empty is not None:
            log_prob = log_prob.masked_fill(empty.index_select(-1, self.heads.component), 0)
        return HeadTerms(log_prob, prob, -(padded.exp() * padded).sum((-1, -2)))

    def normalise_compiled(self) -> HeadTerms:
        shape = self.logits.shape
        result = normalise(
            self.logits.reshape(-1, self.heads.options).contiguous(), self.heads.tables.offsets
        )
        return HeadTerms(
            result.log_prob.view(shape), result.prob.view(shape), result.entropy.view(shape[:-1])
        )

    @property
    def allowed(self) -> torch.Tensor:
        return self.logits > torch.finfo(self.logits.dtype).min

    def sample(
        self, *, sample_shape: Sequence[int] | None = None, return_logp: bool = False, **kwargs: Any
    ) -> Any:
        """Actions (*sample_shape, ..., heads), int64, from torch's generator; with `return_logp`
        also their log-probability."""
        logits, shape = self.logits.detach(), (*(sample_shape or ()), *self.logits.shape)
        actions = self.heads.sample(logits.expand(shape), self.allowed.expand(shape))
        return (actions, self.logp(actions)) if return_logp else actions

    def rsample(
        self, *, sample_shape: Sequence[int] | None = None, return_logp: bool = False, **kwargs: Any
    ) -> Any:
        raise NotImplementedError("discrete actions have no reparametrised sample: use `sample`")

    def logp(self, value: Any, **kwargs: Any) -> torch.Tensor:
        """Of the whole action, (...): the sum over heads. That of a forbidden action is the finite
        minimum."""
        value = value.long()
        self.heads.check_actions(value)
        log_prob = self.normalised.log_prob.expand(*value.shape[:-1], -1)
        return self.heads.joint(log_prob.gather(-1, value + self.heads.offsets))

    def entropy(self, **kwargs: Any) -> torch.Tensor:
        return self.normalised.entropy

    def kl(self, other: Distribution, **kwargs: Any) -> torch.Tensor:
        """KL(self ‖ other), the same options forbidden in both."""
        if not isinstance(other, MaskedMultiCategorical):
            raise TypeError(
                f"the divergence to a {type(other).__name__} is not known: both must be "
                "MaskedMultiCategorical"
            )
        mine = self.normalised
        return (mine.prob * (mine.log_prob - other.normalised.log_prob)).sum(-1)

    @staticmethod
    def required_input_dim(space: gym.Space, **kwargs: Any) -> int:
        return sum(sizes_of(space))

    def to_deterministic(self) -> TorchDeterministic:
        """The most probable allowed option of every head."""
        return TorchDeterministic(loc=self.heads.mode(self.logits.detach(), self.allowed))


# observations and masks as RLlib hands them over


def natural(name: Any) -> list[tuple[bool, Any]]:
    """Sorts numbers in names as numbers: head_2 before head_10."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else part)
        for part in re.split(r"(\d+)", str(name))
        if part
    ]


@cache
def in_order(names: tuple[Any, ...]) -> list[Any]:
    return sorted(names, key=natural)


def mask_in(obs: Mapping[str, Any]) -> Any:
    """What an observation says is allowed; never overlooked."""
    if "action_mask" not in obs:
        raise ValueError(
            'the observations have no "action_mask": give one, of ones where everything is allowed'
        )
    return obs["action_mask"]


def join_mask(mask: Any, sizes: tuple[int, ...], in_rows: bool = False) -> torch.Tensor:
    """(..., M) out of one tensor (..., M), one of equal heads (..., C, n), or a list, tuple or dict
    with one for each head; a dict's names in natural order. `in_rows`: the space has a row for each
    head; of a single head no shape tells it."""
    options = sum(sizes)
    if isinstance(mask, Mapping):
        mask = [mask[name] for name in in_order(tuple(mask))]
    if isinstance(mask, list | tuple):
        mask_sizes = tuple(part.shape[-1] for part in mask)
        if mask_sizes != sizes:
            raise ValueError(
                f"the mask's parts have {list(mask_sizes)} options, the heads have {list(sizes)}"
            )
        return torch.cat(list(mask), -1)
    if mask.shape[-1] == options and not in_rows:
        return mask
    if len(set(sizes)) == 1 and tuple(mask.shape[-2:]) == (len(sizes), sizes[0]):
        return mask.flatten(-2)
    raise ValueError(
        f"the mask has shape {tuple(mask.shape)}; its last dimension must be {options}, the "
        "options of all heads"
    )


def check_mask_space(space: Any, sizes: tuple[int, ...]) -> None:
    """Refuses a declared mask that does not fit the heads, before training begins."""
    if isinstance(space, gym.spaces.Dict):
        space = gym.spaces.Tuple([space[name] for name in in_order(tuple(space))])
    shapes = [part.shape for part in space] if isinstance(space, gym.spaces.Tuple) else space.shape
    if isinstance(shapes, list):
        fits = shapes == [(n,) for n in sizes]
    else:
        fits = shapes == (sum(sizes),) or (
            len(set(sizes)) == 1 and shapes == (len(sizes), sizes[0])
        )
    if not fits:
        raise ValueError(
            f'the space of "action_mask" has shape {shapes}, and the heads have sizes '
            f"{list(sizes)}: it must be one "
            f"array of {sum(sizes)} numbers, or a Tuple or Dict with one array for each head"
        )


def join_observation(layout: ObsLayout, value: Any, dtype: torch.dtype) -> torch.Tensor:
    """(..., D) as the layout lies in a row: arrays flattened, images of bytes scaled to [0, 1],
    discrete parts one-hot, Dict and Tuple joined."""
    if layout.children:
        values = [value[key] for key in layout.keys] if layout.keys else value
        return torch.cat(
            [
                join_observation(part, one, dtype)
                for part, one in zip(layout.children, values, strict=True)
            ],
            -1,
        )
    if layout.one_hot:
        places = torch.tensor(
            [offset - first for offset, first in layout.one_hot], device=value.device
        )
        value = value.long() if len(layout.one_hot) > 1 else value.long().unsqueeze(-1)
        return torch.zeros(
            *value.shape[:-1], layout.size, dtype=dtype, device=value.device
        ).scatter_(-1, value + places, 1)
    if len(layout.shape) != 1:
        value = value.reshape(*value.shape[: value.dim() - len(layout.shape)], layout.size)
    value = value if value.dtype == dtype else value.to(dtype)
    return value if layout.scale == 1.0 else value * layout.scale
