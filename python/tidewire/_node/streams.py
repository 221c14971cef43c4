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

_LONGEST_S = 3.0
"""How long the end of a node waits for a storage backend that does not answer."""
_GRACE_S = 1.0
"""How long it waits if the time of the end is over."""


class Streams(Services):
    """The part of a node that has streams: in its data folder, or at its hub."""

    _data: str | None
    _folder: StreamHome | None
    _folder_socket: ConnectionEnds | None
    _folder_lock: threading.Lock
    _opening: asyncio.Task[None] | None
    _commands: Home | None
    _inboxes: InboxStore | None
    _open_readers: OpenReaders | None
    _joins: bool
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
        """Make a stream, or open the existing one with the same settings. With its name alone, open
        the existing one with the settings that it has; if there is none, make it with the defaults.

        Args:
            name: Letters, digits, ``_`` and ``-``, at most 64.
            subjects: Subjects of its events: patterns, such as ``orders.>``. By default those of an
                existing stream, else the name and all below it: ``orders`` and ``orders.>``.
            max_age: Seconds after which events are forgotten.
            max_bytes: Its largest size on disk.
            max_messages: How many events it may have.
            full: Behavior at a limit: ``"refuse"`` (the default) refuses to publish, ``"drop_old"``
                drops the oldest events.
            dedupe: Seconds for which an ``id`` is remembered, 120 by default; 0 for not at all.
            replicas: On how many servers it is kept, 1 by default; 1 in a folder.
            compact: ``"key"`` or ``"subject"``: only the newest event of each stays; one that it
                replaces is read and delivered no more.
            capture: True if it stores what ``publish`` of any node sends on its subjects, too, for
                as long as this node runs: at most once, and what is lost becomes a dead letter.

        Raises:
            SettingsDiffer: if it exists with other settings; the message names all differences.
            Unsupported: for what this home can't do.
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
        home, named_only, is_there = self._home(), all(setting is None for setting in settings), False
        if subjects is None:
            subjects = [name, f"{name}.>"]
            with contextlib.suppress(NotFound):
                subjects, is_there = (await home.call("stream_info", name))["subjects"], True
        if not (is_there and named_only):
            age_us, dedupe_us = span_us("max_age", max_age), span_us("dedupe", 120.0 if dedupe is None else dedupe)
            limits, copies = (age_us, max_bytes, max_messages, full == "drop_old"), 1 if replicas is None else replicas
            try:
                await home.call("create_stream", name, list(subjects), *limits, dedupe_us, copies, compact)
            except SettingsDiffer:
                # Another one made it in the meantime.
                if not named_only:
                    raise
        stream = Stream(home, name)
        if capture:
            from tidewire.streams.capture import capture as capture_published

            await capture_published(self._whole, stream)
            self._not_captured.pop(name, None)
        elif self._whole.lookup(f"capture-{name}") is None:
            self._not_captured[name] = subjects
        return stream

    async def find_stream(self, name: str) -> Stream:
        """Open an existing stream with the settings that it has.

        Raises:
            NotFound: if there is none.
        """
        from tidewire.streams.stream import Stream

        return Stream(await self._existing("stream", name, "stream"), name)

    async def streams(self) -> list[StreamInfo]:
        """Return what there is of every stream, by name."""
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
        """Make a key-value bucket, or open the existing one with the same settings. With its name
        alone, open the existing one with the settings that it has; if there is none, make it with
        the defaults.

        Args:
            name: Letters, digits, ``_`` and ``-``, at most 64.
            history: How many entries of a key are kept, 1 to 64; 1 by default.
            ttl: Seconds after which entries go.
            max_bytes: Largest size of keys and values, 64 MiB by default; the storage backend
                of a folder holds them in memory.
            replicas: On how many servers it is kept, 1 by default.

        Raises:
            SettingsDiffer: if it exists with other settings; the message names all differences.
        """
        from tidewire.streams.bucket import Bucket
        from tidewire.streams.home import span_us

        home = self._home()
        named_only = history is ttl is max_bytes is replicas is None
        if named_only:
            with contextlib.suppress(NotFound):
                await home.call("bucket_info", name)
                return Bucket(home, name)
        depth, copies = 1 if history is None else history, 1 if replicas is None else replicas
        try:
            await home.call("create_bucket", name, depth, span_us("ttl", ttl), max_bytes, copies)
        except SettingsDiffer:
            # Another one made it in the meantime.
            if not named_only:
                raise
        return Bucket(home, name)

    async def find_kv(self, name: str) -> Bucket:
        """Open an existing bucket with the settings that it has.

        Raises:
            NotFound: if there is none.
        """
        from tidewire.streams.bucket import Bucket

        return Bucket(await self._existing("bucket", name, "kv"), name)

    async def _existing(self, kind: str, name: str, makes: str) -> Home:
        home = self._home()
        try:
            await home.call(f"{kind}_info", name)
        except NotFound as error:
            raise NotFound(f"{error}: make it with node.{makes}({name!r})") from None
        return home

    async def buckets(self) -> list[dict[str, Any]]:
        """Return the settings of every bucket, and how many keys and bytes it has, by name."""
        found: list[dict[str, Any]] = await self._home().call("list_buckets")
        return found

    def lease(self, name: str, *, ttl: float = 5.0, timeout: float | None = None, holder: str | None = None) -> Lease:
        """Return a lease, to be held in an ``async with`` block.

        Args:
            name: A subject's text, such as ``orders.matching``.
            ttl: Seconds after which it is free if this process dies, 0.05 to 86,400. It is renewed
                every third of it.
            timeout: Seconds to wait for it; None for as long as it takes.
            holder: Name of the holder, for people; the node's name by default.
        """
        from tidewire.streams.lease import Lease

        return Lease(self._home(), name, self.name if holder is None else holder, ttl, timeout)

    def command(self, id: str) -> CommandRun[Any]:
        """Return a command by its id, regardless of its starter, node and time.

        Nothing is asked for: a command that is not there, or not any more, is NotFound in the calls
        of what is returned.

        Raises:
            InvalidArgument: if the id is not allowed, or the node has no place for commands.
        """
        from tidewire.streams.command_run import CommandRun

        return CommandRun(self._whole, self._command_home(), id)

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
        """Start a command by the names of its service and its own, without the class:
        ``node.client(Service).reindex.start(...)`` knows it, and checks.

        Its arguments are checked where it is done, so that those that don't fit fail it; nobody
        learns here of a name that nobody serves.

        Args:
            service: The name of the service.
            command: The name of its command.
            *args: Its arguments, 512 KiB at most.
            key: Subject of the command; a command that is ``exclusive="key"`` runs without it
                as if nothing else had its key.
            id: An idempotency key: starting it again with the same id gives the command that is
                there.
            priority: Which go first where some wait.
            **kwargs: Its arguments by name.

        Raises:
            InvalidArgument: if a name or an option is not allowed, or the node has no place for
                commands.
            SettingsDiffer: if the id is that of a command with another name, key or arguments.
            PayloadTooLarge: if the arguments are too large.
            StreamFull: if too many commands are kept.
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
        return CommandRun(self._whole, home, started, convert)

    async def commands(
        self, *, service: str | None = None, command: str | None = None, stage: str | None = None
    ) -> list[CommandInfo]:
        """Return the commands there are, the oldest first: those that wait or run, and those that
        have ended and are kept.

        Args:
            service: Only those of this service.
            command: Only those of this name.
            stage: Only those that are ``queued``, ``running``, ``succeeded``, ``failed`` or
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
        """Return what there is of every durable agent that has ever run here, running or not, by
        id.
        """
        return await self._inbox_store().infos()

    async def durable_agent(self, id: str) -> DurableInfo:
        """Return what there is of a durable agent, running or not.

        Raises:
            NotFound: if none with this id has ever run here.
        """
        return await self._inbox_store().info(id)

    async def agent_messages(self, id: str, limit: int = 20) -> list[PastMessage]:
        """Return the newest messages in the inbox of a durable agent, oldest first: about 1,000
        that are over are kept.
        """
        return await self._inbox_store().past(id, limit)

    async def agent_dead_letters(self, id: str) -> list[DeadMessage]:
        """Return the durable messages that an agent has given up, oldest first."""
        return await self._inbox_store().dead(id)

    async def requeue_agent_messages(self, id: str, *sequences: int) -> int:
        """Send dead letters of a durable agent to it anew; return how many there were."""
        return await self._inbox_store().requeue(id, sequences)

    async def drop_agent_messages(self, id: str, *sequences: int) -> int:
        """Forget dead letters of a durable agent; return how many there were."""
        return await self._inbox_store().drop(id, sequences)

    def _inbox_store(self) -> InboxStore:
        from tidewire.agents.inbox_store import InboxStore

        self._check()
        self._home()
        if self._inboxes is None:
            self._inboxes = InboxStore(self._whole)
        return self._inboxes

    def _command_home(self) -> Home:
        """Return the storage backend of commands, with the watch that all callers share."""
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
            return Home(self._whole, self._folder, self._connected)
        if not self._joins:
            raise InvalidArgument(
                'data: this node has no place for streams: give tw.Node(data="folder"), or the URL of a hub with one'
            )
        return Home(self._whole)

    def _hub_home(self) -> StreamHome:
        """Return the storage backend of the hub that the node has joined.

        Raises:
            LinkLost: if it has joined none.
        """
        from tidewire._binding import StreamHome

        return StreamHome.at_hub(self._whole._link().link, self._engine, self.name)

    def _open_folder(self) -> StreamHome:
        """Open the data folder, once, and block this thread meanwhile: a long log takes its
        time.
        """
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
                self._folder_socket = open_socket(self._whole, folder, Path(self._data))
            return self._folder

    async def _connected(self) -> StreamHome:
        """Open the folder or connect to NATS, once. The event loop goes on meanwhile, and who is
        cancelled leaves the others what they wait for.
        """
        import asyncio

        while self._folder is None:
            self._check()
            if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():
                self._opening = asyncio.ensure_future(self._connect())
                # Nobody may wait for it any more when it fails.
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
        """Open the data folder for those that join this node. Errors of the folder are raised here,
        rather than sent to the first caller.
        """
        if self._data is not None and not is_nats(self._data):
            self._open_folder()

    def _home_server(self, link: Link) -> HomeServer | None:
        """Offer the storage backend to the nodes that join the hub of this link."""
        from tidewire._binding import HomeServer

        if self._data is None:
            return None
        try:
            return HomeServer(link, self._engine, self.name, self._folder, os.fspath(self._data))
        except Unauthorized as refused:
            log.warning("home.refused", "%(node)s: %(error)s", node=self.name, error=refused)
            return None

    def _end_readers(self) -> list[StreamReader]:
        """End the readers, and return those with settlements to store before the storage backend is
        closed.
        """
        # In the child of a fork they are the parent's.
        if self._open_readers is None or self._engine.is_past:
            return []
        return self._open_readers.end()

    def _stored(self, readers: list[StreamReader], until: float | None) -> Steps[None]:
        """Wait until readers and interrupted handlers have given their events back: 3 seconds at
        most, or one if less is left. An event that could not be given back comes again after its
        ack wait.
        """
        last = monotonic() + _LONGEST_S
        last = last if until is None else min(last, max(until, monotonic() + _GRACE_S))
        for reader in readers:
            with contextlib.suppress(TidewireError):
                yield reader.flush(max(0.0, last - monotonic()))
        if self._loop is None or not self._waits_for or not self._loop.is_running():
            return
        from tidewire.services.instances.durable_handlers import DurableHandlers

        for one in self._waits_for:
            if isinstance(one, DurableHandlers) and not one.is_idle():
                yield from one.over(last)

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
