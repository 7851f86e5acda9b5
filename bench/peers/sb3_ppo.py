"""PPO of Stable-Baselines3 or, with --package sbx, of SBX: 8 environments x 128 steps, 4 epochs x 4
minibatches, 64-64 tanh.

Without monitor, logger output or callbacks. Both normalise advantages by minibatch, we by rollout;
the work is the same.
"""

import peer


def main() -> None:
    options = peer.arguments(__doc__, steps=30_720, package="sb3")
    name = {"sb3": "stable-baselines3", "sbx": "sbx-rl"}[options.package]
    with peer.needs(name):
        import gymnasium as gym
        import torch
        from stable_baselines3.common.vec_env import DummyVecEnv

        if options.package == "sb3":
            from stable_baselines3 import PPO
        else:
            from sbx import PPO
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: gym.make(peer.ENV, disable_env_checker=True)] * peer.PPO["num_envs"])
    own = {"device": "cpu"} if options.package == "sb3" else {}
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=peer.PPO["lr"],
        n_steps=peer.PPO["horizon"],
        batch_size=peer.PPO["batch"],
        n_epochs=peer.PPO["epochs"],
        gamma=peer.GAMMA,
        gae_lambda=peer.PPO["lam"],
        clip_range=peer.PPO["clip"],
        ent_coef=peer.PPO["entropy"],
        vf_coef=peer.PPO["value_weight"],
        max_grad_norm=peer.PPO["clip_norm"],
        policy_kwargs={"net_arch": peer.HIDDEN},
        verbose=0,
        seed=options.seed,
        **own,
    )
    # compiles, in SBX
    model.learn(4 * peer.PPO["num_envs"] * peer.PPO["horizon"], log_interval=None)
    before = model.num_timesteps
    with peer.Stopwatch() as watch:
        model.learn(options.steps, log_interval=None, reset_num_timesteps=False)
    peer.report(
        name,
        name,
        model.num_timesteps,
        model.num_timesteps - before,
        watch,
        peer.ppo_setting(options),
    )


if __name__ == "__main__":
    main()
