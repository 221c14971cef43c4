"""Wait for a condition of a node's statistics, without polling."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._numbers import check_seconds
from tidewire.errors import InvalidArgument, NodeStopped

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire._runtime.steps import Steps
    from tidewire.node import Node

Condition = Callable[[dict[str, Any]], object]


class Watch:
    """Looks at the statistics of one node after each change that the node is notified of."""

    def __init__(self, node: Node, condition: Condition, timeout: float | None) -> None:
        if not callable(condition):
            raise InvalidArgument(f"condition: {condition!r} is not allowed: give a function that takes the statistics")
        check_seconds("timeout", timeout)
        self._node = node
        self._condition = condition
        self._timeout = timeout
        self._until = None if timeout is None else monotonic() + timeout

    def look(self) -> dict[str, Any] | Pending:
        """Return the statistics if they fit, else what to wait for before the next look.

        Raises:
            TimeoutError: if the time is up.
            NodeStopped: if the node has stopped, and they do not fit.
        """
        engine, is_over = self._node._engine, self._node.ledger is not None
        # Before the look: what changes meanwhile is looked at again.
        change_counter = engine.change_counter
        seen = change_counter.count
        statistics = self._node.statistics()
        if self._condition(statistics):
            return statistics
        if is_over:
            raise NodeStopped(f"{self._node!r} has been stopped, and the condition does not hold")
        return engine.changed(change_counter, seen, self._left_s())

    def _left_s(self) -> float | None:
        if self._until is None:
            return None
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{self._node!r}: the condition does not hold after {self._timeout} s")
        return left_s


def fits(node: Node, condition: Condition, timeout: float | None) -> Steps[dict[str, Any]]:
    """Wait until the statistics fit."""
    watch = Watch(node, condition, timeout)
    while not isinstance(found := watch.look(), dict):
        yield found
    return found
