"""Services: calls, their context, their time and their end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import tidewire as tw
from tidewire._limits import SERVICE_WAITING
from tidewire.services.context import CallContext, context
from tidewire.services.declare import Service, method, on
from tidewire.services.declare import service as declared
from tidewire.services.port import Request
from tidewire.services.proxy import client
from tidewire.services.registry import registry_of
from tidewire.services.serving import Served, known, serve, services

Run = Callable[[Callable[[tw.Node], Any]], Any]
PATIENCE = 30.0


@dataclass
class Quote:
    symbol: str
    price: float


class Pricing(Service):
    """Prices of things."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[tuple[Quote, str | None]] = asyncio.Queue()

    @method
    async def quote(self, symbol: str, qty: int = 1) -> Quote:
        """Quote a price."""
        return Quote(symbol, 2.0 * qty)

    @method(name="where")
    def thread(self) -> str:
        return threading.current_thread().name

    @method
    async def fail(self, kind: str) -> None:
        raise {"key": KeyError, "exit": SystemExit, "stop": StopIteration, "gone": asyncio.CancelledError}[kind](kind)

    @method
    def fail_plainly(self, kind: type[BaseException] = LookupError) -> None:
        raise kind("plainly")

    @on("orders.*")
    async def on_order(self, order: Quote, call: CallContext) -> None:
        await self.orders.put((order, call.subject))


class Hanging(Service):
    """Handlers that the test holds, and looks at."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.left: asyncio.Queue[str] = asyncio.Queue()
        self.thread_inside = threading.Event()
        self.thread_open = threading.Event()
        self.seen_cancelled = threading.Event()

    @method
    async def hang(self) -> str:
        self.inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.put_nowait("cancelled")
            raise
        finally:
            self.left.put_nowait("finally")
        return "never"

    @method
    def block(self, call: CallContext) -> str:
        self.thread_inside.set()
        assert self.thread_open.wait(PATIENCE)
        if call.cancelled:
            self.seen_cancelled.set()
        return "blocked"

    @method
    async def ping(self) -> str:
        return "pong"


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


def test_a_typed_client_calls_coroutines_and_plain_functions(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = await serve(node, Pricing())
        pricing = client(node, Pricing)
        assert await pricing.quote("X", qty=3) == Quote("X", 6.0)
        assert await pricing.quote(qty=2, symbol="Y") == Quote("Y", 4.0)
        where = await client(node, "pricing").where()
        assert where != threading.current_thread().name, "a plain function must not hold the loop up"
        assert served.statistics()["calls"] == 3

    run(story)


def test_a_call_is_a_coroutine_that_tasks_and_gather_take(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        serve(node, Pricing())
        pricing = client(node, Pricing)
        made = asyncio.create_task(pricing.quote("X"))
        several = await soon(asyncio.gather(*(pricing.quote("Y", n) for n in range(100))))
        assert (await made).price == 2.0
        assert [quote.price for quote in several] == [2.0 * n for n in range(100)]
        call = pricing.quote("Z")
        await call
        with pytest.raises(RuntimeError, match="awaited already"):
            await call

    run(story)


def test_a_call_that_is_never_awaited_warns(node: tw.Node) -> None:
    serve(node, Pricing())
    with pytest.warns(RuntimeWarning, match=r"pricing\.quote was called and never awaited"):
        client(node, Pricing).quote("X")


def test_plain_threads_have_a_blocking_form(node: tw.Node) -> None:
    served = serve(node, Pricing())
    pricing = client(node, Pricing)
    assert pricing.sync.quote("X", 2) == Quote("X", 4.0)
    with pytest.raises(LookupError, match="plainly"):
        pricing.sync.fail_plainly()
    assert served.sync.stop().balanced
    with pytest.raises(tw.NoResponders):
        pricing.sync.quote("X")


def test_the_blocking_form_is_refused_on_a_loop(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = serve(node, Pricing())
        with pytest.raises(tw.InvalidArgument, match="block this thread's event loop"):
            client(node, Pricing).sync.quote("X")
        with pytest.raises(tw.InvalidArgument, match="block this thread's event loop"):
            served.sync.stop()

    run(story)


def test_errors_of_a_handler_reach_the_caller_and_nobody_else(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = serve(node, Pricing())
        pricing = client(node, Pricing)
        with pytest.raises(KeyError, match="key"):
            await pricing.fail("key")
        with pytest.raises(LookupError, match="plainly"):
            await client(node, "pricing").fail_plainly()
        with pytest.raises(tw.RemoteError, match="SystemExit") as left:
            await pricing.fail("exit")
        assert "in fail" in left.value.remote_traceback
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await pricing.fail("stop")
        for kind in (StopIteration, StopAsyncIteration):
            with pytest.raises(RuntimeError, match=f"pricing.fail_plainly raised {kind.__name__}"):
                await client(node, "pricing").fail_plainly(kind)
        assert await pricing.quote("X") == Quote("X", 2.0)
        assert served.statistics()["errors"] == 6
        assert not node.dead_letters.list()

    run(story)


@pytest.mark.skipif(not hasattr(asyncio.Task, "cancelling"), reason="before Python 3.11 nobody can tell them apart")
def test_a_handler_whose_own_task_was_cancelled_does_not_cancel_its_caller(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        serve(node, Pricing())
        pricing = client(node, Pricing)
        with pytest.raises(tw.RemoteError, match="CancelledError"):
            await pricing.fail("gone")
        assert await pricing.quote("X") == Quote("X", 2.0)

    run(story)


# Deadlines and cancellation


def test_a_caller_that_cancels_cancels_the_handler(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        hanging = Hanging()
        served = serve(node, hanging)
        calls = client(node, Hanging)
        task = asyncio.create_task(calls.hang())
        await soon(hanging.inside.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [await soon(hanging.left.get()) for _ in range(2)] == ["cancelled", "finally"]
        assert await calls.ping() == "pong", "the task of the actor goes on with other calls"
        counted = served.statistics()
        assert (counted["cancelled"], counted["in_flight"]) == (1, 0)

    run(story)


def test_a_deadline_ends_the_call_and_its_handler(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        hanging = Hanging()
        serve(node, hanging)
        with pytest.raises(tw.AskTimeout, match=r"hanging\.hang: no answer in time") as late:
            await client(node, Hanging).with_(timeout=0.05).hang()
        assert late.value.retryable
        assert [await soon(hanging.left.get()) for _ in range(2)] == ["cancelled", "finally"]

    run(story)


def test_a_plain_function_sees_that_nobody_waits_for_it(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        hanging = Hanging()
        served = serve(node, hanging)
        task = asyncio.create_task(client(node, "hanging").block())
        await soon(asyncio.to_thread(hanging.thread_inside.wait, PATIENCE))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hanging.thread_open.set()
        assert await soon(asyncio.to_thread(hanging.seen_cancelled.wait, PATIENCE))
        while served.statistics()["in_flight"]:
            await asyncio.sleep(0)
        assert served.statistics()["cancelled"] == 1

    run(story)


def test_nested_calls_have_what_is_left_of_the_time(run: Run) -> None:
    class Inner(Service):
        @method
        async def left(self, call: CallContext) -> float:
            assert call.remaining is not None
            return call.remaining

        @method
        def left_plainly(self) -> float:
            remaining = context().remaining
            assert remaining is not None
            return remaining

    class Outer(Service):
        @method
        async def ask(self) -> tuple[float, float, float]:
            inner = client(node_of[0], Inner)
            mine = context().remaining
            assert mine is not None
            return mine, await inner.left(), await client(node_of[0], "inner").left_plainly()

        @method
        def ask_plainly(self) -> float:
            left: float = client(node_of[0], Inner).with_(timeout=20.0).sync.left()
            return left

    node_of: list[tw.Node] = []

    async def story(node: tw.Node) -> None:
        node_of.append(node)
        serve(node, Inner())
        serve(node, Outer())
        outer = client(node, Outer).with_(timeout=5.0)
        mine, inner, plain = await outer.ask()
        assert 0 < plain <= inner <= mine <= 5.0
        assert 0 < await client(node, "outer").with_(timeout=5.0).ask_plainly() <= 5.0
        assert 5.0 < await client(node, "outer").ask_plainly() <= 20.0, "a call may have less than what is left"
        assert await client(node, Inner).left() > 20.0, "the default is 30 s"

    run(story)


def test_a_handler_that_nobody_waits_for_calls_nobody(run: Run) -> None:
    class Outer(Service):
        def __init__(self, node: tw.Node) -> None:
            self.node = node
            self.told: asyncio.Queue[BaseException] = asyncio.Queue()
            self.inside = asyncio.Event()

        @method
        async def ask(self) -> None:
            self.inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    await client(self.node, Hanging).ping()
                except tw.TidewireError as error:
                    self.told.put_nowait(error)

    async def story(node: tw.Node) -> None:
        outer = Outer(node)
        serve(node, Hanging())
        serve(node, outer)
        task = asyncio.create_task(client(node, Outer).ask())
        await soon(outer.inside.wait())
        task.cancel()
        error = await soon(outer.told.get())
        assert isinstance(error, tw.AskTimeout)
        assert "nobody waits for outer.ask any more" in str(error)

    run(story)


def test_a_method_may_say_how_long_it_takes(run: Run) -> None:
    class Slow(Service):
        @method(timeout=60.0)
        async def left(self, call: CallContext) -> float:
            assert call.remaining is not None
            return call.remaining

    async def story(node: tw.Node) -> None:
        serve(node, Slow())
        assert await client(node, Slow).left() > 30.0
        assert await client(node, "slow").left() > 30.0
        assert await client(node, Slow).with_(timeout=1.0).left() <= 1.0

    run(story)


@pytest.mark.skipif(not hasattr(asyncio.Task, "uncancel"), reason="tasks count their cancellations from Python 3.11 on")
def test_a_call_does_not_see_that_the_one_before_it_was_cancelled(run: Run) -> None:
    class Counting(Hanging):
        @method
        async def cancellations(self) -> int:
            task: Any = asyncio.current_task()
            return int(task.cancelling())

    async def story(node: tw.Node) -> None:
        counting = Counting()
        serve(node, counting, concurrency=1)
        calls = client(node, Counting)
        task = asyncio.create_task(calls.hang())
        await soon(counting.inside.wait())
        after = asyncio.create_task(calls.cancellations())
        await asyncio.sleep(0)
        task.cancel()
        assert await soon(after) == 0

    run(story)


# Context


def test_a_handler_sees_who_called(run: Run) -> None:
    class Seen(Service):
        @method
        async def see(self, first: int, call: CallContext, second: int = 2) -> tuple[Any, ...]:
            inner = await client(call_node[0], "seen").inner()
            assert context().trace == call.trace
            return (
                first,
                second,
                call.node,
                call.user,
                dict(call.headers),
                call.method,
                inner == call.trace,
                call.subject,
            )

        @method
        def inner(self) -> str:
            return context().trace

    call_node: list[tw.Node] = []

    async def story(node: tw.Node) -> None:
        call_node.append(node)
        serve(node, Seen())
        seen = client(node, Seen).with_(headers={"tenant": "a"})
        expected = (node.name, None, {"tenant": "a"}, "see", True, None)
        assert await seen.see(1) == (1, 2, *expected)
        assert await seen.see(1, 3) == (1, 3, *expected)
        assert await seen.see(second=4, first=0) == (0, 4, *expected)
        one, other = await client(node, "seen").inner(), await client(node, "seen").inner()
        assert one != other
        assert len(one) == 32
        with pytest.raises(tw.InvalidArgument, match="no call is under way here"):
            context()

    run(story)


# Events


def test_events_reach_their_handler_with_their_type(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        pricing = Pricing()
        served = serve(node, pricing)
        assert node.publish("orders.new", {"symbol": "X", "price": 1}) == 1
        assert await soon(pricing.orders.get()) == (Quote("X", 1.0), "orders.new")
        node.publish("orders.wrong", {"symbol": "X"})
        await served.stop()
        (letter,) = node.dead_letters.list()
        assert "pricing.on_order: order:" in str(letter.error)
        assert node.publish("orders.late", {}) == 0

    run(story)


def test_instances_share_the_events_of_a_queue(node: tw.Node) -> None:
    done = threading.Semaphore(0)

    class Counter(Service):
        def __init__(self) -> None:
            self.seen: list[int] = []

        @on("numbers.*", queue="counters")
        def count(self, n: int) -> None:
            self.seen.append(n)
            done.release()

    one, other = Counter(), Counter()
    serve(node, one)
    serve(node, other)
    for n in range(100):
        assert node.publish("numbers.next", n) == 1
    for _ in range(100):
        assert done.acquire(timeout=PATIENCE)
    assert sorted(one.seen + other.seen) == list(range(100))
    assert one.seen
    assert other.seen


# What can be served


def test_functions_and_dicts_of_functions_can_be_served(run: Run) -> None:
    async def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    def count(n: int) -> Any:
        yield from range(n)

    async def story(node: tw.Node) -> None:
        serve(node, {"add": lambda a, b: a + b, "double": double, "count": count, "len": len}, name="math")
        math = client(node, "math")
        assert await math.add(1, b=2) == 3
        assert await math.double(4) == 8
        assert [n async for n in math.count(3)] == [0, 1, 2]
        assert await math.len("four") == 4
        serve(node, double)
        assert await client(node, "double").double(5) == 10

    run(story)


def test_any_object_serves_its_public_methods(run: Run) -> None:
    class Thing:
        def __init__(self) -> None:
            self.value = 1

        def get(self) -> int:
            return self.value

        async def add(self, n: int) -> None:
            self.value += n

        @staticmethod
        def twice(n: int) -> int:
            return 2 * n

        @classmethod
        def title(cls) -> str:
            return cls.__name__

        def _hidden(self) -> None: ...

    @declared(name="thing2")
    class Decorated(Thing):
        pass

    async def story(node: tw.Node) -> None:
        served = serve(node, Thing())
        thing = client(node, "thing")
        await thing.add(2)
        assert (await thing.get(), await thing.twice(4), await thing.title()) == (3, 8, "Thing")
        assert [one.name for one in served.info.methods] == ["get", "add", "twice", "title"]
        serve(node, Decorated())
        assert await client(node, Decorated).title() == "Decorated"

    run(story)


def test_an_object_that_derives_from_a_service_is_served_under_its_said_name(run: Run) -> None:
    class Base(Service, name="shop", visibility="public"):
        @method
        async def buy(self, n: int) -> int:
            raise NotImplementedError

    class Real(Base):
        async def buy(self, n: int) -> int:
            return n + 1

    async def story(node: tw.Node) -> None:
        served = serve(node, Real())
        assert (served.name, served.info.visibility) == ("shop", "public")
        assert await client(node, Base).buy(1) == 2

    run(story)


# Instances and their end


def test_several_instances_share_the_calls_and_one_that_stops_is_left_out(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        one, other = serve(node, Pricing(), instance="one"), serve(node, Pricing(), instance="other")
        pricing = client(node, Pricing)
        for _ in range(10):
            await pricing.quote("X")
        assert [served.statistics()["calls"] for served in (one, other)] == [5, 5]
        assert (await services(node))[0].instances == ("one", "other")
        ledger = await one.stop()
        assert (ledger.handled, ledger.balanced) == (5, True)
        assert await one.stop() is ledger
        await pricing.quote("X")
        assert other.statistics()["calls"] == 6
        with pytest.raises(tw.NoResponders, match="'one' is not among its instances"):
            await pricing.with_(instance="one").quote("X")

    run(story)


def test_calls_that_had_begun_are_finished_at_a_stop(run: Run) -> None:
    class Gate(Service):
        def __init__(self) -> None:
            self.inside, self.open = asyncio.Event(), asyncio.Event()

        @method
        async def through(self) -> str:
            self.inside.set()
            await self.open.wait()
            return "through"

    async def story(node: tw.Node) -> None:
        gate = Gate()
        served = serve(node, gate)
        call = asyncio.create_task(client(node, Gate).through())
        await soon(gate.inside.wait())
        stopping = asyncio.create_task(served.stop())
        while known(node):
            await asyncio.sleep(0)
        with pytest.raises(tw.NoResponders, match="gate: nobody serves it"):
            await client(node, Gate).through()
        gate.open.set()
        assert await soon(call) == "through"
        assert (await soon(stopping)).handled == 1

    run(story)


def test_calls_that_wait_at_an_instance_that_stops_go_to_another(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        full, free = Hanging(), Hanging()
        one = serve(node, full, instance="one", concurrency=2)
        calls = client(node, Hanging)
        hung = [asyncio.create_task(calls.with_(timeout=PATIENCE).hang()) for _ in range(2)]
        await soon(full.inside.wait())
        while one.statistics()["in_flight"] < 2:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(calls.ping())
        while one.statistics()["waiting"] < 1:
            await asyncio.sleep(0)
        serve(node, free, instance="other")
        stopping = asyncio.create_task(one.stop(drain=False))
        assert await soon(waiting) == "pong"
        for task in hung:
            task.cancel()
        await soon(asyncio.gather(*hung, return_exceptions=True))
        assert (await soon(stopping)).balanced

    run(story)


def test_a_service_ends_with_its_node() -> None:
    async def main() -> None:
        async with tw.Node() as node:
            served = serve(node, Pricing())
            pricing = client(node, Pricing)
            await pricing.quote("X")
        assert node.ledger is not None
        assert node.ledger.balanced
        assert not known(node)
        with pytest.raises(tw.NodeStopped):
            await pricing.quote("X")
        with pytest.raises(tw.NodeStopped):
            serve(node, Pricing())
        with pytest.raises(tw.NodeStopped):
            client(node, Pricing)
        assert (await served.stop()).balanced

    asyncio.run(main())


def test_callers_on_other_loops_and_threads_are_served_alike(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        serve(node, Pricing())
        pricing = client(node, Pricing)

        async def many() -> float:
            return sum([(await pricing.quote("X", n)).price for n in range(50)])

        def blocking() -> float:
            return sum(pricing.sync.quote("X", n).price for n in range(50))

        jobs = [asyncio.to_thread(asyncio.run, many()) for _ in range(3)]
        jobs += [asyncio.to_thread(blocking) for _ in range(3)]
        assert await soon(asyncio.gather(*jobs)) == [2450.0] * 6

    run(story)


def test_a_thousand_plain_calls_at_once_are_all_answered(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = serve(node, {"double": lambda n: 2 * n}, name="math", concurrency=16)
        math = client(node, "math")
        assert await soon(asyncio.gather(*(math.double(n) for n in range(1000)))) == [2 * n for n in range(1000)]
        assert served._host.crew.idle == len(served._host.crew.actors) <= 16
        assert served.statistics()["calls"] == 1000

    run(story)


def test_calls_that_are_cancelled_at_any_moment_leave_nothing_behind(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = serve(node, {"plain": lambda n: n, "later": _later}, name="either", concurrency=4)
        either = client(node, "either")
        for turn in range(200):
            tasks = [asyncio.create_task(method(turn)) for method in (either.plain, either.later) for _ in range(4)]
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            for task in tasks[:: 1 + turn % 3]:
                task.cancel()
            for result in await soon(asyncio.gather(*tasks, return_exceptions=True)):
                assert result == turn or isinstance(result, asyncio.CancelledError)
        assert [await either.plain(n) for n in range(10)] == list(range(10))
        assert [await either.later(n) for n in range(10)] == list(range(10))
        while served._host.crew.idle < len(served._host.crew.actors):
            await asyncio.sleep(0)
        assert served._host.crew.idle <= 4
        assert (await served.stop()).balanced

    run(story)


async def _later(n: int) -> int:
    for _ in range(3):
        await asyncio.sleep(0)
    return n


def test_a_method_does_not_wait_for_the_end_of_its_own_instance(run: Run) -> None:
    class Ending(Service):
        served: Served

        @method
        async def end(self) -> None:
            await self.served.stop()

        @method
        def end_plainly(self) -> None:
            self.served.sync.stop()

    async def story(node: tw.Node) -> None:
        ending = Ending()
        ending.served = serve(node, ending)
        with pytest.raises(tw.AskCycle, match=r"ending\.end would wait for the end of its own instance"):
            await client(node, Ending).end()
        with pytest.raises(tw.AskCycle):
            await client(node, "ending").end_plainly()
        assert (await ending.served.stop()).balanced

    run(story)


def test_an_instance_handles_as_many_calls_at_once_as_was_said(run: Run) -> None:
    class Busy(Service):
        def __init__(self) -> None:
            self.now = self.most = 0

        @method
        async def work(self) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1

    async def story(node: tw.Node) -> None:
        for concurrency in (1, 3):
            busy = Busy()
            served = serve(node, busy, concurrency=concurrency)
            await asyncio.gather(*(client(node, Busy).work() for _ in range(50)))
            assert busy.most == concurrency
            await served.stop()

    run(story)


def test_one_call_too_many_is_refused(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        hanging = Hanging()
        served = serve(node, hanging, concurrency=1)
        calls = client(node, Hanging)
        hung = asyncio.create_task(calls.hang())
        await soon(hanging.inside.wait())
        waiting = [asyncio.create_task(calls.ping()) for _ in range(SERVICE_WAITING.max)]
        while served.statistics()["waiting"] < SERVICE_WAITING.max:
            await asyncio.sleep(0)
        with pytest.raises(tw.MailboxFull, match=r"hanging\.ping: too many calls wait for the instance"):
            await calls.ping()
        hung.cancel()
        assert set(await soon(asyncio.gather(*waiting))) == {"pong"}

    run(story)


# Visibility


def test_a_method_is_hidden_from_those_who_may_not_call_it(run: Run) -> None:
    class Shop(Service, visibility="public"):
        @method
        async def buy(self) -> str:
            return "bought"

        @method(visibility="private")
        async def restock(self) -> str:
            return "restocked"

        @method(visibility="node")
        async def audit(self) -> str:
            return "audited"

    async def story(node: tw.Node) -> None:
        served = serve(node, Shop())
        assert await client(node, Shop).audit() == "audited"
        for origin, names in (
            ("public", ["buy"]),
            ("private", ["buy", "restock"]),
            ("node", ["buy", "restock", "audit"]),
        ):
            seen = served.info.seen_from(origin)
            assert seen is not None
            assert [one.name for one in seen.methods] == names
        port = registry_of(node).group("shop").ports[served.instance]
        assert await port.call(Request("shop", "restock", (), {}, origin="private", deadline=None)) == "restocked"
        with pytest.raises(tw.NoSuchTarget, match="shop has no method 'restock'"):
            port.call(Request("shop", "restock", (), {}, origin="public"))
        hidden = serve(node, Shop(), name="hidden", visibility="node")
        assert hidden.info.seen_from("private") is None
        assert {one.visibility for one in hidden.info.methods} == {"node"}

    run(story)


# Misuse


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a.b"}, "name: 'a.b' is not allowed: give one token"),
        ({"name": ""}, "name: '' is not allowed"),
        ({"name": "x" * 300}, "give at most 255 bytes"),
        ({"instance": "a b"}, "instance: 'a b' is not allowed: give one token"),
        ({"visibility": "all"}, "visibility: 'all' is not allowed: use one of 'node', 'private', 'public'"),
        ({"concurrency": 0}, "concurrency: 0 is not allowed: give a whole number from 1 to 10,000"),
        ({"concurrency": True}, "concurrency: True is not allowed"),
    ],
)
def test_options_that_are_not_allowed_are_named(node: tw.Node, options: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.InvalidArgument) as wrong:
        serve(node, Pricing(), **options)
    assert said in str(wrong.value)
    assert not known(node)


@pytest.mark.parametrize("target", [None, 3, "text", [len], object(), Pricing, {}, {"a": 3}, {"a": int}])
def test_what_can_not_be_served_is_refused(node: tw.Node, target: Any) -> None:
    with pytest.raises(tw.InvalidArgument):
        serve(node, target, name="thing")
    assert not known(node)


def test_names_that_are_taken_are_refused(node: tw.Node) -> None:
    serve(node, Pricing(), instance="one")
    with pytest.raises(tw.NameTaken, match="instance: 'one' serves 'pricing' already"):
        serve(node, Pricing(), instance="one")
    with pytest.raises(tw.NameTaken, match="'pricing' is served already, with the methods fail, fail_plainly"):
        serve(node, Hanging(), name="pricing")
    with pytest.raises(tw.UnknownDispatcher):
        serve(node, Hanging(), dispatcher="nowhere")
    assert [info.name for info in known(node)] == ["pricing"]


def test_a_dispatcher_is_chosen_for_plain_functions() -> None:
    with tw.Node(config={"dispatchers": {"io": {"threads": 1}}}) as node:
        served: Served = serve(node, {"plain": lambda: "run"}, name="one", dispatcher="io")
        assert client(node, "one").sync.plain() == "run"
        assert served._host.actors[0].statistics()["dispatcher"] == "io"


def test_a_plain_function_that_gives_a_coroutine_says_so(node: tw.Node) -> None:
    serve(node, {"wrapped": lambda: _later(1)}, name="odd")
    with pytest.raises(tw.InvalidArgument, match="a plain function gave a coroutine"):
        client(node, "odd").sync.wrapped()


def test_an_interrupted_wait_leaves_the_service_working(node: tw.Node) -> None:
    hanging = Hanging()
    serve(node, hanging)
    with contextlib.suppress(tw.AskTimeout):
        client(node, Hanging).with_(timeout=0.05).sync.block()
    hanging.thread_open.set()
    assert client(node, Hanging).sync.ping() == "pong"
