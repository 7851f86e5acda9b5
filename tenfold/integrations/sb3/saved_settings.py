"""The settings of ours that a model's file amounts to: its arguments, and its networks' widths as
its weights have them."""

from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces

from tenfold.core.errors import UserError
from tenfold.core.layout import observation_layout
from tenfold.core.registry import algorithm
from tenfold.core.spaces import policy_actions
from tenfold.integrations.sb3.converted import SB3Settings
from tenfold.integrations.sb3.saved_model import SavedModel
from tenfold.integrations.sb3.settings import settings_of

# where the layers of a policy and of its value or critic begin; the former's last layer
LAYERS = {
    "DQN": ("q_net.q_net.", "", ""),
    "QRDQN": ("quantile_net.quantile_net.", "", ""),
    "SAC": ("actor.latent_pi.", "critic.qf0.", "actor.mu."),
    "TD3": ("actor.mu.", "critic.qf0.", ""),
    "DDPG": ("actor.mu.", "critic.qf0.", ""),
    "PPO": ("mlp_extractor.policy_net.", "mlp_extractor.value_net.", "action_net."),
}
SIDES = {"SAC": "qf", "TD3": "qf", "DDPG": "qf"}
EPISODES = 1_000_000  # steps of a training whose length a file does not say


def translation_of(
    saved: SavedModel, num_envs: int = 1, total_timesteps: int | None = None
) -> SB3Settings:
    """What its arguments mean here."""
    total = total_timesteps or int(saved.counters.get("_total_timesteps", 0)) or EPISODES
    recurrent = saved.class_name == "RecurrentPPO"
    kwargs = {**saved.arguments.get("policy_kwargs", {}), **architecture(saved)}
    arguments = {
        **saved.arguments,
        "policy": "MlpLstmPolicy" if recurrent else "MlpPolicy",
        "policy_kwargs": kwargs,
    }
    return settings_of(saved.class_name, arguments, num_envs, total)


def layers_in(saved: SavedModel, start: str) -> list[torch.Tensor]:
    """The weights of a network's layers, from the first on."""
    policy, weights = saved.file.parameters["policy"], []
    while (weight := policy.get(f"{start}{2 * len(weights)}.weight")) is not None:
        if weight.dim() != 2 or (weights and weight.shape[1] != weights[-1].shape[0]):
            raise UserError(
                f"{saved.file.name} is damaged: {start}{2 * len(weights)}.weight of shape "
                f"{tuple(weight.shape)} does not follow the layer before it."
            )
        weights.append(weight)
    return weights


def names_of(saved: SavedModel) -> tuple[str, str, str]:
    return LAYERS.get(saved.class_name, LAYERS["PPO"])


def architecture(saved: SavedModel) -> dict[str, Any]:
    """`net_arch` and `n_quantiles` as the weights have them."""
    policy, value, head = names_of(saved)
    widths = [len(weight) for weight in layers_in(saved, policy)]
    hidden = widths if head else widths[:-1]
    if saved.class_name == "QRDQN":
        count = getattr(saved.space("action_space"), "n", 0)
        if not widths or not count or widths[-1] % int(count):
            raise UserError(f"{saved.file.name} is damaged: its quantiles do not fit its actions.")
        return {"net_arch": hidden, "n_quantiles": widths[-1] // int(count)}
    if not value:
        return {"net_arch": hidden}
    others = [len(weight) for weight in layers_in(saved, value)]
    side = SIDES.get(saved.class_name, "vf")
    return {"net_arch": {"pi": hidden, side: others if side == "vf" else others[:-1]}}


def require_sizes(saved: SavedModel, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
    """Refuses spaces that the weights do not fit, before networks of their sizes are made."""
    policy, _, head = names_of(saved)
    tensors = saved.file.parameters["policy"]
    weights = layers_in(saved, policy)
    if head and (last := tensors.get(f"{head}weight")) is not None:
        weights.append(last)
    if "lstm_actor.weight_ih_l0" in tensors:
        weights.insert(0, tensors["lstm_actor.weight_ih_l0"])
    if not weights or any(weight.dim() != 2 for weight in weights):
        raise UserError(f"{saved.file.name} is damaged: its policy has no layers.")
    inputs = observation_layout(observation, saved.file.name).size
    outputs = numbers_of(action, saved.file.name)
    reads, gives = weights[0].shape[1], weights[-1].shape[0]
    if reads != inputs or gives % outputs or (gives > outputs and saved.class_name != "QRDQN"):
        raise UserError(
            f"{saved.file.name}: its policy reads {reads:,} numbers and gives {gives:,}, and "
            f"observations have {inputs:,} and actions {outputs:,} here."
        )


def numbers_of(action: gym.Space[Any], name: str) -> int:
    """Numbers that a policy of Stable-Baselines3 gives for such actions."""
    actions = policy_actions(action, name)
    if isinstance(action, spaces.MultiBinary):
        return len(actions.sizes)
    return actions.options + len(actions.low)


def make_agent(
    saved: SavedModel, run: Any, observation: gym.Space[Any], action: gym.Space[Any]
) -> Any:
    """An agent of a run's settings for these spaces, without an environment."""
    from tenfold.core.protocols import EnvSpec

    require_sizes(saved, observation, action)
    spec = EnvSpec(saved.file.name, observation_layout(observation, saved.file.name), action)
    return algorithm(run.agent.name).make_agent(run, spec)
