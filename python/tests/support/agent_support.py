"""Agents of several stories."""

from __future__ import annotations

import threading
from typing import Any

import tidewire as tw

PATIENCE = 30.0


def nothing(payload: object) -> None:
    """Handle whatever comes."""


class Gate:
    """An agent that waits in its first message until the test lets it go, and keeps what came after
    it.
    """

    def __init__(self, node: tw.Node, id: str = "gate", **options: Any) -> None:
        self.id = id
        self.inside, self.open = threading.Event(), threading.Event()
        self.seen: list[Any] = []
        self.agent = node.agent(self._receive, id=id, **options)

    def _receive(self, payload: object) -> None:
        if payload == "hold":
            self.inside.set()
            assert self.open.wait(PATIENCE)
        else:
            self.seen.append(payload)

    def hold(self, sender: tw.Agent, *waiting: object) -> None:
        """Make it wait, and put messages behind that."""
        sender.tell("hold", to=self.id)
        assert self.inside.wait(PATIENCE)
        for payload in waiting:
            sender.tell(payload, to=self.id)
