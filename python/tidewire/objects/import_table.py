"""The import table of a node: proxies, and the notifications to their owners."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tidewire._binding import Imports
from tidewire.errors import TidewireError, WireError
from tidewire.objects.proxy import ImportHandle, proxy_of

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.links.connection import Connection

_NOTIFY_S = 30.0
_DIGITS = frozenset("0123456789abcdef")
_DIGITS_OF_KEY = 32
_KINDS = ("function", "object", "items")
_FORM = {"node": int, "name": str, "key": str, "kind": str, "title": str}


class ImportTable:
    """The proxies of a node. Claims and releases of one round of the loop are sent together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._table = Imports(connection.node.links.remote_objects)
        # One thread at a time makes a proxy. The release of a proxy takes no lock but the table's
        # own.
        self._lock = threading.RLock()
        self._is_scheduled = False
        self._notifications: set[Pending] = set()

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> list[str]:
        """Return the keys of all imports."""
        return self._table.keys()

    def take(self, reference: Any) -> Any:
        """Return the proxy of a reference; the same one as long as the program has it.

        Raises:
            WireError: if it is no reference.
            LimitExceeded: if the table is full.
        """
        _check(reference)
        key = reference["key"]
        with self._lock:
            known = self._table.get(key)
            handle = None if known is None else known()
            proxy = None if handle is None else handle.proxy()
            if proxy is not None and self._table.again(key):
                return proxy
            handle = ImportHandle(self, self._connection, reference)
            self._table.add(key, handle.node, id(handle), weakref.ref(handle))
            proxy = proxy_of(handle)
        self._connection.tell()
        self._schedule()
        return proxy

    def holds(self, handle: ImportHandle) -> bool:
        """True if the proxy was neither released nor lost."""
        return self._table.holds(handle.key, id(handle))

    def release(self, handle: ImportHandle) -> None:
        """Notify the owner that a proxy was released. It never waits: the garbage collector may
        call it on any thread.
        """
        if self._table.let_go(handle.key, id(handle)):
            self._connection.tell()
            self._schedule()

    def forget(self, handle: ImportHandle) -> None:
        """Forget an import: its owner has left."""
        self._table.lost(handle.key, id(handle))

    def left(self, number: int) -> None:
        """Forget the imports of an owner whose link has ended."""
        self._table.left(number)

    def lost(self) -> None:
        """Forget all imports: the link was lost, and their owners have released them."""
        self._table.clear()
        self._connection.tell()

    def _schedule(self) -> None:
        node = self._connection._node()
        loop = None if node is None else node._loop
        if self._is_scheduled or loop is None:
            return
        self._is_scheduled = True
        # A loop that is closed has no links any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._notify_owners)

    def _notify_owners(self) -> None:
        # Later releases plan a call of their own.
        self._is_scheduled = False
        for node, claims, releases in self._table.updates():
            if claims:
                self._notify(f"$node.{node}.claim", claims)
            if releases:
                self._notify(f"$node.{node}.release", [part for pair in releases for part in pair])

    def _notify(self, subject: str, value: list[Any]) -> None:
        # An owner that can't be notified ends the lease by itself.
        with contextlib.suppress(TidewireError):
            report = self._connection.link.call(self._connection.node._engine, subject, value, _NOTIFY_S)
            self._notifications.add(report)
            report.add_done_callback(self._report_done)

    def _report_done(self, report: Pending) -> None:
        self._notifications.discard(report)
        if not report.cancelled():
            report.exception()


def _check(reference: Any) -> None:
    if not (isinstance(reference, dict) and _is_reference(reference)):
        raise WireError("a reference to a function or an object is not of the form that this version knows")


def _is_reference(reference: dict[Any, Any]) -> bool:
    if any(type(reference.get(field)) is not kind for field, kind in _FORM.items()):
        return False
    key, kind, methods = reference["key"], reference["kind"], reference.get("methods", [])
    if len(key) != _DIGITS_OF_KEY or not _DIGITS.issuperset(key) or kind not in _KINDS:
        return False
    if not isinstance(methods, (list, tuple)) or not all(map(_is_method, methods)):
        return False
    return kind != "function" or [method[0] for method in methods] == ["call"]


def _is_method(method: Any) -> bool:
    if not isinstance(method, (list, tuple)) or len(method) != 3:
        return False
    name, streams, timeout = method
    return (
        isinstance(name, str) and isinstance(streams, bool) and (timeout is None or isinstance(timeout, (int, float)))
    )
