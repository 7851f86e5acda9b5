"""RecurrentPPO of sb3-contrib on CartPole without velocities, an LSTM for the policy and one for
the value (its default), layers behind the LSTM.

Without monitor, logger output or callbacks. Their minibatches cut sequences at any row and pad
them; they normalise advantages by minibatch, we by rollout.
"""

import json

import without_velocities  # isort: skip
import peer


def main() -> None:
    options = peer.arguments(__doc__, steps=4_096, work="")
    work = json.loads(options.work)
    with peer.needs("sb3-contrib"):
        import torch
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    model = RecurrentPPO(
        "MlpLstmPolicy",
        DummyVecEnv([without_velocities.make] * work["num_envs"]),
        learning_rate=1e-3,
        n_steps=work["horizon"],
        batch_size=work["num_envs"] * work["horizon"] // work["minibatches"],
        n_epochs=work["epochs"],
        gamma=0.98,
        gae_lambda=0.9,
        policy_kwargs={"net_arch": work["hidden"], "lstm_hidden_size": work["lstm"]},
        verbose=0,
        device="cpu",
        seed=options.seed,
    )
    model.learn(work["num_envs"] * work["horizon"], log_interval=None)
    before = model.num_timesteps
    with peer.Stopwatch() as watch:
        model.learn(options.steps, log_interval=None, reset_num_timesteps=False)
    done = model.num_timesteps - before
    name = "sb3-contrib"
    peer.report(name, name, model.num_timesteps, done, watch, {"seed": options.seed, **work})


if __name__ == "__main__":
    main()
