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

_TELL_S = 30.0
_DIGITS = frozenset("0123456789abcdef")
_DIGITS_OF_KEY = 32
_KINDS = ("function", "object", "items")
_FORM = {"node": int, "name": str, "key": str, "kind": str, "title": str}


class ImportTable:
    """The proxies of a node. Claims and releases gather for a round of the loop, and go out
    together.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._table = Imports(connection.node.links.remote_objects)
        # One thread at a time makes a proxy. The release of a proxy takes no lock but the table's
        # own.
        self._lock = threading.RLock()
        self._planned = False
        self._telling: set[Pending] = set()

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> list[str]:
        """Return the keys of all that is held."""
        return self._table.keys()

    def take(self, stands: Any) -> Any:
        """Return the proxy of a reference; the same one as long as the program has it.

        Raises:
            WireError: if it is no reference.
            LimitExceeded: if so much is held already.
        """
        _check(stands)
        key = stands["key"]
        with self._lock:
            known = self._table.get(key)
            holding = None if known is None else known()
            proxy = None if holding is None else holding.proxy()
            if proxy is not None and self._table.again(key):
                return proxy
            holding = ImportHandle(self, self._connection, stands)
            self._table.add(key, holding.node, id(holding), weakref.ref(holding))
            proxy = proxy_of(holding)
        self._connection.tell()
        self._plan()
        return proxy

    def holds(self, holding: ImportHandle) -> bool:
        """True if the proxy was neither released nor lost."""
        return self._table.holds(holding.key, id(holding))

    def release(self, holding: ImportHandle) -> None:
        """Tell the owner that a proxy is not needed any more. It never waits: the collector may
        call it anywhere.
        """
        if self._table.let_go(holding.key, id(holding)):
            self._connection.tell()
            self._plan()

    def forget(self, holding: ImportHandle) -> None:
        """Note that its owner is not there any more."""
        self._table.lost(holding.key, id(holding))

    def left(self, number: int) -> None:
        """Note that the link of an owner has ended."""
        self._table.left(number)

    def lost(self) -> None:
        """Note that the link was lost: owners have let all go."""
        self._table.clear()
        self._connection.tell()

    def _plan(self) -> None:
        node = self._connection._node()
        loop = None if node is None else node._loop
        if self._planned or loop is None:
            return
        self._planned = True
        # A loop that is closed has no links any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._tell_owners)

    def _tell_owners(self) -> None:
        # Later releases plan a call of their own.
        self._planned = False
        for node, claims, releases in self._table.updates():
            if claims:
                self._tell(f"$node.{node}.claim", claims)
            if releases:
                self._tell(f"$node.{node}.release", [part for pair in releases for part in pair])

    def _tell(self, subject: str, value: list[Any]) -> None:
        # An owner that can't be notified ends the lease by itself.
        with contextlib.suppress(TidewireError):
            report = self._connection.link.call(self._connection.node._engine, subject, value, _TELL_S)
            self._telling.add(report)
            report.add_done_callback(self._report_done)

    def _report_done(self, report: Pending) -> None:
        self._telling.discard(report)
        if not report.cancelled():
            report.exception()


def _check(stands: Any) -> None:
    if not (isinstance(stands, dict) and _is_reference(stands)):
        raise WireError("a reference to a function or an object is not of the form that this version knows")


def _is_reference(stands: dict[Any, Any]) -> bool:
    if any(type(stands.get(field)) is not kind for field, kind in _FORM.items()):
        return False
    key, kind, methods = stands["key"], stands["kind"], stands.get("methods", [])
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
