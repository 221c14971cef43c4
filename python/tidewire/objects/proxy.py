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
    """An import of a node. The owner is notified when nobody has the proxy any more.

    Attributes:
        key: Key of the object at its owner.
        node: The number of the owner's link.
        owner: The name of the owner.
        kind: "function", "object" or "items".
        title: Name in error messages.
        disposed: True if it was released here.
        proxy: The proxy, as long as the program has it.
    """

    def __init__(self, held: ImportTable, connection: Connection, stands: Mapping[str, Any]) -> None:
        self.key: str = stands["key"]
        self.node: int = stands["node"]
        self.owner: str = stands["name"]
        self.kind: str = stands["kind"]
        self.title: str = stands["title"]
        self.disposed = False
        self.connection = connection
        self.proxy: Any = lambda: None
        self._held = held
        methods = stands.get("methods", ())
        self.methods = tuple(
            MethodInfo(name, stream=bool(stream), timeout=timeout) for name, stream, timeout in methods
        )

    def release(self) -> None:
        """Tell the owner; a second time does nothing."""
        if not self.disposed:
            self.disposed = True
            self._held.release(self)

    def lost(self) -> None:
        """Note that its owner is not there any more."""
        self._held.forget(self)

    def check(self) -> None:
        """Raise RemoteGone if it was released here, or its link was lost."""
        if self.disposed or not self._held.holds(self):
            lost = "its owner has left, or the link that it came over was lost"
            why = "it was disposed of here" if self.disposed else lost
            raise RemoteGone(f"{self.title} of {self.owner!r}: {why}: ask its owner for it again")

    def __del__(self) -> None:
        if hasattr(self, "disposed"):
            self.release()


class _Group(Group):
    """The one route to an object."""

    def __init__(self, holding: ImportHandle) -> None:
        super().__init__(holding.title)
        self._holding = holding
        self.add(_ObjectRoute(holding))

    def choose(
        self, call: OutboundCall, retry: Retry | None = None, why: TidewireError | None = None
    ) -> tuple[InstanceTransport, CallLoad]:
        self._holding.check()
        try:
            return super().choose(call, retry, why)
        except NoResponders:
            self._holding.lost()
            raise RemoteGone(
                f"{self.name} of {self._holding.owner!r}: its owner has left, or lost its link: ask for it again"
            ) from None


class _ObjectRoute(RemotePort):
    """The route to an object of another node."""

    def __init__(self, holding: ImportHandle) -> None:
        info = ServiceInfo(holding.title, methods=holding.methods, instances=(holding.key,))
        super().__init__(holding.connection, info, holding.owner)
        self._prefix = f"$node.{holding.node}.{holding.key}."

    def route(self) -> None:
        """Return None: each call looks whether the object is still held."""


class _Registry:
    """Registry with one group: the route of a proxy is fixed and known."""

    def __init__(self, holding: ImportHandle) -> None:
        self.holding = holding
        self._group = _Group(holding)
        self.groups: dict[str, Group] = {}

    @property
    def node(self) -> Node:
        return self.holding.connection.node

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
        """It is known."""
        yield from ()


class Proxy:
    """Base class of all proxies.

    ``dispose()``, or the end of ``async with`` or ``with``, lets it go; so does the end of the last
    reference to it.
    """

    _holding: ImportHandle

    def dispose(self) -> None:
        """Let it go: the owner needs not keep it for this node. Calls of it fail with
        RemoteGone.
        """
        self._holding.release()

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
        holding = self._holding
        holding.check()
        if peer != holding.owner:
            raise InvalidArgument(
                f"{self!r} belongs to another node and can't be given to {peer!r}: give a function that calls it"
            )
        return {"kind": "back", "key": holding.key}


class RemoteObject(Proxy, Client):
    """Stands for an object of another node: its methods are called as those of a service.

    ``await cart.add(1)``, ``async for item in cart.items()``, ``cart.sync.add(1)`` from a plain
    thread, ``cart.with_(timeout=1.0)``.
    """

    stands_for_service = True
    """It fits parameters whose type is a declared service."""

    def __init__(self, holding: ImportHandle, registry: Any = None, options: CallOptions | None = None) -> None:
        registry = registry or _Registry(holding)
        Client.__init__(self, registry, holding.title, None, options or CallOptions())
        self._holding = holding

    def with_(self, **options: Any) -> RemoteObject:
        """Return the object with other options; see ``Client.with_``. Disposing of one disposes of
        both.
        """
        return RemoteObject(self._holding, self._registry, self._options.changed(options))

    def __getattr__(self, name: str) -> ClientMethod:
        if name.startswith("_"):
            raise AttributeError(f"{self._service!r} has no attribute {name!r}")
        if name not in self._methods():
            raise NoSuchMethod(f"{self._service} has no method {name!r}: {nearest(name, self._methods())}")
        # The method is not stored: an object in a cycle is released only by the garbage collector.
        return ClientMethod(self, name)

    def _methods(self) -> Mapping[str, object]:
        return {method.name: method for method in self._holding.methods}

    def __repr__(self) -> str:
        return f"<RemoteObject {self._service} of {self._holding.owner!r}>"


class RemoteFunction(Proxy):
    """Stands for a function of another node: ``await progress(0.5)``; ``progress.sync(0.5)`` from a
    plain thread.

    The function of a generator gives a stream, to be read with ``async for``.
    """

    calls_are_remote = True
    """Its calls are awaited, or made by ``sync``."""

    def __init__(self, holding: ImportHandle, client: Client | None = None) -> None:
        self._holding = holding
        self._client = client or Client(_Registry(holding), holding.title, None, CallOptions())  # type: ignore[arg-type]
        self._method = ClientMethod(self._client, "call")
        self.__name__ = holding.title

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def sync(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, and block this thread; not for the thread of an event loop."""
        return self._method._run(*args, **kwargs)

    def with_(self, **options: Any) -> RemoteFunction:
        """Return the function with other options; see ``Client.with_``. Disposing of one disposes
        of both.
        """
        return RemoteFunction(self._holding, self._client.with_(**options))

    def __repr__(self) -> str:
        return f"<RemoteFunction {self._holding.title} of {self._holding.owner!r}>"


class _Late:
    """A stream that is opened when its first item is asked for."""

    def __init__(self, holding: ImportHandle) -> None:
        self.title = holding.title
        self._holding = holding
        self._route = _ObjectRoute(holding)
        self._opened: RemoteItems | None = None

    def _items(self) -> RemoteItems:
        if self._opened is None:
            self._holding.check()
            self._opened = self._route.stream(Request(self.title, "take", (), {}))
        return self._opened

    async def take(self) -> Any:
        return await self._items().take()

    def take_blocking(self) -> Any:
        return self._items().take_blocking()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._holding.release()

    def over(self) -> Steps[None]:
        if self._opened is not None:
            yield from self._opened.over()
        self._holding.release()


def proxy_of(holding: ImportHandle) -> Any:
    """Return what stands for something here."""
    if holding.kind == "items":
        proxy: Any = FedArgument(_Late(holding), holding.title)
    else:
        proxy = RemoteFunction(holding) if holding.kind == "function" else RemoteObject(holding)
    holding.proxy = weakref.ref(proxy)
    return proxy
