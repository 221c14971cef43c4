"""The command `tidewire`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import tidewire as tw
from command_support import run_all
from home_support import nats_server

PACKAGE = Path(__file__).resolve().parents[2]


def tidewire(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_all(arguments, **environment)[0]


def test_the_version_is_the_packages() -> None:
    assert tidewire("--version").stdout == f"tidewire {tw.__version__}\n"


def test_doctor_finds_nothing_on_a_sound_installation() -> None:
    ran = tidewire("doctor", "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["problems"]) == (0, []), ran.stdout
    assert report["packages"]["numpy"] and "rich" in report["packages"]
    assert set(report["checks"]) == {"ask", "10,000 messages in order", "timer", "coroutines"}
    assert "mailbox_capacity = 10000" in report["configuration"]


def test_doctor_names_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mailbox_capacityy = 5\n")
    ran = tidewire("doctor", "--config", str(file), TIDEWIRE_SPIN_US="-1")
    assert ran.returncode == 1
    words = " ".join(ran.stdout.split())
    assert "did you mean mailbox_capacity?" in words
    assert "TIDEWIRE_SPIN_US" in words


def test_doctor_tries_a_folder_a_hub_nats_and_a_store(tmp_path: Path) -> None:
    data, store, gone = tmp_path / "data", f"sqlite:///{tmp_path}/farm.db", "tide://127.0.0.1:1"
    tw.campaign("campaign_functions:pi", runs=5, store=store)
    with tw.Node(name="bare") as bare, tw.Node(data=data) as hub, nats_server() as nats:
        hub.sync.stream("orders", subjects=["orders.>"]).publish("orders.a", 1)
        url, bare_url = (node.listen("tide://127.0.0.1:0").url for node in (hub, bare))
        ended = run_all(
            *(("doctor", target, "--json") for target in (url, bare_url, nats, str(tmp_path / "farm.db"))),
            ("doctor", url),
        )
    ended += run_all(("doctor", str(data), "--json"))
    assert [one.returncode for one in ended] == [0] * 6, ended
    assert ended[4].stdout.startswith(f"hub {url}: it works\n")
    at_hub, at_bare, at_nats, at_store, at_folder = (json.loads(ended[n].stdout) for n in (0, 1, 2, 3, 5))
    assert [one["kind"] for one in (at_hub, at_nats, at_store, at_folder)] == ["hub", "nats", "store", "folder"]
    assert (at_hub["streams"], at_nats["streams"], at_store["campaigns"]) == (1, 0, 1)
    assert "home_unavailable" in at_bare["streams"] and at_folder["records"] > 0
    [log] = (data / "streams").glob("orders.*/*.log")
    log.write_bytes(log.read_bytes().replace(b"orders.a", b"orders.b"))
    damaged, *others = run_all(
        *(("doctor", target) for target in (str(data), str(tmp_path / "missing"), gone, "x://y"))
    )
    assert damaged.stdout.startswith(f"folder {data}: needs repair\n") and "tidewire log salvage" in damaged.stdout
    assert [one.returncode for one in (damaged, *others)] == [1, 1, 3, 2]
    for one, code in zip(others, ("not_found", "link_lost", "invalid_argument"), strict=True):
        assert one.stderr.startswith(f"{code}: "), one.stderr


def test_an_unknown_command_is_wrong_usage() -> None:
    ran = tidewire("fly")
    assert ran.returncode == 2
    assert "fly" in ran.stderr


def test_help_of_benchmarks_shows_examples() -> None:
    assert "tidewire bench engine --only A1,A2" in tidewire("bench", "engine", "--help").stdout


def test_the_command_without_a_checkout_says_where_benchmarks_are(tmp_path: Path) -> None:
    ran = tidewire("bench", "engine", "--smoke", TIDEWIRE_BENCH=str(tmp_path))
    assert ran.returncode == 2
    assert "a part of the repository, not of the installed package" in ran.stderr
    assert "TIDEWIRE_BENCH" in ran.stderr


def without_typer(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; sys.modules['typer'] = None; sys.argv[0] = 'tidewire'; from tidewire.__main__ import main; main()"
    )
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=PACKAGE)


def test_without_its_libraries_a_command_names_them_and_no_package_of_the_index_called_tidewire() -> None:
    for arguments in (["doctor"], ["stream", "ls"], ["--help"], []):
        ran = without_typer(*arguments)
        assert (ran.returncode, ran.stdout) == (2, ""), ran
        wanted = re.findall(r"'([^']+)'", ran.stderr)
        assert f"{sys.executable} -m pip install 'typer" in ran.stderr
        # The extra of the package has the same.
        [extra] = re.findall(r"^cli = \[(.*)\]$", (PACKAGE / "pyproject.toml").read_text(), re.MULTILINE)
        assert wanted == re.findall(r'"([^"]+)"', extra)


def test_without_its_libraries_the_version_is_still_told() -> None:
    ran = without_typer("--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"tidewire {tw.__version__}\n", "")


def test_an_installation_needs_a_place_that_is_free(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    for prefix, told in ((None, "PREFIX is missing"), (tmp_path, "has other files: name a new folder")):
        command = ["make", "install", *([] if prefix is None else [f"PREFIX={prefix}"])]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=PACKAGE.parent)
        assert ran.returncode != 0 and told in ran.stdout, ran
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
