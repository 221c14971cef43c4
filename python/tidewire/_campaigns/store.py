"""Stores of campaigns as URLs: the default, and connections that belong to one thread at a time."""

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
    """Return the URL of a store: that which is given, that of ``TIDEWIRE_STORE``, or a file in the
    working folder. The path of a file such as ``farm.db`` is an SQLite store.

    Raises:
        InvalidArgument: if it is no text.
    """
    if store is None:
        store = os.environ.get("TIDEWIRE_STORE") or DEFAULT
    if not isinstance(store, str):
        raise InvalidArgument(f"store: {store!r} is no URL: write 'sqlite:///farm.db'")
    return _whole(store)


def shown(url: str) -> str:
    """Return a URL as people may see it: without its password."""
    return without_password(url).partition("?")[0]


def without_password(url: str) -> str:
    """Return a URL without its password, and without options if one may be among them."""
    if url.startswith("sqlite:"):
        return url
    scheme, slashes, rest = url.partition("://")
    place, mark, options = rest.partition("?")
    user, at, place = place.rpartition("@")
    place += mark + options if "password" not in options else ""
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{place}"


def _whole(url: str) -> str:
    """Return a URL that means the same file in a process with another working folder."""
    if url.endswith(_FILES) and ":" not in url:
        url = f"{_SQLITE}{url}"
    path = url.removeprefix(_SQLITE)
    return url if path in (url, "") or path.startswith(("/", ":")) else f"{_SQLITE}{os.path.abspath(path)}"


class Connection:
    """A connection that is opened when it is first needed, and anew in a forked child. With
    ``create`` a file that is missing is made.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        self._create = create
        self._store: CampaignStore | None = None
        self._process = 0

    def __call__(self) -> CampaignStore:
        process = os.getpid()
        if self._store is None or self._process != process:
            # A child must not even close what its parent has opened.
            _parents.append(self._store)
            self._store, self._process = CampaignStore(self.url, self._create), process
        return self._store

    def ask(self, what: Callable[[CampaignStore], _T]) -> _T:
        """Do something that may be done twice. A connection that broke while nobody used it is
        noticed, and made anew.
        """
        try:
            return what(self())
        except StoreUnavailable:
            return what(self())


_parents: list[CampaignStore | None] = []
