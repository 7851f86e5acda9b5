"""`ten.export` and `tenfold export`: a run's policy as a file that runs without tenfold."""

import hashlib
import json
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenfold
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.registry import algorithm
from tenfold.core.spaces import policy_actions
from tenfold.envs.making import make_environments
from tenfold.runs.archive import opened
from tenfold.runs.files import for_writing, replace_file, writing
from tenfold.runs.folder import is_seeds
from tenfold.shipping.check import verdict
from tenfold.shipping.files import (
    onnx_bytes,
    onnx_runner,
    require_onnx,
    torch_bytes,
    torch_runner,
    traced,
)
from tenfold.shipping.policy import Encoder, ExportedPolicy, batch_lead
from tenfold.shipping.ports import described_space
from tenfold.training.learners import Trained, load_run

SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}


@dataclass(frozen=True)
class Exported:
    """A file that was written, what it says about itself, and what was checked of it."""

    path: Path
    about: dict[str, Any]
    checked: str


def export(
    run: Any,
    format: str = "onnx",
    out: str | Path | None = None,
    *,
    checkpoint: str | int = "last",
    sample: bool = False,
    mask: bool | None = None,
    env: Any = None,
    trust: bool = False,
) -> Exported:
    """Writes a run's policy as an ONNX or a torch.export file, which takes what the environment
    gives and gives what the environment takes.

    `run` is a run's folder or archive, or what `ten.train` returned; `checkpoint` is last, best or
    a step. With `sample` the policy draws, by uniform and normal numbers that are further inputs.
    `mask` adds an input for masks (by default where the environment offers them; False leaves it
    out on purpose, and every option is allowed). `env` is the
    run's environment again, where it was an object or a function. `trust` allows modules that
    somebody else's run names to be imported.
    """
    if format not in SUFFIX:
        hint = f": a file is named by out, out={format!r}" if "." in format else ""
        raise ConfigError("--format", f"= {format} is not one of {', '.join(SUFFIX)}{hint}.")
    if format == "onnx":
        require_onnx()
    path = Path(getattr(run, "path", run))
    name = path.stem if path.is_file() else path.resolve().name
    file = Path(out) if out else Path(f"{name}{SUFFIX[format]}")
    for_writing(file, "--out")
    with opened(path) as folder:
        if is_seeds(folder):
            raise UserError(
                f"{path} holds several seeds, and one policy is exported: name a seed's folder, "
                f"such as {path / 'seed-0'}."
            )
        trained = load_run(folder, str(checkpoint), env, trust)
        policy, about = policy_of(trained, sample, mask)
        about |= {"checkpoint": str(checkpoint), "policy": "sampled" if sample else "greedy"}
        program = traced(policy)
        if format == "onnx":
            content = onnx_bytes(program, policy, about)
            runner = onnx_runner(content)
        else:
            content = torch_bytes(program, about)
            runner = torch_runner(content)
        how = {"onnx": "ONNX Runtime", "torch": "torch.export"}[format]
        checked = "not checked: onnxruntime is not installed"
        if runner:
            checked, _ = verdict(policy, trained.agent, trained.run, runner, how)
    with writing(f"--out {file}"):
        replace_file(file, content)
    return Exported(file, about, checked)


def policy_of(
    trained: Trained, sample: bool, mask: bool | None
) -> tuple[ExportedPolicy, dict[str, Any]]:
    """The module to be traced, and what its file says about itself."""
    run, agent = trained.run, trained.agent
    chosen = algorithm(run.agent.name)
    inner = chosen.exported(agent, sample)
    with closing(make_environments(run.world, 1, 0, chosen.reads_masks)) as envs:
        space, action_space = envs.observation_space, envs.action_space
        masked, names = envs.mask is not None, names_of(envs)
    actions = policy_actions(action_space, run.env)
    wanted = masked if mask is None else mask
    if wanted and not actions.options:
        raise ConfigError("--mask", "is for discrete choices, and this policy has none.")
    encoder = Encoder(
        space, agent.layout.frame or agent.layout, batch_lead(agent.members, agent.frames)
    )
    policy = ExportedPolicy(inner, encoder, actions, wanted, sample)
    about = {
        "tenfold_version": tenfold.__version__,
        "agent": run.agent.name,
        "env": run.env,
        "run": trained.folder.id,
        "step": trained.step,
        "settings_sha256": settings_digest(run),
        "observation_space": described_space(space),
        "action_space": described_space(action_space),
        "action_names": names,
        "agents": agent.members,
        "frames": agent.frames,
        "inputs": [port.described() for port in policy.inputs],
        "outputs": [port.described() for port in policy.outputs],
    }
    return policy, about


def names_of(envs: Any) -> list[str]:
    """What the parts or options of an action are called, where the environment says so: by names
    of our own environments, or as Gymnasium's Atari games do."""
    own: Any = getattr(next(iter(getattr(envs, "envs", ())), None), "unwrapped", None)
    asked = (lambda: own.get_action_meanings(), lambda: own.action_names)
    for ask in (lambda: envs.action_names, *asked):
        with suppress(Exception):  # another's code, and nothing depends on it
            if (names := list(ask())) and all(isinstance(name, str) for name in names):
                return names
    return []


def settings_digest(run: Run) -> str:
    """Of all settings, whatever their order."""
    return hashlib.sha256(json.dumps(to_mapping(run), sort_keys=True).encode()).hexdigest()
