"""Clients that break rules, stand still, or want too much; and limits."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import resource
import socket
import time
from collections.abc import Iterator

import pytest
import tidewire as tw
from http_support import PATIENCE, Site, ask, site, until
from link_frames import CALL, FAIL, ID, PUBLISH, REPLY, Raw, called, fields, frame, published

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def narrow() -> Iterator[Site]:
    limits = {
        "http_connections": 20,
        "http_head_bytes": 8_192,
        "http_body_bytes": 1_000,
        "http_bodies_bytes": 3_000,
        "http_read_ms": 300,
        "http_idle_ms": 400,
        "http_streams": 2,
    }
    with site(http=tw.Http(limits=limits)) as made:
        yield made


def status(answer: bytes) -> int:
    """The status of the first answer."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def post(path: bytes, headers: bytes, body: bytes) -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + HEAD + headers + b"\r\n" + body


def test_no_request_is_smuggled_in_another(place: Site) -> None:
    inner = b"POST /services/shop/echo HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    chunked = b"2\r\n[]\r\n0\r\n\r\n"
    for headers, body in (
        (both, chunked + inner),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunked + inner),
        (b"Content-Length: 2\r\nContent-Length: 60\r\n", b"[]" + inner),
        (b"Content-Length: +2\r\n", b"[]" + inner),
        (b"Content-Length: 2,2\r\n", b"[]" + inner),
        (b"Content-Length: -1\r\n", b"[]" + inner),
        (b"Content-Length: 99999999999999999999\r\n", b"[]" + inner),
        (b"Transfer-Encoding: gzip, chunked\r\n", chunked + inner),
        (b"Transfer-Encoding: chunked, identity\r\n", chunked + inner),
        (b"Transfer-Encoding: xchunked\r\n", chunked + inner),
        (b"Transfer-Encoding : chunked\r\n", chunked + inner),
        (b"X: a\r\n Transfer-Encoding: chunked\r\n", inner),
        (b"X: a\nTransfer-Encoding: chunked\r\n", chunked + inner),
        (b"Transfer-Encoding: chunked\r\n", b"2;\x00\r\n[]\r\n0\r\n\r\n" + inner),
        (b"Transfer-Encoding: chunked\r\n", b"-2\r\n[]\r\n0\r\n\r\n" + inner),
        (b"Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n[]" + inner),
        (b"Transfer-Encoding: chunked\r\n", chunked + inner),
        (b"Host: other\r\nContent-Length: 2\r\n", b"[]" + inner),
        (b"Content-Length: 0\r\nExpect: 200-ok\r\nConnection: close\r\n", b""),
    ):
        answer = place.raw(post(b"/services/shop/echo", headers, body))
        count = answer.count(b"HTTP/1.1 ")
        assert count <= 1, (headers, answer)
        assert status(answer) in (0, 200, 400, 417), (headers, answer)
    taken = place.raw(post(b"/services/shop/echo", b"Transfer-Encoding: chunked\r\n", chunked))
    assert status(taken) == 200
    assert b"connection: close" in taken.lower()
    # The gateway ignores a length that a proxy in front may see, and everything that follows.
    assert place.raw(post(b"/services/shop/echo", both, chunked + inner)).lower().count(b"connection: close") == 1


def test_targets_and_hosts_that_are_not_ours_are_refused(place: Site) -> None:
    for request, wanted in (
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a@localhost\r\nConnection: close\r\n\r\n", 400),
        (b"GET /openapi.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421),
        (b"GET /openapi.json HTTP/1.1\r\nHost: localhost.evil.example\r\nConnection: close\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n", 200),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET //healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n", 421),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"BREW /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405),
        (b"GET /healthz HTTP/3.7\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX\x00: a\r\n\r\n", 400),
    ):
        assert status(place.raw(request)) == wanted, request


def test_pages_of_other_origins_are_refused_and_allowed_ones_are_told(place: Site) -> None:
    for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
        assert place.call("shop/echo", 1, origin=origin).problem == (403, "unauthorized")
    own = f"http://{place.place[0]}:{place.place[1]}"
    assert place.call("shop/echo", 1, origin=own).value == 1
    with site(http=tw.Http(cors=("https://shop.example",), hosts=("gate.example",))) as open_site:
        answer = open_site.call("shop/echo", 1, origin="https://shop.example")
        assert (answer.value, answer.headers["access-control-allow-origin"]) == (1, "https://shop.example")
        assert "origin" in answer.headers["vary"]
        asked = {"origin": "https://shop.example", "access_control_request_method": "POST"}
        before = open_site.ask("OPTIONS", "/services/shop/echo", **asked)
        assert (before.status, before.headers["access-control-allow-methods"]) == (204, "GET, POST")
        assert "authorization" in before.headers["access-control-allow-headers"]
        asked["origin"] = "https://evil.example"
        assert open_site.ask("OPTIONS", "/services/shop/echo", **asked).status == 403
        assert open_site.ask("GET", "/healthz", host="gate.example").status == 200


def test_a_request_that_is_too_long_is_refused(narrow: Site) -> None:
    assert narrow.ask("POST", "/services/shop/echo", b"[" + b" " * 2_000 + b"]").problem == (413, "payload_too_large")
    chunk = b"190\r\n" + b" " * 0x190 + b"\r\n"
    long = post(b"/services/shop/echo", b"Transfer-Encoding: chunked\r\n", chunk * 4 + b"0\r\n\r\n")
    assert status(narrow.raw(long)) == 413
    assert status(narrow.raw(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n")) == 431
    many = b"".join(b"X%d: 1\r\n" % number for number in range(200))
    assert status(narrow.raw(b"GET /healthz HTTP/1.1\r\n" + HEAD + many + b"\r\n")) == 431
    assert status(narrow.raw(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n")) in (414, 431)


def test_a_slow_client_is_closed(narrow: Site) -> None:
    for said in (b"", b"PRI", b"POST /services/shop/echo HTTP/1.1\r\nHost: loc"):
        began = time.monotonic()
        assert status(narrow.raw(said)) in (0, 408)
        assert time.monotonic() - began < 10
    late = narrow.raw(post(b"/services/shop/echo", b"Content-Length: 100\r\n", b"[1,"))
    assert status(late) == 408
    with socket.create_connection(narrow.place, timeout=PATIENCE) as talk:
        talk.sendall(b"POST /services/shop/echo HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                talk.sendall(b"1\r\n \r\n")
                time.sleep(0.05)
        assert status(talk.recv(65_536)) == 408


def test_a_client_that_takes_no_answer_is_closed_and_its_stream_ends(narrow: Site) -> None:
    narrow.shop.gone.clear()
    with socket.create_connection(narrow.place, timeout=PATIENCE) as talk:
        talk.sendall(post(b"/services/shop/forever", b"Content-Length: 0\r\n", b""))
        assert narrow.shop.gone.wait(PATIENCE), "its generator still runs"
    assert narrow.statistics()["closed_total"] >= 1


def test_places_are_bounded_and_come_back(narrow: Site) -> None:
    with contextlib.ExitStack() as open_streams:
        for _ in range(2):
            connection = http.client.HTTPConnection(*narrow.place, timeout=PATIENCE)
            open_streams.callback(connection.close)
            connection.request("GET", "/subjects/a", headers={"accept": "text/event-stream"})
            assert connection.getresponse().status == 200
        refused = narrow.ask("GET", "/subjects/a", accept="text/event-stream")
        assert refused.problem == (503, "limit_exceeded")
        assert "http_streams=2" in refused.value["detail"]
    assert narrow.idle()
    assert narrow.statistics()["streams"] == 0
    assert narrow.ask("POST", "/services/shop/count", [1]).status == 200


def test_the_oldest_idle_connection_makes_room(narrow: Site) -> None:
    with contextlib.ExitStack() as sockets:
        idle = [sockets.enter_context(socket.create_connection(narrow.place, timeout=PATIENCE)) for _ in range(40)]
        assert narrow.call("shop/echo", 1).value == 1
        assert narrow.statistics()["connections"] <= 21
        assert idle[0].recv(1) == b""


def test_a_thousand_connections_call_at_once(place: Site) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4_096
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the system allows {hard} files: 4,096 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    connections = [http.client.HTTPConnection(*place.place, timeout=PATIENCE) for _ in range(1_000)]
    try:
        sent = {"content-type": "application/json"}
        for number, connection in enumerate(connections):
            connection.request("POST", "/services/shop/echo", json.dumps([number]), sent)
        for number, connection in enumerate(connections):
            assert json.loads(connection.getresponse().read()) == number
        assert place.statistics()["connections"] >= 1_000
        assert all(ask(connection, "GET", "/healthz").status == 200 for connection in connections)
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def few() -> bool:
        return place.ask("GET", "/healthz").status == 200 and place.statistics()["connections"] < 10

    until(few, "closed connections are still counted")


@pytest.mark.promise("P13.90", "P13.91")
def test_only_the_gateway_says_for_whom_a_call_is_made(place: Site) -> None:
    with pytest.raises(tw.InvalidArgument, match="tw-"):
        place.node.client("shop").with_(headers={"tw-user": "eve"})
    heard: queue.Queue[object] = queue.Queue()
    place.node.subscribe("forged", heard.put)
    raw = Raw.joined(place.node.listen("tide://127.0.0.1:0").url)
    try:
        for name, value in (("tw-user", "ann"), ("tw-origin", "public"), ("tw-origin", "node")):
            extra = fields(**{"tw-trace": "0" * 32, name: value})
            raw.send(frame(CALL, called(b"svc.shop.who_plainly", extra), b"\xc0", id=ID))
            kind, head, payload = answered(raw)
            assert (kind, int.from_bytes(head[:2], "little")) == (FAIL, 19), payload
            assert name.encode() in payload
            raw.send(frame(PUBLISH, published(b"forged", extra), b"\x01"))
        raw.send(frame(PUBLISH, published(b"forged"), b"\x02"))
        assert heard.get(timeout=PATIENCE) == 2
        assert heard.empty()
        raw.send(frame(CALL, called(b"svc.shop.who_plainly"), b"\xc0", id=2 * ID))
        assert answered(raw)[2].endswith(b"None private")
    finally:
        raw.close()


def answered(raw: Raw) -> tuple[int, bytes, bytes]:
    """The next answer to a call."""
    while True:
        received = raw.receive()
        assert received is not None, "the hub has closed the link"
        kind, head, payload = received[0], received[-2], received[-1]
        if kind in (FAIL, REPLY):
            return kind, head, payload


def test_bad_settings_are_told_at_once() -> None:
    with tw.Node(name="hub") as node:
        for url, word in (
            ("http://127.0.0.1", "port"),
            ("http://127.0.0.1:99999", "port"),
            ("https://127.0.0.1:0", "proxy"),
            ("http://127.0.0.1:0/path", "http://host:port"),
            ("http://no.such.host.invalid:0", "name of this machine"),
        ):
            with pytest.raises(tw.InvalidArgument, match=word):
                node.listen(url)
        with pytest.raises(tw.Unauthorized, match="clear text"):
            node.listen("http://0.0.0.0:0")
        for limits, word in (({"http_nothing": 1}, "there is no such limit"), ({"http_streams": 0}, "http_streams: 0")):
            with pytest.raises(tw.InvalidArgument, match=word):
                node.listen("http://127.0.0.1:0", http=tw.Http(limits=limits))
        with pytest.raises(tw.InvalidArgument, match="http"):
            node.listen("tide://127.0.0.1:0", http=tw.Http())
        with pytest.raises(tw.InvalidArgument, match="cors"):
            tw.Http(cors=("shop.example",))
        url = node.listen("http://127.0.0.1:0").url
        with pytest.raises(tw.ConfigError, match="in use"):
            node.listen(url)
        assert node.listen("http://127.0.0.1:0").url != url
