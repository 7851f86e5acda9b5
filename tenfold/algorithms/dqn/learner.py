"""Q-learning as an actor acts by it, and its rounds (`algorithms.replay_learner`)."""

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.fused_acting import FusedActing
from tenfold.algorithms.dqn.plain import QLockstep
from tenfold.algorithms.replay_learner import ReplayActing, ReplayLearner
from tenfold.config.run import Run
from tenfold.envs.adapter import Environments


class QActing(ReplayActing):
    """In one compiled call where that can be."""

    def __init__(self, run: Run, agent: DQNAgent, envs: Environments) -> None:
        compiled = agent.members == 1 and run.engine != "plain" and not FusedEngine.why_not(agent)
        super().__init__(agent, envs, FusedActing(agent, envs.num_envs) if compiled else None)


class QLearner(ReplayLearner):
    """Of one network, or one for each agent of a world."""

    agent: DQNAgent

    def make_lockstep(self, every: int) -> QLockstep:
        return QLockstep(self.engine, every)
