"""The commands ``tidewire stream``, ``tidewire kv`` and ``tidewire log``, as the command line calls
them.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tidewire as tw
from tidewire._binding import check_folder, salvage_folder
from tidewire._node.folder_socket import SOCKET
from tidewire.commands.output import fail
from tidewire.top.sockets import is_stale

_WATCH_S = 1.0


def run_at(at: str, as_json: bool, work: Callable[[tw.Node], Awaitable[int]]) -> int:
    """Do something with a node whose streams are there, and return the exit code: that of
    ``fail`` after an error, 130 after Ctrl-C.
    """
    import asyncio

    async def main() -> int:
        async with node_at(at) as node:
            return await work(node)

    try:
        if "://" not in at:
            require_data_folder("url", Path(at), ", or the URL of a hub or of NATS")
        return asyncio.run(main())
    except tw.TidewireError as error:
        return fail(error, as_json)
    except KeyboardInterrupt:
        return 130


def node_at(at: str) -> tw.Node:
    """Return a node whose streams are at a URL or in a folder. While a program has the folder open,
    the node joins the socket of that program.
    """
    if "://" in at:
        return tw.Node(at)
    socket = Path(at).resolve() / SOCKET
    return tw.Node(f"tide+unix://{socket}") if socket.exists() and not is_stale(socket) else tw.Node(data=at)


def require_data_folder(field: str, path: Path, or_else: str = "") -> None:
    """Raise NotFound if no program has stored anything at this path: a node would make a data
    folder there.
    """
    if not any(any(path.glob(pattern)) for pattern in ("state/*.log", "streams/*/*.log")):
        raise tw.NotFound(
            f"{field}: there is no data folder at {str(path)!r}; "
            f"give the folder of tw.Node(data=...) or of `tidewire up --data`{or_else}"
        )


def say(as_json: bool, data: Any, text: str) -> None:
    print(json.dumps(data, default=str) if as_json else text, flush=True)


def ls(at: str, as_json: bool) -> int:
    """List streams."""

    async def work(node: tw.Node) -> int:
        infos = await node.streams()
        lines = [
            f"{i.name}  {i.messages} events  {i.bytes} bytes  {i.consumers} consumers  {i.dead} dead" for i in infos
        ]
        say(as_json, [asdict(info) for info in infos], "\n".join(lines) or "no streams")
        return 0

    return run_at(at, as_json, work)


def info(at: str, name: str, watch: bool, as_json: bool) -> int:
    """Show a stream; with ``watch`` again after each change, until Ctrl-C."""
    import asyncio

    async def work(node: tw.Node) -> int:
        stream, shown = await node.find_stream(name), None
        while True:
            found, consumers = await stream.info(), await stream.consumers()
            if (found, consumers) != shown:
                shown = found, consumers
                _show_info(*shown, as_json)
            if not watch:
                return 0
            await asyncio.sleep(_WATCH_S)

    return run_at(at, as_json, work)


def _show_info(found: Any, consumers: list[Any], as_json: bool) -> None:
    limits = ", ".join(f"{key}={value}" for key, value in found.settings.items())
    lines = [
        f"{found.name}: {', '.join(found.subjects)}; {limits}",
        f"{found.messages} events, {found.first} to {found.last}, {found.bytes} bytes, {found.delayed} delayed",
    ]
    lines += [
        f"{c.name}: lag {c.lag}, out {c.in_flight}, waiting {c.waiting}, dead {c.dead}, redelivered {c.redelivered}"
        f"{', paused' if c.is_paused else ''}"
        for c in consumers
    ]
    say(as_json, {**asdict(found), "consumers": [asdict(c) for c in consumers]}, "\n".join(lines))


def pub(at: str, name: str, subject: str, value: str, id: str | None, key: str | None, as_json: bool) -> int:
    """Publish a message."""

    async def work(node: tw.Node) -> int:
        stream = await node.find_stream(name)
        ack = await stream.publish(subject, _value(value), id=id, key=key)
        again = " (it was there)" if ack.duplicate else ""
        say(as_json, ack._asdict(), f"{ack.sequence} on {ack.durability}{again}")
        return 0

    return run_at(at, as_json, work)


def read(
    at: str,
    name: str,
    start: Any,
    stop: int | None,
    filter: str | None,
    follow: bool,
    as_json: bool,
    **only: str | None,
) -> int:
    """Print events. The keyword arguments choose some: ``since``, ``until``, ``key``, ``grep``."""

    async def work(node: tw.Node) -> int:
        since, until = (moment(f"--{one}", text) if (text := only.get(one)) else None for one in ("since", "until"))
        pattern = _pattern(only.get("grep"))
        stream = await node.find_stream(name)
        async for event in stream.read(since or start, stop, () if filter is None else filter, follow):
            if until and event.time > until:
                break
            data = {"sequence": event.sequence, "subject": event.subject, "time": event.time.isoformat()}
            data |= {"key": event.key, "id": event.id, "headers": event.headers, "value": event.value}
            key = "" if event.key is None else f" [{event.key}]"
            line = f"{event.sequence} {event.time:%H:%M:%S.%f} {event.subject}{key} {event.value!r}"
            if only.get("key") in (None, event.key) and pattern.search(line):
                say(as_json, data, line)
        return 0

    return run_at(at, as_json, work)


def purge(at: str, name: str, before: int | None, keep: int | None, as_json: bool) -> int:
    """Remove events."""

    async def work(node: tw.Node) -> int:
        purged = await (await node.find_stream(name)).purge(before=before, keep=keep)
        say(as_json, {"purged": purged}, f"{purged} events removed")
        return 0

    return run_at(at, as_json, work)


def schedules(at: str, name: str, as_json: bool) -> int:
    """List the schedules of a stream."""

    async def work(node: tw.Node) -> int:
        found = await (await node.find_stream(name)).schedules()
        lines = [f"{s.name}  {s.when} ({s.time_zone})  {s.subject}  next {s.next_time}" for s in found]
        say(as_json, [_schedule(one) for one in found], "\n".join(lines) or "no schedules")
        return 0

    return run_at(at, as_json, work)


def schedule(
    at: str, name: str, given: tuple[str, str, str, str], key: str | None, time_zone: str, as_json: bool
) -> int:
    """Make or replace a schedule: its name, its expression, its subject and its value."""
    named, when, subject, value = given

    async def work(node: tw.Node) -> int:
        stream = await node.find_stream(name)
        made = await stream.schedule(named, when, subject, _value(value), key=key, time_zone=time_zone)
        say(as_json, {**_schedule(made), "change": made.change}, f"{made.name} {made.change}, next {made.next_time}")
        return 0

    return run_at(at, as_json, work)


def unschedule(at: str, name: str, named: str, as_json: bool) -> int:
    """Cancel a schedule."""

    async def work(node: tw.Node) -> int:
        cancelled = await (await node.find_stream(name)).cancel_schedule(named)
        say(as_json, {"cancelled": cancelled}, f"{named} cancelled" if cancelled else f"{named}: there is none")
        return 0 if cancelled else 1

    return run_at(at, as_json, work)


def _schedule(one: tw.Schedule) -> dict[str, Any]:
    data = {"name": one.name, "when": one.when, "time_zone": one.time_zone, "subject": one.subject, "key": one.key}
    return {**data, "value": one.value, "headers": one.headers, "ttl": one.ttl, "next_time": one.next_time}


def rm(at: str, name: str, as_json: bool) -> int:
    """Delete a stream."""

    async def work(node: tw.Node) -> int:
        await (await node.find_stream(name)).delete()
        say(as_json, {"deleted": name}, f"{name} deleted")
        return 0

    return run_at(at, as_json, work)


def kv_ls(at: str, name: str | None, as_json: bool) -> int:
    """List buckets, or keys."""

    async def work(node: tw.Node) -> int:
        if name is None:
            infos = await node.buckets()
            lines = [f"{info['name']}  {info['keys']} keys  {info['bytes']} bytes" for info in infos]
            say(as_json, infos, "\n".join(lines) or "no buckets")
            return 0
        keys = await (await node.find_kv(name)).keys()
        say(as_json, keys, "\n".join(keys))
        return 0

    return run_at(at, as_json, work)


def kv_get(at: str, name: str, key: str, as_json: bool) -> int:
    """Print a value."""

    async def work(node: tw.Node) -> int:
        entry = await (await node.find_kv(name)).get(key)
        if entry is None:
            say(as_json, None, f"{key} has no value")
            return 1
        say(as_json, {"key": key, "value": entry.value, "revision": entry.revision}, repr(entry.value))
        return 0

    return run_at(at, as_json, work)


def kv_put(at: str, name: str, key: str, value: str, as_json: bool) -> int:
    """Write a value."""

    async def work(node: tw.Node) -> int:
        revision = await (await node.find_kv(name)).put(key, _value(value))
        say(as_json, {"revision": revision}, f"revision {revision}")
        return 0

    return run_at(at, as_json, work)


def kv_watch(at: str, name: str, filter: str, as_json: bool) -> int:
    """Print changes."""

    async def work(node: tw.Node) -> int:
        async for entry in (await node.find_kv(name)).watch(filter):
            data = {"key": entry.key, "value": entry.value, "revision": entry.revision, "deleted": entry.is_deleted}
            say(as_json, data, f"{entry.revision} {entry.key} {'deleted' if entry.is_deleted else repr(entry.value)}")
        return 0

    return run_at(at, as_json, work)


def kv_rm(at: str, name: str, key: str, as_json: bool) -> int:
    """Delete a value."""

    async def work(node: tw.Node) -> int:
        revision = await (await node.find_kv(name)).delete(key)
        say(as_json, {"revision": revision}, f"{key} deleted")
        return 0

    return run_at(at, as_json, work)


def check(folder: Path, as_json: bool) -> int:
    """Look at every file."""
    try:
        require_data_folder("FOLDER", folder)
        files = check_folder(str(folder))
    except tw.TidewireError as error:
        return fail(error, as_json)
    for file in [] if as_json else files:
        torn = f"; the last write was torn: {file['torn_bytes']} bytes" if file["torn_bytes"] else ""
        state = f"DAMAGED: {file['damage']}" if file["damage"] else f"whole{torn}"
        print(f"{file['file']}: {file['records']} records in {file['groups']} writes, {file['bytes']} bytes, {state}")
    if as_json:
        print(json.dumps(files))
    return 1 if any(file["damage"] for file in files) else 0


def salvage(folder: Path, into: Path, as_json: bool) -> int:
    """Rescue what is whole."""
    try:
        require_data_folder("FOLDER", folder)
        count = salvage_folder(str(folder), str(into))
    except tw.TidewireError as error:
        return fail(error, as_json)
    say(
        as_json,
        {"rescued": count},
        f"{count} events rescued into {into}; consumers, schedules, keys and leases are not",
    )
    return 0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def moment(field: str, text: str, others: str = "") -> datetime:
    """Return the time of ``90s``, ``30m``, ``1h`` or ``2d`` ago, or of a time with its zone."""
    if (ago := re.fullmatch(r"(\d{1,9})([smhd])", text)) is not None:
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[ago[2]])
    with contextlib.suppress(ValueError):
        if (time := datetime.fromisoformat(text)).tzinfo is not None:
            return time
    raise tw.InvalidArgument(
        f"{field}: {text!r} is not allowed: give {others}a time with its zone, such as 2026-11-23T21:00:00Z, "
        "or 1h for an hour ago"
    )


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise tw.InvalidArgument(f"--grep: {text!r} is no regular expression: {error}: mend it there") from None
