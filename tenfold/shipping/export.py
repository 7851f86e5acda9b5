"""`ten.export` and `tenfold export`: a run's policy as a file that runs without tenfold.

The module is traced once, by torch.export; the file `torch` is what was traced, the file `onnx` is
made from it. (TorchScript is deprecated, and would be a second trace.) Neither holds anything of
the machine it was made on. `check` tries a file before it is kept.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tenfold
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError, described
from tenfold.core.registry import algorithm
from tenfold.core.spaces import policy_actions
from tenfold.envs.making import make_environments
from tenfold.runs.archive import opened
from tenfold.runs.folder import is_seeds
from tenfold.runs.storage import for_writing, replace_file, writing
from tenfold.shipping.check import onnx_runner, quiet, torch_runner, verdict
from tenfold.shipping.exported_policy import (
    BATCH,
    ExportedPolicy,
    ObservationEncoder,
    batch_lead,
    described_space,
)
from tenfold.training.learners import Trained, load_run

SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
RUNTIME = {"onnx": "ONNX Runtime", "torch": "torch.export"}
OPSET = 18  # of ONNX: what ONNX Runtime reads since 1.14
NOTE = "tenfold"  # under which the metadata stand
TRACED_ROWS = 3  # of the batch that is traced; the file takes any number
# what torch notes of every operation: files and lines of the machine it was traced on
DEBUG_NOTES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


@dataclass(frozen=True)
class Exported:
    """An exported file, its metadata, and the result of the check."""

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
    file = for_writing(Path(out) if out else Path(f"{name}{SUFFIX[format]}"), "--out")
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
        checked = "not checked: onnxruntime is not installed"
        if runner:
            checked = verdict(policy, trained.agent, trained.run, runner, RUNTIME[format])
    with writing(f"--out {file}"):
        replace_file(file, content)
    return Exported(file, about, checked)


def policy_of(
    trained: Trained, sample: bool, mask: bool | None
) -> tuple[ExportedPolicy, dict[str, Any]]:
    """The module to trace, and the file's metadata."""
    run, agent = trained.run, trained.agent
    algo = algorithm(run.agent.name)
    inner = algo.exported(agent, sample)
    with closing(make_environments(run.world, 1, 0, algo.reads_masks)) as envs:
        space, action_space = envs.observation_space, envs.action_space
        masked, names = envs.mask is not None, names_of(envs)
    actions = policy_actions(action_space, run.env)
    if mask is not None:
        masked = mask
    if masked and not actions.options:
        raise ConfigError("--mask", "is for discrete choices, and this policy has none.")
    lead = batch_lead(agent.members, agent.frames)
    encoder = ObservationEncoder(space, agent.layout.frame or agent.layout, lead)
    policy = ExportedPolicy(inner, encoder, actions, masked, sample)
    settings = json.dumps(to_mapping(run), sort_keys=True)  # whatever their order
    about = {
        "tenfold_version": tenfold.__version__,
        "agent": run.agent.name,
        "env": run.env,
        "run": trained.folder.id,
        "step": trained.step,
        "settings_sha256": hashlib.sha256(settings.encode()).hexdigest(),
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
    """Names of an action's components or options, if the environment has any: `action_names`, or
    Gymnasium's Atari action meanings."""
    env: Any = getattr(next(iter(getattr(envs, "envs", ())), None), "unwrapped", None)
    sources: tuple[Callable[[], Any], ...] = (
        lambda: envs.action_names,
        lambda: env.get_action_meanings(),
        lambda: env.action_names,
    )
    for source in sources:
        with suppress(Exception):  # another's code, and nothing depends on it
            if (names := list(source())) and all(isinstance(name, str) for name in names):
                return names
    return []


# the file


def traced(policy: ExportedPolicy) -> torch.export.ExportedProgram:
    """The policy as a graph of torch operations, for any batch size, without parameters that no
    action depends on (values, noise scales)."""
    batch = torch.export.Dim(BATCH)
    shapes = tuple({port.axis: batch} for port in policy.inputs)
    examples = tuple(port.example(TRACED_ROWS) for port in policy.inputs)
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(policy.eval(), examples, dynamic_shapes=(shapes,))
    except Exception as error:  # of torch, about code that cannot be traced, or of that code
        raise UserError(
            f"The policy cannot be traced by torch.export ({described(error):.200}): a network or "
            "an algorithm of your own must be made of torch's operations on tensors, and ask for "
            "x.shape[0], not for len(x)."
        ) from None
    signature, graph = program.graph_signature, program.graph
    for node in graph.nodes:
        for name in DEBUG_NOTES:
            node.meta.pop(name, None)
    graph.eliminate_dead_code()
    kept, tensors = [], {*signature.parameters, *signature.buffers, *program.constants}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.target in tensors and not node.users:
            graph.erase_node(node)
        else:
            kept.append(spec)
    targets = {spec.target for spec in kept}
    return torch.export.ExportedProgram(
        program.graph_module,
        graph,
        torch.export.ExportGraphSignature(kept, signature.output_specs),
        {name: tensor for name, tensor in program.state_dict.items() if name in targets},
        program.range_constraints,
        program.module_call_graph,
        constants={name: value for name, value in program.constants.items() if name in targets},
        verifiers=program.verifiers,
    )


def require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(
            f"--format onnx needs the module {error.name}: pip install 'tenfold[onnx]', or use "
            "--format torch."
        ) from None


def onnx_bytes(program: Any, policy: ExportedPolicy, about: dict[str, Any]) -> bytes:
    import onnx_ir

    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()):
            model: Any = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[port.name for port in policy.inputs],
                output_names=[port.name for port in policy.outputs],
                opset_version=OPSET,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # of torch, about an operation that ONNX does not have
        raise UserError(
            f"The policy cannot be written as ONNX ({described(error):.300}): use --format torch."
        ) from None
    model = model.model
    for part in (model, model.graph, *model.graph.all_nodes(), *model.functions.values()):
        part.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    model.producer_name, model.producer_version = "tenfold", about["tenfold_version"]
    model.doc_string = f"{about['agent']} on {about['env']}"
    model.metadata_props[NOTE] = json.dumps(about)
    return onnx_ir.to_proto(model).SerializeToString()


def torch_bytes(program: Any, about: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    with quiet():
        torch.export.save(program, content, extra_files={f"{NOTE}.json": json.dumps(about)})
    return content.getvalue()
