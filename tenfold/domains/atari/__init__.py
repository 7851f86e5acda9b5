"""Atari games by the Arcade Learning Environment (extra `atari`), with the usual preprocessing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.domain import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

ATARI = "tenfold/Atari-v0"


class Atari(Domain):
    """Judged by the games' own scores."""

    name, title = "atari", "Atari games"
    steps_alone = False
    registered: Mapping[str, dict[str, Any]] = {
        ATARI: {"entry_point": "tenfold.domains.atari.games:AtariEnv"}
    }

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments":
        from tenfold.domains.atari.games import AtariEnvironments

        return AtariEnvironments(env, num_envs, seed, first)


DOMAINS = (Atari(),)
