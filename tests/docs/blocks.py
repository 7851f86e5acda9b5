"""The blocks of README and docs, the commands in them, and how a command is made short."""

import re
import runpy
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
# titles that readers see, of blocks that are not run
UNRUN = re.compile(r"needs (a GPU|a network|a cluster)|a sketch|Stable-Baselines3|cluster\.yaml")
# what a line says for itself: another machine, an account, hours, or a page that follows a run
ELSEWHERE = re.compile(r"--device cuda|--address|--where ray|--cuda|--peers|--track|--live")


@dataclass(frozen=True)
class Block:
    page: Path
    kind: str
    title: str
    text: str

    @property
    def run(self) -> bool:
        return not self.title


def blocks(page: Path, kind: str) -> list[Block]:
    return [
        Block(page, *found)
        for found in FENCE.findall(page.read_text())
        if found[0] == kind  # text without a kind is output
    ]


def commands(text: str) -> list[list[str]]:
    """The words of every command of a block of bash; `a && b` are two."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            place = words.index("&&")
            found.append(words[:place])
            words = words[place + 1 :]
        found.append(words)
    return [words for words in found if words]


EVERY = "--eval-episodes 1 --checkpoint-every 0 --log-every 200 --quiet"
EXPLORER = (
    "--steps 40 --eval-every 20 --agent.window 100 --agent.length 6 --agent.batch-size 2 --agent.learning-starts 10 "
    "--agent.first-updates 3 --agent.model.grid 4 --agent.model.ensemble 2 "
    "--agent.planner.samples 6 --agent.planner.iterations 2 --agent.planner.elites 3"
)
AGENTS = {
    "dqn": "--steps 400 --eval-every 200 --agent.learning-starts 200 --agent.capacity 2k",
    "ppo": "--steps 256 --eval-every 128 --agent.horizon 16 --agent.minibatches 2 --num-envs 2",
    **dict.fromkeys(
        ("sac", "td3", "ddpg:DDPG"),
        "--steps 400 --eval-every 200 --agent.learning-starts 200 --agent.capacity 2k "
        "--agent.batch-size 16",
    ),
    "explorer": EXPLORER,
    "dispatcher": "--steps 32 --eval-every 16 --agent.shops 2 --agent.samples 4",
}
SHORT = {
    "eval": "--episodes 2",
    "sweep": "--steps 400 --trials 2 --seeds 2 --confirm 1 --jobs 1 --eval-every 200 "
    "--eval-episodes 2 --agent.learning-starts 100 --quiet",
    "compare": f"{EXPLORER} --seeds 1 --quiet --jobs 1",
    "fit": "--steps 5 --agent.length 10 --eval-every 0 --quiet",
    "profile": "--for 200",
    "watch": "--once",
}
LONG = {"--steps", "--seeds", "--trials", "--episodes", "--num-envs"}  # numbers that are replaced


def short(words: list[str], agent: str) -> list[str]:
    """The same command with less to do; what it is about stays as it is written."""
    if words[0] == "check" and len(words) == 1:  # all pairs are another test's
        return ["check", "gae"]
    if "--more" in words:
        place = words.index("--more") + 1
        return [*words[:place], "100", *words[place + 1 :], "--quiet"]
    if words[0] == "resume":
        further = "1200" if "--steps" in words else "800"  # beyond what was trained
        return [*words, "--steps", further, "--quiet"]
    more = SHORT.get(words[0], "")
    if words[0] == "train":
        more = f"{AGENTS.get(agent, '--steps 200 --eval-every 100 --agent.horizon 50')} {EVERY}"
    added = more.split()
    said = list(words)
    if "--seeds" in said:
        said[said.index("--seeds") + 1] = "2"
    flags = [k for k, word in enumerate(added) if word.startswith("--")]
    for k, end in zip(flags, [*flags[1:], len(added)], strict=False):  # none, or an end each
        if added[k] not in said:
            said += added[k:end]
        elif added[k] in LONG and end > k + 1 and added[k] != "--seeds":
            said[said.index(added[k]) + 1] = added[k + 1]
    return said


MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

for name in ("Heavy-v0", "Slow-v0", "Pixels-v0"):
    gym.register(name, CartPoleEnv, max_episode_steps=50)
"""


def python_of(page: str, word: str) -> str:
    """The block of a page in which a word stands: a file that its commands speak of."""
    return next(
        block.text for block in blocks(ROOT / "docs" / page, "python") if word in block.text
    )


def furnish(folder: Path) -> None:
    """The files that the pages speak of."""
    for name in ("reinforce", "ddpg", "docking", "extending", "orchard", "cart_swingup"):
        shutil.copy(ROOT / "examples" / f"{name}.py", folder)
    (folder / "my_module.py").write_text(MODULE)
    (folder / "my_ground.py").write_text(python_of("durotaxis.md", "valley"))
    (folder / "corridor.py").write_text(python_of("extending.md", "Corridor"))
    zoo_entry = "{n_timesteps: 500, policy: MlpPolicy, learning_rate: lin_3e-4}"
    (folder / "ppo.yml").write_text(f"CartPole-v1: {zoo_entry}\n")
    (folder / "my.yaml").write_text(blocks(ROOT / "docs" / "tutorial.md", "yaml")[0].text)
    shutil.copy(ROOT / "tenfold/domains/jobshop/data/ft06.txt", folder / "my.txt")
    stiffness = np.tile(1 + 0.01 * np.arange(600, dtype=np.float32), (400, 1))
    np.save(folder / "my.npy", stiffness)
    rng = np.random.default_rng(0)
    # trials enough to hold three pieces back, by which --latent auto chooses
    seen, done = rng.normal(size=(24, 40, 3)), rng.normal(size=(24, 40, 1))
    np.savez(folder / "recordings.npz", observations=seen, actions=done, dt=0.05)
    head = "episode,neuron_0,neuron_1,stim_left,stim_right"
    rows = [[k // 40, *rng.normal(size=4)] for k in range(160)]
    spikes = runpy.run_path(str(ROOT / "examples" / "spikes.py"))
    for number, name in enumerate(("session", "monday", "tuesday")):
        spikes["write_session"](folder / f"{name}.nwb", number, 60, 6)
    np.savetxt(folder / "session.csv", rows, "%.6f", ",", header=head, comments="")
