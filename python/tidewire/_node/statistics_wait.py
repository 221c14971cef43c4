"""Waits for a condition of the statistics of a node or a pool, without polling."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._numbers import check_seconds
from tidewire.errors import InvalidArgument, NodeStopped

if TYPE_CHECKING:
    from tidewire._runtime.steps import Steps, WaitFor
    from tidewire.node import Node
    from tidewire.pools.pool import Pool

Condition = Callable[[dict[str, Any]], object]
Watch = Callable[[], Callable[[float | None], "WaitFor"]]
"""Starts to watch for a change. The result waits for it, with a timeout in seconds."""


def fits(
    owner: Node | Pool, title: str, refusal: Callable[[], Exception], watch: Watch, condition: Condition, timeout: Any
) -> Steps[dict[str, Any]]:
    """Wait until the statistics meet a condition: check it after each change. Raise the refusal if
    there are no more changes.

    Raises:
        TimeoutError: if the deadline has passed.
    """
    if not callable(condition):
        raise InvalidArgument(f"condition: {condition!r} is not allowed: give a function that takes the statistics")
    check_seconds("timeout", timeout)
    until = None if timeout is None else monotonic() + timeout
    while True:
        # Watch before the check, to miss no change.
        changed, is_over = watch(), owner.ledger is not None
        statistics = owner.statistics()
        if condition(statistics):
            return statistics
        if is_over:
            raise refusal()
        remaining_s = None if until is None else until - monotonic()
        if remaining_s is not None and remaining_s <= 0:
            raise TimeoutError(f"{title}: the condition does not hold after {timeout} s")
        yield changed(remaining_s)


def node_fits(node: Node, condition: Condition, timeout: float | None = None) -> Steps[dict[str, Any]]:
    """Wait until the statistics of a node meet a condition; see ``Node.until``."""
    engine = node._engine

    def watch() -> Callable[[float | None], WaitFor]:
        change_counter = engine.change_counter
        seen = change_counter.count
        return lambda remaining_s: engine.changed(change_counter, seen, remaining_s)

    def refusal() -> Exception:
        return NodeStopped(f"{node!r} has been stopped, and the condition does not hold")

    return fits(node, repr(node), refusal, watch, condition, timeout)
