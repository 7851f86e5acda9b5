"""A Ray cluster, joined by its address or started here on loopback, for whoever of this process
needs it: the first connects, the last disconnects. No port is opened by anything but Ray."""

import contextlib
import importlib.metadata
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from time import monotonic
from typing import Any

from tenfold.core.errors import ActorFault, UserError

REACH, ANSWER = 3.0, 5.0  # seconds until an address is given up: to be reached, and to answer
# its own processes are asked by one that can be ended: Ray's client waits for a minute and then
# ends whoever asks. It says when it has imported Ray, which takes a busy machine many seconds
PROBE = (
    "import sys; from ray._raylet import GcsClient; print(flush=True); "
    "GcsClient(address=sys.argv[1])"
)

# `agents` end with this process, where it started the cluster
state: dict[str, Any] = {"users": 0, "ours": False, "address": "", "agents": None}


def require_ray() -> Any:
    """The module, or the sentence that says where it comes from."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before it is imported
    try:
        import ray
    except ImportError:
        raise UserError(
            "where = ray needs Ray, which is not installed: pip install 'tenfold[ray]'."
        ) from None
    logging.getLogger("ray").setLevel(logging.ERROR)  # it tells of addresses and authentication
    return ray


def connect(address: str = "", cpus: int = 0) -> None:
    """Joins the cluster at `address` ("host:port", or "auto": the one of this machine); without one
    that of RAY_ADDRESS, and without that one of this machine's cores (`cpus` of them, if more),
    reachable from nowhere else. A Ray that this process has begun by itself is used as it is."""
    ray = require_ray()
    if ray.is_initialized():
        if state["users"] and state["address"] != address:
            was = state["address"] or "started here"
            raise UserError(f"This process uses the Ray cluster {was}, and cannot join {address}.")
    else:
        if existing := elsewhere(address):
            join(ray, existing)
        else:
            start(ray, max(len(os.sched_getaffinity(0)), cpus))
            raylet = ray._private.worker._global_node.all_processes["raylet"][0].process.pid
            state.update(agents=ending_with_us(raylet))
        # what happens to actors and nodes is told by whoever asked for them, in one sentence; Ray
        # would print its own about each
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
        state.update(users=0, ours=True)
    state.update(users=state["users"] + 1, address=address)


def disconnect() -> None:
    """The last of those who connected ends what the first began, and nothing else."""
    state["users"] = max(state["users"] - 1, 0)
    if not state["users"] and state["ours"]:
        agents = state["agents"]
        state.update(ours=False, address="", agents=None)
        require_ray().shutdown()
        if agents:
            agents.now()


def start(ray: Any, cpus: int) -> None:
    with on_loopback(), without_monitors(), keeping_signals():
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Ray's processes started in here listen on 127.0.0.1 only: Ray's own way for laptops, which on
    Linux has to be asked for."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def keeping_signals() -> Iterator[None]:
    """Ray would put a handler of SIGTERM in the place of ours, which raises SystemExit wherever the
    process is: a second SIGTERM, and one while Ray starts, would be blamed on an environment."""
    from ray._private import utils

    before = utils.set_sigterm_handler
    try:
        utils.set_sigterm_handler = lambda handler: None
        yield
    finally:
        utils.set_sigterm_handler = before


@contextlib.contextmanager
def without_monitors() -> Iterator[None]:
    """A cluster of this machine alone that lasts as long as a run has nobody to scale it, and
    nobody to copy its logs to: Ray's processes for both take two seconds of a core to start."""
    from ray._private.node import Node

    names = ("start_monitor", "start_log_monitor")
    before = [getattr(Node, name) for name in names]
    try:
        for name in names:
            setattr(Node, name, lambda self: None)
        yield
    finally:
        for name, method in zip(names, before, strict=True):
            setattr(Node, name, method)


def elsewhere(address: str) -> str:
    """The address of a cluster that is there already; empty where one is to be started."""
    existing = address or os.environ.get("RAY_ADDRESS", "")
    return "" if existing == "local" else existing


def require_reachable(address: str) -> None:
    """Before anything is written: refuses a cluster that does not answer."""
    ray = require_ray()
    if (existing := elsewhere(address)) and not ray.is_initialized():
        reach(existing)


def reach(address: str) -> tuple[str, int]:
    """Host and port, where Ray answers; within ten seconds, or one sentence."""
    if "://" in address:
        raise UserError(
            f"address = {address} is one for Ray's client, through which every row would take two "
            "more steps: run this on a machine of the cluster, with its address host:port."
        )
    host, port = place_of(address)
    with on_loopback_if(host):
        try:
            socket.create_connection((host, port), REACH).close()
        except OSError as error:
            raise UserError(
                f"No Ray cluster answers at {host}:{port} ({error}): is it there (ray status), and "
                "is the port open to this machine?"
            ) from None
        require_answer(f"{host}:{port}")
    return host, port


def join(ray: Any, address: str) -> None:
    host, port = reach(address)
    with on_loopback_if(host), keeping_signals():
        try:
            ray.init(address=f"{host}:{port}", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            ray.shutdown()  # it may be half there
            message = " ".join(f"{error} {error.__cause__ or ''}".split())
            raise UserError(
                mismatch(address, message) or f"Ray at {address} cannot be joined: {message}"
            ) from None


def on_loopback_if(host: str) -> contextlib.AbstractContextManager[None]:
    loopback = host.startswith("127.") or host == "localhost"
    return on_loopback() if loopback else contextlib.nullcontext()


def place_of(address: str) -> tuple[str, int]:
    if address == "auto":
        from ray._private import services
        from ray._private.authentication import authentication_token_setup as tokens

        tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)  # as Ray does
        try:
            address = str(services.canonicalize_bootstrap_address("auto"))
        except ConnectionError:
            raise UserError(
                "address = auto finds no Ray cluster on this machine: start one with ray start "
                "--head, or give host:port."
            ) from None
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f"address = {address} is not host:port, such as 10.0.0.5:6379.")
    return host, int(port)


def require_answer(address: str) -> None:
    """Somebody who listens there and is no Ray is waited for by Ray without end."""
    command, pipe = [sys.executable, "-c", PROBE, address], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as probe:
        try:
            assert probe.stdout
            probe.stdout.readline()
            _, complaint = probe.communicate(timeout=ANSWER)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"Somebody listens at {address}, and does not answer as Ray does in {ANSWER:g} s: "
                "is it the port of ray start --head (6379)?"
            ) from None
        finally:
            probe.kill()
    if probe.returncode:
        message = (complaint.strip() or "no words").splitlines()[-1]
        if "AuthenticationError" in message:
            raise UserError(
                f"The Ray cluster at {address} asks for its token: set RAY_AUTH_MODE=token, with "
                "the cluster's own in ~/.ray/auth_token or RAY_AUTH_TOKEN."
            )
        raise UserError(f"What listens at {address} does not answer as Ray does: {message}")


class Head:
    """The head of the cluster that this process has joined. Where it is gone Ray tries for a minute
    to find it again, and then ends this process without a word: we look, and stop before."""

    pause = 2.0  # seconds between two looks
    most = 12.0  # seconds without it

    def __init__(self) -> None:
        self.address = require_ray().get_runtime_context().gcs_address
        self.looked = self.last_answer = monotonic()

    def answers(self) -> bool:
        try:
            socket.create_connection(place_of(self.address), REACH).close()
        except OSError:
            return False
        return True

    def require(self) -> None:
        """Now and then; an error where it has not been there for too long."""
        now = monotonic()
        if now - self.looked < self.pause:
            return
        if now - self.looked > 2 * self.most or self.answers():  # this process was elsewhere
            self.last_answer = monotonic()
        self.looked = monotonic()
        if (gone := self.looked - self.last_answer) > self.most:
            raise ActorFault(
                f"The head of the Ray cluster at {self.address} has not answered for {gone:.0f} s: "
                "the run stops."
            )


def is_placed(handle: Any) -> bool:
    """Whether Ray has found a node for an actor, where its process may still be starting."""
    from ray._private.state import actors

    return bool(actors(handle._actor_id.hex()).get("Address", {}).get("Port"))


def versions() -> dict[str, str]:
    """Of what decides the numbers of an actor."""
    return {name: importlib.metadata.version(name) for name in ("tenfold", "torch", "numpy")}


def differing(node: str, theirs: dict[str, str]) -> str:
    """Words about a node whose packages are not those of this process; another tenfold is an
    error."""
    ours = versions()
    if (old := theirs["tenfold"]) != ours["tenfold"]:
        raise UserError(
            f"The node {node} has tenfold {old}, and this process has {ours['tenfold']}: install "
            "the same on all machines of the cluster."
        )
    differences = [
        f"{name} {old} and not {ours[name]}" for name, old in theirs.items() if ours[name] != old
    ]
    if not differences:
        return ""
    return f"node {node} has {', '.join(differences)}: numbers may differ in their last bits"


def mismatch(address: str, message: str) -> str:
    """A sentence where Ray's own words say that versions differ."""
    pair = r"Ray: (\S+) Python: (\S+)"
    if not (match := re.search(rf"started with: {pair}.*started with: {pair}", message)):
        return ""
    theirs, ours = match.groups()[:2], match.groups()[2:]
    return (
        f"The Ray cluster at {address} has Ray {theirs[0]} and Python {theirs[1]}, and this "
        f"process has Ray {ours[0]} and Python {ours[1]}: they must be the same."
    )


# in a process of its own: until its input ends, which it does with whoever holds the other end,
# then the processes named by id and start time
ENDING = """
import os, sys
sys.stdin.read()
for named in sys.argv[1:]:
    pid, start = named.split(":")
    try:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[19] == start:
                os.kill(int(pid), 9)
    except OSError:
        pass
"""
PARENT, START = 1, 19  # fields of /proc/PID/stat behind the name


def fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, behind the name; none where there is no such process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


def children(parent: int) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        if fields(int(name))[PARENT : PARENT + 1] == [str(parent)]:
            yield int(name)


class Ending:
    """Ends processes when this one has ended, however it did, or when `now` is called."""

    def __init__(self, pids: Iterator[int]) -> None:
        named = [f"{pid}:{stat[START]}" for pid in pids if (stat := fields(pid))]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ENDING, *named],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def now(self) -> None:
        self.process.communicate()


def ending_with_us(raylet: int) -> Ending | None:
    """The agents of a raylet; None where there is no /proc to find them by."""
    return Ending(children(raylet)) if sys.platform == "linux" else None
