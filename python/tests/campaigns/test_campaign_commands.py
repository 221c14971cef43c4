"""The commands `tidewire campaign ...` and `tidewire worker`: what they say, what they refuse, how
they end.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from campaign_support import SUPPORT
from command_support import run_all

PI = "campaign_functions:pi"


def tidewire(*arguments: str, folder: Path = SUPPORT) -> subprocess.CompletedProcess[str]:
    return run_all(arguments, folder=folder)[0]


def answer(*arguments: str) -> Any:
    ran = tidewire(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("commands")
    store = f"sqlite:///{folder}/farm.db"
    page = folder / "page.html"
    options = ("--runs", "3000", "--seed", "7", "--workers", "2", "--name", "pi", "--page", str(page))
    report = answer("campaign", "run", PI, *options, "--store", store)
    assert (report["state"], report["done"], report["runs"]) == ("done", 3_000, 3_000)
    assert report["stages"]["run"] > 0 and report["limiting"]
    assert "<svg" in page.read_text()
    return store


def test_a_stored_campaign_can_be_listed_shown_and_proven(store: str) -> None:
    [one] = answer("campaign", "list", "--store", store)
    assert (one["name"], one["state"], one["done"]) == ("pi", "done", 3_000)
    shown = answer("campaign", "show", "pi", "--verify", "--store", store)
    assert shown["verified"] is True and shown["digest_of_rows"] == shown["digest"]
    assert shown["columns"] == {"hits": "integer", "area": "float"} and shown["function"] == PI
    assert [event["after"] for event in shown["events"]][-1] == "done"
    text = tidewire("campaign", "show", "1", "--verify", "--store", store)
    assert text.returncode == 0 and "the stored rows have this digest" in text.stdout
    assert "pi" in tidewire("campaign", "list", "--store", store).stdout


def test_rows_that_were_changed_are_found(store: str, tmp_path: Path) -> None:
    import sqlite3

    place = tmp_path / "farm.db"
    with sqlite3.connect(store.removeprefix("sqlite:///")) as source, sqlite3.connect(place) as copy:
        source.backup(copy)
        copy.execute(f"UPDATE {tw.open_campaign(store, 'pi').table} SET hits = hits + 1 WHERE run = 77")
    ran = tidewire("campaign", "show", "pi", "--verify", "--store", f"sqlite:///{place}")
    assert ran.returncode == 1
    assert "THE STORED ROWS HAVE ANOTHER" in ran.stdout


def test_summary_report_errors_and_exports(store: str, tmp_path: Path) -> None:
    hits, area = answer("campaign", "summary", "pi", "--store", store)
    assert (hits["column"], area["column"], hits["count"]) == ("hits", "area", 3_000)
    assert 3.0 < area["mean"] < 3.3
    assert answer("campaign", "report", "pi", "--out", str(tmp_path / "r.html"), "--store", store)["done"] == 3_000
    assert "limiting stage" in tidewire("campaign", "report", "pi", "--store", store).stdout
    assert answer("campaign", "errors", "pi", "--store", store) == []
    assert answer("campaign", "export", "pi", str(tmp_path / "pi.csv"), "--store", store)["rows"] == 3_000
    lines = tidewire("campaign", "export", "pi", "-", "--store", store).stdout.splitlines()
    assert lines == (tmp_path / "pi.csv").read_text().splitlines() and len(lines) == 3_001
    refused = tidewire("campaign", "export", "pi", "pi.xlsx", "--store", store)
    assert refused.returncode == 2 and "let it end in .csv or .parquet" in refused.stderr


def test_failed_runs_are_shown_and_a_campaign_of_them_ends_with_1(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/farm.db"
    limits = ("--attempts", "1", "--failed-max", "3", "--workers", "1", "--store", store)
    ran = tidewire("campaign", "run", "campaign_functions:raises", "--runs", "50", *limits)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    [first, *_] = answer("campaign", "errors", "1", "--store", store)
    assert first["kind"] == "error" and first["attempts"] == 1
    assert "Traceback" in tidewire("campaign", "errors", "1", "--tracebacks", "--store", store).stdout


def test_a_sweep_with_parameters_and_a_seed_of_text(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/farm.db"
    sweep = ("--sweep", "scale=[1, 2.5]", "--sweep", 'kind=["a", "b"]', "--param", "label=plain", "--seed", "night")
    answer("campaign", "run", "campaign_functions:measured", "--runs", "40", *sweep, "--workers", "1", "--store", store)
    found = answer("campaign", "summary", "1", "--by", "scale", "--by", "kind", "--store", store)
    assert {(one["scale"], one["kind"]) for one in found} == {(1, "a"), (1, "b"), (2.5, "a"), (2.5, "b")}
    campaign = tw.open_campaign(store, 1)
    assert campaign.seed == "night" and campaign.parameters(3) == {"label": "plain", "scale": 2.5, "kind": "b"}


def test_a_campaign_is_paused_resumed_and_cancelled(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/farm.db"
    tw.campaign(PI, runs=10, name="later", store=store).resume()
    assert answer("campaign", "pause", "later", "--reason", "lunch", "--store", store)["state"] == "paused"
    assert answer("campaign", "show", "later", "--store", store)["reason"] == "lunch"
    assert answer("campaign", "resume", "later", "--store", store)["state"] == "running"
    assert answer("campaign", "cancel", "later", "--store", store)["state"] == "cancelled"
    refused = tidewire("campaign", "resume", "later", "--store", store)
    assert refused.returncode == 1 and "cancelled" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", PI, "--workers", "1"), 2, "--runs: is missing"),
        (("run", "pi", "--runs", "5"), 2, "has no colon"),
        (("run", PI, "--runs", "5", "--param", "steps"), 2, "write NAME=VALUE"),
        (("run", PI, "--runs", "5", "--sweep", "steps=3"), 2, "write a JSON list"),
        (("run", PI, "--runs", "5", "--until", "area"), 2, "write COLUMN:HALF_WIDTH"),
        (("run", PI, "--runs", "5", "--workers", "-1"), 2, "workers"),
        (("run", "no_module:f", "--runs", "5"), 2, "no_module"),
        (("show", "none"), 1, "none"),
        (("list", "--store", "sqlite:///missing.db"), 3, "missing.db"),
        (("list", "--store", "mongo://x"), 2, "mongo"),
    ],
)
def test_wrong_usage_is_reported_with_the_exit_code(
    store: str, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    place = () if "--store" in arguments else ("--store", store)
    ran = tidewire("campaign", *arguments, *place, "--json", folder=tmp_path if "list" in arguments else SUPPORT)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert said in json.loads(ran.stderr.splitlines()[-1])["error"]["message"]
    assert list(tmp_path.iterdir()) == [], "a mistyped store makes no file"
    assert [campaign.name for campaign in tw.campaigns(store)] == ["pi"], "nothing half done is stored"


def test_the_store_of_the_environment_is_that_of_campaigns_and_no_key_of_nodes(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEWIRE_STORE", store)
    assert [one["name"] for one in answer("campaign", "list")] == ["pi"]
    monkeypatch.delenv("TIDEWIRE_STORE")
    monkeypatch.setenv("TIDEWIRE_URL", store)
    assert [one["name"] for one in answer("campaign", "list")] == ["pi"]
    for place in (store, store.removeprefix("sqlite:///")):
        assert [one["name"] for one in answer("campaign", "list", "--url", place)] == ["pi"]
    with tw.Node() as node:
        assert node.sync.ask(node.spawn(lambda n: n + 1), 1) == 2
