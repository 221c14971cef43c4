"""Key-value buckets: the newest value of each key, with revisions and history."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire._runtime.blocking_portal import Blocking, blocking
from tidewire.errors import InvalidArgument
from tidewire.streams.home import span_us
from tidewire.streams.pages import Pages
from tidewire.streams.value_type import value_type
from tidewire.values import decode, encode

if TYPE_CHECKING:
    from tidewire.streams.home import Home
    from tidewire.streams.value_type import ValueType


class Entry:
    """An entry of a key: a value or a deletion.

    Attributes:
        key: The key.
        revision: Revision of the bucket at this change; each change increases it.
        is_deleted: True if the key has no value.
    """

    __slots__ = ("_data", "_time_us", "_type", "is_deleted", "key", "revision")

    def __init__(self, raw: tuple[str, bytes | None, int, int], type: ValueType | None = None) -> None:
        self.key, self._data, self.revision, self._time_us = raw
        self._type = type
        self.is_deleted = self._data is None

    @property
    def value(self) -> Any:
        """The value; bytes if it was written with ``content`` or by another program; None after a
        deletion. It is converted to the ``type`` of the read.

        Raises:
            InvalidArgument: if the value does not fit the type. The message names the bucket, the
                revision and the field.
        """
        value = self._decoded()
        return value if self._type is None or self.is_deleted else self._type.fit(self.revision, value)

    @property
    def payload(self) -> bytes | None:
        """The stored bytes, which other NATS clients see; None after a deletion."""
        value = self._decoded()
        return value if isinstance(value, bytes) else self._data

    def _decoded(self) -> Any:
        return None if self._data is None else decode(self._data)

    @property
    def time(self) -> datetime:
        """Time of the write."""
        return datetime.fromtimestamp(self._time_us / 1_000_000, UTC)

    def __repr__(self) -> str:
        return f"<Entry {self.key} {'deleted' if self.is_deleted else repr(self._decoded())} at {self.revision}>"


def _payload_of(value: Any, content: str) -> Any:
    """Return the stored form of a value: bytes unless ``content`` is "value"."""
    if content == "value":
        return value
    if content == "json":
        return json.dumps(value, separators=(",", ":")).encode()
    if content == "text" and isinstance(value, str):
        return value.encode()
    if content == "bytes" and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if content in ("text", "bytes"):
        raise InvalidArgument(
            f"value: a {type(value).__name__} is not allowed with content={content!r}: give {content}"
        )
    raise InvalidArgument(f'content: {content!r} is not allowed: give "value", "json", "text" or "bytes"')


class Bucket:
    """A key-value bucket; ``await node.kv(...)`` creates or opens one. Keys are subjects, such as
    ``limits.eu``.
    """

    _form: type[SyncBucket]

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self.name = name

    async def put(self, key: str, value: Any, *, ttl: float | None = None, content: str = "value") -> int:
        """Write a value to the disk, and return its revision.

        Args:
            key: The key.
            value: Any value that links can encode; at most 1 MiB.
            ttl: Seconds after which the entry expires.
            content: "json", "text" or "bytes" store the value in a form that other programs read.
                Reads return such a value as bytes.

        Raises:
            PayloadTooLarge: if it has more bytes than a NATS server accepts.
            StreamFull: if the bucket would exceed its ``max_bytes``.
            InvalidSubject: if the key is not allowed.
        """
        return await self._put(key, value, None, ttl, content)

    async def create(self, key: str, value: Any, *, ttl: float | None = None, content: str = "value") -> int:
        """Write a value if the key has none.

        Raises:
            RevisionConflict: if the key has a value.
        """
        return await self._put(key, value, 0, ttl, content)

    async def update(
        self, key: str, value: Any, *, revision: int, ttl: float | None = None, content: str = "value"
    ) -> int:
        """Write a value if the newest entry of the key has this revision.

        Raises:
            RevisionConflict: if the newest entry has another revision.
        """
        return await self._put(key, value, revision, ttl, content)

    async def _put(self, key: str, value: Any, expect: int | None, ttl: float | None, content: str) -> int:
        data = encode(_payload_of(value, content))
        revision: int = await self._home.call("put", self.name, key, data, expect, span_us("ttl", ttl))
        return revision

    async def get(self, key: str, revision: int | None = None, *, type: Any = None) -> Entry | None:
        """Return the entry of a key, the newest or that of a revision; None if there is no value.

        Args:
            key: The key.
            revision: The revision of the entry; None for the newest.
            type: The type of ``entry.value``, such as a dataclass or ``list[int]``. Bytes are read
                as JSON.
        """
        raw = await self._home.call("get", self.name, key, revision)
        return None if raw is None else Entry(raw, self._type(type))

    async def delete(self, key: str, *, revision: int | None = None, purge: bool = False) -> int:
        """Delete the value of a key, with ``purge`` also its history. Return the revision.

        Raises:
            RevisionConflict: if ``revision`` is not that of the newest entry.
        """
        deleted: int = await self._home.call("delete", self.name, key, revision, purge)
        return deleted

    async def keys(self, filter: str = ">") -> list[str]:
        """Return the keys that match a pattern and have a value, in order."""
        keys: list[str] = []
        while True:
            page = await self._home.call("keys", self.name, filter, keys[-1] if keys else None, 1_000)
            keys.extend(page)
            if len(page) < 1_000:
                return keys

    async def history(self, key: str, *, type: Any = None) -> list[Entry]:
        """Return the stored entries of a key, oldest first, deletions included; ``type`` as for
        ``get``.
        """
        kind = self._type(type)
        return [Entry(raw, kind) for raw in await self._home.call("history", self.name, key)]

    def watch(
        self, filter: str = ">", *, after: int = 0, type: Any = None, raise_on_outage: bool = False
    ) -> Pages[Entry]:
        """Iterate over the present entries and then the changes, at least the newest of each key.

        A cancelled read loses no entry: the next read continues. During an outage of the hub or
        the servers, a watch waits, and then resumes at its position.

        Args:
            filter: A pattern of keys.
            after: Only changes after this revision.
            type: The type of ``entry.value``, as for ``get``.
            raise_on_outage: True to raise HomeUnavailable during an outage instead.
        """
        kind, title = self._type(type), f"watch of bucket {self.name!r}"
        core = self._home.backend().watch(self._home.reader_options(title, raise_on_outage), self.name, filter, after)
        return Pages(self._home, core, lambda raw, _: Entry(raw, kind))

    def _type(self, kind: Any) -> ValueType | None:
        return value_type(f"bucket {self.name!r}: revision", kind)

    async def info(self) -> dict[str, Any]:
        """Return the settings of the bucket, and its numbers of keys and bytes."""
        info: dict[str, Any] = await self._home.call("bucket_info", self.name)
        return info

    async def purge(self) -> None:
        """Delete the bucket and all its entries."""
        await self._home.call("delete_bucket", self.name)

    def __repr__(self) -> str:
        return f"<Bucket {self.name}>"


class SyncBucket(Blocking[Bucket], form_of=Bucket):
    """A bucket for plain threads; ``node.sync.kv(...)`` creates or opens one."""

    name: str
    put = blocking(Bucket.put)
    create = blocking(Bucket.create)
    update = blocking(Bucket.update)
    get = blocking(Bucket.get)
    delete = blocking(Bucket.delete)
    keys = blocking(Bucket.keys)
