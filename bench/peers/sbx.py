"""DQN of SBX (Stable-Baselines3 in JAX), without monitor, logger output or callbacks.

Its own: the Huber loss; the target is copied by environment steps, here as many as make 500
updates.
"""

import peer


def main() -> None:
    options = peer.arguments(__doc__)
    with peer.needs("sbx-rl"):
        import gymnasium as gym
        import torch
        from sbx import DQN
        from stable_baselines3.common.vec_env import DummyVecEnv
    torch.set_num_threads(1)  # its replay is Stable-Baselines3's
    env = DummyVecEnv([lambda: gym.make(peer.ENV, disable_env_checker=True)])
    target_steps = max(1, peer.TARGET_EVERY * options.every // options.updates)
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=peer.LR,
        buffer_size=peer.CAPACITY,
        learning_starts=peer.LEARNING_STARTS,
        batch_size=options.batch,
        gamma=peer.GAMMA,
        train_freq=options.every,
        gradient_steps=options.updates,
        target_update_interval=target_steps,
        exploration_initial_eps=peer.EPSILON,
        exploration_final_eps=peer.EPSILON,
        policy_kwargs={"net_arch": peer.HIDDEN},
        verbose=0,
        seed=options.seed,
    )
    model.learn(peer.WARM_UP, log_interval=None)
    before = model.num_timesteps
    with peer.Stopwatch() as watch:
        model.learn(options.steps - before, log_interval=None, reset_num_timesteps=False)
    peer.report(
        "sbx",
        "sbx-rl",
        model.num_timesteps,
        model.num_timesteps - before,
        watch,
        peer.setting(
            options,
            loss="huber",
            adam_eps=1e-8,
            clip_norm=None,
            double=False,
            target_every_steps=target_steps,
        ),
    )


if __name__ == "__main__":
    main()
