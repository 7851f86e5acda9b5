"""Atari games by the Arcade Learning Environment (extra `atari`), with the usual preprocessing."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

ATARI = "tenfold/Atari-v0"
# ALE/SpaceInvaders-v5, SpaceInvadersNoFrameskip-v4
THEIRS = re.compile(r"(?:ALE/)(\w+)-v\d+|(\w+?)(?:NoFrameskip|Deterministic)-v\d+")


class Atari(Domain):
    """Evaluated by the games' own scores."""

    name, title = "atari", "Atari games"
    steps_alone = False
    steps_in_halves = True
    registered: Mapping[str, dict[str, Any]] = {
        ATARI: {"entry_point": "tenfold.domains.atari.games:AtariEnv"}
    }

    def instead_of(self, env: str) -> str:
        if not (theirs := THEIRS.fullmatch(env)):
            return ""
        game = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", theirs[1] or theirs[2]).lower()
        extra = "pip install 'tenfold[atari]'"
        return f'--env "{ATARI}(game={game})", with the usual preprocessing ({extra})'

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments":
        from tenfold.domains.atari.lanes import AtariEnvironments

        return AtariEnvironments(env, num_envs, seed, first)


DOMAINS = (Atari(),)
