"""Fixtures of coroutine tests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any


class InLoop:
    """The value of a fixture that a coroutine test enters on its event loop."""

    def __init__(self, context: AbstractAsyncContextManager[Any]) -> None:
        self.context = context
