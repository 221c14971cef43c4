"""Outbound call of a client: its options before it is sent, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tidewire._runtime import steps
from tidewire._trace_context import outgoing
from tidewire.services import instance_transport as ports
from tidewire.services.caller.argument_streams import feed, has_streams
from tidewire.services.caller.retry_loop import RetryLoop, is_final, note
from tidewire.services.instance_transport import InstanceTransport, Request
from tidewire.services.limits import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from tidewire._binding import CallLoad
    from tidewire._runtime.steps import Steps
    from tidewire.services.caller.options import CallOptions
    from tidewire.services.registry import Group, Registry


@dataclass(slots=True)
class OutboundCall:
    """An unsent call."""

    registry: Registry
    service: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: CallOptions
    timeout: float | None = None
    result: Callable[[Any], Any] | None = None
    cost: tuple[int, str] | None = None
    """Position and name of the cost argument."""
    span: Any = None
    """Its span, if its fast path has begun one."""

    @property
    def title(self) -> str:
        """Name of the call in error messages."""
        return f"{self.service}.{self.method}"

    @property
    def timeout_s(self) -> float:
        """Timeout in seconds of a call with one result."""
        return self.options.timeout or self.timeout or CALL_TIMEOUT_S

    def convert_result(self, port: InstanceTransport, value: Any) -> Any:
        """Return a result as the type of the client; a result of this process stays unchanged."""
        return value if self.result is None or not port.over_link else self.result(value)

    def group(self) -> Group:
        """Return the candidate instances."""
        return self.registry.group(self.service)

    def resolve_async(self) -> Generator[Any, Any, Group]:
        """Return the candidate instances; ask the hub if none is known."""
        if self.registry.find(self.service) is None:
            yield from steps.awaiting(self.registry.find_again(self.service, self.timeout_s))
        return self.group()

    def resolve_blocking(self) -> Group:
        """Return the same as ``resolve_async``, and block this thread."""
        if self.registry.find(self.service) is None:
            steps.blocking(self.registry.find_again(self.service, self.timeout_s))
        return self.group()

    def is_idempotent(self, group: Group) -> bool:
        """Return True if a retry is allowed after an unknown outcome."""
        method = group.methods.get(self.method)
        if method is None or method.stream or not method.idempotent:
            return False
        return not has_streams(self.args, self.kwargs)

    def facts(self, group: Group) -> tuple[str, Any, bool]:
        """Return the data for the policy "lowest_latency": its method, its cost argument, and True
        if it is idempotent.
        """
        value, method = None, group.methods.get(self.method)
        cost = self.cost or (None if method is None else method.cost_argument)
        if cost is not None:
            at, name = cost
            value = self.args[at] if at < len(self.args) else self.kwargs.get(name)
        return self.method, value, self.is_idempotent(group)

    def steps(self) -> Steps[Any]:
        """Send it, and return its result. The compiled part runs these steps outside of its fast
        path.
        """
        return RetryLoop(self, self.group(), self.request(False)).steps()

    def steps_after(
        self, group: Group, port: InstanceTransport, load: CallLoad, took_s: float, error: BaseException
    ) -> Steps[Any] | None:
        """Return the steps that follow a failed attempt of the fast path; None if its error is the
        outcome.
        """
        note(group, port, load, perf_counter() - took_s, error)
        if is_final(error):
            return None
        return RetryLoop(self, group, self.request(False, ago_s=took_s), took_s).resume(port, error)

    def request(self, streams: bool, over_links: bool = False, ago_s: float = 0.0) -> Request:
        """Return the request of the call. Its deadline is at most that of the current call; its own
        timeout began ``ago_s`` seconds ago.
        """
        options, parent = self.options, ports.current()
        timeout = options.timeout or self.timeout if streams else self.timeout_s - ago_s
        deadline = ports.nested_deadline(self.title, timeout, parent)
        node = self.registry.node
        args, kwargs, feeds = feed(self.title, self.args, self.kwargs, over_links, node)
        outbound = Request(
            self.service,
            self.method,
            args,
            kwargs,
            deadline=deadline,
            headers=outgoing(options.headers) or {},
            priority=options.priority,
            node=node.name,
            user=None if parent is None else parent.request.user,
            parent=parent,
        )
        outbound.feeds = feeds
        return outbound
