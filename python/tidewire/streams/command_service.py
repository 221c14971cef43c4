"""Command service of a hub: nodes of other languages start and follow commands through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidewire.errors import (
    HomeBusy,
    HomeUnavailable,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    RevisionConflict,
    SettingsDiffer,
    StreamFull,
    Unsupported,
)
from tidewire.services.contract.names import token_problem
from tidewire.services.instances.context import context
from tidewire.streams.command_run import CommandRun
from tidewire.streams.command_store import life_of
from tidewire.streams.home import WAIT_US
from tidewire.values import decode

if TYPE_CHECKING:
    from tidewire.node import Node

SERVICE = "tidewire-commands"
"""The name under which a node with a place for commands serves them to those that join it."""


class Service:
    """Service of commands of such a node. Nodes of Python use the storage backend itself, and do
    not need this service.
    """

    # Errors of the caller: the caller receives them, and the hub does not log them.
    _answers_ = (
        HomeBusy,
        HomeUnavailable,
        NotFound,
        PayloadTooLarge,
        RevisionConflict,
        SettingsDiffer,
        StreamFull,
        Unsupported,
    )

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: set[asyncio.Future[Any]] = set()
        self._leaving = False

    def leave(self) -> None:
        """End what waits, as the node stops. For the event loop that runs the calls."""
        self._leaving = True
        for waiting in self._waiting:
            waiting.cancel()

    async def start(
        self, service: str, command: str, arguments: bytes, key: str | None, id: str | None, priority: str
    ) -> str:
        """Start a command, or find the one with this id; return its id.

        Args:
            service: The name of the service.
            command: The name of its command.
            arguments: A list of those by position and a map of those by name, as they travel.
            key: Subject of the command.
            id: An idempotency key.
            priority: Which go first where some wait.
        """
        problem = token_problem("service", service) or token_problem("command", command)
        if problem is not None:
            raise InvalidArgument(problem)
        given = decode(arguments)
        if not (isinstance(given, list) and [type(one) for one in given] == [list, dict]):
            raise InvalidArgument("arguments: give a list of a list, those by position, and a map, those by name")
        caller = context().node
        return await self._node._command_store().enqueue(service, command, arguments, key, id, priority, caller)

    async def state(self, id: str, after: int, wait_us: int) -> tuple[int, bool, dict[str, Any]] | None:
        """Wait for the record of a command that is newer than a revision.

        Args:
            id: Of the command.
            after: The newest revision that is known; 0: the answer comes at once.
            wait_us: For how long to wait, 4 s at most.

        Returns:
            The revision, whether the command is over, and of its record what tells how it has
            ended; None if there is none newer.
        """
        store = self._run(id)._store
        if not after:
            record, revision = await store.entry(id)
            return _outcome(revision, record)
        waiting = asyncio.ensure_future(store.watch.next(id, after, max(0, min(wait_us, WAIT_US))))
        self._waiting.add(waiting)
        if self._leaving:
            waiting.cancel()
        try:
            changes, _ = await waiting
        except asyncio.CancelledError:
            if self._leaving:
                raise HomeUnavailable("the hub with the commands is stopping: ask again when it is back") from None
            raise
        finally:
            waiting.cancel()
            self._waiting.discard(waiting)
        if not changes:
            return None
        record, revision = await store.entry(id)
        return _outcome(revision, record)

    async def progress(self, id: str) -> AsyncIterator[tuple[float, str, int, Any]]:
        """Give how far a command is, as it changes, until it is over."""
        async for report in self._run(id).progress():
            yield report.fraction, report.note, report.attempt, report.time

    async def info(self, id: str) -> dict[str, Any]:
        """Return what there is of a command."""
        return asdict(await self._run(id).info())

    async def commands(
        self, service: str | None, command: str | None, stage: str | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Give what there is of those there are, the oldest first."""
        for info in await self._node.commands(service=service, command=command, stage=stage):
            yield asdict(info)

    async def cancel(self, id: str) -> bool:
        """Cancel a command. True if that changes anything."""
        return await self._run(id).cancel()

    async def retry(self, id: str) -> bool:
        """Begin a command anew that has failed or was cancelled. True if it begins."""
        return await self._run(id).retry()

    def _run(self, id: str) -> CommandRun[Any]:
        return self._node.command(id)


def _outcome(revision: int, record: dict[str, Any]) -> tuple[int, bool, dict[str, Any]]:
    names = ("stage", "attempt", "worker", "result", "error")
    return revision, life_of(record).over, {name: record.get(name) for name in names}
