"""The command `tidewire bench rpc`: what it runs, what it says, what it refuses, and what it leaves
behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_support import PACKAGE, bench
from link_processes import ends
from tidewire_bench.programs import RunFailed
from tidewire_bench.rpc_run import Roles, figures_of

PROGRAMS = PACKAGE.parent / "bench" / "python"
sys.path.append(str(PROGRAMS))


SOCKETS = (sys.executable, str(PROGRAMS / "rpc_sockets.py"))
DONE = '{"workload": "small-seq", "figures": {"rate": 1.0}}'


SPOILING = f"""
import sys
sys.path.append({str(PROGRAMS)!r})
import rpc_roles, rpc_sockets

class Spoiling(rpc_roles.Service):
    def echo(self, data):
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]

rpc_roles.Service = Spoiling
rpc_roles.run(rpc_roles.Contender(rpc_sockets.serve, rpc_sockets.connect))
"""


def test_a_smoke_run_has_rates_times_costs_and_pictures(tmp_path: Path) -> None:
    arguments = ("--only", "small,beside,stream", "--peers", "asyncio socket", "--out", str(tmp_path))
    ran = bench("rpc", "--smoke", "--json", *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["failures"] == []
    assert json.loads((tmp_path / "bench-rpc.json").read_text()) == report
    names = ["small-seq-python", "small-conc-python", "beside-python", "stream-python"]
    assert [case["id"] for case in report["cases"]] == names
    for case in report["cases"]:
        assert {one["form"] for one in case["results"]} == {"tcp", "unix"}, case["id"]
        for one in case["results"]:
            figures = one["figures"]
            assert figures["rate"] > 0
            assert figures["cpu_us_caller"] > 0
            assert figures["peak_mb_service"] > 5
            assert "cpu_us_hub" not in figures
            if case["id"] != "stream-python":
                assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert "asyncio socket" in (tmp_path / "bench-rpc-python.svg").read_text()


def test_every_role_is_ended_when_its_run_is_over(tmp_path: Path) -> None:
    hub = script(tmp_path / "hub.py", lasting_server(tmp_path / "pids"))
    service = script(tmp_path / "service.py", lasting_server(tmp_path / "pids"))
    caller = script(tmp_path / "caller.py", f"print('{DONE}')")
    assert figures_of(Roles(service, caller, hub), (), 20) == [{"rate": 1.0}]
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4
    for pid in pids:
        assert ends(pid), pid


def test_a_service_that_changes_a_payload_is_found_out(tmp_path: Path) -> None:
    service = script(tmp_path / "service.py", SPOILING, "service")
    with pytest.raises(RunFailed, match="caller: AssertionError: small-seq: a reply differs from its request"):
        figures_of(Roles(service, (*SOCKETS, "caller")), ("--workload", "small-seq", "--count", "20"), 20)


def test_output_of_a_failing_role_is_in_the_failure(tmp_path: Path) -> None:
    broken = script(tmp_path / "broken.py", "raise OSError('the port is taken')")
    with pytest.raises(RunFailed, match="service: OSError: the port is taken"):
        figures_of(Roles(broken, (*SOCKETS, "caller")), (), 20)
    with pytest.raises(RunFailed, match="hub: OSError: the port is taken"):
        figures_of(Roles((*SOCKETS, "service"), (*SOCKETS, "caller"), broken), (), 20)


def test_a_caller_that_hangs_fails_its_run(tmp_path: Path) -> None:
    hanging = script(tmp_path / "caller.py", "import signal\nwhile True: signal.pause()")
    with pytest.raises(RunFailed, match="the caller was not done after 1 s"):
        figures_of(Roles((*SOCKETS, "service"), hanging), (), 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "tiny"), "--only tiny: not one of small-seq-python"),
        (("--peers", "smoke signals"), "--peers smoke signals: not one of tidewire, nats-py"),
        (("--repeat", "0"), "argument --repeat: 0: must be 1 or more"),
        (("--out", __file__), f"--out {__file__}: File exists: name a folder"),
    ],
    ids=["only", "peers", "repeat", "out"],
)
def test_wrong_usage_is_refused_before_anything_runs(arguments: tuple[str, ...], words: str) -> None:
    ran = bench("rpc", "--smoke", *arguments)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert ran.stdout == ""


def script(path: Path, source: str, *arguments: str) -> tuple[str, ...]:
    path.write_text(source)
    return (sys.executable, str(path), *arguments)


def lasting_server(pids: Path) -> str:
    """A role that starts a program which would outlive it."""
    return f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
with open({str(pids)!r}, "a") as file:
    file.write(f"{{os.getpid()}} {{child.pid}} ")
print('{{"url": "x", "pid": 1}}', flush=True)
sys.stdin.read()
"""
