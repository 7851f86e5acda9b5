"""Hidden dynamics, learned by experiments or from recordings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import Algorithm, Domain
from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluation, Evaluator, Learner
    from tenfold.envs.adapter import Environments

SYSTEMS = (
    "limit-cycle",
    "double-limit-cycle",
    "van-der-pol",
    "duffing",
    "snowman",
    "multi-attractor",
    "ring-cart-pole",
)
# by the id of their environment
IDS = {f"tenfold/{name.title().replace('-', '')}-v0": name for name in SYSTEMS}
FIELD, RECORDING = "tenfold/Field-v0", "tenfold/Recording-v0"


class ActiveLearning(Algorithm):
    """The explorer: experiments chosen by what they would teach."""

    name = "explorer"
    config = Explorer
    reads_masks = True

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        raise NotImplementedError

    def make_learner(self, run: "Run") -> "Learner":
        raise NotImplementedError

    def make_evaluator(self, run: "Run") -> "Evaluator":
        raise NotImplementedError

    def evaluation(self) -> "Evaluation":
        from tenfold.domains.dynamics.evaluation import Models

        return Models()


class HiddenDynamics(Domain):
    """Fields to be identified, and recordings of systems that are nowhere but in a file."""

    name, title = "dynamics", "hidden systems"
    registered: Mapping[str, dict[str, Any]] = {
        ident: {"entry_point": "tenfold.domains.dynamics.fields:FieldEnv", "kwargs": kwargs}
        for ident, kwargs in (
            *((ident, {"field": system}) for ident, system in IDS.items()),
            (FIELD, {}),
        )
    }

    def owns(self, env: str) -> bool:
        return super().owns(env) or env.partition("(")[0].strip() == RECORDING

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        from tenfold.domains.dynamics.fields import FieldEnvironments, is_field

        return FieldEnvironments(env, num_envs, seed, first) if is_field(env) else None


ALGORITHMS = (ActiveLearning(),)
DOMAINS = (HiddenDynamics(),)
