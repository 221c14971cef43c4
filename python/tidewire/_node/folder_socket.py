"""Socket in a data folder, where the command line connects to the program that has it open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidewire._binding import HomeServer, Hub
from tidewire._log import log
from tidewire.errors import TidewireError
from tidewire.links.connection_ends import ConnectionEnds

if TYPE_CHECKING:
    from tidewire._binding import StreamHome
    from tidewire.node import Node

SOCKET = "tidewire.sock"
LINKS_MAX = 16
"""Most programs that are joined to the socket at once."""


def open_socket(node: Node, folder: StreamHome, path: Path) -> ConnectionEnds:
    """Serve a data folder at its socket to processes of this user, until the returned ends are
    closed.

    The socket is a hub that serves nothing else. It replaces the socket of a killed program. A
    failure, such as a path of more than 100 bytes, is logged.
    """
    ends = ConnectionEnds()
    settings = {**node.links.to_dict(), "hub_links": LINKS_MAX + 1}
    try:
        ends.hub = Hub(
            node.name,
            [],
            settings,
            lambda line, _: log.debug("hub.notice", "%(service)s: %(line)s", service=SOCKET, line=line),
        )
        ends.link = ends.hub.join(node.name, None, settings)
        ends.home = HomeServer(ends.link, node._engine, node.name, folder, str(path))
        ends.places.append(ends.hub.listen_to_own_user(str(path / SOCKET)))
    except TidewireError as error:
        ends.close()
        text = "%(node)s: %(path)s: commands can't look at it while it is open: %(error)s"
        log.info("home.socket_failed", text, node=node.name, path=path, error=error)
    return ends
