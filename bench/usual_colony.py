"""PPO on colonies as it is commonly written, the opponent of bench/graphs.py: one graph at a time
through the network, colonies as objects with features by loops, rewards in dictionaries, advantages
by a loop over components and time. The same networks, draws and loss as ours, so that an update can
be compared."""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.ppo import PPOAgent
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose, fill_normal
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.features import observe_reference
from tenfold.domains.durotaxis.reference import Colony
from tenfold.ops.adam import adam, clip
from tenfold.ops.segments import Graphs, pack_rows_reference


def graph_of(row: np.ndarray, agent: PPOAgent) -> Graphs:
    size = agent.layout.graph
    assert size
    columns = pack_rows_reference(
        row[None], (size.nodes, size.edges, size.node, size.edge, size.whole)
    )
    return Graphs(*map(torch.from_numpy, columns))


class UsualColonies:
    """The parts of a run of ours, used one graph at a time."""

    def __init__(self, learner: PPOLearner) -> None:
        assert isinstance(learner.envs, DurotaxisEnvironments)
        self.agent, self.envs, self.config = learner.agent, learner.envs, learner.agent.config
        self.online: Any = learner.agent.online
        self.colonies = [
            Colony(self.envs.setting, self.envs.episode_seed(i)) for i in range(self.envs.num_envs)
        ]
        self.episode = list(self.envs.episode)
        self.rounds, self.steps = 0, []

    def round(self) -> None:
        """A step of every colony, one after another."""
        agent, setting, row_of = self.agent, self.envs.setting, []
        noise = torch.from_numpy(agent_noise(agent, self.rounds, len(self.colonies)))
        for i, colony in enumerate(self.colonies):
            observation = observe_reference(setting, colony.extent, colony.nodes)
            with torch.no_grad():
                output, value = agent.online(graph_of(observation, agent))
                _, means, log_std = agent.distribution.split(output)
                real = means + log_std.exp() * noise[i]
                log_p = agent.distribution.evaluate(
                    output, {"real": real, "chosen": torch.zeros(1, 0, dtype=torch.int64)}
                )[0]
            action = agent.for_env(np.zeros((1, 0), np.int64), real.numpy())[0]
            components, ending = colony.step([float(number) for number in action])
            final = value[0].numpy()
            if ending.name == "TIME":
                with torch.no_grad():
                    final = self.online.values(
                        graph_of(observe_reference(setting, colony.extent, colony.nodes), agent)
                    )[0].numpy()
            if ending:
                self.episode[i] += 1
                self.envs.episode[i] = self.episode[i]
                self.colonies[i] = Colony(setting, self.envs.episode_seed(i))
            row_of.append(
                {
                    "obs": observation,
                    "real": real[0].numpy(),
                    "log_p": float(log_p),
                    "value": value[0].numpy(),
                    "parts": components,
                    "ended": bool(ending),
                    "terminated": bool(ending) and ending.name != "TIME",
                    "final": final,
                }
            )
        self.steps.append(row_of)
        self.rounds += 1

    def advantages(self) -> list[list[dict[str, Any]]]:
        """A loop over colonies, time and components."""
        weights = dict(
            zip(
                self.envs.component_names, self.envs.setting.component_weights.tolist(), strict=True
            )
        )
        for i, colony in enumerate(self.colonies):
            with torch.no_grad():
                following = self.online.values(
                    graph_of(
                        observe_reference(self.envs.setting, colony.extent, colony.nodes),
                        self.agent,
                    )
                )[0]
            following = following.numpy()
            running = [0.0] * (1 + len(weights))
            for t in reversed(range(len(self.steps))):
                transition = self.steps[t][i]
                rewards = [
                    sum(weights[name] * value for name, value in transition["parts"].items()),
                    *transition["parts"].values(),
                ]
                discount = 0.0 if transition["terminated"] else self.config.gamma
                after = transition["final"] if transition["ended"] else following
                for c, reward in enumerate(rewards):
                    delta = reward + discount * after[c] - transition["value"][c]
                    running[c] = delta + (
                        0.0 if transition["ended"] else self.config.lam * discount * running[c]
                    )
                transition["target"] = np.array(running) + transition["value"]
                transition["advantage"] = sum(
                    w * a for w, a in zip(weights.values(), running[1:], strict=True)
                )
                following = transition["value"]
        flat = [transition for row in self.steps for transition in row]
        mean = sum(transition["advantage"] for transition in flat) / len(flat)
        deviation = (
            sum((transition["advantage"] - mean) ** 2 for transition in flat) / len(flat)
        ) ** 0.5
        for transition in flat:
            transition["advantage"] = (transition["advantage"] - mean) / (deviation + 1e-8)
        return self.steps

    def update(self, order: np.ndarray, bounds: list[int], part: int, step: int) -> None:
        """One minibatch, one graph after another."""
        agent, config = self.agent, self.config
        flat = [transition for row in self.steps for transition in row]
        minibatch = [flat[j] for j in order[bounds[part] : bounds[part + 1]].tolist()]
        agent.online.flat_grad.zero_()
        total: Any = 0.0
        for transition in minibatch:
            batch = {
                "obs": graph_of(transition["obs"], agent),
                "real": torch.from_numpy(transition["real"])[None],
                "chosen": torch.zeros(1, 0, dtype=torch.int64),
                "log_p": torch.tensor([[transition["log_p"]]]),
                "advantage": torch.tensor([[transition["advantage"]]], dtype=torch.float32),
                "weight": torch.ones(1),
                "target": torch.from_numpy(transition["target"].astype(np.float32))[None],
                "value": torch.from_numpy(transition["value"])[None],
            }
            total = total + agent.loss(batch)[0]  # type: ignore[arg-type]
        (total / len(minibatch)).backward()
        clip(agent.online.flat_grad, config.clip_norm or float("inf"))
        agent.count[0] += 1
        adam(
            agent.online.flat,
            agent.online.flat_grad,
            agent.exp_avg,
            agent.exp_avg_sq,
            agent.updates,
            value_at(config.lr, step),
            config.adam_eps,
        )


def agent_noise(agent: PPOAgent, rounds: int, size: int) -> np.ndarray:
    d = len(agent.actions.low)
    return fill_normal(
        agent.keys[Purpose.NOISE_ACT], rounds * size * d, np.empty(size * d, np.float32)
    ).reshape(size, d)
