"""Networks whose learning phases the fused engine is held to (`ppo_cpu`)."""

from typing import Any

DECAY = {"weight_decay": 30.0}  # so much that a phase without it is another one
BEHIND = {"hidden": [7, 4], "value_hidden": [], "memory": "lstm(9)", "after": [6, 5]}
IN_FRONT = {"hidden": [], "value_hidden": [5, 3], "memory": "gru(4)", "after": [3]}
# environment, settings
EXAMPLES_OF_NETWORKS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "tenfold/CartPole-v1",
        DECAY | {"net": {"hidden": [7, 4], "value_hidden": [3], "activation": "gelu"}},
    ),
    (
        "tenfold/Pendulum-v1",
        {"net": {"hidden": [], "value_hidden": [9], "activation": "silu", "init": "torch"}},
    ),
    ("tenfold/CartPole-v1", {"net": BEHIND | {"activation": "silu", "init": "torch"}}),
    ("tenfold/Pendulum-v1", DECAY | {"net": IN_FRONT | {"activation": "selu"}}),
    # a value that learns at a rate and a scale of its own
    ("tenfold/CartPole-v1", DECAY | {"value_lr": 0.02, "normalize_value": True}),
    (
        "tenfold/Pendulum-v1",
        {"value_lr": "linear(0.02, 0, 200)", "net": {"hidden": [5], "memory": "gru(4)"}},
    ),
    ("tenfold/Assign-v0", {"normalize_value": True, "clip_norm": None, "adam_eps": 0.1}),
)
