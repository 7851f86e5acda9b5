"""What other libraries call things, and what to write here instead: algorithms, names of the
package, values of settings, packages of environments. (Names of settings: `config.leaves`.)"""

import re

# algorithm -> what takes its place
ALGORITHMS = {
    "a2c a3c vpg": "ppo takes its place; with --agent.epochs 1 --agent.minibatches 1 it makes one "
    "update of each rollout, as a2c does",
    "trpo": "ppo takes its place",
    "appo impala": "ppo takes its place, with --actors 4 for actors in processes",
    "maskableppo maskable_ppo ppo_mask": "ppo reads the masks of environments by itself",
    "recurrentppo recurrent_ppo ppo_lstm rppo": 'it is ppo with --agent.net.memory "lstm(64)"',
    "ddpg": "it is td3 with --agent.critics 1 --agent.policy-delay 1 --agent.smoothing 0",
    "tqc crossq redq droq": "sac takes its place",
    "sacdiscrete sac_discrete discretesac": "sac takes discrete actions as well",
    "ddqn double_dqn doubledqn": "it is dqn, which is double by default (--agent.double)",
    "dueling duelingdqn dueling_dqn": "it is dqn with --agent.dueling",
    "qrdqn qr_dqn": 'it is dqn with --agent.distribution "quantile(200)"',
    "iqn": "it is dqn with --agent.distribution implicit",
    "c51": 'it is dqn with --agent.distribution "categorical(51, -10, 10)"',
    "rainbow": 'it is dqn with --agent.dueling --agent.n-step 3 --agent.replay "prioritized(0.5)" '
    '--agent.explore noisy --agent.distribution "categorical(51, -10, 10)"',
    "reinforce": "it is the example of an algorithm of one's own, examples/reinforce.py",
    "her herreplaybuffer": "replay with other goals (HER) is not here",
    "ars es cem": "there are only algorithms that learn by gradients, such as ppo",
    "dreamer dreamerv3 muzero mbpo": "it learns a model of the environment, which none here does",
}
# name of another library's package -> what to write here
NAMES = {
    "make_vec_env make_env DummyVecEnv VecEnv": "environments are made by their name: "
    'ten.train("ppo", env="CartPole-v1", num_envs=4)',
    "VecNormalize": "normalize_obs=True and normalize_reward=True are settings of a run",
    "VecFrameStack FrameStack": "frames=4 is a setting of a run",
    "VecMonitor Monitor RecordEpisodeStatistics": "returns and lengths of episodes are in "
    "RUN/metrics.jsonl without it",
    "TimeLimit": "max_episode_steps=500 is a setting of a run",
    "ActionMasker": 'an environment shows its mask as info["action_mask"]',
    "evaluate_policy": "ten.evaluate(run, episodes=20) plays a trained policy",
    "EvalCallback": "eval_every=10_000 is a setting of a run; the best policy is kept",
    "CheckpointCallback": "checkpoint_every=10_000 is a setting of a run",
    "BaseCallback": "derive from ten.Callback",
    "CallbackList": "give a list: callbacks=[…]",
    "StopTrainingOnRewardThreshold": "a ten.Callback may call training.stop()",
    "Trainer Tuner": 'ten.train("ppo", env="CartPole-v1") trains, and ten.sweep searches settings',
    "learn": 'ten.train("ppo", env="CartPole-v1", steps=100_000) makes, trains and saves',
}
# value of a setting -> ours
VALUES = {
    "gpu": "cuda",
    "cuda:0": "cuda",
    "stochastic": "sampled",
    "deterministic": "greedy",
    "cnn": "nature",
    "naturecnn": "nature",
    "smooth_l1": "huber",
    "smoothl1loss": "huber",
    "mseloss": "mse",
    "multiprocessing": "processes",
    "subproc": "processes",
    "jit": "compiled",
}
# environments' ids -> module that registers them, package
PACKAGES = (
    (
        r"(Fetch|Hand|HandManipulate|AntMaze|PointMaze|Adroit|FrankaKitchen|Maze2d)\w*-v\d+",
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
    (r"(MiniGrid|BabyAI)-.+", "minigrid", "minigrid"),
    (r"MiniWorld-.+", "miniworld", "miniworld"),
    (r"highway-.+|merge-v\d|roundabout-v\d|parking-v\d", "highway_env", "highway-env"),
    (r".+BulletEnv-v\d", "pybullet_envs_gymnasium", "pybullet_envs_gymnasium"),
    (r"PandaReach.*|Panda(Push|Slide|PickAndPlace|Stack|Flip).*", "panda_gym", "panda-gym"),
    (r"dm_control/.+", "shimmy", "shimmy[dm-control]"),
)
LAYERS = (
    "policy and value, or policy and critics, are networks of their own with the same layers: "
    "give one list, net.hidden 64,64"
)


def spread(table: dict[str, str]) -> dict[str, str]:
    return {word: answer for words, answer in table.items() for word in words.split()}


ALGORITHM_ANSWERS, NAME_ANSWERS = spread(ALGORITHMS), spread(NAMES)


def algorithm_elsewhere(word: object) -> str:
    """What takes the place of an algorithm that is none here; "" where it is not known."""
    return ALGORITHM_ANSWERS.get(str(word).lower().replace("-", "_"), "")


def name_elsewhere(word: str) -> str:
    """What to write for a name of another library's package; "" where it is not known."""
    return NAME_ANSWERS.get(word, "") or algorithm_elsewhere(word)


def package_of(env: str) -> tuple[str, str] | None:
    """The module that registers an environment, and its package."""
    return next((rest for ids, *rest in PACKAGES if re.fullmatch(ids, env)), None)  # type: ignore[misc]


def names_sides(value: object) -> bool:
    """Whether layers are given for policy and value apart, as in dict(pi=…, vf=…)."""
    if isinstance(value, dict):
        return any(key in ("pi", "vf", "qf") or names_sides(own) for key, own in value.items())
    return isinstance(value, str) and bool(re.search(r"\b(pi|vf|qf)\s*[=:\"']", value))
