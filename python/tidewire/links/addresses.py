"""Listening addresses of a node."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tidewire.errors import Unauthorized

_PLAIN = ("tide", "ws")
_SECURED = ("tide+tls", "wss")


def check_open(url: str, tokens: bool, insecure: bool, mutual: bool = False) -> None:
    """Refuse an address that other machines can reach without TLS or without authentication.

    Args:
        url: The address to listen on.
        tokens: True if only nodes with a token may join.
        insecure: True if the caller allows open access to the address.
        mutual: True if only nodes with a certificate may join.

    Raises:
        Unauthorized: if that is so, and ``insecure`` is false.
    """
    scheme, host = _parts(url)
    # Without a host, the listener raises the error.
    if insecure or scheme not in _PLAIN + _SECURED or not host or _is_loopback(host):
        return
    missing = [] if tokens or (mutual and scheme in _SECURED) else ["a token"]
    missing += ["TLS (tide+tls:// or wss://)"] if scheme in _PLAIN else []
    if missing:
        raise Unauthorized(
            f"url: {url!r} can be reached from other machines, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: add {'it' if len(missing) == 1 else 'them'}, listen on 127.0.0.1, or give "
            "insecure=True (--insecure) if the network is trusted"
        )


def _parts(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or ""
    # The listener reports the error in the address.
    except ValueError:
        return "", ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
