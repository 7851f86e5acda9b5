"""Many gridworlds behind the adapter."""

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.treasure.kernels import begin, observe, turn
from tenfold.domains.treasure.lanes import observe_all, play_all
from tenfold.domains.treasure.rules import ACTIONS, Rules, rules_of
from tenfold.domains.treasure.view import picture
from tenfold.envs.adapter import Episode, Worlds


class TreasureWorlds(Worlds):
    """All agents of all gridworlds in one kernel call a turn. World i plays the epochs of the
    stream (seed, EPISODE, first + i)."""

    def __init__(
        self, name: str, worlds: int, seed: int, first: int = 0, rules: Rules | None = None
    ) -> None:
        self.rules = rules = rules or rules_of(name)
        super().__init__(
            name, worlds, seed, rules.observation_space(), rules.action_space(), first, rules.agents
        )
        self.rule, self.template, self.value, self.gaps, self.shares = rules.tables()
        self.boards = np.zeros((worlds, *self.template.shape), np.int8)
        self.at = np.zeros((worlds, rules.agents, 2), np.int64)  # row and column of each agent
        self.length, self.episode = np.zeros(worlds, np.int64), np.zeros(worlds, np.int64)
        self.ret, self.last_ret = np.zeros((2, self.num_envs))
        self.action = np.zeros(self.num_envs, np.int64)
        self.order = np.zeros(rules.agents, np.int64)  # room for that of a turn
        self.held = {
            "boards": self.boards,
            "at": self.at,
            "length": self.length,
            "episode": self.episode,
            "ret": self.ret,
        }
        self.streams = np.array(self.keys, np.uint64)
        # what every step hands to the kernel; these arrays are written to, never replaced
        self.lanes = (
            self.action,
            self.rule,
            self.template,
            self.value,
            self.gaps,
            self.shares,
            self.boards,
            self.at,
            self.length,
            self.episode,
            self.streams,
            self.obs,
            self.final_obs,
            self.reward,
            self.truncated,
            self.ret,
            self.last_ret,
            self.order,
        )
        for w in range(worlds):
            self.begin(w)

    def begin(self, w: int) -> None:
        begin(
            self.rule,
            self.template,
            self.gaps,
            self.shares,
            self.boards[w],
            self.at[w],
            self.streams[w],
            self.episode[w],
        )
        self.ret[w :: self.worlds], self.length[w] = 0.0, 0
        for lane, (y, x) in zip(range(w, self.num_envs, self.worlds), self.at[w], strict=True):
            observe(self.rules.radius, self.boards[w], y, x, self.obs[lane])

    def turn(self, w: int) -> None:
        """World w's turn number `length`, without what an epoch's end brings."""
        turn(
            self.rule,
            self.value,
            self.gaps,
            self.shares,
            self.boards[w],
            self.at[w],
            self.streams[w],
            self.episode[w],
            self.length[w],
            self.action[w :: self.worlds],
            self.reward[w :: self.worlds],
            self.order,
        )

    def step(self, actions: np.ndarray) -> None:
        """One turn of every world with actions [B]."""
        self.begin_rounds()
        self.action[:] = actions
        self.end_rounds(play_all(*self.lanes))

    def end_rounds(self, ended: int) -> None:
        """Notes what `play_all` said of the last step."""
        if ended < 0:
            lane = -1 - ended
            raise EnvironmentFault(
                f"{self.place(lane, later=1)}: {self.action[lane]} is no action; they are "
                f"{', '.join(f'{i} {what}' for i, what in enumerate(ACTIONS))}."
            )
        if ended:
            returns = self.last_ret.reshape(self.agents, -1)
            self.finished = [
                Episode(
                    w, float(returns[:, w].mean()), self.rules.turns, tuple(returns[:, w].tolist())
                )
                for w in np.flatnonzero(self.truncated[: self.worlds]).tolist()
            ]

    def see_again(self) -> None:
        """Observations of the present boards."""
        observe_all(self.rules.radius, self.boards, self.at, self.obs)

    def picture(self) -> np.ndarray:
        return picture(self.rules, self.boards[0], self.at[0])
