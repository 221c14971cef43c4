"""Nodes that `tidewire top` can look at: those of this user on this machine, or those of a hub, and
calls to their service ``$sys``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidewire as tw
from tidewire._inspect import VARIABLE
from tidewire.errors import (
    AskTimeout,
    ConfigError,
    LinkLost,
    NodeStopped,
    NoResponders,
    NoSuchTarget,
    TidewireError,
    Unauthorized,
)
from tidewire.services.instances.serve import known
from tidewire.top.places import check, directories, is_stale
from tidewire.top.service import ABOUT, SERVICE, STATISTICS

if TYPE_CHECKING:
    from tidewire.links.tls import Tls

ABOUT_TIMEOUT_S = 2.0
LOOK_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Endpoint:
    """A hub where nodes can be looked at: that of a cluster, or the socket of one node.

    Attributes:
        url: Its URL.
        token: For hubs that ask for one.
        tls: Certificates, for hubs with TLS.
        path: The socket, of a node of this machine.
    """

    url: str
    token: str | None = None
    tls: Tls | None = None
    path: Path | None = None

    @contextmanager
    def joined(self) -> Iterator[tw.Node]:
        """Join it with a node that ends at once, whatever becomes of the hub.

        Raises:
            LinkLost: if nobody listens there, or it does not answer.
            TidewireError: if it does not take this node in.
        """
        config: dict[str, Any] = {"links": {"link_greeting_ms": int(ABOUT_TIMEOUT_S * 1_000)}, "stop_timeout_ms": 200}
        name = f"top-{os.getpid()}-{os.urandom(4).hex()}"
        with tw.Node(self.url, name=name, config=config, inspect=False, token=self.token, tls=self.tls) as node:
            yield node


@dataclass(frozen=True)
class FoundNode:
    """A node that can be looked at. One that is stopped or very busy has no name, only its key.

    Attributes:
        endpoint: Where.
        key: Unique key of the node at the endpoint: the id of its instance of ``$sys``.
        name: Its name.
        pid: Its process.
    """

    endpoint: Endpoint
    key: str
    name: str | None = None
    pid: int | None = None

    @contextmanager
    def watched(self) -> Iterator[WatchedNode]:
        """Join where it can be looked at, for several looks. For the errors see
        ``WatchedNode.look``.
        """
        with ExitStack() as opened:
            try:
                node = opened.enter_context(self.endpoint.joined())
            except LinkLost as error:
                raise _silent(self.key) if _is_there(self.endpoint) else _gone(self.key) from error
            yield WatchedNode(node, self.key)


class WatchedNode:
    """A node that is looked at."""

    def __init__(self, node: tw.Node, key: str) -> None:
        self._node, self._key = node, key

    def look(self) -> dict[str, Any]:
        """Look at the node.

        Raises:
            NodeStopped: if it is gone.
            AskTimeout: if it does not answer in time.
            Unauthorized: if this user may not call it.
            TidewireError: if it could not look at itself.
        """
        try:
            return self._ask(STATISTICS, LOOK_TIMEOUT_S)
        except (LinkLost, NoResponders) as error:
            raise _gone(self._key) from error
        except AskTimeout as error:
            raise _silent(self._key, LOOK_TIMEOUT_S) from error

    def about(self) -> dict[str, Any]:
        """Return what tells the node from others. The errors are those of the link."""
        return self._ask(ABOUT, ABOUT_TIMEOUT_S)

    def _ask(self, method: str, timeout_s: float) -> dict[str, Any]:
        answer = self._node.request(f"svc.{SERVICE}.{self._key}.{method}", (), timeout_s).wait()
        if not isinstance(answer, dict):
            raise TidewireError(f"{self._key}: the answer is no object: this is no node")
        return answer


def choose(endpoint: Endpoint | None, wanted: str | None) -> FoundNode:
    """Return the node with a name, process id or key, of a hub or of this user; without one, the
    only node there is.

    Raises:
        NoSuchTarget: if there is none, or more than one; the text lists those there are.
        Unauthorized: if the sockets can't be opened by this user.
        TidewireError: if the hub can't be joined.
    """
    found = list(find() if endpoint is None else find_at(endpoint))
    fits = [one for one in found if wanted is None or wanted in (one.name, str(one.pid), one.key)]
    fits = [one for one in fits if one.key == wanted] or fits
    if len(fits) == 1:
        return fits[0]
    raise NoSuchTarget(_none(wanted, found) if not fits else _several(wanted, fits))


def find() -> Iterator[FoundNode]:
    """Find the nodes of this user, and remove the sockets of processes that have died.

    Raises:
        Unauthorized: if a directory of this user's sockets can be opened by others.
    """
    for path in _sockets():
        endpoint = Endpoint(f"tide+unix://{path}", path=path)
        try:
            if is_stale(path):
                path.unlink(missing_ok=True)
            else:
                yield from find_at(endpoint)
        except FileNotFoundError:
            continue
        except Unauthorized:
            raise
        except TidewireError:
            if _is_there(endpoint):
                yield FoundNode(endpoint, path.stem)


def find_at(endpoint: Endpoint) -> Iterator[FoundNode]:
    """Find the nodes of a hub.

    Raises:
        TidewireError: if it can't be joined.
    """
    with endpoint.joined() as node:
        keys = [key for info in known(node) if info.name == SERVICE for key in info.instances]
        for key in keys:
            one = FoundNode(endpoint, key)
            try:
                about = WatchedNode(node, key).about()
                yield replace(one, name=str(about.get("node")), pid=_whole(about.get("pid")))
            except AskTimeout:
                yield one
            except (NoResponders, LinkLost):
                # The node has gone meanwhile.
                continue


def _sockets() -> list[Path]:
    """The sockets in the present directories. A refused directory is an error if the others have no
    socket.
    """
    paths: list[Path] = []
    refused: list[str] = []
    for directory in directories():
        try:
            check(directory)
            paths += sorted(path for path in directory.iterdir() if path.suffix == ".sock")
        except FileNotFoundError:
            continue
        except PermissionError:
            refused.append(f"{directory}: permission denied: chmod 700 it, or run tidewire top as the user who owns it")
        except ConfigError as error:
            refused.append(str(error))
    if refused and not paths:
        raise Unauthorized(refused[0])
    return paths


def _is_there(endpoint: Endpoint) -> bool:
    """Return whether somebody listens at a socket, though nobody may answer."""
    try:
        return endpoint.path is not None and not is_stale(endpoint.path)
    except FileNotFoundError:
        return False


def _silent(key: str, timeout_s: float = ABOUT_TIMEOUT_S) -> AskTimeout:
    return AskTimeout(f"{key} did not answer within {timeout_s:g} s: it is stopped or very busy")


def _gone(key: str) -> NodeStopped:
    return NodeStopped(f"{key} is gone: the node has stopped, or its process has ended")


def _none(wanted: str | None, found: list[FoundNode]) -> str:
    if wanted is not None and found:
        return f"node: {wanted!r} is not among the nodes that can be looked at:\n{_listed(found)}"
    which = f"node: {wanted!r} can't be looked at" if wanted is not None else "no node can be looked at"
    return f"{which}: enable it with tw.Node(inspect=True), or start the program with {VARIABLE}=1"


def _several(wanted: str | None, fits: list[FoundNode]) -> str:
    which = f"node: {len(fits)} nodes are called {wanted!r}" if wanted is not None else f"{len(fits)} nodes run"
    return f"{which}: choose one with --node and the text in front:\n{_listed(fits)}"


def _listed(found: list[FoundNode]) -> str:
    return "\n".join(
        f"  {one.key}   {f'{one.name!r}, process {one.pid}' if one.name is not None else 'does not answer'}"
        for one in found
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
