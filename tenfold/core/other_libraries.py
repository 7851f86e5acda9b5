"""What other libraries call things, and what to write here instead: algorithms, names of the
package, settings and their values, packages of environments."""

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
    "policy and value, or policy and critics, are networks of their own, with the same layers or "
    "others: net.hidden 64,64 of the policy, net.value_hidden of what values"
)


def spread(table: dict[str, str]) -> dict[str, str]:
    return {word: answer for aliases, answer in table.items() for word in aliases.split()}


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
        return any(key in ("pi", "vf", "qf") or names_sides(item) for key, item in value.items())
    return isinstance(value, str) and bool(re.search(r"\b(pi|vf|qf)\s*[=:\"']", value))


# settings

# our setting -> their words for it; a word may stand for a setting of each agent
ALIASES = {
    "env": "env_id env_name environment",
    "steps": "total_timesteps n_timesteps num_timesteps timesteps total_steps max_steps "
    "num_frames max_frame train_steps",
    "seed": "random_seed",
    "num_envs": "n_envs num_envs_per_env_runner num_envs_per_worker",
    "actors": "num_env_runners num_rollout_workers num_workers n_workers",
    "engine": "torch_compile",
    "device": "cuda use_cuda gpu",
    "threads": "num_threads torch_threads",
    "eval_every": "eval_freq eval_frequency evaluation_interval",
    "eval_episodes": "n_eval_episodes num_eval_episodes num_eval evaluation_duration",
    "eval_policy": "deterministic",
    "max_episode_steps": "max_t time_limit",
    "action_repeat": "frame_skip frameskip",
    "frames": "frame_stack n_stack framestack num_framestacks",
    "normalize_obs": "norm_obs normalize_observations",
    "normalize_reward": "norm_reward vec_normalize normalize_rewards",
    "clip_reward": "clip_rewards reward_clip",
    "checkpoint_every": "save_freq save_frequency checkpoint_freq checkpoint_frequency",
    "log_every": "log_interval log_freq log_frequency",
    "agent.name": "algo algorithm",
    "agent.gamma": "discount discount_factor",
    "agent.lr": "learning_rate lr_schedule anneal_lr lr_scheduler_spec",
    "agent.adam_eps": "adam_epsilon optimizer_eps",
    "agent.clip_norm": "max_grad_norm grad_clip clip_grad_norm clip_grad_val gradient_clip",
    "agent.net.hidden": "net_arch hidden_sizes hidden_layers hiddens fcnet_hiddens hid_layers "
    "policy_kwargs",
    "agent.net.activation": "activation_fn fcnet_activation hid_layers_activation",
    "agent.net.init": "ortho_init init_fn",
    "agent.net.shared_body": "share_features_extractor",
    # ppo
    "agent.net.memory": "lstm use_lstm lstm_hidden_size lstm_cell_size n_lstm_layers recurrent "
    "use_rnn rnn_type rnn_size rnn_hidden_size enable_critic_lstm",
    "agent.horizon": "n_steps num_steps rollout_fragment_length time_horizon train_batch_size",
    "agent.epochs": "n_epochs num_epochs update_epochs num_sgd_iter training_epoch",
    "agent.minibatches": "num_minibatches n_minibatches",
    "agent.minibatch_size": "batch_size sgd_minibatch_size",
    "agent.lam": "gae_lambda lambda lambda_",
    "agent.clip": "clip_range clip_coef clip_param clip_eps clip_eps_spec",
    "agent.value_clip": "clip_range_vf clip_vloss vf_clip_param",
    "agent.value_weight": "vf_coef vf_loss_coeff val_loss_coef",
    "agent.entropy": "ent_coef entropy_coef entropy_coeff entropy_coef_spec",
    "agent.target_kl": "kl_target",
    "agent.normalize_advantage": "norm_adv normalize_advantages standardize_advantages",
    "agent.squash": "squash_output",
    "agent.std": "log_std_init initial_std",
    # dqn
    "agent.batch_size": "minibatch_size train_batch_size",
    "agent.capacity": "buffer_size replay_buffer_size replay_buffer_config memory_size max_size",
    "agent.learning_starts": "learning_start training_start_step warmup_steps "
    "num_steps_sampled_before_learning_starts",
    "agent.every": "train_freq train_frequency training_frequency",
    "agent.updates": "gradient_steps training_iter training_batch_iter training_intensity",
    "agent.target": "tau polyak polyak_coef target_update_interval target_network_frequency "
    "target_network_update_freq update_frequency update_type",
    "agent.double": "double_q double_dqn",
    "agent.dueling": "dueling_dqn",
    "agent.n_step": "n_steps n_step_return multi_step",
    "agent.replay": "prioritized_replay prioritized_replay_alpha prioritized_replay_beta",
    "agent.distribution": "n_quantiles num_quantiles num_atoms n_atoms v_min v_max",
    "agent.explore": "exploration_fraction exploration_initial_eps exploration_final_eps "
    "exploration_config epsilon start_e end_e epsilon_timesteps initial_epsilon "
    "final_epsilon explore_var_spec action_policy noisy",
    # sac and td3
    "agent.tau": "polyak polyak_coef",
    "agent.temperature": "ent_coef alpha autotune target_entropy initial_alpha",
    "agent.noise": "action_noise exploration_noise",
    "agent.policy_delay": "policy_frequency",
    "agent.smoothing": "target_policy_noise policy_noise",
    "agent.smoothing_clip": "target_noise_clip noise_clip",
    "agent.critics": "n_critics twin_q",
}
# how a value is written that is not a number of theirs
EXAMPLE_VALUES = {
    "agent.explore": "epsilon(linear(1, 0.05, 10k))",
    "agent.target": "polyak(0.005) or hard(500)",
    "agent.replay": "prioritized(0.6)",
    "agent.distribution": "quantile(32) or categorical(51, -10, 10)",
    "agent.net.hidden": "64,64",
    "agent.temperature": "auto or 0.2",
    "agent.net.memory": "lstm(64)",
}
# our setting and their word -> where the same number means something else
UNITS = {
    ("agent.value_weight", "vf_coef"): "it is 2 x vf_coef: the value's loss has a half here",
    ("agent.every", "train_freq"): "it counts environment steps, train_freq x n_envs",
    (
        "agent.target",
        "target_update_interval",
    ): "hard counts gradient updates, target_update_interval x gradient_steps / "
    "(train_freq x n_envs)",
    (
        "agent.normalize_advantage",
        "norm_adv",
    ): "true is over the whole rollout, minibatch over each minibatch",
    ("agent.target_kl", "kl_target"): "it is looked at after each epoch, and itself is the bound",
    ("agent.std", "log_std_init"): "it is exp(log_std_init)",
}
# words that share the unit of another
UNIT_OF = {
    **dict.fromkeys(("vf_loss_coeff", "val_loss_coef"), "vf_coef"),
    **dict.fromkeys(("train_frequency", "training_frequency"), "train_freq"),
    **dict.fromkeys(
        ("target_network_frequency", "target_network_update_freq", "update_frequency"),
        "target_update_interval",
    ),
    **dict.fromkeys(("normalize_advantages", "standardize_advantages"), "norm_adv"),
}
# what is no setting here -> what to say of it
NO_SUCH_SETTING = {
    "tensorboard_log tensorboard logdir log_dir": "TensorBoard's files are always written, to "
    "RUN/tensorboard",
    "wandb use_wandb wandb_project_name": "--track wandb, trackio or mlflow sends metrics there",
    "verbose": "the progress line is always shown; --quiet leaves it out",
    "policy policy_type": "the network follows from the observations; --agent.net.hidden 64,64 "
    "sets its layers",
    "memory": "agent.net.memory is ppo's, whose policies may remember; --frames shows any "
    "agent several observations at once",
    "learners num_learners": "one process learns; --actors 4 acts in four, with "
    "--where ray also on a cluster",
    "optimizer optimizer_class optim": "Adam is the only one",
    "callback callbacks early_stopping stop_train_callback": "--callback MODULE:NAME names one",
    "use_sde sde_sample_freq": "there is no state-dependent exploration",
    "ignore_mask ignore-mask": "dqn uses the masks that an environment offers",
    "vec_env vec_env_class vec_env_cls vec_env_type SubprocVecEnv DummyVecEnv AsyncVectorEnv "
    "SyncVectorEnv subproc_vec_env dummy_vec_env subproc n_jobs n_procs n_cpus": "--actors 4 (in "
    "Python actors=4) steps environments in four processes, --num-envs 4 four of them on one core; "
    "--jobs 4 trains four of several --seeds at a time",
    "seeds": "--seeds 8, in Python ten.train_seeds(run, 8), trains several",
    "best": "--checkpoint best plays the best checkpoint",
    "capture_video record_video render": "tenfold eval RUN --video films a policy",
}
MIGRATION_HINTS = spread(NO_SUCH_SETTING)
SETTINGS_OF_ALIAS: dict[str, list[str]] = {}
for setting, aliases in ALIASES.items():
    for alias in aliases.split():
        SETTINGS_OF_ALIAS.setdefault(alias, []).append(setting)
