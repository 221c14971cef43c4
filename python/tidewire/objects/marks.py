"""Exportable objects: functions, services, and objects that ``tw.remote`` marks."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from tidewire._limits import REMOTE_LEASE_MS
from tidewire.errors import InvalidArgument
from tidewire.services.contract.declaration import is_declared
from tidewire.services.contract.names import short


class Remote:
    """An object that may be passed to other nodes; ``tw.remote`` makes it. Within this process it
    behaves like the object itself.

    Attributes:
        target: The object.
        lease_s: Lifetime without calls, in seconds; None: ``remote_lease_ms`` of the node.
    """

    def __init__(self, target: Any, lease_s: float | None) -> None:
        self.target = target
        self.lease_s = lease_s
        self._disposals: list[weakref.WeakMethod[Callable[[Any], None]]] = []

    def dispose(self) -> None:
        """Dispose of it: all nodes that hold it lose it."""
        disposals, self._disposals = self._disposals, []
        for disposal in disposals:
            call = disposal()
            if call is not None:
                call(self)

    def on_dispose(self, call: Callable[[Any], None]) -> None:
        """Register a method to be called with this object when it is disposed of."""
        if not any(known() == call for known in self._disposals):
            self._disposals.append(weakref.WeakMethod(call))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.target, name)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(f"remote: {self!r} can't be pickled or copied: give it as an argument, or as a result")

    def __repr__(self) -> str:
        return f"<Remote {self.target!r}>"


def remote(target: Any, *, lease: float | None = None) -> Any:
    """Mark an object that may be given to other nodes as an argument or a result: they get a proxy
    that calls it.

    Functions and declared services need no mark; any other object does, and its public methods can
    be called then.

    Args:
        target: A function, or an object with methods.
        lease: Seconds that it lives without being used; the default is ``remote_lease_ms`` of the
            node that gives it, 10 minutes.

    Returns:
        The object to give; ``dispose()``, or the end of ``with``, releases it everywhere.

    Raises:
        InvalidArgument: if it is a class or plain data, or the lease is not allowed.
    """
    if target is None or isinstance(target, (type, str, bytes, int, float, list, tuple, dict, set)):
        raise InvalidArgument(f"target: {short(target)} is not allowed: give a function, or an object with methods")
    least, most = REMOTE_LEASE_MS.min / 1000, REMOTE_LEASE_MS.max / 1000
    if lease is None:
        return Remote(target, None)
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not least <= lease <= most:
        raise InvalidArgument(
            f"lease: {short(lease)} is not allowed: give seconds from {least} to {most:,.0f}, or None"
        )
    return Remote(target, float(lease))


def is_function(value: Any) -> bool:
    """Return whether a value is something that may be given as it is, to be called: a function, a
    bound method, a partial.
    """
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def is_service(value: Any) -> bool:
    """Return whether a value is an object of a declared service."""
    return is_declared(type(value))
