"""The agent: its loss, its exploration, its options, and how it acts for a user."""

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.config.networks import Net
from tenfold.config.schedules import Exponential, Linear, value_at
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.nets.q_network import QNetwork
from tenfold.ops.qlearning import td_items

VECTOR = ObsLayout((3,), np.dtype(np.float32), (3,), 1.0)
IMAGE = ObsLayout((8, 8), np.dtype(np.uint8), (1, 8, 8), 1 / 255)


def agent(layout: ObsLayout = VECTOR, start: int = 0, **options: object) -> DQNAgent:
    return DQNAgent(DQN(net=Net(hidden=(8,)), **options), layout, DiscreteActions(4, start), seed=1)  # type: ignore[arg-type]


def batch(size: int = 6, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "obs": torch.randn(size, 3, generator=g),
        "next_obs": torch.randn(size, 3, generator=g),
        "action": torch.randint(0, 4, (size,), generator=g),
        "reward": torch.randn(size, generator=g),
        "discount": torch.full((size,), 0.9),
        "weight": torch.ones(size),
    }


IMPLICIT = "implicit(samples=3, target_samples=5, cosines=6, acting=4)"


@pytest.mark.parametrize(
    "obs",
    [np.float32([0.1, 0.2, 0.3]), [0.1, 0.2, 0.3], torch.tensor([0.1, 0.2, 0.3])],
    ids=["NumPy", "list", "torch"],
)
def test_act_takes_one_observation(obs) -> None:
    action = agent().act(obs)
    assert int(action) in range(4)
    assert isinstance(action, torch.Tensor if isinstance(obs, torch.Tensor) else int)


def test_act_takes_a_batch_and_gives_each_row_what_it_gets_alone() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    a = agent(explore="noisy", dueling=True, distribution="quantile(5)")
    together = a.act(rows)
    assert together.shape == (50,) and together.tolist() == [a.act(row) for row in rows]
    assert a.act(torch.from_numpy(rows)).tolist() == together.tolist()
    assert a.act(rows.astype(np.float64)).tolist() == together.tolist()
    assert len(set(together.tolist())) > 1


def test_act_speaks_the_environments_numbers() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert (agent(start=5).act(rows) == agent().act(rows) + 5).all()


def test_act_takes_only_allowed_actions() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    a = agent()
    best = a.act(rows)
    mask = np.ones((20, 4), bool)
    mask[np.arange(20), best] = False
    second = np.argsort(a.values(rows), axis=-1)[:, -2]
    assert a.act(rows, mask=mask).tolist() == second.tolist()
    assert a.act(rows[0], mask=mask[0]) == second[0]
    assert a.act(torch.from_numpy(rows), mask=torch.from_numpy(mask)).tolist() == second.tolist()


@pytest.mark.parametrize(
    ("obs", "mask", "complaint"),
    [
        (
            np.zeros(4, np.float32),
            None,
            r"has shape \(4,\); this agent takes \(3,\) or, in a batch, \(B, 3\)",
        ),
        (np.zeros((2, 2, 3), np.float32), None, "has shape"),
        (
            np.zeros(3, np.float32),
            np.ones(3, bool),
            r"mask has shape \(3,\); expected is .* \(4,\)",
        ),
        (
            np.zeros((2, 3), np.float32),
            np.array([[1, 1, 1, 1], [0, 0, 0, 0]], bool),
            "allows no action in row 1",
        ),
    ],
)
def test_act_refuses_what_does_not_fit(obs, mask, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        agent().act(obs, mask=mask)


def test_act_reads_images() -> None:
    image = np.random.default_rng(0).integers(0, 255, (5, 8, 8)).astype(np.uint8)
    a = agent(IMAGE)
    assert len(a.online.convolutions) and a.act(image).tolist() == [a.act(i) for i in image]


# the loss


def gradient(a: DQNAgent, b: dict[str, torch.Tensor], size: int | None = None) -> torch.Tensor:
    a.online.flat_grad.zero_()
    a.loss(b, None, None, size or len(b["action"]))[0].backward()
    return a.online.flat_grad.clone()


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"double": False},
        {"dueling": True},
        {"distribution": "quantile(5)"},
        {"distribution": IMPLICIT},
        {"loss": "huber"},
    ],
    ids=str,
)
def test_the_gradient_reaches_every_layer_and_equals_finite_differences(
    option: dict[str, object],
) -> None:
    """The update must change every layer (a forward pass under no_grad would not), by the loss's
    own derivative."""
    a, b = (
        agent(**option),
        {k: v.double() if v.is_floating_point() else v for k, v in batch().items()},
    )
    b |= a.draw_for(6)
    a.online.double()
    a.target.double()
    a.target.flat.add_(0.1)
    found = gradient(a, b)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in a.online.parameters())
    # what double chooses depends on the parameters by jumps alone, and none lies so near
    for place in range(0, found.numel(), 7):
        ends = []
        for move in (1e-6, -1e-6):
            a.online.flat[place] += move
            ends.append(float(a.loss(b, None, None, len(b["action"]))[0].detach()))
            a.online.flat[place] -= move
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float(found[place]), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_flows_through_the_bootstrap(double: bool) -> None:
    """With γ = 0 and the target as reward the gradient is the same: s' carries none, not even in
    double's online pass."""
    a, b = agent(double=double), batch()
    a.target.flat.mul_(1.3)
    through = gradient(a, b)
    with torch.no_grad():
        chooser = (a.online if double else a.target)(b["next_obs"]).mean(-1).argmax(-1)
        value = a.target(b["next_obs"]).mean(-1).gather(1, chooser[:, None])[:, 0]
    fixed = b | {"reward": b["reward"] + b["discount"] * value, "discount": torch.zeros(6)}
    assert torch.allclose(through, gradient(a, fixed), rtol=1e-5, atol=1e-7)
    assert a.target.flat_grad.abs().sum() == 0


def test_double_differs_from_plain_where_the_networks_disagree() -> None:
    b = batch(64)
    plain, double = agent(double=False), agent(double=True)
    for a in (plain, double):
        a.target.flat.mul_(-1)  # the target prefers other actions
    assert not torch.allclose(gradient(plain, b), gradient(double, b))
    for a in (plain, double):
        a.target.flat.copy_(a.online.flat)  # where they agree, so do the two rules
    assert torch.equal(gradient(plain, b), gradient(double, b))


def test_weights_multiply_items_before_the_mean() -> None:
    """Items of weight 0 and 2 instead of 1 and 1: the gradient is that of the second item alone."""
    b = batch(2)
    weighted = gradient(agent(), b | {"weight": torch.tensor([0.0, 2.0])})
    assert torch.allclose(
        weighted, gradient(agent(), {k: v[1:] for k, v in b.items()}), rtol=1e-5, atol=1e-7
    )


def test_batch_one_is_its_row_of_a_larger_batch() -> None:
    b = batch(5)
    rows = [gradient(agent(), {k: v[i : i + 1] for k, v in b.items()}) for i in range(5)]
    assert torch.allclose(torch.stack(rows).mean(0), gradient(agent(), b), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "option",
    [
        {"double": False},
        {"distribution": "quantile(5)"},
        {"distribution": IMPLICIT},
        {"distribution": IMPLICIT, "dueling": True, "double": True},
    ],
    ids=str,
)
def test_stacked_members_learn_what_each_learns_alone(option: dict[str, object]) -> None:
    """Three agents as one network with a member dimension: losses, TD errors and gradients of each
    are those it has alone."""
    config = DQN(net=Net(hidden=(8,)), **option)  # type: ignore[arg-type]
    agents = [DQNAgent(config, VECTOR, DiscreteActions(4, 0), seed) for seed in range(3)]
    online, target = (
        QNetwork((3,), 4, config, members=3).initialise(seeds) for seeds in ([0, 1, 2], [7, 8, 9])
    )
    batches = [
        batch(seed=i) | a.draw_for(6) | {"weight": torch.rand(6) + 0.5}
        for i, a in enumerate(agents)
    ]
    stacked = {name: torch.stack([b[name] for b in batches]) for name in batches[0]}
    next_fractions = stacked.get("next_fractions")
    with torch.no_grad():
        next_values = target(stacked["next_obs"], None, next_fractions)
        chooser = (
            online(stacked["next_obs"], None, next_fractions) if config.double else next_values
        )
    weighted, errors, q = td_items(
        stacked,
        online(stacked["obs"], None, stacked.get("fractions")),
        next_values,
        chooser,
        config.loss,
    )
    weighted.sum().backward()
    for i, a in enumerate(agents):
        a.target.flat.copy_(target.flat[i])
        loss, error, mean_q = a.loss(batches[i], None, None, 6)
        a.online.flat_grad.zero_()
        (loss * 6).backward()
        assert torch.allclose(weighted[i].mean(), loss, rtol=1e-5) and torch.allclose(
            q[i].mean(), mean_q, rtol=1e-4, atol=1e-6
        )
        assert torch.allclose(errors[i], error, rtol=1e-4, atol=1e-6)
        assert torch.allclose(online.flat_grad[i], a.online.flat_grad, rtol=1e-4, atol=1e-5)


# implicit quantiles


def test_fractions_are_functions_of_seed_and_update_each_item_has_its_own() -> None:
    a, again, other = agent(distribution="implicit"), agent(distribution="implicit"), agent()
    first = a.draw_for(50)
    assert first["fractions"].shape == first["next_fractions"].shape == (50, 12)
    assert all(torch.equal(again.draw_for(50)[name], first[name]) for name in first)
    a.count += 1
    drawn = torch.cat([t.flatten() for t in (*first.values(), *a.draw_for(50).values())])
    assert len(set(drawn.tolist())) > 0.999 * drawn.numel()  # of 24 bits: hardly a repetition
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=4 * 12**-0.5 / drawn.numel() ** 0.5)
    assert other.draw_for(50) == {}


def test_double_chooses_by_the_online_mean_over_the_drawn_fractions() -> None:
    """With fractions near 0 the worst cases choose, not the means the agent acts by."""
    a, b = agent(distribution=IMPLICIT, double=True), batch(64)
    a.online.flat.mul_(4)  # so that the quantiles of an action lie far apart
    a.target.flat.mul_(-1)
    b |= a.draw_for(64) | {"next_fractions": torch.full((64, 5), 0.01)}
    with torch.no_grad():
        chosen = a.online(b["next_obs"], None, b["next_fractions"]).mean(-1).argmax(-1)
        acted = a.online(b["next_obs"]).mean(-1).argmax(-1)
        y = (
            b["reward"]
            + 0.9
            * a.target(b["next_obs"], None, b["next_fractions"])
            .mean(-1)
            .gather(1, chosen[:, None])[:, 0]
        )
        q = a.online(b["obs"], None, b["fractions"]).mean(-1).gather(1, b["action"][:, None])[:, 0]
    assert (chosen != acted).any()
    assert torch.allclose(a.loss(b, None, None, 64)[1], y - q, rtol=1e-4, atol=1e-5)


def test_values_are_means_over_evenly_spaced_fractions() -> None:
    a, rows = (
        agent(distribution=IMPLICIT, dueling=True),
        np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32),
    )
    with torch.no_grad():
        each = [
            a.online(torch.from_numpy(rows), None, torch.full((7, 1), fraction))
            for fraction in (1 / 8, 3 / 8, 5 / 8, 7 / 8)
        ]
    assert torch.allclose(torch.from_numpy(a.values(rows)), torch.cat(each, -1).mean(-1), atol=1e-6)
    assert (a.values(rows) == a.values(rows)).all()  # nothing is drawn for acting
    assert a.act(rows).tolist() == [a.act(row) for row in rows]


# exploration


def test_schedules_are_pure_functions_of_the_step() -> None:
    line, curve = Linear(1.0, 0.1, 100), Exponential(1.0, 0.01, 100)
    assert [value_at(line, s) for s in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert [value_at(curve, s) for s in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.1, 0.01, 0.01])
    assert value_at(0.3, 7) == 0.3


def frequencies(a: DQNAgent, step: int, rounds: int = 3000) -> np.ndarray:
    row = np.ones((4, 3), np.float32)
    taken = np.concatenate([a.explore(row, step, r) for r in range(rounds)])
    return np.bincount(taken, minlength=4) / taken.size


def test_epsilon_takes_random_actions_at_the_scheduled_rate() -> None:
    a = agent(explore="epsilon(linear(1, 0.2, 100))")
    best = a.act(np.ones(3, np.float32))
    assert np.abs(frequencies(a, 0) - 0.25).max() < 0.02
    late = frequencies(a, 100)
    assert late[best] == pytest.approx(0.8 + 0.05, abs=0.015)
    assert np.abs(np.delete(late, best) - 0.05).max() < 0.01


def test_boltzmann_follows_the_softmax_of_the_values() -> None:
    a = agent(explore="boltzmann(0.2)")
    q = a.values(np.ones((1, 3), np.float32))[0].astype(np.float64)
    expected = np.exp((q - q.max()) / 0.2)
    assert np.abs(frequencies(a, 0) - expected / expected.sum()).max() < 0.02


def test_noise_explores_and_the_greedy_policy_has_none() -> None:
    a = agent(explore="noisy(5)", learning_starts=10)
    assert (frequencies(a, 10, 400) > 0).sum() >= 2
    row = np.ones(3, np.float32)
    assert len({a.act(row) for _ in range(20)}) == 1


def test_noisy_exploration_draws_uniformly_before_learning_starts() -> None:
    a = agent(explore="noisy(1e-6)", learning_starts=10)
    assert np.abs(frequencies(a, 9) - 0.25).max() < 0.02
    # with hardly any noise the network's favourite, always
    assert frequencies(a, 10, 100).max() == 1.0


def test_exploration_is_a_function_of_seed_and_round() -> None:
    row = np.ones((4, 3), np.float32)
    for how in ("epsilon(0.5)", "boltzmann(1)", "noisy(3)"):
        first, again = agent(explore=how, learning_starts=0), agent(explore=how, learning_starts=0)
        drawn = [first.explore(row, 0, r).tolist() for r in range(50)]
        assert drawn == [again.explore(row, 0, r).tolist() for r in range(50)]
        assert len({tuple(d) for d in drawn}) > 1
