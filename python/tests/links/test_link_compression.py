"""Links: payloads are compressed where that is asked for, and only for those who can read them."""

from __future__ import annotations

import os
import struct
from random import Random
from time import monotonic
from typing import Any

import numpy
import pytest
import tidewire as tw
from link_frames import COMPRESSED, ID, OK, PUBLISH, SUBSCRIBE, Raw, frame, published, subscribed
from link_processes import PATIENCE_S, Programs

NEAR = {"links": {"link_compress_near_bytes": 1_000}}
ENV = {"TIDEWIRE_LINKS__LINK_COMPRESS_NEAR_BYTES": "1000"}
TEXT = "wind, tide and harbour; " * 400
MIB = 1 << 20
LENGTH = 63 * MIB
"""Of a payload that is compressed: with what comes before the value, less than
``link_compressed_bytes``.
"""


def letters(length: int) -> bytes:
    """Letters of which a fifth is the same one: they get shorter by little more than an eighth."""
    random = Random(7)
    part = b"".join(bytes(random.choices(range(65, 123), k=13_000)) + b"x" * 3_000 for _ in range(20))
    return (part * (length // len(part) + 1))[:length]


def reader(url: str, **texts: str) -> Raw:
    raw = Raw.joined(url, **texts)
    raw.send(frame(SUBSCRIBE, subscribed(b"news"), id=ID))
    heard(raw, OK)
    return raw


def heard(raw: Raw, kind: int) -> bytes:
    """Wait for a frame of this kind, and give its payload."""
    while (found := raw.receive()) is not None:
        if found[0] == kind:
            return found[3]
    raise AssertionError("the hub has closed the link")


def is_packed(raw: Raw, node: tw.Node) -> bool:
    """Publish a text, and see how it arrives."""
    node.publish("news", TEXT)
    payload = heard(raw, PUBLISH)
    packed = bool(raw.flags & COMPRESSED)
    assert (len(payload) < len(TEXT) / 2) == packed
    if packed:
        assert len(TEXT) < struct.unpack_from("<Q", payload)[0] < len(TEXT) + 10
    return packed


def everything_arrives(node: tw.Node) -> None:
    workshop = node.client("workshop").sync
    for value in (TEXT, [TEXT.encode()] * 300, os.urandom(300_000), [bytes(2 << 20), {"a": TEXT}], letters(5 * MIB), 7):
        assert workshop.echo(value) == value
    items = list(workshop.blocks(5, 100_000))
    assert [len(item) for item in items] == [100_000] * 5


@pytest.mark.parametrize("place", ["tcp", "unix", "ws"])
def test_compressed_values_arrive_unchanged(started: Programs, place: str) -> None:
    _, url = started.hub("ws://127.0.0.1:0" if place == "ws" else started.url(place))
    started.server(url, **ENV)
    with tw.Node(url, name="caller", config=NEAR) as node:
        everything_arrives(node)


def test_compressed_values_arrive_at_a_hub_that_is_a_node_itself(started: Programs) -> None:
    with tw.Node(name="hub", config=NEAR) as hub:
        started.server(hub.listen("tide://127.0.0.1:0").url, **ENV)
        everything_arrives(hub)


def long(kind: str) -> Any:
    match kind:
        case "bytes":
            return letters(LENGTH)
        case "text":
            return letters(LENGTH).decode()
        case "array":
            return numpy.frombuffer(letters(LENGTH), dtype=numpy.int64)
        case _:
            return bytes(LENGTH)


@pytest.mark.parametrize("kind", ["bytes", "text", "array", "zeros"])
def test_a_compressed_value_is_held_once_by_its_receiver(started: Programs, kind: str) -> None:
    hub, url, server = started.hub_and_server()
    value = long(kind)
    raw = reader(url)
    with tw.Node(url, name="caller", config=NEAR) as node:
        workshop = node.client("workshop").sync
        # One-time costs, such as the module of arrays, are no part of the measurement.
        assert workshop.size(value[:20_000]) == 20_000
        assert is_packed(raw, node)
        before = {program: program.forget_peak() for program in (hub, server)}
        assert workshop.size(value) == len(value)
        grown = {program: program.peak_bytes - since for program, since in before.items()}
    print(
        f"{LENGTH // MIB} MiB, {kind}, compressed: receiver {grown[server] / MIB:.1f} MiB, hub {grown[hub] / MIB:.1f} MiB"
    )
    assert grown[server] <= 1.25 * LENGTH
    assert grown[hub] <= 8 * MIB


def test_nothing_is_compressed_within_a_host_unless_that_is_asked_for(started: Programs) -> None:
    _, url = started.hub()
    raw = reader(url)
    with tw.Node(url, name="usual", config={"links": {"link_compress_bytes": 1_000}}) as node:
        assert not is_packed(raw, node)
    with tw.Node(url, name="keen", config=NEAR) as node:
        assert is_packed(raw, node)
        node.publish("news", "short")
        assert heard(raw, PUBLISH).endswith(b"short")
        assert not raw.flags & COMPRESSED
        node.publish("news", os.urandom(5_000))
        assert len(heard(raw, PUBLISH)) > 5_000
        assert not raw.flags & COMPRESSED


def test_a_message_that_can_not_be_inflated_is_counted_and_logged_once(started: Programs) -> None:
    _, url = started.hub()
    with tw.Node(url, name="reader") as node:
        node.subscribe("news", lambda message: None)
        broken = frame(PUBLISH, published(b"news"), struct.pack("<Q", 100) + b"x", COMPRESSED | 2)
        raw = Raw.joined(url)
        # A call of the hub comes behind the subscription.
        node.subscribe("other", print).wait()
        for _ in range(3):
            raw.send(broken)
        assert raw.is_alive()
        until = monotonic() + PATIENCE_S
        while node.statistics()["links"]["dropped"] < 3:
            assert monotonic() < until, "they are not counted"
            node.subscribe("other", print).wait()
        assert node.statistics()["links"]["dropped"] == 3
        raw.close()
    with tw.Node(name="hub") as node:
        assert "of_hub" not in node.statistics()["links"]
        node.listen("tide://127.0.0.1:0")
        assert node.statistics()["links"]["of_hub"]["nodes"] == 1
