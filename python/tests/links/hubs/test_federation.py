"""Two hubs of two sites: what crosses between them, as processes and in one."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tidewire as tw
from home_support import nats_server
from link_processes import PATIENCE_S, Program, Programs, free_port
from link_stories import known

BERLIN, PARIS = "a-long-secret-of-berlin", "a-long-secret-of-paris"


@tw.service(name="pricing")
class Pricing:
    async def quote(self, symbol: str, qty: int = 1) -> tuple[str, int, str | None, str | None]:
        called = tw.context()
        return symbol, qty, called.user, called.headers.get("tw-hubs")

    async def count(self, end: int) -> AsyncIterator[int]:
        for number in range(end):
            yield number

    async def fail(self) -> None:
        raise tw.RevisionConflict("price: it was changed")


def up(started: Programs, *options: str) -> tuple[Program, str]:
    """Start a hub, and return its process and its URL."""
    hub = started.run("-m", "tidewire", "up", "--json", *options)
    said = json.loads(hub.line())
    return hub, said["urls"][0]


async def until_served(node: tw.Node, service: str) -> None:
    async for change in node.watch_services(service):
        if change.kind == "joined":
            return


@pytest.mark.promise("P13.103")
async def test_a_python_hub_shares_services_in_both_directions() -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        url = paris.listen("tide://127.0.0.1:0").url
        berlin.listen("tide://127.0.0.1:0")
        await berlin.serve(Pricing())
        await paris.serve(Pricing(), name="billing")
        joined = await berlin.join(url, export=["pricing"], import_=["paris:billing=bills"])
        assert joined.is_joined
        async with tw.Node(url, name="caller") as caller:
            pricing = caller.client("berlin:pricing")
            assert await pricing.quote("X", qty=3) == ("X", 3, "paris", "paris")
            assert [number async for number in pricing.count(200)] == list(range(200))
            with pytest.raises(tw.RevisionConflict, match="it was changed"):
                await pricing.fail()
        assert await berlin.client("bills").quote("Y") == ("Y", 1, None, "berlin")
        joined.close()
        assert not joined.is_joined
        with pytest.raises(tw.TidewireError):
            await berlin.client("bills").quote("Y")


async def test_a_caller_prefers_its_own_hub_and_another_hub_is_the_reserve() -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        url = paris.listen("tide://127.0.0.1:0").url
        place = berlin.listen("tide://127.0.0.1:0").url
        await paris.serve(Pricing())
        own = await berlin.serve(Pricing())
        await berlin.join(url, import_=["paris:pricing=pricing"])
        async with tw.Node(place, name="caller") as caller:
            for node in (berlin, caller):
                assert {(await node.client("pricing").quote("X"))[3] for _ in range(20)} == {None}
            await own.stop()
            for node in (berlin, caller):
                assert {(await node.client("pricing").quote("X"))[3] for _ in range(20)} == {"berlin"}


@pytest.mark.promise("P13.106")
async def test_an_agent_is_asked_and_answers_from_the_other_hub() -> None:
    tokens = [
        tw.Token(PARIS, user="paris"),
        tw.Token(BERLIN, user="berlin", partner=True, answer=["agent.berlin:chief"]),
    ]
    tokens[1] = replace(tokens[1], call=["agent.buyer"], publish=["agent.buyer"])
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        url = paris.listen("tide://127.0.0.1:0", tokens=tokens).url
        place = berlin.listen("tide://127.0.0.1:0").url
        async with tw.Node(place, name="worker") as worker, tw.Node(url, name="shop", token=PARIS) as shop:
            answered: asyncio.Queue[tuple[object, str]] = asyncio.Queue(10)

            async def heard(payload: object, message: tw.Message) -> None:
                await answered.put((payload, message.sender))

            async def plan(payload: object, message: tw.Message) -> object:
                if payload == "fail":
                    raise tw.RevisionConflict("plan: it was changed")
                await chief.send(["done", payload], to=message.sender)
                return [payload, message.sender, message.headers.get("tenant")]

            chief = worker.agent(plan, id="chief", type="planner", capabilities=["plan"])
            worker.agent(plan, id="secret", type="planner")
            buyer = shop.agent(heard, id="buyer")
            shop.agent(heard, id="hidden")
            join = await berlin.join(
                url,
                export=["agent:chief", "agent:secret=secret"],
                import_=["paris:agent:buyer", "paris:agent:hidden"],
                token=BERLIN,
            )
            await known(shop, "berlin:chief")
            await known(worker, "paris:buyer")
            # The token does not allow the other two.
            assert [agent.id for agent in shop.agents.list(type="planner")] == ["berlin:chief"]
            assert worker.agents.get("paris:hidden") is None
            asked = buyer.request("tea", capability="plan", headers={"tenant": "north"}, timeout=PATIENCE_S)
            assert await asked == ["tea", "paris:buyer", "north"]
            assert await answered.get() == (["done", "tea"], "berlin:chief")
            buyer.tell("told", to="berlin:chief")
            assert await answered.get() == (["done", "told"], "berlin:chief")
            receipt = await buyer.send("sent", to="berlin:chief", receipt=True)
            assert await receipt.wait() == "handled"
            assert await answered.get() == (["done", "sent"], "berlin:chief")
            with pytest.raises(tw.RevisionConflict, match="it was changed"):
                await buyer.request("fail", to="berlin:chief", timeout=PATIENCE_S)
            await chief.stop()
            await shop.until(lambda _: shop.agents.get("berlin:chief") is None, PATIENCE_S)
            join.close()
            await worker.until(lambda _: worker.agents.get("paris:buyer") is None, PATIENCE_S)


@tw.service(name="desk")
class LimitedService:
    """Holds each call until its gate opens."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.gate, self.begun = asyncio.Event(), asyncio.Semaphore(0)
        self.handled = 0

    async def hold(self, number: int) -> tuple[str, int]:
        self.handled += 1
        self.begun.release()
        await self.gate.wait()
        return self.place, number

    async def take(self, items: AsyncIterator[int]) -> list[int]:
        return [item async for item in items]

    async def apply(self, function: Callable[[], int]) -> None:
        self.handled += 1


@pytest.mark.promise("P13.111", "P13.112", "P13.113")
async def test_calls_spill_over_to_another_hub_while_their_own_one_is_full_and_return() -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        url = paris.listen("tide://127.0.0.1:0").url
        place = berlin.listen("tide://127.0.0.1:0").url
        first, second, there = LimitedService("berlin 1"), LimitedService("berlin 2"), LimitedService("paris")
        await paris.serve(there, concurrency=1, waiting=1)
        async with tw.Node(place, name="worker") as worker, tw.Node(place, name="caller") as caller:
            # One of the two instances is at the hub itself, the other one at a node that joined.
            near = (await berlin.serve(first, concurrency=1, waiting=1)).info.instances
            await worker.serve(second, concurrency=1, waiting=1)
            await berlin.join(url, import_=["paris:desk=desk"])
            for node in (caller, berlin):
                desk = node.client("desk")
                calls = [asyncio.ensure_future(desk.hold(number)) for number in range(2)]
                for one in (first, second):
                    await asyncio.wait_for(one.begun.acquire(), PATIENCE_S)
                # Two calls wait in Berlin, and the third one crosses.
                calls += [asyncio.ensure_future(desk.hold(number)) for number in range(2, 5)]
                await asyncio.wait_for(there.begun.acquire(), PATIENCE_S)
                # One of two more waits in Paris. Then both sites are full.
                more = [asyncio.ensure_future(desk.hold(number)) for number in (5, 6)]
                refused, waits = await asyncio.wait(more, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                with pytest.raises((tw.Overloaded, tw.MailboxFull), match="service_waiting=1"):
                    await refused.pop()
                calls.extend(waits)
                # Arguments that belong to Berlin do not cross, nor calls of one instance.
                there.gate.set()
                for full in (desk.take(one_item()), desk.apply(lambda: 7), desk.with_(instance=near[0]).hold(8)):
                    with pytest.raises((tw.Overloaded, tw.MailboxFull), match="service_waiting=1"):
                        await full
                for one in (first, second, there):
                    one.gate.set()
                answers = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
                assert [number for _, number in answers][:5] == list(range(5))
                assert sorted(place for place, _ in answers) == ["berlin 1"] * 2 + ["berlin 2"] * 2 + ["paris"] * 2
                assert {(await desk.hold(9))[0] for _ in range(20)} <= {"berlin 1", "berlin 2"}
                for one in (first, second, there):
                    one.gate.clear()
                    while not one.begun.locked():
                        await one.begun.acquire()


@pytest.mark.promise("P13.113", "P13.90")
async def test_a_call_over_http_stays_at_a_hub_that_has_a_reserve() -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        berlin.listen("tide://127.0.0.1:0")
        web = berlin.listen("http://127.0.0.1:0").url
        here, there = LimitedService("berlin"), LimitedService("paris")
        await paris.serve(there, visibility="public")
        own = await berlin.serve(here, visibility="public", concurrency=1, waiting=1)
        await berlin.join(paris.listen("tide://127.0.0.1:0").url, import_=["paris:desk=desk"])

        def ask() -> tuple[int, str]:
            asked = urllib.request.Request(f"{web}/services/desk/hold", b"[1]", {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        calls = [asyncio.ensure_future(asyncio.to_thread(ask))]
        await asyncio.wait_for(here.begun.acquire(), PATIENCE_S)
        # One of two more waits, and the other one is refused.
        calls += [asyncio.ensure_future(asyncio.to_thread(ask)) for _ in range(2)]
        refused, _ = await asyncio.wait(calls, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        code, text = await refused.pop()
        assert (code, "overloaded" in text, there.handled) == (503, True, 0), text
        here.gate.set()
        assert sorted(code for code, _ in await asyncio.gather(*calls)) == [200, 200, 503]
        await own.stop()
        assert (await asyncio.to_thread(ask))[0] == 404
        assert there.handled == 0


async def one_item() -> AsyncIterator[int]:
    yield 1


async def test_a_join_with_tls_needs_the_certificate_of_the_other_hub(certificates: Path) -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin") as berlin:
        own = tw.Tls(cert=certificates / "hub.pem", key=certificates / "hub.key")
        url = paris.listen("tide+tls://127.0.0.1:0", tls=own).url
        berlin.listen("tide://127.0.0.1:0")
        await paris.serve(Pricing(), name="billing")
        with pytest.raises(tw.TidewireError, match="certificate"):
            await asyncio.wait_for(berlin.join(url, import_=["paris:billing"]), PATIENCE_S)
        await berlin.join(url, import_=["paris:billing"], tls=tw.Tls(ca=certificates / "ca.pem"))
        assert await berlin.client("paris:billing").quote("X") == ("X", 1, None, "berlin")


async def test_a_join_names_the_field_that_is_wrong() -> None:
    async with tw.Node(name="berlin") as berlin:
        url = berlin.listen("tide://127.0.0.1:0").url
        for wrong, text in (
            ({"export": ["orders..x"]}, "export: pattern"),
            ({"export": [">"]}, 'export: ">" is not allowed: give a pattern that begins with a name of yours'),
            ({"export": ["$sys"]}, 'export: "$sys" is not allowed: the services of a hub itself stay there'),
            ({"import_": ["billing"]}, 'import: "billing" is not allowed: name the other hub first'),
            ({"import_": ["paris:a", "rome:b"]}, 'import: "rome:b" is not allowed: a join is with one hub'),
            ({"export": ["a=x", "b=x"]}, '"x" was given before: give another name after a ='),
            ({"as_": "köln", "export": ["stream:orders"]}, '"köln-orders" names no stream: give 1 to 64 of A-Z'),
            ({"as_": "ber.lin"}, 'as: "ber.lin" is not allowed: give one token without dots'),
        ):
            with pytest.raises(tw.InvalidArgument) as raised:
                berlin.join(url, **wrong)
            assert text in str(raised.value)
        with pytest.raises(tw.InvalidArgument, match='both hubs are "berlin"'):
            await berlin.join(url, as_="another")
        with pytest.raises(tw.InvalidArgument, match=r"node is no hub: call listen\(\) first"):
            async with tw.Node(url, name="node") as node:
                node.join(url)


@pytest.mark.promise("P13.102", "P13.104")
async def test_two_hubs_as_processes_share_what_the_token_allows_and_survive_a_kill(
    started: Programs, tmp_path: Path
) -> None:
    port = free_port()
    file = tmp_path / "paris.toml"
    file.write_text(f"""
        [[hub.tokens]]
        token = "{PARIS}"

        [[hub.tokens]]
        token = "{BERLIN}"
        user = "berlin"
        partner = true
        serve = ["berlin:pricing"]
        call = ["svc.billing.>"]
        publish = ["orders.>"]
    """)
    places = ("--name", "paris", "--listen", f"tide://127.0.0.1:{port}", "--config", str(file))
    join = ("--join", f"tide://127.0.0.1:{port}", "--as", "berlin", "--join-token", BERLIN)
    lists = ("--export", "pricing,orders.>,salaries", "--import", "paris:billing,paris:salaries")
    # The hub that joins is up before the other one.
    berlin, berlin_url = up(started, "--listen", "tide://127.0.0.1:0", *join, *lists)
    paris, paris_url = up(started, *places)
    async with tw.Node(berlin_url, name="worker") as worker, tw.Node(paris_url, name="caller", token=PARIS) as caller:
        for name in ("pricing", "salaries"):
            await worker.serve(Pricing(), name=name)
        for name in ("billing", "salaries"):
            await caller.serve(Pricing(), name=name)
        await until_served(caller, "berlin:pricing")
        await until_served(worker, "paris:billing")
        assert await caller.client("berlin:pricing").quote("X") == ("X", 1, "paris", "paris")
        assert await worker.client("paris:billing").quote("Y") == ("Y", 1, "berlin", "berlin")
        assert {info.name for info in await worker.services()} == {"pricing", "salaries", "paris:billing"}
        assert "berlin:salaries" not in {info.name for info in await caller.services()}
        berlin.expect_log("warning", "berlin:salaries", "is not shared", "this token may not serve")
        async with caller.subscription("orders.*") as orders:
            worker.publish("orders.new", 7)
            order = await asyncio.wait_for(anext(orders), PATIENCE_S)
            assert (order.message, order.headers["tw-hubs"]) == (7, "berlin")
        paris.signal(signal.SIGKILL)
        up(started, *places)
        async with tw.Node(paris_url, name="later", token=PARIS) as later:
            await until_served(later, "berlin:pricing")
            assert await later.client("berlin:pricing").quote("Z") == ("Z", 1, "paris", "paris")
    berlin.signal(signal.SIGTERM)
    assert json.loads(berlin.line())["balanced"]
    assert berlin.process.wait() == 0


async def mirrored(node: tw.Node, name: str, count: int) -> list[int]:
    """Wait for so many events of a mirror, and return the values of all that are there then."""
    async with asyncio.timeout(PATIENCE_S):
        async for entry in (await node.kv("tidewire-mirrors")).watch(name):
            if entry.value is not None and any(entry.value["positions"].values()):
                break
        mirror = await node.find_stream(name)
        events = mirror.read(follow=True)
        for _ in range(count):
            await anext(events)
        return [event.value async for event in mirror.read()]


@pytest.mark.promise("P13.120", "P13.121", "P13.122")
async def test_two_hubs_as_processes_mirror_streams_and_survive_kills_of_both(
    started: Programs, tmp_path: Path
) -> None:
    port, own_port = free_port(), free_port()
    (tmp_path / "paris.toml").write_text(f"""
        [[hub.tokens]]
        token = "{PARIS}"

        [[hub.tokens]]
        token = "{BERLIN}"
        user = "berlin"
        partner = true
        call = ["svc.tidewire-streams.source:news", "svc.tidewire-streams.mirror:berlin-orders"]
    """)
    (tmp_path / "berlin.toml").write_text(f"""
        [[hub.join]]
        url = "tide://127.0.0.1:{port}"
        as = "berlin"
        token = "{BERLIN}"
        export = ["stream:orders", "stream:orders=salaries"]
        import = ["paris:stream:news=french"]
    """)
    places = []
    for name, at in (("paris", port), ("berlin", own_port)):
        places.append(["--name", name, "--data", str(tmp_path / name), "--listen", f"tide://127.0.0.1:{at}"])
        places[-1] += ["--config", str(tmp_path / f"{name}.toml")]
    hubs = [up(started, *place) for place in places]
    async with tw.Node(hubs[0][1], name="desk", token=PARIS) as desk:
        await (await desk.stream("news")).publish("news.first", 1, id="first")
    count = 0
    for killed in (0, 1, 0, 1):
        async with tw.Node(hubs[1][1], name="shop") as shop, (await shop.stream("orders")).publisher(window=200) as out:
            for number in range(count, count := count + 400):
                await out.publish("orders.new", number, id=f"order-{number}")
        hubs[killed][0].signal(signal.SIGKILL)
        hubs[killed] = up(started, *places[killed])
    async with tw.Node(hubs[1][1], name="shop") as shop, tw.Node(hubs[0][1], name="desk", token=PARIS) as desk:
        assert await mirrored(desk, "berlin-orders", count) == list(range(count))
        assert await mirrored(shop, "french", 1) == [1]
        [event] = [event async for event in (await shop.find_stream("french")).read()]
        assert (event.subject, event.id, event.headers["tw-source"]) == ("french.news.first", "first", "paris:news:1")
        assert [info.name for info in await desk.streams()] == ["berlin-orders", "news"]
        hubs[1][0].expect_log("warning", "salaries", "it is not mirrored for now", "not allowed with this token")


@pytest.mark.promise("P13.120", "P13.121")
async def test_a_hub_on_nats_mirrors_streams_in_both_directions(tmp_path: Path) -> None:
    with nats_server() as servers:
        async with tw.Node(servers, name="paris") as paris, tw.Node(name="berlin", data=tmp_path / "berlin") as berlin:
            url = paris.listen("tide://127.0.0.1:0").url
            berlin.listen("tide://127.0.0.1:0")
            orders, news = await berlin.stream("orders"), await paris.stream("news")
            lists = {"export": ["stream:orders"], "import_": ["paris:stream:news"]}
            for first in (0, 700):
                joined = await berlin.join(url, **lists)
                for stream, subject in ((orders, "orders.new"), (news, "news.new")):
                    async with stream.publisher(window=200) as out:
                        for number in range(first, first + 700):
                            await out.publish(
                                subject, number, id=f"id-{number % 100}-{first}" if number < 100 else None
                            )
                for node, name in ((paris, "berlin-orders"), (berlin, "paris-news")):
                    assert await mirrored(node, name, first + 700) == list(range(first + 700))
                joined.close()
            event = await anext((await paris.find_stream("berlin-orders")).read())
            assert (event.subject, event.id) == ("berlin-orders.orders.new", "id-0-0")
            # Plain clients and messages of the hub add nothing to a mirror.
            paris.publish("orders.new", -1)
            assert (await (await paris.find_stream("berlin-orders")).info()).messages == 1_400


@pytest.mark.promise("P13.102", "P13.103", "P13.120")
async def test_two_clusters_over_nats_share_services_messages_and_streams() -> None:
    with nats_server() as french, nats_server() as german:
        async with (
            tw.Node(french, name="paris") as paris,
            tw.Node(german, name="berlin") as berlin,
            tw.Node(french, name="lyon") as lyon,
            tw.Node(german, name="bonn") as bonn,
        ):
            url = paris.listen("tide://127.0.0.1:0").url
            berlin.listen("tide://127.0.0.1:0")
            await bonn.serve(Pricing())
            await lyon.serve(Pricing(), name="billing")
            lists = {"export": ["pricing", "orders.>", "stream:sales"], "import_": ["paris:billing"]}
            async with lyon.subscription("orders.*") as orders, (await bonn.stream("sales")).publisher() as sales:
                await berlin.join(url, **lists)
                # Other nodes of a cluster see what its hub has joined.
                await until_served(lyon, "berlin:pricing")
                await until_served(bonn, "paris:billing")
                assert (await lyon.client("berlin:pricing").quote("X", qty=2))[:2] == ("X", 2)
                assert [number async for number in lyon.client("berlin:pricing").count(50)] == list(range(50))
                assert (await bonn.client("paris:billing").quote("Y"))[0] == "Y"
                bonn.publish("orders.new", 7)
                order = await asyncio.wait_for(anext(orders), PATIENCE_S)
                assert (order.message, order.headers["tw-hubs"]) == (7, "berlin")
                for number in range(300):
                    await sales.publish("sales.tea", number)
            assert await mirrored(lyon, "berlin-sales", 300) == list(range(300))
