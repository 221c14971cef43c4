"""The commands ``tidewire stream``, ``kv``, ``log`` and ``crashtest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidewire.commands import stream as work

stream = typer.Typer(help="Streams of a data folder or of a hub.", no_args_is_help=True)
kv = typer.Typer(help="Key-value buckets of a data folder or of a hub.", no_args_is_help=True)
log = typer.Typer(help="The files of a data folder.", no_args_is_help=True)

Where = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=["TIDEWIRE_DATA", "TIDEWIRE_URL"],
        help="A data folder that no process has open, or the URL of a hub or of NATS.",
    ),
]
Name = Annotated[str, typer.Argument(help="Of the stream.")]
ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", help="Of the stream.")]
BucketName = Annotated[str, typer.Argument(help="Of the bucket.")]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]


@stream.command("ls")
def stream_ls(at: Where, json: Json = False) -> None:
    """List the streams."""
    raise typer.Exit(work.ls(at, json))


@stream.command("info")
def stream_info(
    name: Name,
    at: Where,
    watch: Annotated[bool, typer.Option("--watch", help="Show each change, until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Show a stream and its consumers, with their lag."""
    raise typer.Exit(work.info(at, name, watch, json))


@stream.command("pub")
def stream_pub(
    name: Name,
    subject: Annotated[str, typer.Argument(help="Where it goes.")],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    at: Where,
    id: Annotated[str | None, typer.Option("--id", help="Store it once.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option("--key", help="What it is about.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Publish a message, and print its ack."""
    raise typer.Exit(work.pub(at, name, subject, value, id, key, json))


@stream.command("read", epilog="Example: tidewire stream read orders --url data/ --since 1h --key 7 --grep failed")
def stream_read(
    name: Name,
    at: Where,
    start: Annotated[int, typer.Option("--start", min=0, help="The first sequence.")] = 0,
    stop: Annotated[int | None, typer.Option("--stop", help="The last.", show_default=False)] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="Which subjects.", show_default=False)] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="1h, or a time with its zone.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="As --since, for the end.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only events with it.", show_default=False)] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", help="Only events whose line of text has this regular expression.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
    json: Json = False,
) -> None:
    """Print events. Keeps no state."""
    only = {"since": since, "until": until, "key": key, "grep": grep}
    raise typer.Exit(work.read(at, name, start, stop, filter, follow, json, **only))


@stream.command("sub")
def stream_sub(
    name: Name,
    at: Where,
    filter: Annotated[str | None, typer.Option("--filter", help="Which subjects.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Print what is published from now on, until Ctrl-C."""
    raise typer.Exit(work.read(at, name, "new", None, filter, True, json))


@stream.command("purge")
def stream_purge(
    name: Name,
    at: Where,
    before: Annotated[int | None, typer.Option("--before", help="Events before it.", show_default=False)] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="All but so many.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Remove events: all, or those that the options say."""
    raise typer.Exit(work.purge(at, name, before, keep, json))


@stream.command("schedules")
def stream_schedules(name: Name, at: Where, json: Json = False) -> None:
    """List the schedules of a stream, with their next beats."""
    raise typer.Exit(work.schedules(at, name, json))


@stream.command("schedule", epilog='Example: tidewire stream schedule orders nightly "0 22 * * 1-5" reports.due {}')
def stream_schedule(
    name: Name,
    schedule: Annotated[str, typer.Argument(help="Its name.")],
    when: Annotated[str, typer.Argument(help='Such as "0 22 * * 1-5", @daily, "@every 30s".')],
    subject: Annotated[str, typer.Argument(help="Where its beats go.")],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    at: Where,
    key: Annotated[str | None, typer.Option("--key", help="What they are about.", show_default=False)] = None,
    time_zone: Annotated[str, typer.Option("--time-zone", help="Such as Europe/Berlin.")] = "UTC",
    json: Json = False,
) -> None:
    """Have the storage backend publish a message again and again; a schedule of the same name is
    replaced if it differs.
    """
    raise typer.Exit(work.schedule(at, name, (schedule, when, subject, value), key, time_zone, json))


@stream.command("unschedule")
def stream_unschedule(
    name: Name, schedule: Annotated[str, typer.Argument(help="Its name.")], at: Where, json: Json = False
) -> None:
    """Cancel a schedule; exit code 1 if there is none."""
    raise typer.Exit(work.unschedule(at, name, schedule, json))


@stream.command("rm")
def stream_rm(name: Name, at: Where, json: Json = False) -> None:
    """Delete a stream with its consumers and dead letters."""
    raise typer.Exit(work.rm(at, name, json))


@stream.command("dead", epilog="Example: tidewire stream dead orders billing --url data/")
def stream_dead(
    name: Name,
    consumer: ConsumerName,
    at: Where,
    start: Annotated[int, typer.Option("--start", min=0, help="The first sequence.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 100,
    json: Json = False,
) -> None:
    """List the dead letters of a consumer: events that it has given up."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.dead(at, name, consumer, start, limit, json))


@stream.command("requeue", epilog="Example: tidewire stream requeue orders billing 17 --url tide://127.0.0.1:7420")
def stream_requeue(
    name: Name,
    consumer: ConsumerName,
    at: Where,
    sequences: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQUENCE]...", help="Which dead letters; all if none is named.")
    ] = None,
    json: Json = False,
) -> None:
    """Deliver dead letters anew; exit code 1 if there were none."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.requeue(at, name, consumer, sequences or [], json))


@stream.command("drop-dead", epilog="Example: tidewire stream drop-dead orders billing 17 --url data/")
def stream_drop_dead(
    name: Name,
    consumer: ConsumerName,
    at: Where,
    sequences: Annotated[list[int], typer.Argument(metavar="SEQUENCE...", help="Which dead letters.")],
    json: Json = False,
) -> None:
    """Forget dead letters; exit code 1 if there were none."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.drop_dead(at, name, consumer, sequences, json))


@stream.command("pause")
def stream_pause(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Deliver nothing more to a consumer, until it is resumed."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.pause(at, name, consumer, json))


@stream.command("resume")
def stream_resume(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Let a paused consumer go on."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.resume(at, name, consumer, json))


@stream.command("seek", epilog="Example: tidewire stream seek orders billing 2026-11-23T21:00:00Z --url data/")
def stream_seek(
    name: Name,
    consumer: ConsumerName,
    to: Annotated[str, typer.Argument(metavar="TO", help="new, all, a sequence, or a time with its zone.")],
    at: Where,
    json: Json = False,
) -> None:
    """Let a consumer go on at another place. Pending deliveries are forgotten."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.seek(at, name, consumer, to, json))


@stream.command("rm-consumer")
def stream_rm_consumer(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Delete a consumer with its dead letters."""
    from tidewire.commands import consumer as consumers

    raise typer.Exit(consumers.rm(at, name, consumer, json))


@kv.command("ls")
def kv_ls(
    at: Where,
    name: Annotated[str | None, typer.Argument(help="A bucket, for its keys.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the buckets, or the keys of one."""
    raise typer.Exit(work.kv_ls(at, name, json))


@kv.command("get")
def kv_get(name: BucketName, key: Annotated[str, typer.Argument()], at: Where, json: Json = False) -> None:
    """Print the value of a key; exit code 1 if it has none."""
    raise typer.Exit(work.kv_get(at, name, key, json))


@kv.command("put")
def kv_put(
    name: BucketName,
    key: Annotated[str, typer.Argument()],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    at: Where,
    json: Json = False,
) -> None:
    """Write a value, and print its revision."""
    raise typer.Exit(work.kv_put(at, name, key, value, json))


@kv.command("watch")
def kv_watch(
    name: BucketName,
    at: Where,
    filter: Annotated[str, typer.Option("--filter", help="Which keys.")] = ">",
    json: Json = False,
) -> None:
    """Print what is there and every change, until Ctrl-C."""
    raise typer.Exit(work.kv_watch(at, name, filter, json))


@kv.command("rm")
def kv_rm(name: BucketName, key: Annotated[str, typer.Argument()], at: Where, json: Json = False) -> None:
    """Delete the value of a key."""
    raise typer.Exit(work.kv_rm(at, name, key, json))


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The data folder.")]


@log.command("check")
def log_check(folder: Folder, json: Json = False) -> None:
    """Read every file of a data folder, and say what it holds; exit code 1 if one is damaged.
    Changes nothing.
    """
    raise typer.Exit(work.check(folder, json))


@log.command("salvage")
def log_salvage(
    folder: Folder,
    into: Annotated[Path, typer.Option("--into", help="A new data folder.", file_okay=False)],
    json: Json = False,
) -> None:
    """Publish every whole event of a damaged folder into streams of a new one. Changes nothing in
    the damaged one.
    """
    raise typer.Exit(work.salvage(folder, into, json))


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
