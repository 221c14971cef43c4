"""HTTP/2 in clear text, the descriptions, and the command."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import tidewire as tw
from h2.config import H2Configuration
from h2.connection import H2Connection
from http_support import PATIENCE, Order, Site, until
from link_processes import Programs


def test_many_calls_share_one_connection_of_http_2(place: Site) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(http1=False, http2=True, base_url=place.url, timeout=PATIENCE) as client:
            calls = [client.post("/services/shop/echo", json=[number]) for number in range(200)]
            answers = await asyncio.gather(*calls)
            assert [answer.json() for answer in answers] == list(range(200))
            assert {answer.http_version for answer in answers} == {"HTTP/2"}
            assert (await client.post("/services/shop/secret", json=[])).json()["code"] == "no_such_target"
            async with client.stream("POST", "/services/shop/count", json=[1_000]) as stream:
                assert [json.loads(line) async for line in stream.aiter_lines()] == list(range(1_000))
            assert place.statistics()["connections"] == 1

    asyncio.run(main())


def test_a_stream_of_http_2_that_is_reset_ends_its_handler(place: Site) -> None:
    talk = socket.create_connection(place.place, timeout=PATIENCE)
    two = H2Connection(H2Configuration(client_side=True))
    two.initiate_connection()
    try:
        for path in ("hang", "forever"):
            place.shop.inside.clear()
            place.shop.gone.clear()
            stream = two.get_next_available_stream_id()
            head = {":method": "POST", ":scheme": "http", ":authority": "localhost", ":path": f"/services/shop/{path}"}
            two.send_headers(stream, list(head.items()), end_stream=True)
            talk.sendall(two.data_to_send())
            assert place.shop.inside.wait(PATIENCE)
            two.reset_stream(stream)
            talk.sendall(two.data_to_send())
            assert place.shop.gone.wait(PATIENCE), path
        assert place.idle(), "they are still counted"
    finally:
        talk.close()


def test_the_services_are_described(place: Site) -> None:
    def swap(pair: tuple[int, Order], *rest: int) -> tuple[Order, int]:
        return pair[1], pair[0]

    other = place.node.serve({"swap": swap}, name="other", visibility="public")
    told = place.ask("GET", "/openapi.json").value
    other.sync.stop()
    assert told["openapi"] == "3.1.0"
    assert "/services/shop/secret" not in told["paths"]
    assert not [path for path in told["paths"] if "hidden" in path]
    price = told["paths"]["/services/shop/price"]["post"]
    assert (price["operationId"], price["summary"]) == ("shop.price", "Say what an order costs.")
    named, positional = price["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert named["properties"]["order"] == {"$ref": "#/components/schemas/Order"}
    assert [*named["properties"]] == ["order", "factor"]
    assert (len(positional["prefixItems"]), positional["minItems"], positional["maxItems"]) == (2, 1, 2)
    assert price["responses"]["200"]["content"]["application/json"]["schema"] == {"type": "number"}
    assert "text/event-stream" in told["paths"]["/services/shop/count"]["post"]["responses"]["200"]["content"]
    digest = told["paths"]["/services/shop/digest"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"$ref": "#/components/schemas/Bytes"} in digest["anyOf"][0]["properties"]["data"]["anyOf"]
    # Every reference leads somewhere, and each type has one component.
    text = json.dumps(told)
    assert {*told["components"]["schemas"]} == {"Problem", "Fault", "Bytes", "Order", "Command", "CommandReport"}
    assert '"items": false' not in text
    assert '"prefixItems": []' not in text
    assert '"type": "array"}' not in text
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.split('"')[0] in told["components"]["schemas"]


def test_the_page_loads_nothing_from_elsewhere(place: Site) -> None:
    page = place.ask("GET", "/")
    assert page.body == place.ask("GET", "/docs").body == place.ask("GET", "/docs/").body
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/docs/page.js", "/docs/page.css"):
        assert place.ask("GET", path).status == 200
        assert path in page.body.decode()
    assert "//" not in page.body.decode().replace("<!doctype html>", "")


def test_answers_are_compressed_for_those_who_accept_it(place: Site) -> None:
    text = "na" * 5_000
    with httpx.Client(base_url=place.url, headers={"accept-encoding": "gzip"}) as client:
        whole = client.post("/services/shop/echo", json=[text])
        assert (whole.headers["content-encoding"], whole.json()) == ("gzip", text)
        assert int(whole.headers["content-length"]) < 500
    zstd = place.call("shop/echo", text, accept_encoding="gzip, zstd")
    assert (zstd.headers["content-encoding"], zstd.body[:4]) == ("zstd", b"\x28\xb5\x2f\xfd")
    plain = place.call("shop/echo", text, accept_encoding="gzip;q=0, br")
    assert "content-encoding" not in plain.headers
    assert "accept-encoding" in plain.headers["vary"]


def test_the_command_opens_a_gateway(started: Programs, tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(
        '[hub]\nlisten = ["tide://127.0.0.1:0"]\nhttp = ["127.0.0.1:0"]\ncors = ["https://shop.example"]\n'
        "http_limits = { http_body_bytes = 100 }\n"
    )
    hub = started.run("-m", "tidewire", "up", "--json", "--config", str(config))
    link, web = json.loads(hub.line())["urls"]
    assert urlsplit(web).scheme == "http"
    with tw.Node(link, name="far") as far:
        far.serve({"double": lambda number: number * 2}, name="far", visibility="public")
        double = f"{web}/services/far/double"
        until(lambda: httpx.post(double, json=[21]).status_code == 200, "it is not served")
        assert httpx.post(double, json=[21]).json() == 42
        assert httpx.post(double, json=["x" * 200]).json()["code"] == "payload_too_large"
        page = httpx.post(double, json=[1], headers={"origin": "https://shop.example"})
        assert page.headers["access-control-allow-origin"] == "https://shop.example"
    hub.signal(signal.SIGTERM)
    assert hub.ended() == 0, hub.logged()
