"""Commands, ``@tw.command``: in a folder, at a hub and on NATS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, nodes
from link_processes import Programs


@dataclass
class Report:
    shard: int
    rows: list[int]


class Books(tw.Service):
    """Does what its stories need; what it is told to wait for is on it."""

    def __init__(self, name: str = "one") -> None:
        self.name = name
        self.inside: asyncio.Queue[tuple[str, int]] = asyncio.Queue(1_000)
        self.going_on = asyncio.Event()
        self.broken = False
        self.calls: list[tuple[Any, ...]] = []
        with contextlib.suppress(RuntimeError):
            self.loop = asyncio.get_running_loop()

    @tw.command(exclusive="key", concurrency=4)
    async def reindex(self, shard: int, progress: tw.Progress, *, wait: bool = False) -> Report:
        self.calls.append(("reindex", shard))
        await progress(0.25, "begun")
        await self.inside.put((progress.id, progress.attempt))
        if wait:
            await self.going_on.wait()
        await progress(0.75, "nearly")
        return Report(shard, [shard, progress.attempt])

    @tw.command(retries=2)
    async def fragile(self, number: int, progress: tw.Progress) -> int:
        self.calls.append(("fragile", number, progress.attempt))
        await progress(0.5)
        if self.broken:
            raise LookupError(f"no number {number}")
        return number * 2

    @tw.command(timeout=0.3, retries=1)
    async def slow(self) -> None:
        self.calls.append(("slow",))
        await asyncio.Event().wait()

    @tw.command(retries=0)
    def plain(self, *numbers: int, progress: tw.Progress) -> int:
        assert progress.attempt == 1
        return sum(numbers)

    @tw.command(retries=0)
    def patient(self, progress: tw.Progress) -> None:
        self.loop.call_soon_threadsafe(self.inside.put_nowait, (progress.id, progress.attempt))
        while True:
            progress(0.1)
            self.pause.wait(0.01)

    pause = threading.Event()


async def records(node: tw.Node) -> tw.Bucket:
    """The bucket that has the records of commands."""
    return await node.find_kv("tidewire-commands")


async def stage(node: tw.Node, run: tw.CommandRun[Any], wanted: str) -> tw.CommandInfo:
    """Wait until the record of a command says this."""

    async def watching() -> None:
        async for entry in (await records(node)).watch(f"{run.id}.state"):
            if entry.value["stage"] == wanted:
                return

    await asyncio.wait_for(watching(), PATIENCE)
    return await run.info()


@pytest.mark.promise("P17.77")
@pytest.mark.promise("P17.131")
async def test_a_command_reports_its_progress_and_its_id_gives_its_result(homes: list[tw.Node]) -> None:
    one, two = homes
    books = Books()
    run = await two.client(Books).reindex.start(7, wait=True, key="shard-7")
    for timeout in (0, 0.1):
        with pytest.raises(TimeoutError, match="it was queued for as long as was waited"):
            await run.result(timeout)
    waiting = await run.info()
    assert (waiting.stage, waiting.attempt, waiting.worker, waiting.key) == ("queued", 0, None, "shard-7")
    served = await one.serve(books)
    assert await asyncio.wait_for(books.inside.get(), PATIENCE) == (run.id, 1)
    reports = []

    async def follow() -> None:
        async for report in two.command(run.id).progress():
            reports.append((report.fraction, report.note, report.attempt))
            books.going_on.set()

    await asyncio.wait_for(follow(), PATIENCE)
    assert reports == [(0.25, "begun", 1), (0.75, "nearly", 1)]
    assert await run.result(0) == Report(7, [7, 1]), "as its annotation says"
    info = await one.command(run.id).info()
    assert (info.stage, info.attempt, info.worker, info.fraction, info.note) == (
        "succeeded",
        1,
        one.name,
        1.0,
        "nearly",
    )
    assert [found.id for found in await two.commands(service="books", stage="succeeded")] == [run.id]
    assert (await served.stop()).balanced
    assert await (await records(one)).keys() == [f"{run.id}.state"], "of its progress nothing is left"
    ended = await one.find_stream("tidewire-command-ends")
    assert [(event.subject, event.value["id"], event.value["stage"]) async for event in ended.read()] == [
        ("tidewire.command-ended.books.reindex", run.id, "succeeded")
    ]


@pytest.mark.promise("P17.62", "P17.66")
async def test_an_attempt_that_takes_too_long_or_raises_is_made_again_and_once_more_after_a_fix(
    home: tw.Node, virtual_time: None
) -> None:
    books = Books()
    books.broken = True
    await home.serve(books)
    run = await home.client(Books).slow.start()
    with pytest.raises(tw.TaskTimeout, match=r"timeout=0\.3 s"):
        await run.result(PATIENCE)
    assert (await run.info()).attempt == 2 and books.calls == [("slow",)] * 2
    run = await home.client(Books).fragile.start(3)
    with pytest.raises(LookupError, match="no number 3"):
        await run.result(PATIENCE)
    info = await run.info()
    assert (info.stage, info.attempt, info.error) == ("failed", 3, "LookupError: no number 3")
    assert "in fragile" in info.traceback and info.ended is not None
    assert books.calls[2:] == [("fragile", 3, attempt) for attempt in (1, 2, 3)]
    books.broken = False
    assert await run.retry() and not await run.retry(), "it is queued, runs, or has its result"
    assert await run.result(PATIENCE) == 6
    info = await run.info()
    assert (info.stage, info.attempt, info.error) == ("succeeded", 1, "")


@pytest.mark.promise("P17.69")
async def test_the_most_urgent_goes_first_and_of_one_priority_the_oldest(home: tw.Node) -> None:
    books = Books()
    client = home.client(Books)
    runs = []
    for number, priority in enumerate(["low", "normal", "urgent", "high", "normal", "urgent", "low"]):
        runs.append(await client.fragile.start(number, priority=priority))
    await home.serve(books)
    await asyncio.gather(*(run.result(PATIENCE) for run in runs))
    assert [number for _, number, _ in books.calls] == [2, 5, 3, 1, 4, 0, 6]


@pytest.mark.promise("P17.73", "P17.74")
async def test_a_command_that_waits_is_cancelled_at_once_and_one_that_runs_is_interrupted(homes: list[tw.Node]) -> None:
    one, two = homes
    books = Books()
    client = two.client(Books)
    waiting = await client.fragile.start(1)
    assert await waiting.cancel() and not await waiting.cancel()
    with pytest.raises(tw.CallCancelled):
        await waiting.result(PATIENCE)
    await one.serve(books)
    for start in (client.reindex.start(1, wait=True, key="a"), client.patient.start()):
        run = await start
        assert await asyncio.wait_for(books.inside.get(), PATIENCE) == (run.id, 1)
        assert await two.command(run.id).cancel()
        with pytest.raises(tw.CallCancelled, match=run.id):
            await run.result(PATIENCE)
        assert (await stage(two, run, "cancelled")).attempt == 1
    assert ("fragile", 1, 1) not in books.calls
    assert await client.plain.start(1, 2, 3) and await waiting.retry()
    assert await waiting.result(PATIENCE) == 2


@pytest.mark.promise("P17.71", "P17.72")
async def test_of_the_commands_of_one_key_one_runs_at_a_time_and_other_keys_run_beside_it(homes: list[tw.Node]) -> None:
    one, two = homes
    first, second = Books(), Books("two")
    second.inside = first.inside
    await one.serve(first)
    await two.serve(second)
    client = one.client(Books)
    runs = [await client.reindex.start(number, wait=True, key="hot") for number in range(4)]
    runs += [await client.reindex.start(10 + number, wait=True, key=f"cold-{number}") for number in range(3)]
    for _ in range(4):
        await asyncio.wait_for(first.inside.get(), PATIENCE)
    shards = [shard for _, shard in first.calls + second.calls]
    assert sum(shard < 10 for shard in shards) == 1 and sorted(shards)[1:] == [10, 11, 12], shards
    first.going_on.set()
    second.going_on.set()
    assert [(await run.result(PATIENCE)).shard for run in runs] == [0, 1, 2, 3, 10, 11, 12]
    infos = [await run.info() for run in runs[:4]]
    spans = sorted((info.began, info.ended) for info in infos if info.began is not None and info.ended is not None)
    assert len(spans) == 4 and all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), spans


@pytest.mark.promise("P17.60")
async def test_a_command_that_is_started_again_with_its_id_is_the_one_that_is_there(homes: list[tw.Node]) -> None:
    one, two = homes
    books = Books()
    runs = await asyncio.gather(*(node.client(Books).fragile.start(4, id="invoice-4") for node in (one, two) * 5))
    assert {run.id for run in runs} == {"invoice-4"}
    await one.serve(books)
    assert [await run.result(PATIENCE) for run in runs] == [8] * 10
    again = await two.client(Books).fragile.start(4, id="invoice-4")
    assert await again.result(PATIENCE) == 8
    with pytest.raises(tw.SettingsDiffer, match="invoice-4"):
        await one.client(Books).fragile.start(5, id="invoice-4")
    after = await one.client(Books).fragile.start(6)
    assert await after.result(PATIENCE) == 12
    assert books.calls == [("fragile", 4, 1), ("fragile", 6, 1)]


@pytest.mark.promise("P17.61")
async def test_a_start_that_was_cut_off_before_it_queued_its_command_is_ended_by_the_next(home: tw.Node) -> None:
    other = await home.client(Books).fragile.start(4, id="other")
    bucket = await records(home)
    entry = await bucket.get("other.state")
    assert entry is not None
    # The process was killed once it had written the record.
    await bucket.create("once.state", {**entry.value, "id": "once"})
    run = await home.client(Books).fragile.start(4, id="once")
    await home.serve(Books())
    assert await asyncio.gather(other.result(PATIENCE), run.result(PATIENCE)) == [8, 8]


@pytest.mark.promise("P17.65")
async def test_a_service_that_stops_gives_its_command_to_another_and_the_attempt_does_not_count(
    homes: list[tw.Node],
) -> None:
    one, two = homes
    first, second = Books(), Books("two")
    second.going_on.set()
    served = await one.serve(first)
    run = await one.client(Books).reindex.start(1, wait=True, key="a")
    assert await asyncio.wait_for(first.inside.get(), PATIENCE) == (run.id, 1)
    assert (await served.stop(drain=False)).balanced
    await two.serve(second)
    assert await run.result(PATIENCE) == Report(1, [1, 1])
    draining = await one.serve(first)
    run = await one.client(Books).plain.start(1, 2)
    assert await run.result(PATIENCE) == 3
    assert (await draining.stop()).balanced


@pytest.mark.promise("P17.68")
async def test_wrong_arguments_are_refused_and_not_retried(home: tw.Node) -> None:
    books = Books()
    await home.serve(books)
    client = home.client(Books)
    run = await client.fragile.start("seven")
    with pytest.raises(tw.InvalidArgument, match=r"books\.fragile: number: 'seven'"):
        await run.result(PATIENCE)
    assert (await run.info()).attempt == 1 and not books.calls
    for call, wanted in (
        (client.fragile.start(), "number: missing"),
        (client.fragile.start(1, more=2), "more: there is no such parameter"),
        (client.fragile.start(1, id="a.b"), 'id: "a.b" is not allowed'),
        (client.fragile.start(1, id="x" * 65), "at most 64 bytes"),
        (client.fragile.start(1, priority="high!"), 'priority: "high!" is not allowed'),
        (client.reindex.start(1), 'key: missing: the command is exclusive="key"'),
        (client.reindex.start(1, key="k" * 257), "key: .* is not allowed"),
    ):
        with pytest.raises(tw.InvalidArgument, match=wanted):
            await call
    with pytest.raises(tw.PayloadTooLarge, match="its arguments take"):
        await client.plain.start(*range(600_000))
    with pytest.raises(tw.NotFound, match='command "nobody": there is none'):
        await home.command("nobody").result()
    with pytest.raises(tw.NotFound):
        await home.command("nobody").cancel()


async def test_a_command_without_a_home_is_refused(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument, match="this node has no place for streams"):
        await node.client(Books).fragile.start(1)
    with pytest.raises(tw.InvalidArgument, match="this node has no place for streams"):
        await node.serve(Books())


def test_a_class_says_all_that_is_wrong_with_its_commands() -> None:
    with pytest.raises(tw.InvalidArgument) as caught:

        class Wrong(tw.Service):
            @tw.command(timeout=-1, retries=-1, exclusive="all", concurrency=0, keep=0)  # type: ignore[arg-type]
            async def one(self, key: str) -> None: ...

            @tw.command
            async def two(self) -> None: ...

            @tw.command
            async def eight(self, progress: tw.Progress, more: tw.Progress) -> None: ...

            @tw.command
            async def three(self) -> Any:
                yield 1

            @tw.command
            @tw.method
            async def four(self) -> None: ...

            @tw.method
            async def five(self, progress: tw.Progress) -> None: ...

            @tw.command(name="two")
            async def six(self) -> None: ...

            @tw.command
            def seven(self, progress: tw.Progress, *rest: int) -> None: ...

    for wanted in (
        "one: timeout: -1 is not allowed",
        "one: retries: -1 is not allowed",
        "one: exclusive: 'all' is not allowed",
        "one: concurrency: 0 is not allowed",
        "one: keep: 0 is not allowed",
        "one: key: the start of a command takes key= itself",
        "eight: a command takes one tw.Progress",
        "three: a command can't be a generator",
        "four: a command is nothing else: take @tw.method or @tw.on away",
        "six: name: 'two' is the name of two too",
        "seven: progress: it comes before *args: move it after",
        "five: progress: a tw.Progress is for commands",
    ):
        assert wanted in str(caught.value), wanted


async def test_reports_that_are_not_allowed_fail_their_command(tmp_path: Path) -> None:
    class Talk(tw.Service):
        @tw.command(retries=0)
        async def say(self, fraction: Any, note: Any, progress: tw.Progress) -> None:
            await progress(fraction, note)

    async with tw.Node(data=tmp_path) as node:
        await node.serve(Talk())
        for fraction, note, wanted in (
            (1.5, "", r"fraction: 1\.5"),
            (True, "", "fraction: True"),
            (0.5, "x" * 1_025, "note"),
        ):
            run = await node.client(Talk).say.start(fraction, note)
            with pytest.raises(tw.InvalidArgument, match=wanted):
                await run.result(PATIENCE)


def test_commands_of_plain_threads(tidewire_streams: tw.Node) -> None:
    tidewire_streams.serve(Books())
    run = tidewire_streams.client(Books).sync.reindex.start(3, key="a")
    reports = list(run.progress())
    assert run.result(PATIENCE) == Report(3, [3, 1]) and reports[-1].note == "nearly"
    assert tidewire_streams.sync.command(run.id).info().stage == "succeeded"
    assert [info.id for info in tidewire_streams.sync.commands()] == [run.id]
    assert not run.cancel() and not run.retry()


async def test_tokens_of_commands_that_are_over_are_tidied_away(tmp_path: Path) -> None:
    # A folder removes whole files only.
    async with nodes("nats", tmp_path, 1) as (node,):
        served = await node.serve(Books())
        runs = await asyncio.gather(*(node.client(Books).plain.start(number) for number in range(300)))
        assert [await run.result(PATIENCE) for run in runs] == list(range(300))
        assert (await served.stop()).balanced
        info = await (await node.find_stream("tidewire-commands")).info()
        assert info.last == 300 and info.messages < 100, info


async def test_commands_of_a_single_active_service_run_at_the_active_one_alone(homes: list[tw.Node]) -> None:
    one, two = homes
    first, second = Books(), Books("two")
    served = await one.serve(first, active="single", lease=600.0)
    await served.active(PATIENCE)
    await two.serve(second, active="single", lease=600.0)
    runs = [await two.client(Books).fragile.start(number) for number in range(5)]
    await asyncio.gather(*(run.result(PATIENCE) for run in runs))
    assert len(first.calls) == 5 and not second.calls
    await served.stop()
    run = await two.client(Books).fragile.start(9)
    assert await run.result(PATIENCE) == 18 and second.calls == [("fragile", 9, 1)]


@pytest.mark.promise("P17.59", "P17.75")
async def test_a_command_and_its_waiters_survive_a_hub_that_is_killed(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    hub, url = programs.hub("tide://127.0.0.1:0", "--data", str(tmp_path / "data"))
    try:
        async with tw.Node(url) as one, tw.Node(url) as two:
            books = Books()
            await one.serve(books)
            run = await two.client(Books).reindex.start(1, wait=True, key="a")
            queued = await two.client(Books).fragile.start(4)
            assert await asyncio.wait_for(books.inside.get(), PATIENCE) == (run.id, 1)
            results = asyncio.gather(run.result(PATIENCE), queued.result(PATIENCE))
            hub.kill()
            hub.ended()
            hub, _ = programs.hub(url, "--data", str(tmp_path / "data"))
            books.going_on.set()
            report, doubled = await asyncio.wait_for(results, PATIENCE)
            assert (report.shard, doubled) == (1, 8)
    finally:
        programs.end()


@pytest.mark.promise("P17.76")
async def test_reports_take_no_capacity_of_the_queue_and_only_the_newest_is_stored(tmp_path: Path) -> None:
    class Talker(tw.Service):
        @tw.command
        async def talk(self, number: int, progress: tw.Progress) -> int:
            for report in range(1_000):
                await progress(report / 1_000, f"report {report}")
            return number

    async with tw.Node(data=tmp_path) as node:
        served = await node.serve(Talker())
        runs = await asyncio.gather(*(node.client(Talker).talk.start(number) for number in range(20)))
        assert [await run.result(PATIENCE) for run in runs] == list(range(20))
        assert [(await run.info()).note for run in runs] == ["report 999"] * 20
        assert (await served.stop()).balanced
        assert (await (await node.find_stream("tidewire-commands")).info()).last == 20
        assert len(await (await records(node)).keys()) == 20


async def test_a_command_is_started_by_the_name_of_its_service(homes: list[tw.Node]) -> None:
    one, two = homes
    await one.serve(Books())
    run = await two.start_command("books", "plain", 1, 2, id="by-name")
    assert await asyncio.wait_for(run.result(), PATIENCE) == 3
    assert (await two.start_command("books", "plain", 1, 2, id="by-name")).id == "by-name"
    wrong = await two.start_command("books", "plain", "text")
    with pytest.raises(tw.TidewireError, match="numbers"):
        await asyncio.wait_for(wrong.result(), PATIENCE)
    with pytest.raises(tw.InvalidArgument, match=r'service: "a\.b" is not allowed'):
        await two.start_command("a.b", "plain")


async def test_waits_of_one_process_get_their_own_results_and_the_end_of_the_records(homes: list[tw.Node]) -> None:
    one, two = homes
    start = two.client(Books).fragile.start
    runs = [await start(number) for number in range(50)]
    waiting = [asyncio.ensure_future(_result(two.command(run.id))) for run in runs for _ in range(2)]
    await one.serve(Books())
    assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE) == [at // 2 * 2 for at in range(100)]
    unserved = [await two.start_command("nobody", "serves", number) for number in range(5)]
    waiting = [asyncio.ensure_future(_result(run)) for run in unserved]
    with pytest.raises(TimeoutError):
        await unserved[0].result(0.1)
    await (await records(one)).purge()
    for one_waits in waiting:
        with pytest.raises(tw.NotFound):
            await asyncio.wait_for(one_waits, PATIENCE)


async def _result(run: tw.CommandRun[Any]) -> Any:
    return await run.result()
