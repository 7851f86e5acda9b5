"""Games of the Arcade Learning Environment: `AtariEnv` is one game with its true scores, for
evaluations, films and Gymnasium's users; `AtariEnvironments` is many of them for training, with
clipped rewards and lives that end episodes.

Both use ALE's own vector environment, which skips frames, takes the brighter of the last two,
shrinks and stacks in C++ on threads of its own. It can reset a game at any moment, with a seed for
each; so the adapter resets a game in the very step in which it ends, and ALE's own resets never
happen.
"""

import difflib
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.atari import ATARI
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.arguments import is_truth, read_real, read_whole, shorten, split_name
from tenfold.envs.faults import put_away
from tenfold.envs.making import make_errors
from tenfold.envs.scalar import replayable, require_possible

SIDE = 84
ENLARGED = 4  # of a picture's sides, so that a film shows more than a stamp


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
    # of training alone
    clip: bool = True  # rewards at ±1
    life_ends: bool = True  # a life lost ends an episode for the learner, while the game goes on
    threads: int = 0  # of ALE; 0: as many as there are cores

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
        for name in ("full_actions", "clip", "life_ends"):
            if not is_truth(getattr(self, name)):
                raise EnvironmentFault(
                    f"{ATARI}: {name} must be true or false, and not "
                    f"{shorten(getattr(self, name))}."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return (SIDE, SIDE) if self.frames == 1 else (self.frames, SIDE, SIDE)

    def make(self, count: int, threads: int) -> Any:
        """`count` games as ALE's vector environment, with true scores."""
        try:
            from ale_py import roms
            from ale_py.vector_env import AtariVectorEnv
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                f"{ATARI} needs the module {error.name}, which is not installed: pip install "
                "'tenfold[atari]'."
            ) from None
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
            use_fire_reset=True,  # games that wait for the button begin with it
            repeat_action_probability=self.sticky,
            max_num_frames_per_episode=self.max_frames,
            full_action_space=self.full_actions,
            reward_clipping=False,
            episodic_life=False,
            img_height=SIDE,
            img_width=SIDE,
        )


class AtariEnv(gym.Env[np.ndarray, int]):
    """One game, to its end, with its true score."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.game, self.render_mode = Game(**arguments), render_mode
        self.ale = self.game.make(1, threads=1)
        self.observation_space = gym.spaces.Box(0, 255, self.game.shape, np.uint8)
        self.action_space = self.ale.single_action_space
        self.image = np.zeros(self.game.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.ale.reset(seed=None if seed is None else np.array([seed]))
        return self.to_image(obs), {"lives": int(info["lives"][0])}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):  # ALE would wait for ever
            raise ValueError(f"there is no action {action}, only {self.action_space}")
        obs, score, over, cut, info = self.ale.step(np.array([action], np.int64))
        to_image = self.to_image(obs)
        ended = bool(over[0])
        lives = {"lives": int(info["lives"][0])}
        return to_image, float(score[0]), ended, bool(cut[0]) and not ended, lives

    def to_image(self, obs: np.ndarray) -> np.ndarray:
        self.image = obs[0].reshape(self.game.shape).copy()
        return self.image

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The latest observed frame, enlarged."""
        frame = self.image.reshape(-1, SIDE, SIDE)[-1]
        return np.repeat(np.kron(frame, np.ones((ENLARGED, ENLARGED), np.uint8))[..., None], 3, 2)

    def close(self) -> None:
        put_away(self.ale)


class AtariEnvironments(Environments):
    """Many games for training. An `Episode` is a whole game with its true score; the learner's
    `reward` is clipped, and losing a life is `terminated` for it."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        ident, arguments = split_name(name)
        with make_errors(name, ident):
            self.game = Game(**arguments)
            self.ale = self.game.make(num_envs, self.game.threads)
        observation_space = gym.spaces.Box(0, 255, self.game.shape, np.uint8)
        super().__init__(
            name, num_envs, seed, observation_space, self.ale.single_action_space, first
        )
        # of the current games; grows by doubling
        self.actions = np.zeros((num_envs, 1024), np.int64)
        self.lives = np.zeros(num_envs, np.int64)
        self.lanes, self.everyone = np.arange(num_envs), np.ones(num_envs, np.bool_)
        self.begin(self.everyone)

    def begin(self, which: np.ndarray) -> None:
        """Starts new games in these lanes."""
        seeds = np.array([self.episode_seed(i) for i in np.flatnonzero(which).tolist()])
        obs, info = self.ale.reset(seed=seeds, options={"reset_mask": which})
        self.obs[which] = obs.reshape(self.obs.shape)[which]
        self.lives[which] = info["lives"][which]
        for i in np.flatnonzero(which).tolist():
            self.length[i], self.ret[i] = 0, 0.0

    def step(self, actions: np.ndarray) -> None:
        self.finished = []
        if max(self.length) >= self.actions.shape[1]:
            self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
        self.actions[self.lanes, self.length] = actions
        over, lost = self.advance(actions)
        if self.game.clip:
            np.clip(self.reward, -1.0, 1.0, out=self.reward)
        self.terminated |= lost & self.game.life_ends
        ended = self.terminated | self.truncated
        self.final_obs[ended] = self.obs[ended]
        if over.any():
            for i in np.flatnonzero(over).tolist():
                self.finished.append(Episode(i, self.ret[i], self.length[i]))
                self.episode[i] += 1
            self.begin(over)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One step of every game; `reward` is the true score. Returns where the game ended, and
        where a life was lost."""
        obs, score, over, cut, info = self.ale.step(np.ascontiguousarray(actions, np.int64))
        self.obs[...] = obs.reshape(self.obs.shape)
        self.reward[:], self.terminated[:], self.truncated[:] = score, over, cut & ~over
        lives = info["lives"].astype(np.int64)
        lost, self.lives = lives < self.lives, lives
        for i, gained in enumerate(self.reward.tolist()):
            self.length[i] += 1
            self.ret[i] += gained
        return over | cut, lost & ~self.truncated

    def state(self) -> dict[str, np.ndarray]:
        return replayable(self, self.actions)

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Replays the current games, all at once: a game of n steps begins n steps before the end.
        Returns False where the observations differ."""
        self.episode, lengths = state["episode"].tolist(), state["length"]
        longest, followed = int(lengths.max()), True
        while self.actions.shape[1] < longest:
            self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
        for i, length in enumerate(lengths.tolist()):
            actions = state["actions"][i, :length]
            require_possible(actions, self.action_space, self.location(i))
            self.actions[i, :length] = actions
        for left in range(longest, 0, -1):
            begins = lengths == left
            if begins.any():
                self.begin(begins)
            playing = lengths >= left
            over, _ = self.advance(
                np.where(playing, self.actions[self.lanes, np.maximum(lengths - left, 0)], 0)
            )
            followed = followed and not (over & playing).any()
        if not followed:  # ALE has begun others in their place by a seed of its own
            self.begin(self.everyone)
        elif (lengths == 0).any():
            self.begin(lengths == 0)
        self.terminated[:] = self.truncated[:] = False
        return followed and bool(np.array_equal(self.obs, state["obs"]))

    def close(self) -> None:
        put_away(self.ale)
