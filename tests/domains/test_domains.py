"""What a domain promises, by the seven that are shipped and by one that is not."""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core import registry
from tenfold.core.errors import UserError
from tenfold.core.registry import NOBODYS, Domain, domain_of, domains
from tenfold.envs.making import known_environments, resolve_paths

OWNED = {
    "tenfold/Assign-v0": "tasks",
    "tenfold/Catch-v0": "tasks",
    "pettingzoo/a.b": "pettingzoo",
    "tenfold/Atari-v0(game=breakout)": "atari",
    "tenfold/JobShop-v0": "jobshop",
    "tenfold/JobShop-v0 (instance=la01)": "jobshop",
    "tenfold/Durotaxis-v0(mode=nodes)": "durotaxis",
    "tenfold/TreasureSmall-v0(turns=3)": "treasure",
    "tenfold/VanDerPol-v0(size=5)": "dynamics",
    "tenfold/Field-v0": "dynamics",
    "tenfold/Recording-v0(file=a.npz)": "dynamics",
}


@pytest.mark.parametrize(("env", "name"), OWNED.items())
def test_an_environment_belongs_to_one_domain(env: str, name: str) -> None:
    assert domain_of(env).name == name
    assert [domain.name for domain in domains() if domain.owns(env)] == [name]


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "tenfold/CartPole-v1", "own/Mine", "no_such:Mine-v0"]
)
def test_other_environments_are_nobodys_and_nothing_is_said_of_them(env: str) -> None:
    assert domain_of(env) is NOBODYS and resolve_paths(env) == env
    assert NOBODYS.environments(env, 1, 0, True, 0) is None
    assert NOBODYS.deploy(env, {}) == (env, {}) and NOBODYS.evaluate(None) == {}


def test_what_domains_register_is_known_and_those_that_gymnasium_does_not_know_as_well() -> None:
    named = {ident for domain in domains() for ident in (*domain.registered, *domain.ids())}
    assert named <= set(known_environments())
    assert len([ident for ident in named if ident.startswith("tenfold/")]) == 15


def test_the_domains_are_known_without_anything_heavy() -> None:
    code = (
        "import sys\nfrom tenfold.core.registry import domain_of\n"
        "print(domain_of('tenfold/Durotaxis-v0').name)\n"
        "print({'gymnasium', 'numpy', 'torch', 'numba'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:2] == ["durotaxis", "set()"]


class Carts(Domain):
    """Of one's own: CartPole, which can be tried with shorter episodes."""

    name, title, flags = "carts", "carts", ("shorter", "longer")

    def owns(self, env: str) -> bool:
        return env.startswith("CartPole-v1")

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        for flag in self.flags:
            parser.add_argument(f"--{flag}")

    def deploy(self, env: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return (f"{env}(max_episode_steps={options['shorter']})" if options else env), {}

    def evaluate(self, played: Any) -> dict[str, Any]:
        untrained = played.play(played.untrained(), episodes=1)
        return {
            "balance": [max(played.score.lengths), played.step, played.checkpoint],
            "untrained": untrained.lengths,
            "before": played.first.get("balance"),
        }

    def film(self, played: Any) -> Path:
        return played.path / "cart.gif"

    def lines(self, found: dict[str, Any]) -> list[str]:
        return [f"  balance  {found['balance'][0]}"]

    def member_words(self, found: dict[str, Any]) -> str:
        return f"   balance {found['balance'][0]}"

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        return [f"  balances {[found['balance'][0] for found in members.values()]}"]


@pytest.fixture
def carts(monkeypatch: pytest.MonkeyPatch) -> Carts:
    own, found = Carts(), registry.discover
    monkeypatch.setattr(
        registry, "discover", lambda what: (own, *found(what)) if what == "DOMAINS" else found(what)
    )
    return own


def test_a_domain_of_ones_own_adds_to_what_tenfold_eval_finds_and_says(
    carts: Carts, finished_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(finished_once)
    assert main(["eval", path, "--episodes", "3", "--shorter", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["env"] == "CartPole-v1(max_episode_steps=5)" and found["lengths"] == [5, 5, 5]
    assert found["balance"] == [5, 600, "last"] and found["untrained"] == [5]
    assert found["before"] is None and "best" not in found  # elsewhere nothing can be compared
    assert found["video"].endswith("cart.gif") and found["frames"] == 6
    assert main(["eval", path, "--episodes", "3", "--shorter", "5"]) == 0
    assert "\n  balance  5\n" in capsys.readouterr().out
    assert ten.evaluate(path, 2, shorter=4).lengths == [4, 4]


def test_what_a_domain_says_of_many_seeds_stands_behind_each_and_below_all(
    carts: Carts, tmp_path: Path, small_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ten.train_seeds(small_run(steps=100, eval_every=0), 2, tmp_path / "many", jobs=1, quiet=True)
    capsys.readouterr()
    command = ["eval", str(tmp_path / "many"), "--episodes", "2", "--shorter", "3"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.count("   balance 3\n") == 2 and said.endswith("\n  balances [3, 3]\n")
    assert main([*command, "--json"]) == 0
    members = json.loads(capsys.readouterr().out)["members"]
    assert [found["before"] for found in members] == [None, [3, 100, "last"]]


def test_a_flag_of_another_domain_is_refused_by_name(
    carts: Carts, finished_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(finished_once), "--nodes", "3"]) == 2
    assert (
        "--substrate, --size, --nodes and --deterministic are for colonies, and this run is on "
        "CartPole-v1, played by" in capsys.readouterr().err
    )
    with pytest.raises(UserError, match="are for colonies"):
        ten.evaluate(finished_once, deterministic=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'heavier'"):
        ten.evaluate(finished_once, heavier=True)
