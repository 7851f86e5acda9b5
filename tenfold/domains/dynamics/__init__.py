"""Hidden dynamics, learned by experiments or from recordings. Read the files in this order:

config              settings of model, planner and agent
field_rules         equations of our systems, compiled: a step, an observation
fields              the systems by their settings, and as environments
dynamics            latent dynamics f(z): linear, radial basis functions, an mlp
missing             values that were not observed; states from single observations
latent              the model: encoder, dynamics, decoder
coordinates         units of observations; true and standard coordinates
sessions            sessions that share one hidden state
elbo                the evidence bound of sequences, with and without gaps
belief              the belief of the hidden state; forecasts, R², ARX
prediction_error    filtered beliefs, and derivatives of their predictions
closed_form         the fit of dynamics that are linear in their weights
training            the window of latest steps; gradient steps up the bound
paths               planned paths of dynamics on features, compiled
information         Fisher information that was gathered
gains               what paths add to it, compiled
objective           the worth of a path: information, disagreement, novelty, goal, cost
icem                the search among sequences of actions
planning            the planner; the worth of paths of any network
learned             input matrix, loadings, fixed points and eigenvalues, with uncertainty
identified          the questions that a model answers, in the user's units
agent               plan, act, correct the belief, train
recording_table     a recording as named columns, and its episodes; CSV, DataFrames
recording_formats   NPZ, HDF5, LFADS, MATLAB
recording_nwb       NWB: spike times in bins, trials, series
recording_checks    refused values, and a regular clock
recording           a recording, divided and pooled, and as a run remembers it
learner             runs under way: experiments, and training on recordings
offline             `ten.fit`, and the size of the hidden state
validation          recordings of random actions, hidden states and fields of the truth
model_metrics       error of the field, R², the bound, bits per spike
phase_portrait      a run's page: fields, charts and tables of what was learned
evaluation          how runs are judged and described
compare, commands   `ten.compare`; `tenfold fit` and `tenfold compare`
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import AlgorithmSpec
from tenfold.core.registry import Command, Domain, deferred
from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import Learner
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


def is_field(env: str) -> bool:
    """Whether an environment's name, with its arguments, is one of our systems."""
    return env.partition("(")[0].strip() in (*IDS, FIELD)


def is_recording(env: str) -> bool:
    """Whether it is a recording."""
    return env.partition("(")[0].strip() == RECORDING


class ActiveLearning(AlgorithmSpec):
    """The explorer: experiments chosen by what they would teach, or recordings as they are."""

    name = "explorer"
    config = Explorer
    reads_masks = True

    untrained = deferred("tenfold.domains.dynamics.learner:untrained")
    make_evaluator = deferred("tenfold.domains.dynamics.evaluation:ModelEvaluator")
    make_reporter = deferred("tenfold.domains.dynamics.evaluation:FitReporter")
    evaluation = deferred("tenfold.domains.dynamics.evaluation:Models")

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.domains.dynamics.learner import ExplorerLearner, RecordingLearner

        return RecordingLearner(run) if is_recording(run.env) else ExplorerLearner(run)


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
        return is_field(env) or is_recording(env)

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        from tenfold.domains.dynamics.fields import FieldEnvironments

        return FieldEnvironments(env, num_envs, seed, first) if is_field(env) else None

    def commands(self) -> tuple[Command, ...]:
        from tenfold.domains.dynamics.commands import COMMANDS

        return COMMANDS


# names that `import tenfold as ten` gives, by the file they are in
PUBLIC = {
    "compare": "compare",
    "config": "Explorer LatentModel Planner",
    "offline": "fit",
    "model_metrics": "bits_per_spike",
}
ALGORITHMS = (ActiveLearning(),)
DOMAINS = (HiddenDynamics(),)
