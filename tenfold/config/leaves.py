"""Settings one by one, for flags and help; and an answer to a word that is none of them: what
Stable-Baselines3, CleanRL, RLlib and SLM-Lab call our settings."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal

from tenfold.config.agent import AgentConfig
from tenfold.config.notation import show
from tenfold.config.schema import Config, Option, describe, docs, hints

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
    # ppo
    "agent.net.memory": "lstm use_lstm lstm_hidden_size lstm_cell_size n_lstm_layers recurrent "
    "use_rnn rnn_type rnn_size rnn_hidden_size enable_critic_lstm",
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
SUCH_AS = {
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
    ("agent.minibatches", "batch_size"): "it is their number, n_steps x n_envs / batch_size",
    ("agent.every", "train_freq"): "it counts environment steps, train_freq x n_envs",
    (
        "agent.target",
        "target_update_interval",
    ): "hard counts gradient updates, target_update_interval x gradient_steps / "
    "(train_freq x n_envs)",
    (
        "agent.normalize_advantage",
        "norm_adv",
    ): "it is over the whole rollout, not over each minibatch",
    ("agent.target_kl", "kl_target"): "it is looked at after each epoch, and itself is the bound",
    ("agent.std", "log_std_init"): "it is exp(log_std_init)",
}
# words that share the unit of another
UNIT_OF = {
    **dict.fromkeys(("vf_loss_coeff", "val_loss_coef"), "vf_coef"),
    **dict.fromkeys(("minibatch_size", "sgd_minibatch_size"), "batch_size"),
    **dict.fromkeys(("train_frequency", "training_frequency"), "train_freq"),
    **dict.fromkeys(
        ("target_network_frequency", "target_network_update_freq", "update_frequency"),
        "target_update_interval",
    ),
    **dict.fromkeys(("normalize_advantages", "standardize_advantages"), "norm_adv"),
}
# what is no setting here -> what to say of it
NONE_HERE = {
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
ANSWERS = {word: answer for words, answer in NONE_HERE.items() for word in words.split()}
OURS: dict[str, list[str]] = {}
for ours, theirs in THEIRS.items():
    for theirs_word in theirs.split():
        OURS.setdefault(theirs_word, []).append(ours)


@dataclass(frozen=True)
class Leaf:
    """One setting that is not a group: its dotted path, type, default and help."""

    path: str
    hint: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.path.replace("_", "-")


def leaves_of(cls: type[Config], prefix: str = "") -> Iterator[Leaf]:
    types = hints(cls)
    for f in fields(cls):
        hint = types[f.name]
        if isinstance(hint, type) and issubclass(hint, AgentConfig):
            yield from leaves_of_agents(f"{prefix}{f.name}.")
        elif isinstance(hint, type) and issubclass(hint, Config) and not issubclass(hint, Option):
            yield from leaves_of(hint, f"{prefix}{f.name}.")
        else:
            yield Leaf(prefix + f.name, hint, default_of(f), docs(cls).get(f.name, ""))


def leaves_of_agents(prefix: str) -> Iterator[Leaf]:
    """The settings of all algorithms, each once; the help says whose it is, where it is not
    everyone's."""
    groups = AgentConfig.kinds()
    found: dict[str, dict[str, Leaf]] = {}
    for name, group in groups.items():
        for leaf in leaves_of(group, prefix):
            found.setdefault(leaf.path, {})[name] = leaf
    for path, owners in found.items():
        first = next(iter(owners.values()))
        if path == f"{prefix}name":
            yield Leaf(
                path,
                Literal[(*groups, "module:Name")],
                AgentConfig.usual,
                docs(AgentConfig)["name"],
            )  # type: ignore[valid-type]
            continue
        whose = "" if len(owners) == len(groups) else f"{', '.join(owners)}: "
        other = "".join(
            f"; {name}: default {show(leaf.default)}"
            for name, leaf in owners.items()
            if leaf.default != first.default
        )
        yield Leaf(path, first.hint, first.default, f"{whose}{first.help}{other}")


def default_of(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def known_as(cls: type[Config], word: str) -> str:
    """Which setting a word means that is none here."""
    if found := known_here(cls, word):
        return found
    if word in OURS:  # one of another group, or of another agent
        return f": tenfold calls it {' or '.join(OURS[word])}"
    if word in ANSWERS:
        return f": {ANSWERS[word]}"
    return nearest_setting(cls, word)


def known_here(cls: type[Config], word: str) -> str:
    return called_here({leaf.path: leaf for leaf in leaves_of(cls)}, word)


def called_here(leaves: "Mapping[str, Leaf]", word: str) -> str:
    """Our name for another library's word, with what it means; "" where no leaf is that. `leaves`
    are by what a person writes."""
    found = [
        (written, leaf, ours)
        for ours in OURS.get(word, ())
        for written, leaf in leaves.items()
        if ours == leaf.path or ours.endswith(f".{leaf.path}")
    ]
    told = [
        f"{written} ({leaf.help}{f', such as {SUCH_AS[ours]}' if ours in SUCH_AS else ''}"
        f"{unit_of(ours, word)})"
        for written, leaf, ours in found
    ]
    return f": tenfold calls it {' or '.join(told)}" if told else ""


def unit_of(ours: str, word: str) -> str:
    """Where a number of theirs would mean something else here."""
    words = UNITS.get((ours, UNIT_OF.get(word, word)), "")
    return f"; {words}" if words else ""


def nearest_setting(cls: type[Config], name: str) -> str:
    """The nearest key here or in a group below, with what it accepts."""
    leaves = {leaf.path.split(".")[-1]: leaf for leaf in leaves_of(cls)} | {
        leaf.path: leaf for leaf in leaves_of(cls)
    }
    found = get_close_matches(name, [*leaves, *(f.name for f in fields(cls))], 1, 0.5)
    if not found:
        return ""
    leaf = leaves.get(found[0])
    return (
        f": the nearest is {leaf.path}, {describe(leaf.hint)}"
        if leaf
        else f": the nearest is {found[0]}, a group of settings"
    )
