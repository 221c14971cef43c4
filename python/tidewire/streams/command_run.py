"""Runs of commands: the handle of a started command, also found again by its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidewire._runtime.blocking_portal import Blocking, blocking, blocking_items, run
from tidewire.errors import CallCancelled, InvalidArgument, NotFound, RemoteError, TidewireError, WorkerLost
from tidewire.services.contract.names import short, token_problem
from tidewire.streams.command_store import QUEUE, CommandInfo, CommandStore, Record, life_of
from tidewire.streams.home import WAIT_US, time_of
from tidewire.streams.progress import CommandProgress
from tidewire.values import decode

if TYPE_CHECKING:
    from tidewire.node import Node

_PAUSE_S = 1.0

_R = TypeVar("_R")
_T = TypeVar("_T")


class CommandRun(Generic[_T]):
    """A command that was started; ``await client.reindex.start(...)`` gives it, and
    ``node.command(id)`` in any process, also later.

    Attributes:
        id: Its id.
    """

    def __init__(self, node: Node, store: CommandStore, id: str, convert: Callable[[Any], Any] | None = None) -> None:
        problem = token_problem("id", id)
        if problem is not None:
            raise InvalidArgument(problem)
        self.id = id
        self._node = node
        self._store = store
        self._convert = convert

    async def info(self) -> CommandInfo:
        """Return what there is of it.

        Raises:
            NotFound: if there is no such command, or not any more: it has ended, and was kept as
                long as its service says.
        """
        return await self._store.info(self.id)

    async def result(self, timeout: float | None = None) -> _T:
        """Wait until it is over, and return its result.

        Args:
            timeout: Seconds after which TimeoutError is raised; None for as long as it takes. The
                command goes on.

        Raises:
            NotFound: as ``info`` does.
            CallCancelled: if it was cancelled.
            WorkerLost: if the worker of its last attempt was lost.
            BaseException: what its last attempt has raised: the same type, or RemoteError if it has
                none here.
        """
        until = None if timeout is None else monotonic() + timeout
        record, revision, looked = None, 0, False
        while record is None or not life_of(record).over:
            left_us = WAIT_US if until is None else min(WAIT_US, round((until - monotonic()) * 1_000_000))
            if looked and left_us <= 0:
                stage = "out of reach" if record is None else record["stage"]
                raise TimeoutError(
                    f"command {self.id}: it was {stage} for as long as was waited: it goes on; wait longer, or look again later"
                )
            looked, left_us = True, max(0, left_us)
            if record is None:
                if (found := await self._patiently(self._store.entry(self.id), left_us)) is not None:
                    record, revision = found
            elif (
                watched := await self._patiently(self._store.watch.next(self.id, revision, left_us), left_us)
            ) is not None:
                changes, revision = watched
                for _, data, _, _ in changes:
                    if data is None:
                        raise NotFound(f"command {self.id!r}: its record was removed")
                    record = decode(data)
        return cast("_T", self._outcome(record))

    def _outcome(self, record: Record) -> Any:
        if record["stage"] == "succeeded":
            value = decode(record["result"])
            return value if self._convert is None else self._convert(value)
        if record["stage"] == "cancelled":
            raise CallCancelled(f"command {self.id}: it was cancelled")
        if "error" not in record:
            raise WorkerLost(
                f"command {self.id}: its worker {record.get('worker')!r} was lost in attempt {record['attempt']}, the last one: look what ends it, and `retry` it"
            )
        error = decode(record["error"])
        raise error if isinstance(error, BaseException) else RemoteError(message=short(error))

    async def _patiently(self, call: Awaitable[_R], wait_us: int) -> _R | None:
        """Return the result of a call of the storage backend; None while that is away, after a
        pause: the command goes on all the same.
        """
        try:
            return await call
        except TidewireError as error:
            if not error.retryable:
                raise
            from tidewire.services.registry import registry_of

            # A restored link counts as a change.
            registry = registry_of(self._node)
            await registry.pause(min(_PAUSE_S, wait_us / 1_000_000), registry.change_counter.count)
            return None

    async def progress(self) -> AsyncIterator[CommandProgress]:
        """Yield how far it is, now and then as it changes, until it is over. Of changes that come
        quickly the newest is seen.

        Raises:
            NotFound: as ``info`` does.
        """
        while (found := await self._patiently(self._store.entry(self.id), WAIT_US)) is None:
            pass
        record, after, seen, is_over = found[0], 0, None, life_of(found[0]).over
        while True:
            newest = record.get("progress") if is_over else None
            if not is_over:
                watching = self._store.home.call("watch", QUEUE, f"{self.id}.*", after, 10, WAIT_US)
                changes, after, _ = await self._patiently(watching, WAIT_US) or ((), after, False)
                for key, data, _, _ in changes:
                    if key.endswith(".progress"):
                        newest = None if data is None else decode(data)
                    else:
                        record = {} if data is None else decode(data)
                        is_over = data is None or life_of(record).over
                newest = record.get("progress") if is_over else newest
            if newest is not None and newest != seen:
                seen = newest
                fraction, note, attempt, time_us = newest
                yield CommandProgress(fraction, note, attempt, time_of(time_us))  # type: ignore[arg-type]
            if is_over:
                return

    async def cancel(self) -> bool:
        """Have it end: at once if it waits; if it runs, its coroutine is interrupted, and its plain
        function at its next report.

        Returns:
            True if the command was not over, and nobody had cancelled it.

        Raises:
            NotFound: as ``info`` does.
        """
        return await self._store.cancel(self.id)

    async def retry(self) -> bool:
        """Have it begin anew, if it has failed or was cancelled, with all its attempts. Returns
        whether it does.

        Raises:
            NotFound: as ``info`` does.
        """
        return await self._store.renew(self.id)

    @property
    def sync(self) -> SyncCommandRun[_T]:
        """Blocking forms, for plain threads."""
        return SyncCommandRun(self, self._node)

    def __repr__(self) -> str:
        return f"<CommandRun {self.id}>"


class SyncCommandRun(Blocking[CommandRun[_T]], Generic[_T]):
    """A command for plain threads; ``node.sync.command(id)`` and ``client.sync.reindex.start(...)``
    give it.
    """

    id: str
    info = blocking(CommandRun.info)
    progress = blocking_items(CommandRun.progress)
    cancel = blocking(CommandRun.cancel)
    retry = blocking(CommandRun.retry)

    def result(self, timeout: float | None = None) -> _T:
        """Block until it is over, and return its result."""
        return run(self._node, self._of.result(timeout))
