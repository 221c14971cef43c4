"""Links: who joins a hub, who is refused, and what each knows of the others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import re
import signal
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw
from link_frames import (
    ANSWER,
    CALL,
    ERROR,
    HELLO,
    NORMAL,
    OK,
    PING,
    PONG,
    REPLY,
    SUBSCRIBE,
    WELCOME,
    Raw,
    fields,
    frame,
)
from link_processes import PATIENCE_S, Programs, free_port
from link_programs import Workshop, until_served

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])
SECRET = "correct horse"


class Shop(tw.Service, visibility="public"):
    """A service with a method for each kind of caller."""

    @tw.method
    async def buy(self) -> str:
        return "bought"

    @tw.method(visibility="private")
    async def restock(self) -> str:
        return "restocked"

    @tw.method(visibility="node")
    async def audit(self) -> str:
        return "audited"


async def test_a_service_for_this_process_alone_is_invisible_to_others(started: Programs) -> None:
    _, url = started.hub()
    async with tw.Node(url, name="server") as server:
        await server.serve(Workshop(), name="hidden", visibility="node")
        await server.serve(Shop())
        async with tw.Node(url, name="caller") as node:
            (info,) = await node.services()
            assert (info.name, [method.name for method in info.methods]) == ("shop", ["buy", "restock"])
            with pytest.raises(tw.NoResponders, match="hidden"):
                await node.client("hidden").label()
            assert await node.client("shop").restock() == "restocked"
            for shop in (node.client("shop"), node.client(Shop)):
                with pytest.raises(tw.NoSuchTarget, match="shop has no method 'audit'"):
                    await shop.audit()


@KINDS
async def test_a_node_that_has_stopped_can_begin_again_under_its_name(started: Programs, kind: str) -> None:
    _, url = started.listening(started.url(kind))
    # The hub may read the first word of the new link before it sees the end of the old one.
    for number in range(200):
        async with tw.Node(url, name="caller") as node:
            assert await node.client("workshop").plain(number) == number + 1


def test_a_join_where_no_hub_listens_names_the_address() -> None:
    url = f"tide://127.0.0.1:{free_port()}"
    with pytest.raises(tw.LinkLost, match=url), tw.Node(url, name="caller"):
        pass


def test_a_join_where_something_else_listens_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"tide://127.0.0.1:{other.getsockname()[1]}"

        async def answer() -> None:
            connection, _ = await asyncio.to_thread(other.accept)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            connection.close()

        async def join() -> None:
            async with tw.Node(url, name="caller"):
                pass

        async def story() -> None:
            answering = asyncio.create_task(answer())
            with pytest.raises((tw.WireError, tw.LinkLost), match="no hub"):
                await join()
            await answering

        asyncio.run(story())


@pytest.mark.promise("P13.93")
async def test_a_hub_that_stands_still_is_waited_for(started: Programs) -> None:
    hub, url = started.hub()
    brief: Any = {"links": {"link_heartbeat_ms": 300}}
    hub.halt()
    with pytest.raises(tw.LinkLost, match="does not answer") as told:
        async with tw.Node(url, name="caller", config=brief):
            pass
    assert told.value.retryable
    waiting = tw.Node(url, name="caller", config=brief, join_timeout=PATIENCE_S)
    joining = asyncio.create_task(waiting.__aenter__())
    # The hub goes on after the first attempt, and before the last.
    with pytest.raises(tw.LinkLost):
        await asyncio.to_thread(_joined, tw.Node(url, name="other", config=brief))
    hub.signal(signal.SIGCONT)
    node = await joining
    assert "caller" in {other.name for other in await node.nodes()}
    await node.stop()


def _joined(node: tw.Node) -> None:
    with node:
        pass


OLDER = "the hub speaks version 2, the node 1 to 1: the node that joins is older, update it"
VERSIONS = [
    (tw.VersionMismatch, frame(ERROR, struct.pack("<H", 28), OLDER.encode(), flags=0), OLDER),
    (tw.WireError, frame(WELCOME, struct.pack("<H", 9), fields(), flags=0), "its version is not one that was offered"),
]


@pytest.mark.parametrize(("kind", "said", "text"), VERSIONS)
def test_a_hub_of_another_version_says_which_side_is_to_be_updated(
    kind: type[Exception], said: bytes, text: str
) -> None:
    def answer(hub: socket.socket) -> None:
        connection, _ = hub.accept()
        with connection:
            assert connection.recv(4_096)
            connection.sendall(said)
            # Until the node has closed it.
            while connection.recv(4_096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as hub:
        answering = threading.Thread(target=answer, args=(hub,))
        answering.start()
        url = f"tide://127.0.0.1:{hub.getsockname()[1]}"
        with pytest.raises(kind, match=re.escape(text)), tw.Node(url, name="caller"):
            pass
        answering.join(30)
        assert not answering.is_alive()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("tide://127.0.0.1", "port is missing"),
        ("tide://127.0.0.1:70000", "number from 0 to 65,535"),
        ("tide://:7420", "is missing"),
        ("tide+unix://relative.sock", "begins with a slash"),
        (f"tide+unix:///{'a' * 120}", "at most 107 bytes"),
        ("http://127.0.0.1:1", "not known"),
    ],
)
def test_a_wrong_url_is_refused_with_its_fix(url: str, problem: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=problem), tw.Node(url, name="caller"):
        pass


async def test_a_hub_says_what_happened_when_two_nodes_serve_different_things_under_one_name(started: Programs) -> None:
    _, url = started.hub()
    async with tw.Node(url, name="server") as server, tw.Node(url, name="other") as other:
        await server.serve(Workshop("a"), name="workshop")
        await until_served(other, "workshop")
        with pytest.raises(tw.NameTaken, match="workshop"), contextlib.suppress(asyncio.CancelledError):
            await other.serve({"another": lambda: 1}, name="workshop")


@pytest.mark.promise("P13.48", "P16.28")
async def test_one_collection_ends_a_node_that_nobody_refers_to() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        forgotten = await tw.Node(url, name="forgotten").__aenter__()
        await hub.until(lambda now: now["links"]["nodes"] == 2, PATIENCE_S)
        gone = weakref.ref(forgotten)
        # Received frames are handled; nothing else is under way.
        await asyncio.sleep(0)
        gc.collect()
        gc.disable()
        try:
            del forgotten
            gc.collect()
            assert gone() is None, f"it is kept by {gc.get_referrers(gone())}"
        finally:
            gc.enable()
        await hub.until(lambda now: now["links"]["nodes"] == 1, PATIENCE_S)


@pytest.mark.promise("P13.9")
async def test_arguments_of_a_joined_node_are_checked_before_they_are_sent() -> None:
    async with tw.Node(name="hub") as hub:
        with pytest.raises(tw.InvalidArgument, match=r"url: None is not allowed: give text such as"):
            hub.listen(None)  # type: ignore[arg-type]
        url = hub.listen("tide://127.0.0.1:0").url
        await hub.serve(lambda: 1, name="one")
        async with tw.Node(url, name="caller") as caller:
            for headers in ({"a": 5}, {5: "a"}, 5, ["ab"]):
                with pytest.raises(tw.InvalidArgument, match=r"headers: .* is not allowed: give at most 56 strings"):
                    caller.publish("a", 1, headers=headers)  # type: ignore[arg-type]
                with pytest.raises(tw.InvalidArgument, match="headers: "):
                    await caller.request("a", 1, headers=headers)  # type: ignore[arg-type]
            with pytest.raises(tw.InvalidArgument, match=r"'tw-trace' is not allowed: .* Tidewire's own"):
                caller.client("one").with_(headers={"tw-trace": "x"})
            for subject in ("$hub.services.added", "$node.1.x"):
                with pytest.raises(tw.InvalidSubject, match="belong to the hub or to one node"):
                    caller.publish(subject, 1)
            one = caller.client("one")
        with pytest.raises(tw.NodeStopped, match="has been stopped: make a new one"):
            await one.one()


@pytest.mark.promise("P13.49")
@pytest.mark.parametrize("within_s", [PATIENCE_S, None])
def test_a_node_waits_for_a_hub_that_is_not_up_yet(started: Programs, caplog: Any, within_s: float | None) -> None:
    url = started.url("unix")
    told = threading.Event()
    caplog.set_level(logging.INFO, logger="tidewire")
    caplog.handler.addFilter(lambda record: told.set() or True if "waiting for it" in record.getMessage() else True)

    async def story() -> None:
        async with tw.Node(url, name="early", join_timeout=within_s) as node:
            assert node.statistics()["links"]["hub"] is not None

    def open_hub() -> None:
        assert told.wait(PATIENCE_S)
        started.hub(url)

    opener = threading.Thread(target=open_hub)
    opener.start()
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    with tw.Node(url, name="early again", join_timeout=within_s) as node:
        assert node.statistics()["links"]["hub"] is not None
    opener.join()


@pytest.mark.promise("P13.49")
def test_a_node_gives_a_hub_up_that_does_not_come(started: Programs) -> None:
    node = tw.Node(started.url("unix"), join_timeout=0.2)
    with pytest.raises(tw.LinkLost, match="there is no hub at"):
        node.start()
    with pytest.raises(tw.InvalidArgument, match="join_timeout: -1"):
        tw.Node(started.url("unix"), join_timeout=-1)
    with pytest.raises(tw.Unauthorized):
        tw.Node(started.hub(started.url("unix"), "--token", SECRET)[1], token="wrong", join_timeout=None).start()


class _Cutter:
    """A proxy of a hub that cuts the first links in front of a frame of the node: as if the hub had
    ended after its WELCOME.
    """

    def __init__(self, hub: str, cuts: int, at: int) -> None:
        self._hub, self._cuts, self._at = hub, cuts, at
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"tide://127.0.0.1:{self._listening.getsockname()[1]}"
        self.links = 0

    def __enter__(self) -> _Cutter:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._listening, *self._sockets:
            _shut(one)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        for one in self._listening, *self._sockets:
            one.close()

    def _begin(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                node, _ = self._listening.accept()
                hub = Raw(self._hub).socket
                self._sockets += node, hub
                self.links += 1
                self._begin(self._to_hub, Raw.of(node), hub, self.links <= self._cuts)
                self._begin(self._to_node, hub, node)

    def _to_hub(self, node: Raw, hub: socket.socket, cuts: bool) -> None:
        with contextlib.suppress(OSError):
            while (came := node.receive()) is not None:
                kind, exchange, head, payload = came
                if cuts and kind == self._at:
                    break
                hub.sendall(frame(kind, head, payload, node.flags, exchange))
        _shut(hub)
        _shut(node.socket)

    def _to_node(self, hub: socket.socket, node: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := hub.recv(65_536):
                node.sendall(data)
        _shut(node)


def _threads() -> list[str]:
    return sorted(one.name for one in threading.enumerate() if "caller" in one.name)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


CUTS = pytest.mark.parametrize("at", [SUBSCRIBE, CALL], ids=["subscription", "listing"])
WAYS = pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])


def _entered(node: tw.Node, is_async: bool) -> list[str]:
    """Enter and leave a node, and return the services that it knows."""

    async def story() -> list[str]:
        async with node:
            return list(node.statistics()["links"]["services"])

    if is_async:
        return asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    with node:
        return list(node.statistics()["links"]["services"])


@pytest.mark.promise("P13.94")
@CUTS
@WAYS
def test_a_link_that_is_lost_before_the_first_answer_is_joined_again_in_time(at: int, is_async: bool) -> None:
    with tw.Node(name="hub") as hub:
        hub.serve(Workshop("one"), name="workshop")
        with _Cutter(hub.listen("tide://127.0.0.1:0").url, 2, at) as cutter:
            node = tw.Node(cutter.url, name="caller", join_timeout=30)
            assert _entered(node, is_async) == ["workshop"]
            assert cutter.links == 3


@pytest.mark.promise("P13.94")
@CUTS
@WAYS
def test_a_start_that_fails_leaves_nothing_behind(at: int, is_async: bool) -> None:
    with tw.Node(name="hub") as hub:
        hub.serve(Workshop("one"), name="workshop")
        with _Cutter(hub.listen("tide://127.0.0.1:0").url, 1, at) as cutter:
            node = tw.Node(cutter.url, name="caller", inspect=True)
            threads = _threads()
            with pytest.raises(tw.LinkLost):
                _entered(node, is_async)
            assert _threads() == threads
            # The name is free at once.
            assert _entered(tw.Node(cutter.url, name="caller"), is_async) == ["workshop"]
            assert _entered(node, is_async) == ["workshop"]
            assert cutter.links == 3


def listed(pattern: str, **says: object) -> bytes:
    """An entry of a hub's list, with what a node says of itself as JSON."""
    texts = b"".join(struct.pack("<H", len(text)) + text for text in (b"stranger", b"", pattern.encode()))
    said = fields(**{name: json.dumps(value) for name, value in says.items()}) if says else b""
    return texts + struct.pack("<II", 0, len(said)) + said


METHOD = {"name": "pay", "description": "", "parameters": {}, "result": {}, "stream": False, "idempotent": False}
METHOD |= {"timeout": None, "visibility": "private", "notes": []}
BANK = {
    "name": "bank",
    "description": "",
    "visibility": "private",
    "methods": [METHOD],
    "events": [],
    "instances": ["one"],
}
LISTED = [
    listed("svc.bank.one.*", service=BANK),
    listed("svc.bank.two.*", service=BANK),
    listed("svc.bank.two.*", service=BANK | {"instances": ["two"], "methods": [METHOD, METHOD]}),
    listed("svc.bank.two.*", service=7),
    listed("agent.ann", agent={"id": "bob", "type": "desk", "capabilities": []}),
    listed("agent.ann", agent={"id": "ann", "type": "desk", "capabilities": []}),
    listed("news"),
]


def test_announcements_of_strangers_at_an_older_hub_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def answer(hub: socket.socket) -> None:
        connection, _ = hub.accept()
        link = Raw.of(connection)
        while (came := link.receive()) is not None:
            kind, exchange, head, _ = came
            if kind == HELLO:
                said = fields(**{"name": "hub", "node": "3", "resume": "secret", "heartbeat-ms": "5000"})
                link.send(frame(WELCOME, struct.pack("<H", 1), said, flags=0))
            elif kind == SUBSCRIBE:
                link.send(frame(OK, flags=NORMAL | ANSWER, id=exchange))
            elif kind == PING:
                link.send(frame(PONG, id=exchange, flags=0))
            elif kind == CALL and b"$hub.services" in head:
                value = b"".join(LISTED)
                link.send(frame(REPLY, b"", struct.pack(">BI", 0xC6, len(value)) + value, NORMAL | ANSWER, exchange))
        connection.close()

    async def story(url: str) -> None:
        async with tw.Node(url, name="reader") as node:
            assert [(info.name, info.instances) for info in await node.services()] == [("bank", ("one",))]
            assert node.statistics()["links"]["skipped"] == 4

    with socket.create_server(("127.0.0.1", 0)) as hub:
        answering = threading.Thread(target=answer, args=(hub,))
        answering.start()
        with caplog.at_level("WARNING", logger="tidewire"):
            asyncio.run(story(f"tide://127.0.0.1:{hub.getsockname()[1]}"))
        answering.join()
    told = [record.message for record in caplog.records if "is skipped" in record.message]
    assert len(told) == 3, "of many, few are logged"
    assert "what node 'stranger' says on 'svc.bank.two.*' is skipped, 1 so far" in told[0]
