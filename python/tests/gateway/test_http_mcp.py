"""The public methods as tools, with the official client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Literal

import pytest
import tidewire as tw
from http_support import PATIENCE, Site, site, until

pytest.importorskip("mcp", reason="the official client of MCP is not installed")

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import (
    PromptListChangedNotification,
    PromptReference,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)

reported = threading.Event()


async def run() -> AsyncIterator[Any]:
    """Go on once the first step is reported."""
    yield "half"
    assert await asyncio.to_thread(reported.wait, PATIENCE), "nobody was told of the first step"
    yield {"left": 0}


class Reviews(tw.Service, visibility="public"):
    """Has prompts."""

    @tw.method(prompt=True)
    async def review(self, code: str, strict: bool = False, kind: Literal["fast", "full"] = "full") -> list[Any]:
        """Ask for a review.

        Args:
            code: Its text.
        """
        return [code, {"role": "assistant", "content": f"strict: {strict}"}]

    @tw.method(prompt=True)
    def show(self) -> Any:
        """Show a picture and a file."""
        file = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "A"}}
        return [PICTURE, {"role": "user", "content": file}]

    @tw.method(prompt=True)
    async def number(self) -> int:
        """Return no message."""
        return 5


def two() -> list[Any]:
    """Return a text and a picture."""
    return ["A", PICTURE]


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(8)
TOKENS = (
    tw.Token("hub-secret"),
    tw.Token("ann-secret", "ann", call=("svc.tidewire-streams.>",)),
    tw.Token("bob-secret", "bob", call=("svc.shop.price",)),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    with site() as made:
        made.node.serve({"run": run}, name="steps", visibility="public")
        made.node.serve({"b-c": lambda: 1}, name="a", visibility="public")
        made.node.serve({"c": lambda: 2}, name="a-b", visibility="public")
        made.node.serve({"dot": lambda: PICTURE, "two": two}, name="pictures", visibility="public")
        made.node.serve(Reviews(), name="reviews")
        yield made


def text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


async def try_tools(client: Any, place: Site) -> None:
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"shop-price", "shop-echo", "shop-count"} <= listed.keys()
    assert not {"shop-secret", "hidden-secret"} & listed.keys()
    assert listed["shop-price"].description == "Say what an order costs."
    assert "order" in listed["shop-price"].input_schema["properties"]
    assert listed["shop-price"].output_schema["properties"] == {"result": {"type": "number"}}
    assert (listed["a-b-_c"].title, listed["a-b-_c"].description) == ("a.b-c", "Calls a.b-c.")
    assert "shop: Sells things." in client.instructions
    (picture,) = (await client.call_tool("pictures-dot", {})).content
    assert (picture.type, picture.mime_type, base64.b64decode(picture.data)) == ("image", "image/png", PICTURE)
    both = await client.call_tool("pictures-two", {})
    assert ([part.type for part in both.content], both.structured_content["result"][0]) == (["text", "image"], "A")
    done = await client.call_tool("shop-price", {"order": {"symbol": "X", "qty": 3}})
    assert (text(done), done.structured_content, done.is_error) == ("7.5", {"result": 7.5}, False)
    both = [await client.call_tool(name, {}) for name in sorted(listed) if name.startswith("a-")]
    assert sorted(text(one) for one in both) == ["1", "2"]
    counted = await client.call_tool("shop-count", {"to": 3})
    assert counted.structured_content == {"result": [0, 1, 2]}
    reports: list[Any] = []

    async def report(*told: Any) -> None:
        reports.append(told)
        reported.set()

    reported.clear()
    done = await client.call_tool("steps-run", {}, progress_callback=report)
    assert done.structured_content == {"result": ["half", {"left": 0}]}
    assert reports == [(1, None, "half"), (2, None, '{"left":0}')]
    endless = await client.call_tool("shop-count", {"to": 100_000})
    assert len(endless.structured_content["result"]) == 1_000
    failed = await client.call_tool("shop-fail", {"text": "so bad"})
    assert failed.is_error
    assert json.loads(text(failed))["code"] == "remote_error"
    assert "so bad" in text(failed)
    assert "Traceback" not in text(failed)
    for name in ("shop-nothing", "shop-secret", "hidden-secret"):
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool(name, {})
    wrong = await client.call_tool("shop-price", {"order": 3})
    assert wrong.is_error
    assert json.loads(text(wrong))["code"] == "invalid_argument"


async def try_prompts(client: Any) -> None:
    listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
    assert listed.keys() == {"reviews-review", "reviews-show", "reviews-number"}
    assert not [tool.name for tool in (await client.list_tools()).tools if tool.name in listed]
    review = listed["reviews-review"]
    assert (review.description, [(one.name, one.required, one.description) for one in review.arguments]) == (
        "Ask for a review.",
        [("code", True, "Its text."), ("strict", False, None), ("kind", False, None)],
    )
    argument = {"name": "kind", "value": "fu"}
    ref = PromptReference(type="ref/prompt", name="reviews-review")
    assert (await client.complete(ref, argument)).completion.values == ["full"]
    told = (await client.get_prompt("reviews-review", {"code": "5", "strict": "true"})).messages
    assert [(one.role, one.content.text) for one in told] == [("user", "5"), ("assistant", "strict: True")]
    picture, file = (one.content for one in (await client.get_prompt("reviews-show")).messages)
    assert (picture.mime_type, base64.b64decode(picture.data), file.resource.text) == ("image/png", PICTURE, "A")
    for name, what in (("none", "no prompt"), ("review", "code"), ("number", "is no message")):
        with pytest.raises(MCPError, match=what):
            await client.get_prompt(f"reviews-{name}")


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
@pytest.mark.parametrize("way", ["http", "stdio"])
def test_tools_for_the_official_client(place: Site, way: str, mode: str, version: str) -> None:
    async def main() -> None:
        notes: asyncio.Queue[Any] = asyncio.Queue(100)

        async def note(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
                notes.put_nowait(message)

        command = StdioServerParameters(command=sys.executable, args=["-m", "tidewire", "mcp", place.url])
        server: Any = f"{place.url}/mcp" if way == "http" else stdio_client(command)
        async with Client(server, mode=mode, message_handler=note) as client:
            assert client.protocol_version == version
            await try_tools(client, place)
            await try_prompts(client)
            await try_cancel(client, place)
            await try_changes(client, place, notes)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


async def try_changes(client: Any, place: Site, notes: asyncio.Queue[Any]) -> None:
    async with AsyncExitStack() as stack:
        if client.protocol_version == "2026-07-28":
            heard = (
                await stack.enter_async_context(client.listen(tools_list_changed=True, prompts_list_changed=True))
            ).__anext__
        else:
            await asyncio.to_thread(until, lambda: place.statistics()["streams"], "no stream is open")
            heard = notes.get
        change = asyncio.ensure_future(heard())
        inner = await asyncio.to_thread(place.node.serve, {"x": lambda: 0}, name="inner", visibility="private")
        assert "late-new" not in {tool.name for tool in (await client.list_tools()).tools}
        assert not change.done(), "it was told of a service that it may not call"
        late = await asyncio.to_thread(place.node.serve, {"new": lambda: 0}, name="late", visibility="public")
        await change
        assert text(await client.call_tool("late-new", {})) == "0"
        for served in (late, inner):
            await asyncio.to_thread(served.sync.stop)
        await heard()
        assert "late-new" not in {tool.name for tool in (await client.list_tools()).tools}
        more = await asyncio.to_thread(place.node.serve, Reviews(), name="more")
        assert "Prompt" in type(await heard()).__name__
        await asyncio.to_thread(more.sync.stop)
        await heard()


async def try_cancel(client: Any, place: Site) -> None:
    place.shop.inside.clear()
    place.shop.gone.clear()
    task = asyncio.create_task(client.call_tool("shop-hang", {}))
    await asyncio.to_thread(place.shop.inside.wait, PATIENCE)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(place.shop.gone.wait, PATIENCE / 2), "its handler still runs"
    assert text(await client.call_tool("shop-echo", {"value": "on"})) == '"on"'


def test_a_session_cancels_its_own_calls(place: Site) -> None:
    def post(method: str, session: str = "", **rest: Any) -> Any:
        return place.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": method, **rest}, mcp_session_id=session)

    mine, other = (post("initialize", id=0).headers["mcp-session-id"] for _ in range(2))
    place.shop.inside.clear()
    place.shop.gone.clear()
    with ThreadPoolExecutor() as threads:
        call = threads.submit(post, "tools/call", mine, id=7, params={"name": "shop-hang"})
        assert place.shop.inside.wait(PATIENCE)
        assert post("notifications/cancelled", other, params={"requestId": 7}).status == 202
        assert not place.shop.gone.is_set()
        assert post("notifications/cancelled", mine, params={"requestId": 7}).status == 202
        assert place.shop.gone.wait(PATIENCE / 2), "its handler still runs"
        assert "cancelled" in call.result().value["error"]["message"]
    with closing(http.client.HTTPConnection(*place.place, timeout=PATIENCE)) as stream:
        stream.request("GET", "/mcp", headers={"accept": "text/event-stream", "mcp-session-id": mine})
        assert stream.getresponse().headers["content-type"] == "text/event-stream"
        assert place.ask("DELETE", "/mcp", mcp_session_id=mine).status == 204
        until(lambda: not place.statistics()["streams"], "its stream is still open")


def test_the_command_ends_when_its_stdin_closes(place: Site) -> None:
    place.shop.inside.clear()
    place.shop.gone.clear()
    hang = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "shop-hang"}}
    with subprocess.Popen([sys.executable, "-m", "tidewire", "mcp", place.url], stdin=subprocess.PIPE) as command:
        assert command.stdin
        command.stdin.write(json.dumps(hang).encode() + b"\n")
        command.stdin.flush()
        assert place.shop.inside.wait(PATIENCE)
        command.stdin.close()
        assert command.wait(PATIENCE / 2) == 0
    assert place.shop.gone.wait(PATIENCE), "its handler still runs"


def test_messages_that_are_none_are_told_so(place: Site) -> None:
    def said(body: bytes) -> Any:
        answer = place.ask("POST", "/mcp", body, content_type="application/json")
        assert answer.status == 200
        return answer.value["error"]["code"]

    assert said(b"{") == -32_700
    assert said(b"[]") == -32_600
    assert said(b'{"jsonrpc": "2.0", "id": null, "method": "ping"}') == -32_600
    assert said(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": 5}}') == -32_602
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert [one["id"] for one in place.ask("POST", "/mcp", [ping, {**ping, "id": 2}]).value] == [1, 2]
    newer = place.ask("POST", "/mcp", [ping], mcp_protocol_version="2025-06-18")
    assert newer.value["error"]["code"] == -32_600
    assert said(b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}') == -32_600
    assert said(b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}') == -32_600
    assert said(b'{"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel"}') == -32_601
    assert said(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}') == -32_602
    twice = b'{"name": "shop-echo", "arguments": {"a": 1, "a": 2}}'
    assert said(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": %b}' % twice) == -32_602
    note = place.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (note.status, note.body) == (202, b"")
    assert place.ask("GET", "/mcp").status == 406
    assert place.ask("GET", "/mcp", accept="text/event-stream", mcp_protocol_version="2026-07-28").status == 405
    unknown = place.ask("POST", "/mcp", ping, mcp_protocol_version="1999-01-01")
    assert (unknown.status, unknown.value["error"]["code"], unknown.value["id"]) == (400, -32_022, 1)
    assert place.ask("POST", "/mcp", {}, origin="https://evil.example").problem == (403, "unauthorized")


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
def test_tools_and_resources_are_those_of_the_token(tmp_path: Path) -> None:
    async def read_all(url: str) -> None:
        command = ["-m", "tidewire", "mcp", url, "--token", "ann-secret"]
        async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=command))) as client:

            async def read(path: str) -> Any:
                (content,) = (await client.read_resource(f"tidewire://{path}")).contents
                return json.loads(content.text)

            listed = (await client.list_resources()).resources
            assert [str(one.uri) for one in listed] == [
                f"tidewire://{path}" for path in ("kv/dots", "kv/limits", "streams/orders")
            ]
            assert len((await client.list_resource_templates()).resource_templates) == 4
            newest = await read("streams/orders")
            assert [event["sequence"] for event in newest] == list(range(51, 151))
            assert await read("streams/orders/150") == newest[-1]
            assert (newest[-1]["subject"], newest[-1]["payload"]) == ("orders.new", {"id": 149})
            assert await read("kv/limits") == ["eu.most"]
            assert await read("kv/limits/eu.most") == {"value": 5, "revision": 1}
            (dot,) = (await client.read_resource("tidewire://kv/dots/red")).contents
            assert (dot.mime_type, base64.b64decode(dot.blob)) == ("image/png", PICTURE)
            for path in ("streams/orders/151", "streams/orders/x", "streams/none", "kv/limits/us", "kv/../limits", ""):
                with pytest.raises(MCPError, match="uri: "):
                    await read(path)

    async def watch(url: str, mode: str) -> None:
        notes: asyncio.Queue[Any] = asyncio.Queue(10)

        async def note(message: Any) -> None:
            if isinstance(message, ResourceUpdatedNotification):
                notes.put_nowait(message.params)

        command = StdioServerParameters(
            command=sys.executable, args=["-m", "tidewire", "mcp", url, "--token", "ann-secret"]
        )
        async with Client(stdio_client(command), mode=mode, message_handler=note) as client, AsyncExitStack() as stack:
            paths = ("streams/orders", "kv/limits", "kv/limits/eu.most", "streams/none")
            heard, uris = notes.get, [f"tidewire://{path}" for path in paths]
            if mode == "auto":
                listen = client.listen(resource_subscriptions=uris)
                heard = (await stack.enter_async_context(listen)).__anext__
            else:
                for uri in uris[:3]:
                    await client.subscribe_resource(uri)
                for wrong in (uris[3], "tidewire://kv/limits/eu.*", "tidewire://kv/none"):
                    with pytest.raises(MCPError, match="uri: "):
                        await client.subscribe_resource(wrong)
            for number in range(2):
                await asyncio.to_thread(orders.publish, "orders.new", {"id": number})
                assert str((await heard()).uri) == uris[0]
            await asyncio.to_thread(limits.put, "us", 5)
            assert str((await heard()).uri) == uris[1]
            await asyncio.to_thread(limits.put, "eu.most", 5)
            assert {str((await heard()).uri) for _ in range(2)} == set(uris[1:3])
            if mode == "legacy":
                await client.unsubscribe_resource(uris[0])

    with site(tokens=TOKENS, data=tmp_path) as guarded:

        def said(method: str, **headers: str) -> Any:
            params = {"name": "shop-who", "uri": "tidewire://kv/limits/eu.most"}
            return guarded.ask(
                "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **headers
            )

        orders, bob = guarded.node.sync.stream("orders", subjects=["orders.>"]), "Bearer bob-secret"
        orders.publish_all(("orders.new", {"id": number}) for number in range(150))
        limits = guarded.node.sync.kv("limits")
        limits.put("eu.most", 5)
        guarded.node.sync.kv("dots").put("red", PICTURE)
        asyncio.run(asyncio.wait_for(read_all(guarded.url), PATIENCE))
        for mode in ("auto", "legacy"):
            asyncio.run(asyncio.wait_for(watch(guarded.url, mode), PATIENCE))
        assert said("tools/list").problem == (401, "unauthorized")
        tools = said("tools/list", authorization=bob).value["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["shop-price"]
        (told,) = said("tools/call", authorization=bob).value["result"]["content"]
        assert json.loads(told["text"])["code"] == "unauthorized"
        assert said("resources/list", authorization=bob).value["result"]["resources"] == []
        assert "only a token" in said("resources/read", authorization=bob).value["error"]["message"]
    with site(data=tmp_path) as guarded:
        assert said("resources/list").value["result"]["resources"] == [], "this hub has no tokens"
        assert "only a token" in said("resources/read").value["error"]["message"]
