"""Streams over HTTP: of methods, and of subjects."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tidewire as tw
from http_support import PATIENCE, Site, site
from tidewire.testing import Recorder

TOKENS = (
    tw.Token("hub-secret"),
    tw.Token("bob-secret", "bob", call=(), publish=("orders.>",), subscribe=("orders.*",)),
)


@contextlib.contextmanager
def streamed(place: Site, method: str, path: str, accept: str, body: bytes = b"", **headers: str) -> Iterator[Any]:
    connection = http.client.HTTPConnection(*place.place, timeout=PATIENCE)
    connection.request(method, path, body or None, {"accept": accept, "content-type": "application/json", **headers})
    try:
        yield connection.getresponse()
    finally:
        if connection.sock:
            # The reader in another thread has the response, and `close` waits for it.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()


def events(answer: Any) -> Iterator[dict[str, str]]:
    """Read server-sent events."""
    event: dict[str, str] = {}
    for line in iter(answer.readline, b""):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name and name != ":":
            event[name] = value
        elif event:
            yield event
            event = {}


def test_items_come_as_events_or_lines(place: Site) -> None:
    with streamed(place, "POST", "/services/shop/count", "text/event-stream", b"[3]") as answer:
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        found = list(events(answer))
    assert [(one["id"], one["data"]) for one in found[:3]] == [("1", "0"), ("2", "1"), ("3", "2")]
    assert found[3]["event"] == "end"
    for accept in ("application/x-ndjson", "*/*"):
        with streamed(place, "POST", "/services/shop/count", accept, b'{"to": 1000}') as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert [json.loads(line) for line in answer] == list(range(1_000))
    refused = place.call("shop/count", 3, accept="application/json")
    assert refused.problem == (406, "invalid_argument")


def test_a_stream_that_fails_says_so_with_a_status_or_at_its_end(place: Site) -> None:
    assert place.call("shop/broken", 0).problem == (500, "remote_error")
    assert place.call("shop/count", "many").problem == (400, "invalid_argument")
    *items, last = place.call("shop/broken", 2, accept="application/x-ndjson").body.splitlines()
    assert [json.loads(item) for item in items] == [0, 1]
    problem = json.loads(last)
    assert (problem["$type"], problem["code"], problem["error"]) == ("problem", "remote_error", "builtins:KeyError")
    with streamed(place, "POST", "/services/shop/broken", "text/event-stream", b"[2]") as answer:
        *first, end = events(answer)
    assert (len(first), end["event"], json.loads(end["data"])["code"]) == (2, "problem", "remote_error")


def test_http_clients_and_nodes_receive_messages_of_each_other(place: Site) -> None:
    stream = streamed(place, "GET", "/subjects/orders.*", "text/event-stream")
    with Recorder(place.node, "orders.new") as orders, stream as answer:
        assert answer.status == 200
        sent = place.ask("POST", "/subjects/orders.new", {"id": 7}, tidewire_header_shop="north")
        assert (sent.status, sent.body) == (202, b"")
        assert orders.sync.next()[0].message == {"id": 7}
        place.node.publish("orders.old", {"id": 8, "raw": b"\x01"}, headers={"a": "b"})
        first, second = (json.loads(event["data"]) for _, event in zip(range(2), events(answer), strict=False))
    assert first == {
        "subject": "orders.new",
        "payload": {"id": 7},
        "headers": {"shop": "north"},
        "node": "hub-http",
        "user": None,
    }
    assert second["payload"] == {"id": 8, "raw": {"$type": "bytes", "base64": "AQ=="}}
    assert (second["node"], second["headers"]) == ("hub", {"a": "b"})


def test_a_subscriber_over_http_answers_no_requests(place: Site) -> None:
    with streamed(place, "GET", "/subjects/double", "text/event-stream") as answer, pytest.raises(tw.NoResponders):
        assert answer.status == 200
        place.node.request("double", 21).wait()


def test_members_of_a_queue_group_share_what_comes(place: Site) -> None:
    path = "/subjects/work?queue=crew"
    with (
        streamed(place, "GET", path, "application/x-ndjson") as one,
        streamed(place, "GET", path, "application/x-ndjson") as other,
    ):
        assert (one.status, other.status) == (200, 200)
        for number in range(40):
            place.node.publish("work", number)
        place.node.publish("work", "end")
        found: list[Any] = []
        done = threading.Event()

        def read(answer: Any) -> None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                for line in answer:
                    found.append(json.loads(line)["payload"])
                    if len(found) == 41:
                        done.set()

        threads = [threading.Thread(target=read, args=(answer,), daemon=True) for answer in (one, other)]
        for thread in threads:
            thread.start()
        assert done.wait(PATIENCE)
    assert sorted(map(str, found)) == sorted([*map(str, range(40)), "end"])
    assert place.ask("GET", "/subjects/work?queue=a&queue=b").problem == (400, "invalid_argument")


def test_subjects_are_for_tokens_that_may(place: Site) -> None:
    for subject, status in (
        ("a..b", 400),
        ("$hub.services.added", 403),
        ("$node.1.x", 403),
        ("a b", 400),
        ("o.*", 400),
    ):
        answer = place.ask("POST", f"/subjects/{subject.replace(' ', '%20')}", 1)
        assert answer.status == status, (subject, answer.body)
    assert place.ask("GET", "/subjects/$hub.%3E").status == 403
    with site(tokens=TOKENS) as guarded:
        bob = "Bearer bob-secret"
        assert guarded.ask("POST", "/subjects/orders.new", 1, authorization=bob).status == 202
        assert guarded.ask("POST", "/subjects/other", 1, authorization=bob).problem == (403, "unauthorized")
        assert guarded.ask("POST", "/subjects/orders.new", 1).problem == (401, "unauthorized")
        assert guarded.ask("GET", "/subjects/orders.%3E", authorization=bob).problem == (403, "unauthorized")
        with streamed(guarded, "GET", "/subjects/orders.*", "text/event-stream", authorization=bob) as answer:
            assert answer.status == 200
            guarded.ask("POST", "/subjects/orders.new", 5, authorization=bob)
            told = json.loads(next(events(answer))["data"])
            assert (told["payload"], told["user"], told["headers"]) == (5, "bob", {})
