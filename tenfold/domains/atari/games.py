"""Games of the Arcade Learning Environment: what a name asks for, and `AtariEnv`, one game with its
true score, for evaluations, films and Gymnasium's users. `domains.atari.lanes` is many of them for
training.

Both use ALE's own vector environment, which skips frames, takes the brighter of the last two,
shrinks and stacks in C++ on threads of its own.
"""

import difflib
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.atari import ATARI
from tenfold.envs.arguments import is_truth, read_real, read_whole, shorten
from tenfold.envs.faults import put_away

SIDE = 84
ENLARGED = 4  # of a picture's sides, so that a film shows more than a stamp
# ROMs that only several players can play: ALE ends the process that loads one
FOR_SEVERAL = ("combat", "joust", "maze_craze", "warlords")


@dataclass(frozen=True)
class Game:
    """Arguments of an environment's name, `tenfold/Atari-v0(game=breakout, sticky=0.25)`."""

    game: str = "pong"
    frames: int = 1  # stacked in an observation; dqn stacks by itself and stores each once
    skip: int = 4  # frames an action is held for; the brighter of the last two is seen
    sticky: float = 0.0  # probability that the game repeats the last action instead
    noops: int = 30  # a game begins with up to so many frames without an action
    max_frames: int = 108_000  # after which a game is cut: half an hour
    full_actions: bool = False  # all 18 of the console instead of those that the game knows
    # the fire button is pressed where a game begins and, with `life_ends`, after a lost life; of
    # games that know the button
    fire: bool = True
    # of training alone
    clip: bool = True  # rewards at ±1
    life_ends: bool = True  # a life lost ends an episode for the learner, while the game goes on
    threads: int = 0  # of ALE; 0: as many as the run's env_threads says

    def __post_init__(self) -> None:
        for name, least, most in (
            ("frames", 1, 64),
            ("skip", 1, 64),
            ("noops", 0, 10_000),
            ("max_frames", 1, 10**9),
            ("threads", 0, 1024),
        ):
            object.__setattr__(
                self, name, read_whole(f"{ATARI}: {name}", getattr(self, name), least, most)
            )
        if not 0 <= read_real(f"{ATARI}: sticky", self.sticky) <= 1:
            raise EnvironmentFault(
                f"{ATARI}: sticky must be a probability between 0 and 1, and not {self.sticky}."
            )
        for name in ("full_actions", "fire", "clip", "life_ends"):
            if not is_truth(getattr(self, name)):
                raise EnvironmentFault(
                    f"{ATARI}: {name} must be true or false, and not "
                    f"{shorten(getattr(self, name))}."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return (SIDE, SIDE) if self.frames == 1 else (self.frames, SIDE, SIDE)

    def make(self, count: int, threads: int, autoreset: str = "NextStep") -> Any:
        """`count` games as ALE's vector environment, with true scores."""
        try:
            from ale_py import roms
            from ale_py.vector_env import AtariVectorEnv
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                f"{ATARI} needs the module {error.name}, which is not installed: pip install "
                "'tenfold[atari]'."
            ) from None
        if self.game in FOR_SEVERAL:
            raise EnvironmentFault(
                f"{ATARI}: {self.game} is for several players, and one alone cannot play it: "
                "choose another game."
            )
        known = roms.get_all_rom_ids()
        if self.game not in known:
            near = difflib.get_close_matches(str(self.game), known, 3, 0.5)
            hint = f"the nearest are {', '.join(near)}" if near else "its name is like ms_pacman"
            raise EnvironmentFault(f"{ATARI}: there is no game {shorten(self.game)}: {hint}.")
        return AtariVectorEnv(
            self.game,
            count,
            num_threads=threads,
            stack_num=self.frames,
            frameskip=self.skip,
            maxpool=self.skip > 1,
            noop_max=self.noops,
            use_fire_reset=self.fire,
            repeat_action_probability=self.sticky,
            max_num_frames_per_episode=self.max_frames,
            full_action_space=self.full_actions,
            reward_clipping=False,
            episodic_life=False,
            img_height=SIDE,
            img_width=SIDE,
            autoreset_mode=autoreset,
        )

    def fire_action(self, ale: Any) -> int:
        """The action that is pressed after a lost life; -1: none is."""
        names = [action.name for action in ale.ale.get_action_set()]
        pressed = self.fire and self.life_ends and "FIRE" in names
        return names.index("FIRE") if pressed else -1


def lives_lost(before: Any, lives: Any) -> Any:
    """Whether a life was lost in a step, as Stable-Baselines3's EpisodicLifeEnv has it: some games
    go on for a moment without any."""
    return (lives > 0) & (lives < before)


class AtariEnv(gym.Env[np.ndarray, int]):
    """One game, to its end, with its true score."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.game, self.render_mode = Game(**arguments), render_mode
        self.ale = self.game.make(1, threads=1)
        self.fire, self.lives = self.game.fire_action(self.ale), 0
        self.observation_space = gym.spaces.Box(0, 255, self.game.shape, np.uint8)
        self.action_space = self.ale.single_action_space
        self.image = np.zeros(self.game.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.ale.reset(seed=None if seed is None else np.array([seed]))
        self.lives = int(info["lives"][0])
        return self.to_image(obs), {"lives": self.lives}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Where it loses a life the fire button follows at once: those two are one step."""
        if not self.action_space.contains(action):  # ALE would wait for ever
            raise ValueError(f"there is no action {action}, only {self.action_space}")
        score, pressed = 0.0, int(action)
        while True:
            obs, more, over, cut, info = self.ale.step(np.array([pressed], np.int64))
            before, self.lives = self.lives, int(info["lives"][0])
            score, ended, cut = score + float(more[0]), bool(over[0]), bool(cut[0])
            if ended or cut or self.fire < 0 or not lives_lost(before, self.lives):
                return self.to_image(obs), score, ended, cut and not ended, {"lives": self.lives}
            pressed = self.fire

    def to_image(self, obs: np.ndarray) -> np.ndarray:
        self.image = obs[0].reshape(self.game.shape).copy()
        return self.image

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The latest observed frame, enlarged."""
        frame = self.image.reshape(-1, SIDE, SIDE)[-1]
        return np.repeat(np.kron(frame, np.ones((ENLARGED, ENLARGED), np.uint8))[..., None], 3, 2)

    def close(self) -> None:
        put_away(self.ale)
