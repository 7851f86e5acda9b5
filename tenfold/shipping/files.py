"""The files of an exported policy. The module is traced once, by torch.export; the file `torch` is
what was traced, the file `onnx` is made from it. (TorchScript is deprecated, and would be a second
trace.) Neither holds anything of the machine it was made on."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from tenfold.core.errors import UserError, described
from tenfold.shipping.policy import ExportedPolicy
from tenfold.shipping.ports import BATCH

OPSET = 18  # of ONNX: what ONNX Runtime reads since 1.14
NOTE = "tenfold"  # under which the metadata stand
TRACED = 3  # rows of the batch that is traced; the file takes any number
LEFT = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what torch says about itself: missing packages, its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def traced(policy: ExportedPolicy) -> torch.export.ExportedProgram:
    """The policy as a graph of torch's own operations, for any size of batch."""
    batch = torch.export.Dim(BATCH)
    shapes = tuple({port.axis: batch} for port in policy.inputs)
    given = tuple(port.example(TRACED) for port in policy.inputs)
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(policy.eval(), given, dynamic_shapes=(shapes,))
    except Exception as error:  # of torch, about code that cannot be traced, or of that code
        raise UserError(
            f"The policy cannot be traced by torch.export ({described(error):.200}): a network or "
            "an algorithm of your own must be made of torch's operations on tensors, and ask for "
            "x.shape[0], not for len(x)."
        ) from None
    for node in program.graph.nodes:
        for name in LEFT:
            node.meta.pop(name, None)
    return pruned(program)


def pruned(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Without the parameters that no action depends on: values, noise scales."""
    signature, graph = program.graph_signature, program.graph
    graph.eliminate_dead_code()
    kept, tensors = [], {*signature.parameters, *signature.buffers, *program.constants}
    places = [node for node in graph.nodes if node.op == "placeholder"]
    for node, spec in zip(places, signature.input_specs, strict=True):
        if spec.target in tensors and not node.users:
            graph.erase_node(node)
        else:
            kept.append(spec)
    targets = {spec.target for spec in kept}
    return torch.export.ExportedProgram(
        program.graph_module,
        graph,
        torch.export.ExportGraphSignature(kept, signature.output_specs),
        {name: own for name, own in program.state_dict.items() if name in targets},
        program.range_constraints,
        program.module_call_graph,
        constants={name: own for name, own in program.constants.items() if name in targets},
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
    made: Any
    import onnx_ir

    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()):
            made = torch.onnx.export(
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
    model = made.model
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


def onnx_runner(content: bytes) -> Any:
    """Arrays in the order of the inputs -> arrays in the order of the outputs, by ONNX Runtime;
    None where that is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return lambda given: session.run(None, dict(zip(names, given, strict=True)))


def torch_runner(content: bytes) -> Any:
    with quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(given: list[Any]) -> list[Any]:
        with torch.no_grad(), quiet():
            found = module(*map(torch.from_numpy, given))
        return [tensor.numpy() for tensor in found]

    return run
