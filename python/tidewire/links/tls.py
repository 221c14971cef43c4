"""Certificates of links."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidewire.errors import InvalidArgument

_Path = str | os.PathLike[str] | None
Certificates = tuple[str | None, str | None, str | None, bool]


@dataclass(frozen=True)
class Tls:
    """Certificates of one side of a link, and its trusted CAs. All files are PEM.

    Args:
        ca: Certificates of the trusted CAs. Without it a node trusts the CAs of the system. With it
            a hub accepts only nodes with a certificate of one of these CAs.
        cert: The certificate of this side, with its intermediate certificates. A hub needs one.
        key: The private key of that certificate, without a password.
        verify: True if a node verifies the certificate of the hub. False is for experiments: it
            allows an attacker on the path to read and change all traffic.

    Raises:
        InvalidArgument: if a value is not allowed, or only one of ``cert`` and ``key`` is set.
    """

    ca: _Path = None
    cert: _Path = None
    key: _Path = None
    verify: bool = True

    def __post_init__(self) -> None:
        for field in ("ca", "cert", "key"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
                raise InvalidArgument(f"{field}: {value!r} is not allowed: give the path of a PEM file, or None")
        if not isinstance(self.verify, bool):
            raise InvalidArgument(f"verify: {self.verify!r} is not allowed: give True or False")
        if (self.cert is None) != (self.key is None):
            missing, present = ("key", "cert") if self.key is None else ("cert", "key")
            raise InvalidArgument(f"{missing}: None is not allowed with a {present}: give the PEM files of both")


def certificates(tls: Tls | None) -> Certificates | None:
    """Return certificates in the form for links.

    Raises:
        InvalidArgument: if it is no ``tw.Tls``.
    """
    if tls is None:
        return None
    if not isinstance(tls, Tls):
        raise InvalidArgument(f"tls: a {type(tls).__name__} is not allowed: give a tw.Tls, or None")
    return _text(tls.ca), _text(tls.cert), _text(tls.key), tls.verify


def _text(path: _Path) -> str | None:
    return None if path is None else os.fspath(path)
