"""The check of the tree's shape counts what its rules name, and no count may rise."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tools"))

check_shape: Any = import_module("check_shape")
maxima: Any = import_module("maxima")

LINK = "crates/tidewire-link/src/"


def counts_of(files: dict[str, str]) -> dict[tuple[str, str], int]:
    """The counts of a small tree under the rules of this one, without its lines."""
    rules = tomllib.loads((ROOT / "tools/shape.toml").read_text(encoding="utf-8"))
    counted = check_shape.measure(files, rules)
    return {key: found.count for key, found in counted.items() if found.count and key[0] != "lines"}


def test_files_of_a_crate_that_use_each_other_are_a_circle() -> None:
    files = {
        f"{LINK}lib.rs": "mod hub;\nmod session;\n",
        f"{LINK}hub/mod.rs": "mod entry;\nuse crate::{lock::Lock, session::{self, Session as S}};\n",
        f"{LINK}hub/entry.rs": "use super::Hub;\n",
        f"{LINK}session.rs": "fn entry() { crate::hub::entry::take() }\n",
        f"{LINK}lock.rs": "// use crate::session;\npub(in crate::hub) struct Lock;\n"
        "#[cfg(test)]\nmod tests {\n    use crate::session;\n}\n",
    }
    assert counts_of(files) == {("import circle", LINK[:-1]): 3}


def test_modules_that_import_each_other_are_a_circle_but_for_types() -> None:
    files = {
        "python/tidewire/__init__.py": "from tidewire.typed import Typed\n",
        "python/tidewire/node.py": "from tidewire import link\n",
        "python/tidewire/link/__init__.py": "from .hub import Hub\n",
        "python/tidewire/link/hub.py": "def hub():\n    from ..node import Node\n",
        "python/tidewire/typed.py": "from tidewire import node\n",
        "python/tidewire/other.py": "if TYPE_CHECKING:\n    from tidewire import typed\nimport tidewire.typed\n",
    }
    assert counts_of(files) == {("import circle", "python/tidewire"): 3}


@pytest.mark.parametrize(
    ("path", "code", "key"),
    [
        (f"{LINK}a.rs", 'format!("svc.{name}.*")', ("spells subjects", "product")),
        ("js/packages/client/src/a.ts", "call(`svc.${name}`)", ("spells subjects", "product")),
        ("crates/tidewire-proto/src/a.rs", 'format!("svc.{name}.*")', None),
        ("python/tidewire/a.py", "raise E('agent.sync would block this loop')", None),
        ("python/tidewire/a.py", '"""Subjects: \'svc.{name}\', after a fork."""', None),
        ("python/tidewire/a.py", "os.register_at_fork(before=close)", ("names forks", "product")),
        ("python/tests/a.py", "os.fork()", None),
        ("python/src/a.rs", "use tidewire_link::Hub;", ("names tidewire_link", "python/src")),
        (f"{LINK}a.rs", "use tidewire_core::Link;", None),
        (f"{LINK}a.rs", "//\n" * 601, ("long files", "product")),
        (f"{LINK}tests.rs", "//\n" * 601, ("long files", "tests")),
    ],
)
def test_each_rule_counts_its_breach_alone(path: str, code: str, key: tuple[str, str] | None) -> None:
    assert counts_of({path: code}) == ({key: 1} if key else {})


def test_a_folder_with_more_than_25_files_is_flat() -> None:
    files = {f"python/tidewire/flat/a{number}.py": "" for number in range(26)}
    assert counts_of(files) == {("flat folders", "product"): 1}


def test_a_count_may_fall_and_never_rise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "tools/maxima.toml"
    table.parent.mkdir()
    table.write_text('# Kept.\n\n["forks"]\n"product" = 2\n')

    def compare(count: int, *, lower: bool = False) -> tuple[int, str]:
        found = {("forks", "product"): maxima.Measure(count, [f"{number}.rs" for number in range(count)])}
        return maxima.compare(found, table, {"forks": "leave forks alone"}, lower=lower), capsys.readouterr().out

    assert compare(2)[0] == 0
    for lower in (False, True):
        status, said = compare(3, lower=lower)
        assert status == 1 and "product: forks: 3, at most 2 allowed: leave forks alone\n  0.rs\n" in said
    status, said = compare(1)
    assert status == 1 and "lower the maximum to 1" in said
    assert compare(1, lower=True)[0] == 0
    assert table.read_text() == '# Kept.\n\n["forks"]\n"product" = 1\n'
    assert compare(0)[0] == 1
