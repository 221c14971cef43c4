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
"""Programs that are joined to the socket of a node at once."""

CALLS_MAX = 64
"""Calls over the hub of a node that wait for their answer; further ones are refused."""

_HUB_PATIENCE_S = 5.0
"""How long the hub has for its answer that it has read all."""

LOOK_SHARE = 0.1
"""Most of the time that answers take. In between the last one is given again."""

_SEEN_S = 10.0
"""How long all statistics of the last look are stored after somebody asked for some rows."""

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
    """The service of one node, on a thread of its own, so that it answers also while the event loop
    of the node is blocked.

    Processes of the same user reach it at a socket, which is a hub where nothing else is served;
    other nodes over the hub that the node has joined, or is, as they do any private service. The
    thread sleeps until somebody calls. It holds the node only while it looks at it, and ends with
    it. So does the thread of the metrics.

    Its subscription has a ``pattern``, and ``says`` how it is described to others. At
    ``metrics_url`` are its metrics, if it serves them.

    Raises:
        InvalidArgument: if the address of the metrics is not allowed.
        ConfigError: if the address is taken, or there is no place for the socket that only this
            user can open.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node, lambda _: self.end())
        self._started_s = time.monotonic()
        self._last: dict[str, Any] = {}
        self._sent_s, self._ran_s = 0.0, cast("float | None", 0.0)
        self._probe(node)
        self._round_trip_us: float | None = None
        self._question: Pending | None = None
        self._fresh_until_s = 0.0
        self._seen: dict[str, Any] | None = None
        self._seen_timer: TimerHandle | None = None
        self._calls: deque[RemoteCall] = deque()
        self._pid, self._ended = os.getpid(), False
        path = new_path(node.name) if node._inspect else None
        instance = f"metrics-{self._pid}" if path is None else path.stem
        self.pattern = service_subject(SERVICE, "*", instance)
        self.says = described(ServiceInfo(SERVICE, _DESCRIPTION, methods=_METHODS, instances=(instance,)))
        self._bridge = Bridge()
        settings = {**node.links.to_dict(), "hub_links": WATCHERS_MAX + 2}
        self._hub = Hub(node.name, [], settings, _log_line)
        self._link = self._hub.join(node.name, None, settings)
        self._link.deliver_to(self._bridge, self._receive)
        self._subscription, _ = self._link.subscribe(self.pattern, "", self.says, 1)
        self._places: list[Listening | Gateway] = []
        self.metrics_url: str | None = None
        try:
            if path is not None:
                self._places.append(self._hub.listen_to_own_user(str(path)))
            if node._metrics is not None:
                url = node._metrics if "://" in node._metrics else f"http://{node._metrics}"
                metrics = self._hub.bind_metrics(url, _log_line)
                self._places.append(metrics)
                metrics.accept()
                self.metrics_url = f"{metrics.url}/metrics"
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
        self.metrics_url = None
        for place in self._places:
            place.close()
        self._thread.loop.call_soon_threadsafe(self._close)
        self._thread.end()

    # The thread

    def _receive(self, came: list[Any]) -> None:
        for _, what in came:
            if isinstance(what, RemoteCall):
                # The socket of this node has no rights, so that nobody acts there.
                self._answer(what, may_act=False)

    def _answer_next(self) -> None:
        if self._calls:
            self._answer(self._calls.popleft(), may_act=True)

    def _close(self) -> None:
        if self._question is not None:
            self._question.cancel()
        for place in self._places:
            place.close()
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
            acts = may_act and method == "act"
            if node is None or origin == "public" or not (acts or method in _TEXTS):
                call.refuse(_NO_RESPONDERS, f"{SERVICE}: nobody answers {short(method)} here")
            elif acts and not call.reads_items:
                actions.act(*arguments_of(value, subject), by=user or caller)
                # The next look shows what the action has changed.
                self._fresh_until_s = 0.0
                call.reply(None)
            elif call.reads_items:
                call.refuse(_INVALID_ARGUMENT, f"{SERVICE}.{method}: it gives one value, and no stream")
            elif method in ("rows", "trace"):
                look = self._rows if method == "rows" else self._trace
                call.reply(look(node, *arguments_of(value, subject)))
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
            seen = self._seen = node.statistics()
            self._drop_seen_later()
            traffic = {key: value for key, value in seen["links"].items() if key in statistics_service.TRAFFIC}
            link = {"round_trip_us": self._round_trip(node), **traffic}
            process = {key: about[key] for key in ("cpu_s", "memory_bytes")} | self._probe(node) | link
            more = {"process": [process], "campaigns": statistics_service.campaigns(), **link}
            self._last = {**about, "at_s": began_s, **more, **answer.bounded(seen)}
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + (ended_s - began_s) * (1 / LOOK_SHARE - 1)
        return self._last

    def _rows(self, node: Node, given: tuple[Any, ...], by_name: dict[str, Any]) -> dict[str, Any]:
        query = rows.Query.of(given, by_name)
        if self._seen is None:
            self._fresh_until_s = 0.0
        self._statistics(node)
        assert self._seen is not None
        self._drop_seen_later()
        return {"node": node.name, "at_s": self._last["at_s"], **query.answer(self._seen)}

    def _drop_seen_later(self) -> None:
        """Drop the statistics of all actors once nobody has asked for a while."""
        if self._seen_timer is not None:
            self._seen_timer.cancel()
        self._seen_timer = self._thread.loop.call_later(_SEEN_S, setattr, self, "_seen", None)

    def _trace(self, node: Node, given: tuple[Any, ...], by_name: dict[str, Any]) -> dict[str, Any]:
        spans = _trace_context.spans
        store = None if spans is None else spans.store
        match (given, by_name):
            case ((str(id),), {}) if not by_name and re.fullmatch("[0-9a-f]{32}", id):
                found = [] if store is None else store.find(id)
            case _:
                raise InvalidArgument(f"trace: {given!r:.200} is not allowed: give the id of a trace, 32 hex digits")
        return {
            "node": node.name,
            "host": platform.node(),
            "stores": 0 if store is None else store.most,
            "spans_count": len(found),
            "spans": [span.row(node.name) for span in found[:ANSWER_SPANS_MAX]],
        }

    def _round_trip(self, node: Node) -> float | None:
        """Return how long the hub took, at the look before, to say that it had read all that this
        node had sent; and ask it again. None: the node has no hub, or no answer yet.
        """
        connection = node._connection
        if connection is None or not connection.is_joined:
            return None
        if connection.hub is not None:
            return 0.0
        if self._question is None or self._question.done():
            began_s = time.monotonic()

            def note(answer: Pending) -> None:
                has_read = not answer.cancelled() and answer.exception() is None and answer.result()
                self._round_trip_us = (time.monotonic() - began_s) * 1e6 if has_read else None

            self._question = connection.link.drained(_HUB_PATIENCE_S)
            self._question.add_done_callback(note)
        return self._round_trip_us

    def _probe(self, node: Node) -> dict[str, float]:
        """Return how late the callback was that the look before gave to the node's loop, or how old
        it is if it has not run, and give the loop another one.
        """
        now_s, ran_s, loop = time.monotonic(), self._ran_s, node._loop
        found = {} if loop is None else {"lag_us": ((now_s if ran_s is None else ran_s) - self._sent_s) * 1e6}
        if ran_s is not None and loop is not None:
            self._sent_s, self._ran_s = now_s, None
            try:
                loop.call_soon_threadsafe(lambda: setattr(self, "_ran_s", time.monotonic()))
            except RuntimeError:
                # The loop is closed.
                self._ran_s = now_s
        return found


def _log_line(line: str, _: bool) -> None:
    log.debug("hub.notice", "%(service)s: %(line)s", service=SERVICE, line=line)


def _memory_bytes() -> int | None:
    """Return the resident memory of this process; None where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
