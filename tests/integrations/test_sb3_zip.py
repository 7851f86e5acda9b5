"""Models' files of Stable-Baselines3, which is not needed for them: read without a pickle opened,
bit for bit; crafted ones refused; written again; runs made of them."""

import io
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_files import (
    ACTIONS,
    MEMORY,
    OBS,
    actions_of,
    data_of,
    head,
    mlp,
    model_zip,
    objects_of,
    pickled,
    policy_of,
    space_table,
    torch_bytes,
    write_zip,
)

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.integrations.sb3 import saving
from tenfold.integrations.sb3.classes import DQN, PPO
from tenfold.integrations.sb3.parameters import (
    NamedParameters,
    ParameterMismatch,
    TensorMismatch,
)
from tenfold.integrations.sb3.saved_model import SavedModel, interpret
from tenfold.integrations.sb3.saved_settings import make_agent, translation_of
from tenfold.integrations.sb3.saved_spaces import saved_space
from tenfold.integrations.sb3.zip_file import read_model
from tenfold.training.learners import make_learner

KINDS = tuple(ACTIONS)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def model_in(path: Path) -> SavedModel:
    """A model's file, read with pickles forbidden."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pickle was opened")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickle, "loads", refuse)
        patch.setattr(pickle, "load", refuse)
        return interpret(read_model(path))


def agent_of(saved: SavedModel) -> Any:
    run = Run.of({**translation_of(saved).settings, "env": "CartPole-v1", "steps": 10**6})
    agent = make_agent(saved, run, *saved.spaces)
    saving.give_model(saved, agent)
    return agent


def opened(path: Path) -> Any:
    return agent_of(model_in(path))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "PPO memory"])
def test_a_file_acts_as_its_weights_say(kind: str, tmp_path: Path) -> None:
    agent = opened(model_zip(tmp_path / "m.zip", kind))
    obs = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    expected = actions_of(kind, policy_of(kind), obs)
    if ACTIONS[kind].dtype == np.float32:
        np.testing.assert_allclose(agent.act(obs), expected, rtol=0, atol=2e-6)
    else:
        np.testing.assert_array_equal(agent.act(obs), expected)
    assert not Path("opened-a-pickle").exists()


def test_a_policy_that_remembers_acts_as_its_weights_say(tmp_path: Path) -> None:
    agent, policy = opened(model_zip(tmp_path / "m.zip", "PPO memory")), policy_of("PPO memory")
    memory = torch.nn.LSTM(3, MEMORY)
    weights = {name: value for name, value in policy.items() if name.startswith("lstm_actor.")}
    memory.load_state_dict({name.partition(".")[2]: value for name, value in weights.items()})
    obs = np.random.default_rng(0).normal(size=(9, 50, 3)).astype(np.float32)
    with torch.no_grad():
        features = memory(torch.from_numpy(obs))[0].flatten(0, 1).numpy()
    expected = actions_of("PPO memory", policy, features).reshape(9, 50)
    state = np.zeros((50, agent.state_size), np.float32)
    for rows, actions in zip(obs, expected, strict=True):
        chosen, state = agent.infer(rows, None, None, state)
        np.testing.assert_array_equal(chosen, actions)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_moments_are_those_of_the_file_bit_for_bit(kind: str, tmp_path: Path) -> None:
    agent, expected = opened(model_zip(tmp_path / "m.zip", kind)), objects_of(kind)
    named = NamedParameters(agent)
    parameters, variables = named.all(), expected.pop("pytorch_variables")
    assert list(parameters) == list(expected)
    assert list(parameters["policy"]) == list(expected["policy"])
    for name, tensor in expected["policy"].items():
        assert torch.equal(parameters["policy"][name], tensor), name
    for name in set(expected) - {"policy"}:
        for index, moments in expected[name]["state"].items():
            for moment, tensor in moments.items():
                assert torch.equal(parameters[name]["state"][index][moment], tensor), (name, moment)
    for name, tensor in variables.items():
        assert torch.equal(named.variables()[name].detach(), tensor)


def test_settings_are_those_of_the_file(tmp_path: Path) -> None:
    ppo = opened(model_zip(tmp_path / "ppo.zip", "PPO")).config
    assert (ppo.lr, ppo.gamma, ppo.horizon, ppo.epochs, ppo.lam) == (0.002, 0.97, 64, 4, 0.9)
    assert (ppo.clip, ppo.value_weight, ppo.net.activation) == (0.3, 1.0, "tanh")
    activation = {":type:": "<class 'dict'>", ":serialized:": "", "activation_fn": ELU}
    saved = model_zip(tmp_path / "dqn.zip", "DQN", {"policy_kwargs": activation})
    dqn = opened(saved).config
    assert (dqn.capacity, dqn.batch_size, dqn.net.hidden, dqn.double) == (500, 16, (5, 4), False)
    assert (dqn.net.activation, dqn.every) == ("elu", 4)  # of (64 - 32) steps there were 8 updates


ELU = "<class 'torch.nn.modules.activation.ELU'>"


def test_what_stood_in_a_pickle_alone_is_named(tmp_path: Path) -> None:
    data = {"learning_rate": pickled("function"), "_n_updates": 3}
    saved = model_in(model_zip(tmp_path / "m.zip", "DQN", data))
    assert saved.unread == ("learning_rate", "train_freq")
    line = pickled("stable_baselines3.common.utils.LinearSchedule", start=0.5, end=0.1)
    data = {"learning_rate": line | {"end_fraction": 0.5}}
    schedule = model_in(model_zip(tmp_path / "l.zip", "PPO", data))
    rates = [schedule.arguments["learning_rate"](left) for left in (1.0, 0.75, 0.5, 0.0)]
    assert rates == pytest.approx([0.5, 0.3, 0.1, 0.1])


# parameters


def test_set_parameters_checks_everything_before_it_changes_anything(tmp_path: Path) -> None:
    agent = opened(model_zip(tmp_path / "m.zip", "DQN"))
    named, before = NamedParameters(agent), agent.online.flat.clone()
    parameters = named.all()
    parameters["policy"] = {k: torch.ones_like(v) for k, v in parameters["policy"].items()}
    with pytest.raises(ParameterMismatch, match=r"Key critic is an invalid object name"):
        named.load({**parameters, "critic": {}})
    with pytest.raises(ValueError, match=r"do not match agents' parameters: expected"):
        named.load({"policy": parameters["policy"]})
    short = {k: v for k, v in parameters["policy"].items() if k != "q_net.q_net.0.bias"}
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \['q_net.q_net.0.b"):
        named.load({**parameters, "policy": short})
    wrong = {**parameters["policy"], "q_net.q_net.0.bias": torch.ones(6)}
    with pytest.raises(TensorMismatch, match=r"size mismatch for q_net.q_net.0.bias: .*\(6,\)"):
        named.load({**parameters, "policy": wrong})
    assert torch.equal(agent.online.flat, before)
    named.load({"policy": short}, exact_match=False)
    assert torch.equal(named.policy()["q_net.q_net.0.weight"], torch.ones(5, 3))
    bias = named.policy()["q_net.q_net.0.bias"]
    assert torch.equal(bias, policy_of("DQN")["q_net.q_net.0.bias"])


def test_optimisers_that_repeat_the_target_network_are_read(tmp_path: Path) -> None:
    objects = objects_of("DQN")
    state = objects["policy.optimizer"]["state"]
    state |= {index + 6: state[index] for index in range(6)}
    agent = opened(write_zip(tmp_path / "old.zip", data_of("DQN"), objects))
    moments = NamedParameters(agent).optimizer("policy.optimizer")["state"]
    assert len(moments) == 6 and torch.equal(moments[5]["exp_avg"], state[5]["exp_avg"])


def test_critics_whose_loss_has_no_half_have_moments_of_twice_the_gradient(tmp_path: Path) -> None:
    agent = opened(model_zip(tmp_path / "m.zip", "TD3"))
    first = objects_of("TD3")["critic.optimizer"]["state"][0]
    start = agent.online.places["critics"].start
    ours = slice(start, start + first["exp_avg"].numel())
    assert torch.equal(agent.exp_avg[ours] * 2, first["exp_avg"].flatten())
    assert torch.equal(agent.exp_avg_sq[ours] * 4, first["exp_avg_sq"].flatten())
    assert agent.updates == 8


# files of our own


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_file_gives_back_every_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "find_spec", lambda name: None)  # as if it were not installed
    saved = model_in(model_zip(tmp_path / "m.zip", kind))
    agent = agent_of(saved)
    attributes = saved.arguments | saved.counters
    attributes |= dict(zip(saving.SPACES, saved.spaces, strict=True))
    saving.save_model(tmp_path / "new" / "ours", saved.class_name, agent, attributes)
    again = model_in(tmp_path / "new" / "ours")
    assert again.class_name == saved.class_name and again.spaces == saved.spaces
    assert {**again.arguments, "policy_kwargs": {}} == {**saved.arguments, "policy_kwargs": {}}
    other = agent_of(again)
    for name, tensor in agent.state().items():
        assert torch.equal(other.state()[name], tensor), name


def test_replay_memory_comes_back_from_its_file(tmp_path: Path) -> None:
    run = Run(env="CartPole-v1", agent=ten.DQN(capacity=200), engine="plain", steps=300)
    learner, other = make_learner(run), make_learner(run)
    for _ in range(60):
        learner.round()
    saving.save_replay(tmp_path / "memory", learner)
    assert (tmp_path / "memory.pkl").is_file()
    saving.load_replay(tmp_path / "memory", other)
    rows, expected = (one.replay.written(0 * one.replay.head) for one in (other, learner))
    assert np.array_equal(other.replay.head, learner.replay.head + 1)  # the episode was cut
    for name, array in expected.items():
        assert np.array_equal(rows[name][: len(array)], array), name
    (tmp_path / "theirs.pkl").write_bytes(b"\x80\x05N.")
    with pytest.raises(UserError, match=r"is a pickle, as Stable-Baselines3 saves a replay"):
        saving.load_replay(tmp_path / "theirs", other)
    small = make_learner(Run(env="CartPole-v1", agent=ten.DQN(capacity=150), engine="plain"))
    with pytest.raises(UserError, match=r"a replay memory of another size: buffer_size"):
        saving.load_replay(tmp_path / "memory", small)


# files that are refused


def trap() -> bytes:
    """What torch saves, with a call in its pickle."""
    source = zipfile.ZipFile(io.BytesIO(torch_bytes({"a": torch.zeros(1)})))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                content = b"cos\nsystem\n(S'touch opened-a-pickle'\ntR."
            archive.writestr(name, content)
    return buffer.getvalue()


def policy_with(kind: str, **changes: torch.Tensor) -> dict[str, torch.Tensor]:
    return policy_of(kind) | {name.replace("__", "."): t for name, t in changes.items()}


def a2c() -> dict[str, Any]:
    return {k: v for k, v in data_of("PPO").items() if k != "clip_range"}


def stepped(steps: float) -> dict[str, Any]:
    """DQN's optimiser after that many steps."""
    state = objects_of("DQN")["policy.optimizer"]
    for moments in state["state"].values():
        moments["step"] = torch.tensor(steps)
    return state


RNG = torch.Generator().manual_seed(0)
FIRST = "q_net__q_net__0__weight"
HUGE = {**space_table(gym.spaces.Discrete(3)), "n": "9999999999"}
CRAFTED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "json": (b"{", {}, "data is no JSON"),
    "deep": (b"[" * 10**5, {}, "data is no JSON"),
    "table": (b"[1]", {}, "data is no table"),
    "call": ({}, {"policy": trap()}, r"policy.pth cannot be read as tensors .* was run"),
    "half": ({}, {"policy": torch_bytes(policy_of("DQN"))[:999]}, "cannot be read as tensors"),
    "list": ({}, {"policy": [1, 2]}, "policy is no table of tensors"),
    "number": ({}, {"policy": {"q_net.q_net.0.weight": 1}}, "is no dense tensor"),
    "nan": (
        {},
        {"policy": policy_with("DQN", **{FIRST: torch.full((5, 3), torch.nan)})},
        "q_net.q_net.0.weight' is not finite",
    ),
    "posing": (
        {},
        {"policy": policy_with("DQN", **{FIRST: torch.zeros(1).expand(10**6, 10**6)})},
        "more numbers than are stored",
    ),
    "layers": (
        {},
        {"policy": policy_with("DQN", **{FIRST: torch.zeros(7, 3)})},
        "does not follow the layer before it",
    ),
    "missing": (
        {},
        {"policy": {k: v for k, v in policy_of("DQN").items() if "bias" not in k}},
        r"Missing key\(s\) in state_dict",
    ),
    "moments": ({}, {"policy.optimizer": {"state": 3}}, "has no state"),
    "never": ({}, {"policy.optimizer": stepped(torch.nan)}, "step of .* counts nothing"),
    "often": ({}, {"policy.optimizer": stepped(1e30)}, "step of .* counts nothing"),
    "variables": ({}, {"pytorch_variables": 5}, "pytorch_variables.pth is no table of tensors"),
    "one variable": (
        {},
        {"pytorch_variables": torch.zeros(3)},
        "pytorch_variables.pth is no table of tensors",
    ),
    "adam": ({"policy_kwargs": {"optimizer_kwargs": 5}}, {}, "optimizer_kwargs = 5: it is no dict"),
    "extracting": (
        {"policy_kwargs": {"features_extractor_kwargs": 5}},
        {},
        "features_extractor_kwargs = 5: it is no dict",
    ),
    "inputs": (
        {"observation_space": space_table(gym.spaces.Box(0, 1, (4,)))},
        {},
        "its policy reads 3 numbers and gives 3, and observations have 4",
    ),
    "options": ({"action_space": HUGE}, {}, "action_space is no space that can be"),
    "space": ({"action_space": 3}, {}, "action_space describes no space"),
    "dict": (
        {"observation_space": pickled("gymnasium.spaces.dict.Dict")},
        {},
        "observation_space is Dict, which the file does not tell in text: give the environment",
    ),
    "sde": ({"use_sde": True}, {}, "use_sde = True: state-dependent exploration"),
    "gamma": ({"gamma": "often"}, {}, "gamma"),
    "extractor": (
        {"policy_kwargs": {"features_extractor_class": "<class '__main__.Mine'>"}},
        {},
        "features_extractor_class' = '__main__.Mine', a class that tenfold does not have",
    ),
    "images": (
        {},
        {"policy": mlp((3, 3), "q_net.features_extractor.cnn.", RNG)},
        "holds a policy with a features extractor",
    ),
    "tqc": ({}, {"policy": mlp((3, 3), "critic.qf0.", RNG)}, "is a model of 'TQC'"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    data, objects, sentence = CRAFTED[name]
    data = data if isinstance(data, bytes) else data_of("DQN") | data
    path = write_zip(tmp_path / "m.zip", data, objects_of("DQN") | objects)
    with pytest.raises(UserError, match=sentence):
        opened(path)
    assert not Path("opened-a-pickle").exists()


def test_other_algorithms_are_refused_by_their_names(tmp_path: Path) -> None:
    policy = {"policy": head(3, 3, "action_net", RNG), "pytorch_variables": {}}
    with pytest.raises(UserError, match=r"is a model of 'A2C', which tenfold does not have"):
        model_in(write_zip(tmp_path / "a.zip", a2c(), policy))
    with pytest.raises(UserError, match=r"is a model of 'TRPO'"):
        trpo = a2c() | {"cg_max_steps": 15}
        model_in(write_zip(tmp_path / "t.zip", trpo, policy))


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with pytest.raises(FileNotFoundError, match=r"m.zip does not exist"):
        read_model(path)
    path.write_bytes(b"no zip")
    with pytest.raises(UserError, match=r"m.zip is damaged or no model of Stable-Baselines3"):
        read_model(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", "{}")
    with pytest.raises(UserError, match=r"it has no data or no policy.pth"):
        read_model(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", bytes(50_000_000))
    with pytest.raises(UserError, match=r"policy.pth' that grows from .* which weights do not"):
        read_model(path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(65):
            archive.writestr(f"{number}.pth", b"")
    with pytest.raises(UserError, match=r"holds 65 files or one twice"):
        read_model(path)


# spaces


@pytest.mark.parametrize(
    "space",
    [
        OBS,
        gym.spaces.Box(-np.arange(12.0).reshape(3, 4) / 7, 10, (3, 4), np.float64),
        gym.spaces.Box(0, 255, (4, 4), np.uint8),
        gym.spaces.Discrete(5, start=2),
        gym.spaces.MultiDiscrete([3, 2, 4]),
        gym.spaces.MultiBinary(4),
        gym.spaces.MultiBinary([2, 3]),
    ],
    ids=str,
)
def test_a_space_is_read_from_its_text(space: gym.Space[Any]) -> None:
    read = saved_space("m.zip", "observation_space", space_table(space))
    assert type(read) is type(space) and read.shape == space.shape and read.dtype == space.dtype
    if isinstance(space, gym.spaces.Box) and isinstance(read, gym.spaces.Box):
        np.testing.assert_allclose(read.low, space.low, rtol=1e-7)
        np.testing.assert_allclose(read.high, space.high, rtol=1e-7)
    else:
        assert read == space


def test_a_space_that_is_abbreviated_asks_for_the_environment() -> None:
    table = space_table(gym.spaces.Box(-np.arange(1200.0), np.arange(1200.0), dtype=np.float64))
    with pytest.raises(UserError, match=r"more numbers than the file tells in text.*--env"):
        saved_space("m.zip", "observation_space", table)


# the command


def cartpole_zip(path: Path, kind: str = "PPO") -> Path:
    rng = torch.Generator().manual_seed(0)
    env = gym.make("CartPole-v1")
    policy = mlp((4, 5), "mlp_extractor.policy_net.", rng)
    policy |= mlp((4, 5), "mlp_extractor.value_net.", rng)
    policy |= head(5, 2, "action_net", rng) | head(5, 1, "value_net", rng)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    data = data_of("PPO") | {name: space_table(space) for name, space in spaces.items()}
    moments = objects_of("PPO")["policy.optimizer"]["state"]
    state = {
        index: {
            "step": moments[0]["step"],
            "exp_avg": torch.rand(value.shape, generator=rng),
            "exp_avg_sq": torch.rand(value.shape, generator=rng),
        }
        for index, value in enumerate(policy.values())
    }
    optimizer = {"state": state, "param_groups": [{}]}
    return write_zip(path, data, {"policy": policy, "policy.optimizer": optimizer})


def test_a_run_is_made_of_a_file_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cartpole_zip(tmp_path / "model.zip")
    command = ["import", str(file), "--env", "CartPole-v1", "--out", "run", "--engine", "plain"]
    assert main(command) == 0
    assert "PPO, step 64 -> run" in capsys.readouterr().out
    agent, policy = ten.load("run"), read_model(file).parameters["policy"]
    obs = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(agent.act(obs), actions_of("PPO", policy, obs))
    assert ten.evaluate("run", episodes=2).episodes == 2
    result = ten.resume("run", more=64, quiet=True, report=False)
    assert result.step == 128
    trained = ten.load("run")
    assert trained.online.flat.shape == agent.online.flat.shape
    assert not torch.equal(trained.online.flat, agent.online.flat)


def test_the_first_update_after_an_import_goes_on_with_the_files_moments(tmp_path: Path) -> None:
    from tenfold.integrations.sb3.importing import import_model
    from tenfold.runs.checkpoint import Checkpoints
    from tenfold.runs.folder import RunFolder

    file = cartpole_zip(tmp_path / "model.zip")
    imported = import_model(file, "CartPole-v1", "run", settings={"engine": "plain"})
    folder, run = RunFolder.open(imported.path)
    arrays, _, note = Checkpoints(folder, run.keep).read(64)
    assert note["step"] == 64 and arrays["agent.count"].tolist() == [8, 8]
    state = read_model(file).parameters["policy.optimizer"]["state"]
    # ours begin with the policy's first layer, as theirs do
    assert np.array_equal(arrays["agent.mean"][:20], state[0]["exp_avg"].numpy().ravel())
    assert np.array_equal(arrays["agent.square"][:20], state[0]["exp_avg_sq"].numpy().ravel())


def test_commands_say_what_a_models_file_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(cartpole_zip(tmp_path / "model.zip"))
    for command, sentence in (
        (["import", file], "--env is missing: a model's file does not say"),
        (["eval", file], f"tenfold import {file} --env ID` makes a run of it"),
        (
            ["import", file, "--env", "Acrobot-v1"],
            "observation_space of the environment is Box",
        ),
        (["import", file, "--env", "CartPole-v1", "--steps", "9"], "less than the model's 64"),
    ):
        assert main(command) == 2
        assert sentence in capsys.readouterr().err.replace("\n", " ")
    assert not Path("runs").exists()


# models with Stable-Baselines3's interface


@pytest.fixture
def without_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_stable_baselines3")
def test_a_model_comes_back_from_a_file_or_an_open_one(tmp_path: Path) -> None:
    kwargs = {"net_arch": [6], "activation_fn": torch.nn.ELU}
    model = DQN("MlpPolicy", "CartPole-v1", 0.003, policy_kwargs=kwargs, train_freq=(2, "step"))
    model.num_timesteps = 40
    memory = io.BytesIO()
    model.save(tmp_path / "deep" / "model.v1")
    model.save(memory, exclude=["gamma"])
    memory.seek(0)
    obs = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    for source in (tmp_path / "deep" / "model.v1", memory):
        again = DQN.load(source)
        assert (again.num_timesteps, again.learning_rate, again.train_freq) == (
            40,
            0.003,
            [2, "step"],
        )
        assert again.agent.config.net == model.agent.config.net
        assert torch.equal(again.agent.online.flat, model.agent.online.flat)
        expected, actions = (m.predict(obs, deterministic=True)[0] for m in (model, again))
        np.testing.assert_array_equal(actions, expected)
    other = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, seed=9)
    assert not torch.equal(other.agent.online.flat, model.agent.online.flat)
    other.set_parameters(tmp_path / "deep" / "model.v1")
    assert torch.equal(other.agent.online.flat, model.agent.online.flat)
    assert other.get_parameters()["policy.optimizer"]["state"] == {}  # no step was made


@pytest.mark.usefixtures("without_stable_baselines3")
def test_what_is_said_while_loading_stands_in_for_the_file(tmp_path: Path) -> None:
    PPO("MlpPolicy", "CartPole-v1", n_steps=16, clip_range=lambda left: 0.2 * left).save("model")
    plain = PPO.load("model")
    assert plain.num_timesteps == 0 and plain.n_steps == 16
    with pytest.raises(ValueError, match=r"clip_range was a function or an object and is not rea"):
        PPO.load("model", gym.make("CartPole-v1")).learn(16)
    loaded = PPO.load("model", custom_objects={"clip_range": 0.1}, gamma=0.5, num_timesteps=7)
    assert (loaded.clip_range, loaded.gamma, loaded.num_timesteps) == (0.1, 0.5, 7)
    with pytest.raises(ValueError, match=r"policy_kwargs.*do not equal the stored policy kwargs"):
        PPO.load("model", policy_kwargs={"net_arch": [3]})
    with pytest.raises(ValueError, match=r"gama is no attribute of PPO"):
        PPO.load("model", gama=0.5)
    with pytest.raises(ValueError, match=r"observation_space of the environment is Box"):
        PPO.load("model", gym.make("Acrobot-v1"))
    with pytest.raises(UserError, match=r"is a model of PPO: load it by PPO.load"):
        DQN.load("model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "stable_baselines3", None)
        with pytest.raises(UserError, match=r"stable-baselines3, which is not installed"):
            _ = plain.policy
