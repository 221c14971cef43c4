"""References between nodes: exports and imports of one node."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import sender_of_value
from tidewire.errors import InvalidArgument, LinkLost
from tidewire.objects.given import Entry, Given
from tidewire.objects.held import Held
from tidewire.objects.marks import Remote, is_function, is_service
from tidewire.objects.proxy import Proxy
from tidewire.services.checking import Signature
from tidewire.services.declared import declaration_of
from tidewire.services.feeding import Fed
from tidewire.services.hints import Hints
from tidewire.services.info import narrower
from tidewire.services.methods import Bound

if TYPE_CHECKING:
    from tidewire._binding import RemoteCall
    from tidewire.links.connection import Connection
    from tidewire.objects.door import Door

CALL = "call"
"""The method of a function."""
TAKE = "take"
"""The method of a stream."""

_TAKES = {TAKE: Bound(TAKE, lambda: None, Signature(None, Hints(), 0), True, True, "private")}
_LOOK_LEAST_S = 0.01


class Objects:
    """Both, for one node.

    Args:
        connection: The link of the node.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The lock protects what was given. An object that is let go by the collector takes it again.
        self._lock = threading.RLock()
        links = connection.node.links
        self._lease_s = links.remote_lease_ms / 1000
        self._given = Given(links.remote_objects, connection.tell)
        self._held = Held(connection)
        self._door: Door | None = None
        self._target = self._receive
        self._watch: asyncio.TimerHandle | None = None
        # When leases are looked at next; one that is renewed ends later, and needs no other look.
        self._watch_at = math.inf

    def open(self) -> None:
        """Take calls in, under the number that the link has now."""
        joined = self._connection.link.joined
        if joined is None:
            return
        self._connection.unsubscribe(self._target)
        self._connection.subscribe(f"$node.{joined[1]}.>", "", None, self._target)

    def lost(self) -> None:
        """Note that the link was lost: with it, all that was given and held."""
        with self._lock:
            self._given.clear()
        self._held.lost()

    def close(self) -> None:
        """End all."""
        self.lost()
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(RuntimeError):
                watch.cancel()

    def statistics(self) -> dict[str, int]:
        """Return how many objects were given, and how many are held."""
        with self._lock:
            self._given.expire(monotonic())
            return {"given": len(self._given), "held": len(self._held)}

    # References that leave

    def stand_in(self, peer: str, value: Any) -> tuple[Entry | None, Mapping[str, Any] | None]:
        """Return what a value is given as to a node, and what stands for it on the wire; None if it may not be given.

        Raises:
            LimitExceeded: if so much has been given already.
            InvalidArgument: if it is a proxy of what a third node owns.
            LinkLost: if the link is lost.
        """
        if isinstance(value, Proxy):
            return None, value._back(peer)
        found = self._what(value)
        if found is None:
            return None, None
        joined = self._connection.link.joined
        if joined is None:
            raise LinkLost(f"{self._connection.node.name}: its link is lost: nothing can be given before it is back")
        with self._lock:
            entry = self._entry(peer, value, *found)
        return entry, {
            "node": joined[1],
            "name": self._connection.node.name,
            "key": entry.key,
            "kind": entry.kind,
            "title": entry.title,
            "methods": [[bound.name, bound.streams, None] for bound in entry.methods.values()],
        }

    def _what(self, value: Any) -> tuple[str, Any, float] | None:
        """Return how a value may be given: its kind, the object and its lease; None if it may not be."""
        if isinstance(value, Remote):
            target = value.target
            kind = "function" if callable(target) and not is_service(target) else "object"
            return kind, target, self._lease_s if value.lease_s is None else value.lease_s
        if isinstance(value, Fed):
            return "items", value, self._lease_s
        if is_function(value):
            return "function", value, self._lease_s
        return ("object", value, self._lease_s) if is_service(value) else None

    def _entry(self, peer: str, value: Any, kind: str, target: Any, lease_s: float) -> Entry:
        same, now = _sameness(target), monotonic()
        entry = self._given.known(peer, same)
        if entry is None:
            title, methods = _methods(kind, target)
            entry = Entry(same, peer, target, kind, title, methods, lease_s)
            if len(self._given) >= self._given.most:
                self._given.expire(now)
            self._given.add(entry)
            self._look_at(now + lease_s)
        if isinstance(value, Remote):
            value.on_dispose(self._dispose)
        self._given.give(entry, now)
        return entry

    def _dispose(self, value: Remote) -> None:
        with self._lock:
            self._given.dispose(value.target)

    def busy(self, entry: Entry) -> None:
        """Note that a call begins with an object, or of it: its lease stands still."""
        with self._lock:
            entry.busy += 1

    def idle(self, entry: Entry) -> None:
        """Note that such a call has ended."""
        with self._lock:
            self._given.ended(entry, monotonic())
        self._look_at(entry.until)

    def drop(self, entry: Entry) -> None:
        """Let an object go."""
        with self._lock:
            self._given.remove(entry)

    # References that come

    def take(self, stands: Any) -> Any:
        """Return what a reference stands for.

        Raises:
            WireError: if it is none.
            RemoteGone: if it comes back, and this node has let it go.
            LimitExceeded: if so much is held already.
        """
        if isinstance(stands, dict) and stands.get("kind") == "back":
            with self._lock:
                return self._given_back(str(stands.get("key")))
        return self._held.take(stands)

    def _given_back(self, key: str) -> Any:
        entry = self._given.find(key)
        if entry is None or not self._may_give_back(entry):
            from tidewire.errors import RemoteGone

            raise RemoteGone(
                f"{key[:8]}: it came back to its owner, who has let it go, or has not given it to the node that it comes from"
            )
        return entry.target

    def _may_give_back(self, entry: Entry) -> bool:
        number = sender_of_value()
        return number is None or entry.is_held_by(self._connection.link.name_of(number) or "", number)

    # Calls that come

    def use(self, call: RemoteCall, key: str) -> Entry:
        """Return what a call is for; see ``Given.use``."""
        with self._lock:
            return self._given.use(key, call.node, call.origin, monotonic())

    def left(self, origin: int) -> None:
        """Let all go that a node held whose link has ended."""
        with self._lock:
            self._given.left(origin)

    def release(self, call: RemoteCall) -> None:
        """Note what a node has let go."""
        pairs = call.value()
        with self._lock:
            for key, count in zip(pairs[::2], pairs[1::2], strict=True):
                self._given.release(str(key), call.node, call.origin, int(count))

    def claim(self, call: RemoteCall) -> None:
        """Note what a node has got."""
        keys, now = call.value(), monotonic()
        with self._lock:
            for key in keys:
                if self._given.find(str(key)) is not None:
                    self._given.use(str(key), call.node, call.origin, now)

    def _receive(self, call: RemoteCall) -> None:
        if self._door is None:
            from tidewire.objects.door import Door

            self._door = Door(self._connection.node, self)
        self._door(call)

    # Leases

    def _look_at(self, at: float) -> None:
        loop = self._connection.node._loop
        if loop is not None and at < self._watch_at:
            self._watch_at = at
            # A loop that is closed has no links any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._arm, at)

    def _arm(self, at: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = at
        self._watch = asyncio.get_running_loop().call_later(max(_LOOK_LEAST_S, at - monotonic()), self._look)

    def _look(self) -> None:
        self._watch, self._watch_at = None, math.inf
        with self._lock:
            next_at = self._given.expire(monotonic())
        if next_at is not None:
            self._arm(next_at)


def _sameness(target: Any) -> object:
    """Return what is equal for references to the same object: bound methods are made anew each time they are looked at."""
    owner = getattr(target, "__self__", None)
    inner = getattr(target, "__func__", None)
    return id(target) if owner is None or inner is None else (id(owner), id(inner))


def _methods(kind: str, target: Any) -> tuple[str, Mapping[str, Bound]]:
    """Return what errors call an object, and what can be called.

    Raises:
        InvalidArgument: if nothing can be.
    """
    if kind == "items":
        return "an argument", _TAKES
    if kind == "function":
        declared = declaration_of({CALL: target}, "function")
        title = str(
            getattr(target, "__qualname__", None) or getattr(getattr(target, "func", None), "__qualname__", "function")
        )
    else:
        declared = declaration_of(target)
        title = declared.title or declared.name
    methods = {}
    for name, method in declared.methods.items():
        visibility = narrower(method.mark.visibility or declared.visibility, declared.visibility)
        if visibility != "node":
            function = method.function
            methods[name] = Bound(
                name, function.bound(target), function.signature, function.coroutine, function.streams, "private"
            )
    if not methods:
        raise InvalidArgument(f"{title}: none of its methods may be called from other nodes: its visibility is 'node'")
    return title, methods
