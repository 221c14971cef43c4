"""Checks of the URL of a node, without loading the modules of links."""

from __future__ import annotations

from tidewire.errors import InvalidArgument

NATS = ("nats://", "tls://")
SCHEMES = ("tide", "tide+tls", "ws", "wss", "tide+unix")


def is_link(url: object) -> bool:
    """Return True if a node can join a hub at the URL.

    Raises:
        InvalidArgument: if the URL is neither a hub, nor ``mem://``, nor servers of NATS.
    """
    scheme = url.split("://", 1)[0] if isinstance(url, str) and "://" in url else None
    if scheme == "mem" or is_nats(url):
        return False
    if scheme in SCHEMES:
        return True
    raise InvalidArgument(
        f"url: {url!r} is not known: use mem:// for one process, or tide://host:port, tide+tls://host:port, ws://host:port, "
        "wss://host:port or tide+unix:///path to join a hub, or nats://host:port to join a cluster over NATS"
    )


def is_nats(url: object) -> bool:
    """Return True if a URL names servers of NATS."""
    return isinstance(url, str) and url.startswith(NATS)


def without_secrets(url: str) -> str:
    """Return a URL without its credentials and options."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('?', 1)[0].rpartition('@')[2]}"


def is_secured(url: str) -> bool:
    """Return True if a URL uses TLS."""
    return url.split("://", 1)[0] in ("tide+tls", "wss")
