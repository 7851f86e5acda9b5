"""SAC of Stable-Baselines3, or with --package sbx of SBX (the same in JAX), without monitor, logger
output or callbacks.

Their own: 1e-6 under the logarithm of the squashing's slope.
"""

import peer


def main() -> None:
    options = peer.arguments(__doc__, package="sb3")
    sbx = options.package == "sbx"
    package = "sbx-rl" if sbx else "stable-baselines3"
    with peer.needs(package):
        import gymnasium as gym
        import torch
        from stable_baselines3.common.vec_env import DummyVecEnv

        if sbx:
            from sbx import SAC
        else:
            from stable_baselines3 import SAC
    torch.set_num_threads(1)  # SBX's replay is Stable-Baselines3's
    # it would put its monitor on a plain one
    env = DummyVecEnv([lambda: gym.make(peer.SAC["env"], disable_env_checker=True)])
    model = SAC(
        "MlpPolicy",
        env,
        learning_rate=peer.SAC["lr"],
        buffer_size=peer.CAPACITY,
        learning_starts=peer.LEARNING_STARTS,
        batch_size=options.batch,
        tau=peer.SAC["tau"],
        gamma=peer.GAMMA,
        train_freq=options.every,
        gradient_steps=options.updates,
        ent_coef="auto",
        policy_kwargs={"net_arch": peer.HIDDEN},
        verbose=0,
        seed=options.seed,
        device="cpu",
    )
    model.learn(peer.WARM_UP, log_interval=None)
    before = model.num_timesteps
    with peer.Stopwatch() as watch:
        model.learn(options.steps - before, log_interval=None, reset_num_timesteps=False)
    peer.report(
        package,
        package,
        model.num_timesteps,
        model.num_timesteps - before,
        watch,
        peer.sac_setting(options),
    )


if __name__ == "__main__":
    main()
