"""Several actors and a learner the way they are commonly written, for worlds with several agents: our own opponent.

Processes and a lock around every `add` and `sample` of one shared memory; weights as state dicts through queues, compared tensor
by tensor before they are loaded; actors that look for them and for permission every millisecond; a metrics queue that blocks; a
dict of agents, each with a network and an optimiser of its own, acting and learning one after another; frames by fancy indexing
and reshape. It is as lean as this way of writing allows, and the world is our compiled one with its PettingZoo face. Network, loss
and pace are those of tenfold's runs in bench/actors.py, which checks the loss on a batch.
"""

import contextlib
import copy
import math
import multiprocessing
import queue
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tenfold.envs.treasure_api import TreasureHunt

POLL = 0.001  # seconds
Weights = dict[str, dict[str, np.ndarray]]  # a state dict for each agent


@dataclass(frozen=True)
class Setting:
    """What decides the work; the same numbers go to tenfold."""

    env: str = "tenfold/TreasureSmall-v0"
    actors: int = 2
    every: int = 10  # environment steps for an update of every agent
    batch, hidden, cosines, samples, acting, frames, n_step = 32, 64, 64, 12, 32, 5, 3
    capacity, starts = 10_000, 1_000
    gamma, lr, tau, clip, sigma = 0.99, 1e-3, 0.005, 1.0, 0.5
    ahead: int = 100  # environment steps that actors may be ahead of the learner


class NoisyLinear(nn.Module):
    """Factorised Gaussian noise on weights and biases."""

    def __init__(self, into: int, out: int, sigma: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(into)
        self.weight = nn.Parameter(torch.empty(out, into).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out, into), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((out,), sigma * bound))
        self.register_buffer("weight_noise", torch.zeros(out, into), persistent=False)
        self.register_buffer("bias_noise", torch.zeros(out), persistent=False)

    def reset_noise(self, drawn: torch.Tensor | None = None) -> None:
        out, into = self.weight.shape
        x = torch.randn(into + out) if drawn is None else drawn
        x = x.sign() * x.abs().sqrt()
        self.weight_noise.copy_(torch.outer(x[into:], x[:into]))
        self.bias_noise.copy_(x[into:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight + self.weight_sigma * self.weight_noise, self.bias + self.bias_sigma * self.bias_noise)


class IQN(nn.Module):
    """Implicit quantiles with dueling heads: [B, inputs] and fractions [B, N] -> [B, N, actions]."""

    def __init__(self, inputs: int, actions: int, setting: Setting) -> None:
        super().__init__()
        sizes = [inputs, setting.hidden, setting.hidden, 1 + actions]
        self.layers = nn.ModuleList(NoisyLinear(i, o, setting.sigma) for i, o in pairwise(sizes))
        self.embedding = nn.Linear(setting.cosines, setting.hidden)
        self.frequency = math.pi * torch.arange(setting.cosines)

    def reset_noise(self) -> None:
        for layer in self.layers:
            layer.reset_noise()  # type: ignore[operator]

    def forward(self, obs: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.layers[0](obs)).unsqueeze(1)
        embedded = F.relu(self.embedding(torch.cos(fractions.unsqueeze(-1) * self.frequency)))
        x = self.layers[2](F.relu(self.layers[1](features * embedded)))
        value, advantage = x[..., :1], x[..., 1:]
        return value + advantage - advantage.mean(-1, keepdim=True)


def loss_of(online: IQN, target: IQN, batch: dict[str, torch.Tensor], fractions: torch.Tensor,
            next_fractions: torch.Tensor) -> torch.Tensor:
    """Quantile Huber loss of double Q-learning."""
    index = batch["action"][:, None, None].expand(-1, fractions.shape[1], 1)
    predicted = online(batch["obs"], fractions).gather(2, index).squeeze(2)
    with torch.no_grad():
        best = online(batch["next_obs"], next_fractions).mean(1).argmax(1)
        index = best[:, None, None].expand(-1, next_fractions.shape[1], 1)
        following = target(batch["next_obs"], next_fractions).gather(2, index).squeeze(2)
        wanted = batch["reward"][:, None] + batch["discount"][:, None] * following
    error = wanted[:, None, :] - predicted[:, :, None]
    huber = F.huber_loss(error, torch.zeros_like(error), reduction="none")
    return ((fractions[:, :, None] - (error.detach() < 0).float()).abs() * huber).mean(2).sum(1).mean()


class Learner:
    """One agent's networks and optimiser."""

    def __init__(self, inputs: int, actions: int, setting: Setting) -> None:
        self.setting, self.online = setting, IQN(inputs, actions, setting)
        self.target = copy.deepcopy(self.online)
        self.optimiser = torch.optim.Adam(self.online.parameters(), lr=setting.lr)

    def update(self, batch: dict[str, np.ndarray]) -> float:
        setting, rows = self.setting, {name: torch.as_tensor(value) for name, value in batch.items()}
        self.online.reset_noise()
        self.target.reset_noise()
        drawn = torch.rand(2, setting.batch, setting.samples)
        loss = loss_of(self.online, self.target, rows, drawn[0], drawn[1])
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), setting.clip)
        self.optimiser.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.mul_(1 - setting.tau).add_(setting.tau * new)
        return loss.item()


class Replay:
    """All agents' steps in shared arrays, a ring for each actor, one lock for everything."""

    def __init__(self, setting: Setting, agents: list[str], size: int, context: Any) -> None:
        self.setting, self.agents, self.rows, self.lock = setting, agents, setting.capacity // setting.actors, context.Lock()
        places, count = setting.actors * self.rows, len(agents)
        self.shapes = {"obs": ("f", (count, places, size)), "action": ("q", (count, places)), "reward": ("f", (count, places)),
                       "turn": ("q", (places,)), "ended": ("b", (places,)), "final": ("b", (places,)),
                       "head": ("q", (setting.actors,))}
        self.shared = {name: context.Array(kind, math.prod(shape), lock=False) for name, (kind, shape) in self.shapes.items()}
        self.attach()

    def attach(self) -> None:
        """In every process: the arrays over what is shared."""
        types = {"f": np.float32, "q": np.int64, "b": np.int8}
        self.arrays = {name: np.frombuffer(self.shared[name], types[kind]).reshape(shape) for name, (kind, shape) in
                       self.shapes.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "arrays"}

    def add(self, actor: int, obs: dict[str, np.ndarray], actions: dict[str, int], rewards: dict[str, float], turn: int,
            ended: bool, final: bool = False) -> None:
        with self.lock:
            own = self.arrays
            place = actor * self.rows + own["head"][actor] % self.rows
            for a, agent in enumerate(self.agents):
                own["obs"][a, place] = obs[agent]
                own["action"][a, place], own["reward"][a, place] = actions[agent], rewards[agent]
            own["turn"][place], own["ended"][place], own["final"][place] = turn, ended, final
            own["head"][actor] += 1

    def sample(self, agent: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        setting = self.setting
        with self.lock:
            own, head = self.arrays, self.arrays["head"]
            actor = rng.choice(np.flatnonzero(head > setting.n_step), setting.batch)
            oldest = np.maximum(head - self.rows + setting.frames, 0)
            at = rng.integers(oldest[actor], head[actor] - setting.n_step)
            while (wrong := own["final"][actor * self.rows + at % self.rows].astype(bool)).any():
                at[wrong] = rng.integers(oldest[actor[wrong]], head[actor[wrong]] - setting.n_step)
            place = actor * self.rows + at % self.rows
            reward, steps = np.zeros(setting.batch, np.float32), np.zeros(setting.batch, np.int64)
            going = np.ones(setting.batch, bool)
            for j in range(setting.n_step):
                later = actor * self.rows + (at + j) % self.rows
                reward += np.float32(setting.gamma**j) * going * own["reward"][agent, later]
                steps += going
                going &= ~own["ended"][later].astype(bool)
            return {"obs": self.stacked(agent, actor, at), "next_obs": self.stacked(agent, actor, at + steps), "reward": reward,
                    "action": own["action"][agent, place], "discount": (setting.gamma**steps).astype(np.float32)}

    def stacked(self, agent: int, actor: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The last frames of an episode, oldest first; its first one also for those before it."""
        turn = self.arrays["turn"][actor * self.rows + at % self.rows]
        back = np.minimum(np.arange(self.setting.frames - 1, -1, -1), turn[:, None])
        places = actor[:, None] * self.rows + (at[:, None] - back) % self.rows
        return self.arrays["obs"][agent][places].reshape(len(at), -1)


class Player:
    """What an actor does: a dict of agents in one world."""

    def __init__(self, index: int, setting: Setting, replay: Replay) -> None:
        self.index, self.setting, self.replay = index, setting, replay
        self.env = TreasureHunt(setting.env)
        self.agents = self.env.possible_agents
        size = self.env.observation_space(self.agents[0]).shape[0]
        self.nets = {agent: IQN(setting.frames * size, 4, setting) for agent in self.agents}
        self.fractions = (torch.arange(setting.acting) + 0.5)[None] / setting.acting
        self.begin(self.env.reset(seed=index)[0])

    def begin(self, obs: dict[str, np.ndarray]) -> None:
        self.obs, self.turn, self.returns = obs, 0, dict.fromkeys(self.agents, 0.0)
        self.frames = {agent: deque([obs[agent]] * self.setting.frames, self.setting.frames) for agent in self.agents}

    def load(self, weights: Weights) -> None:
        """Loads what differs from what is there."""
        for agent, found in weights.items():
            own, new = self.nets[agent].state_dict(), {name: torch.from_numpy(value) for name, value in found.items()}
            if any(not torch.equal(own[name], new[name]) for name in own):
                self.nets[agent].load_state_dict(new)

    def step(self, random: bool) -> dict[str, float] | None:
        """One turn of all agents; the returns of an epoch that ended."""
        actions = {}
        for agent, net in self.nets.items():
            if random:
                actions[agent] = int(self.env.action_space(agent).sample())
                continue
            with torch.no_grad():
                net.reset_noise()
                seen = torch.as_tensor(np.concatenate(self.frames[agent]), dtype=torch.float32).unsqueeze(0)
                actions[agent] = int(net(seen, self.fractions).mean(1).argmax(1).item())
        obs, rewards, _, truncations, _ = self.env.step(actions)
        ended = all(truncations.values())
        self.replay.add(self.index, self.obs, actions, rewards, self.turn, ended)
        self.obs, self.turn = obs, self.turn + 1
        for agent in self.agents:
            self.frames[agent].append(obs[agent])
            self.returns[agent] += rewards[agent]
        if not ended:
            return None
        found = self.returns
        self.replay.add(self.index, obs, actions, rewards, self.turn, True, final=True)
        self.begin(self.env.reset()[0])
        return found


def act(index: int, setting: Setting, replay: Replay, shared: dict[str, Any]) -> None:
    """An actor's process."""
    torch.set_num_threads(1)
    replay.attach()
    player, steps, updates, looked = Player(index, setting, replay), shared["steps"], shared["updates"], 0.0
    while not shared["stop"].is_set():
        shared["going"].wait()
        if time.monotonic() - looked > POLL:
            looked = time.monotonic()
            with contextlib.suppress(queue.Empty):
                player.load(shared["weights"][index].get_nowait())
        if steps.value >= setting.starts + setting.every * updates.value + setting.ahead:
            time.sleep(POLL)
            continue
        returns = player.step(steps.value < setting.starts)
        with steps.get_lock():
            steps.value += 1
        if returns is not None:
            shared["metrics"].put({"actor": index, "returns": returns})


class System:
    """Actors in processes, the learner here."""

    def __init__(self, setting: Setting) -> None:
        context = multiprocessing.get_context("spawn")
        env = TreasureHunt(setting.env)
        size = env.observation_space(env.possible_agents[0]).shape[0]
        self.setting, self.agents, self.rng = setting, env.possible_agents, np.random.default_rng(0)
        self.replay = Replay(setting, self.agents, size, context)
        self.learners = {agent: Learner(setting.frames * size, 4, setting) for agent in self.agents}
        self.shared: dict[str, Any] = {
            "steps": context.Value("q", 0), "updates": context.Value("q", 0), "stop": context.Event(), "going": context.Event(),
            "weights": [context.Queue(1) for _ in range(setting.actors)], "metrics": context.Queue(1000)}
        self.returns: deque[float] = deque(maxlen=100)  # of agents, in epochs
        self.processes = [context.Process(target=act, args=(i, setting, self.replay, self.shared), daemon=True)
                          for i in range(setting.actors)]

    def start(self) -> "System":
        for process in self.processes:
            process.start()
        return self

    def learn(self) -> None:
        """An update of every agent, one after another."""
        for a, agent in enumerate(self.agents):
            self.learners[agent].update(self.replay.sample(a, self.rng))

    def weights(self) -> Weights:
        return {agent: {name: value.numpy().copy() for name, value in learner.online.state_dict().items()}
                for agent, learner in self.learners.items()}

    def publish(self) -> None:
        found = self.weights()
        for mailbox in self.shared["weights"]:
            with contextlib.suppress(queue.Full):  # it has not taken the last ones yet
                mailbox.put_nowait(found)

    def run(self, steps: int) -> int:
        """Goes on for about so many environment steps, with the updates due for them; how many it was."""
        setting, done, updates = self.setting, self.shared["steps"], self.shared["updates"]
        first = done.value
        self.shared["going"].set()
        while done.value < first + steps:
            if done.value >= setting.starts + setting.every * (updates.value + 1):
                self.learn()
                updates.value += 1
                self.publish()
            else:
                time.sleep(POLL)
            while not self.shared["metrics"].empty():
                self.returns.extend(self.shared["metrics"].get()["returns"].values())
        self.shared["going"].clear()
        return done.value - first

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
