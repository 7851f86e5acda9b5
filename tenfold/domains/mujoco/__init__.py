"""Gymnasium's MuJoCo tasks (extra `mujoco`), stepped by MuJoCo's own library from compiled code."""

from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

# ids of Gymnasium, and the class that each must be to be stepped from compiled code
TASKS = {
    "HalfCheetah-v5": "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv",
    "Hopper-v5": "gymnasium.envs.mujoco.hopper_v5:HopperEnv",
    "Walker2d-v5": "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv",
    "Swimmer-v5": "gymnasium.envs.mujoco.swimmer_v5:SwimmerEnv",
    "InvertedPendulum-v5": "gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv",
    "Ant-v5": "gymnasium.envs.mujoco.ant_v5:AntEnv",
    "Humanoid-v5": "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv",
}


class Mujoco(Domain):
    """Evaluated by their returns."""

    name, title = "mujoco", "MuJoCo tasks"
    sets_limits = has_forms = True

    def owns(self, env: str) -> bool:
        return env.partition("(")[0].strip() in TASKS

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments":
        from tenfold.domains.mujoco.lanes import MujocoEnvironments, why_not
        from tenfold.envs.making import make_env
        from tenfold.envs.scalar import ScalarEnvironments

        original = make_env(env)
        if reason := why_not(env, original):
            original.close()
            envs = ScalarEnvironments(env, num_envs, seed, policy, first)
            envs.form = f"stepped one by one, by Gymnasium: {reason}"
            return envs
        return MujocoEnvironments(env, num_envs, seed, first, original)

    def episodes(self, env: str, lanes: int, stream: Any, episodes: int) -> "Environments | None":
        from tenfold.domains.mujoco.episodes import MujocoEpisodes
        from tenfold.domains.mujoco.lanes import why_not
        from tenfold.envs.making import make_env

        original = make_env(env)
        if not why_not(env, original):
            return MujocoEpisodes(env, lanes, stream, episodes, original)
        original.close()
        return None


DOMAINS = (Mujoco(),)
