"""Playing episodes with a fixed policy: evaluation, and the random yardstick."""

import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.ppo.agent import PPOAgent, told_to_user
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.given import is_object
from tenfold.core.random import Purpose, below, bits, fill_normal, fill_uniform, key, uniform
from tenfold.envs.adapter import (
    CALLERS,
    SEED_BITS,
    MaskReader,
    fault_of,
    is_multiagent,
    make_env,
    put_away,
)
from tenfold.envs.worlds import Worlds, make_worlds
from tenfold.memory.frames import Frames, Seen

NOT = np.zeros(1, np.bool_)
CALLERS.add(__file__)
LANES = 16  # episodes played side by side, so that one forward pass serves all of them


@dataclass(frozen=True)
class Score:
    """Undiscounted returns of complete episodes."""

    returns: list[float]
    lengths: list[int]
    infos: list[dict[str, Any]] = field(default_factory=list)  # of each episode's last step
    cut: int = 0  # how many did not come to an end of their own
    each: list[tuple[float, ...]] = field(default_factory=list)  # returns of several agents

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
        """Share of episodes that the environment calls a success; None where it does not say."""
        said = [info["success"] for info in self.infos if info.get("success") is not None]
        return sum(said) / self.episodes if said else None

    @property
    def steps_to_goal(self) -> float | None:
        """Mean length of the successful episodes; None where there are none, or none are told
        of."""
        won = [
            length
            for length, info in zip(self.lengths, self.infos, strict=False)
            if info.get("success")
        ]
        return statistics.fmean(won) if won else None

    @property
    def merit(self) -> float:
        """What the best checkpoint has most of: successes and then short episodes, where successes
        are told; else return."""
        rate = self.success_rate
        return self.mean_return if rate is None else rate - 1e-6 * statistics.fmean(self.lengths)


Agent = DQNAgent | PPOAgent
# encoded rows, masks or None, episodes, steps -> the environments' actions
Policy = Callable[[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray], np.ndarray]


def greedy(agent: Agent) -> Policy:
    return lambda rows, mask, episode, step: agent.greedy(rows, mask)


def sampling(agent: PPOAgent) -> Policy:
    """Actions as the policy draws them, by (episode, step): the draws of `agent.sampled` for each
    row, one pass for all."""
    c, d = len(agent.actions.sizes), len(agent.actions.low)

    def act(
        rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        u, noise = np.empty((len(rows), c)), np.empty((len(rows), d), np.float32)
        for i, address in enumerate((episode * 2**32 + step).tolist()):
            fill_uniform(agent.keys[Purpose.ACTION], address * c, u[i])
            fill_normal(agent.keys[Purpose.NOISE_ACT], address * d, noise[i])
        with torch.no_grad(), told_to_user():
            output, _ = agent.online(agent.to_net(agent.normalised(rows)))
            logits, means, log_std = agent.parts_of(output)
            drawn = torch.from_numpy(u).to(agent.device)
            chosen = (
                agent.heads.sample(logits, agent.mask_of(mask), drawn).cpu().numpy()
                if agent.heads
                else u.astype(np.int64)
            )
            real = means + log_std.exp() * torch.from_numpy(noise).to(agent.device)
        return agent.for_env(chosen, real.cpu().numpy())

    return act


def judged_by(agent: Agent, how: str) -> Policy:
    """The policy that evaluations play: greedy or sampled."""
    return sampling(agent) if how == "sampled" and isinstance(agent, PPOAgent) else greedy(agent)


def uniformly_random(agent: Agent, seed: int) -> Policy:
    """Every allowed option equally likely, and every number within its bounds (±1 where there are
    none), by (episode, step)."""
    stream = key(seed, Purpose.RANDOM_POLICY)

    def act(
        rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        address = episode * 2**32 + step
        if isinstance(agent, DQNAgent):
            return below(stream, address, agent.actions.n) + agent.actions.start
        actions = agent.actions
        u = uniform(
            stream, (address[:, None] * actions.numbers + np.arange(actions.numbers)).ravel()
        ).reshape(len(rows), -1)
        chosen, at = np.zeros((len(rows), len(actions.sizes)), np.int64), 0
        for c, n in enumerate(actions.sizes):
            allowed = np.ones((len(rows), n), np.bool_) if mask is None else mask[:, at : at + n]
            place = (u[:, c] * allowed.sum(-1)).astype(np.int64)
            chosen[:, c] = (allowed.cumsum(-1) > place[:, None]).argmax(-1)
            at += n
        low, high = (
            np.nan_to_num(bound, posinf=1, neginf=-1)
            for bound in (np.array(actions.low), np.array(actions.high))
        )
        return actions.for_env(chosen, low + (high - low) * u[:, len(actions.sizes) :])

    return act


def frames_of(agent: Agent) -> int:
    return agent.config.frames if isinstance(agent, DQNAgent) else 1


class Stage:
    """An environment that is played, with what a policy sees of it."""

    def __init__(self, name: str, agent: Agent, **more: Any) -> None:
        self.name, self.agent, self.env = name, agent, make_env(name, **more)
        self.masks = (
            MaskReader(self.env.observation_space, agent.actions)
            if isinstance(agent, PPOAgent)
            else None
        )
        self.decode = (
            agent.actions.decode if isinstance(agent, PPOAgent) and agent.actions.parts else None
        )
        self.own = self.row = np.zeros(agent.layout.shape, agent.layout.dtype)
        self.fallible = self.own.dtype.kind == "f"  # whole numbers are always finite
        self.episode = self.length = 0
        self.mask: np.ndarray | None = None
        self.frames: Frames | None = None
        if frames_of(agent) > 1:
            self.frames = Frames(frames_of(agent), agent.layout, 1)
            self.row = self.frames.seen[0]

    def reset(self, seed: int, episode: int = 0) -> None:
        self.episode, self.length = episode, 0
        try:
            self.see(*self.env.reset(seed=seed))
        except UserError:
            raise
        except Exception as error:
            raise fault_of(self.place, "reset", error) from error
        if self.frames:
            self.frames.begin(self.own[None])

    def step(self, action: Any) -> tuple[float, bool, dict[str, Any]]:
        """(reward, whether the episode is over, info)."""
        try:
            obs, reward, terminated, truncated, info = self.env.step(
                self.decode(action) if self.decode else action
            )
            self.length += 1
            self.see(obs, info)
            reward = float(reward)
        except UserError:
            raise
        except Exception as error:
            raise fault_of(self.place, "step", error) from error
        if not math.isfinite(reward):
            raise EnvironmentFault(
                f"{self.place}: the reward is not finite; mend the environment, or clip what it "
                "returns."
            )
        if self.frames:
            self.frames.push(NOT, NOT, self.own[None], self.own[None])
        return reward, terminated or truncated, info

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        """An episode's last info; whether it was a success may be said in any form of true and
        false, and None leaves it open."""
        said = info.get("success")
        if said is None:
            return info
        number = np.asarray(said)
        if number.size != 1 or number.dtype.kind not in "biuf" or number.item() not in (0, 1):
            raise EnvironmentFault(
                f"{self.place}: info['success'] is {said!r}, and must be True or False."
            )
        return info | {"success": bool(number.item())}

    def see(self, obs: Any, info: dict[str, Any]) -> None:
        self.agent.layout.write(obs, self.own)
        if self.fallible and not np.isfinite(self.own).all():
            raise EnvironmentFault(
                f"{self.place}: the observation is not finite; mend the environment, or clip what "
                "it returns."
            )
        if self.masks:
            self.mask = self.masks.read(obs, info, self.name)

    @property
    def place(self) -> str:
        return f"{self.name}, evaluation, episode {self.episode}, step {self.length}"

    def close(self) -> None:
        put_away(self.env)


def episode_seeds(seed: int, purpose: Purpose, episodes: int) -> list[int]:
    return (bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(64 - SEED_BITS)).tolist()


@dataclass(frozen=True)
class Allowance:
    """What an evaluation may take: `steps` in all; an episode is thought to need `length`, where
    that is known."""

    steps: int
    length: int = 0


NO_END = Allowance(2**63)


class Rota:
    """Which episodes are played: all, or as many as there is an allowance for. They begin in their
    order, each in the first lane that is free, and none that may not come to its end; every one
    that began counts, so that short ones gain nothing."""

    def __init__(self, episodes: int, allowance: Allowance = NO_END, most: int = LANES) -> None:
        self.episodes, self.allowance = episodes, allowance
        self.lanes = min(most, episodes, max(allowance.steps // max(allowance.length, 1), 1))
        self.begun, self.used, self.cut = self.lanes, 0, 0

    def spend(self, steps: int) -> bool:
        """Whether nothing is left after so many steps more: then all are cut."""
        self.used += steps
        return self.used >= self.allowance.steps

    def following(self, running: int) -> int:
        """The number of the episode that begins beside `running` others; `episodes` where none
        does."""
        room = self.used + max((running + 1) * self.allowance.length, 1) <= self.allowance.steps
        if self.begun == self.episodes or not room:
            return self.episodes
        self.begun += 1
        return self.begun - 1


class Stopped(Exception):
    """The person does not want to wait for the end of the evaluation."""


def play(
    env_name: str,
    agent: Agent,
    policy: Policy,
    episodes: int,
    seed: int,
    purpose: Purpose = Purpose.EVALUATE,
    limit: int = 30_000,
    stop: Callable[[], bool] = bool,
    allowance: Allowance = NO_END,
) -> Score:
    """`episodes` episodes, or those of them that there is an allowance for; number e is seeded by
    f(seed, e).

    Choosing a checkpoint during training plays other episodes (Purpose.SELECT) than judging it
    afterwards. An episode is cut after `limit` steps. `stop` is asked every round, and raises
    Stopped when it says yes.
    """
    rota = Rota(episodes, allowance, most=1 if is_object(env_name) else LANES)
    if is_multiagent(env_name):
        return play_worlds(
            env_name, agent, policy, rota, episode_seeds(seed, purpose, 1)[0], limit, stop
        )
    with ExitStack() as opened:
        stages = [opened.enter_context(closing(Stage(env_name, agent))) for _ in range(rota.lanes)]
        return play_stages(
            stages, policy, rota, episode_seeds(seed, purpose, episodes), limit, stop
        )


def play_stages(
    stages: list[Stage],
    policy: Policy,
    rota: Rota,
    seeds: list[int],
    limit: int,
    stop: Callable[[], bool],
) -> Score:
    """`play` on these stages, an episode for each seed."""
    lanes, episodes = len(stages), len(seeds)
    episode, step = np.arange(lanes), np.zeros(lanes, np.int64)
    returns, lengths, infos = [0.0] * episodes, [0] * episodes, [{} for _ in range(episodes)]
    for e, stage in enumerate(stages):
        stage.reset(seeds[e], e)
    playing = np.arange(lanes)
    while playing.size:
        if stop():
            raise Stopped
        rows = np.stack([stages[i].row for i in playing])
        masks = [stages[i].mask for i in playing]
        if any((mask is None) != (masks[0] is None) for mask in masks):
            raise UserError(
                f"{stages[0].name} gives an action mask with some observations and none with "
                "others."
            )
        mask = None if masks[0] is None else np.stack(masks)  # type: ignore[arg-type]
        actions = policy(rows, mask, episode[playing], step[playing])
        spent = rota.spend(playing.size)
        for i, action in zip(
            playing.tolist(), actions.tolist() if actions.ndim == 1 else actions, strict=True
        ):
            reward, over, info = stages[i].step(action)
            e = int(episode[i])
            returns[e] += reward
            lengths[e] += 1
            step[i] += 1
            if over or spent or step[i] == limit:
                infos[e] = stages[i].told(info)
                rota.cut += not over
                episode[i] = episodes  # it is none of those that run
                episode[i], step[i] = rota.following(int((episode < episodes).sum())), 0
                if episode[i] < episodes:
                    stages[i].reset(seeds[episode[i]], int(episode[i]))
        playing = playing[episode[playing] < episodes]
    return Score(returns[: rota.begun], lengths[: rota.begun], infos[: rota.begun], rota.cut)


def play_worlds(
    env_name: str,
    agent: Agent,
    policy: Policy,
    rota: Rota,
    seed: int,
    limit: int,
    stop: Callable[[], bool],
) -> Score:
    """`play` for worlds with several agents: an episode's return is the mean of its agents', and
    `each` holds every one's own. A world whose episode is not over after `limit` steps is cut
    there."""
    with closing(make_worlds(env_name, rota.lanes, seed, isinstance(agent, PPOAgent))) as envs:
        found = play_lanes(envs, agent, policy, rota, limit, stop)
    returns, lengths, each = zip(*(found[e] for e in range(rota.begun)), strict=True)
    return Score(list(returns), list(lengths), cut=rota.cut, each=list(each))


def play_lanes(
    envs: Worlds, agent: Agent, policy: Policy, rota: Rota, limit: int, stop: Callable[[], bool]
) -> dict[int, tuple[float, int, tuple[float, ...]]]:
    """Of each episode the mean return, the length and every agent's own return. Worlds step
    together, also those that have nothing to play any more."""
    worlds, seen, episodes = envs.worlds, Seen(frames_of(agent), envs), rota.episodes
    found: dict[int, tuple[float, int, tuple[float, ...]]] = {}
    number, step = np.arange(worlds), np.zeros(worlds, np.int64)
    returns = np.zeros(envs.num_envs)
    while (number < episodes).any():
        if stop():
            raise Stopped
        address = (
            np.tile(number, envs.agents) + np.repeat(np.arange(envs.agents), worlds) * episodes
        )
        envs.step(policy(seen.rows, envs.mask, address, np.tile(step, envs.agents)))
        step += 1
        returns += np.where(envs.skipped, 0.0, envs.reward)
        ended = {episode.env for episode in envs.finished}
        spent = rota.spend(int((number < episodes).sum()))
        for w in np.flatnonzero(number < episodes).tolist():
            if not (w in ended or spent or step[w] == limit):
                continue
            if w not in ended:
                envs.cut(w)
                rota.cut += 1
            each = tuple(returns[w::worlds].tolist())
            found[int(number[w])] = sum(each) / envs.agents, int(step[w]), each
            number[w] = episodes  # it is none of those that run
            number[w], step[w] = rota.following(int((number < episodes).sum())), 0
            returns[w::worlds] = 0.0
        seen.step()  # after the cuts, which are ends as any other
    return found
