"""Watches of services: instances that come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument
from tidewire.services.contract.info import InstanceInfo
from tidewire.services.contract.names import token_problem
from tidewire.services.registry import registry_of

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.node import Node


@dataclass(frozen=True)
class InstanceChange:
    """An instance of a service that came or went.

    Attributes:
        kind: "joined" or "left". One that comes back with another version or other metadata has
            left, and joined.
        service: The name of the service.
        instance: The instance, as it describes itself.
    """

    kind: str
    service: str
    instance: InstanceInfo

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class InstanceWatch(AsyncIterator[InstanceChange]):
    """The present instances and then each change, until the node stops.

    A cancelled read takes nothing and ends nothing: the next read continues.
    """

    def __init__(self, node: Node, name: str | None) -> None:
        self._steps = _steps(node, name)

    async def __anext__(self) -> InstanceChange:
        for step in self._steps:
            if isinstance(step, InstanceChange):
                return step
            await step
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the watch."""
        self._steps.close()


def watch_blocking(node: Node, name: str | None) -> Iterator[InstanceChange]:
    """As ``watch``, and block this thread meanwhile."""
    for step in _steps(node, name):
        if isinstance(step, InstanceChange):
            yield step
        else:
            step.wait()


def check(name: str | None) -> None:
    """Refuse what is no name of a service.

    Raises:
        InvalidArgument: if it is none.
    """
    problem = None if name is None else token_problem("name", name)
    if problem is not None:
        raise InvalidArgument(problem)


def _steps(node: Node, name: str | None) -> Generator[InstanceChange | Pending]:
    """Yield changes, and the pending wait before further ones. A slow reader gets the difference
    to its last read: nothing queues up.
    """
    registry, engine = registry_of(node), node._engine
    known: dict[tuple[str, str], InstanceInfo] = {}
    looked_at = -1
    while True:
        # Before the look: what changes meanwhile is looked at again.
        change_counter, is_over, looked_at_now = engine.change_counter, node.ledger is not None, registry.changes
        seen = change_counter.count
        if looked_at != looked_at_now:
            before, known = known, registry.instances(name)
            looked_at = looked_at_now
            for kind, some, others in (("left", before, known), ("joined", known, before)):
                gone = [(key, info) for key, info in some.items() if others.get(key) != info]
                yield from (InstanceChange(kind, service, info) for (service, _), info in gone)
        if is_over:
            return
        yield engine.changed(change_counter, seen, None)


__all__ = ["InstanceChange", "InstanceWatch", "check", "watch_blocking"]
