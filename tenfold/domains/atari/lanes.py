"""Many Atari games for training, stepped by ALE on threads of its own: rewards clipped, lives that
end episodes, SAME_STEP.

ALE loads the ROM again where it is given a seed, which takes twenty times as long as beginning a
game without one, and all lanes wait. So a lane is seeded once for many games, and ALE begins those
between by itself, in the thread that ended the one before. They can be repeated all the same: from
a seed on, everything follows from the actions.
"""

import gymnasium as gym
import numpy as np

from tenfold.core.errors import CheckpointError
from tenfold.core.threads import team_threads
from tenfold.domains.atari.games import Game, lives_lost
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import put_away
from tenfold.envs.making import make_errors
from tenfold.envs.scalar import require_possible

# A lane is seeded anew after so many games; a resume begins those again, without playing them.
GAMES = 256
# Games of which the next one depends on how the last was played (all others of ALE's 104 were
# compared): a lane is seeded anew after so many steps, which a resume plays again. As with sticky
# actions, whose draws go on from one game to the next.
REMEMBERED = (
    "hangman",
    "haunted_house",
    "ice_hockey",
    "sir_lancelot",
    "surround",
    "time_pilot",
    "yars_revenge",
)
STEPS = 16_384
ROOM = 1024  # for actions; grows by doubling
# games that a lane may end while it waits in `restore`: so many, and one in so many steps
SPARE = 8, 100


class AtariEnvironments(Environments):
    """An `Episode` is a whole game with its true score; the learner's `reward` is clipped, and
    losing a life is `terminated` for it. Where the game knows a fire button the step after that
    presses it, whatever the agent does: that step is `skipped`."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        ident, arguments = split_name(name)
        with make_errors(name, ident):
            self.game = Game(**arguments)
            threads = min(self.game.threads or team_threads(num_envs), num_envs)
            self.ale = self.game.make(num_envs, threads, "SameStep")
        observation_space = gym.spaces.Box(0, 255, self.game.shape, np.uint8)
        super().__init__(
            name, num_envs, seed, observation_space, self.ale.single_action_space, first
        )
        many, more = "s" * (num_envs > 1), "s" * (threads > 1)
        self.form = f"{num_envs} game{many} on {threads} thread{more} of ALE"
        self.fire = self.game.fire_action(self.ale)
        self.played_again = self.game.sticky > 0 or self.game.game in REMEMBERED
        # of the current games; where earlier ones matter, since the lane was seeded
        self.actions = np.zeros((num_envs, ROOM), np.uint8)
        self.stored = np.zeros(num_envs, np.int64)  # how many
        self.seeded = np.zeros(num_envs, np.int64)  # the game that each lane was seeded for
        self.lives = np.zeros(num_envs, np.int64)
        self.pressing = np.zeros(num_envs, np.bool_)  # where the next step presses fire
        self.action, self.lanes = np.zeros(num_envs, np.int64), np.arange(num_envs)
        self.begin_seeded(np.ones(num_envs, np.bool_))

    def begin(self, which: np.ndarray, seeds: np.ndarray | None = None) -> None:
        """New games in these lanes."""
        obs, info = self.ale.reset(seed=seeds, options={"reset_mask": which})
        self.obs[which] = obs.reshape(self.obs.shape)[which]
        self.lives[which] = info["lives"][which]
        self.pressing[which] = False
        self.note_begun(which)

    def begin_seeded(self, which: np.ndarray) -> None:
        """The current games of these lanes, each by its own seed."""
        lanes = np.flatnonzero(which).tolist()
        self.begin(which, np.array([self.episode_seed(i) for i in lanes]))
        self.seeded[which] = [self.episode[i] for i in lanes]
        self.stored[which] = 0

    def note_begun(self, which: np.ndarray) -> None:
        """In these lanes a game has begun."""
        for i in np.flatnonzero(which).tolist():
            self.length[i], self.ret[i] = 0, 0.0
        if not self.played_again:
            self.stored[which] = 0

    def step(self, actions: np.ndarray) -> None:
        self.start(actions)
        self.finish()

    def start(self, actions: np.ndarray) -> None:
        """A step, which ALE's threads make until `finish`."""
        self.begin_rounds()
        self.action[:] = actions
        self.action[self.pressing] = self.fire
        self.skipped[:] = self.pressing
        self.ale.send(self.action)

    def finish(self) -> None:
        """The step that was started, once it is made."""
        over, lost = self.receive()
        if self.game.clip:
            np.clip(self.reward, -1.0, 1.0, out=self.reward)
        if self.game.life_ends:
            self.terminated |= lost
        for array in (self.reward, self.terminated, self.truncated):
            array[self.skipped] = 0
        if over.any():
            for i in np.flatnonzero(over).tolist():
                self.finished.append(Episode(i, self.ret[i], self.length[i]))
                self.episode[i] += 1
            self.note_begun(over)
            games = np.array(self.episode) - self.seeded
            due = self.stored >= STEPS if self.played_again else games >= GAMES
            if (over & due).any():
                self.begin_seeded(over & due)

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        """What `action` did in every game; `reward` is the true score. Returns where the game ended
        and ALE has begun the next one, and where one that goes on has lost a life."""
        obs, score, over, cut, info = self.ale.recv()
        over, cut = over | cut, cut & ~over
        self.obs[...] = obs.reshape(self.obs.shape)
        self.reward[:], self.terminated[:], self.truncated[:] = score, over & ~cut, cut
        lives = info["lives"].astype(np.int64)
        lost = lives_lost(self.lives, lives) & ~over
        self.lives = lives
        self.final_obs[lost] = self.obs[lost]
        if over.any():
            self.final_obs[over] = info["final_obs"].reshape(self.obs.shape)[over]
        self.pressing = lost if self.fire >= 0 else self.pressing
        if self.stored.max() >= self.actions.shape[1]:
            self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
        self.actions[self.lanes, self.stored] = self.action
        self.stored += 1
        for i, gained in enumerate(self.reward.tolist()):
            self.length[i] += 1
            self.ret[i] += gained
        return over, lost

    def state(self) -> dict[str, np.ndarray]:
        """What is needed to play again: which games they are, from which each lane was seeded, and
        the actions since then or, where these matter alone, of the current game."""
        actions = self.actions[:, : self.stored.max()].copy()
        actions[np.arange(actions.shape[1]) >= self.stored[:, None]] = 0
        return {
            "episode": np.array(self.episode),
            "length": np.array(self.length),
            "seeded": self.seeded.copy(),
            "stored": self.stored.copy(),
            "actions": actions,
            "obs": self.obs.copy(),
        }

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Plays again, all lanes at once: one with n steps to play begins n steps before the end.
        Returns False where the observations differ."""
        episode, lengths = state["episode"], state["length"]
        # earlier versions seeded every game
        seeded, stored = state.get("seeded", episode), state.get("stored", lengths)
        games = np.zeros_like(seeded) if self.played_again else episode - seeded
        actions = state["actions"]
        self.require_possible(actions, stored, lengths, episode - seeded)
        self.episode = seeded.tolist()
        begun = self.begin_early(games, stored)
        for left in range(int(stored.max()), -1, -1):
            if (starting := stored == left).any():
                self.begin_again(starting, games, begun)
            if left:
                playing = stored >= left
                self.action[:] = 0
                self.action[playing] = actions[playing, (stored - left)[playing]]
                self.ale.send(self.action)
                over, _ = self.receive()
                self.note_begun(over)
                begun += over & ~playing
        followed, self.episode = self.length == lengths.tolist(), episode.tolist()
        if not followed:
            self.begin_seeded(np.ones(self.num_envs, np.bool_))
        self.terminated[:] = self.truncated[:] = self.skipped[:] = False
        return followed and bool(np.array_equal(self.obs, state["obs"]))

    def begin_early(self, games: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Begins most of the games that lanes have to begin before their current one, in all of
        them at once. Some are left, since waiting lanes may end games. Returns how many were begun
        since the seed."""
        least, one_in = SPARE
        early = np.maximum(games - least - (stored.max() - stored) // one_in, 0)
        if (early > 0).any():
            self.begin_seeded(early > 0)
        begun = np.where(early > 0, 0, games)  # the others are seeded when they start
        while (which := begun < early).any():
            self.begin(which)
            begun += which
        return begun

    def begin_again(self, which: np.ndarray, games: np.ndarray, begun: np.ndarray) -> None:
        """The current games of these lanes, so many after the seed."""
        if (beyond := which & (begun >= games)).any():
            self.begin_seeded(beyond)
            begun[beyond] = 0
        while (behind := which & (begun < games)).any():
            self.begin(behind)
            begun += behind

    def require_possible(
        self, actions: np.ndarray, stored: np.ndarray, lengths: np.ndarray, games: np.ndarray
    ) -> None:
        """Refuses what no run has stored."""
        fits = (stored >= 0) & (stored <= actions.shape[1]) & (games >= 0)
        if not self.played_again:
            fits &= (lengths == stored) & (games < GAMES)
        if not fits.all():
            raise CheckpointError(
                f"{self.name}: the checkpoint's games are {lengths.tolist()} steps long, of "
                f"{stored.tolist()} stored ones, {games.tolist()} games after a seed: tenfold did "
                "not write that."
            )
        for i, count in enumerate(stored.tolist()):
            require_possible(actions[i, :count], self.action_space, self.location(i))

    def close(self) -> None:
        put_away(self.ale)
