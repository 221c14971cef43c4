"""Service instance: runs the calls, streams and events of one served object."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from tidewire import _log
from tidewire._binding import Admission, CallCounters, InstanceEndpoint
from tidewire._handlers import Plan
from tidewire._node.actors import Options
from tidewire.errors import InvalidArgument, NoSuchTarget, TidewireError
from tidewire.services.caller.argument_check import Arguments
from tidewire.services.caller.reply import LocalReply, call_error
from tidewire.services.contract.info import ServiceInfo, admits
from tidewire.services.contract.methods import Bound
from tidewire.services.contract.names import VISIBILITIES, nearest
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.context import CallContext
from tidewire.services.instances.inbound_call import AnyRunning, Failure, InboundCall
from tidewire.services.instances.outcome import error_for_caller
from tidewire.services.instances.stream_writer import StreamWriter, write
from tidewire.services.instances.thread_workers import spawn_workers
from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, ThreadWorkers
    from tidewire.node import Node
    from tidewire.services.instance_transport import Request


class ServiceInstance:
    """One instance of a service: the actors that run it.

    Coroutines run on the node's event loop, plain functions on the threads of a dispatcher.

    Attributes:
        id: Its id.
        info: Description of the service that it serves.
        node: The node that it lives in.
        capacity: How many calls and streams it handles at once.
        counters: Its counters.
        writers: The open streams.
        calls: The calls whose handlers are running.
        endpoint: Behavior of ``values``. It also takes calls of other nodes once it is
            open.
        values: The actor that lets calls begin, if there are coroutines among the methods. It
            has the places of all calls; plain functions then run on the thread workers, each in the
            place of its call. Without coroutines the thread workers have the places.
        workers: The actors that run plain functions, if there are any among the methods.
        streams: The actor that writes streams of coroutines, if it has any.
        admission: Where streams wait for others to end.
        streams_any: True if some of its methods give streams.
        stopping: True if it opens no further streams.
    """

    def __init__(
        self, node: Node, info: ServiceInfo, methods: Mapping[str, Bound], capacity: ConcurrencyLimits, dispatcher: str
    ) -> None:
        self.node = node
        self.capacity = capacity
        self.admission = Admission(capacity.streams, capacity.waiting)
        self.info = info
        (self.id,) = info.instances
        self.counters = CallCounters(node._engine)
        self.writers: set[StreamWriter] = set()
        self.calls: set[AnyRunning] = set()
        self._methods = methods
        self._admitted = {
            origin: {name: method for name, method in methods.items() if admits(method.visibility, origin)}
            for origin in VISIBILITIES
        }
        kinds = self._kinds(methods)
        self.streams_any = any(streams for _, streams in kinds)
        self.stopping = False
        self.values = self.streams = None
        self.endpoint = InstanceEndpoint(self.receive, self.id, self.counters, self.calls)
        self.workers: ThreadWorkers | None = None
        self._stream_workers: ThreadWorkers | None = None
        if (True, False) in kinds:
            self.values = self._spawn(self.endpoint, capacity.mailbox, capacity.calls)
        if (False, False) in kinds:
            self.workers = spawn_workers(node, capacity, dispatcher, self.values, info.name)
        if (False, True) in kinds:
            # A call that blocks must not hold up a stream.
            self._stream_workers = spawn_workers(
                node, dataclasses.replace(capacity, calls=capacity.streams), dispatcher, self.values, info.name
            )
        if (True, True) in kinds:
            # It gets those that have a place, and those whose reader went away before they began.
            self.streams = self._spawn(write, Mailbox(capacity.streams + capacity.waiting), capacity.streams)

    def _kinds(self, methods: Mapping[str, Bound]) -> set[tuple[bool, bool]]:
        """Return the kinds of its methods: whether coroutines, and whether streams."""
        return {(method.coroutine, method.streams) for method in methods.values()}

    @property
    def stream_workers(self) -> ThreadWorkers:
        """The actors that run plain generators."""
        assert self._stream_workers is not None
        return self._stream_workers

    @property
    def _worker_groups(self) -> list[ThreadWorkers]:
        return [workers for workers in (self.workers, self._stream_workers) if workers is not None]

    def close(self) -> list[ActorRef]:
        """Make no more actors, and return those to stop, but those of events: the others end with
        them.
        """
        members = []
        # Calls that wait in ``values`` still need the worker_groups, which end after it.
        for workers in self._worker_groups if self.values is None else ():
            workers.close()
            members += workers.actors
        return [*(actor for actor in (self.values, self.streams) if actor is not None), *members]

    @property
    def waiting(self) -> int:
        """Calls and streams that have not begun."""
        members = [actor for workers in self._worker_groups for actor in workers.actors]
        lines = [*members, *(actor for actor in (self.values, self.streams) if actor is not None)]
        depths: list[int] = [actor.statistics()["depth"] for actor in lines]
        return sum(depths) + self.admission.waiting

    def title(self, running: AnyRunning) -> str:
        """Return service and method of a call, for metrics."""
        return f"{self.info.name}/{running.method.name}"

    def admitted(self, origin: str) -> Mapping[str, Bound]:
        """Return the methods that may be called from there, by name."""
        return self._admitted[origin]

    def method(self, request: Request) -> Bound:
        """Return the method that a request is for.

        Raises:
            NoSuchTarget: if there is none that may be called from there.
        """
        admitted = self._admitted[request.origin]
        found = admitted.get(request.method)
        if found is None:
            known = nearest(request.method, admitted)
            raise NoSuchTarget(f"{request.service} has no method {request.method!r}: {known}")
        if not found.signature.binds(request.args, request.kwargs):
            found.signature.check(request.title, request.args, request.kwargs)
        return found

    def arguments(self, running: InboundCall) -> Arguments:
        """Return the arguments for the method of a call.

        Raises:
            InvalidArgument: if an argument does not fit.
        """
        request, signature = running.request, running.method.signature
        args, kwargs = request.args, request.kwargs
        if not signature.fits(args, kwargs):
            args, kwargs = signature.convert(request.title, args, kwargs)
        if signature.context is not None:
            args, kwargs = signature.with_context(args, kwargs, CallContext(running))
        return args, kwargs

    def on_thread(self, running: InboundCall, timeout: float | None) -> LocalReply:
        """Run a plain function on a thread worker.

        Raises:
            ActorStopped: if the service is stopping.
            MailboxFull: if too many wait.
        """
        assert self.workers is not None
        try:
            pending, job = self.workers.ask(functools.partial(self.run, running), timeout, running.request.priority)
        except TidewireError as error:
            raise call_error(self, running, error) from None
        return LocalReply(self, pending, running, job)

    async def receive(self, running: InboundCall) -> Any:
        """Run a call of this process; a plain function runs on a thread worker. The endpoint calls
        this.
        """
        if running.cancelled:
            return None
        if not running.method.coroutine:
            try:
                return await self.on_thread(running, None)
            except asyncio.CancelledError:
                raise
            # The caller receives every exception of the function.
            except BaseException as error:  # noqa: BLE001
                return Failure(error)
        token = running.enter_task()
        self.calls.add(running)
        self.counters.began()
        try:
            args, kwargs = self.arguments(running)
            value = await running.method.call(*args, **kwargs)
            self.counters.ended(self.title(running), running.took_us())
            return value
        # The caller receives every exception of the handler.
        except BaseException as error:  # noqa: BLE001
            return self.raised(running, error)
        finally:
            self.calls.discard(running)
            running.leave(token)

    def raised(self, running: AnyRunning, error: BaseException) -> Failure | None:
        """Return the reply of a method that raised; None if its caller has left.

        Raises:
            CancelledError: if the loop is ending, and the task with it.
        """
        if not running.method.coroutine or not isinstance(error, asyncio.CancelledError):
            return self._failed(running, error)
        if not running.was_interrupted and is_cancelled():
            self.counters.cancelled(self.title(running), running.took_us())
            raise error
        return self._interrupted(running, error)

    def run(self, running: InboundCall) -> Any:
        """Run a plain function; a thread worker calls this for each call."""
        if running.cancelled:
            return None
        token = running.enter()
        self.calls.add(running)
        self.counters.began()
        try:
            args, kwargs = self.arguments(running)
            value = running.method.call(*args, **kwargs)
            if inspect.iscoroutine(value):
                self.refuse_coroutine(running, value)
            if running.cancelled:
                self.counters.cancelled(self.title(running), running.took_us())
                return None if running.reason is None else Failure(running.reason)
            self.counters.ended(self.title(running), running.took_us())
            return value
        # The caller receives every exception of the handler.
        except BaseException as error:  # noqa: BLE001
            return self._failed(running, error)
        finally:
            self.calls.discard(running)
            running.leave(token)

    def refuse_coroutine(self, running: AnyRunning, value: Coroutine[Any, Any, Any]) -> None:
        """Refuse the coroutine that a plain function returned.

        Raises:
            InvalidArgument: always.
        """
        value.close()
        text = "a plain function gave a coroutine, and its thread has no loop: use `async def`"
        raise InvalidArgument(f"{running.request.title}: {text}")

    def end_streams(self, reason: Callable[[], BaseException]) -> None:
        """End the open streams, as they may be endless. Each reader gets a reason of its own."""
        # The opener adds a stream before it checks ``stopping``, so no stream is missed.
        self.stopping = True
        for writer in list(self.writers):
            writer.cancel(reason())

    def cancel_calls(self, reason: Callable[[], BaseException]) -> None:
        """Cancel the running calls. Each caller gets a reason of its own."""
        for running in list(self.calls):
            running.cancel(reason())

    def _failed(self, running: AnyRunning, error: BaseException) -> Failure:
        self.counters.failed(self.title(running), type(error).__name__, running.took_us())
        self.log_failure(running, error)
        return Failure(error_for_caller(running.request.title, error))

    def log_failure(self, running: AnyRunning, error: BaseException) -> None:
        """Log the exception of a method, unless the arguments caused it, or the object declares it
        as a reply.
        """
        served = getattr(running.method.call, "__self__", None)
        if not isinstance(error, (InvalidArgument, *getattr(served, "_answers_", ()))):
            _log.call_failed(self, running.request, error)

    def _interrupted(self, running: AnyRunning, error: BaseException) -> Failure | None:
        if not running.was_interrupted:
            return self._failed(running, error)
        self.counters.cancelled(self.title(running), running.took_us())
        return None if running.reason is None else Failure(running.reason)

    def _spawn(self, receive: Any, mailbox: Mailbox, concurrency: int) -> ActorRef:
        def plan() -> Plan:
            return Plan(receive, takes_context=False, coroutine=True)

        return self.node._spawn_plan(plan, Options(mailbox=mailbox, concurrency=concurrency))


def is_cancelled() -> bool:
    """Return True if this task is cancelled, and not an awaitable of the handler."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
