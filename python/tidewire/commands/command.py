"""The command ``tidewire command``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

import tidewire as tw
from tidewire.commands.output import option
from tidewire.commands.place import Node, say, with_node
from tidewire.commands.talk import json_or_text, parse_arguments
from tidewire.errors import InvalidArgument
from tidewire.services.contract.command import START
from tidewire.services.contract.names import method_problem, nearest

command = typer.Typer(help="Commands of services: long work with progress and a result.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="Of the command.")]


@command.command("ls", epilog="Example: tidewire command ls --url tide://127.0.0.1:7420 --stage running")
@with_node
async def command_ls(
    node: Node,
    as_json: bool,
    service: Annotated[str | None, option("--service", "Those of a service.")] = None,
    stage: Annotated[
        str | None, option("--stage", "queued, running, succeeded, failed or cancelled: only those.")
    ] = None,
) -> None:
    """List the commands, the oldest first."""
    infos = await node.commands(service=service, stage=stage)
    say(as_json, [_data(info) for info in infos], "\n".join(map(_line, infos)) or "no commands")


@command.command("start", epilog="Example: tidewire command start books.reindex 7 --key shard-7 --wait")
@with_node
async def command_start(
    node: Node,
    as_json: bool,
    name: Annotated[str, typer.Argument(metavar="COMMAND", help="SERVICE.COMMAND")],
    arguments: Annotated[list[str] | None, typer.Argument(help="JSON or text, by position or as NAME=VALUE.")] = None,
    key: Annotated[str | None, option("--key", "What it is about.")] = None,
    id: Annotated[str | None, option("--id", "An idempotency key.")] = None,
    priority: Annotated[str, typer.Option("--priority", help="urgent, high, normal or low.")] = "normal",
    wait: Annotated[bool, typer.Option("--wait", help="Print its progress and its result.")] = False,
) -> int:
    """Start a command, and print its id; with --wait exit code 1 if it has not succeeded."""
    service, dot, short_name = name.rpartition(".")
    if problem := method_problem("COMMAND", short_name) if dot else f"COMMAND: {name!r}: write SERVICE.COMMAND":
        raise InvalidArgument(problem)
    args, kwargs = parse_arguments(json_or_text, arguments or [])
    if reserved := [one for one in START if one in kwargs]:
        raise InvalidArgument(f"ARGUMENTS: {reserved[0]}= is no argument of a command: give --{reserved[0]}")
    known_services = [one.name for one in await node.services()]
    if service not in known_services and not as_json:
        print(f"nobody serves {service} now: {name} waits; {nearest(service, known_services)}", file=sys.stderr)
    starter = getattr(node.client(service), short_name)
    run = await starter.start(*args, key=key, id=id, priority=priority, **kwargs)
    say(as_json, {"id": run.id}, run.id)
    if not wait:
        return 0
    code = await _follow(run, as_json)
    if code == 0:
        result = await run.result()
        say(as_json, {"result": result}, f"result: {result!r}")
    return code


@command.command("show", epilog="Example: tidewire command show 5f0c2a90d1e34b77 --url data/")
@with_node
async def command_show(node: Node, as_json: bool, name: Id) -> None:
    """Show a command, with its result or its error."""
    info = await node.command(name).info()
    lines = [
        _line(info),
        f"started by {info.caller} at {info.created:%F %T}, priority {info.priority}, {info.retries} retries",
    ]
    if info.began is not None:
        lines.append(f"attempt {info.attempt} by {info.worker}, begun at {info.began:%F %T}")
    if info.ended is not None:
        lines.append(f"ended at {info.ended:%F %T}")
    data = _data(info)
    if info.stage == "succeeded":
        data["result"] = await node.command(name).result()
        lines.append(f"result: {data['result']!r}")
    lines.extend(filter(None, [info.traceback.rstrip() or info.error]))
    say(as_json, data, "\n".join(lines))


@command.command("watch", epilog="Example: tidewire command watch 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
@with_node
async def command_watch(node: Node, as_json: bool, name: Id) -> int:
    """Print the progress of a command until it is over; exit code 1 if it has not succeeded."""
    return await _follow(node.command(name), as_json)


async def _follow(run: tw.CommandRun[Any], as_json: bool) -> int:
    async for one in run.progress():
        data = asdict(one) | {"time": one.time.isoformat()}
        say(as_json, data, f"{one.fraction:5.0%}  {one.note}{_again(one.attempt)}")
    info = await run.info()
    say(as_json, _data(info), _line(info))
    return 0 if info.stage == "succeeded" else 1


@command.command("cancel", epilog="Example: tidewire command cancel 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
@with_node
async def command_cancel(node: Node, as_json: bool, name: Id) -> int:
    """Have a command end; exit code 1 if it was over, or being cancelled."""
    changed = await node.command(name).cancel()
    info = await node.command(name).info()
    text = "it ends when its worker has ended it" if info.is_cancelling and not info.is_over else f"it is {info.stage}"
    say(as_json, {"cancelled": changed, "stage": info.stage}, f"{name}: {text}")
    return 0 if changed else 1


@command.command("retry", epilog="Example: tidewire command retry 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
@with_node
async def command_retry(node: Node, as_json: bool, name: Id) -> int:
    """Have a command that has failed, or was cancelled, begin anew; exit code 1 if it is
    neither.
    """
    changed = await node.command(name).retry()
    stage = (await node.command(name).info()).stage
    text = "it is queued" if changed else f"it is {stage}: only failed and cancelled commands begin again"
    say(as_json, {"queued": changed, "stage": stage}, f"{name}: {text}")
    return 0 if changed else 1


def _line(info: tw.CommandInfo) -> str:
    stage = f"{info.stage} {info.fraction:.0%}" if info.stage == "running" else info.stage
    ending = ", being cancelled" if info.is_cancelling and not info.is_over else ""
    key = "" if info.key is None else f" [{info.key}]"
    detail = f"  {info.note}" if info.note and not info.is_over else f"  {info.error}" if info.error else ""
    return f"{info.id}  {info.service}.{info.command}{key}  {stage}{ending}{_again(info.attempt)}{detail}"


def _again(attempt: int) -> str:
    return f"  (attempt {attempt})" if attempt > 1 else ""


def _data(info: tw.CommandInfo) -> dict[str, Any]:
    times = {name: getattr(info, name) for name in ("created", "began", "ended")}
    return asdict(info) | {name: None if time is None else time.isoformat() for name, time in times.items()}
