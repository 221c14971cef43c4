"""The thread in a node that answers looks from outside."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from tidewire.top import answer
from tidewire.top.places import listen, peer_uid

if TYPE_CHECKING:
    from tidewire.node import Node

CLIENTS_MAX = 8
"""One more takes the place of the one that has kept the node waiting for longest."""

QUESTION_BYTES_MAX = 1_024
CLIENT_S = 2.0
"""Seconds from a client's call to the end of its answer; then it is dropped."""

LOOK_SHARE = 0.1
"""Most of the time that looks take. In between the last answer is given again."""

_JOIN_S = 1.0
_ACCEPT_PAUSE_S = 1.0
_open: weakref.WeakSet[Inspector] = weakref.WeakSet()


class Inspector:
    """A socket and the thread that answers on it, for one node.

    The thread sleeps in ``poll`` until somebody calls. It holds the node only while it looks at it, and ends with it.

    Raises:
        ConfigError: if there is no place for the socket that only this user can open.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node, lambda _: self.end())
        self._started_s = time.monotonic()
        self._listener, self.path = listen(node.name)
        self._wake, self._waker = socket.socketpair()
        self._clients: dict[socket.socket, _Client] = {}
        self._pause_until_s = 0.0
        self._last, self._fresh_until_s = b"", 0.0
        self._pid, self._ended = os.getpid(), False
        _open.add(self)
        self._thread = threading.Thread(target=self._run, name=f"{node.name}-inspect", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Remove the socket, and end the thread. A second call does nothing, and neither does one in the child of a fork."""
        if self._ended or self._pid != os.getpid():
            return
        self._ended = True
        self.path.unlink(missing_ok=True)
        self._waker.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def forked(self) -> None:
        """Let go of the sockets in the child of a fork, so that they end with the parent."""
        for one in (self._listener, self._wake, self._waker, *self._clients):
            one.close()

    # The thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for one in (self._listener, self._wake, *self._clients):
                one.close()

    def _turn(self) -> bool:
        ready, now_s = self._wait(time.monotonic()), time.monotonic()
        if self._wake in ready:
            return False
        for one in ready:
            if one is not self._listener:
                self._serve(self._clients[one])
        if self._listener in ready:
            self._accept(now_s)
        for late in [client for client in self._clients.values() if client.deadline_s <= now_s]:
            self._drop(late)
        return True

    def _wait(self, now_s: float) -> list[socket.socket]:
        deadlines = [client.deadline_s for client in self._clients.values()]
        # poll, and not epoll: its set would be shared with the child of a fork.
        with selectors.PollSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for one, client in self._clients.items():
                selector.register(one, selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ)
            if self._pause_until_s > now_s:
                deadlines.append(self._pause_until_s)
            else:
                selector.register(self._listener, selectors.EVENT_READ)
            timeout_s = max(min(deadlines) - now_s, 0.0) if deadlines else None
            return [key.fileobj for key, _ in selector.select(timeout_s) if isinstance(key.fileobj, socket.socket)]

    def _accept(self, now_s: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Without file descriptors the call would stay, and be looked at without end.
            self._pause_until_s = now_s + _ACCEPT_PAUSE_S
            return
        connection.setblocking(False)
        if peer_uid(connection) != os.geteuid():
            connection.close()
            return
        if len(self._clients) == CLIENTS_MAX:
            self._drop(min(self._clients.values(), key=lambda client: (bool(client.answer), client.deadline_s)))
        self._clients[connection] = _Client(connection, now_s + CLIENT_S)

    def _serve(self, client: _Client) -> None:
        try:
            if not client.answer:
                client.read()
                if client.is_complete:
                    client.answer = self._answer(bytes(client.question))
            if client.answer and client.write():
                self._drop(client)
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        del self._clients[client.socket]
        client.socket.close()

    # Questions

    def _answer(self, question: bytes) -> bytes:
        asked = json.loads(question.partition(b"\n")[0])
        node = self._node()
        if node is None or not isinstance(asked, dict):
            raise ValueError("a question is an object")
        try:
            return self._answer_about(node, asked.get("ask"))
        except Exception as error:  # noqa: BLE001
            return answer.encode({"error": f"{type(error).__name__}: {error}"})

    def _answer_about(self, node: Node, ask: Any) -> bytes:
        if ask == "who":
            return answer.encode({**answer.who(node), "uptime_s": round(time.monotonic() - self._started_s, 3)})
        if ask == "top":
            return self._look(node)
        return answer.encode({"error": f"ask: {ask!r} is not known: this version answers 'who' and 'top'"})

    def _look(self, node: Node) -> bytes:
        began_s = time.monotonic()
        if began_s >= self._fresh_until_s:
            self._last = answer.look(node, began_s - self._started_s)
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + (ended_s - began_s) * (1 / LOOK_SHARE - 1)
        return self._last


class _Client:
    """One connection: a question comes in, an answer goes out."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self.socket = connection
        self.deadline_s = deadline_s
        self.question = bytearray()
        self.answer = b""

    @property
    def is_complete(self) -> bool:
        return b"\n" in self.question

    def read(self) -> None:
        """Read what there is of the question.

        Raises:
            ValueError: if it is too long, or ends in its middle.
        """
        part = self.socket.recv(QUESTION_BYTES_MAX + 1)
        self.question += part
        if not part or len(self.question) > QUESTION_BYTES_MAX:
            raise ValueError("the question has no end")

    def write(self) -> bool:
        """Write what there is room for. Returns whether that was all."""
        self.answer = self.answer[self.socket.send(self.answer) :]
        return not self.answer


def _forget_all() -> None:
    for inspector in list(_open):
        with contextlib.suppress(OSError):
            inspector.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
