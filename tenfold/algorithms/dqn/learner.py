"""Q-learning as an actor acts by it, and its rounds (`algorithms.replay_learner`)."""

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.plain import QLockstep
from tenfold.algorithms.kernels.dqn import FusedDQN, fused_acting
from tenfold.algorithms.replay_learner import ReplayActing, ReplayLearner
from tenfold.config.run import Run
from tenfold.envs.adapter import Environments


class QActing(ReplayActing):
    """In one compiled call where that can be."""

    def __init__(self, run: Run, agent: DQNAgent, envs: Environments) -> None:
        compiled = agent.members == 1 and run.engine != "plain" and not FusedDQN.why_not(agent)
        options = 0 if envs.mask is None else envs.mask.shape[1]
        super().__init__(
            agent, envs, fused_acting(agent, envs.num_envs, options) if compiled else None
        )


class QLearner(ReplayLearner):
    """Of one network, or one for each agent of a world."""

    agent: DQNAgent

    def make_lockstep(self, every: int) -> QLockstep:
        return QLockstep(self.engine, every)
