"""The kernels compile for a GPU, which needs none: what the interpreter takes, Triton may refuse."""

import multiprocessing
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = """
import sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from test_resident import OPTIONS, learner
from tenfold.algorithms.kernels.dqn_resident_arrays import Arrays
from tenfold.algorithms.kernels.dqn_resident_play import evaluate
from tenfold.algorithms.kernels.dqn_resident_update import train
from tenfold.algorithms.kernels.dqn_resident_runs import ResidentDQNRuns, HostRun, shape_of
from tenfold.ops.device.episodes import EpisodeRows

NAMES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8"}
for name in sys.argv[1:]:
    one = learner(OPTIONS[name], 8)
    seed = HostRun(one.agent, one.replay, one.envs)
    seeds = ResidentDQNRuns([seed], "cpu")
    kinds = Arrays(*(NAMES[tensor.dtype] for tensor in seeds.arrays))
    rows = EpisodeRows("*i64", "*fp64", "*i64", "*fp64", "*u8")
    numbers = dict.fromkeys(("count", "steps", "limit"), "i32")
    for precision in ("fp32",):
        shape = shape_of(seed, precision)
        for kernel, signature, constants in (
            (train, {"rounds": "i32"}, {"STEADY": seeds.one_a_round, "S": shape}),
            (evaluate, {"episodes": rows} | numbers, {"E": seeds.episodes, "S": shape}),
        ):
            source = ASTSource(
                fn=kernel,
                signature={"arrays": kinds} | signature | dict.fromkeys(constants, "constexpr"),
                constexprs=constants,
            )
            made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
            assert "cubin" in made.asm
    print(name)
"""


def compiled(names: list[str], words: Path, script: str = SCRIPT) -> list[str]:
    """What the script says, in a process that was forked before Triton was told to interpret."""
    import forked  # which calls a kernel: after the stale ones are gone

    places = [str(HERE), str(HERE.parents[1])]
    process = multiprocessing.get_context("spawn").Process(
        target=forked.compiling, args=(script, names, places, words)
    )
    process.start()
    process.join()
    assert process.exitcode == 0, (words / "err").read_text()[-3000:]
    return (words / "out").read_text().splitlines()


def test_a_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    names = ["prioritised, a batch in parts, a full ring"]
    assert compiled(names, tmp_path) == names


@pytest.mark.slow
def test_kernels_of_all_options_compile_for_a_gpu(tmp_path: Path) -> None:
    from test_resident import OPTIONS

    assert compiled(list(OPTIONS), tmp_path) == list(OPTIONS)


TILES = """
import sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tenfold.algorithms.kernels import actor_critic_gpu_launches as launches
from tenfold.algorithms.kernels import sac_td3_gpu_examples as examples

NAMES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.int64: "*i64", torch.int8: "*i8"}


def kind(value):
    if isinstance(value, torch.Tensor):
        return NAMES[value.dtype]
    return type(value)(*map(kind, value))


def compiled(kernel, grid, *arguments, warps=4, **constants):
    name = kernel.fn.__name__
    if (name, warps, constants.get("DUE")) in done:
        return
    done.add((name, warps, constants.get("DUE")))
    constants |= {"S": tiles.shape, "PDL": True}
    signature = dict(zip(kernel.arg_names, map(kind, arguments))) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": warps, "num_stages": 1, "launch_pdl": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "griddepcontrol.wait" in made.asm["ptx"] and "wgmma" in made.asm["ptx"]


for word in sys.argv[1:]:
    name, form = word.split()
    done = set()
    settings = {"batch_size": 256, "net": {"hidden": [256, 256]}}
    agent, table, sent = examples.example_updates(name, 17, 6, settings, 0)
    tiles = launches.TileUpdates(agent, table, sent, form)
    tiles.launch = compiled
    for due in (True, False):
        tiles.update(tiles.updates[0], due)
    assert len(done) == 7 + 3  # the first three once more where the policy does not learn
    print(word)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac fp16x3", "sac fp16", "td3 fp16x3"])
def test_launches_of_tiles_compile_for_a_gpu(name: str, tmp_path: Path) -> None:
    assert compiled([name], tmp_path, TILES) == [name]
