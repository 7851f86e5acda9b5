"""Ray RLlib, new API stack: PPO and its relatives with many masked action heads.

`MultiHeadActionMaskRLModule` is the module, `MaskedMultiCategorical` its action distribution,
`CriticPPOTorchLearner` also trains its critic Q(s, a). `BulkEnvRunner` samples what RLlib's
environment runner samples, `FusedPPOTorchLearner` updates as RLlib's PPO learner does; both without
a Python loop over rows, and each of them works without the other.
"""

from tenfold.integrations.rllib.distribution import MaskedMultiCategorical
from tenfold.integrations.rllib.learner import FusedPPOTorchLearner
from tenfold.integrations.rllib.module import (
    CriticPPOTorchLearner,
    HeadsModel,
    MultiHeadActionMaskRLModule,
)
from tenfold.integrations.rllib.runner import BulkEnvRunner

__all__ = [
    "BulkEnvRunner",
    "CriticPPOTorchLearner",
    "FusedPPOTorchLearner",
    "HeadsModel",
    "MaskedMultiCategorical",
    "MultiHeadActionMaskRLModule",
]
