"""The commands ``tidewire stream``, ``tidewire log`` and ``tidewire crashtest``."""

from __future__ import annotations

import json as jsonlib
import re
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import tidewire as tw
from tidewire._binding import check_folder, salvage_folder
from tidewire.commands.consumer import data_of, existing, line_of, requeue_all, start_of
from tidewire.commands.output import fail, option
from tidewire.commands.place import (
    Json,
    Letters,
    LettersOrAll,
    Node,
    moment,
    require_data_folder,
    say,
    value_of,
    with_node,
)

stream = typer.Typer(help="Streams of a data folder or of a hub.", no_args_is_help=True)
log = typer.Typer(help="The files of a data folder.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Of the stream.")]
ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", help="Of the stream.")]
Filter = Annotated[str | None, option("--filter", "Which subjects.")]
_WATCH_S = 1.0


@stream.command("ls")
@with_node
async def stream_ls(node: Node, as_json: bool) -> None:
    """List the streams."""
    infos = await node.streams()
    lines = [f"{i.name}  {i.messages} events  {i.bytes} bytes  {i.consumers} consumers  {i.dead} dead" for i in infos]
    say(as_json, [asdict(info) for info in infos], "\n".join(lines) or "no streams")


@stream.command("info")
@with_node
async def stream_info(
    node: Node,
    as_json: bool,
    name: Name,
    watch: Annotated[bool, typer.Option("--watch", help="Show each change, until Ctrl-C.")] = False,
) -> None:
    """Show a stream and its consumers, with their lag."""
    import asyncio

    stream, shown = await node.find_stream(name), None
    while True:
        info, consumers = await stream.info(), await stream.consumers()
        if (info, consumers) != shown:
            shown = info, consumers
            _show_info(*shown, as_json)
        if not watch:
            return
        await asyncio.sleep(_WATCH_S)


@stream.command("pub")
@with_node
async def stream_pub(
    node: Node,
    as_json: bool,
    name: Name,
    subject: Annotated[str, typer.Argument(help="Where it goes.")],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    id: Annotated[str | None, option("--id", "Store it once.")] = None,
    key: Annotated[str | None, option("--key", "What it is about.")] = None,
) -> None:
    """Publish a message, and print its ack."""
    stream = await node.find_stream(name)
    ack = await stream.publish(subject, value_of(value), id=id, key=key)
    again = " (it was there)" if ack.duplicate else ""
    say(as_json, ack._asdict(), f"{ack.sequence} on {ack.durability}{again}")


@stream.command("read", epilog="Example: tidewire stream read orders --url data/ --since 1h --key 7 --grep failed")
@with_node
async def stream_read(
    node: Node,
    as_json: bool,
    name: Name,
    start: Annotated[int, typer.Option("--start", min=0, help="The first sequence.")] = 0,
    stop: Annotated[int | None, option("--stop", "The last.")] = None,
    filter: Filter = None,
    since: Annotated[str | None, option("--since", "1h, or a time with its zone.")] = None,
    until: Annotated[str | None, option("--until", "As --since, for the end.")] = None,
    key: Annotated[str | None, option("--key", "Only events with it.")] = None,
    grep: Annotated[str | None, option("--grep", "Only events whose line of text has this regular expression.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
) -> None:
    """Print events. Keeps no state."""
    begin, end = (moment(f"--{field}", text) if text else None for field, text in (("since", since), ("until", until)))
    pattern = _pattern(grep)
    of = await node.find_stream(name)
    async for event in of.read(begin or start, stop, () if filter is None else filter, follow):
        if end and event.time > end:
            break
        line = _line(event)
        if key in (None, event.key) and pattern.search(line):
            say(as_json, _data(event), line)


@stream.command("sub")
@with_node
async def stream_sub(node: Node, as_json: bool, name: Name, filter: Filter = None) -> None:
    """Print what is published from now on, until Ctrl-C."""
    of = await node.find_stream(name)
    async for event in of.read("new", None, () if filter is None else filter, follow=True):
        say(as_json, _data(event), _line(event))


@stream.command("purge")
@with_node
async def stream_purge(
    node: Node,
    as_json: bool,
    name: Name,
    before: Annotated[int | None, option("--before", "Events before it.")] = None,
    keep: Annotated[int | None, option("--keep", "All but so many.")] = None,
) -> None:
    """Remove events: all, or those that the options say."""
    purged = await (await node.find_stream(name)).purge(before=before, keep=keep)
    say(as_json, {"purged": purged}, f"{purged} events removed")


@stream.command("schedules")
@with_node
async def stream_schedules(node: Node, as_json: bool, name: Name) -> None:
    """List the schedules of a stream, with their next beats."""
    schedules = await (await node.find_stream(name)).schedules()
    lines = [f"{s.name}  {s.when} ({s.time_zone})  {s.subject}  next {s.next_time}" for s in schedules]
    say(as_json, [_schedule(one) for one in schedules], "\n".join(lines) or "no schedules")


@stream.command("schedule", epilog='Example: tidewire stream schedule orders nightly "0 22 * * 1-5" reports.due {}')
@with_node
async def stream_schedule(
    node: Node,
    as_json: bool,
    name: Name,
    schedule: Annotated[str, typer.Argument(help="Its name.")],
    when: Annotated[str, typer.Argument(help='Such as "0 22 * * 1-5", @daily, "@every 30s".')],
    subject: Annotated[str, typer.Argument(help="Where its beats go.")],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    key: Annotated[str | None, option("--key", "Key of its events.")] = None,
    time_zone: Annotated[str, typer.Option("--time-zone", help="Such as Europe/Berlin.")] = "UTC",
) -> None:
    """Have the storage backend publish a message again and again; a schedule of the same name is
    replaced if it differs.
    """
    stream = await node.find_stream(name)
    created = await stream.schedule(schedule, when, subject, value_of(value), key=key, time_zone=time_zone)
    say(
        as_json,
        {**_schedule(created), "change": created.change},
        f"{created.name} {created.change}, next {created.next_time}",
    )


@stream.command("unschedule")
@with_node
async def stream_unschedule(
    node: Node, as_json: bool, name: Name, schedule: Annotated[str, typer.Argument(help="Its name.")]
) -> int:
    """Cancel a schedule; exit code 1 if there is none."""
    cancelled = await (await node.find_stream(name)).cancel_schedule(schedule)
    say(as_json, {"cancelled": cancelled}, f"{schedule} cancelled" if cancelled else f"{schedule}: there is none")
    return 0 if cancelled else 1


@stream.command("rm")
@with_node
async def stream_rm(node: Node, as_json: bool, name: Name) -> None:
    """Delete a stream with its consumers and dead letters."""
    await (await node.find_stream(name)).delete()
    say(as_json, {"deleted": name}, f"{name} deleted")


@stream.command("dead", epilog="Example: tidewire stream dead orders billing --url data/")
@with_node
async def stream_dead(
    node: Node,
    as_json: bool,
    name: Name,
    consumer: ConsumerName,
    start: Annotated[int, typer.Option("--start", min=0, help="The first sequence.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 100,
) -> None:
    """List the dead letters of a consumer: events that it has given up."""
    letters = await (await existing(node, name, consumer)).dead_letters(start, limit)
    say(as_json, [data_of(one) for one in letters], "\n".join(map(line_of, letters)) or "no dead letters")


@stream.command("requeue", epilog="Example: tidewire stream requeue orders billing 17 --url tide://127.0.0.1:7420")
@with_node
async def stream_requeue(
    node: Node, as_json: bool, name: Name, consumer: ConsumerName, sequences: LettersOrAll = None
) -> int:
    """Deliver dead letters anew; exit code 1 if there were none."""
    of = await existing(node, name, consumer)
    count = await of.requeue(*sequences) if sequences else await requeue_all(of)
    say(as_json, {"requeued": count}, f"{consumer}: {count} requeued")
    return 0 if count else 1


@stream.command("drop-dead", epilog="Example: tidewire stream drop-dead orders billing 17 --url data/")
@with_node
async def stream_drop_dead(node: Node, as_json: bool, name: Name, consumer: ConsumerName, sequences: Letters) -> int:
    """Forget dead letters; exit code 1 if there were none."""
    count = await (await existing(node, name, consumer)).drop_dead(*sequences)
    say(as_json, {"dropped": count}, f"{consumer}: {count} dropped")
    return 0 if count else 1


@stream.command("pause")
@with_node
async def stream_pause(node: Node, as_json: bool, name: Name, consumer: ConsumerName) -> None:
    """Deliver nothing more to a consumer, until it is resumed."""
    await (await existing(node, name, consumer)).pause()
    say(as_json, {"paused": True}, f"{consumer} is paused")


@stream.command("resume")
@with_node
async def stream_resume(node: Node, as_json: bool, name: Name, consumer: ConsumerName) -> None:
    """Let a paused consumer go on."""
    await (await existing(node, name, consumer)).resume()
    say(as_json, {"paused": False}, f"{consumer} goes on")


@stream.command("seek", epilog="Example: tidewire stream seek orders billing 2026-11-23T21:00:00Z --url data/")
@with_node
async def stream_seek(
    node: Node,
    as_json: bool,
    name: Name,
    consumer: ConsumerName,
    to: Annotated[str, typer.Argument(metavar="TO", help="new, all, a sequence, or a time with its zone.")],
) -> None:
    """Let a consumer go on at another place. Pending deliveries are forgotten."""
    of = await existing(node, name, consumer)
    start = start_of(to)
    await of.seek(start)
    shown = start.isoformat() if isinstance(start, datetime) else start
    say(as_json, {"start": shown}, f"{consumer} goes on at {shown}")


@stream.command("rm-consumer")
@with_node
async def stream_rm_consumer(node: Node, as_json: bool, name: Name, consumer: ConsumerName) -> None:
    """Delete a consumer with its dead letters."""
    await (await existing(node, name, consumer)).delete()
    say(as_json, {"deleted": consumer}, f"{consumer} deleted")


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The data folder.")]


@log.command("check")
def log_check(folder: Folder, json: Json = False) -> None:
    """Read every file of a data folder, and say what it holds; exit code 1 if one is damaged.
    Changes nothing.
    """
    try:
        require_data_folder("FOLDER", folder)
        files = check_folder(str(folder))
    except tw.TidewireError as error:
        raise typer.Exit(fail(error, json)) from None
    for file in [] if json else files:
        torn = f"; the last write was torn: {file['torn_bytes']} bytes" if file["torn_bytes"] else ""
        state = f"DAMAGED: {file['damage']}" if file["damage"] else f"whole{torn}"
        print(f"{file['file']}: {file['records']} records in {file['groups']} writes, {file['bytes']} bytes, {state}")
    if json:
        print(jsonlib.dumps(files))
    raise typer.Exit(1 if any(file["damage"] for file in files) else 0)


@log.command("salvage")
def log_salvage(
    folder: Folder,
    into: Annotated[Path, typer.Option("--into", help="A new data folder.", file_okay=False)],
    json: Json = False,
) -> None:
    """Publish every whole event of a damaged folder into streams of a new one. Changes nothing in
    the damaged one.
    """
    try:
        require_data_folder("FOLDER", folder)
        count = salvage_folder(str(folder), str(into))
    except tw.TidewireError as error:
        raise typer.Exit(fail(error, json)) from None
    say(json, {"rescued": count}, f"{count} events rescued into {into}; consumers, schedules, keys and leases are not")


@log.command("backup", epilog="Example: tidewire log backup data/ /backups/monday")
def log_backup(
    folder: Folder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new or empty folder.", file_okay=False)],
    json: Json = False,
) -> None:
    """Copy a data folder while it is written, and check the copy. All acked before is in it."""
    _copy(folder, target, json)


@log.command("restore", epilog="Example: tidewire log restore /backups/monday data/")
def log_restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Of `tidewire log backup`.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.", file_okay=False)],
    json: Json = False,
) -> None:
    """Copy a backup into a new data folder, and check it. A hub can't open an unfinished copy."""
    _copy(backup, folder, json)


def _copy(source: Path, target: Path, json: bool) -> None:
    from tidewire.commands.backup import copy_folder

    try:
        totals = copy_folder(source, target)
    except tw.TidewireError as error:
        raise typer.Exit(fail(error, json)) from None
    say(json, totals, f"{target}: {totals['files']} files, {totals['bytes']} bytes, all whole")


def crashtest(
    data: Annotated[
        Path, typer.Option("--data", help="A folder for the test; it must be empty or new.", file_okay=False)
    ],
    kills: Annotated[int, typer.Option("--kills", min=1, help="How often the writer is killed.")] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Of the moments of the kills.")] = 1,
    json: Json = False,
) -> None:
    """Publish, kill -9 the writer at random, again and again; then look that all that was acked is
    there, in order, once.
    """
    from tidewire.commands.crashtest import crashtest

    raise typer.Exit(crashtest(data, kills, seed, json))


def _show_info(info: Any, consumers: list[Any], as_json: bool) -> None:
    limits = ", ".join(f"{key}={value}" for key, value in info.settings.items())
    lines = [
        f"{info.name}: {', '.join(info.subjects)}; {limits}",
        f"{info.messages} events, {info.first} to {info.last}, {info.bytes} bytes, {info.delayed} delayed",
    ]
    lines += [
        f"{c.name}: lag {c.lag}, out {c.in_flight}, waiting {c.waiting}, dead {c.dead}, redelivered {c.redelivered}"
        f"{', paused' if c.is_paused else ''}"
        for c in consumers
    ]
    say(as_json, {**asdict(info), "consumers": [asdict(c) for c in consumers]}, "\n".join(lines))


def _schedule(one: tw.Schedule) -> dict[str, Any]:
    data = {"name": one.name, "when": one.when, "time_zone": one.time_zone, "subject": one.subject, "key": one.key}
    return {**data, "value": one.value, "headers": one.headers, "ttl": one.ttl, "next_time": one.next_time}


def _data(event: tw.Event) -> dict[str, Any]:
    data = {"sequence": event.sequence, "subject": event.subject, "time": event.time.isoformat()}
    return data | {"key": event.key, "id": event.id, "headers": event.headers, "value": event.value}


def _line(event: tw.Event) -> str:
    key = "" if event.key is None else f" [{event.key}]"
    return f"{event.sequence} {event.time:%H:%M:%S.%f} {event.subject}{key} {event.value!r}"


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise tw.InvalidArgument(f"--grep: {text!r} is no regular expression: {error}: correct it") from None
