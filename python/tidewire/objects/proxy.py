"""Proxies of functions, objects and streams that another node owns."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument, NoResponders, RemoteGone
from tidewire.links.remote import RemoteItems, RemotePort
from tidewire.services.caller.argument_streams import FedArgument
from tidewire.services.caller.client import Client, ClientMethod, NoSuchMethod
from tidewire.services.caller.options import CallOptions
from tidewire.services.contract.info import MethodInfo, ServiceInfo
from tidewire.services.contract.names import nearest
from tidewire.services.instance_transport import InstanceTransport, Request
from tidewire.services.registry import Group, registry_of

if TYPE_CHECKING:
    from tidewire._binding import CallLoad, ChangeCounter, Pending, Retry
    from tidewire._runtime.steps import Steps
    from tidewire.errors import TidewireError
    from tidewire.links.connection import Connection
    from tidewire.node import Node
    from tidewire.objects.import_table import ImportTable
    from tidewire.services.caller.outbound_call import OutboundCall


class ImportHandle:
    """An import of a node. Its owner is notified once the program has no reference to the proxy.

    Attributes:
        key: Key of the object at its owner.
        node: The number of the owner's link.
        owner: The name of the owner.
        kind: "function", "object" or "items".
        title: Name in error messages.
        disposed: True if it was released here.
        proxy: The proxy, as long as the program has it.
    """

    def __init__(self, table: ImportTable, connection: Connection, reference: Mapping[str, Any]) -> None:
        self.key: str = reference["key"]
        self.node: int = reference["node"]
        self.owner: str = reference["name"]
        self.kind: str = reference["kind"]
        self.title: str = reference["title"]
        self.disposed = False
        self.connection = connection
        self.proxy: Any = lambda: None
        self._table = table
        methods = reference.get("methods", ())
        self.methods = tuple(
            MethodInfo(name, stream=bool(stream), timeout=timeout) for name, stream, timeout in methods
        )

    def release(self) -> None:
        """Notify the owner. A second call does nothing."""
        if not self.disposed:
            self.disposed = True
            self._table.release(self)

    def lost(self) -> None:
        """Forget it: its owner has left."""
        self._table.forget(self)

    def check(self) -> None:
        """Raise RemoteGone if it was released here, or its link was lost."""
        if self.disposed or not self._table.holds(self):
            lost = "its owner has left, or the link that it came over was lost"
            why = "it was disposed of here" if self.disposed else lost
            raise RemoteGone(f"{self.title} of {self.owner!r}: {why}: ask its owner for it again")

    def __del__(self) -> None:
        if hasattr(self, "disposed"):
            self.release()


class _Group(Group):
    """The one route to an object."""

    def __init__(self, handle: ImportHandle) -> None:
        super().__init__(handle.title)
        self._handle = handle
        self.add(_ObjectRoute(handle))

    def choose(
        self, call: OutboundCall, retry: Retry | None = None, why: TidewireError | None = None
    ) -> tuple[InstanceTransport, CallLoad]:
        self._handle.check()
        try:
            return super().choose(call, retry, why)
        except NoResponders:
            self._handle.lost()
            raise RemoteGone(
                f"{self.name} of {self._handle.owner!r}: its owner has left, or lost its link: ask for it again"
            ) from None


class _ObjectRoute(RemotePort):
    """The route to an object of another node."""

    def __init__(self, handle: ImportHandle) -> None:
        info = ServiceInfo(handle.title, methods=handle.methods, instances=(handle.key,))
        super().__init__(handle.connection, info, handle.owner)
        self._prefix = f"$node.{handle.node}.{handle.key}."

    def route(self) -> None:
        """Return None: each call checks whether the import is still valid."""


class _Registry:
    """Registry with one group: the route of a proxy is fixed and known."""

    def __init__(self, handle: ImportHandle) -> None:
        self.handle = handle
        self._group = _Group(handle)
        self.groups: dict[str, Group] = {}

    @property
    def node(self) -> Node:
        return self.handle.connection.node

    def find(self, _: str) -> Group:
        return self._group

    group = find

    @property
    def change_counter(self) -> ChangeCounter:
        return registry_of(self.node).change_counter

    def pause(self, wait_s: float, seen: int) -> Pending:
        """Wait; see ``Registry.pause``."""
        return registry_of(self.node).pause(wait_s, seen)

    def find_again(self, _name: str, _within_s: float) -> Steps[None]:
        """Return at once: the route of a proxy is known."""
        yield from ()


class Proxy:
    """Base class of all proxies.

    ``dispose()`` releases it. The end of ``async with`` or ``with``, and of the last reference to
    it, do so too.
    """

    _handle: ImportHandle

    def dispose(self) -> None:
        """Release it: the owner no longer keeps the object for this node. Later calls raise
        RemoteGone.
        """
        self._handle.release()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.dispose()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def _back(self, peer: str) -> Mapping[str, Any]:
        """Return its wire form for the return to its owner."""
        handle = self._handle
        handle.check()
        if peer != handle.owner:
            raise InvalidArgument(
                f"{self!r} belongs to another node and can't be given to {peer!r}: give a function that calls it"
            )
        return {"kind": "back", "key": handle.key}


class RemoteObject(Proxy, Client):
    """Proxy of an object of another node. Its methods are called like those of a service.

    ``await cart.add(1)``, ``async for item in cart.items()``, ``cart.sync.add(1)`` from a plain
    thread, ``cart.with_(timeout=1.0)``.
    """

    stands_for_service = True
    """The proxy is accepted for parameters whose type is a declared service."""

    def __init__(self, handle: ImportHandle, registry: Any = None, options: CallOptions | None = None) -> None:
        registry = registry or _Registry(handle)
        Client.__init__(self, registry, handle.title, None, options or CallOptions())
        self._handle = handle

    def with_(self, **options: Any) -> RemoteObject:
        """Return the object with other options; see ``Client.with_``. Disposing of one disposes of
        both.
        """
        return RemoteObject(self._handle, self._registry, self._options.changed(options))

    def __getattr__(self, name: str) -> ClientMethod:
        if name.startswith("_"):
            raise AttributeError(f"{self._service!r} has no attribute {name!r}")
        if name not in self._methods():
            raise NoSuchMethod(f"{self._service} has no method {name!r}: {nearest(name, self._methods())}")
        # The method is not stored: an object in a cycle is released only by the garbage collector.
        return ClientMethod(self, name)

    def _methods(self) -> Mapping[str, object]:
        return {method.name: method for method in self._handle.methods}

    def __repr__(self) -> str:
        return f"<RemoteObject {self._service} of {self._handle.owner!r}>"


class RemoteFunction(Proxy):
    """Proxy of a function of another node: ``await progress(0.5)``, or ``progress.sync(0.5)`` from
    a plain thread.

    The function of a generator gives a stream, to be read with ``async for``.
    """

    calls_are_remote = True
    """Its calls are awaited, or block in ``sync``."""

    def __init__(self, handle: ImportHandle, client: Client | None = None) -> None:
        self._handle = handle
        self._client = client or Client(_Registry(handle), handle.title, None, CallOptions())  # type: ignore[arg-type]
        self._method = ClientMethod(self._client, "call")
        self.__name__ = handle.title

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def sync(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, and block this thread; not for the thread of an event loop."""
        return self._method._run(*args, **kwargs)

    def with_(self, **options: Any) -> RemoteFunction:
        """Return the function with other options; see ``Client.with_``. Disposing of one disposes
        of both.
        """
        return RemoteFunction(self._handle, self._client.with_(**options))

    def __repr__(self) -> str:
        return f"<RemoteFunction {self._handle.title} of {self._handle.owner!r}>"


class _LazyStream:
    """A stream that is opened when its first item is asked for."""

    def __init__(self, handle: ImportHandle) -> None:
        self.title = handle.title
        self._handle = handle
        self._route = _ObjectRoute(handle)
        self._reader: RemoteItems | None = None

    def _items(self) -> RemoteItems:
        if self._reader is None:
            self._handle.check()
            self._reader = self._route.stream(Request(self.title, "take", (), {}))
        return self._reader

    async def take(self) -> Any:
        return await self._items().take()

    def take_blocking(self) -> Any:
        return self._items().take_blocking()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._handle.release()

    def over(self) -> Steps[None]:
        if self._reader is not None:
            yield from self._reader.over()
        self._handle.release()


def proxy_of(handle: ImportHandle) -> Any:
    """Return the proxy of an import."""
    if handle.kind == "items":
        proxy: Any = FedArgument(_LazyStream(handle), handle.title)
    else:
        proxy = RemoteFunction(handle) if handle.kind == "function" else RemoteObject(handle)
    handle.proxy = weakref.ref(proxy)
    return proxy
