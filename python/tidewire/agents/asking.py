"""Requests that are asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from time import sleep
from typing import TYPE_CHECKING, Any

import msgspec

from tidewire.errors import TidewireError

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.agents.desk import Desk
    from tidewire.agents.message import Message
    from tidewire.agents.retry import Retry


class Asked:
    """A request that is asked again after failures that may pass."""

    def __init__(self, asked: Pending, target: Desk, message: Message, timeout: Any, retry: Retry) -> None:
        self._asked = asked
        self._target = target
        self._message = message
        self._timeout = timeout
        self._retry = retry

    def __await__(self) -> Generator[Any, None, Any]:
        while True:
            try:
                return (yield from self._asked.__await__())
            except Exception as error:
                if self._is_last(error):
                    raise
            yield from asyncio.sleep(self._retry.wait_s(self._message.delivery)).__await__()
            self._ask()

    def wait(self) -> Any:
        while True:
            try:
                return self._asked.wait()
            except Exception as error:
                if self._is_last(error):
                    raise
            sleep(self._retry.wait_s(self._message.delivery))
            self._ask()

    def _is_last(self, error: Exception) -> bool:
        passes = not isinstance(error, TidewireError) or error.retryable
        return not passes or self._message.delivery > self._retry.limit

    def _ask(self) -> None:
        """Ask with a copy: the handler of the attempt before may still be at work on the message."""
        before = self._message
        message = msgspec.structs.replace(before, delivery=before.delivery + 1, context=None, given_id=before.id)
        self._target.retried += 1
        self._message, self._asked = message, self._target.ref.ask(message, self._timeout, message.priority)
