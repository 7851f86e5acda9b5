"""What Stable-Baselines3 learns with its own defaults or the settings given: trains, then plays the
final policy greedily. Prints one JSON object.

    python bench/peers/sb3_learning.py --agent ppo --env Pendulum-v1 --steps 300000 --seed 100
"""

import argparse
import json
import time

import peer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", choices=("dqn", "ppo", "sac"), required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20, help="of the final policy, greedy")
    parser.add_argument("--settings", type=json.loads, default={}, help="as JSON")
    options = parser.parse_args()
    with peer.needs("stable-baselines3"):
        import stable_baselines3 as sb3
        import torch
        from stable_baselines3.common.evaluation import evaluate_policy
    torch.set_num_threads(1)
    model = getattr(sb3, options.agent.upper())(
        "MlpPolicy", options.env, seed=options.seed, device="cpu", **options.settings
    )
    start = time.monotonic()
    model.learn(options.steps)
    seconds = time.monotonic() - start
    env = model.get_env()
    env.seed(options.seed + 10_000)
    mean, _ = evaluate_policy(model, env, options.episodes, deterministic=True)
    print(
        json.dumps(
            {"return": float(mean), "seconds": round(seconds, 1), "version": sb3.__version__}
        )
    )


if __name__ == "__main__":
    main()
