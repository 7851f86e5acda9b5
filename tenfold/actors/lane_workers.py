"""How a run's environments are stepped: in this process one after another, or split over several.
Both give the same bits, so a measurement may decide."""

import math
import multiprocessing
import os
import statistics
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tenfold.actors.child_process import ActorLost
from tenfold.actors.env_worker import LaneJob, play_sample
from tenfold.actors.split_envs import SplitEnvironments
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault
from tenfold.core.processes import has_guard
from tenfold.core.registry import algorithm, domain_of
from tenfold.core.user_envs import OWN, bare, registered
from tenfold.envs.adapter import Environments
from tenfold.envs.halves import HalvedEnvironments
from tenfold.envs.making import make_environments

# seconds of a step of all environments together, for each process: waking it takes about a tenth
PAYS = 300e-6
LEAST = 1.3  # times as fast as one process several must be when they are tried
SAVES = 2.0  # seconds that processes must save a run: about what it takes to start them
WAITS, MOST_WAITING = 0.5, 32  # busy shares of environments that wait; processes for such
ALONE = "one_process"  # in an environment's metadata: those of one run need to be in one process


class OneProcess(Exception):
    """Why environments stay in this process."""


def environments_by_cost(
    run: Run, name: str, num_envs: int, seed: int, policy: bool, first: int
) -> Environments:
    """`make_environments`, split over processes where stepping one after another takes too long.
    The adapter's `form` says which and why."""
    if num_envs == 1:
        return make_environments(name, num_envs, seed, policy, first)
    if in_halves(run, name):
        return HalvedEnvironments(
            lambda count, start: make_environments(name, count, seed, policy, start),
            num_envs,
            first,
        )
    try:
        function = function_to_send(name)
        job = LaneJob(name, num_envs, seed, policy, first, run.threads, run.patience, function)
        return split_where_it_pays(run, job)
    except OneProcess as reason:
        envs = make_environments(name, num_envs, seed, policy, first)
        if envs.one_by_one:
            envs.form = with_sentence(envs, f"stepped one after another in this process: {reason}")
        return envs


def in_halves(run: Run, name: str) -> bool:
    """Whether one half of the environments steps while a policy on a GPU acts for the other. It
    follows from the settings alone, since products of half as many rows may round otherwise."""
    return (
        run.device == "cuda"
        and algorithm(run.agent.name).on_policy
        and domain_of(name).steps_in_halves
    )


def split_where_it_pays(run: Run, job: LaneJob) -> Environments:
    """Raises OneProcess where it does not."""
    require_cores(run)
    sample = make_environments(job.name, 1, job.seed, job.policy, job.first)
    try:
        times, digest, busy = tried(sample, job)
    finally:
        sample.close()
    if run.env_threads:
        workers, reason = min(run.env_threads, job.worlds), "as asked"
    else:
        workers, reason = workers_by_cost(run, statistics.median(times), busy)
    try:
        comparable = digest if sample.exact_resume else ""
        envs = SplitEnvironments(sample, job, workers, len(times), comparable)
    except ActorLost as loss:
        raise OneProcess(f"another one {loss.how.partition(';')[0].rstrip('.')}") from None
    gain = workers * sum(times) / envs.sample_seconds
    if not run.env_threads and gain < LEAST:
        envs.close()
        raise OneProcess(
            f"{workers} at once were {gain:.1f} times as fast, so other work has the cores"
        )
    envs.form = with_sentence(sample, f"stepped by {workers} processes: {reason}")
    return envs


def with_sentence(envs: Environments, sentence: str) -> str:
    """What an adapter says of its form, and this."""
    return f"{envs.form}; {sentence}" if envs.form else f"environments {sentence}"


def function_to_send(name: str) -> Any:
    """What another process needs to make an environment that goes by this name in this one alone;
    None where the name is enough."""
    if not name.startswith(OWN):
        return None
    function = registered.get(bare(name))
    try:
        sent = bytes(ForkingPickler.dumps(function))
    except Exception:  # whatever a user's object does about it
        raise OneProcess("their function cannot be sent to another one") from None
    if b"__main__" in sent and not (has_guard() and hasattr(sys.modules["__main__"], "__file__")):
        raise OneProcess("their function is in a program that another one cannot import")
    return function


def require_cores(run: Run) -> None:
    """Raises OneProcess where no look at the environments is needed for that."""
    if run.env_threads == 1:
        raise OneProcess("as asked")
    if not hasattr(os, "eventfd"):
        raise OneProcess("several share memory on Linux alone")
    if run.env_threads:
        return
    if len(os.sched_getaffinity(0)) == 1:
        raise OneProcess("there is one core")
    main = threading.current_thread() is threading.main_thread()
    if multiprocessing.parent_process() is not None or not main:
        raise OneProcess("other runs share its cores")


def tried(sample: Environments, job: LaneJob) -> tuple[list[float], str, float]:
    """`play_sample` of an adapter of one environment; raises OneProcess where such environments
    cannot be split."""
    if not sample.one_by_one:
        raise OneProcess
    metadata = [getattr(env, "metadata", None) for env in getattr(sample, "envs", ())]
    if any(isinstance(about, dict) and about.get(ALONE) for about in metadata):
        raise OneProcess(f"{job.name} asks for it ({ALONE} in its metadata)")
    try:
        return play_sample(sample, job.seed, job.patience)
    except EnvironmentFault as fault:
        raise OneProcess(f"a first try failed ({str(fault).rstrip('.')})") from None


def workers_by_cost(run: Run, seconds: float, busy: float) -> tuple[int, str]:
    """How many processes pay, and why; `seconds`: of a step of one environment, for which share of
    it a core is `busy`. Of environments that wait a core serves several."""
    together, cores = run.num_envs * seconds, len(os.sched_getaffinity(0))
    reason = (
        f"a step of one takes {1e6 * seconds:,.0f} us, and processes pay from "
        f"{2e6 * PAYS / run.num_envs:,.0f} us on"
    )
    if busy < WAITS:
        cores = min(MOST_WAITING, math.floor(cores / max(busy, 0.01)))
        reason += f", {1 - busy:.0%} of which it waits"
    workers = min(run.num_envs, cores, math.ceil(together / PAYS))
    if together < 2 * PAYS:
        raise OneProcess(reason)
    saved = run.steps * seconds * (1 - 1 / workers)
    if saved < SAVES:
        raise OneProcess(f"others would save {saved:.1f} s of the run, and take as long to start")
    return workers, reason
