"""DQN of Stable-Baselines3, without monitor, logger output or callbacks.

Its own: the Huber loss; a call that clips the gradient's norm, here to infinity, which changes
nothing but takes its time; the target is copied by environment steps, here as many as make 500
updates.
"""

import peer


def main() -> None:
    options = peer.arguments(__doc__, env=peer.ENV, hidden="-".join(map(str, peer.HIDDEN)))
    hidden = [int(width) for width in options.hidden.split("-")]
    with peer.needs("stable-baselines3"):
        import gymnasium as gym
        import torch
        from stable_baselines3 import DQN
        from stable_baselines3.common.vec_env import DummyVecEnv
    torch.set_num_threads(1)
    # it would put its monitor on a plain one
    env = DummyVecEnv([lambda: gym.make(options.env, disable_env_checker=True)])
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
        max_grad_norm=float("inf"),
        policy_kwargs={"net_arch": hidden},
        verbose=0,
        seed=options.seed,
        device="cpu",
    )
    model.learn(peer.WARM_UP, log_interval=None)
    before = model.num_timesteps
    with peer.Stopwatch() as watch:
        model.learn(options.steps - before, log_interval=None, reset_num_timesteps=False)
    peer.report(
        "stable-baselines3",
        "stable-baselines3",
        model.num_timesteps,
        model.num_timesteps - before,
        watch,
        peer.setting(
            options,
            env=options.env,
            hidden=hidden,
            loss="huber",
            adam_eps=1e-8,
            clip_norm="inf (called)",
            double=False,
            target_every_steps=target_steps,
        ),
    )


if __name__ == "__main__":
    main()
