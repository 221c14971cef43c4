"""Calls of services over HTTP: arguments, results, errors, and whom it lets in."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tidewire as tw
from http_support import PATIENCE, Answer, Site, ask, site, until

TOKENS = (
    tw.Token("hub-secret", "hub"),
    tw.Token("ann-secret", "ann"),
    tw.Token("bob-secret", "bob", call=("svc.shop.*.price",), publish=("orders.>",), subscribe=("orders.*",)),
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Site]:
    with site(tokens=TOKENS) as made:
        yield made


def test_arguments_are_given_by_position_and_by_name(place: Site) -> None:
    assert place.call("shop/price", {"symbol": "X", "qty": 3}).value == 7.5
    assert place.call("shop/price", {"symbol": "X"}, 4).value == 4
    named = place.ask("POST", "/services/shop/price", {"order": {"symbol": "X", "qty": 2}, "factor": 1.5})
    assert (named.status, named.value, named.headers["content-type"]) == (200, 3.0, "application/json")
    nothing = place.ask("POST", "/services/shop/echo")
    assert (nothing.status, nothing.body) == (200, b"null")


def test_other_values_have_forms_of_their_own(place: Site) -> None:
    found = place.call("shop/kinds").value
    assert found == {
        "bytes": {"$type": "bytes", "base64": "AP8="},
        "date": "2026-11-22",
        "datetime": "2026-11-22T08:30:00Z",
        "decimal": "1.10",
        "uuid": "00000000-0000-0000-0000-000000000005",
        "set": [3],
        "tuple": [1, "two"],
        "nan": {"$type": "float", "value": "nan"},
        "by number": {"$type": "map", "entries": [[1, "one"]]},
        "big": 2**64 - 1,
        "order": {"symbol": "X", "qty": 1},
    }
    for form in (found["bytes"], found["nan"], found["by number"], {"$type": "map", "entries": [["$type", 1]]}):
        assert place.call("shop/echo", form).value == form
    assert place.call("shop/digest", {"$type": "bytes", "base64": "AAEC"}).value == "bytes 3 NoneType"
    assert place.call("shop/digest", "AAEC", "2026-11-22T08:30:00Z").value == "bytes 3 datetime"
    form = {"$type": "datetime", "value": "2026-11-22T08:30:00+01:00"}
    assert place.call("shop/digest", "AAEC", form).value == "bytes 3 datetime"


def test_bad_bodies_are_told_what_is_wrong(place: Site) -> None:
    def told(body: bytes, media_type: str = "application/json") -> tuple[tuple[int, str], str]:
        answer = place.ask("POST", "/services/shop/echo", body, content_type=media_type)
        return answer.problem, answer.value["detail"]

    for body, word in (
        (b"3", "neither an array nor an object"),
        (b'["\xff"]', "unicode"),
        (b'["\\ud800"]', "escape"),
        (b"[" * 1_000, "recursion"),
        (b'{"valu": 1}', "valu"),
        (b"[1, 2]", "echo"),
    ):
        problem, detail = told(body)
        assert problem == (400, "invalid_argument"), body
        assert word in detail, (body, detail)
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""):
        problem, detail = told(b"[]", media_type)
        assert problem == (415, "invalid_argument")
        assert "Content-Type" in detail
    order = {"symbol": 1, "qty": "many", "x": 0}
    wrong = place.ask("POST", "/services/shop/price", {"order": order, "factor": [], "more": 1})
    assert wrong.problem == (400, "invalid_argument")
    places = {fault["pointer"] for fault in wrong.value["errors"]}
    assert places == {"/order/symbol", "/order/qty", "/order/x", "/factor", "/more"}
    by_position = place.call("shop/price", {"symbol": "X", "qty": "many"}).value
    assert [fault["pointer"] for fault in by_position["errors"]] == ["/0/qty"]
    assert by_position["detail"] == 'shop.price: /0/qty: order: "many" is not allowed: give integer'
    assert place.call("shop/price", {"symbol": "X", "qty": 3.0}).value == 7.5
    assert place.call("shop/echo", 1, content_encoding="gzip").problem == (415, "invalid_argument")


def test_errors_have_status_code_and_no_traceback(place: Site) -> None:
    failed = place.call("shop/fail", "so bad")
    assert failed.problem == (500, "remote_error")
    assert (failed.value["error"], failed.value["retryable"]) == ("builtins:ValueError", False)
    assert "so bad" in failed.value["detail"]
    assert "http_support.py" not in failed.body.decode()
    odd = place.node.serve({"function": lambda: print, "object": lambda: object()}, name="odd", visibility="public")
    until(lambda: place.call("odd/object").problem[0] != 404, "the gateway knows it")
    assert [place.call(f"odd/{name}").problem for name in ("function", "object")] == [(500, "remote_error")] * 2
    odd.sync.stop()
    for name, status, code in (
        ("LimitExceeded", 503, "limit_exceeded"),
        ("Unauthorized", 403, "unauthorized"),
        ("NoSuchTarget", 404, "no_such_target"),
        ("PayloadTooLarge", 413, "payload_too_large"),
    ):
        assert place.call("shop/refuse", name).problem == (status, code)
    refused = place.call("shop/refuse", "LimitExceeded")
    assert (refused.headers["retry-after"], refused.value["retryable"]) == ("1", True)
    late = place.call("shop/hang", tidewire_timeout="0.05")
    assert late.problem == (504, "ask_timeout")
    assert place.call("shop/echo", tidewire_timeout="soon").problem == (400, "invalid_argument")


def test_safe_methods_are_read_with_get(place: Site) -> None:
    path = "/services/shop/find?text=1%2b&most=2.0&tags=%5b"
    found = place.ask("GET", path)
    assert (found.status, found.value) == (200, ["1+1+", "["])
    again = place.ask("GET", path, if_none_match=found.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", found.headers["etag"])
    assert place.ask("GET", "/services/shop/find?text=2", if_none_match=found.headers["etag"]).status == 200
    wrong = place.ask("GET", "/services/shop/find?most=many&text=1&text=2")
    assert wrong.problem == (400, "invalid_argument")
    faults = place.ask("GET", "/services/shop/find?most=many").value["errors"]
    assert {fault["pointer"] for fault in faults} == {"/text", "/most"}
    told = place.ask("GET", "/openapi.json").value["paths"]["/services/shop/find"]
    assert [one["name"] for one in told["get"]["parameters"] if one["required"]] == ["text"]


def form(*parts: tuple[str, bytes], end: bytes = b"--part--\r\n") -> bytes:
    head = b'--part\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    return b"".join(head % (name.encode(), content) for name, content in parts) + end


FORM = "multipart/form-data; boundary=part"


@pytest.mark.promise("P13.98")
def test_files_of_a_form_are_bytes_or_streams(place: Site) -> None:
    def send(method: str, body: bytes, content_type: str = FORM, **headers: str) -> Answer:
        return place.ask("POST", f"/services/shop/{method}", body, content_type=content_type, **headers)

    when = ("when", b"2026-11-29T00:00:00Z")
    assert send("digest", form(("data", b"\xff" * 5), when)).value == "bytes 5 datetime"
    # More than `http_body_bytes`: nobody holds it.
    long = b"x" * (2**24 + 1)
    assert send("upload", form(("title", b"7"), ("data", long))).value == ["7", len(long)]
    for more, status in ((0, 200), (1, 413)):
        full = b"x" * (2**24 - len(form(("data", b""))) + more)
        assert send("digest", form(("data", full))).status == status
    cases = (
        (form(("data", b""), ("title", b"late")), {"errors": [{"pointer": "/title", "message": '"title" is missing'}]}),
        (form(("title", b"1"), ("title", b"2")), {"detail": '"title" is given twice: give it once'}),
        (form(("title", b"\xff")), {"detail": '"title" takes no file'}),
        (form(("title", b"1"), end=b""), {"detail": "incomplete"}),
    )
    for body, told in cases:
        answer = send("upload", body)
        assert answer.problem == (400, "invalid_argument")
        assert all(str(text) in str(answer.value[key]) for key, text in told.items())
    assert send("upload", b"", "multipart/form-data").problem == (415, "invalid_argument")
    assert send("upload", form(("data", b"")), idempotency_key="a").problem == (400, "invalid_argument")
    content = place.ask("GET", "/openapi.json").value["paths"]["/services/shop/upload"]["post"]["requestBody"][
        "content"
    ]
    assert content["multipart/form-data"]["schema"]["properties"]["data"]["format"] == "binary"


def test_a_key_makes_a_call_happen_once(place: Site) -> None:
    calls: list[int] = []
    gate = threading.Event()

    def pay(amount: int) -> int:
        gate.wait(PATIENCE)
        calls.append(amount)
        if amount < 0:
            raise ValueError("too little")
        return len(calls)

    bank = place.node.serve({"pay": pay}, name="bank", visibility="public")
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(place.call, "bank/pay", 5, idempotency_key="a") for _ in range(2)]
        gate.set()
        assert [one.result().value for one in both] == [1, 1]
    assert place.call("bank/pay", 6, idempotency_key="a").problem == (422, "invalid_argument")
    assert place.call("bank/pay", 5, idempotency_key="b").value == 2
    failed = [place.call("bank/pay", -1, idempotency_key="c").problem for _ in range(2)]
    assert failed == [(500, "remote_error")] * 2
    assert calls == [5, 5, -1]
    bank.sync.stop()


@pytest.mark.promise("P13.90")
def test_private_names_are_not_found(place: Site) -> None:
    unknown = place.call("shop/nothing").value["detail"]
    for path in ("shop/secret", "hidden/secret", "nobody/home", "shop/_quote", "shop/%00", "shop/a.b"):
        answer = place.call(path)
        assert answer.problem == (404, "no_such_target"), path
    assert place.call("shop/secret").value["detail"] == unknown.replace("nothing", "secret")
    assert place.call("shop%2Fecho").problem == (404, "no_such_target")
    assert '"nobody"' in place.call("nobody/home").value["detail"]
    assert "/no/where:" in place.ask("GET", "/no/where").value["detail"]
    assert place.ask("POST", "/subjects/svc.shop.echo", 1).problem == (400, "invalid_subject")
    assert place.call("shop/%ff").problem == (400, "invalid_argument")
    for method, path, allowed in (
        ("GET", "/services/shop/echo", "POST"),
        ("DELETE", "/services/shop/echo", "POST"),
        ("POST", "/openapi.json", "GET"),
        ("PUT", "/subjects/a", "POST, GET"),
    ):
        answer = place.ask(method, path)
        assert answer.problem == (405, "invalid_argument")
        assert answer.headers["allow"] == allowed


def test_services_that_come_and_go_are_seen_at_once(place: Site) -> None:
    for number in range(20):
        assert place.call("late/echo").problem == (404, "no_such_target")
        served = place.node.serve({"echo": lambda value: value}, name="late", visibility="public")
        assert place.call("late/echo", number).value == number
        served.sync.stop()
    place.node.serve({"echo": lambda value: value}, name="late", visibility="private")
    assert place.call("late/echo", 1).problem == (404, "no_such_target")


@pytest.mark.promise("P13.91")
def test_tokens_say_who_calls_and_what_they_may(guarded: Site) -> None:
    assert guarded.call("shop/echo").problem == (401, "unauthorized")
    assert guarded.call("shop/echo").headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer wrong-secret", "Basic YW5uOnNlY3JldA==", "Bearer", "ann-secret"):
        assert guarded.call("shop/echo", authorization=wrong).problem == (401, "unauthorized")
    who = guarded.call("shop/who", authorization="Bearer ann-secret").value
    assert (who["user"], who["origin"], who["headers"]) == ("ann", "public", {})
    assert guarded.call("shop/who_plainly", authorization="bearer ann-secret").value == "ann public"
    assert guarded.call("shop/price", {"symbol": "X"}, authorization="Bearer bob-secret").value == 2.5
    assert guarded.call("shop/echo", authorization="Bearer bob-secret").problem == (403, "unauthorized")
    assert guarded.ask("GET", "/healthz").body == b"alive\n"
    assert guarded.ask("GET", "/openapi.json").problem == (401, "unauthorized")
    paths = guarded.ask("GET", "/openapi.json", authorization="Bearer bob-secret").value["paths"]
    assert [*paths] == ["/services/shop/price"]


def test_headers_and_traces_are_passed_on(place: Site) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "a=1", "baggage": "shop=north"}
    who = place.call("shop/who", **context, tidewire_header_shop="north", x_other="1").value
    assert who == {"user": None, "origin": "public", "trace": trace, "headers": {"shop": "north", **context}}
    assert place.call("shop/who", traceparent="00-0", baggage="shop=north").value["headers"] == {}
    assert place.call("shop/who", tidewire_header_tw_user="eve").problem == (400, "invalid_argument")
    many = place.call("shop/echo", **{f"tidewire_header_h{n}": "" for n in range(57)})
    assert many.problem == (400, "invalid_argument")


@pytest.mark.promise("P13.89")
def test_a_client_that_disconnects_ends_the_handler(place: Site) -> None:
    place.shop.inside.clear()
    place.shop.gone.clear()
    connection = http.client.HTTPConnection(*place.place, timeout=PATIENCE)
    connection.request("POST", "/services/shop/hang", b"")
    assert place.shop.inside.wait(PATIENCE)
    connection.close()
    assert place.shop.gone.wait(PATIENCE), "its handler still runs"
    assert place.idle(), "its request is still open"


def test_a_stop_finishes_what_is_under_way_and_takes_no_more() -> None:
    with site() as place:
        late: Any = http.client.HTTPConnection(*place.place, timeout=PATIENCE)
        late.request("GET", "/healthz")
        assert late.getresponse().read() == b"alive\n"
        stream = http.client.HTTPConnection(*place.place, timeout=PATIENCE)
        stream.request("GET", "/subjects/news", headers={"accept": "text/event-stream"})
        told = stream.getresponse()
        began = time.monotonic()
    assert time.monotonic() - began < 10
    last = told.read().decode()
    assert "event: problem" in last
    assert json.loads(last.split("data: ")[1])["code"] == "node_stopped"
    with pytest.raises((OSError, http.client.HTTPException)):
        ask(late, "GET", "/healthz")
    with pytest.raises(OSError, match="refused"):
        place.ask("GET", "/healthz")
