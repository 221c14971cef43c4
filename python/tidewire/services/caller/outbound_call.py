"""Outbound call of a client: its options before it is sent, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidewire._runtime import steps
from tidewire.services import instance_transport as ports
from tidewire.services.caller.argument_streams import feed, has_streams
from tidewire.services.caller.attempts import Attempts
from tidewire.services.instance_transport import InstanceTransport, Request
from tidewire.services.limits import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from tidewire.services.caller.options import CallOptions
    from tidewire.services.registry import Group, Registry


@dataclass(slots=True)
class OutboundCall:
    """A call that has not been sent yet."""

    registry: Registry
    service: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: CallOptions
    timeout: float | None = None
    result: Callable[[Any], Any] | None = None

    @property
    def title(self) -> str:
        """Name of the call in error messages."""
        return f"{self.service}.{self.method}"

    @property
    def timeout_s(self) -> float:
        """How long it may take, if it gives one value."""
        return self.options.timeout or self.timeout or CALL_TIMEOUT_S

    def made(self, port: InstanceTransport, value: Any) -> Any:
        """Return a result as the type that the client knows; one of this process is handed over as
        it is.
        """
        return value if self.result is None or not getattr(port, "over_link", False) else self.result(value)

    def group(self) -> Group:
        """Return the instances that it may go to."""
        return self.registry.group(self.service)

    def finding(self) -> Generator[Any, Any, Group]:
        """Return the instances that it may go to; where nobody is known, the hub is asked."""
        if self.registry.find(self.service) is None:
            yield from steps.awaiting(self.registry.find_again(self.service, self.timeout_s))
        return self.group()

    def found(self) -> Group:
        """As ``finding``, and block this thread."""
        if self.registry.find(self.service) is None:
            steps.blocking(self.registry.find_again(self.service, self.timeout_s))
        return self.group()

    def is_idempotent(self, group: Group) -> bool:
        """Return whether it may be made again where it is not known whether it was handled."""
        method = group.methods.get(self.method)
        return method is not None and method.idempotent and not has_streams(self.args, self.kwargs)

    def attempts(self, deadline: float | None) -> Attempts:
        """Return what says how it goes on after it has failed."""
        return Attempts(deadline, self.registry.node.links.link_resends)

    def request(self, streams: bool, over_links: bool = False) -> Request:
        """Return it as it travels from here: within the time of the call that it is made in."""
        options, parent = self.options, ports.current()
        timeout = options.timeout or self.timeout if streams else self.timeout_s
        deadline = ports.nested_deadline(self.title, timeout, parent)
        node = self.registry.node
        args, kwargs, feeds = feed(self.title, self.args, self.kwargs, over_links, node)
        made = Request(
            self.service,
            self.method,
            args,
            kwargs,
            deadline=deadline,
            headers=options.headers,
            priority=options.priority,
            node=node.name,
            user=None if parent is None else parent.request.user,
            parent=parent,
        )
        made.feeds = feeds
        return made
