"""Batches: messages of one stream that are stored atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire._trace_context import of_message
from tidewire.errors import InvalidArgument, PublishFailed
from tidewire.streams.publisher import Ack, Message, message_of

if TYPE_CHECKING:
    from tidewire.streams.home import Home

_MESSAGES_MAX = 1_000


class Batch:
    """A batch of messages; an async context manager. See ``Stream.batch``.

    Attributes:
        acks: The acks of its messages in order, after the end of its block.
    """

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._messages: list[Message] = []
        self._is_over = False
        self.acks: list[Ack] = []

    def publish(
        self,
        subject: str,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: dict[str, str] | None = None,
        content: str = "value",
        ttl: float | None = None,
    ) -> None:
        """Add a message. The end of the block sends it. The arguments are those of
        ``Stream.publish``.

        Raises:
            InvalidArgument: if an argument is not allowed, the batch has 1,000 messages already, or
                its block has ended.
        """
        if self._is_over:
            raise InvalidArgument(f"stream {self._name!r}: the block of this batch was left: begin another batch")
        if len(self._messages) == _MESSAGES_MAX:
            raise InvalidArgument(
                f"stream {self._name!r}: a batch has at most {_MESSAGES_MAX:,} messages: store several batches, or use a publisher"
            )
        headers = of_message(subject, headers)
        self._messages.append(message_of(subject, value, key, id, headers, content, None, None, ttl))

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._is_over = True
        if kind is not None or not self._messages:
            return
        results = await self._home.call("publish_batch", self._name, self._messages)
        failures = [(number, error) for number, error in enumerate(results) if isinstance(error, BaseException)]
        if failures:
            texts = [f"message {number}: {type(error).__name__}: {error}" for number, error in failures]
            text = f"stream {self._name!r}: nothing of the batch was stored: {texts[0]}"
            raise PublishFailed(text, failures=texts) from failures[0][1]
        self.acks = results
