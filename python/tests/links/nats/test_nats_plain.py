"""Clients of NATS that are no nodes: they call public services with JSON, and ask them who they are
as the micro protocol has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import nats
import nats.errors
import nats.micro
import pytest
import tidewire as tw
from home_support import PATIENCE
from nats.aio.client import Client
from nats.aio.msg import Msg


@dataclass
class Order:
    """Order of a customer."""

    item: str
    count: int = 1
    due: datetime.date | None = None


class Shop(tw.Service, visibility="public"):
    """Sells things."""

    def __init__(self) -> None:
        self.going_on = asyncio.Event()
        self.may_end = asyncio.Event()

    @tw.method
    async def buy(self, order: Order, note: str = "") -> dict[str, Any]:
        """Buy something."""
        return {"item": order.item, "count": order.count, "due": order.due, "note": note, "raw": b"\x00\xff"}

    @tw.method
    async def fail(self) -> None:
        raise ValueError("no\nsuch thing")

    @tw.method
    async def hold(self) -> str:
        self.going_on.set()
        await self.may_end.wait()
        return "held"

    @tw.method
    async def long(self, count: int) -> str:
        return "x" * count

    @tw.method
    async def about(self) -> dict[str, str]:
        return dict(tw.context().headers)

    @tw.method
    async def count(self, most: int) -> AsyncIterator[int]:
        for number in range(most):
            yield number

    @tw.method(visibility="private")
    async def secret(self) -> int:
        return 7


class Office(tw.Service):
    """Is for nodes alone."""

    @tw.method
    async def work(self) -> int:
        return 1


@asynccontextmanager
async def shop(
    url: str, name: str = "shop", instance: str | None = None, **options: Any
) -> AsyncIterator[tuple[tw.Node, Shop, Any]]:
    """A node that serves."""
    async with tw.Node(url, name=name) as node:
        served = Shop()
        handle = node.serve(served, instance=instance, **options)
        await handle
        yield node, served, handle


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    """A client that is no node."""
    made = await nats.connect(url)
    try:
        yield made
    finally:
        await made.close()


async def offered(plain: Client, subject: str = "$SRV.PING.shop", answers: int = 1) -> list[dict[str, Any]]:
    """Ask until so many have answered: whoever offers a service tells nobody that it does."""
    found: asyncio.Queue[Msg] = asyncio.Queue(100)
    inbox = plain.new_inbox()
    subscription = await plain.subscribe(inbox, cb=found.put)

    async def ask() -> list[dict[str, Any]]:
        said: dict[str, dict[str, Any]] = {}
        await plain.publish(subject, b"", reply=inbox)
        while len(said) < answers:
            told = await found.get()
            if not told.headers:
                answer = json.loads(told.data)
                said[answer["id"]] = answer
        return list(said.values())

    async def until_answered() -> list[dict[str, Any]]:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(ask(), 0.2)

    try:
        return await asyncio.wait_for(until_answered(), PATIENCE)
    finally:
        await subscription.unsubscribe()


async def gone(plain: Client, subject: str = "$SRV.PING.shop") -> None:
    """Ask until nobody is there. A question that comes while an instance leaves may be lost."""
    with pytest.raises(nats.errors.NoRespondersError):
        while True:
            with contextlib.suppress(nats.errors.TimeoutError):
                await plain.request(subject, b"", timeout=0.5)


async def asked(plain: Client, subject: str, value: Any = None, **headers: str) -> Any:
    """Request something, and read the answer."""
    payload = b"" if value is None else json.dumps(value).encode()
    told = await plain.request(subject, payload, timeout=PATIENCE, headers=headers or None)
    code = (told.headers or {}).get("Nats-Service-Error-Code")
    if code is not None:
        assert told.headers is not None
        raise RuntimeError(int(code), told.headers["Nats-Service-Error"], json.loads(told.data))
    return json.loads(told.data)


async def refused(plain: Client, subject: str, value: Any = None, **headers: str) -> tuple[int, str, dict[str, Any]]:
    """Request something that is refused: the status, the line and the problem."""
    with pytest.raises(RuntimeError) as raised:
        await asked(plain, subject, value, **headers)
    code, line, problem = raised.value.args
    assert problem["status"] == code and "\n" not in line
    return code, line, problem


async def test_a_client_calls_with_json_and_gets_json(nats_url: str) -> None:
    async with shop(nats_url), client(nats_url) as plain:
        await offered(plain)
        bought = {"item": "pen", "count": 1, "due": None, "note": "", "raw": {"$type": "bytes", "base64": "AP8="}}
        assert await asked(plain, "svc.shop.buy", [{"item": "pen"}]) == bought
        by_name = {"order": {"item": "ink", "count": 2, "due": "2026-12-24"}, "note": "soon"}
        assert await asked(plain, "svc.shop.buy", by_name) == {
            **bought,
            "item": "ink",
            "count": 2,
            "due": "2026-12-24",
            "note": "soon",
        }
        assert await asked(plain, "svc.shop.count", [3]) == [0, 1, 2]
        headers = {"Tidewire-Header-Customer": "seven"}
        assert (await asked(plain, "svc.shop.about", **headers))["customer"] == "seven"
        calls = [asked(plain, "svc.shop.long", [number]) for number in range(300)]
        assert [len(text) for text in await asyncio.gather(*calls)] == list(range(300))


async def test_an_error_has_a_code_and_a_reason(nats_url: str) -> None:
    async with shop(nats_url) as (node, served, _), client(nats_url) as plain:
        await node.serve(Office())
        await offered(plain)
        code, line, problem = await refused(plain, "svc.shop.fail")
        assert (code, problem["error"], line) == (500, "builtins:ValueError", "no such thing")
        code, line, _ = await refused(plain, "svc.shop.buy", [{"item": "pen", "count": "many"}])
        assert code == 400 and "count" in line
        code, line, _ = await refused(plain, "svc.shop.buy", 7)
        assert code == 400 and "array" in line
        told = await plain.request("svc.shop.buy", b"{", timeout=PATIENCE)
        assert told.headers is not None and told.headers["Nats-Service-Error-Code"] == "400"
        code, line, _ = await refused(plain, "svc.shop.buy", [], **{"Content-Type": "text/plain"})
        assert code == 415 and "application/json" in line
        code, line, _ = await refused(plain, "svc.shop.long", [2_000_000])
        assert "max_payload=1048576" in line
        code, line, problem = await refused(plain, "svc.shop.hold", **{"Tidewire-Timeout": "0.2"})
        assert (code, problem["code"]) == (504, "ask_timeout")
        code, line, _ = await refused(plain, "svc.shop.hold", **{"Tidewire-Timeout": "soon"})
        assert code == 400 and "Tidewire-Timeout" in line
        for subject in ("svc.shop.secret", "svc.shop.nothing", "svc.office.work", "$SRV.PING.office"):
            with pytest.raises(nats.errors.NoRespondersError):
                await plain.request(subject, b"", timeout=PATIENCE)
        # Nodes call what is private.
        assert await node.client("shop").secret() == 7
        served.may_end.set()
        assert await asked(plain, "svc.shop.hold") == "held"


async def test_services_answer_as_the_micro_protocol_has_it(nats_url: str) -> None:
    async with (
        shop(nats_url, "one", "a"),
        shop(nats_url, "two", "b"),
        client(nats_url) as plain,
    ):
        both = await offered(plain, answers=2)
        assert {answer["id"] for answer in both} == {"a", "b"}
        for ping in both:
            assert ping["type"] == "io.nats.micro.v1.ping_response" and ping["name"] == "shop"
        assert len(await offered(plain, "$SRV.PING", 2)) == 2
        (info,) = await offered(plain, "$SRV.INFO.shop.a")
        assert info["type"] == "io.nats.micro.v1.info_response" and info["description"] == "Sells things."
        endpoints = {endpoint["name"]: endpoint for endpoint in info["endpoints"]}
        assert set(endpoints) == {"buy", "fail", "hold", "long", "about", "count"}
        buy = endpoints["buy"]
        assert buy["subject"] == "svc.shop.buy" and buy["queue_group"] == "q"
        assert buy["metadata"]["description"] == "Buy something."
        assert "order" in json.loads(buy["metadata"]["parameters"])["properties"]
        assert endpoints["count"]["metadata"]["stream"] == "true"
        for _ in range(20):
            await asked(plain, "svc.shop.long", [1])
        await refused(plain, "svc.shop.fail")
        stats = await offered(plain, "$SRV.STATS.shop", 2)
        counted = [{endpoint["name"]: endpoint for endpoint in one["endpoints"]} for one in stats]
        assert sum(one["long"]["num_requests"] for one in counted) == 20
        assert sum(one["fail"]["num_errors"] for one in counted) == 1
        (failed,) = [one["fail"] for one in counted if one["fail"]["num_errors"]]
        assert failed["last_error"].endswith("no such thing") and failed["average_processing_time"] > 0
        for one in stats:
            assert one["type"] == "io.nats.micro.v1.stats_response"
            assert one["started"].endswith("Z") and one["started"] <= datetime.datetime.now(datetime.UTC).isoformat()


@pytest.mark.promise("P17.115")
async def test_each_answer_of_an_instance_has_the_version_of_that_instance(nats_url: str) -> None:
    async with (
        shop(nats_url, "one", "a", version="1.4.2-rc.1+b7", metadata={"zone": "eu"}),
        shop(nats_url, "two", "b", version="2.0.0"),
        shop(nats_url, "three", "c"),
        client(nats_url) as plain,
    ):
        for verb in ("PING", "INFO", "STATS"):
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.shop"):
                answers = await offered(plain, subject, 3)
                assert {one["id"]: (one["version"], one["metadata"]) for one in answers} == {
                    "a": ("1.4.2-rc.1+b7", {"zone": "eu"}),
                    "b": ("2.0.0", {}),
                    "c": ("0.0.0", {}),
                }


@pytest.mark.promise("P17.115")
async def test_an_instance_that_comes_back_with_another_version_says_so(nats_url: str) -> None:
    async with shop(nats_url, "one", "a", version="1.0.0") as (node, served, handle), client(nats_url) as plain:
        (info,) = await offered(plain, "$SRV.INFO.shop.a")
        assert info["version"] == "1.0.0"
        await handle.stop()
        await gone(plain, "$SRV.PING.shop.a")
        await node.serve(served, instance="a", version="1.1.0")
        (info,) = await offered(plain, "$SRV.INFO.shop.a")
        assert info["version"] == "1.1.0"


async def test_a_service_of_nats_answers_in_the_same_form(nats_url: str) -> None:
    """The client of nats-py asks a service of its own, and one of a node."""
    async with shop(nats_url), client(nats_url) as plain, client(nats_url) as other:
        own = await nats.micro.add_service(other, name="own", version="1.0.0")

        async def echo(request: nats.micro.Request) -> None:
            await request.respond(request.data)

        await own.add_endpoint(name="echo", handler=echo)
        for verb in ("PING", "INFO", "STATS"):
            (theirs,), (ours,) = [await offered(plain, f"$SRV.{verb}.{name}") for name in ("own", "shop")]
            assert set(theirs) == set(ours) and theirs["type"] == ours["type"]
            for mine, its in zip(ours.get("endpoints", []), theirs.get("endpoints", []), strict=False):
                assert set(its) - {"data"} <= set(mine)
        await own.stop()


async def test_an_instance_that_has_gone_gets_no_requests_and_one_that_comes_does(nats_url: str) -> None:
    async with (
        shop(nats_url, "stays", "stays"),
        shop(nats_url, "goes", "0") as (node, _, handle),
        client(nats_url) as plain,
    ):
        await offered(plain, answers=2)
        for number in range(4):
            await asyncio.gather(*(asked(plain, "svc.shop.long", [1]) for _ in range(50)))
            stats = await offered(plain, f"$SRV.STATS.shop.{number}")
            assert any(endpoint["num_requests"] for endpoint in stats[0]["endpoints"])
            await handle.stop()
            await gone(plain, f"$SRV.PING.shop.{number}")
            await asyncio.gather(*(asked(plain, "svc.shop.long", [1]) for _ in range(50)))
            handle = node.serve(Shop(), instance=str(number + 1))
            await handle
            await offered(plain, f"$SRV.PING.shop.{number + 1}")


async def test_a_node_that_stops_answers_what_was_asked_before(nats_url: str) -> None:
    async with client(nats_url) as plain:
        async with shop(nats_url) as (_, served, _):
            await offered(plain)
            call = asyncio.ensure_future(asked(plain, "svc.shop.hold"))
            await served.going_on.wait()
            served.may_end.set()
        assert await call == "held"
        with pytest.raises(nats.errors.NoRespondersError):
            await plain.request("svc.shop.hold", b"", timeout=PATIENCE)


async def test_nodes_without_anything_public_have_no_gateway(nats_url: str) -> None:
    async with tw.Node(nats_url, name="office") as node, client(nats_url) as plain:
        await node.serve(Office())
        assert [info.name for info in await node.nodes()] == ["office"]
        handle = node.serve(Shop())
        await handle
        await offered(plain)
        assert [info.name for info in await node.nodes()] == ["office", "office-nats"]
        await handle.stop()
        await gone(plain)


@pytest.mark.promise("P17.127")
async def test_messages_on_listed_subjects_pass_once_between_nodes_and_plain_clients(nats_url: str) -> None:
    shared = f"{nats_url}?subjects=orders.>,alerts.*"
    async with tw.Node(shared, name="a") as a, client(nats_url) as plain, contextlib.AsyncExitStack() as later:
        await a.subscribe("sync", a.spawn(lambda _: True))
        b = await later.enter_async_context(tw.Node(shared, name="b"))
        came: asyncio.Queue[Msg] = asyncio.Queue(1_000)
        for subject in ("orders.>", "alerts.*", "else.>"):
            await plain.subscribe(subject, cb=came.put)
        await plain.flush()
        loop, heard = asyncio.get_running_loop(), [asyncio.Queue[Any]() for _ in range(3)]
        for node, at, queue in ((a, 0, None), (b, 1, None), (a, 2, "group"), (b, 2, "group")):
            take = functools.partial(loop.call_soon_threadsafe, heard[at].put_nowait)
            await node.subscribe("orders.*", node.spawn(take), queue=queue)
        # A node that gets an answer from `a` is known to `a`, with all its subscriptions.
        assert await b.request("sync", None, timeout=PATIENCE)
        for number in range(100):
            a.publish("orders.new", {"number": number}, headers={"shop": "north"})
        a.publish("else.new", 1)
        a.publish("alerts.end", b"\x00raw")
        # Each subscription of the client has a task of its own.
        found = sorted([await came.get() for _ in range(101)], key=lambda one: one.subject)
        assert found[0].data == b"\x00raw" and "content-type" not in (found[0].headers or {})
        assert [json.loads(one.data)["number"] for one in found[1:]] == list(range(100))
        assert found[1].headers == {
            "content-type": "application/json",
            "Tidewire-Header-shop": "north",
            "Tidewire-Node": "a",
        }
        for queue in heard:
            assert [(await queue.get())["number"] for _ in range(100)] == list(range(100))
        # A member of a queue group is known to the servers some moments after its node.
        while heard[2].empty():
            await plain.publish("orders.probe", b"probe")
            with contextlib.suppress(TimeoutError):
                heard[2].put_nowait(await asyncio.wait_for(heard[2].get(), 0.1))
        for number in range(100):
            content = {"content-type": "application/json; charset=utf-8"}
            await plain.publish("orders.new", json.dumps(number).encode(), headers=content)
        for at, queue in enumerate(heard):
            told: list[Any] = []
            while len(told) < 100:
                told += [one for one in [await queue.get()] if one != b"probe"]
            # Members of a group share the messages.
            assert (sorted(told) if at == 2 else told) == list(range(100))
        await plain.publish("orders.end", b"end")
        for queue in heard:
            while (last := await queue.get()) == b"probe":
                pass
            assert last == b"end"
