"""A bank: a service that attackers would like to be, or to be let in by."""

from __future__ import annotations

import tidewire as tw


class Bank(tw.Service):
    @tw.method
    async def pay(self) -> str:
        return "paid"
