"""Several actors and a learner the way they are commonly written, for worlds with several agents:
our own opponent.

Processes and a lock around every `add` and `sample` of one shared memory; weights as state dicts
through queues, compared tensor by tensor before they are loaded; actors that look for them and for
permission every millisecond; a metrics queue that blocks; a dict of agents, each with a network and
an optimiser of its own (usual_iqn.py), acting and learning one after another; frames by fancy
indexing and reshape. It is as lean as this way of writing allows, and the world is our compiled one
with its PettingZoo face. Network, loss and pace are those of tenfold's runs in bench/actors.py,
which checks the loss on a batch.
"""

import contextlib
import math
import multiprocessing
import queue
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from peers.usual_iqn import IQN, Learner, Setting

from tenfold.domains.treasure.api import TreasureHunt

POLL = 0.001  # seconds
Weights = dict[str, dict[str, np.ndarray]]  # a state dict for each agent


class Replay:
    """All agents' steps in shared arrays, a ring for each actor, one lock for everything."""

    def __init__(self, setting: Setting, agents: list[str], size: int, context: Any) -> None:
        self.setting, self.agents, self.rows, self.lock = (
            setting,
            agents,
            setting.capacity // setting.actors,
            context.Lock(),
        )
        places, count = setting.actors * self.rows, len(agents)
        self.shapes = {
            "obs": ("f", (count, places, size)),
            "action": ("q", (count, places)),
            "reward": ("f", (count, places)),
            "turn": ("q", (places,)),
            "ended": ("b", (places,)),
            "final": ("b", (places,)),
            "head": ("q", (setting.actors,)),
        }
        self.shared = {
            name: context.Array(kind, math.prod(shape), lock=False)
            for name, (kind, shape) in self.shapes.items()
        }
        self.attach()

    def attach(self) -> None:
        """In every process: the arrays over what is shared."""
        types = {"f": np.float32, "q": np.int64, "b": np.int8}
        self.arrays = {
            name: np.frombuffer(self.shared[name], types[kind]).reshape(shape)
            for name, (kind, shape) in self.shapes.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "arrays"}

    def add(
        self,
        actor: int,
        obs: dict[str, np.ndarray],
        actions: dict[str, int],
        rewards: dict[str, float],
        turn: int,
        ended: bool,
        final: bool = False,
    ) -> None:
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
            return {
                "obs": self.stacked(agent, actor, at),
                "next_obs": self.stacked(agent, actor, at + steps),
                "reward": reward,
                "action": own["action"][agent, place],
                "discount": (setting.gamma**steps).astype(np.float32),
            }

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
        self.frames = {
            agent: deque([obs[agent]] * self.setting.frames, self.setting.frames)
            for agent in self.agents
        }

    def load(self, weights: Weights) -> None:
        """Loads what differs from what is there."""
        for agent, found in weights.items():
            own, new = (
                self.nets[agent].state_dict(),
                {name: torch.from_numpy(value) for name, value in found.items()},
            )
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
                seen = torch.as_tensor(
                    np.concatenate(self.frames[agent]), dtype=torch.float32
                ).unsqueeze(0)
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
    player, steps, updates, looked = (
        Player(index, setting, replay),
        shared["steps"],
        shared["updates"],
        0.0,
    )
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
            "steps": context.Value("q", 0),
            "updates": context.Value("q", 0),
            "stop": context.Event(),
            "going": context.Event(),
            "weights": [context.Queue(1) for _ in range(setting.actors)],
            "metrics": context.Queue(1000),
        }
        self.returns: deque[float] = deque(maxlen=100)  # of agents, in epochs
        self.processes = [
            context.Process(target=act, args=(i, setting, self.replay, self.shared), daemon=True)
            for i in range(setting.actors)
        ]

    def start(self) -> "System":
        for process in self.processes:
            process.start()
        return self

    def learn(self) -> None:
        """An update of every agent, one after another."""
        for a, agent in enumerate(self.agents):
            self.learners[agent].update(self.replay.sample(a, self.rng))

    def weights(self) -> Weights:
        return {
            agent: {
                name: value.numpy().copy() for name, value in learner.online.state_dict().items()
            }
            for agent, learner in self.learners.items()
        }

    def publish(self) -> None:
        found = self.weights()
        for mailbox in self.shared["weights"]:
            with contextlib.suppress(queue.Full):  # it has not taken the last ones yet
                mailbox.put_nowait(found)

    def run(self, steps: int) -> int:
        """Goes on for about so many environment steps, with the updates due for them; how many it
        was."""
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
