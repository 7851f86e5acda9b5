"""The kernels of updates as CUDA graphs compile for a GPU, which needs none."""

from pathlib import Path

from test_compiling import compiled

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tenfold.algorithms.kernels.dqn_cudagraph_kernel import GradientShape, gradient_kernel
from tenfold.ops.device.td import ValueShape
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.policy_loss import policy_kernel
from tenfold.ops.device.step import step_kernel, sum_kernel, metrics_kernel
from tenfold.ops.device.td import td_kernel

KINDS = {"action": "*i64", "places": "*i64", "index": "*i64", "chosen": "*i64", "offsets": "*i64", "mask": "*u8",
         "size": "i32", "stride": "i32", "batch": "i32", "rows": "i32", "width": "i32", "members": "i32", "sums": "*fp64",
         "effective": "fp32", "limit": "fp32", "eps": "fp32",
         "value_weight": "fp32", "entropy_weight": "fp32"}

def compiled(kernel, **constants):
    names = [name for name in kernel.arg_names if name not in constants]
    signature = {name: KINDS.get(name, "*fp32") for name in names} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert "cubin" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm

for shape in ((2, 1, 1, 2, 1, 1, False, True), (4, 5, 6, 4, 8, 8, True, False)):
    compiled(td_kernel, S=shape, V=(2, 1, 1), N=(2, 1, 1), C=(2, 1, 1))
for *heads, clips, scales in (
    (10, 10, 8, True, 3, 0, 2, 5, True, 1, False),
    (5, 3, 4, False, 1, 2, 2, 7, False, 0, True),
    (5, 3, 4, False, 1, 2, 2, 7, True, 2, True),
):
    compiled(policy_kernel, H=(*heads, clips, scales), ROWS=16, AT_ONCE=64)
compiled(sum_kernel, PARTS=3, BLOCK=512)
compiled(step_kernel, CLIPS=True, MOVES=True, BLOCKS=16, BLOCK=512)
compiled(metrics_kernel, COLUMNS=3, PAD=4)
net = NetShape.of((4, 16, 3), "relu", "bf16x6")
compiled(gradient_kernel, S=GradientShape(net, ValueShape(1, 2, 1, False, True), 20, 2, 2, 1.0, 131), ROWS=16)
print("all")
"""


def test_the_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    assert compiled([], tmp_path, SCRIPT) == ["all"]
