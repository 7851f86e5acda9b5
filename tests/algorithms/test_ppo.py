"""Policy engines: fused equals plain update by update, whole runs too, and the invariants of what
is stored."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from tenfold.algorithms.ppo import PPO_GRAD, PPO_ONLINE, PlainPPO, PPOAgent
from tenfold.algorithms.ppo_cpu import FusedPPO
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.layout import observation_layout
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import policy_actions
from tenfold.engines.lockstep import Mismatch
from tenfold.ops.surrogate import draw_action, evaluated

SMALL = {"horizon": 16, "epochs": 2, "minibatches": 3, "net": {"hidden": [8, 7]}}


def place(
    env: str = "tenfold/CartPole-v1",
    engine: str = "fused",
    verify: int = 0,
    num_envs: int = 3,
    **agent: object,
) -> PPOLearner:
    return PPOLearner(
        Run.of(
            {
                "env": env,
                "num_envs": num_envs,
                "engine": engine,
                "verify": verify,
                "seed": 5,
                "steps": 10_000,
                "agent": {"name": "ppo", **SMALL, **agent},
            }
        )
    )


def filled(p: PPOLearner) -> PPOLearner:
    while p.rollout.left:
        p.envs.step(p.engine.explore(p.step, p.rounds))
        p.engine.store()
        p.rounds += 1
    return p


@pytest.mark.parametrize(
    "env",
    [
        "tenfold/CartPole-v1",
        "tenfold/Pendulum-v1",
        "tenfold/Assign-v0",
        "tenfold/JobShop-v0(instance=ft06)",
    ],
)
def test_the_ratio_is_1_before_the_first_update(env: str) -> None:
    """The mask and the log-probability stored are those the action was drawn under."""
    for engine in ("plain", "fused"):
        p = filled(place(env, engine, on_empty="absent"))
        plain = PlainPPO(p.agent, p.rollout, p.envs)
        plain.finish()
        plain.rollout.order[:] = np.arange(plain.rollout.order.size)
        for part in range(3):
            batch = plain.minibatch(part)
            output, value = p.agent.online(batch["obs"])
            each, _ = p.agent.distribution.evaluate(output, batch)
            assert torch.allclose((each - batch["log_p"]).exp(), torch.ones(()), atol=1e-5)
            assert torch.allclose(value, batch["value"], atol=1e-5)


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ("tenfold/CartPole-v1", {}),
        ("tenfold/CartPole-v1", {"value_clip": 0.05, "entropy": 0.02, "normalize_obs": True}),
        ("tenfold/Pendulum-v1", {"entropy": 0.01}),
        ("tenfold/Assign-v0", {"entropy": 0.01}),
        (
            "tenfold/JobShop-v0(instance=ft06)",
            {"on_empty": "absent", "net": {"hidden": [16], "activation": "relu"}},
        ),
    ],
)
def test_lockstep_over_many_updates(env: str, agent: dict, tmp_path: Path) -> None:
    """Every update of a run repeated by the plain engine from the same state; a violation
    raises."""
    p = place(env, verify=1, **agent)
    assert p.lockstep
    p.lockstep.folder = tmp_path
    while p.agent.updates < 60:
        p.round()
    assert p.lockstep.compared == p.agent.updates
    assert 0 < p.lockstep.largest < 1e-4


def test_a_wrong_update_stops_the_run_with_the_batch_saved(tmp_path: Path) -> None:
    p = place(verify=2)
    assert p.lockstep and isinstance(p.engine, FusedPPO)
    p.lockstep.folder = tmp_path
    p.engine.table.arrays["clip"] *= 1e-3  # the clipping range
    with pytest.raises(Mismatch, match="Update 2 of the fast engine"):
        for _ in range(100):
            p.round()
    assert (tmp_path / "mismatch-2.safetensors").exists()


@pytest.mark.parametrize("env", ["tenfold/CartPole-v1", "CartPole-v1", "tenfold/Assign-v0"])
def test_long_rounds_and_single_ones_are_the_same_run(env: str) -> None:
    """The fused engine's loop gives bit for bit what stage after stage gives."""
    many, single = place(env), place(env)
    single.rounds_by = "learner"
    while many.agent.updates < 24:
        many.round(10_000)
    while single.agent.updates < 24:
        single.round()
    while single.rounds < many.rounds:
        single.round()
    while many.rounds < single.rounds:
        many.round(many.step + many.run.num_envs)
    assert torch.equal(many.agent.block, single.agent.block)
    assert np.array_equal(many.envs.obs, single.envs.obs)


@pytest.mark.parametrize("engine", ["plain", "fused"])
@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ("tenfold/CartPole-v1", {"normalize_obs": True}),
        (
            "tenfold/CartPole-v1",
            {
                "minibatches": None,
                "minibatch_size": 9,
                "normalize_advantage": "minibatch",
                "clip": "linear(0.3, 0.1, 300, 48)",
                "lr": "table(0:1e-2, 100:1e-3, 300:0)",
                "target_kl": 1e-3,
                "kl_stop": "minibatch",
            },
        ),
        ("CartPole-v1", {}),
        ("tenfold/Assign-v0", {}),
        ("CartPole-v1", {"net": {"hidden": [8], "value_hidden": [], "activation": "gelu"}}),
    ],
)
def test_resume_is_as_if_never_stopped(env: str, agent: dict, engine: str) -> None:
    p = place(env, engine, **agent)
    while p.step < 70:  # in the middle of a rollout
        p.round(70)
    state = {
        part: {
            k: torch.as_tensor(v).clone() if part in ("agent", "engine") else np.array(v)
            for k, v in values.items()
        }
        for part, values in p.state().items()
    }
    again = place(env, engine, **agent)
    assert again.load_state(state)
    while p.step < 400:
        p.round(400)
    while again.step < 400:
        again.round(400)
    assert p.agent.updates == again.agent.updates > 0
    assert torch.equal(p.agent.block[PPO_ONLINE], again.agent.block[PPO_ONLINE])


def test_at_a_time_limit_the_value_is_that_of_the_final_observation() -> None:
    p = place("tenfold/Pendulum-v1", "plain", num_envs=2)  # every episode is cut after 200 steps
    while not p.envs.truncated.any():
        p.round()
    t = int(p.rollout.count[0]) - 1
    assert p.rollout.boundary[t].tolist() == [1, 1] and p.rollout.discount[
        t
    ].tolist() == pytest.approx([0.99, 0.99])
    assert np.allclose(p.rollout.next_value[t], p.agent.values(p.envs.final_obs))
    assert not np.allclose(p.rollout.next_value[t], p.agent.values(p.envs.obs))


def test_masked_actions_are_never_taken_and_absent_heads_do_not_learn() -> None:
    # the environment refuses a masked action itself
    p = filled(place("tenfold/JobShop-v0(instance=ft06)", on_empty="absent"))
    r = p.rollout
    heads = r.mask.reshape(*r.mask.shape[:2], 6, 7)
    allowed = np.take_along_axis(heads, r.chosen[..., None], -1)[..., 0]
    assert (allowed | ~heads.any(-1)).all() and heads.any(-1).mean() < 0.9
    absent = ~heads.any(-1)
    assert (r.chosen[absent] == 0).all()


def test_counterfactual_baselines_give_each_component_its_own_advantage() -> None:
    p = filled(place("tenfold/Assign-v0", "auto", baseline="counterfactual"))
    assert "not fused: the baseline is counterfactual" in p.description.engine
    p.engine.finish()
    advantage = p.engine.extra_rows["advantage"]
    assert advantage.shape == (48, 10) and advantage.std(dim=1).min() > 0
    before = p.agent.online.flat.clone()
    p.engine.learn(0, p.engine.per_phase, 0)
    assert not torch.equal(before, p.agent.online.flat) and p.agent.block[PPO_GRAD].isfinite().all()


@pytest.mark.parametrize(
    ("env", "agent", "words"),
    [
        ("tenfold/CartPole-v1", {"squash": True}, "is for continuous actions"),
        ("tenfold/Pendulum-v1", {"baseline": "counterfactual"}, "compares discrete alternatives"),
        (
            "tenfold/Catch-v0",
            {"normalize_obs": True, "net": {"encoder": "small"}},
            "is for vector observations",
        ),
    ],
)
def test_settings_that_do_not_fit_the_environment_are_refused(
    env: str, agent: dict, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        place(env, "auto", **agent)


def test_minibatches_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"agent\.minibatches = 100 is more than the 16 x 3"):
        place(minibatches=100)


MIXED = gym.spaces.Dict(
    {
        "turn": gym.spaces.Discrete(3, start=-1),
        "push": gym.spaces.Box(-2.0, 2.0, (2,), np.float32),
        "flags": gym.spaces.Tuple((gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([2, 4]))),
    }
)


class Mixed(gym.Env):
    """Takes every kind of action at once; the observation is a Dict with a mask."""

    def __init__(self) -> None:
        self.action_space = MIXED
        self.observation_space = gym.spaces.Dict(
            {
                "near": gym.spaces.Box(-1, 1, (3,), np.float32),
                "action_mask": gym.spaces.MultiBinary(13),
            }
        )

    def look(self) -> dict:
        # Dict sorts its keys: flags (2 + 2 + 2 + 4 options), then turn (3)
        mask = np.array([1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1], np.int8)
        return {"near": self.np_random.uniform(-1, 1, 3).astype(np.float32), "action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def step(self, action: dict) -> tuple:
        assert MIXED.contains(
            {
                **action,
                "turn": int(action["turn"]),
                "flags": (action["flags"][0].astype(np.int8), action["flags"][1]),
            }
        )
        assert action["turn"] != -1 and action["flags"][1][1] != 0  # masked
        self.count += 1
        return (
            self.look(),
            float(action["turn"]) + float(action["push"][0]),
            False,
            self.count >= 9,
            {},
        )


gym.register("Mixed-v0", Mixed)


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_every_kind_of_action_at_once_trains_plays_and_resumes(engine: str) -> None:
    p = place("Mixed-v0", engine)
    while p.agent.updates < 12:
        p.round()
    assert (
        p.envs.layout.size == 3
        and p.agent.actions.sizes == (2, 2, 2, 4, 3)
        and len(p.agent.actions.low) == 2
    )
    again = place("Mixed-v0", engine)
    assert again.envs.restore(p.envs.state()) and np.array_equal(again.envs.obs, p.envs.obs)
    act = p.agent.act(
        {"near": np.zeros(3, np.float32)}, mask=np.array([1] * 6 + [0] * 3 + [1] + [0, 0, 1], bool)
    )
    assert act["turn"] == 1 and act["flags"][1][1] == 3 and set(act) == {"turn", "push", "flags"}


def test_images_are_read_by_convolutions_in_the_plain_engine() -> None:
    p = place("tenfold/Catch-v0", "auto")
    assert "not fused: the network has convolutions (small)" in p.description.engine
    while p.agent.updates < 6:
        p.round()
    assert p.agent.act(p.envs.obs).shape == (3,)


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_a_mask_of_the_wrong_size_or_kind_is_refused_with_its_name(engine: str) -> None:
    class Wrong(Mixed):
        def look(self) -> dict:
            return super().look() | {"action_mask": self.bad}

    for bad, words in (
        (
            np.ones(5),
            r"Wrong-v0, environment 0, episode 0, step 0: the action mask has shape \(5,\); expected",
        ),
        (np.full(13, 0.5), "holds 0.5 at place 0, and not 0 or 1"),
        (
            np.array([1] * 10 + [0] * 3),
            "step 0: the action mask allows no option of the action's component turn; mend",
        ),
    ):
        Wrong.bad = bad  # type: ignore[attr-defined]
        gym.register("Wrong-v0", Wrong)
        with pytest.raises(UserError, match=words):
            place("Wrong-v0", engine).round()
        del gym.registry["Wrong-v0"]


def test_act_takes_single_observations_batches_and_tensors() -> None:
    env = gym.make("tenfold/Pendulum-v1")
    run = Run.of({"agent": {"name": "ppo", **SMALL}})
    agent = PPOAgent(
        run.agent,
        observation_layout(env.observation_space, "x"),
        policy_actions(env.action_space, "x"),
        0,
    )  # type: ignore[arg-type]
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    many = agent.act(rows)
    assert many.shape == (4, 1) and np.allclose(agent.act(rows[1]), many[1], atol=1e-6)
    assert isinstance(agent.act(torch.from_numpy(rows)), torch.Tensor)
    with pytest.raises(UserError, match="shape"):
        agent.act(np.zeros(5))


def test_an_unfit_wish_for_fused_is_refused() -> None:
    p = place()
    with pytest.raises(
        ConfigError, match="engine = fused does not fit: the network has convolutions"
    ):
        PPOLearner(replace(p.run, env="tenfold/Catch-v0", engine="fused"))
    with pytest.raises(ConfigError, match="verify = 3 has nothing to compare"):
        PPOLearner(replace(p.run, engine="plain", verify=3))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            {"near": np.array([0, np.nan, 0], np.float32)},
            "environment 0, episode 0, step 0: The observation's key near holds nan",
        ),
        ({"near": None}, "environment 0, episode 0, step 0: The observation's key near is missing"),
    ],
)
def test_an_observation_that_is_not_whole_is_refused_with_its_key(spoil: dict, words: str) -> None:
    class Spoilt(Mixed):
        def look(self) -> dict:
            return {k: v for k, v in (super().look() | spoil).items() if v is not None}

    gym.register("Spoilt-v0", Spoilt)
    try:
        with pytest.raises(UserError, match=words):
            place("Spoilt-v0", "plain")
    finally:
        del gym.registry["Spoilt-v0"]


def test_a_mask_that_comes_only_sometimes_is_refused() -> None:
    class Sometimes(gym.Env):
        observation_space, action_space = (
            gym.spaces.Box(-1, 1, (2,), np.float32),
            gym.spaces.Discrete(3),
        )

        def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
            return np.zeros(2, np.float32), {"action_mask": np.array([1, 0, 1])}

        def step(self, action: int) -> tuple:
            return np.zeros(2, np.float32), 0.0, False, False, {}

    gym.register("Sometimes-v0", Sometimes)
    with pytest.raises(UserError, match="with some observations and none with others"):
        place("Sometimes-v0", "plain").round()


def test_an_environment_owns_the_action_it_is_given() -> None:
    p = filled(place("tenfold/Assign-v0", "plain"))
    assert not np.shares_memory(
        p.agent.for_env(p.rollout.chosen[0], p.rollout.real[0]), p.rollout.chosen
    )


class Leaving:
    """Two agents; the second leaves the world after its first step of seven."""

    possible_agents = ("long", "short")

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Discrete(2)

    def seen(self) -> dict[str, np.ndarray]:
        return {a: np.float32([len(a) / 9, self.t / 9]) for a in self.possible_agents}

    def reset(self, seed: int | None = None, options: object = None) -> tuple:
        self.t, self.agents = 0, list(self.possible_agents)
        return self.seen(), {a: {} for a in self.agents}

    def step(self, actions: dict[str, int]) -> tuple:
        self.t += 1
        over = {a: self.t >= (7 if a == "long" else 1) for a in actions}
        self.agents = [a for a in actions if not over[a]]
        obs = {a: row for a, row in self.seen().items() if a in actions}
        return obs, dict.fromkeys(actions, 1.0), over, dict.fromkeys(actions, False), {}

    def close(self) -> None:
        """Nothing is open."""


def test_rows_that_are_no_transition_alone_teach_nothing() -> None:
    """An agent that has left its world has rows whose action is ignored; a minibatch of only these
    leaves the parameters whole."""
    for engine in ("plain", "fused"):
        p = PPOLearner(
            Run.of(
                {
                    "env": f"pettingzoo/{__name__.rpartition('.')[2]}:Leaving",
                    "num_envs": 1,
                    "engine": engine,
                    "agent": {
                        "name": "ppo",
                        "horizon": 40,
                        "epochs": 1,
                        "minibatches": 40,
                        "net": {"hidden": [8]},
                    },
                }
            )
        )
        while p.agent.updates < 80:
            p.round()
        assert p.agent.block.isfinite().all()


def test_narrow_gaussians_keep_the_ratio_at_1() -> None:
    """The log-probability is that of the number stored, which was rounded: with a deviation of e⁻⁸
    around 3 that is not the draw's."""
    output, log_std = np.full((1, 64), 3, np.float32), np.full(1, -8, np.float32)
    chosen, real, log_p = (
        np.zeros((64, 0), np.int64),
        np.zeros((64, 1), np.float32),
        np.zeros(64, np.float32),
    )
    none, mask = np.zeros(0, np.int64), np.zeros((64, 0), np.bool_)
    draw_action(
        output,
        log_std,
        none,
        mask,
        key(1, Purpose.ACTION),
        key(1, Purpose.NOISE_ACT),
        0,
        np.zeros_like(output),
        chosen,
        real,
        log_p,
    )
    expected, _ = evaluated(
        torch.from_numpy(output), torch.from_numpy(log_std), none, chosen, real, mask
    )
    assert np.allclose(log_p, expected.numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
# the graph alone, and with C++
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_compiled_engine_learns_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    from tenfold.algorithms.ppo_cpu import CompiledPPO, phase_of

    options = {"horizon": 8, "epochs": 2, "minibatches": 2, "entropy": 0.01, "net": {"hidden": [6]}}
    for plain, compiled in zip(
        phase_of(PlainPPO, "tenfold/Assign-v0", options, 1),
        phase_of(CompiledPPO, "tenfold/Assign-v0", options, 1),
        strict=True,
    ):
        assert np.allclose(plain, compiled, atol=1e-5)
