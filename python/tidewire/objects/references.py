"""References between nodes: exports and imports of one node."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import Exports, sender_of_value
from tidewire.errors import InvalidArgument, LinkLost, NoResponders, RemoteGone
from tidewire.objects.import_table import ImportTable
from tidewire.objects.marks import Remote, is_function, is_service
from tidewire.objects.proxy import Proxy
from tidewire.services.caller.argument_check import Signature
from tidewire.services.caller.argument_streams import FedArgument
from tidewire.services.contract.declaration import declaration_of
from tidewire.services.contract.info import narrower
from tidewire.services.contract.methods import Bound
from tidewire.services.contract.type_hints import TypeHints

if TYPE_CHECKING:
    from tidewire._binding import RemoteCall
    from tidewire.links.connection import Connection
    from tidewire.objects.export_endpoint import ExportEndpoint

CALL = "call"
"""The method of a function."""
TAKE = "take"
"""The method of a stream."""

_TAKES = {TAKE: Bound(TAKE, lambda: None, Signature(None, TypeHints(), 0), True, True, "private")}
_SWEEP_LEAST_S = 0.01
_KEY_BYTES = 16


class Export:
    """One object that is exported to one node.

    Attributes:
        key: Key of the object.
        target: The object.
        kind: "function", "object" or "items".
        title: Name in error messages.
        methods: The methods for callers.
    """

    __slots__ = ("key", "kind", "methods", "target", "title")

    def __init__(self, target: Any, kind: str, title: str, methods: Mapping[str, Bound]) -> None:
        self.key = secrets.token_hex(_KEY_BYTES)
        self.target = target
        self.kind = kind
        self.title = title
        self.methods = methods


class Objects:
    """Exports and imports of one node.

    Args:
        connection: The link of the node.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The lookup and the addition of an export are one step. An object that the garbage
        # collector releases takes the lock again.
        self._lock = threading.RLock()
        links = connection.node.links
        self._lease_s = links.remote_lease_ms / 1000
        self._exports = Exports(links.remote_objects, connection.tell)
        self._imports = ImportTable(connection)
        self._endpoint: ExportEndpoint | None = None
        self._target = self._receive
        self._watch: asyncio.TimerHandle | None = None
        # Time of the next sweep of leases. A renewed lease ends later, and needs no own sweep.
        self._watch_at = math.inf

    def open(self) -> None:
        """Accept calls under the current number of the link."""
        joined = self._connection.link.joined
        if joined is None:
            return
        self._connection.unsubscribe(self._target)
        self._connection.subscribe(f"$node.{joined[1]}.>", "", None, self._target)

    def lost(self) -> None:
        """Forget all exports and imports: the link was lost."""
        self._exports.clear()
        self._imports.lost()

    def close(self) -> None:
        """Release all exports and imports."""
        self.lost()
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(RuntimeError):
                watch.cancel()

    def statistics(self) -> dict[str, int]:
        """Return the numbers of exports and imports."""
        self._exports.expire(monotonic())
        return {"given": len(self._exports), "held": len(self._imports)}

    # References that leave

    def reference_to(self, peer: str | None, value: Any) -> tuple[Export | None, Mapping[str, Any] | None]:
        """Return the export of a value to a node, and its reference on the wire. Both are None if
        the value can't be exported.

        Raises:
            LimitExceeded: if the export table is full.
            InvalidArgument: if it is a proxy of what a third node owns.
            LinkLost: if the link is lost.
            NoResponders: if the node is at another hub: ``peer`` is None.
        """
        found = None if isinstance(value, Proxy) else self._exportable(value)
        if found is None and not isinstance(value, Proxy):
            return None, None
        if peer is None:
            raise NoResponders(f"{type(value).__name__}: it stays at its hub: give data to a service of another one")
        if found is None:
            return None, value._back(peer)
        joined = self._connection.link.joined
        if joined is None:
            raise LinkLost(f"{self._connection.node.name}: its link is lost: nothing can be given before it is back")
        with self._lock:
            export = self._export(peer, value, *found)
        return export, {
            "node": joined[1],
            "name": self._connection.node.name,
            "key": export.key,
            "kind": export.kind,
            "title": export.title,
            "methods": [[bound.name, bound.streams, None] for bound in export.methods.values()],
        }

    def _exportable(self, value: Any) -> tuple[str, Any, float] | None:
        """Return the kind, the object and the lease of a value, or None if it can't be exported."""
        if isinstance(value, Remote):
            target = value.target
            kind = "function" if callable(target) and not is_service(target) else "object"
            return kind, target, self._lease_s if value.lease_s is None else value.lease_s
        if isinstance(value, FedArgument):
            return "items", value, self._lease_s
        if is_function(value):
            return "function", value, self._lease_s
        return ("object", value, self._lease_s) if is_service(value) else None

    def _export(self, peer: str, value: Any, kind: str, target: Any, lease_s: float) -> Export:
        identity, now = _identity(target), monotonic()
        export: Export | None = self._exports.again(peer, identity, now)
        if export is None:
            export = Export(target, kind, *_methods(kind, target))
            self._exports.add(peer, identity, export.key, lease_s, export, now)
            self._sweep_at(now + lease_s)
        if isinstance(value, Remote):
            value.on_dispose(self._dispose)
        return export

    def _dispose(self, value: Remote) -> None:
        self._exports.dispose(_identity(value.target))

    def begins(self, export: Export) -> None:
        """Suspend the lease of an export: a call with it begins."""
        self._exports.begins(export.key)

    def ends(self, export: Export) -> None:
        """Resume the lease of an export: a call with it, or of it, has ended."""
        until = self._exports.ends(export.key, monotonic())
        if until is not None:
            self._sweep_at(until)

    def drop(self, export: Export, unclaimed: bool) -> None:
        """Remove an export of one call, or with ``unclaimed`` only if no holder has claimed it."""
        self._exports.remove(export.key, unclaimed)

    # References that come

    def take(self, reference: Any) -> Any:
        """Return the target of a reference.

        Raises:
            WireError: if it is none.
            RemoteGone: if it comes back, and this node has let it go.
            LimitExceeded: if the import table is full.
        """
        if isinstance(reference, dict) and reference.get("kind") == "back":
            return self._returned(str(reference.get("key")))
        return self._imports.take(reference)

    def _returned(self, key: str) -> Any:
        number = sender_of_value()
        holder = None if number is None else self._connection.link.name_of(number) or ""
        export = self._exports.returned(key, holder, number)
        if export is None:
            raise RemoteGone(
                f"{key[:8]}: it came back to its owner, who has released it, or has not passed it to that node"
            )
        return export.target

    # Calls that come

    def called(self, call: RemoteCall, key: str) -> Export:
        """Return the export that is called. Its lease is suspended until the call ends.

        Raises:
            RemoteGone: if the caller holds no such export.
        """
        export: Export = self._exports.call(key, call.node, call.origin, monotonic())
        return export

    def left(self, origin: int) -> None:
        """Release all exports to a node whose link has ended, and all imports from it."""
        self._exports.left(origin)
        self._imports.left(origin)

    def release(self, call: RemoteCall) -> None:
        """Release exports that a node has let go."""
        pairs = call.value()
        for key, count in zip(pairs[::2], pairs[1::2], strict=True):
            if int(count) > 0:
                self._exports.release(str(key), call.node, call.origin, int(count))

    def claim(self, call: RemoteCall) -> None:
        """Confirm the exports that a node has received."""
        now = monotonic()
        for key in call.value():
            self._exports.claim(str(key), call.node, call.origin, now)

    def _receive(self, call: RemoteCall) -> None:
        if self._endpoint is None:
            from tidewire.objects.export_endpoint import ExportEndpoint

            self._endpoint = ExportEndpoint(self._connection.node, self)
        self._endpoint(call)

    # Leases

    def _sweep_at(self, at: float) -> None:
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
        self._watch = asyncio.get_running_loop().call_later(max(_SWEEP_LEAST_S, at - monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._watch, self._watch_at = None, math.inf
        next_at = self._exports.expire(monotonic())
        if next_at is not None:
            self._arm(next_at)


def _identity(target: Any) -> tuple[int, int]:
    """Return an identity that is equal for all references to an object: each access to a bound
    method makes a new object.
    """
    owner = getattr(target, "__self__", None)
    inner = getattr(target, "__func__", None)
    return (id(target), 0) if owner is None or inner is None else (id(owner), id(inner))


def _methods(kind: str, target: Any) -> tuple[str, Mapping[str, Bound]]:
    """Return the title of an object for error messages, and its methods.

    Raises:
        InvalidArgument: if it has no method for other nodes.
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
