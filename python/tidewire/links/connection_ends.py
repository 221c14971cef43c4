"""Open ends of a connection, which close without the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire._binding import ClusterBridge, Federation, Gateway, HomeServer, Hub, Link, Listening


class ConnectionEnds:
    """Open ends of a connection: its link, its hub, and the listeners of the hub.

    It refers to nothing else, so that a finalizer of the node can close it on any thread.
    """

    def __init__(self) -> None:
        self.link: Link | None = None
        self.hub: Hub | None = None
        self.bridge: ClusterBridge | None = None
        # Referenced here: a listener closes when nothing refers to it.
        self.places: list[Listening] = []
        self.gateways: list[Gateway] = []
        self.federations: list[Federation] = []
        self.home: HomeServer | None = None

    def close(self) -> None:
        """Close all ends. Calls and subscriptions of other nodes fail."""
        for federation in self.federations:
            federation.close()
        for place in self.places:
            place.close()
        for gateway in self.gateways:
            gateway.close()
        home, self.home = self.home, None
        if home is not None:
            home.close()
        bridge, self.bridge = self.bridge, None
        if bridge is not None:
            bridge.close()
        link, self.link = self.link, None
        hub, self.hub = self.hub, None
        if link is not None:
            link.close()
        if hub is not None:
            hub.close()
