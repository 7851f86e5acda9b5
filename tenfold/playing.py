"""Playing episodes with a fixed policy: evaluation, the random yardstick, video."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.agents.dqn import DQNAgent
from tenfold.envs.vector import SEED_BITS, make_env
from tenfold.errors import UserError
from tenfold.ops.random import Purpose, below, bits, key
from tenfold.spaces import ObsLayout

LANES = 16  # episodes played side by side, so that one forward pass serves all of them


@dataclass(frozen=True)
class Score:
    """Undiscounted returns of complete episodes."""

    returns: list[float]
    lengths: list[int]

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def std_return(self) -> float:
        return statistics.pstdev(self.returns)


Policy = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # encoded rows, episodes, steps -> environment's actions


def greedy(agent: DQNAgent) -> Policy:
    return lambda rows, episode, step: agent.values(rows).argmax(-1) + agent.actions.start


def uniformly_random(agent: DQNAgent, seed: int) -> Policy:
    """Every action equally likely, drawn by (episode, step)."""
    def act(rows: np.ndarray, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        address = episode * 2**32 + step
        return below(key(seed, Purpose.RANDOM_POLICY), address, agent.actions.n) + agent.actions.start
    return act


def episode_seeds(seed: int, purpose: Purpose, episodes: int) -> list[int]:
    return (bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(64 - SEED_BITS)).tolist()


class Stopped(Exception):
    """The person does not want to wait for the end of the evaluation."""


def play(env_name: str, layout: ObsLayout, policy: Policy, episodes: int, seed: int, purpose: Purpose = Purpose.EVALUATE,
         limit: int = 30_000, stop: Callable[[], bool] = bool) -> Score:
    """Exactly `episodes` episodes, number e seeded by f(seed, e): lane i plays i, i + lanes, …, so short ones gain nothing.

    Choosing a checkpoint during training plays other episodes (Purpose.SELECT) than judging it afterwards. An episode is cut
    after `limit` steps. `stop` is asked every round, and raises Stopped when it says yes.
    """
    lanes = min(LANES, episodes)
    envs = [make_env(env_name) for _ in range(lanes)]
    seeds = episode_seeds(seed, purpose, episodes)
    episode, step = np.arange(lanes), np.zeros(lanes, np.int64)
    rows = np.zeros((lanes, *layout.shape), layout.dtype)
    returns, lengths = [0.0] * episodes, [0] * episodes
    for i, env in enumerate(envs):
        layout.write(env.reset(seed=seeds[i])[0], rows[i])
    playing = np.arange(lanes)
    while playing.size:
        if stop():
            raise Stopped
        actions = policy(rows[playing], episode[playing], step[playing])
        for i, action in zip(playing.tolist(), actions.tolist(), strict=True):
            obs, reward, terminated, truncated, _ = envs[i].step(action)
            e = int(episode[i])
            returns[e] += float(reward)
            lengths[e] += 1
            step[i] += 1
            if terminated or truncated or step[i] == limit:
                episode[i], step[i] = e + lanes, 0
                if episode[i] < episodes:
                    obs = envs[i].reset(seed=seeds[episode[i]])[0]
            layout.write(obs, rows[i])
        playing = playing[episode[playing] < episodes]
    for env in envs:
        env.close()
    return Score(returns, lengths)


def film(env_name: str, layout: ObsLayout, policy: Policy, seed: int, path: Path, limit: int = 3_000) -> int:
    """One episode (at most `limit` steps) as a GIF or MP4, without a screen. Returns its number of frames."""
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"--video {path}: the file must end in .gif or .mp4.")
    try:
        path.open("wb").close()
    except OSError as error:
        raise UserError(f"--video {path} cannot be written: {error.strerror or error}.") from None
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame then asks for neither screen nor sound card
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    env = make_env(env_name, render_mode="rgb_array")
    obs, _ = env.reset(seed=episode_seeds(seed, Purpose.EVALUATE, 1)[0])
    frames, done, step = [frame_of(env, env_name)], False, 0
    while not done and step < limit:
        row = layout.encode(obs)[None]
        obs, _, terminated, truncated, _ = env.step(policy(row, np.zeros(1, np.int64), np.array([step])).tolist()[0])
        frames.append(frame_of(env, env_name))
        done, step = terminated or truncated, step + 1
    env.close()
    rate = int(env.metadata.get("render_fps") or 30)
    (write_gif if path.suffix == ".gif" else write_mp4)(path, frames, rate)
    return len(frames)


def frame_of(env: Any, name: str) -> np.ndarray:
    try:
        frame = env.render()
    except Exception as error:  # Gymnasium wraps a missing pygame in errors of several kinds
        reason = " ".join(str(error).split())
        advice = "pip install 'tenfold[video]'" if "pygame" in reason else "it has no render mode rgb_array that works"
        raise UserError(f"{name} cannot be drawn ({type(error).__name__}{': ' if reason else ''}{reason}): {advice}.") from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise UserError(f"{name} cannot be drawn: it gives no image in render mode rgb_array.")
    return frame


def write_gif(path: Path, frames: list[np.ndarray], rate: int) -> None:
    from PIL import Image
    images = [Image.fromarray(frame).quantize(64) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=max(1000 // rate, 20), loop=0)


def write_mp4(path: Path, frames: list[np.ndarray], rate: int) -> None:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError:
        raise UserError("MP4 needs imageio-ffmpeg: pip install 'tenfold[video]', or give a name that ends in .gif.") from None
    height, width = (side // 2 * 2 for side in frames[0].shape[:2])  # the codec takes even sides
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=rate, macro_block_size=2)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[:height, :width]))
    writer.close()
