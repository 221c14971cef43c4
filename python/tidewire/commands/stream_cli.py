"""The commands ``tidewire stream``, ``kv``, ``log`` and ``crashtest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    from tidewire.commands import stream

    raise typer.Exit(stream.ls(at, json))


@stream.command("info")
def stream_info(name: Name, at: Where, json: Json = False) -> None:
    """Show a stream and its consumers, with their lag."""
    from tidewire.commands import stream

    raise typer.Exit(stream.info(at, name, json))


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
    from tidewire.commands import stream

    raise typer.Exit(stream.pub(at, name, subject, value, id, key, json))


@stream.command("read")
def stream_read(
    name: Name,
    at: Where,
    start: Annotated[int, typer.Option("--start", min=0, help="The first sequence.")] = 0,
    stop: Annotated[int | None, typer.Option("--stop", help="The last.", show_default=False)] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="Which subjects.", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
    json: Json = False,
) -> None:
    """Print events. Keeps no state."""
    from tidewire.commands import stream

    raise typer.Exit(stream.read(at, name, start, stop, filter, follow, json))


@stream.command("sub")
def stream_sub(
    name: Name,
    at: Where,
    filter: Annotated[str | None, typer.Option("--filter", help="Which subjects.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Print what is published from now on, until Ctrl-C."""
    from tidewire.commands import stream

    raise typer.Exit(stream.read(at, name, None, None, filter, True, json))


@stream.command("purge")
def stream_purge(
    name: Name,
    at: Where,
    before: Annotated[int | None, typer.Option("--before", help="Events before it.", show_default=False)] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="All but so many.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Remove events: all, or those that the options say."""
    from tidewire.commands import stream

    raise typer.Exit(stream.purge(at, name, before, keep, json))


@stream.command("schedules")
def stream_schedules(name: Name, at: Where, json: Json = False) -> None:
    """List the schedules of a stream, with their next beats."""
    from tidewire.commands import stream

    raise typer.Exit(stream.schedules(at, name, json))


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
    from tidewire.commands import stream

    raise typer.Exit(stream.schedule(at, name, (schedule, when, subject, value), key, time_zone, json))


@stream.command("unschedule")
def stream_unschedule(
    name: Name, schedule: Annotated[str, typer.Argument(help="Its name.")], at: Where, json: Json = False
) -> None:
    """Cancel a schedule; exit code 1 if there is none."""
    from tidewire.commands import stream

    raise typer.Exit(stream.unschedule(at, name, schedule, json))


@stream.command("rm")
def stream_rm(name: Name, at: Where, json: Json = False) -> None:
    """Delete a stream with its consumers and dead letters."""
    from tidewire.commands import stream

    raise typer.Exit(stream.rm(at, name, json))


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
    from tidewire.commands import consumer as work

    raise typer.Exit(work.dead(at, name, consumer, start, limit, json))


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
    from tidewire.commands import consumer as work

    raise typer.Exit(work.requeue(at, name, consumer, sequences or [], json))


@stream.command("drop-dead", epilog="Example: tidewire stream drop-dead orders billing 17 --url data/")
def stream_drop_dead(
    name: Name,
    consumer: ConsumerName,
    at: Where,
    sequences: Annotated[list[int], typer.Argument(metavar="SEQUENCE...", help="Which dead letters.")],
    json: Json = False,
) -> None:
    """Forget dead letters; exit code 1 if there were none."""
    from tidewire.commands import consumer as work

    raise typer.Exit(work.drop_dead(at, name, consumer, sequences, json))


@stream.command("pause")
def stream_pause(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Deliver nothing more to a consumer, until it is resumed."""
    from tidewire.commands import consumer as work

    raise typer.Exit(work.pause(at, name, consumer, json))


@stream.command("resume")
def stream_resume(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Let a paused consumer go on."""
    from tidewire.commands import consumer as work

    raise typer.Exit(work.resume(at, name, consumer, json))


@stream.command("seek", epilog="Example: tidewire stream seek orders billing 2026-11-23T21:00:00Z --url data/")
def stream_seek(
    name: Name,
    consumer: ConsumerName,
    to: Annotated[str, typer.Argument(metavar="TO", help="new, all, a sequence, or a time with its zone.")],
    at: Where,
    json: Json = False,
) -> None:
    """Let a consumer go on at another place. Pending deliveries are forgotten."""
    from tidewire.commands import consumer as work

    raise typer.Exit(work.seek(at, name, consumer, to, json))


@stream.command("rm-consumer")
def stream_rm_consumer(name: Name, consumer: ConsumerName, at: Where, json: Json = False) -> None:
    """Delete a consumer with its dead letters."""
    from tidewire.commands import consumer as work

    raise typer.Exit(work.rm(at, name, consumer, json))


@kv.command("ls")
def kv_ls(
    at: Where,
    name: Annotated[str | None, typer.Argument(help="A bucket, for its keys.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the buckets, or the keys of one."""
    from tidewire.commands import stream

    raise typer.Exit(stream.kv_ls(at, name, json))


@kv.command("get")
def kv_get(name: BucketName, key: Annotated[str, typer.Argument()], at: Where, json: Json = False) -> None:
    """Print the value of a key; exit code 1 if it has none."""
    from tidewire.commands import stream

    raise typer.Exit(stream.kv_get(at, name, key, json))


@kv.command("put")
def kv_put(
    name: BucketName,
    key: Annotated[str, typer.Argument()],
    value: Annotated[str, typer.Argument(help="JSON, or text.")],
    at: Where,
    json: Json = False,
) -> None:
    """Write a value, and print its revision."""
    from tidewire.commands import stream

    raise typer.Exit(stream.kv_put(at, name, key, value, json))


@kv.command("watch")
def kv_watch(
    name: BucketName,
    at: Where,
    filter: Annotated[str, typer.Option("--filter", help="Which keys.")] = ">",
    json: Json = False,
) -> None:
    """Print what is there and every change, until Ctrl-C."""
    from tidewire.commands import stream

    raise typer.Exit(stream.kv_watch(at, name, filter, json))


@kv.command("rm")
def kv_rm(name: BucketName, key: Annotated[str, typer.Argument()], at: Where, json: Json = False) -> None:
    """Delete the value of a key."""
    from tidewire.commands import stream

    raise typer.Exit(stream.kv_rm(at, name, key, json))


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The data folder.")]


@log.command("check")
def log_check(folder: Folder, json: Json = False) -> None:
    """Read every file of a data folder, and say what it holds; exit code 1 if one is damaged.
    Changes nothing.
    """
    from tidewire.commands import stream

    raise typer.Exit(stream.check(folder, json))


@log.command("salvage")
def log_salvage(
    folder: Folder,
    into: Annotated[Path, typer.Option("--into", help="A new data folder.", file_okay=False)],
    json: Json = False,
) -> None:
    """Publish every whole event of a damaged folder into streams of a new one. Changes nothing in
    the damaged one.
    """
    from tidewire.commands import stream

    raise typer.Exit(stream.salvage(folder, into, json))


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
