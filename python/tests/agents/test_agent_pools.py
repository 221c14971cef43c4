"""Pools of agents: one agent for others, whose messages are handled by an instance in each
worker.
"""

from __future__ import annotations

import asyncio
import functools
import os
from pathlib import Path
from typing import Any

import pool_agents as agents
import pytest
import tidewire as tw
from agent_support import nothing

PATIENCE = 60.0
KINDS = ["thread", "process"]
both = pytest.mark.parametrize("kind", KINDS)


def local_class() -> type:
    """Return a class that no worker process could import."""

    class Local(tw.Agent):
        def receive(self, payload: object) -> None:
            """Never called."""

    return Local


@pytest.mark.promise("P12.31")
@both
async def test_each_worker_has_an_instance_with_a_life_of_its_own(node: tw.Node, kind: str, tmp_path: Path) -> None:
    life = tmp_path / "life"

    pool = node.pool(functools.partial(agents.Counter, str(life)), workers=2, kind=kind)
    desk = node.agent(nothing, id="desk")
    answers = await asyncio.gather(*(desk.request(n, type="counter", timeout=PATIENCE) for n in range(40)))
    await pool.stop()
    handled = {worker: [count for one, count in answers if one == worker] for worker, _ in answers}
    # One instance to a worker counts on without a gap, from where its start hook left it.
    assert all(sorted(counts) == list(range(101, 101 + len(counts))) for counts in handled.values())
    lines = [line.split(" ", 1) for line in life.read_text().splitlines()]
    for worker, counts in handled.items():
        assert [step for one, step in lines if one == worker] == ["started", f"stopped {100 + len(counts)}"]


@pytest.mark.promise("P12.39", "P12.44", "P12.49")
@both
async def test_handlers_are_chosen_in_the_worker_by_type_topic_and_kind(
    node: tw.Node, kind: str, tmp_path: Path
) -> None:
    pool = node.pool(agents.Shop, workers=1, kind=kind, id="shop")
    desk = node.agent(nothing, id="desk")
    ask = functools.partial(desk.request, to="shop", timeout=PATIENCE)
    assert await ask(agents.Order("X", 4)) == 10.0
    told = await ask("text", headers={"a": "b"}, correlation_id="c-1")
    assert told == ("desk", ("shop",), {"a": "b"}, "c-1", "desk")
    assert await ask([1, 2]) == [1, 2, False]
    assert await ask((1, {2})) == ("tuple", (1, {2}))
    note, status = tmp_path / "note", tmp_path / "status"
    assert desk.publish("market.X", 2.5, headers={"note": str(note)}) == 1
    receipt = await desk.send(status, to="shop", kind="status", priority="high", receipt=True)
    assert await receipt.wait(PATIENCE) == "handled"
    # One worker, which begins messages in their order.
    assert await ask(agents.Order("X", 1)) == 2.5
    assert note.read_text() == "market.X 2.5"
    assert status.read_text() == "desk status 1 high"
    await pool.stop()


@pytest.mark.promise("P12.51")
@both
async def test_a_function_with_an_id_is_a_pool_of_agents_too(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.double, workers=2, kind=kind, id="double", capabilities=["double"])
    desk = node.agent(nothing, id="desk")
    assert await desk.request(21, capability="double", timeout=PATIENCE) == (42, "desk")
    # Tasks go past the mailbox, and have no sender.
    assert await pool.submit(4) == (8, "")
    assert [result async for result in pool.map(range(5))] == [(2 * n, "") for n in range(5)]


@pytest.mark.promise("P12.30")
@both
async def test_others_find_the_pool_as_one_agent_and_its_workers_share_the_work(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.Counter, workers=3, kind=kind, id="c", capabilities=["x", "y"])
    desk = node.agent(nothing, id="desk")
    assert pool.agent is not None
    assert node.agents.list(capability="y") == node.agents.list(type="counter") == [pool.agent]
    assert node.agents.list(capability="count") == []
    for n in range(20):
        await desk.request(n, capability="x", timeout=PATIENCE)
    (row,) = [row for row in node.statistics()["agents"] if row["agent"] == "c"]
    assert (row["handled"], row["type"], row["capabilities"]) == (20, "counter", ["x", "y"])
    statistics = pool.statistics()
    assert (statistics["agent"], statistics["name"], statistics["handled"]) == ("c", "c", 20)
    assert statistics["function"] == "Counter"
    # Pools are those of the process: one of another story that has failed may be among them.
    rows = node.statistics()["pools"]
    assert ("c", "Counter", 20) in [(row["name"], row["function"], row["handled"]) for row in rows]


@pytest.mark.promise("P12.40")
async def test_a_request_whose_worker_is_killed_is_handled_by_another(node: tw.Node, tmp_path: Path) -> None:
    pool = node.pool(functools.partial(agents.Fragile, str(tmp_path)), workers=2, kind="process", id="fragile")
    desk = node.agent(nothing, id="desk")
    requests = [desk.request(n if n % 20 else -n - 1, to="fragile", timeout=PATIENCE) for n in range(100)]
    assert await asyncio.gather(*requests) == [n if n % 20 else -n - 1 for n in range(100)]
    assert (pool.statistics()["restarts"], pool.statistics()["redelivered"] >= 5) == (5, True)
    ledger = await pool.stop()
    assert (ledger.accepted, ledger.handled, ledger.dead_lettered) == (100, 100, 0)
    # One that killed its worker was begun once more, and no other was lost.
    assert all((tmp_path / str(-n - 1)).read_text() == "xx" for n in range(0, 100, 20))


@pytest.mark.promise("P12.41", "P12.42")
async def test_a_message_that_kills_its_workers_is_quarantined_and_not_tried_again(
    node: tw.Node, tmp_path: Path
) -> None:
    make = functools.partial(agents.Fragile, str(tmp_path), 1_000)
    node.pool(make, workers=1, kind="process", id="fragile", max_deliveries=3, retry=tw.Retry(5, backoff_ms=1))
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.TaskQuarantined, match=r"at <Task \d+ payload=-1 deliveries=3>"):
        await desk.request(-1, to="fragile", timeout=PATIENCE)
    receipt = await desk.send(-2, to="fragile", receipt=True)
    assert await receipt.wait(PATIENCE) == "failed"
    assert isinstance(receipt.error, tw.TaskQuarantined)
    assert await desk.request(3, to="fragile", timeout=PATIENCE) == 3
    letters = node.dead_letters.list(name="fragile")
    assert [letter.message.payload for letter in letters if letter.reason == "failed"][-1] == -2
    assert node.dead_letters.list(name="pool:fragile") == []
    assert [(tmp_path / name).read_text() for name in ("-1", "-2")] == ["xxx", "xxx"]


@pytest.mark.promise("P12.35", "P12.41")
@both
async def test_an_error_reaches_the_requester_and_a_sent_message_is_tried_again(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.Failing, workers=1, kind=kind, id="failing", retry=tw.Retry(2, backoff_ms=1))
    desk = node.agent(nothing, id="desk")
    with pytest.raises(ZeroDivisionError):
        await desk.request(0, to="failing", timeout=PATIENCE, retry=tw.Retry(0))
    receipt = await desk.send(0, to="failing", receipt=True)
    assert await receipt.wait(PATIENCE) == "failed"
    assert isinstance(receipt.error, ZeroDivisionError)
    assert pool.agent is not None
    assert (pool.agent.statistics()["retried"], pool.agent.status) == (2, "failing")
    (letter,) = [one for one in node.dead_letters.list(name="failing") if one.message.kind == "event"]
    assert (letter.reason, letter.message.delivery) == ("failed", 3)
    assert pool.statistics()["failed"] == 4


@pytest.mark.promise("P12.35", "P12.52")
@both
async def test_a_drained_pool_has_handled_all_and_its_ledger_says_so(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.Counter, workers=2, kind=kind)
    desk = node.agent(nothing, id="desk")
    for n in range(100):
        desk.tell(n, type="counter")
    ledger = await pool.stop()
    assert node.agents.list(type="counter") == []
    with pytest.raises(tw.NoSuchTarget):
        desk.tell(1, type="counter")
    assert await pool.stop() == ledger or ledger.balanced
    assert (ledger.accepted, ledger.handled, ledger.returned, ledger.dead_lettered) == (100, 100, 0, 0)


@pytest.mark.promise("P12.36", "P12.52")
@both
def test_without_drain_what_was_not_begun_is_returned(node: tw.Node, kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = node.pool(agents.Waiting, workers=1, kind=kind, id="waiting", concurrency=1)
    desk = node.agent(nothing, id="desk")
    desk.tell(str(gate), to="waiting")
    with open(gate, "w"):
        # The worker has opened its end, so it is at the first message.
        for n in range(10):
            desk.tell(f"later {n}", to="waiting")
        assert pool.agent is not None
        closing = pool.agent.ref.stop(False, PATIENCE)
    ledger = pool.sync.stop(drain=False, timeout=PATIENCE)
    assert closing.wait().returned == 10
    assert ledger.balanced
    assert (ledger.accepted, ledger.handled, ledger.returned) == (11, 1, 10)
    assert [message.payload for message in ledger.messages] == [f"later {n}" for n in range(10)]


@pytest.mark.promise("P12.35", "P12.38")
@both
async def test_a_message_that_is_not_begun_in_its_time_expires(node: tw.Node, kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Two messages may leave the mailbox: the second one waits at the worker.
    pool = node.pool(agents.Waiting, workers=1, kind=kind, id="waiting", concurrency=2)
    desk = node.agent(nothing, id="desk")
    desk.tell(str(gate), to="waiting")
    with await asyncio.to_thread(open, gate, "w"):
        receipts = [await desk.send("", to="waiting", ttl=1e-6, receipt=True) for _ in range(2)]
    assert [await receipt.wait(PATIENCE) for receipt in receipts] == ["expired", "expired"]
    assert pool.agent is not None
    assert pool.agent.statistics()["expired"] == 2
    assert {letter.reason for letter in node.dead_letters.list(name="waiting")} == {"expired"}


@pytest.mark.promise("P12.46", "P12.47")
async def test_an_agent_in_a_thread_talks_to_others_as_the_pool(node: tw.Node) -> None:
    log: asyncio.Queue[tw.Message] = asyncio.Queue(1_000)

    async def keep(payload: Any, message: tw.Message) -> None:
        log.put_nowait(message)

    node.agent(keep, id="log")
    node.agent(lambda payload, message: (payload, message.sender), id="echo")
    node.pool(agents.Sending, workers=2, id="pool")
    node.pool(agents.SendingAsync, workers=2, id="async")
    desk = node.agent(nothing, id="desk")
    assert await desk.request("send", to="pool", timeout=PATIENCE) is None
    assert (await asyncio.wait_for(log.get(), PATIENCE)).sender == "pool"
    assert await desk.request("request", to="pool", timeout=PATIENCE) == ("x", "pool")
    assert await desk.request("y", to="async", timeout=PATIENCE) == ("y", "async")
    assert await desk.request("publish", to="pool", timeout=PATIENCE) == 0
    await desk.share({"a": 1}, to="pool")
    assert await desk.request("context", to="pool", timeout=PATIENCE) == {"a": 1}


@pytest.mark.promise("P12.46", "P12.48")
@pytest.mark.parametrize("what", ["send", "request", "publish", "context"])
async def test_an_agent_in_a_process_is_told_that_it_has_no_node(node: tw.Node, what: str) -> None:
    node.pool(agents.Sending, workers=1, kind="process", id="pool")
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.InvalidArgument, match=r"agent 'pool': this instance is in a worker process"):
        await desk.request(what, to="pool", timeout=PATIENCE)
    assert await desk.request("show", to="pool", timeout=PATIENCE) == "<Sending 'pool', busy>"


@pytest.mark.promise("P12.32", "P12.54")
@both
async def test_agents_that_cannot_start_fail_their_pool_which_nobody_finds_any_more(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.NoStart, workers=2, kind=kind, id="bad", capabilities=["c"])
    desk = node.agent(nothing, id="desk")
    # Which one it is depends on how far the end of the pool has come.
    with pytest.raises((tw.PoolFailed, tw.ActorStopped, tw.NoSuchTarget)) as caught:
        await desk.request(1, to="bad", timeout=PATIENCE)
    if isinstance(caught.value, tw.PoolFailed):
        assert "no model here" in str(caught.value)
    ledger = await pool.stop()
    assert pool.state == "failed"
    assert ledger.balanced
    with pytest.raises(tw.NoSuchTarget):
        desk.tell(1, capability="c")


@pytest.mark.promise("P12.53")
@both
async def test_the_end_of_the_agent_is_the_end_of_the_pool(node: tw.Node, kind: str) -> None:
    pool = node.pool(agents.Counter, workers=1, kind=kind)
    desk = node.agent(nothing, id="desk")
    desk.tell(1, type="counter")
    assert pool.agent is not None
    ledger = await pool.agent.stop()
    assert (ledger.accepted, ledger.handled) == (1, 1)
    with pytest.raises(tw.PoolStopped):
        await pool.submit(1)
    assert (await pool.stop()).handled == 1


@pytest.mark.promise("P12.45")
async def test_a_payload_that_cannot_reach_a_process_fails_its_message_only(node: tw.Node) -> None:
    node.pool(agents.Counter, workers=1, kind="process", id="c", pickler="pickle")
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.InvalidArgument, match=r"payload: <function .* can't be pickled for a worker process"):
        await desk.request(lambda: 1, to="c", timeout=PATIENCE)
    assert (await desk.request(1, to="c", timeout=PATIENCE))[1] == 101


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (agents.Failing(), {}, "is one agent, and each worker makes its own: give the class, Failing"),
        (agents.Fragile("."), {"kind": "process"}, "give the class, Fragile, or functools.partial(Fragile, ...)"),
        (local_class(), {"kind": "process", "pickler": "pickle"}, "can't be pickled for a worker process"),
        (agents.TooMuch, {}, "TooMuch.receive: TooMuch.receive"),
        (agents.NoHandler, {}, "can't be an agent: give a function, or an object with receive(self, payload)"),
        (agents.StartTakesContext, {}, "StartTakesContext.started"),
        (agents.Counter, {"id": ""}, "id: '' is not allowed"),
        (agents.Counter, {"capabilities": "quote"}, "capabilities: 'quote' is not allowed"),
        (agents.Counter, {"retry": 3}, "retry: 3 is not allowed: give a tw.Retry"),
        (agents.Counter, {"concurrency": 0}, "concurrency: 0 is not allowed: give a whole number from 1 to 10,000"),
        (agents.Counter, {"mailbox": 0}, "capacity: 0 is not allowed"),
        (agents.Counter, {"workers": 0}, "workers: 0 is not allowed: give a whole number from 1 to 1,024"),
        (agents.Counter, {"kind": "fibre"}, "kind: 'fibre' is not allowed"),
        (agents.Counter, {"batch": True}, "batch: a pool of agents takes messages one by one"),
        ("pool_agents:nobody", {"id": "x"}, "'pool_agents:nobody' can't be imported"),
        (print, {"id": "x", "typ": "y"}, "typ"),
    ],
)
def test_wrong_input_is_named_and_registers_nothing(
    node: tw.Node, target: Any, options: dict[str, Any], message: str
) -> None:
    # Pools of other tests at this node may be collected meanwhile.
    before = {row["name"] for row in node.statistics()["pools"]}
    with pytest.raises((tw.InvalidArgument, TypeError)) as caught:
        node.pool(target, **options)
    assert message in str(caught.value)
    assert len(node.agents) == 0
    assert {row["name"] for row in node.statistics()["pools"]} <= before


def test_an_id_that_is_taken_is_refused_and_leaves_the_other_alone(node: tw.Node) -> None:
    node.agent(lambda payload: "first", id="taken")
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.NameTaken):
        node.pool(agents.Counter, id="taken")
    assert desk.sync.request(1, to="taken") == "first"


def test_a_class_of_agents_needs_a_node() -> None:
    with pytest.raises(tw.InvalidArgument, match=r"an agent lives in a node: use node\.pool"):
        tw.Pool(agents.Counter)


@pytest.mark.promise("P12.63")
async def test_a_drained_pool_of_agents_handles_its_mailbox(node: tw.Node) -> None:
    pool = node.pool(agents.Shop, workers=1, id="shop")
    desk = node.agent(nothing, id="desk")
    answers = [asyncio.ensure_future(desk.request(agents.Order("X", 4), to="shop", timeout=PATIENCE)) for _ in range(9)]
    await asyncio.gather(answers[0])
    pool.drain()
    assert await asyncio.gather(*answers) == [10.0] * 9
