"""Methods of a node for streams, buckets and leases."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from tidewire._log import log
from tidewire._node.services import Services
from tidewire._trace_context import of_message
from tidewire._urls import is_nats
from tidewire.errors import HomeError, InvalidArgument, NotFound, SettingsDiffer, TidewireError, Unauthorized

if TYPE_CHECKING:
    import asyncio

    from tidewire._binding import HomeServer, Link, StreamHome, StreamReader
    from tidewire._runtime.steps import Steps
    from tidewire.agents.inbox_store import DeadMessage, DurableInfo, InboxStore, PastMessage
    from tidewire.links.connection_ends import ConnectionEnds
    from tidewire.streams.bucket import Bucket
    from tidewire.streams.command_info import CommandInfo
    from tidewire.streams.command_run import CommandRun
    from tidewire.streams.home import Home
    from tidewire.streams.lease import Lease
    from tidewire.streams.pages import OpenReaders
    from tidewire.streams.stream import Stream, StreamInfo

_SETTLE_TIMEOUT_S = 3.0
"""Longest wait of a stop for an unresponsive storage backend."""
_GRACE_S = 1.0
"""The same after the deadline of the stop."""


class Streams(Services):
    """Streams, buckets and leases of a node: in its data folder, or at its hub."""

    _data: str | None
    _folder: StreamHome | None
    _folder_socket: ConnectionEnds | None
    _folder_lock: threading.Lock
    _opening: asyncio.Task[None] | None
    _commands: Home | None
    _inboxes: InboxStore | None
    _open_readers: OpenReaders | None
    _joins_hub: bool
    _not_captured: dict[str, Sequence[str]]

    async def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] | None = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
        full: Literal["refuse", "drop_old"] | None = None,
        dedupe: float | None = None,
        replicas: int | None = None,
        compact: Literal["key", "subject"] | None = None,
        capture: bool = False,
    ) -> Stream:
        """Create a stream, or open the existing one with the same settings. With a name alone, open
        the existing stream with its settings, or create one with the defaults.

        Args:
            name: Letters, digits, ``_`` and ``-``, at most 64.
            subjects: Subjects of its events: patterns, such as ``orders.>``. The default is those
                of an existing stream, else ``orders`` and ``orders.>`` for the name ``orders``.
            max_age: Seconds after which events are deleted.
            max_bytes: Largest size on disk.
            max_messages: Most events in the stream.
            full: Behavior at a limit: ``"refuse"`` (the default) refuses to publish, ``"drop_old"``
                drops the oldest events.
            dedupe: Seconds of the deduplication window of an ``id``, 120 by default; 0 disables it.
            replicas: Number of servers that store it, 1 by default; 1 in a folder.
            compact: ``"key"`` or ``"subject"``: only the newest event of each is kept. A replaced
                one is neither read nor delivered.
            capture: True to store messages that any node sends on its subjects with ``publish``,
                too, while this node runs: at most once. Lost ones become dead letters.

        Raises:
            SettingsDiffer: if it exists with other settings; the message names all differences.
                Unsupported: if the storage backend does not support a setting.
            InvalidArgument: if an argument is not allowed, or the node has neither a data folder
                nor a hub.
        """
        from tidewire.streams.home import span_us
        from tidewire.streams.stream import Stream

        if full not in (None, "refuse", "drop_old"):
            raise InvalidArgument(f'full: {full!r} is not allowed: give "refuse" or "drop_old"')
        if compact not in (None, "key", "subject"):
            raise InvalidArgument(f'compact: {compact!r} is not allowed: give "key", "subject" or None')
        if isinstance(subjects, str):
            raise InvalidArgument(f"subjects: the string {subjects!r} is not allowed: give a list of patterns")
        settings = (subjects, max_age, max_bytes, max_messages, full, dedupe, replicas, compact)
        home, has_name_only, exists = self._home(), all(setting is None for setting in settings), False
        if subjects is None:
            subjects = [name, f"{name}.>"]
            with contextlib.suppress(NotFound):
                subjects, exists = (await home.call("stream_info", name))["subjects"], True
        if not (exists and has_name_only):
            age_us, dedupe_us = span_us("max_age", max_age), span_us("dedupe", 120.0 if dedupe is None else dedupe)
            limits, copies = (age_us, max_bytes, max_messages, full == "drop_old"), 1 if replicas is None else replicas
            try:
                await home.call("create_stream", name, list(subjects), *limits, dedupe_us, copies, compact)
            except SettingsDiffer:
                # Another caller has created it since.
                if not has_name_only:
                    raise
        stream = Stream(home, name)
        if capture:
            from tidewire.streams.capture import capture as capture_published

            await capture_published(self._as_node, stream)
            self._not_captured.pop(name, None)
        elif self._as_node.lookup(f"capture-{name}") is None:
            self._not_captured[name] = subjects
        return stream

    async def find_stream(self, name: str) -> Stream:
        """Open an existing stream with its settings.

        Raises:
            NotFound: if there is none.
        """
        from tidewire.streams.stream import Stream

        return Stream(await self._existing("stream", name, "stream"), name)

    async def streams(self) -> list[StreamInfo]:
        """Return the information of all streams, by name."""
        from tidewire.streams.stream import StreamInfo

        return [StreamInfo.of(raw) for raw in await self._home().call("list_streams")]

    async def kv(
        self,
        name: str,
        *,
        history: int | None = None,
        ttl: float | None = None,
        max_bytes: int | None = None,
        replicas: int | None = None,
    ) -> Bucket:
        """Create a key-value bucket, or open the existing one with the same settings. With a name
        alone, open the existing bucket with its settings, or create one with the defaults.

        Args:
            name: Letters, digits, ``_`` and ``-``, at most 64.
            history: Number of entries that are kept per key, 1 to 64; 1 by default.
            ttl: Seconds after which entries expire.
            max_bytes: Largest size of keys and values, 64 MiB by default; the storage backend
                of a folder holds them in memory.
            replicas: Number of servers that store it, 1 by default.

        Raises:
            SettingsDiffer: if it exists with other settings; the message names all differences.
        """
        from tidewire.streams.bucket import Bucket
        from tidewire.streams.home import span_us

        home = self._home()
        has_name_only = history is ttl is max_bytes is replicas is None
        if has_name_only:
            with contextlib.suppress(NotFound):
                await home.call("bucket_info", name)
                return Bucket(home, name)
        depth, copies = 1 if history is None else history, 1 if replicas is None else replicas
        try:
            await home.call("create_bucket", name, depth, span_us("ttl", ttl), max_bytes, copies)
        except SettingsDiffer:
            # Another caller has created it since.
            if not has_name_only:
                raise
        return Bucket(home, name)

    async def find_kv(self, name: str) -> Bucket:
        """Open an existing bucket with its settings.

        Raises:
            NotFound: if there is none.
        """
        from tidewire.streams.bucket import Bucket

        return Bucket(await self._existing("bucket", name, "kv"), name)

    async def _existing(self, kind: str, name: str, factory: str) -> Home:
        home = self._home()
        try:
            await home.call(f"{kind}_info", name)
        except NotFound as error:
            raise NotFound(f"{error}: make it with node.{factory}({name!r})") from None
        return home

    async def buckets(self) -> list[dict[str, Any]]:
        """Return the settings, keys and bytes of all buckets, by name."""
        found: list[dict[str, Any]] = await self._home().call("list_buckets")
        return found

    def lease(self, name: str, *, ttl: float = 5.0, timeout: float | None = None, holder: str | None = None) -> Lease:
        """Return a lease, for an ``async with`` block.

        Args:
            name: A subject's text, such as ``orders.matching``.
            ttl: Seconds until the lease expires if this process dies, 0.05 to 86,400. It is renewed
                three times per TTL.
            timeout: Seconds to wait for it; None for no limit.
            holder: Name of the holder, for people; the node's name by default.
        """
        from tidewire.streams.lease import Lease

        return Lease(self._home(), name, self.name if holder is None else holder, ttl, timeout)

    def command(self, id: str) -> CommandRun[Any]:
        """Return a handle of a command by its id, from any node.

        This makes no request: the methods of the handle raise NotFound for an unknown command.

        Raises:
            InvalidArgument: if the id is not allowed, or the node has no storage backend.
        """
        from tidewire.streams.command_run import CommandRun

        return CommandRun(self._as_node, self._command_home(), id)

    async def start_command(
        self,
        service: str,
        command: str,
        *args: Any,
        key: str | None = None,
        id: str | None = None,
        priority: Literal["urgent", "high", "normal", "low"] = "normal",
        **kwargs: Any,
    ) -> CommandRun[Any]:
        """Start a command by the names of its service and its own. Prefer
        ``node.client(Service).reindex.start(...)`` where the class is known: it checks the
        arguments.

        Its worker checks the arguments: invalid ones fail the command. An unserved name is no error
        here.

        Args:
            service: The name of the service.
            command: The name of its command.
            *args: Its arguments, 512 KiB at most.
            key: Subject of the command; an ``exclusive="key"`` command without one conflicts with
                no other.
            id: An idempotency key: a second start with the same id returns the existing command.
            priority: Priority in the queue.
            **kwargs: Its arguments by name.

        Raises:
            InvalidArgument: if a name or an option is not allowed, or the node has no storage
                backend.
            SettingsDiffer: if the id is that of a command with another name, key or arguments.
            PayloadTooLarge: if the arguments are too large.
            StreamFull: if too many commands are stored.
        """
        return await self._start_command(service, command, args, kwargs, key, id, priority)

    async def _start_command(
        self,
        service: str,
        command: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None,
        id: str | None,
        priority: str,
        convert: Callable[[Any], Any] | None = None,
    ) -> CommandRun[Any]:
        from tidewire.services.contract.names import short
        from tidewire.streams.command_run import CommandRun
        from tidewire.values import encode

        texts = {"service": service, "command": command, "key": key, "id": id, "priority": priority}
        for name, value in texts.items():
            if not isinstance(value, str) and not (value is None and name in ("key", "id")):
                raise InvalidArgument(f"{service}.{command}: {name}: {short(value)} is not allowed: give a string")
        home, arguments = self._command_home(), encode([list(args), kwargs])
        trace = of_message(f"{service}/{command}", None) or {}
        started = await home.call("command_start", service, command, arguments, key, id, priority, self.name, trace)
        return CommandRun(self._as_node, home, started, convert)

    async def commands(
        self, *, service: str | None = None, command: str | None = None, stage: str | None = None
    ) -> list[CommandInfo]:
        """Return the stored commands, oldest first: queued, running and ended ones.

        Args:
            service: Only commands of this service.
            command: Only commands with this name.
            stage: Only commands that are ``queued``, ``running``, ``succeeded``, ``failed`` or
                ``cancelled``.
        """
        from tidewire.streams.command_info import STAGES, CommandInfo
        from tidewire.values import decode

        if stage is not None and stage not in STAGES:
            raise InvalidArgument(f"stage: {stage!r} is not allowed: give {', '.join(map(repr, STAGES))}")
        found = [CommandInfo(**decode(data)) for data in await self._command_home().call("command_infos")]
        return [
            one
            for one in found
            if service in (None, one.service) and command in (None, one.command) and stage in (None, one.stage)
        ]

    async def durable_agents(self) -> list[DurableInfo]:
        """Return the information of all durable agents that have ever run here, by id."""
        return await self._inbox_store().infos()

    async def durable_agent(self, id: str) -> DurableInfo:
        """Return the information of a durable agent, running or not.

        Raises:
            NotFound: if no agent with this id has ever run here.
        """
        return await self._inbox_store().info(id)

    async def agent_messages(self, id: str, limit: int = 20) -> list[PastMessage]:
        """Return the newest messages in the inbox of a durable agent, oldest first. About 1,000
        settled ones are kept.
        """
        return await self._inbox_store().past(id, limit)

    async def agent_dead_letters(self, id: str) -> list[DeadMessage]:
        """Return the dead letters of a durable agent, oldest first."""
        return await self._inbox_store().dead(id)

    async def requeue_agent_messages(self, id: str, *sequences: int) -> int:
        """Send dead letters of a durable agent again, and return their number."""
        return await self._inbox_store().requeue(id, sequences)

    async def drop_agent_messages(self, id: str, *sequences: int) -> int:
        """Delete dead letters of a durable agent, and return their number."""
        return await self._inbox_store().drop(id, sequences)

    def _inbox_store(self) -> InboxStore:
        from tidewire.agents.inbox_store import InboxStore

        self._check()
        self._home()
        if self._inboxes is None:
            self._inboxes = InboxStore(self._as_node)
        return self._inboxes

    def _command_home(self) -> Home:
        """Return the storage backend of commands, with a watch that all callers share."""
        self._check()
        if self._commands is None:
            self._commands = self._home()
        return self._commands

    def _home(self) -> Home:
        from tidewire.streams.home import Home

        self._check()
        if self._open_readers is None:
            from tidewire.streams.pages import OpenReaders

            self._open_readers = OpenReaders()
        if self._data is not None:
            return Home(self._as_node, self._folder, self._open_backend)
        if not self._joins_hub:
            raise InvalidArgument(
                'data: this node has no place for streams: give tw.Node(data="folder"), or the URL of a hub with one'
            )
        return Home(self._as_node)

    def _hub_home(self) -> StreamHome:
        """Return the storage backend of the hub that the node has joined.

        Raises:
            LinkLost: if it has not joined a hub.
        """
        from tidewire._binding import StreamHome

        return StreamHome.at_hub(self._as_node._link().link, self._engine, self.name)

    def _open_folder(self) -> StreamHome:
        """Open the data folder once, and block this thread: a long log takes time."""
        from tidewire._binding import StreamHome
        from tidewire._node.folder_socket import open_socket

        assert self._data is not None
        with self._folder_lock:
            if self._folder is None:
                folder = StreamHome.open_folder(os.fspath(self._data))
                for notice in folder.notices():
                    log.warning(
                        "home.notice", "%(node)s: %(path)s: %(line)s", node=self.name, path=self._data, line=notice
                    )
                if self._stopped:
                    folder.close()
                    self._check()
                self._folder = folder
                self._folder_socket = open_socket(self._as_node, folder, Path(self._data))
            return self._folder

    async def _open_backend(self) -> StreamHome:
        """Open the folder or connect to NATS, once, without blocking the event loop. A cancelled
        caller does not cancel the others.
        """
        import asyncio

        while self._folder is None:
            self._check()
            if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():
                self._opening = asyncio.ensure_future(self._connect())
                # Retrieve the error: all callers may be cancelled by then.
                self._opening.add_done_callback(lambda task: None if task.cancelled() else task.exception())
            await asyncio.shield(self._opening)
        return self._folder

    async def _connect(self) -> None:
        from tidewire._binding import StreamHome

        assert self._data is not None
        if not is_nats(self._data):
            import asyncio

            try:
                await asyncio.to_thread(self._open_folder)
            finally:
                self._opening = None
            return
        try:
            folder = await StreamHome.open_nats(self._data)
        finally:
            self._opening = None
        if self._stopped:
            folder.close()
            self._check()
        self._folder = folder

    def _serve_folder(self) -> None:
        """Open the data folder for nodes that join. This raises its errors here, not in the first
        call.
        """
        if self._data is not None and not is_nats(self._data):
            self._open_folder()

    def _home_server(self, link: Link) -> HomeServer | None:
        """Serve the storage backend to the nodes of the hub of this link."""
        from tidewire._binding import HomeServer

        if self._data is None:
            return None
        try:
            return HomeServer(link, self._engine, self.name, self._folder, os.fspath(self._data))
        except Unauthorized as error:
            log.warning("home.refused", "%(node)s: %(error)s", node=self.name, error=error)
            return None

    def _end_readers(self) -> list[StreamReader]:
        """End the readers, and return those with unstored settlements."""
        # The child of a fork does not own them.
        if self._open_readers is None or self._engine.is_past:
            return []
        return self._open_readers.end()

    def _settle(self, readers: list[StreamReader], until: float | None) -> Steps[None]:
        """Wait until readers and interrupted handlers have released their events: 3 seconds at
        most, or one if less is left. An unreleased event is redelivered after its ack wait.
        """
        deadline = monotonic() + _SETTLE_TIMEOUT_S
        deadline = deadline if until is None else min(deadline, max(until, monotonic() + _GRACE_S))
        for reader in readers:
            with contextlib.suppress(TidewireError):
                yield reader.flush(max(0.0, deadline - monotonic()))
        if self._loop is None or not self._waits_for or not self._loop.is_running():
            return
        from tidewire.services.instances.durable_handlers import DurableHandlers

        for one in self._waits_for:
            if isinstance(one, DurableHandlers) and not one.is_idle():
                yield from one.over(deadline)

    def _close_folder(self) -> None:
        with self._folder_lock:
            folder, self._folder = self._folder, None
            socket, self._folder_socket = self._folder_socket, None
        if socket is not None:
            socket.close()
        if folder is not None:
            try:
                folder.close()
            except HomeError as error:
                text = "%(node)s: %(path)s: it was not closed cleanly: %(error)s"
                log.warning("home.close_failed", text, node=self.name, path=self._data, error=error)
