"""Methods of a node for links and services."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidewire._node.base import Base
from tidewire._unknown_options import refuse_unknown
from tidewire.errors import InvalidArgument
from tidewire.link_config import LinkConfig
from tidewire.service_config import ServiceConfig

if TYPE_CHECKING:
    from tidewire._binding import HomeServer, Link
    from tidewire._typed import ServeOptions
    from tidewire.links.announcements import NodeInfo
    from tidewire.links.connection import Connection
    from tidewire.links.federation import Federation
    from tidewire.links.http import Http
    from tidewire.links.hub import Listener, Token
    from tidewire.links.tls import Tls
    from tidewire.services.contract.declare import Service
    from tidewire.services.contract.info import ServiceInfo
    from tidewire.services.instance_watch import InstanceChange
    from tidewire.services.instances.serve import Served
    from tidewire.services.instances.single_active import SingleActive

_S = TypeVar("_S", bound="Service")


class Services(Base):
    """Services, clients, listeners and federation of a node."""

    _links: LinkConfig
    _serving: ServiceConfig

    @property
    def links(self) -> LinkConfig:
        """The effective settings of links."""
        return self._links

    @property
    def serving(self) -> ServiceConfig:
        """The effective settings of services."""
        return self._serving

    def listen(
        self,
        url: str,
        *,
        tokens: Iterable[Token] = (),
        insecure: bool = False,
        tls: Tls | None = None,
        http: Http | None = None,
    ) -> Listener:
        """Let other nodes join: this node becomes a hub that routes between all joined nodes. Call
        it again for more addresses.

        Args:
            url: ``tide://127.0.0.1:0`` (the system chooses the port), ``tide+tls://``, ``ws://``,
                ``wss://`` or ``tide+unix:///path``. ``http://127.0.0.1:0`` is a gateway to the
                public services of the hub over HTTP.
            tokens: Tokens of the nodes that may join, each with its rights and limits. Without
                tokens every node that reaches the address may join. The first call decides.
            insecure: Allow an address that other machines can reach without TLS or without tokens.
            tls: A ``tw.Tls`` with the certificate and key of this node; with a ``ca`` only nodes
                with one of its certificates may join.
            http: A ``tw.Http`` with the settings of an ``http://`` gateway.

        Returns:
            The listener: ``.url`` has the real port, ``.close()`` stops listening. Nodes can join
            when this returns; awaiting the listener returns it at once.

        Raises:
            InvalidArgument: if the URL can't be listened on, this node has joined another hub, or a
                limit of a token is above that of the hub.
            Unauthorized: if other machines can reach it without TLS or tokens, and ``insecure`` is
                false.
            ConfigError: if the address is in use.
        """
        from tidewire.links.http import Http, is_http
        from tidewire.links.hub import Listener, grants

        self._check()
        self._serve_folder()
        if is_http(url):
            if tls is not None:
                raise InvalidArgument(
                    f"tls: it is not allowed with {url!r}: put a proxy with TLS in front of the gateway"
                )
            if not isinstance(http, (Http, NoneType)):
                raise InvalidArgument(f"http: a {type(http).__name__} is not allowed: give a tw.Http, or None")
            granted = grants(tokens, self._links.to_dict())
            return Listener(self._link().listen_http(url, granted, insecure, http or Http()))
        if http is not None:
            raise InvalidArgument(
                f"http: it is not allowed with {url!r}: give it with a URL such as http://127.0.0.1:8080"
            )
        return Listener(self._link().listen(url, grants(tokens, self._links.to_dict()), insecure, tls))

    def join(
        self,
        url: str,
        *,
        as_: str | None = None,
        export: Iterable[str] = (),
        import_: Iterable[str] = (),
        token: str | None = None,
        tls: Tls | None = None,
    ) -> Federation:
        """Federate this hub with another one: share the named services and subjects, and nothing
        else. It retries while the other hub is unreachable.

        Args:
            url: URL of the other hub: ``tide://host:7420``, or another URL of ``tw.Node``.
            as_: Name of this hub at the other one, a token without a colon; the node's name by
                default.
            export: Services of this hub for the other one: ``"pricing"``, which is
                ``berlin:pricing`` there if this hub is ``berlin``, or ``"pricing=prices"`` for
                another name. Patterns such as ``"orders.>"`` share messages that are published
                here, and ``"stream:orders"`` mirrors a durable stream as ``berlin-orders``.
            import_: The same in the other direction, after the name of the other hub:
                ``"paris:billing"``, which is its name here, or ``"paris:news.>"``.
            token: Token of this hub at the other one. Its rights apply to everything that is
                shared.
            tls: A ``tw.Tls`` for a URL with TLS.

        Returns:
            The federation, which lasts until it is closed or the node stops. Await it, or call
            ``wait()`` in blocking code, until both hubs know all shared names.

        Raises:
            InvalidArgument: if the URL or a name is not allowed, or this node is no hub. The wait
                raises refusals of the other hub, which are also logged.
        """
        from tidewire.links.federation import federate

        self._check()
        return federate(self._as_node, url, as_, export, import_, token, tls)

    @overload
    def serve(self, target: Any, *, active: Literal["single"], **options: Unpack[ServeOptions]) -> SingleActive: ...

    @overload
    def serve(self, target: Any, *, active: Literal["all"] = ..., **options: Unpack[ServeOptions]) -> Served: ...

    def serve(
        self,
        target: Any,
        *,
        name: str | None = None,
        visibility: str | None = None,
        instance: str | None = None,
        concurrency: int | None = None,
        waiting: int | None = None,
        streams: int | None = None,
        dispatcher: str = "default",
        active: str = "all",
        lease: float = 1.5,
        version: str = "",
        metadata: Mapping[str, str] | None = None,
        **unknown: Any,
    ) -> Served | SingleActive:
        """Serve an object, a function, or a dict of functions; see
        ``tidewire.services.instances.serve.serve`` for all options.

        Await the result until the hub, if any, has registered the instance. If the hub refuses it,
        the await raises the error (Unauthorized, NameTaken), and the instance stops, in this
        process, too. Without an await the refusal is logged.
        """
        from tidewire.services.instances.serve import serve

        refuse_unknown(unknown, Services.serve)
        return serve(
            self._as_node,
            target,
            name=name,
            visibility=visibility,
            instance=instance,
            concurrency=concurrency,
            waiting=waiting,
            streams=streams,
            dispatcher=dispatcher,
            active=active,
            lease=lease,
            version=version,
            metadata=metadata,
        )

    @overload
    def client(self, service: type[_S], name: str | None = None) -> type[_S]: ...

    @overload
    def client(self, service: type | str, name: str | None = None) -> Any: ...

    def client(self, service: Any, name: str | None = None) -> Any:
        """Return a client of a service, by its class or its name.

        Type checkers know the parameters and results of subclasses of ``tw.Service``; annotate such
        a client as ``tw.Client[Pricing]``.

        Raises:
            InvalidArgument: if the class declares no service, or a name is not allowed.
        """
        from tidewire.services.caller.client import client

        return client(self._as_node, service, name)

    async def services(self) -> list[ServiceInfo]:
        """Return the services that this node can reach, by name."""
        from tidewire.services.instances.serve import known

        return known(self._as_node)

    def watch_services(self, name: str | None = None) -> AsyncIterator[InstanceChange]:
        """Yield the instances of a service, or of all, and then each change, until the node stops:
        ``async for``.

        A slow reader gets the difference to its last state: nothing is queued, and an instance that
        was added and removed meanwhile is skipped.

        Raises:
            InvalidArgument: if the name is not allowed.
        """
        from tidewire.services import instance_watch

        instance_watch.check(name)
        return instance_watch.InstanceWatch(self._as_node, name)

    async def nodes(self) -> list[NodeInfo]:
        """Return the nodes that have joined the hub of this one, the hub included, by name; none
        without a hub.

        Raises:
            Unauthorized: if the token of this node does not allow to call ``$hub.nodes``.
            LinkLost: if the link to the hub is lost.
            VersionMismatch: if the version of the hub has no such list.
        """
        from tidewire.errors import NoResponders, VersionMismatch

        if self._connection is None or not self._connection.is_joined:
            return []
        try:
            return await self._connection.all_nodes()
        except NoResponders:
            raise VersionMismatch("nodes: the hub does not know its list of nodes: update it") from None

    def _serve_folder(self) -> None:
        """Open the data folder and serve its commands, if there is one."""

    def _home_server(self, link: Link) -> HomeServer | None:
        """Serve the storage backend to the nodes that join, if there is one."""

    def _link(self) -> Connection:
        if self._connection is None:
            from tidewire.links.connection import Connection

            with self._lock:
                if self._connection is None:
                    self._connection = Connection(self._as_node)
                    # Close the links when the node is collected, not at exit. The finalizer refers
                    # to the open ends alone, not to the connection or the node.
                    weakref.finalize(self, self._connection.ends.close).atexit = False
        return self._connection
