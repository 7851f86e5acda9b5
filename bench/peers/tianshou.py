"""DQN of Tianshou by its collector and `update`, without its trainer, which would search the whole
replay for NaN at every step.

Its own: the target network is copied before the update, not after it, and the online network is run
on s' although not used.
"""

import peer


def main() -> None:
    options = peer.arguments(__doc__)
    with peer.needs("tianshou"):
        import gymnasium as gym
        import numpy as np
        import torch
        from tianshou.algorithm import DQN
        from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
        from tianshou.algorithm.optim import AdamOptimizerFactory
        from tianshou.data import Collector, ReplayBuffer
        from tianshou.env import DummyVectorEnv
        from tianshou.utils.net.common import Net
        from tianshou.utils.torch_utils import policy_within_training_step
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002  its exploration draws from the global generator
    env = DummyVectorEnv([lambda: gym.make(peer.ENV, disable_env_checker=True)])
    env.seed(options.seed)
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=peer.HIDDEN),
        action_space=gym.spaces.Discrete(2),
        eps_training=peer.EPSILON,
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=peer.LR),
        gamma=peer.GAMMA,
        target_update_freq=peer.TARGET_EVERY,
        is_double=False,
    )
    replay = ReplayBuffer(peer.CAPACITY)
    collector = Collector(policy, env, replay, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=peer.LEARNING_STARTS, random=True)

    def train(steps: int) -> int:
        """At least `steps` environment steps and their updates; returns how many they were."""
        done = 0
        with policy_within_training_step(policy):
            while done < steps:
                # the collector leaves the graph of its forward pass on; nobody needs it
                with torch.no_grad():
                    collector.collect(n_step=options.every)
                for _ in range(options.updates):
                    algorithm.update(replay, options.batch)
                done += options.every
        return done

    before = peer.LEARNING_STARTS + train(peer.WARM_UP - peer.LEARNING_STARTS)
    with peer.Stopwatch() as watch:
        measured = train(options.steps - before)
    peer.report(
        "tianshou",
        "tianshou",
        before + measured,
        measured,
        watch,
        peer.setting(options, loss="mse", adam_eps=1e-8, clip_norm=None, double=False),
    )


if __name__ == "__main__":
    main()
