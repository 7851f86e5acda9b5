"""Plays episodes with a fixed policy: for evaluations, films, and the random baseline.

There is one player, for one environment after another and for worlds with several agents, on the
adapter that training uses: what is checked and said there is checked and said here.
"""

import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.masks import refuse_unread
from tenfold.core.protocols import Agent, Policy
from tenfold.core.random import Purpose, key
from tenfold.core.registry import domain_of
from tenfold.envs.adapter import Environments, episode_seeds
from tenfold.envs.bases import ChosenLanes
from tenfold.envs.making import make_environments, stepped_one_by_one
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.envs.tensor_sources import most_lanes, steps_together
from tenfold.memory.frames import FrameStack

LANES = 32  # episodes played side by side, so that one forward pass serves all of them


@dataclass(frozen=True)
class Score:
    """Undiscounted returns of complete episodes."""

    returns: list[float]
    lengths: list[int]
    infos: list[dict[str, Any]] = field(default_factory=list)  # of each episode's last step
    cut: int = 0  # how many did not come to an end of their own
    agent_returns: list[tuple[float, ...]] = field(
        default_factory=list
    )  # returns of several agents

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def std_return(self) -> float:
        return statistics.pstdev(self.returns)

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that the environment calls a success; None if it does not say."""
        successes = [info["success"] for info in self.infos if info.get("success") is not None]
        return sum(successes) / self.episodes if successes else None

    @property
    def steps_to_goal(self) -> float | None:
        """Mean length of the successful episodes; None without any."""
        won = [
            length
            for length, info in zip(self.lengths, self.infos, strict=False)
            if info.get("success")
        ]
        return statistics.fmean(won) if won else None

    @property
    def selection_score(self) -> float:
        """The score that selects the best checkpoint: successes and then short episodes, where
        successes are known; else the return."""
        rate = self.success_rate
        return self.mean_return if rate is None else rate - 1e-6 * statistics.fmean(self.lengths)


def random_policy(agent: Agent, seed: int) -> Policy:
    """Uniformly random actions, by (episode, step)."""
    stream = key(seed, Purpose.RANDOM_POLICY)
    return lambda rows, mask, episode, step: agent.actions.random(
        stream, episode * 2**32 + step, mask
    )


class ChosenEpisodes(ChosenLanes, ScalarEnvironments):
    """Environments one after another whose episodes have these seeds."""

    def __init__(
        self, name: str, lanes: int, seeds: list[int], policy: bool = False, **more: Any
    ) -> None:
        self.seeds, self.episodes = seeds, len(seeds)
        super().__init__(name, lanes, 0, policy, **more)

    def begin_all(self) -> None:
        self.episode = list(range(self.num_envs))
        super().begin_all()

    def episode_seed(self, i: int) -> int:
        return self.seeds[self.episode[i]]

    def follow(self, i: int) -> None:
        """The player starts the next episode."""

    def cut(self, i: int) -> None:
        """Truncates the episode of lane i after a step, as a time limit would."""
        self.end(i, False, True)


def make_chosen(
    name: str, lanes: int, seed: int, purpose: Purpose, episodes: int, policy: bool, **more: Any
) -> Environments:
    """Environments that begin the episodes of a purpose by their numbers: a domain's, where it has
    such, unless their constructor is given `more`."""
    if steps_together(name):
        return make_environments(name, lanes, episode_seeds(seed, purpose, 1)[0], policy)
    if not more and not stepped_one_by_one(name):
        envs = domain_of(name).episodes(name, lanes, key(seed, purpose), episodes)
        if envs is not None:
            return envs
    return ChosenEpisodes(name, lanes, episode_seeds(seed, purpose, episodes), policy, **more)


@dataclass(frozen=True)
class StepBudget:
    """The limit of an evaluation: `steps` in all; `length` is the expected length of an episode, if
    known. `whole`: episodes are played one after another and never cut, so the last one may exceed
    the budget."""

    steps: int
    length: int = 0
    whole: bool = False


NO_BUDGET = StepBudget(2**63)


class EpisodeQueue:
    """Which episodes are played: all, or as many as the budget allows. They start in order, each in
    the first free lane, and none starts that would be cut; every one that started counts, so that
    short episodes gain nothing."""

    def __init__(self, episodes: int, budget: StepBudget = NO_BUDGET, most: int = LANES) -> None:
        self.episodes, self.budget = episodes, budget
        most = 1 if budget.whole else most
        self.lanes = min(most, episodes, max(budget.steps // max(budget.length, 1), 1))
        self.begun, self.used, self.cut = self.lanes, 0, 0

    def spend(self, steps: int) -> bool:
        """Whether these steps use up the budget: then all episodes are cut."""
        self.used += steps
        return self.used >= self.budget.steps and not self.budget.whole

    def following(self, running: int) -> int:
        """The number of the next episode, with so many `running`; `episodes` if none starts."""
        room = self.used + max((running + 1) * self.budget.length, 1) <= self.budget.steps
        if self.begun == self.episodes or not room:
            return self.episodes
        self.begun += 1
        return self.begun - 1

    def played(self, lengths: list[int]) -> list[int]:
        """The numbers of the episodes that are played, given the lengths of all."""
        ends = {lane: lengths[lane] for lane in range(self.lanes)}  # by lane
        numbers, now = list(range(self.lanes)), 0
        while ends:
            end = min(ends.values())
            self.spend((end - now) * len(ends))
            now = end
            for lane in sorted(lane for lane in ends if ends[lane] == end):
                del ends[lane]
                if (number := self.following(len(ends))) < self.episodes:
                    numbers.append(number)
                    ends[lane] = now + lengths[number]
        return sorted(numbers)


class Stopped(Exception):
    """The evaluation was interrupted."""


def play(
    env_name: str,
    agent: Agent,
    policy: Policy,
    episodes: int,
    seed: int,
    purpose: Purpose = Purpose.EVALUATE,
    limit: int = 30_000,
    stop: Callable[[], bool] = bool,
    budget: StepBudget = NO_BUDGET,
    watch: Callable[[Environments], None] | None = None,
    **more: Any,
) -> Score:
    """Plays `episodes` episodes, or as many as the budget allows; number e is seeded by f(seed, e).

    Choosing a checkpoint during training plays other episodes (Purpose.SELECT) than judging it
    afterwards. An episode is cut after `limit` steps. `stop` is asked every round, and raises
    Stopped when it says yes. `watch` is shown the environments before every step and after the
    last; `more` goes to the environment's constructor.
    """
    queue = EpisodeQueue(episodes, budget, most=most_lanes(env_name, LANES))
    lanes, reads_masks = queue.lanes, agent.reads_masks
    with closing(
        make_chosen(env_name, lanes, seed, purpose, episodes, reads_masks, **more)
    ) as envs:
        refuse_unread(envs.spec, "this agent", reads_masks)
        if getattr(agent, "masked", False) and envs.mask is None:
            raise EnvironmentFault(
                f"{envs.name} offers no action masks, and this agent learned with them: evaluate "
                "it in the environment that it learned in."
            )
        return play_on(envs, agent.frames, policy, queue, limit, stop, watch)


def play_on(
    envs: Any,
    frames: int,
    policy: Policy,
    queue: EpisodeQueue,
    limit: int,
    stop: Callable[[], bool] = bool,
    watch: Callable[[Environments], None] | None = None,
) -> Score:
    """`play` on these environments, which have as many worlds as the queue has lanes. An episode's
    return is the mean over its agents; with several, `agent_returns` has theirs."""
    worlds, agents, episodes = envs.worlds, envs.agents, queue.episodes
    stack = FrameStack(frames, envs)
    # of each episode that is over its agents' returns, its length and its last info
    over: dict[int, tuple[list[float], int, dict[str, Any]]] = {}
    number, step = np.arange(worlds), np.zeros(worlds, np.int64)
    returns = np.zeros(envs.num_envs)
    # several agents of an episode draw by numbers of their own
    offset = np.repeat(np.arange(agents), worlds) * episodes
    while (number < episodes).any():
        if stop():
            raise Stopped
        if watch:
            watch(envs)
        lanes = np.array(envs.playing)
        mask = None if envs.mask is None else envs.mask[lanes]
        address = (np.tile(number, agents) + offset)[lanes]
        envs.step(policy(stack.rows[lanes], mask, address, np.tile(step, agents)[lanes]))
        step += 1
        returns[lanes] += np.where(envs.skipped, 0.0, envs.reward)[lanes]
        ended = {episode.env for episode in envs.finished}
        spent = queue.spend(int((number < episodes).sum()))
        for w in np.flatnonzero(number < episodes).tolist():
            if not (w in ended or spent or step[w] == limit):
                continue
            info = checked_info(envs.info[w], envs.location(w)) if envs.info else {}
            over[int(number[w])] = returns[w::worlds].tolist(), int(step[w]), info
            if watch and not (envs.autoreset and w in ended):
                watch(envs)
            if w not in ended:
                envs.cut(w)
                queue.cut += 1
            number[w] = episodes  # it is none of those that run
            if envs.can_begin(w):
                number[w] = queue.following(int((number < episodes).sum()))
            step[w] = 0
            returns[w::worlds] = 0.0
            if not envs.autoreset:
                envs.play(w, int(number[w]))
        stack.step()  # after the cuts, which are ends as any other
    ended = [over[episode] for episode in sorted(over)]
    per_agent, lengths, infos = (list(part) for part in zip(*ended, strict=True))
    means = [sum(returns_of) / len(returns_of) for returns_of in per_agent]
    if envs.multiagent:
        return Score(means, lengths, cut=queue.cut, agent_returns=[*map(tuple, per_agent)])
    return Score(means, lengths, infos, queue.cut)


def checked_info(info: dict[str, Any], location: str) -> dict[str, Any]:
    """An episode's last info, with `success` converted to a bool; None leaves it open."""
    success = info.get("success")
    if success is None:
        return info
    number = np.asarray(success)
    if number.size != 1 or number.dtype.kind not in "biuf" or number.item() not in (0, 1):
        raise EnvironmentFault(
            f"{location}: info['success'] is {success!r}, and must be True or False."
        )
    return info | {"success": bool(number.item())}
