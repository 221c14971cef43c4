"""Command runs: handles of started commands, which can be looked up by id."""

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
    """Handle of a started command, from ``await client.reindex.start(...)`` or from
    ``node.command(id)`` in any process, at any time.

    Attributes:
        id: Id of the command.
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
        """Return the state of the command.

        Raises:
            NotFound: if there is no such command, or it has ended and the retention time of its
                service has passed.
        """
        return CommandInfo(**decode(await self._home.call("command_info", self.id)))

    async def result(self, timeout: float | None = None) -> _T:
        """Wait until the command has ended, and return its result.

        Args:
            timeout: Seconds after which TimeoutError is raised; None for no limit. The command
                continues.

        Raises:
            NotFound: as ``info`` does.
            CallCancelled: if it was cancelled.
            WorkerLost: if the worker of its last attempt was lost.
            BaseException: the exception of its last attempt; RemoteError if its type does not exist
                here.
        """
        deadline = None if timeout is None else monotonic() + timeout
        reply = None
        if deadline is not None:
            # The first lookup ignores the timeout.
            reply = await self._call_through_outage("command_record", pause_s=timeout)
        while reply is None or not reply[0]:
            left_s = None if deadline is None else deadline - monotonic()
            if left_s is not None and left_s <= 0:
                stage = "out of reach" if reply is None else decode(reply[1])["stage"]
                raise TimeoutError(
                    f"command {self.id}: it was {stage} for as long as was waited: it goes on; wait longer, or look again later"
                )
            try:
                async with asyncio.timeout(left_s):
                    reply = await self._call_through_outage("command_ended", pause_s=left_s) or reply
            except TimeoutError:
                reply = await self._call_through_outage("command_record", pause_s=0.0) or reply
        return cast("_T", self._outcome(decode(reply[1])))

    def _outcome(self, record: dict[str, Any]) -> Any:
        if record["stage"] == "succeeded":
            value = decode(record["result"])
            return value if self._convert is None else self._convert(value)
        if record["stage"] == "cancelled":
            raise CallCancelled(f"command {self.id}: it was cancelled")
        if record.get("error") is None:
            raise WorkerLost(
                f"command {self.id}: its worker {record.get('worker')!r} was lost in attempt {record['attempt']}, the last one: find the cause, and `retry` it"
            )
        error = decode(record["error"])
        raise error if isinstance(error, BaseException) else RemoteError(message=short(error))

    async def _call_through_outage(self, call: str, *args: Any, pause_s: float | None = None) -> Any:
        """Call the storage backend. During an outage, pause and return None: the command
        continues meanwhile.
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
        """Yield the present progress and then its changes, until the command ends. Of rapid
        changes it yields the newest.

        Raises:
            NotFound: as ``info`` does.
        """
        after, last_report, is_over = 0, None, False
        while not is_over:
            reply = await self._call_through_outage("command_reported", after)
            if reply is None:
                continue
            report, after, is_over = reply
            if report is not None and report != last_report:
                last_report = report
                fraction, note, attempt, time_us = report
                yield CommandProgress(fraction, note, attempt, time_of(time_us))  # type: ignore[arg-type]

    async def cancel(self) -> bool:
        """Cancel the command: at once if it is queued. A running coroutine is interrupted, a plain
        function at its next progress report.

        Returns:
            True if the command had not ended and was not cancelled before.

        Raises:
            NotFound: as ``info`` does.
        """
        return bool(await self._home.call("command_cancel", self.id))

    async def retry(self) -> bool:
        """Queue a failed or cancelled command again, with all its attempts. Return False if it has
        neither failed nor been cancelled.

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
    """A command for plain threads, from ``node.sync.command(id)`` or
    ``client.sync.reindex.start(...)``.
    """

    id: str
    info = blocking(CommandRun.info)
    result = blocking(CommandRun[_T].result)
    progress = blocking_items(CommandRun.progress)
    cancel = blocking(CommandRun.cancel)
    retry = blocking(CommandRun.retry)
