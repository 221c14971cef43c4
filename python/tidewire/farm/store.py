"""Stores of campaigns as URLs: the default, and connections that belong to one thread at a time."""

from __future__ import annotations

import os

from tidewire._binding import CampaignStore
from tidewire.errors import InvalidArgument

DEFAULT = "sqlite:///tidewire.db"


def url_of(store: str | None) -> str:
    """Return the URL of a store: that which is given, that of ``TIDEWIRE_STORE``, or a file in the working folder.

    Raises:
        InvalidArgument: if it is no text.
    """
    if store is None:
        store = os.environ.get("TIDEWIRE_STORE") or DEFAULT
    if not isinstance(store, str):
        raise InvalidArgument(f"store: {store!r} is no URL: write 'sqlite:///farm.db'")
    return _whole(store)


def _whole(url: str) -> str:
    """Return a URL that means the same file in a process with another working folder."""
    prefix = "sqlite:///"
    path = url[len(prefix) :]
    if url.startswith(prefix) and path and not path.startswith(("/", ":")):
        return f"{prefix}{os.path.abspath(path)}"
    return url


class Connection:
    """A connection that is opened when it is first needed, and anew in a forked child."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store: CampaignStore | None = None
        self._process = 0

    def __call__(self) -> CampaignStore:
        """Return the connection."""
        process = os.getpid()
        if self._store is None or self._process != process:
            # A child must not even close what its parent has opened.
            _parents.append(self._store)
            self._store, self._process = CampaignStore(self.url), process
        return self._store


_parents: list[CampaignStore | None] = []
