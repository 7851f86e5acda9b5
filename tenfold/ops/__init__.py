"""Equations on arrays, each beside its plain reference. Those that people use alone are here:
`ten.ops.gae(…)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold.ops.choices import categorical_entropy as categorical_entropy
    from tenfold.ops.choices import categorical_log_prob as categorical_log_prob
    from tenfold.ops.choices import categorical_sample as categorical_sample
    from tenfold.ops.choices import discounted_return as discounted_return
    from tenfold.ops.choices import normal_entropy as normal_entropy
    from tenfold.ops.choices import normal_log_prob as normal_log_prob
    from tenfold.ops.choices import normal_sample as normal_sample
    from tenfold.ops.gaussian_policy import Gaussian as Gaussian
    from tenfold.ops.heads import MaskedHeads as MaskedHeads
    from tenfold.ops.moments import RunningNorm as RunningNorm
    from tenfold.ops.observations import FlattenPlan as FlattenPlan
    from tenfold.ops.returns import gae as gae
    from tenfold.ops.returns import lambda_returns as lambda_returns
    from tenfold.ops.returns import n_step_returns as n_step_returns

HOMES = {
    "FlattenPlan": "observations",
    "Gaussian": "gaussian_policy",
    "MaskedHeads": "heads",
    "RunningNorm": "moments",
    "categorical_entropy": "choices",
    "categorical_log_prob": "choices",
    "categorical_sample": "choices",
    "discounted_return": "choices",
    "gae": "returns",
    "lambda_returns": "returns",
    "n_step_returns": "returns",
    "normal_entropy": "choices",
    "normal_log_prob": "choices",
    "normal_sample": "choices",
}
__all__ = sorted(HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'tenfold.ops' has no attribute {name!r}")
    return getattr(import_module(f"tenfold.ops.{HOMES[name]}"), name)
