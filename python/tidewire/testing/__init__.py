"""Helpers for tests of programs that use Tidewire. The pytest plugin has them as fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire.testing.cluster import Cluster, Process

if TYPE_CHECKING:
    from tidewire.node import Node

__all__ = ["Cluster", "Process", "assert_balanced", "dead_letters"]


def dead_letters(*nodes: Node) -> list[tuple[str, Any]]:
    """Return reason and message of each dead letter of these nodes, oldest first.

    ``assert dead_letters(node) == [("failed", "seven")]`` says which messages were given up.
    """
    return [(letter.reason, letter.message) for node in nodes for letter in node.dead_letters.list()]


def assert_balanced(node: Node) -> None:
    """Check the stop report of a node that has stopped: each accepted message was handled, returned
    or dead-lettered, and no handler was stuck.

    Raises:
        AssertionError: if the counts differ, a handler was stuck, or the node has not been stopped.
    """
    report = node.ledger
    assert report is not None, f"node {node.name!r} has not been stopped: leave its block first"
    assert report.balanced and not report.stuck, f"node {node.name!r} is not balanced: {report}"
