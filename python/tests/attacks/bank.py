"""A bank: a service that attackers would like to be, or to be let in by."""

from __future__ import annotations

import tidewire as tw


class Bank(tw.Service):
    """It notes for which users it was called."""

    def __init__(self) -> None:
        self.callers: set[str | None] = set()

    @tw.method
    async def pay(self) -> str:
        self.callers.add(tw.context().user)
        return "paid"
