"""Commands of a public service over HTTP, and as tools for the official client of MCP."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from http_support import PATIENCE, Answer, Site, site

TOKENS = (
    tw.Token("hub-secret"),
    tw.Token("ann-secret", "ann", call=("svc.books.*",)),
    tw.Token("bob-secret", "bob", call=("svc.shop.*", "svc.books.close")),
)


class Books(tw.Service):
    """Keeps books."""

    def __init__(self) -> None:
        self.go = threading.Event()

    @tw.command(exclusive="key")
    def reindex(self, shard: int, progress: tw.Progress) -> dict[str, int]:
        """Rebuild an index."""
        progress(0.5, "half")
        assert self.go.wait(PATIENCE), "nobody lets it go on"
        return {"rows": shard * 100}

    @tw.command(retries=0)
    async def close(self) -> None:
        """Close the year."""
        raise LookupError("no balance")


class Secret(tw.Service):
    @tw.command
    async def hide(self) -> None:
        """Nobody outside is to know."""


@pytest.mark.promise("P17.130")
def test_commands_over_http(tmp_path: Path) -> None:
    def ask(method: str, path: str, body: Any = None, who: str = "ann", **headers: str) -> Answer:
        return place.ask(method, f"/commands/{path}", body, authorization=f"Bearer {who}-secret", **headers)

    with site(tokens=TOKENS, data=tmp_path) as place:
        books = Books()
        place.node.serve(books, name="books", visibility="public")
        place.node.serve(Secret(), name="secret")
        for path in ("secret/hide", "books/none", "books", "shop/price"):
            assert ask("POST", path).problem == (404, "no_such_target"), path
        wrong = ask("POST", "books/reindex?key=a", {"shard": "x"})
        assert wrong.problem == (400, "invalid_argument")
        assert [fault["pointer"] for fault in wrong.value["errors"]] == ["/shard"]
        assert "key: it is missing" in ask("POST", "books/reindex", [7]).value["detail"]
        assert "there is key, id" in ask("POST", "books/reindex?shard=a", [7]).value["detail"]
        assert ask("POST", "books/reindex?key=a", [7], "bob").problem == (403, "unauthorized")
        begun = ask("POST", "books/reindex?key=a&id=r-1&priority=high", [7])
        assert (begun.status, begun.value) == (202, {"id": "r-1"})
        assert begun.headers["location"] == "/commands/books/reindex/r-1"
        assert ask("POST", "books/reindex?key=a&id=r-1", {"shard": 7}).problem == (409, "settings_differ")
        with contextlib.closing(http.client.HTTPConnection(*place.place, timeout=PATIENCE)) as follower:
            follower.request(
                "GET", "/commands/books/reindex/r-1/progress", headers={"authorization": "Bearer ann-secret"}
            )
            reports = follower.getresponse()
            first = json.loads(reports.readline())
            assert (first["fraction"], first["note"], first["attempt"]) == (0.5, "half", 1)
            running = ask("GET", "books/reindex/r-1").value
            assert (running["stage"], running["fraction"], running["key"]) == ("running", 0.5, "a")
            second = ask("POST", "books/reindex?key=a", [8], idempotency_key="one")
            assert ask("POST", "books/reindex?key=a", [8], idempotency_key="one").value == second.value
            assert ask("POST", f"books/reindex/{second.value['id']}/cancel").value["problem"]["code"] == "cancelled"
            books.go.set()
            assert reports.read().strip() == b"", "the stream ends with the command"
        done = ask("GET", "books/reindex/r-1", tidewire_timeout="30").value
        assert (done["stage"], done["result"]) == ("succeeded", {"rows": 700})
        assert not {"caller", "worker", "traceback", "problem"} & done.keys()
        failing = ask("POST", "books/close", who="bob")
        failed = ask("GET", f"books/close/{failing.value['id']}", who="bob", tidewire_timeout="30")
        assert (failed.status, failed.value["stage"]) == (200, "failed")
        assert (failed.value["problem"]["code"], failed.value["problem"]["detail"]) == ("remote_error", "no balance")
        assert b"Traceback" not in failed.body
        assert ask("GET", "books/close/r-1").problem == (404, "not_found"), "it is of another command"
        assert ask("GET", "books/close/none").problem == (404, "not_found")
        described = place.ask("GET", "/openapi.json", authorization="Bearer ann-secret").value["paths"]
        start = described["/commands/books/reindex"]["post"]
        assert [one["name"] for one in start["parameters"] if one.get("required")] == ["key"]
        assert start["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]["required"] == ["shard"]
        paths = {path for path in described if path.startswith("/commands/books/reindex/{id}")}
        assert {path.rpartition("}")[2] for path in paths} == {"", "/progress", "/cancel"}
        seen = place.ask("GET", "/openapi.json", authorization="Bearer bob-secret").value["paths"]
        assert {path.split("/")[3] for path in seen if path.startswith("/commands/")} == {"close"}


@pytest.mark.promise("P17.130")
def test_commands_as_tools(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the official client of MCP is not installed")
    from mcp import Client

    async def try_commands(place: Site, books: Books) -> None:
        async with Client(f"{place.url}/mcp") as client:

            async def call(name: str, progress: Any = None, **given: Any) -> Any:
                told = await client.call_tool(name, given, progress_callback=progress)
                assert told.is_error is (told.structured_content is None)
                return json.loads(told.content[0].text)

            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {"books-reindex", "books-close", "shop-price"} <= tools.keys()
            assert tools["books-reindex"].input_schema["required"] == ["shard", "key"]
            assert (await call("books-reindex", shard=1))["detail"].startswith("books.reindex: key: it is missing")
            assert (await call("books-reindex", shard="x", key="a"))["errors"][0]["pointer"] == "/shard"
            begun = await call("books-reindex", shard=1, key="a")
            assert (await call("tidewire-_commands-state", id=begun["id"]))["stage"] in ("queued", "running")
            books.go.set()
            ended = await call("tidewire-_commands-state", id=begun["id"], wait=30)
            assert (ended["stage"], ended["result"]) == ("succeeded", {"rows": 100})
            books.go.clear()
            reports: list[Any] = []

            async def report(*told: Any) -> None:
                reports.append(told)
                books.go.set()

            assert await call("books-reindex", report, shard=2, key="b") == {"rows": 200}
            assert reports == [(0.5, 1, "half")]
            assert (await call("books-close", report))["detail"] == "no balance"
            assert (await call("tidewire-_commands-state", id="none"))["code"] == "not_found"
            books.go.clear()
            waits = [await call("books-reindex", shard=3, key="b") for _ in "ab"]
            ended = await call("tidewire-_commands-cancel", id=waits[1]["id"])
            assert ended["problem"]["code"] == "cancelled"
            books.go.set()

    with site(data=tmp_path) as place:
        books = Books()
        place.node.serve(books, name="books", visibility="public")
        asyncio.run(asyncio.wait_for(try_commands(place, books), PATIENCE))
