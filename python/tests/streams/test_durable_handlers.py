"""Handlers of durable events, ``@tw.on(subject, durable=...)``: in a folder, at a hub and on
NATS.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import queue
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, every_home, nodes
from link_processes import Program, Programs
from link_stories import joined
from tidewire.testing import Link


@dataclass
class Order:
    number: int
    customer: str = ""


class Billing(tw.Service):
    """Bills orders; what it is told to refuse, it refuses."""

    def __init__(self, other: Billing | None = None) -> None:
        self.billed: list[tuple[int, int]] = [] if other is None else other.billed
        self.refused: set[int] = set()
        self.changed = asyncio.Condition() if other is None else other.changed

    @tw.on("orders.*", durable="billing", start="all", max_deliver=3, backoff=(0.01, 0.02))
    async def on_order(self, order: Order, event: tw.Event, call: tw.CallContext) -> None:
        assert call.subject == event.subject and isinstance(order, Order)
        if order.number in self.refused:
            raise LookupError(f"no customer {order.customer!r}")
        async with self.changed:
            self.billed.append((order.number, event.delivery))
            self.changed.notify_all()

    async def until(self, count: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.billed) >= count), PATIENCE)


async def until(look: Callable[[], Awaitable[Any]], is_enough: Callable[[Any], bool]) -> Any:
    """Look again and again: acks and dead letters are told to nobody."""

    async def looking() -> Any:
        while not is_enough(found := await look()):
            await asyncio.sleep(0.01)
        return found

    return await asyncio.wait_for(looking(), PATIENCE)


@pytest.mark.promise("P17.46")
async def test_those_who_serve_a_handler_share_its_events_and_each_is_acked_once(homes: list[tw.Node]) -> None:
    one, two = homes
    orders = await one.stream("orders", subjects=["orders.>"])
    first = Billing()
    served = await one.serve(first), await two.serve(Billing(first))
    async with orders.publisher() as out:
        for number in range(200):
            await out.publish("orders.created", Order(number))
    await orders.publish("orders.deep.created", "not for them")
    await first.until(200)
    assert sorted(first.billed) == [(number, 1) for number in range(200)]
    ledgers = [await one.stop() for one in served]
    assert all(ledger.balanced for ledger in ledgers)
    info = await (await orders.consumer("billing", filter="orders.*", max_deliver=3, backoff=(0.01, 0.02))).info()
    assert (info.in_flight, info.dead, info.redelivered) == (0, 0, 0)


@pytest.mark.promise("P17.48")
async def test_an_event_whose_handler_raises_comes_again_and_then_is_a_dead_letter(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])
    billing = Billing()
    billing.refused = {1}
    served = await home.serve(billing)
    for number in range(3):
        await orders.publish("orders.created", Order(number, "nobody"))
    await orders.publish("orders.created", "no order at all")
    await billing.until(2)
    dead = await until(served.consumers["billing"].dead_letters, lambda dead: len(dead) == 2)
    assert [(one.sequence, one.deliveries) for one in dead] == [(2, 3), (4, 3)]
    assert dead[0].error == "LookupError: no customer 'nobody'"
    assert "on_order" in dead[0].traceback and "InvalidArgument: billing.on_order: order" in dead[1].error
    billing.refused.clear()
    assert await served.consumers["billing"].requeue(2) == 1
    await billing.until(3)
    assert billing.billed == [(0, 1), (2, 1), (1, 1)]


@pytest.mark.promise("P17.50")
async def test_begun_events_end_before_their_service_and_the_rest_goes_to_others(homes: list[tw.Node]) -> None:
    inside, going_on, all_handled = asyncio.Event(), asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    class Slow(tw.Service):
        @tw.on("orders.*", durable="slow", start="all", ack_wait=60.0, max_deliver=2)
        async def on_order(self, number: int) -> None:
            inside.set()
            await going_on.wait()
            handled.append(number)
            if len(handled) == 20:
                all_handled.set()

    one, two = homes
    orders = await one.stream("orders", subjects=["orders.>"])
    served = await one.serve(Slow())
    await asyncio.gather(*(orders.publish("orders.created", number) for number in range(20)))
    await asyncio.wait_for(inside.wait(), PATIENCE)
    stopping = asyncio.ensure_future(served.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    going_on.set()
    await asyncio.wait_for(stopping, PATIENCE)
    assert handled
    before = len(handled)
    await two.serve(Slow())
    await asyncio.wait_for(all_handled.wait(), PATIENCE)
    assert sorted(handled) == list(range(20)), (before, handled)


@pytest.mark.promise("P17.50")
@pytest.mark.parametrize("kind", ["folder", "hub"])
async def test_events_in_transit_when_a_service_stops_go_to_others_at_once(kind: str, tmp_path: Path) -> None:
    rounds, each = 30, 50
    async with nodes(kind, tmp_path) as (one, two):
        orders = await one.stream("orders", subjects=["orders.>"])
        billing = Billing()
        for number in range(rounds):
            async with orders.publisher() as out:
                for order in range(each):
                    await out.publish("orders.created", Order(number * each + order))
            served = await (one, two)[number % 2].serve(Billing(billing))
            await billing.until(number * each + 1)
            await served.stop()
        await one.serve(Billing(billing))
        # Its ack wait is 30 s: what is handled in time was given back.
        await billing.until(rounds * each)
        assert sorted(billing.billed) == [(number, 1) for number in range(rounds * each)]


@pytest.mark.promise("P17.49")
async def test_a_service_that_is_cut_gives_back_what_it_was_at(homes: list[tw.Node]) -> None:
    inside = asyncio.Event()
    interrupted: list[int] = []

    class Stuck(tw.Service):
        @tw.on("orders.*", durable="shared", start="all", ack_wait=600.0, concurrency=3)
        async def on_order(self, number: int) -> None:
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                interrupted.append(number)

    one, _ = homes
    orders = await one.stream("orders", subjects=["orders.>"])
    served = await one.serve(Stuck())
    await asyncio.gather(*(orders.publish("orders.created", number) for number in range(10)))
    await asyncio.wait_for(inside.wait(), PATIENCE)
    await served.stop(drain=False)
    assert 1 <= len(interrupted) <= 3
    rest = await orders.consumer("shared", filter="orders.*", ack_wait=600.0)
    found = []
    for _ in range(10):
        event = await rest.next(timeout=PATIENCE)
        assert event is not None, "what was given back comes at once, long before its ack wait"
        found.append(event.value)
        await event.ack()
    assert sorted(found) == list(range(10))


@pytest.mark.parametrize("kind", ["folder", "hub"])
async def test_keys_keep_their_order_with_many_at_once_and_a_key_that_fails_holds_back_only_itself(
    kind: str, tmp_path: Path
) -> None:
    seen: dict[str, list[int]] = {}
    failing = {"c3"}
    done = asyncio.Event()

    class Keyed(tw.Service):
        @tw.on(
            "orders.*", durable="keyed", start="all", order="key", concurrency=16, max_deliver=1_000, backoff=(0.01,)
        )
        async def on_order(self, order: Order) -> None:
            await asyncio.sleep(0)
            if order.customer in failing:
                raise RuntimeError("not yet")
            seen.setdefault(order.customer, []).append(order.number)
            if sum(map(len, seen.values())) == 270:
                failing.clear()
            if sum(map(len, seen.values())) == 300:
                done.set()

    async with nodes(kind, tmp_path, 1) as (node,):
        orders = await node.stream("orders", subjects=["orders.>"])
        await node.serve(Keyed())
        async with orders.publisher() as out:
            for number in range(300):
                await out.publish("orders.x", Order(number, f"c{number % 10}"), key=f"c{number % 10}")
        await asyncio.wait_for(done.wait(), PATIENCE)
        assert seen == {f"c{key}": list(range(key, 300, 10)) for key in range(10)}


@every_home
async def test_a_broadcast_reaches_every_instance_and_a_pause_stops_delivery(kind: str, tmp_path: Path) -> None:
    class Cache(tw.Service):
        def __init__(self) -> None:
            self.seen: asyncio.Queue[int] = asyncio.Queue(100)

        @tw.on("prices.*", durable="cache", mode="broadcast")
        async def on_price(self, price: int) -> None:
            await self.seen.put(price)

    async with nodes(kind, tmp_path) as (one, two):
        prices = await one.stream("prices", subjects=["prices.>"])
        caches = Cache(), Cache()
        served = await one.serve(caches[0]), await two.serve(caches[1])
        for price in range(5):
            await prices.publish("prices.x", price)
        for cache in caches:
            assert [await asyncio.wait_for(cache.seen.get(), PATIENCE) for _ in range(5)] == list(range(5))
        if kind == "nats":
            return
        consumer = served[0].consumers["cache"]
        await consumer.pause()
        await prices.publish("prices.x", 5)
        assert await asyncio.wait_for(caches[1].seen.get(), PATIENCE) == 5
        assert (await consumer.info()).is_paused and caches[0].seen.empty()
        await consumer.resume()
        assert await asyncio.wait_for(caches[0].seen.get(), PATIENCE) == 5


@every_home
async def test_plain_functions_run_on_threads_several_at_once(kind: str, tmp_path: Path) -> None:
    at_once = threading.Barrier(4)
    threads: Counter[str] = Counter()

    class Plain(tw.Service):
        @tw.on("jobs.*", durable="plain", start="all", concurrency=4, ack_wait=600.0)
        def on_job(self, event: tw.Event) -> None:
            assert event.value in range(8)
            at_once.wait(PATIENCE)
            threads[threading.current_thread().name] += 1

    async with nodes(kind, tmp_path, 1, config={"dispatchers": {"io": {"threads": 4}}}) as (node,):
        jobs = await node.stream("jobs", subjects=["jobs.>"])
        served = await node.serve(Plain(), dispatcher="io")
        for number in range(8):
            await jobs.publish("jobs.x", number)
        await until(served.consumers["plain"].info, lambda info: info.acked_to == 8)
        assert sum(threads.values()) == 8


def test_a_plain_thread_serves_handlers_and_is_told_what_is_wrong(tmp_path: Path) -> None:
    handled = threading.Event()

    class Plain(tw.Service):
        @tw.on("jobs.*", durable="plain")
        def on_job(self, job: str) -> None:
            assert job == "one"
            handled.set()

    with tw.Node(data=tmp_path) as node:
        with pytest.raises(tw.NotFound, match=r"plain.on_job: no stream takes 'jobs.\*': make one"):
            node.serve(Plain())
        node.sync.idle(PATIENCE)
        jobs = node.sync.stream("jobs", subjects=["jobs.>"])
        served = node.serve(Plain())
        jobs.publish("jobs.a", "one")
        assert handled.wait(PATIENCE)
        assert served.sync.stop().balanced
    with tw.Node() as node, pytest.raises(tw.InvalidArgument, match="data: this node has no place for streams"):
        node.serve(Plain())


async def test_errors_of_a_handler_declaration_are_named(tmp_path: Path) -> None:
    with pytest.raises(tw.InvalidArgument) as wrong:

        class Wrong(tw.Service):
            @tw.on("a.*", durable="no name", mode="all", max_deliver=-1, backoff="1", consurrency=2)  # type: ignore
            async def one(self, message: str) -> None: ...

            @tw.on("a.*", ack_wait=3)
            async def two(self, message: str) -> None: ...

            @tw.on("a.*", durable="same", queue="q")
            async def three(self, message: str, other: int) -> None: ...

            @tw.on("b.*", durable="same")
            async def four(self, event: tw.Event, another: tw.Event) -> None: ...

    said = str(wrong.value)
    for part in (
        "one: durable: 'no name' is not allowed: give 1 to 64 letters",
        "one: mode: 'all' is not allowed: give 'compete' or 'broadcast'",
        "one: max_deliver: -1 is not allowed",
        "one: backoff: '1' is not allowed",
        "one: consurrency: there is no such option of a durable handler",
        "two: ack_wait: it is for durable handlers",
        "three: queue: it is not allowed with durable=",
        "four: durable: 'same' is the consumer of three too",
        "four: another: a handler takes one tw.Event",
    ):
        assert part in said, said

    class Two(tw.Service):
        @tw.on("a.>", durable="two", max_deliver=7)
        async def on_a(self, message: str) -> None: ...

    async with tw.Node(data=tmp_path) as node:
        await node.stream("left", subjects=["a.left.>"])
        right = await node.stream("right", subjects=["a.right.>"])
        with pytest.raises(tw.InvalidArgument, match=r"streams left, right take 'a.>': say stream="):
            await node.serve(Two())
        await (await node.find_stream("left")).delete()
        await right.consumer("two", filter="a.>", max_deliver=6)
        with pytest.raises(tw.SettingsDiffer, match="max_deliver is 6, not 7"):
            await node.serve(Two())
        await node.idle(PATIENCE)
        assert await node.services() == []


WORKER = """
import sys
import tidewire as tw

class Billing(tw.Service):
    @tw.on("orders.*", durable="billing", start="all", ack_wait=2.0, backoff=(0.0,))
    async def on_order(self, number: int) -> None:
        print(number, flush=True)

    @tw.method(idempotent=True)
    async def double(self, number: int) -> int:
        return 2 * number

async def main():
    async with tw.Node(sys.argv[1]) as node:
        await node.serve(Billing())
        print("serves", flush=True)
        await node.run_forever()
    print("ended", flush=True)

tw.run(main())
"""


@pytest.mark.promise("P17.47", "P17.51")
async def test_restarts_of_a_hub_and_its_workers_under_load_lose_nothing(tmp_path: Path, started: Programs) -> None:
    handled, serving, progressed, acked = queue.Queue[str](), queue.Queue[str](), asyncio.Event(), 0

    def hear(worker: Program) -> None:
        with contextlib.suppress(AssertionError):  # it was killed
            while (line := worker.line()) != "ended":
                (serving if line == "serves" else handled).put(line)

    async def serve() -> Program:
        worker = started.run("-c", WORKER, url)
        threading.Thread(target=hear, args=(worker,), daemon=True).start()
        await asyncio.to_thread(serving.get, timeout=PATIENCE)
        return worker

    async def insist(make: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await make()
            except tw.TidewireError as error:
                assert error.retryable, error
                await joined(node)

    async def load() -> None:
        nonlocal acked
        for number in itertools.count():
            # An event that was stored before its ack was lost is not stored again.
            await insist(functools.partial(orders.publish, "orders.made", number, id=str(number)))
            assert await insist(functools.partial(node.client("billing").double, number)) == 2 * number
            acked += 1
            progressed.set()

    async def more() -> None:
        for _ in range(50):
            progressed.clear()
            await asyncio.wait(
                [loading, ended := asyncio.ensure_future(progressed.wait())], return_when="FIRST_COMPLETED"
            )
            assert ended.done(), await loading

    hub, url = started.hub("tide://127.0.0.1:0", "--data", str(tmp_path))
    async with tw.Node(url) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        workers = [await serve(), await serve()]
        loading = asyncio.ensure_future(load())
        for restarted in (workers[0], hub, workers[1], "killed"):
            await more()
            program = workers[2] if isinstance(restarted, str) else restarted
            program.signal(signal.SIGKILL if restarted == "killed" else signal.SIGTERM)
            assert await asyncio.to_thread(program.ended) == (-signal.SIGKILL if restarted == "killed" else 0)
            if program is hub:
                hub, _ = await asyncio.to_thread(started.hub, url, "--data", str(tmp_path))
            else:
                workers.append(await serve())
        await more()
        loading.cancel()
        missing = {str(number) for number in range(acked)}
        while missing:
            missing.discard(await asyncio.to_thread(handled.get, timeout=PATIENCE))
        assert [event.value async for event in orders.read()][:acked] == list(range(acked))


async def test_an_event_whose_handler_ends_while_the_link_is_lost_is_settled_once(tmp_path: Path) -> None:
    began, gate, deliveries = asyncio.Event(), asyncio.Event(), []

    class Billing(tw.Service):
        @tw.on("orders.>", durable="billing", ack_wait=20.0)
        async def bill(self, number: int, event: tw.Event) -> None:
            deliveries.append(event.delivery)
            began.set()
            await gate.wait()

    async with tw.Node(data=tmp_path) as hub:
        orders = await hub.stream("orders", subjects=["orders.>"])
        link = Link(hub.listen("tide://127.0.0.1:0").url)
        async with tw.Node(link.url) as node:
            await node.serve(Billing())
            there = await node.find_stream("orders")
            others = await there.consumer("others", start="all")
            await orders.publish("orders.new", 1)
            await began.wait()
            link.drop()
            with pytest.raises(tw.HomeUnavailable):
                while True:
                    await there.info()
            gate.set()
            # The handler ends, and its settlement finds no link.
            link.heal()
            await others.next()
        (billing,) = [info for info in await orders.consumers() if info.name == "billing"]
        assert (billing.acked_to, billing.redelivered, deliveries) == (1, 0, [1])
        link.close()
