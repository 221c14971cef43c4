"""Durable agents: inboxes and states that survive their processes, in a folder, at a hub and on
NATS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tidewire as tw
from command_support import run_all, said
from home_support import PATIENCE, every_home, nodes, release
from link_processes import Program, Programs


@dataclass
class Deposit:
    account: str
    cents: int


@dataclass
class Sums:
    cents: dict[str, int] = field(default_factory=dict)
    seen: int = 0


class Ledger(tw.Agent):
    """Adds up, tells ``told`` of each sum, and refuses what is negative."""

    def __init__(self, told: str = "told") -> None:
        self.state = Sums()
        self.told = told

    @tw.handle
    async def on_deposit(self, deposit: Deposit) -> None:
        self.state.seen += 1
        sums = self.state.cents
        sums[deposit.account] = sums.get(deposit.account, 0) + deposit.cents
        await self.send((deposit.account, sums[deposit.account]), to=self.told, durable=True)
        if deposit.cents < 0:
            raise ValueError(f"{deposit.cents} cents")

    @tw.handle(kind="request")  # type: ignore[untyped-decorator, unused-ignore]
    async def on_request(self, account: str) -> int:
        return self.state.cents.get(account, 0)


class Told(tw.Agent):
    """Keeps what it is told, and says when it has so much."""

    def __init__(self, count: int) -> None:
        self.came: list[Any] = []
        self.count, self.all, self.loop = count, asyncio.Event(), asyncio.get_running_loop()

    def receive(self, payload: Any, message: tw.Message) -> None:
        self.came.append((message.sender, message.delivery, payload))
        if len(self.came) >= self.count:
            self.loop.call_soon_threadsafe(self.all.set)


Some = TypeVar("Some", bound=tw.Agent)


def with_agent(node: tw.Node, agent: Some, id: str, **options: Any) -> Some:
    assert node.agent(agent, id=id, **options) is agent
    return agent


async def over(node: tw.Node, id: str, count: int) -> Any:
    """Wait until so many messages of an agent are over, and return what there is of it."""
    bucket = await node.kv("tidewire-agents")
    async for entry in bucket.watch(f"{id}.record"):
        if entry.value is not None and entry.value["handled"] + entry.value["dead"] >= count:
            return await node.durable_agent(id)


@pytest.mark.promise("P17.78", "P17.86", "P17.88")
async def test_messages_wait_for_an_agent_that_does_not_run_and_its_state_is_that_of_the_last_one(
    homes: list[tw.Node],
) -> None:
    one, two = homes
    desk = one.agent(lambda payload: None, id="desk")
    for cents in (5, 7):
        await desk.send(Deposit("anna", cents), to="ledger", durable=True)
    ledger = with_agent(one, Ledger(), "ledger", durable="state")
    fence = await ledger.active(PATIENCE)
    await over(one, "ledger", 2)
    assert ledger.state == Sums({"anna": 12}, 2)
    assert await desk.request("anna", to="ledger") == 12
    assert (await ledger.stop()).balanced
    await desk.send(Deposit("anna", 1), to=["ledger"], durable=True)
    again = with_agent(two, Ledger(), "ledger", durable="state")
    assert await again.active(PATIENCE) > fence
    info = await over(two, "ledger", 3)
    assert again.state == Sums({"anna": 13}, 3)
    assert (info.handled, info.dead, info.open, info.lag) == (3, 0, 0, 0)
    assert info.state == {"cents": {"anna": 13}, "seen": 3} or info.state == Sums({"anna": 13}, 3)
    told = with_agent(two, Told(3), "told", durable="inbox")
    await asyncio.wait_for(told.all.wait(), PATIENCE)
    assert told.came == [("ledger", 1, ["anna", cents]) for cents in (5, 12, 13)], "once each, in order"
    past = await two.agent_messages("ledger")
    assert [(one.stage, one.message.payload) for one in past if one.message] == [
        ("over", Deposit("anna", cents)) for cents in (5, 7, 1)
    ]


@pytest.mark.promise("P17.79", "P17.84", "P17.91", "P17.93")
async def test_a_handler_that_raises_has_changed_and_sent_nothing_and_its_message_is_tried_again(home: tw.Node) -> None:
    desk = home.agent(lambda payload: None, id="desk")
    ledger = with_agent(home, Ledger(), "ledger", durable="state", retry=tw.Retry(2, backoff_ms=1))
    told = with_agent(home, Told(2), "told", durable="inbox")
    for cents in (5, -1, 7):
        await desk.send(Deposit("anna", cents), to="ledger", durable=True)
    info = await over(home, "ledger", 3)
    await asyncio.wait_for(told.all.wait(), PATIENCE)
    assert ledger.state == Sums({"anna": 12}, 2)
    assert [payload for _, _, payload in told.came] == [["anna", 5], ["anna", 12]]
    assert (info.handled, info.dead, info.open) == (2, 1, 0)
    [letter] = await home.agent_dead_letters("ledger")
    assert (letter.attempts, letter.reason, letter.error) == (3, "failed", "ValueError: -1 cents")
    assert "on_deposit" in letter.traceback and letter.message is not None
    assert letter.message.payload == Deposit("anna", -1)
    assert await home.requeue_agent_messages("ledger", letter.sequence) == 1
    info = await over(home, "ledger", 4)
    assert [letter.sequence for letter in await home.agent_dead_letters("ledger")] != [letter.sequence]
    assert await home.drop_agent_messages("ledger", *range(10)) == 1
    assert (await home.durable_agent("ledger")).dead == 0
    assert [found.id for found in await home.durable_agents()] == ["ledger", "told"]


@pytest.mark.promise("P17.80", "P17.81")
@every_home
async def test_one_process_at_a_time_has_an_agent(kind: str, tmp_path: Path) -> None:
    if kind == "folder":
        pytest.skip("one process has a folder")
    async with nodes(kind, tmp_path) as (one, two):
        first = with_agent(one, Ledger(), "ledger", durable="state")
        fence = await first.active(PATIENCE)
        second = with_agent(two, Ledger(), "ledger", durable="state")
        assert (first.status, second.status) == ("idle", "standby")
        with pytest.raises(TimeoutError, match="is not active here"):
            await second.active(0.0)
        with pytest.raises(tw.LeaseLost, match="does not have it"):
            await second.ref.ask("anna")
        # Somebody else takes the lease: as if this process had been stopped for longer than its
        # time.
        assert await release(one, "agent.ledger", fence)
        assert await second.active(PATIENCE) > fence
        desk = two.agent(lambda payload: None, id="desk")
        await desk.send(Deposit("anna", 5), to="ledger", durable=True)
        await over(two, "ledger", 1)
        assert second.state == Sums({"anna": 5}, 1)


async def test_plain_handlers_send_with_their_state_and_inboxes_are_handled_several_at_once(tmp_path: Path) -> None:
    class Plain(tw.Agent):
        def __init__(self) -> None:
            self.state = [0]

        def receive(self, payload: int) -> None:
            self.state = [self.state[0] + payload]
            self.sync.send(self.state[0], to="told", durable=True)

    together = asyncio.Event()
    inside = 0

    async def crowd(payload: int) -> None:
        nonlocal inside
        inside += 1
        if inside == 3:
            together.set()
        await together.wait()

    async with tw.Node(data=tmp_path) as node:
        desk = node.agent(lambda payload: None, id="desk")
        told = with_agent(node, Told(4), "told", durable="inbox")
        plain = with_agent(node, Plain(), "plain", durable="state")
        node.agent(crowd, id="crowd", durable="inbox", concurrency=3)
        for number in range(1, 4):
            await desk.send(number, to=["plain", "crowd"], durable=True)
        await asyncio.to_thread(lambda: desk.sync.send("blocking", to="told", durable=True))
        await over(node, "plain", 3)
        await over(node, "crowd", 3)
        await asyncio.wait_for(told.all.wait(), PATIENCE)
        assert plain.state == [6]
        assert [payload for sender, _, payload in told.came if sender == "plain"] == [1, 3, 6]


@pytest.mark.promise("P17.85")
async def test_a_wrong_durable_setting_is_refused_with_field_and_fix(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        desk = node.agent(lambda payload: None, id="desk")
        refused: list[tuple[dict[str, Any], str]] = [
            ({"durable": "all"}, 'durable: \'all\' is not allowed: give "inbox", "state" or None'),
            ({"durable": "inbox", "id": None}, "id: a durable agent needs one"),
            ({"durable": "state"}, 'durable: "state" is for objects with a `state`'),
            ({"durable": "inbox", "concurrency": 0}, "concurrency: 0 is not allowed"),
        ]
        for options, said in refused:
            with pytest.raises(tw.InvalidArgument, match=said):
                node.agent(lambda payload: None, **{"id": "x", **options})
        with pytest.raises(tw.InvalidArgument, match="handles one message at a time"):
            node.agent(Ledger(), id="x", durable="state", concurrency=2)
        refused = [
            ({"type": "t"}, "type: 't' is not allowed with durable=True: give ids"),
            ({"to": "x", "receipt": True}, "receipt: True is not allowed with durable=True"),
            ({"to": []}, r"to: \[\] is not allowed: give the id of an agent"),
        ]
        for options, said in refused:
            with pytest.raises(tw.InvalidArgument, match=said):
                desk.send(1, durable=True, **options)
        with pytest.raises(tw.PayloadTooLarge, match="524,288 are allowed"):
            desk.send(b"x" * 600_000, to="x", durable=True)
        with pytest.raises(tw.InvalidArgument, match="is not durable"):
            await desk.active()
        with pytest.raises(tw.NotFound, match="no durable agent with this id"):
            await node.durable_agent("nobody")
        big = with_agent(node, Big(), "big", durable="state")
        await big.active(PATIENCE)
        with pytest.raises(tw.PayloadTooLarge, match="its state takes"):
            await desk.request(600_000, to="big")
        assert await desk.request(3, to="big") == "xxx"
    async with tw.Node() as plain:
        with pytest.raises(tw.InvalidArgument, match="no place for streams"):
            with_agent(plain, Ledger(), "x", durable="state")


class Big(tw.Agent):
    state = ""

    async def receive(self, size: int) -> str:
        self.state += "x" * size
        return self.state


CHILD = """
import os, signal, sys
import asyncio
import tidewire as tw
from test_durable_agents import Sums, Ledger, Deposit

class Dying(Ledger):
    @tw.handle
    async def on_deposit(self, deposit: Deposit) -> None:
        await Ledger.on_deposit(self, deposit)
        if deposit.account == "poison":
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with tw.Node(sys.argv[1]) as node:
        agent = node.agent(Dying(), id=sys.argv[2], durable="state")
        print(await agent.active(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def child(started: Programs, url: str | None) -> Program:
    assert url is not None
    return started.run("-c", CHILD, url, "ledger", env={"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.promise("P17.92")
@pytest.mark.parametrize("kind", ["hub", "nats"])
async def test_a_message_that_kills_each_process_that_has_it_ends_in_the_dead_letters(
    kind: str, started: Programs, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        desk = node.agent(lambda payload: None, id="desk")
        for account, cents in (("anna", 5), ("poison", 1), ("bert", 7)):
            await desk.send(Deposit(account, cents), to="ledger", durable=True)
        ends = 0
        while True:
            process = child(started, node.url)
            ended = asyncio.ensure_future(asyncio.to_thread(process.process.wait))
            done = asyncio.ensure_future(over(node, "ledger", 3))
            await asyncio.wait({ended, done}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            assert ended.done() or done.done()
            if not ended.done():
                process.kill()
                break
            done.cancel()
            assert ended.result() == -signal.SIGKILL
            ends += 1
        info = await node.durable_agent("ledger")
        assert (info.handled, info.dead, info.state) in (
            (2, 1, {"cents": {"anna": 5, "bert": 7}, "seen": 2}),
            (2, 1, Sums({"anna": 5, "bert": 7}, 2)),
        )
        [letter] = await node.agent_dead_letters("ledger")
        assert (letter.reason, letter.attempts, ends) == ("lost", 5, 6), "the first process was not known to have died"


@pytest.mark.promise("P17.79", "P17.82", "P17.83", "P17.87", "P17.89")
@pytest.mark.parametrize("kind", ["hub", "nats"])
async def test_a_conversation_ends_with_the_same_sums_although_its_processes_are_killed(
    kind: str, started: Programs, tmp_path: Path
) -> None:
    count = 60
    async with nodes(kind, tmp_path, 1) as (node,):
        told = with_agent(node, Told(count), "told", durable="inbox")
        desk = node.agent(lambda payload: None, id="desk")
        stop = asyncio.Event()

        async def kept_alive() -> None:
            """Start the process anew whenever it has been killed after some messages."""
            for killed_at in (7, 19, 23, 40, None):
                process = child(started, node.url)
                await (stop.wait() if killed_at is None else over(node, "ledger", killed_at))
                process.kill()

        keeper = asyncio.ensure_future(kept_alive())
        for number in range(count):
            await desk.send(Deposit(f"account-{number % 3}", number), to="ledger", durable=True)
        await asyncio.wait_for(told.all.wait(), 2 * PATIENCE)
        info = await over(node, "ledger", count)
        stop.set()
        await keeper
        sums = {f"account-{of}": sum(range(of, count, 3)) for of in range(3)}
        assert info.state in ({"cents": sums, "seen": count}, Sums(sums, count))
        plain: dict[str, int] = {}
        wanted = []
        for number in range(count):
            name = f"account-{number % 3}"
            plain[name] = plain.get(name, 0) + number
            wanted.append([name, plain[name]])
        assert [payload for _, _, payload in told.came] == wanted, "each once, in order"


async def tidewire(*args: object, json_wanted: bool = True) -> tuple[int, Any]:
    """Run ``tidewire agent``: its exit code, and what it printed."""
    [ended] = await asyncio.to_thread(run_all, ["agent", *map(str, args), *(["--json"] if json_wanted else [])])
    return said(ended) if json_wanted else (ended.returncode, ended.stdout or ended.stderr)


async def test_durable_agents_are_listed_shown_and_their_dead_letters_requeued_and_dropped(tmp_path: Path) -> None:
    at = ("--at", tmp_path)
    async with tw.Node(data=tmp_path) as node:
        await node.stream("orders", subjects=["orders.>"])
    assert await tidewire("ls", *at, json_wanted=False) == (0, "no durable agents\n")
    async with tw.Node(data=tmp_path, name="shop") as node:
        desk = node.agent(lambda payload: None, id="desk")
        with_agent(node, Ledger(), "ledger", durable="state")
        for cents in (5, -1, -2):
            await desk.send(Deposit("anna", cents), to="ledger", durable=True)
        await over(node, "ledger", 3)
    code, [listed] = await tidewire("ls", *at)
    assert (code, listed["id"], listed["handled"], listed["dead"], listed["lag"]) == (0, "ledger", 1, 2, 0)
    code, shown = await tidewire("show", "ledger", *at)
    assert (code, shown["holder"], shown["state"]) == (0, "shop", {"cents": {"anna": 5}, "seen": 1})
    assert [(one["stage"], one["sender"]) for one in shown["messages"]] == [
        ("over", "desk"),
        ("dead", "desk"),
        ("dead", "desk"),
    ]
    assert [letter["error"] for letter in shown["dead_letters"]] == ["ValueError: -1 cents", "ValueError: -2 cents"]
    code, text = await tidewire("show", "ledger", *at, json_wanted=False)
    assert code == 0 and "dead letter 2, failed after 1 attempts: ValueError: -1 cents" in text, text
    assert await tidewire("requeue", "ledger", 2, *at) == (0, {"requeued": 1})
    assert await tidewire("drop", "ledger", 3, *at) == (0, {"dropped": 1})
    assert await tidewire("requeue", "ledger", *at) == (1, {"requeued": 0})
    code, shown = await tidewire("show", "ledger", *at)
    assert (shown["lag"], shown["dead"], shown["messages"][-1]["stage"]) == (1, 0, "waiting")
    code, text = await tidewire("show", "nobody", *at)
    assert code == 1 and "no durable agent with this id" in str(text), (code, text)
