"""Clusters that cannot be joined: one sentence, within ten seconds."""

import signal
import socket
import sys

import pytest
import ray

from tenfold.cli.main import main
from tenfold.core import ray_cluster
from tenfold.core.errors import ActorFault, UserError


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nonsense", "address = nonsense is not host:port, such as 10.0.0.5:6379."),
        ("host:99999", "address = host:99999 is not host:port"),
        ("ray://head:10001", "address = ray://head:10001 is one for Ray's client"),
        ("127.0.0.1:1", "No Ray cluster answers at 127.0.0.1:1 ([Errno 111] Connection refused)"),
    ],
)
def test_an_address_where_no_cluster_is_gets_a_sentence(address: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        ray_cluster.connect(address)
    assert str(error.value).startswith(sentence)
    assert not ray_cluster.state["users"]


def test_somebody_else_who_listens_there_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ray_cluster.REACH + ray_cluster.ANSWER < 10
    monkeypatch.setattr(ray_cluster, "ANSWER", 1.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UserError, match="and does not answer as Ray does in 1 s"):
            ray_cluster.connect(f"127.0.0.1:{other.getsockname()[1]}")  # Ray waits without end


def test_a_busy_machine_that_imports_ray_slowly_is_no_fault_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = "import time; time.sleep(0.8); print(flush=True)"
    monkeypatch.setattr(ray_cluster, "PROBE", slow)
    monkeypatch.setattr(ray_cluster, "ANSWER", 0.5)
    ray_cluster.require_answer("127.0.0.1:6379")
    monkeypatch.setattr(ray_cluster, "PROBE", f"{slow}; raise OSError('it is no Ray')")
    with pytest.raises(UserError, match=r"6379 does not answer as Ray does: OSError: it is no Ray"):
        ray_cluster.require_answer("127.0.0.1:6379")


@pytest.mark.parametrize("what", ["--actors 2", "--seeds 2"])
def test_a_run_on_an_unreachable_cluster_ends_with_that_sentence_and_leaves_no_folder(
    what: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"train dqn --env CartPole-v1 --where ray {what} --address 127.0.0.1:1 --out run"
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("tenfold: No Ray cluster answers at 127.0.0.1:1") and said[-1] == "\n"
    assert said.count("\n") == 1 and not (tmp_path / "run").exists()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"not installed: pip install 'tenfold\[ray\]'"):
        ray_cluster.connect()


def test_versions_that_differ_are_named() -> None:
    words = "Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.10.1 "
    words += "This process on node 10.0.0.1 was started with: Ray: 2.60.0 Python: 3.11.7"
    assert ray_cluster.mismatch("10.0.0.5:6379", words) == (
        "The Ray cluster at 10.0.0.5:6379 has Ray 2.9.0 and Python 3.10.1, and this process has "
        "Ray 2.60.0 and Python 3.11.7: they must be the same."
    )
    assert ray_cluster.mismatch("10.0.0.5:6379", "something else") == ""
    own = ray_cluster.versions()
    assert ray_cluster.differing("10.0.0.7", own) == ""
    assert ray_cluster.differing("10.0.0.7", own | {"torch": "1.0"}) == (
        f"node 10.0.0.7 has torch 1.0 and not {own['torch']}: numbers may differ in their last bits"
    )
    with pytest.raises(UserError, match=r"The node 10\.0\.0\.7 has tenfold 0\.0\.1, and this"):
        ray_cluster.differing("10.0.0.7", own | {"tenfold": "0.0.1"})


def test_a_head_that_is_gone_is_an_error_after_a_while_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = ray_cluster.Head.__new__(ray_cluster.Head)
    head.address, head.looked, head.last_answer = "127.0.0.1:1", 0.0, 0.0
    now = 0.0
    monkeypatch.setattr(ray_cluster, "monotonic", lambda: now)
    while now < head.most:
        head.require()
        now += head.pause
    assert head.most + head.pause + ray_cluster.REACH < 60  # when Ray ends this process
    now += head.pause
    with pytest.raises(ActorFault, match=r"head of the Ray cluster at 127\.0\.0\.1:1 has not ans"):
        head.require()


@pytest.mark.parametrize("address", ["", "127.0.0.1:6379"])
def test_ray_takes_no_signal_from_us(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray does about SIGTERM would end a run unsaved, with SystemExit."""

    def init(**options: object) -> None:
        ray._private.utils.set_sigterm_handler(lambda number, frame: sys.exit(number))

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_cluster, "require_answer", lambda address: None)
    monkeypatch.setattr(socket, "create_connection", lambda *given: socket.socket())
    before = signal.getsignal(signal.SIGTERM)
    if address:
        ray_cluster.join(ray, address)
    else:
        ray_cluster.start(ray, 1)
    assert signal.getsignal(signal.SIGTERM) is before
    init()  # what it does elsewhere is its own affair
    assert signal.getsignal(signal.SIGTERM) is not before
    signal.signal(signal.SIGTERM, before)
