"""Test helpers for programs that use Tidewire. The pytest plugin provides them as fixtures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.testing.clock import Clock
    from tidewire.testing.cluster import Cluster, Process
    from tidewire.testing.fakes import Fake, fake, in_turn
    from tidewire.testing.link import Link
    from tidewire.testing.recorder import Recorder
else:
    _MODULES = {"Clock": "clock", "Cluster": "cluster", "Process": "cluster", "Link": "link", "Recorder": "recorder"}
    _MODULES |= dict.fromkeys(("Fake", "fake", "in_turn"), "fakes")

    # The plugin imports this package in each run of pytest, so that the modules load on first use.
    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Clock",
    "Cluster",
    "Fake",
    "Link",
    "Process",
    "Recorder",
    "assert_balanced",
    "dead_letters",
    "fake",
    "in_turn",
]


def dead_letters(*nodes: Node) -> list[tuple[str, Any]]:
    """Return reason and message of each dead letter of these nodes, oldest first.

    For example, ``assert dead_letters(node) == [("failed", "seven")]``.
    """
    return [(letter.reason, letter.message) for node in nodes for letter in node.dead_letters.list()]


def assert_balanced(node: Node) -> None:
    """Assert that the stop report of a stopped node is balanced: each accepted message was handled,
    returned or dead-lettered, and no handler was stuck.

    Raises:
        AssertionError: if the counts differ, a handler was stuck, or the node is not stopped.
    """
    report = node.ledger
    assert report is not None, f"node {node.name!r} has not been stopped: leave its block first"
    assert report.balanced and not report.stuck, f"node {node.name!r} is not balanced: {report}"
