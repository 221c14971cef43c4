"""The export table of a node: a machine without clock, links and threads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidewire._limits import REMOTE_CLAIM_MS, REMOTE_OBJECTS
from tidewire.errors import LimitExceeded, RemoteGone
from tidewire.services.methods import Bound

KEY_BYTES = 16
CLAIM_S = REMOTE_CLAIM_MS.default / 1000
"""How long what was given in a call that is over waits for the word that its callee has got it."""


class Entry:
    """One object that one node has been given.

    Attributes:
        key: What it is named by.
        holder: The name of the node.
        origin: The number of that node's link, once it has called or claimed.
        target: The object.
        kind: "function", "object" or "items".
        title: What errors call it.
        methods: What can be called.
        lease_s: How long it lives without being used.
        until: When its lease is over.
        given: How many references to it were given and not released.
        busy: Calls of it, and calls whose argument it is, that are under way.
    """

    __slots__ = (
        "busy",
        "given",
        "holder",
        "key",
        "kind",
        "lease_s",
        "methods",
        "origin",
        "same",
        "target",
        "title",
        "until",
    )

    def __init__(
        self,
        same: object,
        holder: str,
        target: Any,
        kind: str,
        title: str,
        methods: Mapping[str, Bound],
        lease_s: float,
    ) -> None:
        self.key = secrets.token_hex(KEY_BYTES)
        self.same = same
        self.holder = holder
        self.origin: int | None = None
        self.target = target
        self.kind = kind
        self.title = title
        self.methods = methods
        self.lease_s = lease_s
        self.until = 0.0
        self.given = self.busy = 0

    def is_held_by(self, holder: str, origin: int) -> bool:
        """Return whether it was given to a node, and that over the link with this number, as far as it is known."""
        return self.holder == holder and self.origin in (None, origin)


class Given:
    """All that a node has given. Whoever calls it holds a lock.

    Args:
        most: How many objects it may be.
        tell: Called when there is more or less of it.
    """

    def __init__(self, most: int = REMOTE_OBJECTS.default, tell: Callable[[], object] = lambda: None) -> None:
        self.most = most
        self._tell = tell
        self._entries: dict[str, Entry] = {}
        self._known: dict[tuple[str, object], Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def known(self, holder: str, same: object) -> Entry | None:
        """Return what a node has been given of an object, if it has."""
        return self._known.get((holder, same))

    def add(self, entry: Entry) -> None:
        """Add an object for a node.

        Raises:
            LimitExceeded: if so much has been given already.
        """
        if len(self._entries) >= self.most:
            raise LimitExceeded(
                f"remote_objects={self.most:,}: so many functions and objects have been given to other nodes "
                "already: let some go (dispose), or give them shorter leases"
            )
        self._entries[entry.key] = entry
        self._known[entry.holder, entry.same] = entry
        self._tell()

    def give(self, entry: Entry, now: float) -> None:
        """Note that a reference is given once more."""
        entry.given += 1
        entry.until = now + entry.lease_s

    def use(self, key: str, holder: str, origin: int, now: float) -> Entry:
        """Return what a node names, and begin its lease anew.

        Raises:
            RemoteGone: if that node has no such thing.
        """
        entry = self._entries.get(key)
        if entry is None or not entry.is_held_by(holder, origin):
            raise RemoteGone(
                f"{key[:8]}: this node has nothing of this key for {holder!r}: it was let go, its lease is over, or it was "
                "given to another node"
            )
        entry.origin = origin
        entry.until = now + entry.lease_s
        return entry

    def release(self, key: str, holder: str, origin: int, count: int) -> None:
        """Note that a node has let go references; what has none left is gone, once no call is under way with it. What another node, or another
        link, holds stays."""
        entry = self._entries.get(key)
        if entry is not None and entry.is_held_by(holder, origin) and count > 0:
            entry.given -= count
            self._remove_if_unused(entry)

    def ended(self, entry: Entry, now: float) -> None:
        """Note that a call with an object, or of it, has ended."""
        entry.busy -= 1
        # Nobody may have read it: the call may have been given up before it was begun.
        entry.until = now + (entry.lease_s if entry.origin is not None else min(entry.lease_s, CLAIM_S))
        self._remove_if_unused(entry)

    def _remove_if_unused(self, entry: Entry) -> None:
        # What says that nobody holds it may overtake the answer in which it comes back.
        if entry.given <= 0 and not entry.busy:
            self.remove(entry)

    def remove(self, entry: Entry) -> None:
        """Let an object go. A second time does nothing."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            del self._known[entry.holder, entry.same]
            self._tell()

    def left(self, origin: int) -> None:
        """Let all go that the node of a link held."""
        self._remove([entry for entry in self._entries.values() if entry.origin == origin])

    def dispose(self, target: Any) -> None:
        """Let an object go, whoever holds it."""
        self._remove([entry for entry in self._entries.values() if entry.target is target])

    def clear(self) -> None:
        """Let all go."""
        self._entries.clear()
        self._known.clear()
        self._tell()

    def find(self, key: str) -> Entry | None:
        """Return what a key names."""
        return self._entries.get(key)

    def expire(self, now: float) -> float | None:
        """Let go whose lease is over, and return when to look again, if ever."""
        self._remove([entry for entry in self._entries.values() if not entry.busy and entry.until <= now])
        return min((entry.until for entry in self._entries.values() if not entry.busy), default=None)

    def _remove(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.remove(entry)
