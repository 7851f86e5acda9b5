"""An episode of a policy as a film."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.envs.adapter import is_multiagent
from tenfold.envs.worlds import ParallelWorlds, TreasureWorlds, Worlds, make_worlds
from tenfold.evaluation.player import Agent, Policy, Stage, episode_seeds, frames_of
from tenfold.memory.frames import Seen
from tenfold.runs.files import for_writing

PALETTE = 256  # colours of a GIF: a frame that has no more of them keeps every one


def film(
    env_name: str, agent: Agent, policy: Policy, seed: int, path: Path, limit: int = 3_000
) -> int:
    """One episode (at most `limit` steps) as a GIF or MP4, without a screen. Returns its number of
    frames."""
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"--video {path}: the file must end in .gif or .mp4.")
    for_writing(path, "--video")
    frames, rate = (film_world if is_multiagent(env_name) else film_env)(
        env_name, agent, policy, seed, limit
    )
    # a film that is there stays until the new one is whole
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        (write_gif if path.suffix == ".gif" else write_mp4)(beside, frames, rate)
        beside.replace(path)
    except OSError as error:
        raise UserError(f"--video {path} cannot be written: {error.strerror or error}.") from None
    finally:
        beside.unlink(missing_ok=True)
    return len(frames)


def film_env(
    env_name: str, agent: Agent, policy: Policy, seed: int, limit: int
) -> tuple[list[np.ndarray], int]:
    """Pictures of an episode, and how many a second."""
    # pygame then asks for neither screen nor sound card
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")  # its default opens a window
    with closing(Stage(env_name, agent, render_mode="rgb_array")) as stage:
        env = stage.env
        stage.reset(episode_seeds(seed, Purpose.EVALUATE, 1)[0])
        frames, done, step = [frame_of(env, env_name)], False, 0
        while not done and step < limit:
            mask = None if stage.mask is None else stage.mask[None]
            action = policy(stage.row[None], mask, np.zeros(1, np.int64), np.array([step]))
            _, done, _ = stage.step(action.tolist()[0] if action.ndim == 1 else action[0])
            frames.append(frame_of(env, env_name))
            step += 1
        return frames, int(env.metadata.get("render_fps") or 30)


def film_world(
    env_name: str, agent: Agent, policy: Policy, seed: int, limit: int
) -> tuple[list[np.ndarray], int]:
    """The same for a world with several agents."""
    own = episode_seeds(seed, Purpose.EVALUATE, 1)[0]
    with closing(make_worlds(env_name, 1, own, isinstance(agent, PPOAgent))) as envs:
        seen = Seen(frames_of(agent), envs)
        frames, over = [world_picture(envs)], False
        while not over and len(frames) <= limit:
            lanes = np.arange(envs.num_envs)
            envs.step(policy(seen.rows, envs.mask, lanes, np.full(envs.num_envs, len(frames))))
            seen.step()
            over = bool(envs.finished)
            if not over:  # the board shows the next episode by then
                frames.append(world_picture(envs))
    return frames, 7


def world_picture(envs: Worlds) -> np.ndarray:
    if isinstance(envs, TreasureWorlds):
        from tenfold.domains.treasure.view import picture

        return picture(envs.rules, envs.boards[0], envs.at[0])
    assert isinstance(envs, ParallelWorlds)
    envs.envs[0].unwrapped.render_mode = "rgb_array"
    return frame_of(envs.envs[0], envs.name)


def frame_of(env: Any, name: str) -> np.ndarray:
    try:
        frame = env.render()
    except Exception as error:  # Gymnasium wraps a missing pygame in errors of several kinds
        reason = " ".join(str(error).split())
        advice = (
            "pip install 'tenfold[video]'"
            if "pygame" in reason
            else "it has no render mode rgb_array that works"
        )
        raise UserError(
            f"{name} cannot be drawn ({type(error).__name__}{': ' if reason else ''}{reason}): "
            f"{advice}."
        ) from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise UserError(f"{name} cannot be drawn: it gives no image in render mode rgb_array.")
    return frame


def write_gif(path: Path, frames: list[np.ndarray], rate: int) -> None:
    from PIL import Image

    images = [Image.fromarray(frame).quantize(PALETTE) for frame in frames]
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=max(1000 // rate, 20), loop=0
    )


def write_mp4(path: Path, frames: list[np.ndarray], rate: int) -> None:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError:
        raise UserError(
            "MP4 needs imageio-ffmpeg: pip install 'tenfold[video]', or give a name that ends in "
            ".gif."
        ) from None
    height, width = (side // 2 * 2 for side in frames[0].shape[:2])  # the codec takes even sides
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=rate, macro_block_size=2)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[:height, :width]))
    writer.close()
