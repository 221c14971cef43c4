"""Runs of commands: the handle of a started command, also found again by its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidewire._runtime.blocking_portal import Blocking, blocking, blocking_items
from tidewire.errors import CallCancelled, InvalidArgument, RemoteError, TidewireError, WorkerLost
from tidewire.services.contract.names import short, token_problem
from tidewire.streams.command_info import CommandInfo
from tidewire.streams.home import time_of
from tidewire.streams.progress import CommandProgress
from tidewire.values import decode

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.streams.home import Home

_PAUSE_S = 1.0

_T = TypeVar("_T")


class CommandRun(Generic[_T]):
    """A command that was started; ``await client.reindex.start(...)`` gives it, and
    ``node.command(id)`` in any process, also later.

    Attributes:
        id: Its id.
    """

    def __init__(self, node: Node, home: Home, id: str, convert: Callable[[Any], Any] | None = None) -> None:
        problem = token_problem("id", id)
        if problem is not None:
            raise InvalidArgument(problem)
        self.id = id
        self._node = node
        self._home = home
        self._convert = convert

    async def info(self) -> CommandInfo:
        """Return what there is of it.

        Raises:
            NotFound: if there is no such command, or not any more: it has ended, and was kept as
                long as its service says.
        """
        return CommandInfo(**decode(await self._home.call("command_info", self.id)))

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
        found = None
        if until is not None:
            # The first look does not depend on the time.
            found = await self._patiently("command_record", pause_s=timeout)
        while found is None or not found[0]:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                stage = "out of reach" if found is None else decode(found[1])["stage"]
                raise TimeoutError(
                    f"command {self.id}: it was {stage} for as long as was waited: it goes on; wait longer, or look again later"
                )
            try:
                async with asyncio.timeout(left):
                    found = await self._patiently("command_ended", pause_s=left) or found
            except TimeoutError:
                found = await self._patiently("command_record", pause_s=0.0) or found
        return cast("_T", self._outcome(decode(found[1])))

    def _outcome(self, record: dict[str, Any]) -> Any:
        if record["stage"] == "succeeded":
            value = decode(record["result"])
            return value if self._convert is None else self._convert(value)
        if record["stage"] == "cancelled":
            raise CallCancelled(f"command {self.id}: it was cancelled")
        if record.get("error") is None:
            raise WorkerLost(
                f"command {self.id}: its worker {record.get('worker')!r} was lost in attempt {record['attempt']}, the last one: look what ends it, and `retry` it"
            )
        error = decode(record["error"])
        raise error if isinstance(error, BaseException) else RemoteError(message=short(error))

    async def _patiently(self, call: str, *args: Any, pause_s: float | None = None) -> Any:
        """Return the result of a call of the storage backend; None while that is away, after a
        pause: the command goes on all the same.
        """
        try:
            return await self._home.call(call, self.id, *args)
        except TidewireError as error:
            if not error.retryable:
                raise
            from tidewire.services.registry import registry_of

            # A restored link counts as a change.
            registry = registry_of(self._node)
            pause_s = _PAUSE_S if pause_s is None else min(_PAUSE_S, pause_s)
            await registry.pause(pause_s, registry.change_counter.count)
            return None

    async def progress(self) -> AsyncIterator[CommandProgress]:
        """Yield how far it is, now and then as it changes, until it is over. Of changes that come
        quickly the newest is seen.

        Raises:
            NotFound: as ``info`` does.
        """
        after, seen, is_over = 0, None, False
        while not is_over:
            found = await self._patiently("command_reported", after)
            if found is None:
                continue
            report, after, is_over = found
            if report is not None and report != seen:
                seen = report
                fraction, note, attempt, time_us = report
                yield CommandProgress(fraction, note, attempt, time_of(time_us))  # type: ignore[arg-type]

    async def cancel(self) -> bool:
        """Have it end: at once if it waits; if it runs, its coroutine is interrupted, and its plain
        function at its next report.

        Returns:
            True if the command was not over, and nobody had cancelled it.

        Raises:
            NotFound: as ``info`` does.
        """
        return bool(await self._home.call("command_cancel", self.id))

    async def retry(self) -> bool:
        """Have it begin anew, if it has failed or was cancelled, with all its attempts. Returns
        whether it does.

        Raises:
            NotFound: as ``info`` does.
        """
        return bool(await self._home.call("command_renew", self.id))

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
    result = blocking(CommandRun[_T].result)
    progress = blocking_items(CommandRun.progress)
    cancel = blocking(CommandRun.cancel)
    retry = blocking(CommandRun.retry)
