"""The service ``$sys`` of a node: its statistics, for ``tidewire top`` and other callers."""

from __future__ import annotations

import contextlib
import os
import platform
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewire._binding import Bridge, Hub, RemoteCall, __version__, service_subject
from tidewire._log import log
from tidewire._runtime.loop_thread import LoopThread
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
_DESCRIPTION = "Statistics of a node that may be looked at (inspect=True)."
_TEXTS = {
    "about": "Which node it is: its name, process, URL, versions and age.",
    "statistics": "Agents, pools, services, actors and dispatchers: the busiest of each, and how many there are.",
}
_METHODS = tuple(MethodInfo(*each, result={"type": "object"}, idempotent=True) for each in _TEXTS.items())


class StatisticsService:
    """The service of one node, on a thread of its own, so that it answers also while the event loop
    of the node is blocked.

    Processes of the same user reach it at a socket, which is a hub where nothing else is served;
    other nodes over the hub that the node has joined, or is, as they do any private service. The
    thread sleeps until somebody calls. It holds the node only while it looks at it, and ends with
    it.

    Its subscription has a ``pattern``, and ``says`` how it is described to others.

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
        self.pattern = service_subject(SERVICE, "*", path.stem)
        self.says = described(ServiceInfo(SERVICE, _DESCRIPTION, methods=_METHODS, instances=(path.stem,)))
        self._bridge = Bridge()
        settings = {**node.links.to_dict(), "hub_links": WATCHERS_MAX + 1}
        self._hub = Hub(
            node.name,
            [],
            settings,
            lambda line, _: log.debug("hub.notice", "%(service)s: %(line)s", service=SERVICE, line=line),
        )
        self._link = self._hub.join(node.name, None, settings)
        self._link.deliver_to(self._bridge, self._receive)
        self._subscription, _ = self._link.subscribe(self.pattern, "", self.says, 1)
        try:
            self._listening = self._hub.listen_to_own_user(str(path))
        except BaseException:
            self._close()
            raise
        self._thread = LoopThread(f"{node.name}-inspect")
        self._thread.call(lambda: self._thread.loop.add_reader(self._bridge.fileno(), self._bridge.drain))

    def take(self, call: Any) -> None:
        """Take a call that came over the hub of the node, on its loop."""
        if not isinstance(call, RemoteCall):
            return
        if len(self._calls) >= CALLS_MAX:
            call.refuse(_LIMIT_EXCEEDED, f"{SERVICE}: {CALLS_MAX} calls wait for their answer: call again later")
        else:
            self._calls.append(call)
            # The loop is closed if the node has just stopped.
            with contextlib.suppress(RuntimeError):
                self._thread.loop.call_soon_threadsafe(self._answer_next)

    def end(self) -> None:
        """Remove the socket, and end the thread. A second call does nothing, and neither does one
        in the child of a fork.
        """
        if self._ended or self._pid != os.getpid():
            return
        self._ended = True
        self._listening.close()
        self._thread.loop.call_soon_threadsafe(self._close)
        self._thread.end()

    # The thread

    def _receive(self, came: list[Any]) -> None:
        for _, what in came:
            if isinstance(what, RemoteCall):
                self._answer(what)

    def _answer_next(self) -> None:
        if self._calls:
            self._answer(self._calls.popleft())

    def _close(self) -> None:
        self._subscription.close()
        self._link.close()
        self._hub.close()
        while self._calls:
            self._calls.popleft().refuse(_NO_RESPONDERS, f"{SERVICE}: the node has stopped")

    def _answer(self, call: RemoteCall) -> None:
        if call.cancelled:
            return
        # The caller receives every error.
        try:
            node = self._node()
            subject, value, *_, origin = call.opened()
            method = subject.rpartition(".")[2]
            if node is None or origin == "public" or method not in _TEXTS:
                call.refuse(_NO_RESPONDERS, f"{SERVICE}: nobody answers {short(method)} here")
            elif call.reads_items or (value and any(value)):
                call.refuse(_INVALID_ARGUMENT, f"{SERVICE}.{method}: it takes no arguments, and gives one value")
            else:
                call.reply(self._about(node) if method == "about" else self._statistics(node))
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, TidewireError):
                text = "%(service)s: the statistics could not be read: %(error)s"
                log.warning(
                    "statistics.failed", text, exc_info=error, node=node and node.name, service=SERVICE, error=error
                )
            with contextlib.suppress(TidewireError):
                call.fail(error)

    def _about(self, node: Node) -> dict[str, Any]:
        return {
            "node": node.name,
            "pid": os.getpid(),
            "url": without_secrets(node.url),
            "versions": {"tidewire": __version__, "python": platform.python_version()},
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "host": platform.node(),
            "cpu_s": round(time.process_time(), 3),
            "memory_bytes": _memory_bytes(),
        }

    def _statistics(self, node: Node) -> dict[str, Any]:
        began_s = time.monotonic()
        if began_s >= self._fresh_until_s:
            self._last = {**self._about(node), "at_s": began_s, **answer.bounded(node.statistics())}
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + (ended_s - began_s) * (1 / LOOK_SHARE - 1)
        return self._last


def _memory_bytes() -> int | None:
    """Return the resident memory of this process; None where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
