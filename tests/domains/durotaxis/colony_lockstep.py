"""Colonies in torch beside the compiled ones, with the same actions, compared after every step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tenfold.domains.durotaxis.baselines import follower_policy
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.reference import legal, some_actions
from tenfold.domains.durotaxis.setting import Setting
from tenfold.domains.durotaxis.torch_colonies import TorchColonies
from tenfold.domains.durotaxis.torch_rules import AGE, State

NAME = "tenfold/Durotaxis-v0"
Policy = Callable[[DurotaxisEnvironments, int], np.ndarray]


def both(
    arguments: str | Setting, number: int, seed: int = 0, device: str = "cpu", **more: Any
) -> tuple[DurotaxisEnvironments, TorchColonies]:
    name = f"{NAME}({arguments})" if isinstance(arguments, str) else NAME
    setting = None if isinstance(arguments, str) else arguments
    return DurotaxisEnvironments(name, number, seed, setting=setting), TorchColonies(
        setting or name, number, seed, device, **more
    )


def varied(envs: DurotaxisEnvironments, seed: int = 1) -> Policy:
    """Near the stationary size; now and then nothing or everything is deleted."""
    name = f"{NAME}(mode={envs.setting.mode}, max_nodes={envs.setting.max_nodes}, init_nodes=1)"
    columns = envs.action.shape[1] if envs.setting.learn == "all" else 1
    return lambda envs, step: some_actions(
        np.random.default_rng((seed, step)), name, 1, envs.num_envs
    )[0, :, :columns]


def steered(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    """The follower with an unsteady hand: nodes on one straight line leave the corners of the hull
    to rounding."""
    actions = follower_policy(envs, step)
    actions[:, 4] = actions[:, 4].clip(-0.4, 0.4) + np.random.default_rng(step).uniform(
        -0.1, 0.1, envs.num_envs
    )
    return actions


def step_both(envs: DurotaxisEnvironments, colonies: TorchColonies, actions: np.ndarray) -> None:
    actions = legal(envs.mask, actions.copy())
    envs.step(actions)
    colonies.step(torch.from_numpy(actions).to(colonies.device))
    assert_same(envs, colonies)


def play_both(
    envs: DurotaxisEnvironments, colonies: TorchColonies, policy: Policy, steps: int
) -> dict[int, int]:
    """How often each ending was seen."""
    assert_same(envs, colonies)
    seen: dict[int, int] = {}
    for step in range(steps):
        step_both(envs, colonies, policy(envs, step))
        for ending in envs.ending[envs.ending > 0].tolist():
            seen[ending] = seen.get(ending, 0) + 1
    colonies.check()
    return seen


def assert_same(envs: DurotaxisEnvironments, colonies: TorchColonies) -> None:
    """Whole numbers and trees exactly, places to 1e-11, what is seen and earned to 1e-6."""
    c = envs.colonies
    s: Any = State(*(tensor.cpu().numpy() for tensor in colonies.state))  # type: ignore[arg-type]
    for what in ("nodes", "following", "step", "passed", "retreat"):
        np.testing.assert_array_equal(getattr(s, what), getattr(c, what), err_msg=what)
    np.testing.assert_array_equal(s.streams.view(np.uint64), c.streams)
    np.testing.assert_array_equal(colonies.episode.cpu(), envs.episode)
    there = np.arange(c.x.shape[1]) < c.nodes[:, None]
    for what, found, expected in (
        ("id", colonies.ids.cpu().numpy(), c.ident),
        ("parent", colonies.parents.cpu().numpy(), c.parent),
        ("age", s.whole[AGE], c.age),
    ):
        np.testing.assert_array_equal(found[there], expected[there], err_msg=what)
    numbers = (c.x, c.y, c.stiff, c.gx, c.gy, *np.moveaxis(c.born, -1, 0))
    for found, expected in zip(s.numbers, numbers, strict=True):
        np.testing.assert_allclose(found[there], expected[there], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(s.ground, c.ground, rtol=1e-12)
    np.testing.assert_array_equal(s.extent, c.extent)
    np.testing.assert_allclose(s.centre, c.centre, rtol=1e-12)
    for what in ("terminated", "truncated", "ending"):
        np.testing.assert_array_equal(
            getattr(colonies, what).cpu(), getattr(envs, what), err_msg=what
        )
    for what in ("obs", "components", "reward", "ret"):
        found, expected = getattr(colonies, what).cpu().numpy(), getattr(envs, what)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=what)
    ended = envs.ending > 0
    np.testing.assert_allclose(
        colonies.final_obs.cpu().numpy()[ended], envs.final_obs[ended], rtol=1e-6, atol=1e-6
    )
    assert (colonies.mask is None) == (envs.mask is None)
    if colonies.mask is not None:
        np.testing.assert_array_equal(colonies.mask.cpu(), envs.mask)
    for found, expected in zip(colonies.finished, envs.finished, strict=True):
        assert (found.env, found.length, found.success) == (
            expected.env,
            expected.length,
            expected.success,
        )
        assert abs(found.ret - expected.ret) < 1e-6


def put(envs: DurotaxisEnvironments, colonies: TorchColonies) -> None:
    """The compiled colonies as they are, in torch: for those that a test has laid out by hand."""
    c = envs.colonies
    up = np.full(c.parent.shape, -1)
    for i, n in enumerate(c.nodes):
        slot = {int(ident): j for j, ident in enumerate(c.ident[i, :n])}
        up[i, :n] = [slot.get(int(parent), -1) for parent in c.parent[i, :n]]
    values = (
        np.stack((c.x, c.y, c.stiff, c.gx, c.gy, *np.moveaxis(c.born, -1, 0))),
        np.stack((c.ident, c.age, up)),
        c.nodes,
        c.following,
        c.step,
        c.passed,
        c.retreat,
        c.centre,
        c.streams.view(np.int64),
        c.ground,
        c.extent,
    )
    colonies.state = State(
        *(torch.from_numpy(np.array(value)).to(colonies.device) for value in values)
    )
    colonies.mask = colonies.options()
