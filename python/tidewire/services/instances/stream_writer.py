"""Streams at their service instance: generators that fill a channel as far as the reader allows."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._log import log
from tidewire._runtime.waiter import Waiter
from tidewire.errors import AskTimeout, InvalidArgument, TidewireError
from tidewire.services.channel import Channel, pump
from tidewire.services.instances.inbound_call import InboundCall
from tidewire.services.instances.outcome import error_for_caller

if TYPE_CHECKING:
    from tidewire.links.call_channel import CallChannel
    from tidewire.services.instances.instance import ServiceInstance


class StreamWriter:
    """Writer of one stream of a service instance, into a channel.

    Attributes:
        instance: The instance.
        running: The call that reads the stream.
        channel: The channel to the reader.
    """

    def __init__(self, instance: ServiceInstance, running: InboundCall, channel: Channel | CallChannel) -> None:
        self.instance, self.running, self.channel = instance, running, channel
        self._counted = False

    def open(self) -> None:
        """Begin, or wait for admission.

        Raises:
            ActorStopped: if the service is stopping.
            MailboxFull: if too many wait.
        """
        if self.instance.admission.enter(self, self.running.request.priority):
            self._proceed()

    def close(self) -> None:
        """End the stream: its reader has left."""
        if self.channel.close():
            self.cancel(None)

    def cancel(self, reason: BaseException | None = None) -> None:
        """Cancel the generator; its ``finally`` runs. A reader gets the reason after the items
        before it; over a link, after the items that it gave credit for.
        """
        self.running.cancel(reason)
        self.channel.unpark()
        if not self.running.begun:
            self.finish(self.running.reason)

    def begin(self) -> None:
        """Count the begin of the generator."""
        self._counted = True
        self.instance.counters.began()

    def finish(self, error: BaseException | None) -> None:
        """End the channel, and release the place of the stream."""
        if self._counted:
            self._counted = False
            self._count(error)
        # A reader that sees the end finds the stream counted.
        self.channel.end(error)
        self.leave()

    def leave(self) -> None:
        """Release the place of the stream to the next one."""
        self.instance.writers.discard(self)
        following: StreamWriter | None = self.instance.admission.leave(self)
        if following is not None:
            following.resume()

    def resume(self) -> None:
        """Begin after admission; a plain generator continues."""
        try:
            self._proceed()
        except TidewireError as stopped:
            # The service is stopping: only this thread can close the generator.
            self.running.cancel(self.running.reason or stopped)
            self._end(None)

    def _proceed(self) -> None:
        assert self.instance.streams is not None
        self.instance.streams.tell(self, self.running.request.priority)

    def _end(self, error: BaseException | None) -> None:
        self.finish(error or self.running.reason)

    def late(self) -> AskTimeout:
        """Return the error of a stream whose deadline has passed."""
        text = f"{self.channel.title}: the stream's time is up: give it more with with_(timeout=...)"
        return AskTimeout(text, blocked_ms=self.running.request.blocked_ms)

    def failed(self, error: BaseException) -> BaseException:
        """Return the error for the reader of a generator that raised."""
        if self.channel.closed:
            text, title = (
                "%(method)s: the stream was closed, and its generator failed at that: %(error)r",
                self.channel.title,
            )
            log.warning("call.stream_close_failed", text, node=self.instance.node.name, method=title, error=error)
        elif isinstance(error, Exception) and not self.running.cancelled:
            self.instance.log_failure(self.running, error)
        return error_for_caller(self.channel.title, error)

    def _count(self, error: BaseException | None) -> None:
        counters, title, took_us = self.instance.counters, self.instance.title(self.running), self.running.took_us()
        # The generator may end before the cancellation of its reader arrives.
        if self.running.cancelled or (error is None and self.channel.closed):
            counters.cancelled(title, took_us)
        elif error is not None:
            counters.failed(title, type(error).__name__, took_us)
        else:
            counters.streamed(title, took_us)


async def write(writer: StreamWriter) -> None:
    """Write the stream of an asynchronous generator. The engine calls this for each one."""
    running = writer.running
    if running.cancelled:
        writer.finish(running.reason)
        return
    token = running.enter_task()
    writer.begin()
    left_s = running.request.left_s()
    timer = None
    if left_s is not None:
        timer = asyncio.get_running_loop().call_later(left_s, lambda: running.cancel(writer.late()))
    error: BaseException | None = None
    try:
        args, kwargs = writer.instance.arguments(running)
        items = running.method.call(*args, **kwargs)
        if not hasattr(items, "__aiter__"):
            items = await _awaited(items, writer.channel.title)
        await pump(items, writer.channel, running)
    except asyncio.CancelledError as cancelled:
        if not running.was_interrupted:
            error = writer.failed(cancelled)
            raise
    # The reader receives every exception of the generator.
    except BaseException as raised:  # noqa: BLE001
        error = writer.failed(raised)
    finally:
        if timer is not None:
            timer.cancel()
        running.leave(token)
        writer.finish(error or running.reason)


async def _awaited(made: Any, title: str) -> Any:
    """Return the iterator that a coroutine returns.

    Raises:
        InvalidArgument: if there is none.
    """
    if inspect.isawaitable(made):
        made = await made
    if not hasattr(made, "__aiter__"):
        raise InvalidArgument(
            f"{title}: gave a {type(made).__name__}, and its annotation promises a stream: yield, or correct it"
        )
    return made


class TaskWriter(StreamWriter):
    """Writer of an asynchronous generator, run by the task of the request."""

    _place: Waiter | None = None
    _proceeds = False

    async def run(self) -> None:
        """Wait for admission, and write the stream."""
        if not self._proceeds:
            self._place = Waiter()
        try:
            # Another thread may have admitted it before there was a waiter to wake.
            if self._place is not None and not self._proceeds:
                await self._place
        except asyncio.CancelledError:
            self.cancel()
            raise
        await write(self)

    def leave(self) -> None:
        """Release its place; see ``StreamWriter``."""
        super().leave()
        self._proceed()

    def _proceed(self) -> None:
        self._proceeds = True
        if self._place is not None:
            self._place.wake()


class PlainWriter(StreamWriter):
    """Writer of a plain generator. A dispatcher thread advances it while the reader gives credit,
    and is free while the reader gives none.
    """

    def __init__(self, instance: ServiceInstance, running: InboundCall, channel: Channel | CallChannel) -> None:
        super().__init__(instance, running, channel)
        self._generator: Iterator[Any] | None = None

    def _proceed(self) -> None:
        self.instance.stream_workers.tell(self.advance, self.running.request.priority)

    def advance(self) -> None:
        """Write items until the credit or the generator ends."""
        running = self.running
        if running.cancelled and self._generator is None:
            self.finish(running.reason)
            return
        token = running.enter()
        try:
            if self._generator is None:
                self.begin()
                self._generator = self._items()
            while self._is_wanted():
                if not self.channel.put(next(self._generator)) and not self.channel.park(self.resume):
                    return
            self._end(None)
        except StopIteration:
            self._end(None)
        # The reader receives every exception of the generator.
        except BaseException as error:  # noqa: BLE001
            self._end(error)
        finally:
            running.leave(token)

    def _items(self) -> Iterator[Any]:
        args, kwargs = self.instance.arguments(self.running)
        return iter(self.running.method.call(*args, **kwargs))

    def _is_wanted(self) -> bool:
        self._cancel_if_late()
        return not (self.running.cancelled or self.channel.closed)

    def _cancel_if_late(self) -> bool:
        deadline = self.running.request.deadline
        if self.running.cancelled or deadline is None or monotonic() < deadline:
            return False
        self.running.cancel(self.late())
        return True

    def _end(self, error: BaseException | None) -> None:
        close = getattr(self._generator, "close", None)
        try:
            if close is not None:
                close()
        # The reader also receives an exception from the end of the generator.
        except BaseException as raised:  # noqa: BLE001
            error = error or raised
        # A generator may end by itself at its deadline: the deadline is the reason then.
        is_late = self._cancel_if_late()
        self.finish(self.running.reason if error is None or is_late else self.failed(error))
