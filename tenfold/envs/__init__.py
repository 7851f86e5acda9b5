"""Environments: the adapter, and our own, registered with Gymnasium under `tenfold/`."""

import gymnasium

if "tenfold/Catch-v0" not in gymnasium.registry:
    gymnasium.register("tenfold/Catch-v0", "tenfold.envs.classic:Catch")
