"""A node: actors, subjects and timers of one process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from types import EllipsisType, NoneType
from typing import TYPE_CHECKING, Any

from tidewire import _log
from tidewire._binding import Engine, check_address
from tidewire._limits import NAME_BYTES
from tidewire._log import log
from tidewire._node import health, idle, statistics_service, statistics_wait
from tidewire._node.agents import Agents
from tidewire._node.ledger import Ledger
from tidewire._node.streams import Streams
from tidewire._node.subjects import Subjects
from tidewire._numbers import check_seconds
from tidewire._runtime import live_nodes, steps
from tidewire._runtime.blocking_portal import refuse_loop
from tidewire._tracing.process_spans import find_spans, store_spans
from tidewire._urls import is_link, is_nats
from tidewire.broker import BrokerConfig
from tidewire.config import Config
from tidewire.dead_letters import DeadLetters
from tidewire.errors import AlreadyStarted, InvalidArgument
from tidewire.link_config import LinkConfig
from tidewire.service_config import ServiceConfig
from tidewire.sync import Sync

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire._node.health import Health
    from tidewire._runtime.steps import Steps
    from tidewire.links.tls import Tls
    from tidewire.top.service import StatisticsService

_LOG_AFTER_S = 2.0
_PENDING_WORK = "what it has begun"
_LOOP_STOPPED = (
    "%(node)s: its event loop does not run, so that it does not wait for %(names)s: stop the node in a coroutine of the loop, "
    "or while the loop runs"
)
_IDLE_SHARE = 0.75
"""Share of the stop timeout for the wait until the node is idle. The rest is for stopping."""


class Node(Subjects, Streams, Agents):
    """A node. Most programs have one per process.

    Use it as a context manager: ``async with tw.Node() as node`` in asyncio, ``with tw.Node() as
    node`` in plain threads. The end of the block waits until the node is idle, so that messages
    between actors, agents and pools arrive. Then they stop, and ``node.ledger`` has the outcome of
    all messages.

    Args:
        url: Address of the node. ``mem://`` is this process alone; ``tide://host:port`` joins a
            hub. ``nats://host:port`` joins a cluster: services and agents of all processes call
            each other over NATS, subjects are shared, and streams, key-value buckets and leases
            live in JetStream.
        name: Name of the node, for people; the default is made from the process id.
        config: A ``tw.Config``, nested tables, or the path of a TOML file.
        inspect: True to serve the statistics of the node as the private service ``$sys``: at a
            socket for ``tidewire top`` of the same user, and to the nodes of its hub. None reads
            TIDEWIRE_INSPECT of the environment, false if that is not set.
        token: Token for hubs that require one; the default is TIDEWIRE_TOKEN of the environment.
        tls: A ``tw.Tls`` for ``tide+tls://`` and ``wss://``: the trusted CAs, and a certificate for
            hubs that require one.
        join_timeout: Seconds of retries while the hub is not up yet, or its link is lost before its
            first answers; None for no limit. The default is one attempt.
        data: Folder of streams, key-value buckets and leases; one process has it open at a time.
            Without it the node uses those of its hub.
        metrics: Address such as ``127.0.0.1:9464`` that serves the metrics of this node to
            Prometheus, without a hub. With port 0 the system chooses one, and ``metrics_url`` has
            it. There is no token: choose an address that only the scraper reaches.
        spans: Number of newest spans of this process that are stored for the view "Trace" of the
            console, at most 2 KiB each. Calls and messages then have spans without OpenTelemetry,
            too. It needs ``inspect``. 0 for none; None reads TIDEWIRE_SPANS of the environment, 0
            if that is not set.

    Raises:
        ConfigError: if the configuration is wrong; the error lists all problems.
        InvalidArgument: if this version does not support the URL.
    """

    def __init__(
        self,
        url: str = "mem://",
        name: str | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        inspect: bool | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        join_timeout: float | None = 0.0,
        data: str | Path | None = None,
        metrics: str | None = None,
        spans: int | None = None,
    ) -> None:
        self._joins_hub = is_link(url)
        if not isinstance(data, (str, Path, NoneType)) or data == "":
            raise InvalidArgument(f"data: {data!r} is not allowed: give the path of a folder, or None")
        self._data = None if data is None else str(data)
        self._folder = self._folder_socket = None
        self._folder_lock = threading.Lock()
        self._opening = None
        self._not_captured = {}
        self._commands = None
        self._inboxes = None
        self._open_readers = None
        if is_nats(url):
            if data is not None:
                raise InvalidArgument(
                    f"data: {str(data)!r} is said beside {url.split('://')[0]}://: streams live in one place; leave one out"
                )
            self._data = url
        self._has_peers = self._joins_hub or is_nats(url)
        if self._joins_hub:
            check_address(url)
        if token is not None and (not isinstance(token, str) or not token):
            raise InvalidArgument("token: the value is not allowed: give a string that is not empty, or None")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidArgument(
                f"name: {name!r} is not allowed: give a string, or None for a name made from the process id"
            )
        if name is not None and len(name.encode()) > NAME_BYTES.max:
            raise InvalidArgument(
                f"name: {name[:40]!r}... has {len(name.encode())} bytes: give at most name_bytes={NAME_BYTES.max}"
            )
        check_seconds("join_timeout", join_timeout)
        self._join_timeout = join_timeout
        self.url = url
        # Names are unique on a hub. Its nodes may share a process, or a process id on other
        # machines.
        default_name = f"node-{os.getpid()}-{os.urandom(4).hex()}" if self._has_peers else f"node-{os.getpid()}"
        self.name = default_name if name is None else name
        self._inspect = statistics_service.is_inspected(inspect, Config.of(config).environment)
        span_limit = statistics_service.span_limit(spans, Config.of(config).environment, self._inspect)
        if not isinstance(metrics, (str, NoneType)) or metrics == "":
            raise InvalidArgument(f"metrics: {metrics!r} is not allowed: give text such as '127.0.0.1:9464', or None")
        self._metrics = metrics
        self._inspector: StatisticsService | None = None
        self._engine = Engine(*Config.of(config).layers())
        find_spans()
        self._end_spans = store_spans(self, span_limit) if span_limit else None
        statistics_service.find_meters()
        for warning in self._engine.warnings():
            log.warning("node.notice", "%(node)s: %(line)s", node=self.name, line=warning)
        self._unshared = {}
        self._unshared_limit = 64
        self._token = os.environ.get("TIDEWIRE_TOKEN") if token is None else token
        self._tls = tls
        self._connection = None
        self._loop = None
        self._broker = BrokerConfig(**self._engine.broker())
        self._links = LinkConfig(**self._engine.links())
        self._serving = ServiceConfig(**self._engine.services())
        self._agents = None
        self._pools = []
        # Called once, when the node is about to stop.
        self._at_goodbye = []
        self._at_abort = []
        self._waits_for = []
        self._sync = Sync(self, self)
        self._started = False
        self._stopped = False
        # True to stop without a grace time.
        self._ends_now = False
        self._ledger: Ledger | None = None
        self._loop_thread = None
        self._lock = threading.Lock()
        self._self = weakref.ref(self)

    # Life

    def start(self) -> None:
        """Start the node, and handle the messages that were sent before. The context manager calls
        this.

        Raises:
            AlreadyStarted: if the node was started before.
            NodeStopped: if the node has been stopped.
            InvalidArgument: if the address of its metrics is not allowed.
            ConfigError: if that address is in use, or ``inspect`` is true and there is no path for
                a socket that only this user can open.
        """
        self._check_start()
        had_thread = self._loop_thread is not None
        try:
            self._inspector = statistics_service.open_service(self)
            if self._has_peers:
                from tidewire.links.join import join_blocking

                join_blocking(self, self._join_timeout)
        except BaseException:
            self._undo_start()
            if not had_thread:
                self._end_loop_thread()
            raise
        self._begin()

    def _check_start(self) -> None:
        self._check()
        if self._started:
            raise AlreadyStarted(
                f"{self!r} has been started already: start() is called once, and `with` calls it by itself"
            )

    def _begin(self) -> None:
        self._started = True
        live_nodes.live.add(self)
        self._engine.start()

    async def stop(self, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Wait until the node is idle, then stop all actors, children before their parents. A
        second call returns the same ledger.

        A node that has joined a hub accepts no new calls, cuts the streams of its services, and
        stays until the hub has read its last replies. A hub accepts no new calls, and finishes the
        calls that it routes.

        Args:
            timeout: Seconds after which stuck actors are abandoned, and listed in the ledger; the
                default is ``stop_timeout_ms`` of the configuration. The wait for idle takes at most
                three quarters of it.

        Returns:
            Outcome of all messages of the live actors.

        Raises:
            AskCycle: if a handler of the node calls it: it would wait for itself.
            InvalidArgument: if the timeout is not allowed.
        """
        return await steps.awaited(self._stopping(timeout))

    async def __aenter__(self) -> Node:
        self._bind_running_loop()
        if not self._has_peers:
            self.start()
            return self
        from tidewire.links.join import join

        self._check_start()
        self._inspector = statistics_service.open_service(self)
        try:
            await join(self, self._join_timeout)
        except BaseException:
            self._undo_start()
            raise
        self._begin()
        return self

    def _undo_start(self) -> None:
        """Undo a start that failed or was cancelled, so that the hub frees the name."""
        if self._connection is not None:
            self._connection.leave()
        if self._inspector is not None:
            self._inspector.end()
            self._inspector = None

    def _end_loop_thread(self) -> None:
        thread, self._loop_thread = self._loop_thread, None
        if thread is not None:
            self._engine.unbind()
            thread.end()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        from tidewire._node import abort
        from tidewire._runtime import signals

        if kind is None or signals.is_shutdown_cancellation(kind):
            try:
                await self.stop()
                return
            except BaseException:
                await abort.abort(self)
                raise
        await abort.abort(self)

    def __enter__(self) -> Node:
        refuse_loop("the end of `with tw.Node()`", "use `async with`")
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            steps.blocking(self._aborting())
            return
        try:
            steps.blocking(self._stopping())
        except BaseException:
            steps.blocking(self._aborting())
            raise

    async def run_forever(self) -> None:
        """Wait for SIGINT (Ctrl-C) or SIGTERM, or until the node has stopped.

        Call it at the end of the node's block, which then drains the accepted work for at most
        ``stop_timeout_ms``. A second signal ends the program at once. Only the main thread handles
        signals. See ``tw.run`` for programs that do other work meanwhile, and for exit codes.

        Raises:
            InvalidArgument: if the node was not started.
        """
        if not self._started:
            raise InvalidArgument(
                f"{self!r} was not started: enter its block, or call start(), before you wait for its end"
            )
        from tidewire._runtime.signals import run_forever

        await run_forever(self)

    async def idle(self, timeout: float | None = None) -> None:
        """Wait until the node is idle: its actors, agents, services and pools have no queued or
        running work, and no agent has a retry pending. Timers that have not fired do not count. The
        node accepts messages meanwhile.

        Args:
            timeout: Seconds after which the wait fails; None for no limit.

        Raises:
            TimeoutError: if the node is not idle in time, or certainly will not be; the error names
                the busy parts.
            AskCycle: if a handler of the node calls it: it would wait for itself.
            InvalidArgument: if the timeout is not allowed, or the node was not started.
        """
        idle.check(self, timeout)
        await steps.awaited(idle.wait_steps(self, timeout))

    @property
    def ledger(self) -> Ledger | None:
        """Outcome of all messages, once the node has stopped."""
        return self._ledger

    @property
    def sync(self) -> Sync:
        """Blocking forms of the awaitable methods, for plain threads and plain handlers."""
        return self._sync

    # Inspection

    @property
    def metrics_url(self) -> str | None:
        """URL of the metrics of this node while it runs, with the real port; or None."""
        return None if self._inspector is None else self._inspector.metrics_url

    @property
    def dead_letters(self) -> DeadLetters:
        """Dead letters of this node."""
        return DeadLetters(self._engine)

    def health(self) -> Health:
        """Return the health of the node: ``is_ready``, and the ``reasons`` if not. A node is not
        ready before its start and after its stop, while its link to the hub or to NATS is lost, or
        while handlers occupy all threads of a dispatcher. The cost grows with the number of actors.
        """
        return health.health(self)

    def statistics(self) -> dict[str, Any]:
        """Return counters and times of all actors, agents, dispatchers, services and the pools of
        this process.

        Under ``links``, ``hub`` is the name of the current hub of this node, or None. ``nodes`` is
        the number of nodes that have joined here, itself included, 0 if it is no hub. ``services``
        is the number of reachable instances of each service, here and at other nodes. ``dropped``
        counts inbound published messages that could not be decoded. ``of_hub`` has the counters of
        a hub, such as ``dropped``: published messages that did not fit in ``link_queue_bytes``.
        ``received_bytes`` and ``sent_bytes`` count the frames of the link to the hub since the node
        joined, without payloads in shared memory, and ``credit_bytes`` is the number of bytes that
        may still be queued for it. ``joins`` has the federated hubs, with calls and messages in
        each direction, and ``routes`` the estimates of the policy "lowest_latency", in
        microseconds. The cost grows with the number of actors.
        """
        return {
            **self._engine.statistics(),
            "agents": statistics_service.agents(self),
            "pools": statistics_service.pools(),
            "services": statistics_service.services(self),
            "remote": statistics_service.remote(self),
            "durations": statistics_service.durations(self),
            "links": statistics_service.links(self),
            "joins": statistics_service.joins(self),
            "routes": statistics_service.routes(self),
        }

    async def until(
        self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait until the statistics meet a condition, and return them.

        The node checks the condition after each event: its link is lost or has joined again, the
        link to another hub is lost, a node has joined or left this hub, a service or an agent of
        any node was added or removed, a function or object was exported or released, a message
        became a dead letter. Counters of single messages do not trigger a check.

        Args:
            condition: Called with ``statistics()``; true ends the wait.
            timeout: Seconds after which the wait fails; None for no limit.

        Raises:
            TimeoutError: if the condition is not met in time.
            NodeStopped: if the node has stopped, and the condition is not met.
            InvalidArgument: if an argument is not allowed.
        """
        return await steps.awaited(statistics_wait.node_fits(self, condition, timeout))

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "running" if self._started else "not started"
        connection, url = self._connection, self.url
        if connection is not None and not self._stopped:
            url = " ".join(connection.places) or url
            state += ", link lost" if connection.is_lost else ""
        return f"<Node {self.name!r} {url} {state}, {self._engine.actors} actors>"

    # Internals

    def _begin_goodbye(self) -> bool:
        """Accept no more work from other nodes. Return True if the node waits before it stops."""
        if self._ledger is not None or self._engine.is_past:
            return False
        idle.refuse_self_wait(self)
        if self._connection is not None:
            self._connection.goodbye()
        hooks, self._at_goodbye = self._at_goodbye, []
        for hook in hooks:
            hook()
        return self._started and not self._stopped

    def _begin_stop(self, timeout: float | EllipsisType | None, drain: bool = True) -> Pending | Ledger:
        if self._ledger is not None:
            return self._ledger
        if self._engine.is_past:
            # In the child of a fork: the actors and their counts are the parent's.
            self._stopped = True
            self._ledger = Ledger(0, 0, 0, 0, reason="shutdown")
            return self._ledger
        pending = self._engine.shutdown(timeout, drain)
        self._stopped = True
        return pending

    def _end_stop(self, ledgers: list[Ledger]) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger.total(ledgers)
            if self._ledger.stuck:
                live_nodes.ended_stuck.append(self.name)
            if self._connection is not None:
                from tidewire.services.registry import registry_of

                self._connection.close()
                # Wake the callers that wait for the link: it does not return.
                registry_of(self).change_counter.ring()
            if self._inspector is not None:
                self._inspector.end()
            if self._end_spans is not None:
                self._end_spans()
            self._close_folder()
            self._engine.unbind()
            _log.sum_up()
            if self._loop_thread is not None:
                self._loop_thread.end()
            live_nodes.live.discard(self)
            self._engine.change_counter.ring()
        return self._ledger

    def _stopping(self, timeout: float | EllipsisType | None = ...) -> Steps[Ledger]:
        until = self._until(timeout)
        names = idle.names_on_stopped_loop(self) if self._ledger is None and not self._engine.is_past else []
        if names:
            # Not at once: other actors have stop hooks, and a loop of another thread may be about
            # to run.
            limit = monotonic() + self._engine.abort_timeout()
            until = limit if until is None else min(until, limit)
            log.warning("node.loop_not_running", _LOOP_STOPPED, node=self.name, names=idle.shortened(names))
        with idle.log_waiting(self, until, _PENDING_WORK, _LOG_AFTER_S):
            if self._begin_goodbye():
                try:
                    remaining_s = _remaining_s(until)
                    yield from idle.wait_steps(self, None if remaining_s is None else remaining_s * _IDLE_SHARE)
                except TimeoutError as late:
                    log.info("node.stop_late", "%(error)s: it stops all the same", node=self.name, error=late)
                except BaseException:
                    # A cancelled stop still stops the node.
                    self._begin_stop(_remaining_s(until))
                    raise
            readers = self._end_readers()
            pending = self._begin_stop(_remaining_s(until))
            if isinstance(pending, Ledger):
                return pending
            ledgers: list[Ledger] = [(yield pending)]
            # Pools stop after the actors, which may wait for their tasks.
            for pool in self._live_pools():
                ledgers.append((yield from pool._ending(True, _remaining_s(until))))
            yield from self._settle(readers, until)
            if self._connection is not None:
                yield from self._connection.draining(until)
        return self._end_stop(ledgers)

    def _aborting(self) -> Steps[None]:
        from tidewire._node.abort import abort_steps

        return abort_steps(self)

    def _until(self, timeout: float | EllipsisType | None) -> float | None:
        seconds = self._engine.stop_timeout(timeout)
        return None if timeout is None else monotonic() + seconds


def _remaining_s(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - monotonic())
