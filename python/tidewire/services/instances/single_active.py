"""Single-active services: one instance is active, the holder of a lease. The others stand by, and
hold calls until one is active.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire._node.ledger import Ledger
from tidewire._runtime.blocking_portal import Blocking, LoopCall, blocking
from tidewire._trace_context import without_context
from tidewire.errors import LeaseLost, TidewireError
from tidewire.services.contract.command import Command
from tidewire.services.contract.declaration import Declaration
from tidewire.services.contract.info import ServiceInfo
from tidewire.services.contract.methods import Event, Function, Method
from tidewire.services.contract.names import STANDBY
from tidewire.services.instance_transport import Refused
from tidewire.services.instances import context
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.registry import registry_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidewire.node import Node
    from tidewire.services.instances.serve import Served
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.lease import Lease

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_RECHECK_S = 60.0


class SingleActive:
    """Handle of one instance of a single-active service.

    Attributes:
        name: The name of the service.
        instance: The id of the instance.
        info: Description of the service for other nodes while the instance is active.
    """

    def __init__(
        self,
        node: Node,
        target: Any,
        declared: Declaration,
        info: ServiceInfo,
        capacity: ConcurrencyLimits,
        dispatcher: str,
        lease_us: int,
    ) -> None:
        from tidewire.services.instances.serve import Served
        from tidewire.streams.lease import Lease

        self.name = info.name
        (self.instance,) = info.instances
        self.info = info
        self.rests = ChangeCounter()
        self.title = f"service {self.name!r} on standby"
        self._node = node
        self._target, self._capacity, self._dispatcher = target, capacity, dispatcher
        self._lease = Lease(
            node._home(), f"active.{self.name}", f"{node.name}/{self.instance}", lease_us / 1e6, tied=True
        )
        self._guarded_methods = _guarded(declared, self._lease)
        # The served instance while it is active, and then until it has stopped.
        self._inner: Served | None = None
        self._stopping: Served | None = None
        self._ledgers: list[Ledger] = []
        self._is_over = self._is_stopping = False
        node._ensure_loop()
        # Calls wait here while no instance is active.
        calls = {name: Method(name, self._forwarder(method), method.mark) for name, method in declared.methods.items()}
        standby = f"{STANDBY}{self.instance}"
        details = tuple(replace(detail, id=standby) for detail in info.details)
        standby_info = replace(info, instances=(standby,), details=details, events=())
        self._standby = Served(
            node, None, replace(declared, methods=calls, events=[], commands={}), standby_info, capacity, "default"
        )
        context.fences[self.name, self.instance] = lambda: self._lease.fence
        node._waits_for.append(self)
        node._at_goodbye.append(self._leave)
        self._task: asyncio.Task[None] | None = None
        self._ending: Future[None] | None = None
        LoopCall(self._node, self._run())

    def __await__(self) -> Generator[Any, Any, SingleActive]:
        yield from self._standby.__await__()
        return self

    @property
    def is_active(self) -> bool:
        """True while the lease is held by the clock of this process."""
        return self._inner is not None and self._lease.is_held

    @property
    def fence(self) -> int:
        """The fencing token: greater than the tokens of all instances that were active before. Pass
        it to stores that can compare tokens.

        Raises:
            LeaseLost: if this instance is not active.
        """
        return self._lease.fence

    @property
    def consumers(self) -> dict[str, Consumer]:
        """The consumers of its durable handlers while it is active; see ``Served.consumers``."""
        return {} if self._inner is None else self._inner.consumers

    @property
    def sync(self) -> SingleSync:
        """Blocking forms, for plain threads."""
        return SingleSync(self, self._node)

    async def active(self, timeout: float | None = None) -> int:
        """Wait until this instance is the active one, and return its fence.

        Args:
            timeout: Seconds after which TimeoutError is raised; None for no limit.
        """
        until = None if timeout is None else monotonic() + timeout
        while True:
            seen = self.rests.count
            if self.is_active:
                return self.fence
            left_s = None if until is None else until - monotonic()
            if self._is_over or (left_s is not None and left_s <= 0):
                raise TimeoutError(
                    f"{self.name}: the instance {self.instance!r} is not active: another is, or it was stopped"
                )
            await self._node._engine.changed(self.rests, seen, left_s)

    async def stop(self, drain: bool = True, timeout: float | None = 30.0) -> Ledger:
        """Stop this instance. An active one finishes its calls, and then another takes over at
        once. A second call returns the same ledger.

        A cancelled stop continues, and a second call waits for its end.

        Args:
            drain: True to finish the calls that have arrived.
            timeout: Seconds after which stuck handlers are abandoned.
        """
        inner = self._inner
        if inner is not None:
            inner._refuse_self_stop()
        await asyncio.shield(asyncio.wrap_future(self._begin_end(drain, timeout)))
        return Ledger.total([*self._ledgers, await self._standby.stop(drain, timeout)])

    def statistics(self) -> dict[str, Any]:
        """Return the counts of calls of the active instance, or of its standby."""
        inner = self._inner
        return {
            **(self._standby if inner is None else inner).statistics(),
            "instance": self.instance,
            "active": self.is_active,
        }

    def is_idle(self) -> bool:
        """Return True if a stopping node does not wait for it."""
        loop = self._node._loop
        return not self._is_stopping or self._is_over or loop is None or loop.is_closed()

    def __repr__(self) -> str:
        return f"<Single {self.name!r} {self.instance!r} {'active' if self.is_active else 'on standby'}>"

    # Standby and activation

    async def _run(self) -> None:
        """Acquire the lease, be active while it is held, and acquire it again when it is lost."""
        self._task = asyncio.current_task()
        wait_s = 0.0
        registry = registry_of(self._node)
        while not self._is_stopping:
            seen = registry.change_counter.count
            try:
                await self._lease.acquire()
                await self._begin()
                wait_s = 0.0
                await self._lease.lost()
                text = "%(service)s: the instance %(instance)r has lost its lease and is not active any more"
                log.warning("service.lease_lost", text, **self._fields())
            # The instance tries again after every error: some instance has to be active.
            except Exception as error:  # noqa: BLE001
                if not wait_s:
                    text = "%(service)s: the instance %(instance)r can't become active, and tries again: %(error)s"
                    log.warning("service.activation_failed", text, **self._fields(), error=error)
                wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _LONGEST_WAIT_S)
            await self._deactivate(False, 0.0)
            if wait_s and not self._is_stopping:
                # A restored link counts as a change.
                await registry.pause(wait_s, seen)

    async def _begin(self) -> None:
        from tidewire.services.instances.serve import Served

        self._inner = Served(
            self._node, self._target, self._guarded_methods, self.info, self._capacity, self._dispatcher
        )
        text = "%(service)s: the instance %(instance)r is active, with fence %(fence)d"
        log.info("service.activated", text, **self._fields(), fence=self._lease.fence)
        await self._inner
        self.rests.ring()

    def _fields(self) -> dict[str, Any]:
        return {"node": self._node.name, "service": self.name, "instance": self.instance}

    async def _deactivate(self, drain: bool, timeout: float | None) -> None:
        """Stop serving, and then release the lease."""
        inner, self._inner = self._inner or self._stopping, None
        self._stopping = inner
        try:
            if inner is not None:
                self._ledgers.append(await inner.stop(drain, timeout))
                self._stopping = None
        finally:
            # A lease that can't be released expires.
            with contextlib.suppress(TidewireError):
                await self._lease.release()

    async def _end(self, drain: bool, timeout: float | None) -> None:
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        try:
            await self._deactivate(drain, timeout)
        finally:
            self._is_over = True
            context.fences.pop((self.name, self.instance), None)
            self._node._waits_for = [one for one in self._node._waits_for if one is not self]
            self._node._at_goodbye = [hook for hook in self._node._at_goodbye if hook != self._leave]
            self.rests.ring()

    def _begin_end(self, drain: bool, timeout: float | None) -> Future[None]:
        """Begin the end once: a second one would release the lease before the calls of the first
        are finished.
        """
        with self._node._lock:
            if self._ending is None:
                self._ending = LoopCall(self._node, self._end(drain, timeout)).future
            return self._ending

    def _leave(self) -> None:
        """End it, as the node is about to stop. From any thread; ``is_idle`` is true afterwards."""
        loop = self._node._loop
        self._is_stopping = True
        if loop is not None and not loop.is_closed():
            self._begin_end(True, None)

    # Calls while no instance is active, or to an instance on standby

    def _forwarder(self, method: Method) -> Function:
        name = method.name

        async def forward(*args: Any, **kwargs: Any) -> Any:
            return await (await self._active_method(name))(*args, **kwargs)

        async def forward_items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with (await self._active_method(name))(*args, **kwargs) as items:
                async for item in items:
                    yield item

        return Function(forward_items if method.function.streams else forward)

    async def _active_method(self, name: str) -> Any:
        """Wait until an instance is active, and return its method for the current call."""
        registry, call = registry_of(self._node), context.context()
        while True:
            seen = registry.change_counter.count
            group = registry.find(self.name)
            if group is not None and group.active:
                break
            await registry.pause(_RECHECK_S, seen)
        return getattr(self._node.client(self.name).with_(headers=without_context(call.headers)), name)


class SingleSync(Blocking[SingleActive]):
    """Blocking calls of an instance, at ``single.sync``."""

    stop = blocking(SingleActive.stop)
    active = blocking(SingleActive.active)


class _Guarded(Function):
    """A function that runs only while a lease is held."""

    def __init__(self, inner: Function, lease: Lease) -> None:
        super().__init__(inner.call, inner.attribute, inner.owned, inner.names)
        self._lease = lease

    def bound(self, target: Any) -> Callable[..., Any]:
        """Return the bound function of the served object."""
        call, lease = super().bound(target), self._lease
        if self.streams:
            return _guarded_stream(call, lease) if self.coroutine else _guarded_generator(call, lease)
        return _guarded_coroutine(call, lease) if self.coroutine else _guarded_function(call, lease)


def _guarded(declared: Declaration, lease: Lease) -> Declaration:
    methods = {
        name: Method(name, _Guarded(method.function, lease), method.mark) for name, method in declared.methods.items()
    }
    events = [Event(event.name, _Guarded(event.function, lease), event.mark) for event in declared.events]
    commands = {
        name: Command(name, _Guarded(command.function, lease), command.mark)
        for name, command in declared.commands.items()
    }
    return replace(declared, methods=methods, events=events, commands=commands)


def _check_before(lease: Lease) -> None:
    if not lease.is_held:
        raise Refused(f"{lease.name}: this instance is not active any more: another has the call")


def _check_after(lease: Lease) -> None:
    if not lease.is_held:
        raise LeaseLost(
            f"{lease.name}: this instance lost its lease while it was at the call, and does not answer: whether it was handled is not known"
        )


def _guarded_coroutine(call: Callable[..., Awaitable[Any]], lease: Lease) -> Callable[..., Any]:
    @functools.wraps(call)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        _check_before(lease)
        value = await call(*args, **kwargs)
        _check_after(lease)
        return value

    return guarded


def _guarded_function(call: Callable[..., Any], lease: Lease) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _check_before(lease)
        value = call(*args, **kwargs)
        _check_after(lease)
        return value

    return guarded


def _guarded_stream(call: Callable[..., Any], lease: Lease) -> Callable[..., Any]:
    @functools.wraps(call)
    async def guarded(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        _check_before(lease)
        items = call(*args, **kwargs)
        try:
            async for item in items:
                _check_after(lease)
                yield item
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()

    return guarded


def _guarded_generator(call: Callable[..., Any], lease: Lease) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(*args: Any, **kwargs: Any) -> Iterator[Any]:
        _check_before(lease)
        items = call(*args, **kwargs)
        try:
            for item in items:
                _check_after(lease)
                yield item
        finally:
            if hasattr(items, "close"):
                items.close()

    return guarded
