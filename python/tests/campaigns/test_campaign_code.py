"""Where the function of a campaign comes from: modules, scripts, notebooks; and how workers know
that their code is the same.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import plan_of, program, running, sqlite_alone, until
from link_processes import Programs


def run_program(code: str, folder: Path, name: str = "program.py", **environment: str) -> tuple[int, str, str]:
    (folder / name).write_text(code)
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment} or None,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


SCRIPT = """
from __future__ import annotations
from dataclasses import dataclass
import tidewire as tw
import helper

@dataclass
class Params:
    steps: int

@dataclass
class Outcome:
    hits: int

def simulate(run: tw.Run[Params]) -> Outcome:
    return Outcome(helper.add(run.params.steps, run.index))

{main}    campaign = tw.campaign(simulate, runs=10, params={{"steps": 7}}, name="pi", store="sqlite:///farm.db")
    report = campaign.run(workers=1)
    print(report.state, report.done, campaign.function, [row.hits for row in campaign.results()])
"""
GUARD = 'if __name__ == "__main__":\n'


def test_a_function_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def add(a, b): return a + b\n")
    for name, function in (
        ("farm.py", "farm:simulate"),
        ("my-farm.py", "__main__:simulate"),
        ("farm", "__main__:simulate"),
    ):
        code, out, err = run_program(SCRIPT.format(main=GUARD), tmp_path, name)
        assert (code, out) == (0, f"done 10 {function} {list(range(7, 17))}\n"), err
        assert err.count("\n") == 1
        (tmp_path / "farm.db").unlink()


@pytest.mark.parametrize("main", ["__main__", "farm"])
def test_a_function_of_a_package_that_is_the_program(tmp_path: Path, main: str) -> None:
    package = tmp_path / "plant"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def add(a, b): return a + b\n")
    script = SCRIPT.format(main=GUARD).replace("import helper", "from . import helper")
    (package / f"{main}.py").write_text(script)
    module = "plant" if main == "__main__" else "plant.farm"
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"done 10 plant.{main}:simulate {list(range(7, 17))}\n"), done.stderr


@pytest.mark.parametrize("name", ["farm.py", "my-farm.py", "farm"])
def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path: Path, name: str) -> None:
    (tmp_path / "helper.py").write_text("def add(a, b): return a + b\n")
    code, _, err = run_program(SCRIPT.format(main="if True:\n"), tmp_path, name)
    assert code == 1
    assert 'if __name__ == "__main__":' in err
    assert "put what starts\nthe campaign under a guard" in err


@pytest.mark.promise("P15.27")
def test_changed_code_is_refused_and_named_unless_it_is_accepted(tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("def add(a, b): return a + b\n")
    (tmp_path / "farm.py").write_text(SCRIPT.format(main=GUARD))
    start = 'import farm, tidewire as tw\nif __name__ == "__main__":\n    tw.campaign(farm.simulate, runs={}, params={{"steps": 7}}, name="pi", store="sqlite:///farm.db"{}).run(workers=1)\n'
    assert run_program(start.format(5, ""), tmp_path)[0] == 0
    helper.write_text("def add(a, b): return b + a\n")
    code, _, err = run_program(start.format(10, ""), tmp_path)
    assert (code, "module helper has changed" in err, "accept_code" in err) == (1, True, True)
    worker = "import tidewire as tw\nif __name__ == '__main__':\n    c = tw.open_campaign('sqlite:///farm.db', 'pi'); c.extend(5); c.run(workers=1{})\n"
    code, _, err = run_program(worker.format(""), tmp_path, "worker.py")
    assert (code, "CodeChanged" in err, "module helper has changed" in err) == (1, True, True)
    code, _, err = run_program(worker.format(", accept_code=True"), tmp_path, "worker.py")
    assert code == 0, err
    campaign = tw.open_campaign(f"sqlite:///{tmp_path}/farm.db", "pi")
    assert [event.reason for event in campaign.events() if "other code was accepted" in event.reason]


@sqlite_alone
def test_a_function_that_no_worker_can_import_travels_by_value(store: str) -> None:
    pytest.importorskip("cloudpickle")
    factor = 3
    campaign = tw.campaign(lambda run: run.index * factor, runs=4, store=store)
    assert campaign.function == "__main__:test_a_function_that_no_worker_can_import_travels_by_value.<locals>.<lambda>"
    campaign.run(workers=1, progress=False)
    assert [row.value for row in campaign.results()] == [0, 3, 6, 9]


@sqlite_alone
def test_a_function_that_can_not_travel_says_how_it_could(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(
        tw.InvalidArgument,
        match=r"no worker can import .*<lambda>: define it at the top level of a module, or pip install",
    ):
        tw.campaign(lambda run: 1, runs=4, store=store)

    async def later(run: tw.Run) -> int:
        return 1

    with pytest.raises(tw.InvalidArgument, match="later is a coroutine function: give a plain one"):
        tw.campaign(later, runs=4, store=store)


@pytest.mark.promise("P15.27")
def test_a_function_that_fails_to_load_in_a_worker_is_no_endless_loop(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import os\nif 'HERE' not in os.environ: raise ImportError('no licence')\ndef simulate(run): return 1\n"
    )
    start = (
        "import os; os.environ['HERE'] = ''\nimport broken, tidewire as tw\ndel os.environ['HERE']\n"
        "if __name__ == '__main__':\n    tw.campaign(broken.simulate, runs=4, store='sqlite:///farm.db').run(workers=2)\n"
    )
    code, _, err = run_program(start, tmp_path)
    assert code == 1
    assert "CampaignError: a worker can't load the function: ImportError: no licence" in err
    assert 'File "' in err


@sqlite_alone
def test_in_asyncio_the_loop_goes_on_and_a_cancelled_run_ends_its_workers(store: str) -> None:
    async def main() -> tuple[str, int, int]:
        first = await tw.campaign(functions.number, runs=100, store=store).run_async(workers=1, progress=False)
        campaign = tw.campaign(functions.slow_pi, runs=100_000, store=store)
        task = asyncio.create_task(campaign.run_async(workers=2, progress=False))
        beats = 0
        while not campaign.status().done:
            beats += 1
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return first.state, beats, campaign.status().leased

    state, beats, leased = asyncio.run(main())
    assert (state, beats > 3, leased) == ("done", True, 0)


@pytest.mark.promise("P15.30")
def test_ctrl_c_ends_the_workers_and_leaves_what_was_stored(tmp_path: Path) -> None:
    code = """
import campaign_functions as functions, tidewire as tw
if __name__ == "__main__":
    tw.campaign(functions.slow_pi, runs=100_000, name="pi", store="sqlite:///farm.db").run(workers=2)
"""
    with program(code, tmp_path) as starter:
        campaign = plan_of(f"sqlite:///{tmp_path}/farm.db")
        until(campaign, lambda status: status.done > 20)
        starter.send_signal(signal.SIGINT)
        _, err = starter.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    status = campaign.status()
    assert (status.state, status.leased, status.losses) == ("running", 0, 0)
    assert status.done == sum(len(batch.runs) for batch in campaign.batches())


HOLDER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
other.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
other.execute("COMMIT")
"""


@pytest.mark.promise("P15.46")
def test_a_file_that_is_held_by_another_for_a_while_is_waited_for(started: Programs, tmp_path: Path) -> None:
    campaign = tw.campaign(functions.slow_pi, runs=600, store=f"sqlite:///{tmp_path}/farm.db")
    with running(campaign) as end:
        until(campaign, lambda status: status.done > 20)
        other = started.run("-c", HOLDER, str(tmp_path / "farm.db"))
        other.expect("held")
        held = campaign.status().done
        assert all(campaign.status().done == held for _ in range(100))
        other.tell("go on")
        report = end()
    assert (report.state, report.done, held < 600) == ("done", 600, True)


def test_stores_that_can_not_be_used_say_why(tmp_path: Path) -> None:
    def refused(store: str) -> tw.TidewireError:
        with pytest.raises(tw.TidewireError) as caught:
            tw.campaign(functions.number, runs=1, store=store)
        return caught.value

    assert refused(f"sqlite:///{tmp_path}/no/folder/farm.db").code == "store_unavailable"
    (tmp_path / "notes.txt").write_text("no database" * 1_000)
    foreign = refused(f"sqlite:///{tmp_path}/notes.txt")
    assert isinstance(foreign, tw.CampaignError)
    assert (foreign.code, foreign.kind, foreign.retryable) == ("campaign_error", "foreign", False)
    with pytest.raises(tw.StoreUnavailable, match="there is no such file"):
        tw.campaigns(f"{tmp_path}/farm.db")


def test_no_password_is_shown(store: str) -> None:
    campaign = tw.campaign(functions.number, runs=1, name="pi", store=store)
    assert repr(campaign).startswith("<Campaign 'pi', number 1 of ")
    password = urlsplit(store).password
    assert password is None or password not in repr(campaign)
    for url in ("postgres://ann:secret@127.0.0.1:1/farm", "postgres://ann@127.0.0.1:1/farm?password=secret"):
        with pytest.raises(tw.StoreUnavailable) as caught:
            tw.campaigns(url)
        assert "secret" not in f"{caught.value} {caught.value!r}"
