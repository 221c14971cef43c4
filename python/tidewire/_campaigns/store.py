"""Stores of campaigns: URLs, and connections for one thread at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from tidewire._binding import CampaignStore
from tidewire.errors import InvalidArgument, StoreUnavailable

_T = TypeVar("_T")

DEFAULT = "sqlite:///tidewire.db"
_SQLITE = "sqlite:///"
_FILES = (".db", ".sqlite", ".sqlite3")


def url_of(store: str | None) -> str:
    """Return the URL of a store; by default ``TIDEWIRE_STORE``, or a file in the working folder.
    The path of a file such as ``farm.db`` becomes an SQLite URL.

    Raises:
        InvalidArgument: if it is not text.
    """
    if store is None:
        store = os.environ.get("TIDEWIRE_STORE") or DEFAULT
    if not isinstance(store, str):
        raise InvalidArgument(f"store: {store!r} is no URL: write 'sqlite:///farm.db'")
    return _absolute(store)


def shown(url: str) -> str:
    """Return a URL for display, without its password and options."""
    return without_password(url).partition("?")[0]


def without_password(url: str) -> str:
    """Return a URL without its password, and without options that may contain one."""
    if url.startswith("sqlite:"):
        return url
    scheme, slashes, location = url.partition("://")
    place, mark, options = location.partition("?")
    user, at, place = place.rpartition("@")
    place += mark + options if "password" not in options else ""
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{place}"


def _absolute(url: str) -> str:
    """Return a URL with an absolute path, for processes with another working folder."""
    if url.endswith(_FILES) and ":" not in url:
        url = f"{_SQLITE}{url}"
    path = url.removeprefix(_SQLITE)
    return url if path in (url, "") or path.startswith(("/", ":")) else f"{_SQLITE}{os.path.abspath(path)}"


class Connection:
    """A connection that is opened at its first use, and again in a forked child. With ``create`` it
    creates a missing file.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        self._create = create
        self._store: CampaignStore | None = None
        self._process = 0

    def __call__(self) -> CampaignStore:
        process = os.getpid()
        if self._store is None or self._process != process:
            # A child must not close the connection of its parent.
            _parents.append(self._store)
            self._store, self._process = CampaignStore(self.url, self._create), process
        return self._store

    def ask(self, call: Callable[[CampaignStore], _T]) -> _T:
        """Run an idempotent call. It is retried once, in case an idle connection was lost."""
        try:
            return call(self())
        except StoreUnavailable:
            return call(self())


_parents: list[CampaignStore | None] = []
