"""What Stable-Baselines3, CleanRL, RLlib and SLM-Lab call our settings: whoever types their word is
told ours."""

# our setting -> their words for it; a word may stand for a setting of each agent
THEIRS = {
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
    "episode_limit": "max_episode_steps max_t",
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
    # ppo
    "agent.horizon": "n_steps num_steps rollout_fragment_length time_horizon train_batch_size",
    "agent.epochs": "n_epochs num_epochs update_epochs num_sgd_iter training_epoch",
    "agent.minibatches": "batch_size num_minibatches n_minibatches minibatch_size "
    "sgd_minibatch_size",
    "agent.lam": "gae_lambda lambda lambda_",
    "agent.clip": "clip_range clip_coef clip_param clip_eps clip_eps_spec",
    "agent.value_clip": "clip_range_vf clip_vloss vf_clip_param",
    "agent.value_weight": "vf_coef vf_loss_coeff val_loss_coef",
    "agent.entropy": "ent_coef entropy_coef entropy_coeff entropy_coef_spec",
    "agent.target_kl": "kl_target",
    "agent.normalize_advantage": "norm_adv normalize_advantages standardize_advantages",
    "agent.normalize_obs": "norm_obs normalize_observations",
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
    "agent.frames": "frame_stack n_stack framestack num_framestacks",
    "agent.replay": "prioritized_replay prioritized_replay_alpha prioritized_replay_beta",
    "agent.distribution": "n_quantiles num_quantiles num_atoms n_atoms",
    "agent.explore": "exploration_fraction exploration_initial_eps exploration_final_eps "
    "exploration_config epsilon start_e end_e epsilon_timesteps initial_epsilon "
    "final_epsilon explore_var_spec action_policy noisy",
}
# how a value is written that is not a number of theirs
SUCH_AS = {
    "agent.explore": "epsilon(linear(1, 0.05, 10k))",
    "agent.target": "polyak(0.005) or hard(500)",
    "agent.replay": "prioritized(0.6)",
    "agent.distribution": "quantile(32)",
    "agent.net.hidden": "64,64",
}
# what is no setting here -> what to say of it
NONE_HERE = {
    "tensorboard_log tensorboard logdir log_dir": "TensorBoard's files are always written, to "
    "RUN/tensorboard",
    "track wandb use_wandb wandb_project_name": "there is no tracker: RUN/metrics.jsonl and "
    "RUN/tensorboard hold all there is",
    "norm_reward normalize_reward vec_normalize": "rewards are not normalised; "
    "--agent.reward-scale multiplies them by a "
    "number (ppo)",
    "verbose": "the progress line is always shown; --quiet leaves it out",
    "policy policy_type": "the network follows from the observations; --agent.net.hidden 64,64 "
    "sets its layers",
    "optimizer optimizer_class optim": "Adam is the only one",
    "callback callbacks early_stopping stop_train_callback": "there are no callbacks",
    "use_sde sde_sample_freq": "there is no state-dependent exploration",
    "best": "--checkpoint best plays the best checkpoint",
    "capture_video record_video render": "tenfold eval RUN --video films a policy",
}
ANSWERS = {word: answer for words, answer in NONE_HERE.items() for word in words.split()}
OURS: dict[str, list[str]] = {}
for ours, theirs in THEIRS.items():
    for theirs_word in theirs.split():
        OURS.setdefault(theirs_word, []).append(ours)
