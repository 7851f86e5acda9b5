"""Your RLlib module against `MultiHeadActionMaskRLModule` on your own batch: values, gradients,
time.

    python examples/rllib_compare.py                      # a batch of random observations and masks
    python examples/rllib_compare.py --batch mine.npz     # arrays "observations" (B, D),
    "action_mask" (B, M), "actions" (B, C)

`PerHead` below is the module people write by hand: one linear layer, one mask, one distribution for
every head. Put your own class in its place and say in `copy_weights` which of its layers is which;
the rest needs no change.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.torch_utils import FLOAT_MIN
from torch import nn

from tenfold.integrations.rllib import MultiHeadActionMaskRLModule


class PerHead(TorchRLModule, ValueFunctionAPI):
    """The old module: a loop over heads."""

    def setup(self) -> None:
        widths = [self.observation_space["observations"].shape[0], *self.model_config["hidden"]]
        self.sizes = [int(n) for n in self.action_space.nvec]
        self.trunk = nn.Sequential(
            *[layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.Tanh())]
        )
        self.heads = nn.ModuleList(nn.Linear(widths[-1], n) for n in self.sizes)
        self.value = nn.Linear(widths[-1], 1)
        self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(input_lens=self.sizes)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observation = batch[Columns.OBS]
        features = self.trunk(observation["observations"])
        masks = torch.split(observation["action_mask"], self.sizes, dim=-1)
        logits = [
            head(features).masked_fill(mask == 0, FLOAT_MIN)
            for head, mask in zip(self.heads, masks, strict=True)
        ]
        return {Columns.ACTION_DIST_INPUTS: torch.cat(logits, dim=-1), Columns.EMBEDDINGS: features}

    def compute_values(
        self, batch: dict[str, Any], embeddings: torch.Tensor | None = None
    ) -> torch.Tensor:
        features = (
            self.trunk(batch[Columns.OBS]["observations"]) if embeddings is None else embeddings
        )
        return self.value(features).squeeze(-1)


def copy_weights(old: PerHead, new: MultiHeadActionMaskRLModule) -> None:
    """The same numbers in both: layers of the trunk in order, the heads one below another, the
    value."""
    with torch.no_grad():
        for into, source in zip(
            new.net.trunk,
            [layer for layer in old.trunk if isinstance(layer, nn.Linear)],
            strict=True,
        ):
            into.load_state_dict(source.state_dict())
        new.net.policy.weight.copy_(torch.cat([head.weight for head in old.heads]))
        new.net.policy.bias.copy_(torch.cat([head.bias for head in old.heads]))
        new.value.load_state_dict(old.value.state_dict())


def as_new(named: dict[str, torch.Tensor], new: MultiHeadActionMaskRLModule) -> list[torch.Tensor]:
    """The old module's gradients in the order of the new one's parameters."""
    trunk = [value for name, value in named.items() if name.startswith("trunk")]
    heads = [
        torch.cat(
            [
                value
                for name, value in named.items()
                if name.startswith("heads") and name.endswith(kind)
            ]
        )
        for kind in ("weight", "bias")
    ]
    return [*trunk, *heads, named["value.weight"], named["value.bias"]]


def build(module_class: type, observations: int, sizes: list[int], hidden: list[int]) -> Any:
    options = sum(sizes)
    return RLModuleSpec(
        module_class=module_class,
        action_space=gym.spaces.MultiDiscrete(sizes),
        model_config={"hidden": hidden},
        observation_space=gym.spaces.Dict(
            {
                "observations": gym.spaces.Box(-np.inf, np.inf, (observations,), np.float32),
                "action_mask": gym.spaces.Box(0, 1, (options,), np.int8),
            }
        ),
    ).build()


def random_batch(
    rng: np.random.Generator, rows: int, width: int, sizes: list[int]
) -> dict[str, np.ndarray]:
    """Half of the options forbidden, at least one of every head allowed, and actions among the
    allowed ones."""
    mask, actions = np.zeros((rows, sum(sizes)), np.int8), np.zeros((rows, len(sizes)), np.int64)
    start = 0
    for head, n in enumerate(sizes):
        allowed = rng.random((rows, n)) < 0.5
        actions[:, head] = rng.integers(0, n, rows)
        allowed[np.arange(rows), actions[:, head]] = True
        mask[:, start : start + n] = allowed
        start += n
    return {
        "observations": rng.normal(size=(rows, width)).astype(np.float32),
        "action_mask": mask,
        "actions": actions,
    }


def evaluate(module: Any, batch: dict[str, Any], actions: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a policy-gradient loss sees."""
    out = module.forward_train(batch)
    distribution = module.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS])
    return {
        "log-probability": distribution.logp(actions),
        "entropy": distribution.entropy(),
        "value": module.compute_values(batch, out.get(Columns.EMBEDDINGS)),
    }


def gradients(module: Any, batch: dict[str, Any], actions: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a loss with all three parts."""
    module.zero_grad(set_to_none=True)
    outputs = evaluate(module, batch, actions)
    (
        -outputs["log-probability"] - 0.01 * outputs["entropy"] + (outputs["value"] - 1) ** 2
    ).mean().backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def act(module: Any, batch: dict[str, Any]) -> torch.Tensor:
    """As RLlib's GetActions does: the module's own actions if it gives some, else drawn from its
    distribution."""
    out = module.forward_exploration(dict(batch))
    if Columns.ACTIONS in out:
        return out[Columns.ACTIONS]
    distribution = module.get_exploration_action_dist_cls().from_logits(
        out[Columns.ACTION_DIST_INPUTS]
    )
    actions = distribution.sample()
    distribution.logp(actions)
    return actions


def milliseconds(candidates: dict[str, Callable[[], Any]], rounds: int = 50) -> dict[str, float]:
    """Medians, in turns."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {
        name: statistics.median(seconds[rounds // 5 :]) * 1e3 for name, seconds in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--batch", type=Path, help="an .npz file with observations, action_mask and actions"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[8] * 10, help="options of every head"
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--rows", type=int, default=256, help="of the random batch")
    arguments = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    arrays = (
        dict(np.load(arguments.batch))
        if arguments.batch
        else random_batch(rng, arguments.rows, 80, arguments.sizes)
    )
    batch = {
        Columns.OBS: {key: torch.from_numpy(arrays[key]) for key in ("observations", "action_mask")}
    }
    actions = torch.from_numpy(arrays["actions"]).long()

    width = arrays["observations"].shape[1]
    old = build(PerHead, width, arguments.sizes, arguments.hidden)
    new = build(MultiHeadActionMaskRLModule, width, arguments.sizes, arguments.hidden)
    copy_weights(old, new)

    print(
        f"{len(actions)} rows, {len(arguments.sizes)} heads, {sum(arguments.sizes)} options; "
        "largest differences:"
    )
    expected, outputs = evaluate(old, batch, actions), evaluate(new, batch, actions)
    for name in expected:
        print(f"  {name:16} {float((expected[name] - outputs[name]).detach().abs().max()):.1e}")
    pairs = zip(
        as_new(gradients(old, batch, actions), new),
        gradients(new, batch, actions).values(),
        strict=True,
    )
    print(f"  {'gradients':16} {max(float((e - f).abs().max()) for e, f in pairs):.1e}")

    print("milliseconds:                 old      new    ratio")
    for name, work in (
        ("forward and backward", lambda module: gradients(module, batch, actions)),
        ("act", lambda module: act(module, batch)),
    ):
        times = milliseconds(
            {"old": lambda work=work: work(old), "new": lambda work=work: work(new)}
        )
        print(
            f"  {name:22} {times['old']:8.3f} {times['new']:8.3f} "
            f"{times['old'] / times['new']:8.1f}"
        )


if __name__ == "__main__":
    main()
