"""The import table of a node: proxies, and the news that their owners get of them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tidewire.errors import LimitExceeded, TidewireError, WireError
from tidewire.objects.proxy import Holding, proxy_of

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.links.connection import Connection

_TELL_S = 30.0
_DIGITS = frozenset("0123456789abcdef")
_DIGITS_OF_KEY = 32
_KINDS = ("function", "object", "items")
_FORM = {"node": int, "name": str, "key": str, "kind": str, "title": str}


class Held:
    """The proxies of a node. Claims and releases gather for a round of the loop, and go out together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The lock protects all below. A proxy that is collected while this thread holds the lock takes it again.
        self._lock = threading.RLock()
        self._holdings: dict[str, weakref.ref[Holding]] = {}
        self._claims: dict[int, list[str]] = {}
        self._releases: dict[int, dict[str, int]] = {}
        self._planned = False
        self._telling: set[Pending] = set()

    def __len__(self) -> int:
        return len(self._holdings)

    def take(self, stands: Any) -> Any:
        """Return the proxy of what a reference stands for; the same one as long as somebody has it.

        Raises:
            WireError: if it is no reference.
            LimitExceeded: if so much is held already.
        """
        _check(stands)
        with self._lock:
            known = self._holdings.get(stands["key"])
            holding = None if known is None else known()
            proxy = None if holding is None else holding.proxy()
            if holding is not None and proxy is not None:
                holding.count += 1
                return proxy
            most = self._connection.node.links.remote_objects
            if len(self._holdings) >= most:
                raise LimitExceeded(
                    f"remote_objects={most:,}: this node holds so many functions and objects of others already: "
                    "let some go (dispose)"
                )
            holding = Holding(self, self._connection, stands)
            self._holdings[holding.key] = weakref.ref(holding)
            self._claims.setdefault(holding.node, []).append(holding.key)
            proxy = proxy_of(holding)
        self._connection.tell()
        self._plan()
        return proxy

    def let_go(self, holding: Holding) -> None:
        """Tell the owner that a proxy is not needed any more. It never waits: the collector may call it anywhere."""
        with self._lock:
            known = self._holdings.get(holding.key)
            if known is not None and known() in (holding, None):
                del self._holdings[holding.key]
                self._connection.tell()
            if holding.gone:
                return
            counts = self._releases.setdefault(holding.node, {})
            counts[holding.key] = counts.get(holding.key, 0) + holding.count
        self._plan()

    def lost(self) -> None:
        """Note that the link was lost: owners have let all go."""
        with self._lock:
            for known in list(self._holdings.values()):
                holding = known()
                if holding is not None:
                    holding.gone = True
            self._holdings.clear()
            self._claims.clear()
            self._releases.clear()
        self._connection.tell()

    def _plan(self) -> None:
        node = self._connection._node()
        loop = None if node is None else node._loop
        with self._lock:
            if self._planned or loop is None:
                return
            self._planned = True
        # A loop that is closed has no links any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._tell_owners)

    def _tell_owners(self) -> None:
        with self._lock:
            self._planned = False
            claims, self._claims = self._claims, {}
            releases, self._releases = self._releases, {}
            for node, keys in claims.items():
                # What has been let go already needs no claim.
                claims[node] = [key for key in keys if key in self._holdings and key not in releases.get(node, ())]
        for node, keys in claims.items():
            if keys:
                self._tell(f"$node.{node}.claim", keys)
        for node, counts in releases.items():
            self._tell(f"$node.{node}.release", [part for pair in counts.items() for part in pair])

    def _tell(self, subject: str, value: list[Any]) -> None:
        # An owner that can't be told ends the lease by itself.
        with contextlib.suppress(TidewireError):
            told = self._connection.link.call(self._connection.node._engine, subject, value, _TELL_S)
            self._telling.add(told)
            told.add_done_callback(self._told)

    def _told(self, told: Pending) -> None:
        self._telling.discard(told)
        if not told.cancelled():
            told.exception()


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
