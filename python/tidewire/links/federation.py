"""Federation of hubs: a hub joins another hub, and shares names with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidewire import _binding
from tidewire._runtime.steps import Procedure
from tidewire._urls import without_secrets
from tidewire.errors import InvalidArgument
from tidewire.links.tls import Tls, certificates

if TYPE_CHECKING:
    from tidewire._runtime.steps import Steps
    from tidewire.node import Node


class Federation(Procedure["Federation"]):
    """Link of a hub to another hub, or the attempts to join it. Await it, or call ``wait()`` in
    blocking code, until both hubs know all shared names; this returns the federation.

    Raises:
        Unauthorized: from the wait, if the other hub refuses the token.
        NodeStopped: from the wait, if the federation is closed before.

    Attributes:
        url: URL of the other hub.
    """

    def __init__(self, inner: _binding.Federation, url: str) -> None:
        self._inner = inner
        self.url = url

    @property
    def is_joined(self) -> bool:
        """True while there is a link to the other hub."""
        return self._inner.is_joined

    def _steps(self) -> Steps[Federation]:
        yield self._inner.ready()
        return self

    def close(self) -> None:
        """Leave the other hub: the shared names are withdrawn, and calls in flight fail."""
        self._inner.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Federation {without_secrets(self.url)} {'joined' if self.is_joined else 'not joined'}>"


def federate(
    node: Node,
    url: str,
    own_name: str | None,
    exports: Iterable[str],
    imports: Iterable[str],
    token: str | None,
    tls: Tls | None,
) -> Federation:
    """Join the hub of a node to the hub at a URL; see ``node.join``."""
    connection = node._link()
    if connection.hub is None:
        raise InvalidArgument(f"join: {node.name} is no hub: call listen() first; a node that is none joins by its url")
    for field, value in (("url", url), ("as_", own_name), ("token", token)):
        if not isinstance(value, str) and (value is not None or field == "url"):
            raise InvalidArgument(f"{field}: a {type(value).__name__} is not allowed: give a string")
    lists = (own_name or node.name, _names("export", exports), _names("import_", imports))
    # The federation must not keep its node alive.
    write, changes = connection.notice(), node._engine.change_counter

    def notice(line: str, is_wrong: bool) -> None:
        write(line, is_wrong)
        # Wake the waits for statistics.
        changes.ring()

    settings = node.links.to_dict()
    inner = _binding.federate(connection.hub, node._engine, url, lists, token, certificates(tls), settings, notice)
    connection.ends.federations.append(inner)
    return Federation(inner, url)


def _names(field: str, names: Iterable[str]) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgument(
            f"{field}: {found!r} is not allowed: give a list of names, such as ['pricing', 'orders.>']"
        )
    return found
