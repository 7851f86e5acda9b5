"""Films an episode of a policy."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.protocols import Agent, Policy
from tenfold.envs.adapter import Environments
from tenfold.envs.tensor_sources import steps_together
from tenfold.evaluation.player import play
from tenfold.runs.storage import for_writing, writing

PALETTE = 256  # colours of a GIF: a frame that has no more of them keeps every one


def film(
    env_name: str, agent: Agent, policy: Policy, seed: int, path: Path, limit: int = 3_000
) -> int:
    """Writes the first episode of an evaluation (at most `limit` steps) as a GIF or MP4, without a
    screen. Returns the number of frames."""
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"--video {path}: the file must end in .gif or .mp4.")
    for_writing(path, "--video")
    frames, rate = pictures(env_name, agent, policy, seed, limit)
    # a film that is there stays until the new one is whole
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with writing(f"--video {path}"):
            (write_gif if path.suffix == ".gif" else write_mp4)(temporary, frames, rate)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return len(frames)


def pictures(
    env_name: str, agent: Agent, policy: Policy, seed: int, limit: int
) -> tuple[list[np.ndarray], int]:
    """The frames of an episode, and the frame rate. (Worlds with several agents reset before the
    last frame: theirs is missing.)"""
    # pygame then asks for neither screen nor sound card
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")  # its default opens a window
    frames: list[np.ndarray] = []
    rates: list[int] = []

    def watch(envs: Environments) -> None:
        frames.append(frame_of(envs))
        rates.append(envs.frame_rate)

    more: dict[str, Any] = {} if steps_together(env_name) else {"render_mode": "rgb_array"}
    play(env_name, agent, policy, 1, seed, limit=limit, watch=watch, **more)
    return frames, rates[0]


def frame_of(envs: Environments) -> np.ndarray:
    try:
        frame = envs.picture()
    except Exception as error:  # Gymnasium wraps a missing pygame in errors of several kinds
        reason = " ".join(str(error).split())
        advice = (
            "pip install 'tenfold[video]'"
            if "pygame" in reason
            else "it has no render mode rgb_array that works"
        )
        raise UserError(
            f"{envs.name} cannot be drawn ({type(error).__name__}{': ' if reason else ''}"
            f"{reason}): {advice}."
        ) from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise UserError(f"{envs.name} cannot be drawn: it gives no image in render mode rgb_array.")
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
