"""The worker of docs/guides/deployment.md, started before its hub, as a supervisor does."""

from __future__ import annotations

import signal
from pathlib import Path

from link_processes import Program, Programs
from page_programs import write_program


def terminate(program: Program) -> int:
    program.signal(signal.SIGTERM)
    return program.ended()


def test_a_worker_waits_for_its_hub_and_joins_it_again_after_a_restart(started: Programs, tmp_path: Path) -> None:
    url = started.url("unix")
    worker = started.run(str(write_program("deployment.md", "worker.py", tmp_path)), env={"TIDEWIRE_URL": url})
    worker.expect_log(f"nobody is at {url} yet: waiting for it, for up to 60 s")
    for joined in ("has joined the hub 'hub' at", "has joined the hub 'hub' again"):
        hub, _ = started.hub(url, "--name", "hub", "--log-level", "info")
        worker.expect_log(joined)
        hub.expect_log("serves svc.pricing.")
        call = started.run("-m", "tidewire", "call", "--url", url, "--wait", "20", "pricing.quote", "AB")
        assert (call.line(), call.ended()) == ("5.0", 0)
        assert terminate(hub) == 0
        worker.expect_log("the link is lost")
    assert terminate(worker) == 0


def test_a_worker_without_a_hub_ends_by_signal_or_at_its_timeout(started: Programs, tmp_path: Path) -> None:
    program, url = str(write_program("deployment.md", "worker.py", tmp_path)), started.url("unix")
    waiting = started.run(program, env={"TIDEWIRE_URL": url})
    waiting.expect_log("waiting for it")
    assert terminate(waiting) == 0
    late = started.run(program, env={"TIDEWIRE_URL": url, "HUB_WAIT": "0.1"})
    late.expect_log("tidewire.errors.LinkLost: url: there is no hub at")
    assert late.ended() == 1
