"""SAC and TD3: what an update does, against the equations in double precision; acting; bounds."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import tenfold as ten
from tenfold.algorithms.off_policy_settings import check_spec
from tenfold.algorithms.sac import SACAgent, drawn_option
from tenfold.algorithms.sac_td3_settings import SAC, TD3, Auto
from tenfold.algorithms.td3 import TD3Agent
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError, ConfigError, EnvironmentFault, UserError
from tenfold.core.graph_spaces import BoundedGraph
from tenfold.core.layout import ObsLayout, observation_layout
from tenfold.core.protocols import EnvSpec
from tenfold.core.spaces import DiscreteActions, bounded_actions
from tenfold.core.system import Clock
from tenfold.engines.lockstep import ActorCriticLockstep, Mismatch
from tenfold.engines.plain import EagerOptimiser, OffPolicyEngine
from tenfold.memory.replay import Replay
from tenfold.ops.critics import soft_value
from tenfold.ops.squashed import draw_squashed
from tenfold.training.learners import make_learner

OBS, NUMBERS, BATCH, LR = 3, 2, 7, 1e-2
LAYOUT = ObsLayout((OBS,), np.dtype(np.float32), (OBS,), 1.0)
SPACE = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([4, 1], np.float32))
BOX = bounded_actions(SPACE, "here", "sac")
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
SMALL: dict[str, Any] = {"lr": LR, "batch_size": BATCH, "tau": 0.2, "capacity": 100}
SMALL |= {"net": {"hidden": [6, 5]}}


def agent_of(options: dict[str, Any], actions: Any = BOX, seed: int = 4) -> Any:
    """Whose target is not its online network any more."""
    kinds = {"sac": (SACAgent, SAC), "td3": (TD3Agent, TD3)}
    agent, config = kinds[options.get("name", "sac")]
    made = agent(config.of(SMALL | options), LAYOUT, actions, seed)
    rng = np.random.default_rng(seed)
    made.target.flat.add_(torch.from_numpy(0.3 * rng.normal(size=len(made.target.flat))))
    return made


class Lanes:
    """Environments that nobody steps."""

    obs = np.zeros((1, OBS), np.float32)
    num_envs = 1


def filled(agent: Any, steps: int = 60) -> Replay:
    rng = np.random.default_rng(0)
    replay = agent.make_replay(Lanes())
    replay.begin(Lanes.obs)
    for _ in range(steps):
        shape = (1, NUMBERS) if agent.actions.reals else (1,)
        action = rng.uniform(-1, 1, shape).astype(np.float32)
        if not agent.actions.reals:
            action = rng.integers(0, agent.actions.n, 1)
        ends = rng.random((2, 1)) < 0.3
        seen = rng.normal(size=(2, 1, OBS)).astype(np.float32)
        replay.add(action, rng.normal(size=1), *ends, np.zeros(1, np.bool_), *seen)
    return replay


# an update, written anew: parameters are lists of weights and biases in double precision


def layers(flat: torch.Tensor, sizes: tuple[int, ...]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Weights and biases from the front of a flat vector, and the rest of it."""
    found = []
    for into, out in pairwise(sizes):
        for shape in ((out, into), (out,)):
            many = math.prod(shape)
            found.append(flat[:many].detach().clone().view(shape).requires_grad_())
            flat = flat[many:]
    return found, flat


def mlp(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for k in range(0, len(parameters), 2):
        x = x @ parameters[k].T + parameters[k + 1]
        x = x.relu() if k < len(parameters) - 2 else x
    return x


def flat_of(*groups: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for group in groups for p in group])


def stepped(groups: list[list[torch.Tensor]], loss: torch.Tensor) -> list[torch.Tensor]:
    """The first step of Adam; the gradient of each group."""
    every = [p for group in groups for p in group]
    found = torch.autograd.grad(loss, every)
    optimiser = torch.optim.Adam(every, lr=LR)
    for p, g in zip(every, found, strict=True):
        p.grad = g
    optimiser.step()
    rest = iter(found)
    return [torch.cat([next(rest).flatten() for _ in group]) for group in groups]


def gaussian(said: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An action and its log-probability, by the change of variable itself."""
    mean, log_std = said[:, :NUMBERS], said[:, NUMBERS:].clamp(-20, 2)
    raw = mean + log_std.exp() * noise
    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw)
    return raw.tanh(), (normal - torch.log(1 - raw.tanh() ** 2)).sum(1)


class Written:
    """One update of SAC or TD3 from an agent's numbers."""

    def __init__(self, agent: Any, batch: dict[str, torch.Tensor]) -> None:
        self.agent, self.config = agent, agent.config
        self.b = {
            k: v if k == "action" and v.dtype == torch.int64 else v.double()
            for k, v in batch.items()
        }
        hidden, n = self.config.net.hidden, getattr(agent.actions, "n", 0)
        said = n or (2 * NUMBERS if isinstance(agent, SACAgent) else NUMBERS)
        self.actor_sizes = (OBS, *hidden, said)
        self.critic_sizes = (OBS + agent.actions.reals, *hidden, n or 1)
        rest = agent.online.flat.double()
        self.actor, rest = layers(rest, self.actor_sizes)
        self.critics = []
        for _ in range(getattr(self.config, "critics", 2)):
            critic, rest = layers(rest, self.critic_sizes)
            self.critics.append(critic)
        self.log_alpha = rest.detach().clone().requires_grad_()
        rest = agent.target.flat.double()
        if isinstance(agent, TD3Agent):
            self.slow_actor, rest = layers(rest, self.actor_sizes)
        self.slow = []
        for _ in self.critics:
            critic, rest = layers(rest, self.critic_sizes)
            self.slow.append(critic)
        assert len(rest) == 0

    def q(self, critics: Any, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.stack([mlp(c, torch.cat([obs, action], 1))[:, 0] for c in critics])

    def bounded_sac(self) -> tuple[torch.Tensor, Callable[[], tuple[torch.Tensor, torch.Tensor]]]:
        b, alpha = self.b, self.log_alpha.detach().exp()
        with torch.no_grad():
            action, log_p = gaussian(mlp(self.actor, b["next_obs"]), b["next_noise"])
            least = self.q(self.slow, b["next_obs"], action).min(0).values
            y = b["reward"] + b["discount"] * (least - alpha * log_p)

        def policy() -> tuple[torch.Tensor, torch.Tensor]:
            action, log_p = gaussian(mlp(self.actor, b["obs"]), b["noise"])
            least = self.q(self.critics, b["obs"], action).min(0).values
            return (alpha * log_p - least).mean(), -log_p.mean().detach()

        return self.q(self.critics, b["obs"], b["action"]) - y, policy

    def discrete_sac(self) -> tuple[torch.Tensor, Callable[[], tuple[torch.Tensor, torch.Tensor]]]:
        b, alpha = self.b, self.log_alpha.detach().exp()

        def soft(critics: Any, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            p = F.softmax(mlp(self.actor, obs), 1)
            least = torch.stack([mlp(c, obs) for c in critics]).min(0).values
            return (p * (least - alpha * p.log())).sum(1), -(p * p.log()).sum(1)

        with torch.no_grad():
            y = b["reward"] + b["discount"] * soft(self.slow, b["next_obs"])[0]

        def policy() -> tuple[torch.Tensor, torch.Tensor]:
            value, entropy = soft(self.critics, b["obs"])
            return -value.mean(), entropy.mean().detach()

        taken = [mlp(c, b["obs"])[torch.arange(BATCH), b["action"]] for c in self.critics]
        return torch.stack(taken) - y, policy

    def td3(self) -> tuple[torch.Tensor, Callable[[], tuple[torch.Tensor, torch.Tensor]]]:
        b, config = self.b, self.config
        with torch.no_grad():
            noise = (b["next_noise"] * config.smoothing).clip(
                -config.smoothing_clip, config.smoothing_clip
            )
            action = (mlp(self.slow_actor, b["next_obs"]).tanh() + noise).clip(-1, 1)
            y = b["reward"] + b["discount"] * self.q(self.slow, b["next_obs"], action).min(0).values

        def policy() -> tuple[torch.Tensor, torch.Tensor]:
            action = mlp(self.actor, b["obs"]).tanh()
            return -self.q(self.critics[:1], b["obs"], action).mean(), torch.zeros(())

        return self.q(self.critics, b["obs"], b["action"]) - y, policy

    def update(self, target_entropy: float | None) -> dict[str, torch.Tensor]:
        """Everything after it, in the agent's order."""
        kind = (
            self.td3
            if isinstance(self.agent, TD3Agent)
            else self.discrete_sac
            if isinstance(self.agent.actions, DiscreteActions)
            else self.bounded_sac
        )
        apart, policy = kind()
        loss = 0.5 * (self.b["weight"] * apart**2).mean(1).sum()
        gradients = stepped(self.critics, loss)
        loss, entropy = policy()
        found = stepped([self.actor], loss)
        alpha = torch.zeros_like(self.log_alpha)
        if target_entropy is not None:
            loss = -(self.log_alpha * (-entropy + target_entropy)).sum()
            (alpha,) = stepped([[self.log_alpha]], loss)
        slow = flat_of(*([self.slow_actor] if isinstance(self.agent, TD3Agent) else []), *self.slow)
        fast = flat_of(*([self.actor] if isinstance(self.agent, TD3Agent) else []), *self.critics)
        return {
            "online": flat_of(self.actor, *self.critics, [self.log_alpha]),
            "gradient": torch.cat([*found, *gradients, alpha]),
            "target": (1 - self.config.tau) * slow + self.config.tau * fast,
            "errors": apart.detach().abs().mean(0),
        }


EQUATIONS: dict[str, tuple[dict[str, Any], Any, float | None]] = {
    "defaults": ({}, BOX, -2.0),
    "given temperature": ({"temperature": 0.3}, BOX, None),
    "target entropy": ({"temperature": "auto(-0.5, 0.2)"}, BOX, -0.5),
    "prioritised, n-step": ({"replay": "prioritized", "n_step": 3}, BOX, -2.0),
    "discrete": ({}, DiscreteActions(4, 0), 0.98 * math.log(4)),
    "td3": ({"name": "td3", "policy_delay": 1}, BOX, None),
    "td3, clipped": ({"name": "td3", "policy_delay": 1, "smoothing": 3.0}, BOX, None),
    "ddpg": ({"name": "td3", "critics": 1, "policy_delay": 1, "smoothing": 0.0}, BOX, None),
}


@pytest.mark.parametrize("case", EQUATIONS)
def test_an_update_is_that_of_the_equations_in_double_precision(case: str) -> None:
    options, actions, target_entropy = EQUATIONS[case]
    agent = agent_of(options, actions)
    replay = filled(agent)
    if replay.priorities:
        replay.sample()
        replay.prioritise(np.arange(BATCH, dtype=np.float32))
    engine = OffPolicyEngine(agent, replay, Lanes())  # type: ignore[arg-type]
    before = agent.block.clone()
    errors = engine.launch(0, Clock())
    rows = {name: value.clone() for name, value in engine.batch_tensors.items()}
    assert len(set(rows["discount"].tolist())) > 1  # some steps terminated
    if replay.priorities:
        assert len(set(rows["weight"].tolist())) > 1
    after = agent.block.clone()
    agent.block.copy_(before)
    wanted = Written(agent, rows).update(target_entropy)
    agent.block.copy_(after)
    assert torch.allclose(errors.double(), wanted["errors"], rtol=1e-4, atol=1e-5)
    gradient = agent.online.flat_grad.double()
    for name, place in agent.online.places.items():
        own, other = gradient[place], wanted["gradient"][place]
        assert float((own - other).norm()) <= 1e-5 * float(other.norm()) + 1e-7, name
    # steps of Adam are as long for gradients of nothing but rounding
    moving = wanted["gradient"].abs() > 1e-5
    off = (agent.online.flat.double() - wanted["online"]).abs()
    assert float(off[moving].max()) < 1e-5 and float(off.max()) < 2 * LR
    assert torch.allclose(agent.target.flat.double(), wanted["target"], atol=1e-3)
    if replay.priorities:
        engine.finish(errors)
        leaf = replay.tree[replay.tree.size // 2 :][replay.batch.row[-1]]
        assert leaf == pytest.approx((float(wanted["errors"][-1]) + 1e-6) ** 0.6, rel=1e-3)


def test_the_log_probability_of_a_squashed_draw_by_hand() -> None:
    """u = 0.5 + 1·0.5 = 1; log N = −0.125 − 0.918939; log(1 − tanh² 1) = log 0.41997434 =
    −0.867562."""
    mean, log_std = torch.tensor([[0.5]]), torch.zeros(1, 1)
    action, log_p = draw_squashed(mean, log_std, torch.tensor([[0.5]]))
    assert action.item() == pytest.approx(0.7615942)
    assert log_p.item() == pytest.approx(-0.125 - 0.9189385 + 0.8675616, abs=1e-6)
    # where tanh is flat: log(1 − tanh² 20) = 2·(log 2 − 20), of which 1 − tanh² knows nothing
    _, far = draw_squashed(torch.tensor([[20.0]]), log_std, torch.zeros(1, 1))
    assert far.item() == pytest.approx(-0.9189385 - 2 * (math.log(2) - 20), abs=1e-5)


def test_the_soft_value_of_discrete_actions_by_hand() -> None:
    """0.2·1 + 0.8·3 + 0.5·H, H = −0.2·log 0.2 − 0.8·log 0.8 = 0.500402."""
    logits = torch.tensor([[0.2, 0.8]]).log() + 7
    value, entropy = soft_value(logits, torch.tensor([[1.0, 3.0]]), torch.tensor(0.5))
    assert entropy.item() == pytest.approx(0.5004024, abs=1e-6)
    assert value.item() == pytest.approx(2.6 + 0.2502012, abs=1e-6)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_time_limit_is_bootstrapped_and_a_termination_is_not(name: str) -> None:
    """Critics that say 5 of everything, a policy that says 0: of sac log π(0) = −½ log 2π for each
    of two numbers, at a temperature of 1."""
    agent = agent_of({"name": name, "gamma": 0.9, "n_step": 3})
    for network in (agent.online, agent.target):
        network.flat.zero_()
    for critic in agent.target.critics:
        critic.layers[-1].bias.data.fill_(5.0)
    replay = agent.make_replay(Lanes())
    replay.begin(Lanes.obs)
    yes, no = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    for ends in ((no, no), (yes, no), (no, yes)):  # two steps and a termination, a time limit
        replay.add(np.zeros((1, 2), np.float32), np.ones(1), *ends, no, Lanes.obs, Lanes.obs)
    soft, found = 5 + (2 * HALF_LOG_TAU if name == "sac" else 0), {}
    for _ in range(9):
        batch = vars(replay.sample()) | {"next_noise": np.zeros((BATCH, NUMBERS), np.float32)}
        wanted = agent.td_target({name: torch.from_numpy(rows) for name, rows in batch.items()})
        found |= dict(zip(batch["row"].tolist(), wanted.tolist(), strict=True))
    # row 2 holds the final observation
    assert found == pytest.approx({0: 1 + 0.9, 1: 1.0, 3: 1 + 0.9 * soft}, abs=1e-5)


def test_the_temperature_falls_while_the_policy_is_more_random_than_asked() -> None:
    for target, direction in ((-50.0, -1), (50.0, 1)):
        agent = agent_of({"temperature": f"auto({target}, 0.5)"})
        engine = OffPolicyEngine(agent, filled(agent), Lanes())  # type: ignore[arg-type]
        engine.update(1, 0, Clock())
        # the first step of Adam is as long as the learning rate
        assert agent.log_alpha.item() == pytest.approx(math.log(0.5) + direction * LR, rel=1e-4)
        told = engine.statistics()
        assert told["alpha"] == pytest.approx(0.5) and set(told) == {
            "critic_loss", "q", "td_error", "grad_norm", "actor_loss", "alpha", "entropy"
        }  # fmt: skip


def test_the_policy_and_all_targets_wait_for_their_turn() -> None:
    agent = agent_of({"name": "td3", "policy_delay": 3})
    engine = OffPolicyEngine(agent, filled(agent), Lanes())  # type: ignore[arg-type]
    actor, critics = (agent.online.places[name] for name in ("actor", "critics"))
    for number in range(1, 8):
        before, target = agent.online.flat.clone(), agent.target.flat.clone()
        engine.update(1, 0, Clock())
        now = number % 3 == 0
        assert torch.equal(before[actor], agent.online.flat[actor]) != now
        assert torch.equal(target, agent.target.flat) != now
        assert not torch.equal(before[critics], agent.online.flat[critics])
        if number == 3:  # the policy's first step of Adam, which is as long as the learning rate
            moved = (agent.online.flat - before)[actor].abs()
            moved = moved[agent.online.flat_grad[actor].abs() > 1e-4]
            assert len(moved) > 20 and moved.numpy() == pytest.approx(LR, rel=1e-3)


def test_noise_on_the_targets_action_is_clipped_and_so_is_the_action() -> None:
    """A critic whose value is the first number of the action; a policy that says 0 or very much."""
    agent = agent_of({"name": "td3", "smoothing": 10.0, "net": {"hidden": []}, "gamma": 0.5})
    agent.target.flat.zero_()
    for critic in agent.target.critics:
        critic.layers[0].weight.data[0, OBS] = 1.0
    noise = torch.tensor([[-1.0, 0.0], [0.01, 0.0], [1.0, 0.0]])
    rows = {
        "next_obs": torch.zeros(3, OBS),
        "reward": torch.ones(3),
        "discount": torch.full((3,), 0.5),
    }
    found = agent.td_target(rows | {"next_noise": noise})
    assert found.tolist() == pytest.approx([1 - 0.25, 1 + 0.05, 1 + 0.25])
    agent.target.actor.layers[0].bias.data.fill_(30.0)  # tanh is 1
    assert agent.td_target(rows | {"next_noise": noise})[2].item() == pytest.approx(1 + 0.5)


class Careless(OffPolicyEngine):
    """Its policy's gradient is a thousandth too long."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.optimiser = CarelessOptimiser(self.agent)


class CarelessOptimiser(EagerOptimiser):
    def descend_networks(self, loss: Any, batch: Any, parts: Any, every: int = 1) -> Any:
        def longer(batch: Any) -> Any:
            value, *more = loss(batch)
            return value * (1.001 if "actor" in parts else 1.0), *more

        return super().descend_networks(longer, batch, parts, every)


@pytest.mark.parametrize("options", [{"replay": "prioritized"}, {"name": "td3"}], ids=str)
def test_lockstep_finds_a_wrong_gradient_of_the_policy_alone(
    options: dict[str, Any], tmp_path: Path
) -> None:
    for kind in (OffPolicyEngine, Careless):
        agent = agent_of(options)
        lockstep = ActorCriticLockstep(kind(agent, filled(agent), Lanes()), 1)  # type: ignore[arg-type]
        lockstep.folder = tmp_path
        if kind is Careless:
            with pytest.raises(Mismatch, match="the gradients of the actor differ"):
                lockstep.update(9, 0, Clock())
        else:
            lockstep.update(9, 0, Clock())
            assert lockstep.compared == 9 and lockstep.largest == 0


def test_critics_that_agree_to_the_last_bits_are_a_tie() -> None:
    """The policy follows the smaller value, and rounding decides which that is."""
    agent = agent_of({})
    lockstep = ActorCriticLockstep(OffPolicyEngine(agent, filled(agent), Lanes()), 1)  # type: ignore[arg-type]
    lockstep.update(1, 0, Clock())
    assert not lockstep.tied()
    first, _ = (flat_of(list(c.parameters())) for c in lockstep.plain.agent.online.critics)
    place = lockstep.plain.agent.online.places["critics"]
    lockstep.plain.agent.online.flat[place][len(first) :] = first * (1 + 1e-7)
    assert lockstep.tied()


# acting


def test_actions_are_unscaled_to_their_bounds_and_no_further() -> None:
    low, high = np.array([[-2, 0], [0.1, -3]]), np.array([[4, 1], [0.7, -1]])
    space = gym.spaces.Box(low, high, dtype=np.float64)
    actions = bounded_actions(space, "here", "sac")
    inside = np.array([[-1, -1, -1, -1], [0, 0, 0, 0], [1, 1, 1, 1], [0.5, -0.5, 0, 1]], np.float32)
    found = actions.for_env(inside)
    assert np.array_equal(found[0], low) and np.array_equal(found[2], high)
    assert np.allclose(found[1], (low + high) / 2)
    assert np.allclose(found[3], [[2.5, 0.25], [0.4, -1]])
    assert found.dtype == np.float64 and all(space.contains(one) for one in found)
    drawn = actions.random(np.uint64(3), np.arange(500))
    assert all(space.contains(one) for one in drawn)
    assert np.allclose(drawn.reshape(500, -1).min(0), low.ravel(), atol=0.05)
    with pytest.raises(CheckpointError, match="not between -1 and 1"):
        actions.check_stored(np.array([[0, 0, 0, 1.5]]))
    with pytest.raises(CheckpointError, match="not between -1 and 1"):
        actions.check_stored(np.array([[0, np.nan, 0, 0]]))


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_run_learns_after_its_first_hundred_steps_by_default(name: str) -> None:
    """From fewer rows than a batch has."""
    agent = {"name": name, "net": {"hidden": [4]}}
    learner = make_learner(Run.of({"env": "Pendulum-v1", "agent": agent, "engine": "plain"}))
    try:
        while learner.step < 103:
            learner.round()
        assert (learner.agent.config.batch_size, learner.agent.updates) == (256, 3)
    finally:
        learner.close()


def test_until_learning_starts_actions_are_uniform_and_then_the_policys() -> None:
    agent = agent_of({"learning_starts": 100})
    rows = np.zeros((500, OBS), np.float32)
    random = agent.explore(rows, 99, 3)
    assert random.dtype == np.float32 and abs(random).max() <= 1
    assert np.histogram(random, 4, (-1, 1))[0].min() > 200
    drawn = agent.explore(rows, 100, 3)
    mean, log_std = np.split(agent.policy_output(rows).numpy(), 2, 1)
    raw = (np.arctanh(drawn.astype(np.float64)) - mean) / np.exp(log_std)
    assert abs(raw.mean(0)).max() < 0.15 and raw.std(0) == pytest.approx([1, 1], abs=0.1)
    assert not np.array_equal(drawn, agent.explore(rows, 100, 4))
    assert np.array_equal(drawn, agent.explore(rows, 150, 3))
    best = agent.act(rows[0])
    assert best == pytest.approx(BOX.for_env(np.tanh(mean[:1]))[0], abs=1e-6)


def test_noise_of_td3_follows_its_schedule_and_stays_inside() -> None:
    agent = agent_of({"name": "td3", "learning_starts": 0, "noise": "linear(2, 0, 100)"})
    rows = np.zeros((300, OBS), np.float32)
    wide, none = agent.explore(rows, 0, 1), agent.explore(rows, 100, 1)
    assert abs(wide).max() == 1 and (abs(wide) == 1).mean() > 0.3
    assert np.allclose(none, np.tanh(agent.policy_output(rows).numpy()))
    assert agent.exploring(50) == {"noise": 1.0}


def test_discrete_actions_are_drawn_by_their_probabilities() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log().expand(5, 3)
    u = torch.tensor([[0.0], [0.19], [0.21], [0.71], [0.999999]], dtype=torch.float64)
    assert drawn_option(logits, u).tolist() == [0, 0, 1, 2, 2]
    agent = agent_of({"learning_starts": 0}, DiscreteActions(3, 5))
    rows = np.zeros((2000, OBS), np.float32)
    share = np.bincount(agent.explore(rows, 0, 0), minlength=3) / 2000
    assert share == pytest.approx(agent.policy_output(rows)[0].softmax(0).numpy(), abs=0.04)
    assert agent.act(rows[0]) == 5 + int(agent.policy_output(rows)[0].argmax())
    assert set(agent.act(rows, sample=True).tolist()) == {5, 6, 7}
    assert agent.act(rows[:2], mask=[[True, False, False], [False, False, True]]).tolist() == [5, 7]


def test_masks_and_draws_that_mean_nothing_are_refused() -> None:
    row = np.zeros(OBS, np.float32)
    with pytest.raises(UserError, match="expected is None, since its actions are real numbers"):
        agent_of({}).act(row, mask=[True])
    with pytest.raises(UserError, match=r"shape \(2,\); expected is an array of shape \(3,\)"):
        agent_of({}, DiscreteActions(3, 0)).act(row, mask=[True, True])
    with pytest.raises(UserError, match="allows no action in row 0"):
        agent_of({}, DiscreteActions(3, 0)).act(row, mask=[False] * 3)
    with pytest.raises(UserError, match="cannot be drawn"):
        agent_of({"name": "td3"}).act(row, sample=True)


def test_sampled_evaluation_draws_by_episode_and_step() -> None:
    agent = agent_of({})
    rows, at = np.zeros((3, OBS), np.float32), np.array([5, 5, 6])
    found = agent.policy("sampled")(rows, None, np.zeros(3, np.int64), at)
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])
    assert np.array_equal(agent.policy("greedy")(rows, None, at, at), agent.act(rows))


# whole runs


class Number(gym.Env[np.ndarray, np.ndarray]):
    """One step: the reward is how near the action is to 2."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-2, 4, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        return np.zeros(2, np.float32), -float((action[0] - 2) ** 2), True, False, {}


gym.register("Number-v0", Number)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_it_finds_the_number_that_is_rewarded(name: str) -> None:
    agent = {"name": name, "lr": 3e-3, "batch_size": 64, "learning_starts": 200}
    agent |= {"net": {"hidden": [32, 32]}, "capacity": 1000}
    place = make_learner(Run.of({"env": "Number-v0", "agent": agent, "engine": "plain"}))
    while place.step < 700:
        place.round()
    assert place.agent.act(np.zeros(2, np.float32))[0] == pytest.approx(2, abs=0.3)


def test_settings_are_judged() -> None:
    assert Run.of({"agent": {"name": "sac"}}).agent.temperature == Auto(None, 1.0)  # type: ignore[attr-defined]
    for agent, words in (
        ({"name": "sac", "temperature": 0}, "agent.temperature = 0 is out of range"),
        ({"name": "sac", "temperature": "warm"}, "agent.temperature = warm is not auto"),
        ({"name": "td3", "critics": 3}, "agent.critics = 3 is out of range"),
        ({"name": "td3", "temperature": 1}, "agent.temperature = 1 is not a setting of td3"),
        ({"name": "sac", "policy_delay": 2}, "belongs to td3"),
    ):
        with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
            Run.of({"agent": agent})
    with pytest.raises(ConfigError, match="eval_policy = sampled is for policies that can"):
        Run.of({"agent": {"name": "td3"}, "eval_policy": "sampled"})


class Odd(Number):
    """Of any spaces."""

    def __init__(self, actions: Any, seen: Any = None) -> None:
        self.action_space, self.observation_space = actions, seen or Number.observation_space


@pytest.mark.parametrize(
    ("name", "actions", "words"),
    [
        ("td3", gym.spaces.Discrete(3), "discrete actions .* td3 needs continuous ones .* dqn, sac or ppo"),
        ("td3", gym.spaces.MultiDiscrete([2, 3]), "several discrete actions .* train it with ppo"),
        ("sac", gym.spaces.MultiDiscrete([2, 3]), r"sac needs continuous ones \(a Box\) or one Discrete action: train it with ppo"),
        ("sac", gym.spaces.Dict({"a": gym.spaces.Discrete(2)}), "has Dict actions"),
        ("sac", gym.spaces.Tuple([gym.spaces.Discrete(2)]), "has Tuple actions"),
        ("sac", gym.spaces.Box(-np.inf, np.inf, (1,)), "actions without bounds .* sac needs finite ones"),
        ("td3", gym.spaces.Box(0, np.inf, (1,)), "actions without bounds .* td3 needs finite ones"),
        ("sac", gym.spaces.Box(0, 9, (1,), np.int64), "a Box of whole numbers"),
        ("dqn", gym.spaces.Box(-1, 1, (1,)), "dqn needs one Discrete action: train it with sac, td3 or ppo"),
    ],
)  # fmt: skip
def test_spaces_that_do_not_fit_are_refused_in_one_sentence(
    name: str, actions: Any, words: str
) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        make_learner(Run(env=lambda: Odd(actions), agent=ten.named(name).agent))  # type: ignore[arg-type]


def test_masks_graphs_and_teams_are_refused_in_one_sentence() -> None:
    for run, words in (
        ({"env": "Taxi-v3"}, "offers an action mask, which agent sac cannot use"),
        ({"env": "tenfold/TreasureSmall-v0"}, "share = false means a network for each of the 5"),
        ({"env": "CartPole-v1", "share": True}, "share = true is for worlds of several agents"),
    ):
        with pytest.raises(UserError, match=words):
            make_learner(Run.of({"agent": {"name": "sac"}} | run))
    nodes = BoundedGraph(gym.spaces.Box(-1, 1, (2,)), None, 3, 3)
    seen = observation_layout(nodes, "Web-v0")
    with pytest.raises(EnvironmentFault, match="Pendulum-v1 has graphs as observations"):
        check_spec(Run.of({"agent": {"name": "sac"}}), EnvSpec("Web-v0", seen, SPACE))
    with pytest.raises(ConfigError, match=r"net\.module = a:B is for dqn and ppo"):
        make_learner(Run.of({"agent": {"name": "sac", "net": {"module": "a:B"}}}))
