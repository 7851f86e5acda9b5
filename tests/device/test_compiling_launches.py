"""The launches compile for a GPU, which needs none."""

from pathlib import Path

from test_compiling import compiled

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import forage
from tenfold.envs.device import TASKS, device_task, step_kernel
from tenfold.ops.device import heads, returns, sampling
from tenfold.ops.device.language import LaunchedKernel

def compiled(fn, types, constants):
    fn = fn.kernel if isinstance(fn, LaunchedKernel) else fn
    names = [name for name in fn.arg_names if name not in constants]
    signature = dict(zip(names, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=fn, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert "cubin" in made.asm
    print(fn.__name__)

for kind, lowest in (("*fp32", -3.4028234663852886e38), ("*fp64", -1.7976931348623157e308)):
    for several in (False, True):
        compiled(
            returns.gae_kernel,
            f"{kind} {kind} {kind} {kind} *i1 {kind} fp32 fp32 i32 i32 i32",
            {"TIME": 128, "COLUMNS": 8, "CHUNKS": several, "COMPONENTS": several},
        )
        size = {"WIDE": 8, "ROWS": 64, "MASKED": several}
        rules = {"ABSENT": several, "RAISES": not several, "CHECK": True, "LOWEST": lowest}
        compiled(
            heads.choose_kernel,
            f"{kind} *i1 *i64 *i64 *i1 {kind} *i64 {kind} {kind} *i32 i32 i32 i32 i32 i32",
            size | rules | {"DRAWS": several, "TAKES": not several},
        )
        compiled(
            heads.gradient_kernel,
            f"{kind} *i1 *i64 *i64 *i1 *i64 {kind} {kind} {kind} i32 i32 i32 i32 i32 i32",
            size | {"OF_ACTION": True, "OF_ENTROPY": several},
        )
compiled(sampling.put_kernel, "*fp64 *i64 *fp64 i32 i32", {"CHUNK": 64, "WIDE": 1024})
for shares in (False, True):
    compiled(sampling.find_kernel, "*fp64 *fp64 *i64 *fp64 i32 i32", {"SHARES": shares, "SIZE": 64})
for name in (*TASKS, "Forage-v0", "Push-v0"):
    task = device_task(name)
    compiled(
        step_kernel,
        f"*fp64 {'*i64' if task.sizes else '*fp64'} *i64 *i64 *fp32 *fp64 *u8 *fp64 *u8 i32",
        {"TASK": task, "LANES": 16, "WIDTH": 4},
    )
"""


def test_every_launch_compiles_for_a_gpu(tmp_path: Path) -> None:
    assert len(compiled([], tmp_path, SCRIPT)) == 4 * 3 + 3 + 7
