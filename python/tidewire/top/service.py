"""The service ``$sys`` of a node: its statistics, for ``tidewire top`` and other callers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import selectors
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from tidewire._binding import Bridge, Hub, RemoteCall, __version__
from tidewire._log import logger
from tidewire._urls import without_secrets
from tidewire.errors import TidewireError
from tidewire.links.announcements import described
from tidewire.services.contract.info import MethodInfo, ServiceInfo
from tidewire.services.contract.names import short
from tidewire.top import answer
from tidewire.top.sockets import new_path

if TYPE_CHECKING:
    from tidewire.node import Node

SERVICE = "$sys"

WATCHERS_MAX = 16
"""Programs that are joined to the socket of a node at once."""

CALLS_MAX = 64
"""Calls over the hub of a node that wait for their answer; further ones are refused."""

LOOK_SHARE = 0.1
"""Most of the time that answers take. In between the last one is given again."""

_NO_RESPONDERS, _INVALID_ARGUMENT, _LIMIT_EXCEEDED = 17, 9, 14
_JOIN_S = 1.0
_METHODS = {
    "about": "Which node it is: its name, process, URL, versions and age.",
    "statistics": "Agents, pools, services, actors and dispatchers: the busiest of each, and how many there are.",
}


class StatisticsService:
    """The service of one node, on a thread of its own, so that it answers also while the event loop
    of the node is blocked.

    Processes of the same user reach it at a socket, which is a hub where nothing else is served;
    other nodes over the hub that the node has joined, or is, as they do any private service. The
    thread sleeps until somebody calls. It holds the node only while it looks at it, and ends with
    it.

    Raises:
        ConfigError: if there is no place for the socket that only this user can open.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node, lambda _: self.end())
        self._started_s = time.monotonic()
        self._last: dict[str, Any] = {}
        self._fresh_until_s = 0.0
        self._calls: deque[RemoteCall] = deque()
        self._pid, self._ended = os.getpid(), False
        path = new_path(node.name)
        self._key = path.stem
        self._bridge = Bridge()
        settings = {**node.links.to_dict(), "hub_links": WATCHERS_MAX + 1}
        self._hub = Hub(node.name, [], settings, _log)
        self._link = self._hub.join(node.name, None, settings)
        self._link.deliver_to(self._bridge, lambda came: self._receive(came))
        self._subscription, _ = self._link.subscribe(self.pattern, "", self.says(), 1)
        # poll, and not epoll: its set would be shared with the child of a fork.
        self._loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        try:
            self._listening = self._hub.listen_to_own_user(str(path))
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name=f"{node.name}-inspect", daemon=True)
        self._thread.start()

    @property
    def pattern(self) -> str:
        """Pattern of its subscription."""
        return f"svc.{SERVICE}.{self._key}.*"

    def says(self) -> dict[str, str]:
        """Return what it says of itself."""
        methods = (MethodInfo(*each, result={"type": "object"}, idempotent=True) for each in _METHODS.items())
        text = "Statistics of a node that may be looked at (inspect=True)."
        return described(ServiceInfo(SERVICE, text, methods=tuple(methods), instances=(self._key,)))

    def take(self, call: Any) -> None:
        """Take a call that came over the hub of the node, on its loop."""
        if not isinstance(call, RemoteCall):
            return
        if len(self._calls) >= CALLS_MAX:
            call.refuse(_LIMIT_EXCEEDED, f"{SERVICE}: {CALLS_MAX} calls wait for their answer: call again later")
            return
        self._calls.append(call)
        self._on_thread(self._answer_next)

    def end(self) -> None:
        """Remove the socket, and end the thread. A second call does nothing, and neither does one
        in the child of a fork.
        """
        if self._ended or self._pid != os.getpid():
            return
        self._ended = True
        self._listening.close()
        self._on_thread(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def _on_thread(self, call: Any) -> None:
        # The thread has ended if its loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    # The thread

    def _run(self) -> None:
        self._loop.add_reader(self._bridge.fileno(), self._bridge.drain)
        try:
            self._loop.run_forever()
        finally:
            self._close()

    def _receive(self, came: list[Any]) -> None:
        for _, what in came:
            if isinstance(what, RemoteCall):
                self._answer(what)

    def _answer_next(self) -> None:
        self._answer(self._calls.popleft())

    def _close(self) -> None:
        self._subscription.close()
        self._link.close()
        self._hub.close()
        self._loop.close()
        while self._calls:
            self._calls.popleft().refuse(_NO_RESPONDERS, f"{SERVICE}: the node has stopped")

    def _answer(self, call: RemoteCall) -> None:
        if call.cancelled:
            return
        # The caller receives every error.
        try:
            subject, value, *_, origin = call.opened()
            method, node = subject.rpartition(".")[2], self._node()
            if node is None or origin == "public" or method not in _METHODS:
                call.refuse(_NO_RESPONDERS, f"{SERVICE}: nobody answers {short(method)} here")
            elif call.reads_items or (value and any(value)):
                call.refuse(_INVALID_ARGUMENT, f"{SERVICE}.{method}: it takes no arguments, and gives one value")
            else:
                call.reply(self._about(node) if method == "about" else self._statistics(node))
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, TidewireError):
                logger.warning("%s: the statistics could not be told: %s", SERVICE, error, exc_info=error)
            with contextlib.suppress(TidewireError):
                call.fail(error)

    def _about(self, node: Node) -> dict[str, Any]:
        return {
            "node": node.name,
            "pid": os.getpid(),
            "url": without_secrets(node.url),
            "versions": {"tidewire": __version__, "python": platform.python_version()},
            "uptime_s": round(time.monotonic() - self._started_s, 3),
        }

    def _statistics(self, node: Node) -> dict[str, Any]:
        began_s = time.monotonic()
        if began_s >= self._fresh_until_s:
            self._last = {**self._about(node), "at_s": began_s, **answer.bounded(node.statistics())}
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + (ended_s - began_s) * (1 / LOOK_SHARE - 1)
        return self._last


def _log(line: str, is_wrong: bool) -> None:
    logger.debug("%s: %s", SERVICE, line)
