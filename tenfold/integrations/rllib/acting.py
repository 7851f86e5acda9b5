"""Acting for a whole round of environments without a tensor on the way."""

from typing import Any, Self

import numpy as np
import torch
from ray.rllib.core.columns import Columns

from tenfold.integrations.masked.acting import act_on_observations
from tenfold.integrations.rllib.lanes import Leaf
from tenfold.integrations.rllib.module import MultiHeadActionMaskRLModule

MASKS = (np.bool_, np.int8, np.uint8, np.float32)


class CompiledActing:
    """`forward_exploration` of a `MultiHeadActionMaskRLModule` on the arrays that observations lie
    in: the same random numbers, the same results."""

    def __init__(self, module: Any, obs: np.ndarray, mask: np.ndarray) -> None:
        net, self.heads = module.net, module.heads
        self.network = net.flat.numpy(), net.sizes, net.activation
        self.obs, self.mask = obs, mask

    @classmethod
    def of(cls, module: Any, tree: Any) -> Self | None:
        """None where it is not the module as it is here, or the observations are not one array of
        32-bit floats and one of masks."""
        ours = MultiHeadActionMaskRLModule
        if not isinstance(module, ours) or any(
            getattr(type(module), name) is not getattr(ours, name)
            for name in ("_forward_exploration", "explore_compiled", "features", "observations")
        ):
            return None
        seen, mask = tree["observations"], tree["action_mask"]
        if not isinstance(seen, Leaf) or not isinstance(mask, Leaf):
            return None
        fits = (
            seen.now.ndim == mask.now.ndim == 2
            and seen.now.dtype == np.float32
            and mask.now.dtype in MASKS
            and not module.layout.one_hot
            and module.layout.scale == 1.0
            and module.net.flat.device.type == "cpu"
            and module.net.flat.dtype == torch.float32
            and module.net.compiles(len(seen.now))
        )
        return cls(module, seen.now, mask.now) if fits else None

    def act(self) -> dict[str, np.ndarray]:
        uniform = torch.rand(len(self.obs), self.heads.count).numpy()
        found = act_on_observations(self.heads, *self.network, self.obs, self.mask, uniform)
        return {
            Columns.ACTION_DIST_INPUTS: found[0],
            Columns.ACTIONS: found[1].astype(np.int32),
            Columns.ACTION_LOGP: found[2],
        }
