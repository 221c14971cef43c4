"""The pinned list of advisories for `make deny`, which needs no network.

`tools/advisories.toml` has the facts of RustSec's database: ids, crates and versions. This program
makes a database of them that cargo-deny reads from this machine: `--database DIR`. `--pin CLONE`
writes the list anew from a clone of https://github.com/rustsec/advisory-db.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
SOURCE = "https://github.com/rustsec/advisory-db"
FETCHED = "advisory-db-3157b0e258782691"
"""The folder in which cargo-deny has the database of that address once it has fetched it."""
HEAD = "# Written by tools/advisories.py from RustSec's database. One advisory a line: facts alone.\n\n"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=tidewire", "-c", "user.email=tidewire@localhost")
    return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True).stdout


def pin(clone: Path) -> str:
    """Return the list from a clone of the database."""
    names = git(clone, "ls-tree", "-r", "--name-only", "HEAD", "crates").split()
    found = [read(git(clone, "show", f"HEAD:{name}")) for name in names if name.endswith(".md")]
    commit, date = git(clone, "log", "-1", "--format=%H %cs").split()
    rows = sorted(row for row in found if row)
    return f'{HEAD}commit = "{commit}"\ndate = {date}\n\n[advisories]\n' + "".join(rows)


def read(text: str) -> str:
    """Return the line of an advisory; empty if it was withdrawn."""
    parsed = tomllib.loads(text.split("```toml", 1)[1].split("```", 1)[0])
    advisory, versions = parsed["advisory"], parsed["versions"]
    if "withdrawn" in advisory:
        return ""
    facts = {"crate": advisory["package"], "date": str(advisory["date"]), "kind": advisory.get("informational")}
    facts |= {name: versions.get(name) for name in ("patched", "unaffected")}
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in facts.items() if value)
    return f"{advisory['id']} = {{ {pairs} }}\n"


def advisory(name: str, facts: dict[str, Any]) -> str:
    """Return a page of the database with the facts of one advisory."""
    kind = f"informational = {json.dumps(facts['kind'])}\n" if "kind" in facts else ""
    versions = "".join(f"{key} = {json.dumps(facts.get(key, []))}\n" for key in ("patched", "unaffected"))
    return (
        f'```toml\n[advisory]\nid = "{name}"\npackage = "{facts["crate"]}"\ndate = "{facts["date"]}"\n{kind}\n'
        f"[versions]\n{versions}```\n\n# {name} of {facts['crate']}\n\nSee https://rustsec.org/advisories/{name}.html\n"
    )


def database(folder: Path) -> None:
    """Write the database, and beside it the configuration of cargo-deny that reads it."""
    pinned, fetched = tomllib.loads(LIST.read_text(encoding="utf-8")), folder / FETCHED
    shutil.rmtree(folder, ignore_errors=True)
    for name, facts in pinned["advisories"].items():
        page = fetched / "crates" / facts["crate"] / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(advisory(name, facts), encoding="utf-8")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", f"advisories of {pinned['date']}")):
        git(fetched, *words)
    places = f"db-path = {json.dumps(str(folder))}\ndb-urls = [{json.dumps(SOURCE)}]"
    settings = (ROOT / "deny.toml").read_text(encoding="utf-8").replace("[advisories]", f"[advisories]\n{places}")
    (folder / "deny.toml").write_text(settings, encoding="utf-8")
    print(f"{len(pinned['advisories'])} advisories, as of {pinned['date']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pin", type=Path, metavar="CLONE")
    what.add_argument("--database", type=Path, metavar="DIR")
    given = parser.parse_args()
    if given.pin is not None:
        LIST.write_text(pin(given.pin), encoding="utf-8")
    else:
        database(given.database.resolve())


if __name__ == "__main__":
    main()
