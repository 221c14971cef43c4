"""Health of a node: whether it can work now, and the reasons if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidewire._urls import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidewire.node import Node


class Health(NamedTuple):
    """Health of a node at one moment.

    Attributes:
        is_ready: True if the node can work now.
        reasons: Reasons as text if it is not ready; empty if it is.
    """

    is_ready: bool
    reasons: tuple[str, ...]


def health(node: Node) -> Health:
    """Return the health of a node; see ``Node.health``."""
    reasons = tuple(_reasons(node))
    return Health(not reasons, reasons)


def _reasons(node: Node) -> Iterator[str]:
    if node._stopped or not node._started:
        yield "the node has stopped" if node._stopped else "the node has not started"
        return
    connection = node._connection
    if connection is not None and connection.is_lost:
        yield f"the link to {without_secrets(node.url)} is lost"
    for name, row in node._engine.statistics()["dispatchers"].items():
        if row["held_by"]:
            yield f"dispatcher {name!r} has no free thread; handlers of {', '.join(row['held_by'])} hold them"
