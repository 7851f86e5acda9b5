"""PPO's kernels compile for a GPU, which needs none: masked components, real numbers, and every
option of minibatches."""

from pathlib import Path

from test_compiling import compiled

SCRIPT = """
import sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tenfold.algorithms.kernels import ppo_resident_finish, ppo_resident_learn, ppo_resident_play
from tenfold.algorithms.kernels import ppo_resident_runs as kernels
from tenfold.algorithms.kernels.ppo_resident_arrays import PPOArrays
from tenfold.config.run import Run
from tenfold.training.learners import make_learner

NAMES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8"}
INTEGERS = {
    ppo_resident_play.play: ["count"],
    ppo_resident_finish.values: ["first", "last"],
    ppo_resident_finish.finish: [],
    ppo_resident_learn.gradient: ["number"],
    ppo_resident_learn.apply: ["number"],
}
OPTIONS = {"Push-v0": {"minibatch_size": 50, "normalize_advantage": "minibatch", "clip": "table(0:0.2, 9:0)",
    "value_clip": "linear(1, 0, 9, 4)", "value_clip_kind": "clipped", "target_kl": 0.1, "kl_stop": "minibatch"}}
for name in sys.argv[1:]:
    agent = {"name": "ppo", "horizon": 8, "net": {"hidden": [16], "activation": "tanh"}}
    agent |= OPTIONS.get(name, {"minibatches": 2})
    run = Run.of({"env": f"forage:{name}", "num_envs": 16, "engine": "plain", "agent": agent})
    one = make_learner(run)
    seed = kernels.HostRun(one.agent, one.rollout, one.envs)
    kinds = PPOArrays(*(NAMES[t.dtype] for t in kernels.ResidentPPORuns([seed], "cpu").arrays))
    for kernel, integers in INTEGERS.items():
        source = ASTSource(
            fn=kernel,
            signature={"arrays": kinds} | dict.fromkeys(integers, "i32") | {"S": "constexpr"},
            constexprs={"S": kernels.shape_of(seed, 1, "fp32")},
        )
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        assert "cubin" in made.asm
    print(name)
"""


def test_policies_of_tasks_of_ones_own_compile_for_a_gpu(tmp_path: Path) -> None:
    names = ["Forage-v0", "Push-v0"]
    assert compiled(names, tmp_path, SCRIPT) == names
