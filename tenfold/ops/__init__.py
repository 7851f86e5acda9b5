"""Equations on arrays, each beside its plain reference. Those that people use alone are here:
`ten.ops.gae(…)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold.ops.gaussian import Gaussian as Gaussian
    from tenfold.ops.gaussian import normal_entropy as normal_entropy
    from tenfold.ops.gaussian import normal_log_prob as normal_log_prob
    from tenfold.ops.gaussian import normal_sample as normal_sample
    from tenfold.ops.heads import MaskedHeads as MaskedHeads
    from tenfold.ops.heads import categorical_entropy as categorical_entropy
    from tenfold.ops.heads import categorical_log_prob as categorical_log_prob
    from tenfold.ops.heads import categorical_sample as categorical_sample
    from tenfold.ops.moments import RunningNorm as RunningNorm
    from tenfold.ops.observations import FlattenPlan as FlattenPlan
    from tenfold.ops.returns import discounted_return as discounted_return
    from tenfold.ops.returns import gae as gae
    from tenfold.ops.returns import lambda_returns as lambda_returns
    from tenfold.ops.returns import n_step_returns as n_step_returns

HOMES = {
    "FlattenPlan": "observations",
    "Gaussian": "gaussian",
    "MaskedHeads": "heads",
    "RunningNorm": "moments",
    "categorical_entropy": "heads",
    "categorical_log_prob": "heads",
    "categorical_sample": "heads",
    "discounted_return": "returns",
    "gae": "returns",
    "lambda_returns": "returns",
    "n_step_returns": "returns",
    "normal_entropy": "gaussian",
    "normal_log_prob": "gaussian",
    "normal_sample": "gaussian",
}
__all__ = sorted(HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'tenfold.ops' has no attribute {name!r}")
    return getattr(import_module(f"tenfold.ops.{HOMES[name]}"), name)
