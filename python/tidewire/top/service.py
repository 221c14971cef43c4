"""The service ``$sys`` of a node: its statistics, for ``tidewire top`` and other callers."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tidewire import _trace_context
from tidewire._binding import Bridge, Hub, RemoteCall, __version__, service_subject
from tidewire._log import log
from tidewire._node import statistics_service
from tidewire._runtime.loop_thread import LoopThread
from tidewire._tracing.span_store import ANSWER_SPANS_MAX
from tidewire._urls import without_secrets
from tidewire.errors import InvalidArgument, TidewireError
from tidewire.links.announcements import described
from tidewire.links.service_endpoint import arguments_of
from tidewire.services.contract.info import MethodInfo, ServiceInfo
from tidewire.services.contract.names import short
from tidewire.top import actions, answer, rows
from tidewire.top.sockets import new_path

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from tidewire._binding import Gateway, Listening, Pending
    from tidewire.node import Node

SERVICE = "$sys"

WATCHERS_MAX = 16
"""Most programs joined to the socket of a node."""

CALLS_MAX = 64
"""Most pending calls over the hub of a node; further ones are refused."""

_HUB_TIMEOUT_S = 5.0
"""Timeout of the hub's confirmation that it has read all frames."""

LOOK_SHARE = 0.1
"""Most of the time that statistics may take. In between, the last ones are sent again."""

_CACHE_S = 10.0
"""Seconds for which all statistics are cached after a call of ``rows``."""

_NO_RESPONDERS, _INVALID_ARGUMENT, _LIMIT_EXCEEDED = 17, 9, 14
_DESCRIPTION = "Statistics of a node that may be looked at (inspect=True)."
_TEXTS = {
    "about": "Which node it is: its name, process, URL, versions and age.",
    "statistics": "Agents, pools, services, actors and dispatchers: the busiest of each, and how many there are.",
    "rows": "Some agents, actors, pools or services: those that have a text, sorted, from the first on.",
    "trace": "The stored spans of one trace: calls, messages and events of the process.",
}
_METHODS = (
    *(MethodInfo(*each, result={"type": "object"}, idempotent=True) for each in _TEXTS.items()),
    MethodInfo("act", "Acts on a campaign or pool of the process: an action, and its arguments."),
)


class StatisticsService:
    """The ``$sys`` service of one node. Its thread replies even while the event loop of the node is
    blocked.

    Processes of the same user reach it at a socket, which is a hub without other services. Other
    nodes reach it over the hub of the node, like any private service. The thread sleeps between
    calls. It references the node only during a call, and ends with it, as does the thread of the
    metrics.

    Attributes:
        pattern: Pattern of its subscription.
        announcement: Description of the service for other nodes.
        metrics_url: URL of its metrics, or None.

    Raises:
        InvalidArgument: if the address of the metrics is not allowed.
        ConfigError: if the address is in use, or no folder for the socket is private to this user.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node, lambda _: self.end())
        self._started_s = time.monotonic()
        self._last: dict[str, Any] = {}
        self._sent_s, self._ran_s = 0.0, cast("float | None", 0.0)
        self._probe(node)
        self._round_trip_us: float | None = None
        self._round_trip_reply: Pending | None = None
        self._fresh_until_s = 0.0
        self._statistics_cache: dict[str, Any] | None = None
        self._cache_timer: TimerHandle | None = None
        self._calls: deque[RemoteCall] = deque()
        self._pid, self._ended = os.getpid(), False
        path = new_path(node.name) if node._inspect else None
        instance = f"metrics-{self._pid}" if path is None else path.stem
        self.pattern = service_subject(SERVICE, "*", instance)
        self.announcement = described(ServiceInfo(SERVICE, _DESCRIPTION, methods=_METHODS, instances=(instance,)))
        self._bridge = Bridge()
        settings = {**node.links.to_dict(), "hub_links": WATCHERS_MAX + 2}
        self._hub = Hub(node.name, [], settings, _log_line)
        self._link = self._hub.join(node.name, None, settings)
        self._link.deliver_to(self._bridge, self._receive)
        self._subscription, _ = self._link.subscribe(self.pattern, "", self.announcement, 1)
        self._listeners: list[Listening | Gateway] = []
        self.metrics_url: str | None = None
        try:
            if path is not None:
                self._listeners.append(self._hub.listen_to_own_user(str(path)))
            if node._metrics is not None:
                url = node._metrics if "://" in node._metrics else f"http://{node._metrics}"
                metrics = self._hub.bind_metrics(url, _log_line)
                self._listeners.append(metrics)
                metrics.accept()
                self.metrics_url = f"{metrics.url}/metrics"
        except BaseException:
            self._close()
            raise
        self._thread = LoopThread(f"{node.name}-inspect")
        self._thread.call(lambda: self._thread.loop.add_reader(self._bridge.fileno(), self._bridge.drain))

    def take(self, call: Any) -> None:
        """Queue a call from the hub of the node. Runs on the loop of the node."""
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
        """Remove the socket, and end the thread. Does nothing the second time, or in a forked
        child.
        """
        if self._ended or self._pid != os.getpid():
            return
        self._ended = True
        self.metrics_url = None
        for listener in self._listeners:
            listener.close()
        self._thread.loop.call_soon_threadsafe(self._close)
        self._thread.end()

    # On the thread

    def _receive(self, frames: list[Any]) -> None:
        for _, frame in frames:
            if isinstance(frame, RemoteCall):
                # The socket has no tokens, so it allows no actions.
                self._answer(frame, may_act=False)

    def _answer_next(self) -> None:
        if self._calls:
            self._answer(self._calls.popleft(), may_act=True)

    def _close(self) -> None:
        if self._round_trip_reply is not None:
            self._round_trip_reply.cancel()
        for listener in self._listeners:
            listener.close()
        self._subscription.close()
        self._link.close()
        self._hub.close()
        while self._calls:
            self._calls.popleft().refuse(_NO_RESPONDERS, f"{SERVICE}: the node has stopped")

    def _answer(self, call: RemoteCall, may_act: bool) -> None:
        if call.cancelled:
            return
        # The caller receives every error.
        try:
            node = self._node()
            subject, value, *_, caller, user, origin = call.opened()
            method = subject.rpartition(".")[2]
            is_action = may_act and method == "act"
            if node is None or origin == "public" or not (is_action or method in _TEXTS):
                call.refuse(_NO_RESPONDERS, f"{SERVICE}: nobody answers {short(method)} here")
            elif is_action and not call.reads_items:
                actions.act(*arguments_of(value, subject), by=user or caller)
                # The next statistics must include the change.
                self._fresh_until_s = 0.0
                call.reply(None)
            elif call.reads_items:
                call.refuse(_INVALID_ARGUMENT, f"{SERVICE}.{method}: it gives one value, and no stream")
            elif method in ("rows", "trace"):
                read = self._rows if method == "rows" else self._trace
                call.reply(read(node, *arguments_of(value, subject)))
            elif value and any(value):
                call.refuse(_INVALID_ARGUMENT, f"{SERVICE}.{method}: it takes no arguments")
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
            "language": "python",
            "versions": {"tidewire": __version__, "python": platform.python_version()},
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "host": platform.node(),
            "cpu_s": round(time.process_time(), 3),
            "memory_bytes": _memory_bytes(),
        }

    def _statistics(self, node: Node) -> dict[str, Any]:
        began_s = time.monotonic()
        if began_s >= self._fresh_until_s:
            about = self._about(node)
            statistics = self._statistics_cache = node.statistics()
            self._drop_cache_later()
            traffic = {key: value for key, value in statistics["links"].items() if key in statistics_service.TRAFFIC}
            link = {"round_trip_us": self._round_trip(node), **traffic}
            process = {key: about[key] for key in ("cpu_s", "memory_bytes")} | self._probe(node) | link
            more = {"process": [process], "campaigns": statistics_service.campaigns(), **link}
            self._last = {**about, "at_s": began_s, **more, **answer.bounded(statistics)}
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + (ended_s - began_s) * (1 / LOOK_SHARE - 1)
        return self._last

    def _rows(self, node: Node, args: tuple[Any, ...], named_args: dict[str, Any]) -> dict[str, Any]:
        query = rows.Query.of(args, named_args)
        if self._statistics_cache is None:
            self._fresh_until_s = 0.0
        self._statistics(node)
        assert self._statistics_cache is not None
        self._drop_cache_later()
        return {"node": node.name, "at_s": self._last["at_s"], **query.answer(self._statistics_cache)}

    def _drop_cache_later(self) -> None:
        """Drop the statistics of all actors after ``_CACHE_S`` seconds without a call."""
        if self._cache_timer is not None:
            self._cache_timer.cancel()
        self._cache_timer = self._thread.loop.call_later(_CACHE_S, setattr, self, "_statistics_cache", None)

    def _trace(self, node: Node, args: tuple[Any, ...], named_args: dict[str, Any]) -> dict[str, Any]:
        spans = _trace_context.spans
        store = None if spans is None else spans.store
        match (args, named_args):
            case ((str(id),), {}) if not named_args and re.fullmatch("[0-9a-f]{32}", id):
                found = [] if store is None else store.find(id)
            case _:
                raise InvalidArgument(f"trace: {args!r:.200} is not allowed: give the id of a trace, 32 hex digits")
        return {
            "node": node.name,
            "host": platform.node(),
            "stores": 0 if store is None else store.most,
            "spans_count": len(found),
            "spans": [span.row(node.name) for span in found[:ANSWER_SPANS_MAX]],
        }

    def _round_trip(self, node: Node) -> float | None:
        """Return the last round trip time to the hub in microseconds, and start another
        measurement. None without a hub or a reply.
        """
        connection = node._connection
        if connection is None or not connection.is_joined:
            return None
        if connection.hub is not None:
            return 0.0
        if self._round_trip_reply is None or self._round_trip_reply.done():
            began_s = time.monotonic()

            def store_round_trip(answer: Pending) -> None:
                has_read = not answer.cancelled() and answer.exception() is None and answer.result()
                self._round_trip_us = (time.monotonic() - began_s) * 1e6 if has_read else None

            self._round_trip_reply = connection.link.drained(_HUB_TIMEOUT_S)
            self._round_trip_reply.add_done_callback(store_round_trip)
        return self._round_trip_us

    def _probe(self, node: Node) -> dict[str, float]:
        """Return the delay of the last callback on the node's loop, or its age if it has not run,
        and schedule another one.
        """
        now_s, ran_s, loop = time.monotonic(), self._ran_s, node._loop
        lag = {} if loop is None else {"lag_us": ((now_s if ran_s is None else ran_s) - self._sent_s) * 1e6}
        if ran_s is not None and loop is not None:
            self._sent_s, self._ran_s = now_s, None
            try:
                loop.call_soon_threadsafe(lambda: setattr(self, "_ran_s", time.monotonic()))
            except RuntimeError:
                # The loop is closed.
                self._ran_s = now_s
        return lag


def _log_line(line: str, _: bool) -> None:
    log.debug("hub.notice", "%(service)s: %(line)s", service=SERVICE, line=line)


def _memory_bytes() -> int | None:
    """Return the resident memory of this process; None if the system does not report it."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
