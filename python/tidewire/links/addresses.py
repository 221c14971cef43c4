"""Where a node may listen."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tidewire.errors import Unauthorized


def check_open(url: str, tokens: bool, insecure: bool) -> None:
    """Refuse to listen where other machines can reach it without a token.

    Raises:
        Unauthorized: if that is so, and was not asked for.
    """
    parts = urlsplit(url)
    if parts.scheme != "tide" or insecure or _is_loopback(parts.hostname or ""):
        return
    missing = "TLS" if tokens else "a token and TLS"
    raise Unauthorized(
        f"url: {url!r} can be reached from other machines, and {missing} is missing: listen on 127.0.0.1, or give "
        "insecure=True (--insecure) if the network is trusted"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
