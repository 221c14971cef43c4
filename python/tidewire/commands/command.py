"""The commands ``tidewire command ls|show|watch|cancel|retry``: their output, and their exit
codes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import tidewire as tw
from tidewire.commands.stream import run_at, say


def ls(at: str, service: str | None, stage: str | None, as_json: bool) -> int:
    """List commands."""

    async def work(node: tw.Node) -> int:
        found = await node.commands(service=service, stage=stage)
        say(as_json, [_data(info) for info in found], "\n".join(map(_line, found)) or "no commands")
        return 0

    return run_at(at, as_json, work)


def show(at: str, name: str, as_json: bool) -> int:
    """Show a command."""

    async def work(node: tw.Node) -> int:
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
        return 0

    return run_at(at, as_json, work)


def watch(at: str, name: str, as_json: bool) -> int:
    """Print the progress of a command until it is over; 1 if it has not succeeded."""

    async def work(node: tw.Node) -> int:
        run = node.command(name)
        async for one in run.progress():
            data = asdict(one) | {"time": one.time.isoformat()}
            say(as_json, data, f"{one.fraction:5.0%}  {one.note}{_again(one.attempt)}")
        info = await run.info()
        say(as_json, _data(info), _line(info))
        return 0 if info.stage == "succeeded" else 1

    return run_at(at, as_json, work)


def cancel(at: str, name: str, as_json: bool) -> int:
    """Have a command end."""

    async def work(node: tw.Node) -> int:
        changed = await node.command(name).cancel()
        info = await node.command(name).info()
        text = (
            "it ends when its worker has ended it" if info.is_cancelling and not info.is_over else f"it is {info.stage}"
        )
        say(as_json, {"cancelled": changed, "stage": info.stage}, f"{name}: {text}")
        return 0 if changed else 1

    return run_at(at, as_json, work)


def retry(at: str, name: str, as_json: bool) -> int:
    """Have a command begin anew."""

    async def work(node: tw.Node) -> int:
        changed = await node.command(name).retry()
        stage = (await node.command(name).info()).stage
        text = "it is queued" if changed else f"it is {stage}: only what has failed or was cancelled begins anew"
        say(as_json, {"queued": changed, "stage": stage}, f"{name}: {text}")
        return 0 if changed else 1

    return run_at(at, as_json, work)


def _line(info: tw.CommandInfo) -> str:
    stage = f"{info.stage} {info.fraction:.0%}" if info.stage == "running" else info.stage
    ending = ", being cancelled" if info.is_cancelling and not info.is_over else ""
    key = "" if info.key is None else f" [{info.key}]"
    said = f"  {info.note}" if info.note and not info.is_over else f"  {info.error}" if info.error else ""
    return f"{info.id}  {info.service}.{info.command}{key}  {stage}{ending}{_again(info.attempt)}{said}"


def _again(attempt: int) -> str:
    return f"  (attempt {attempt})" if attempt > 1 else ""


def _data(info: tw.CommandInfo) -> dict[str, Any]:
    times = {name: getattr(info, name) for name in ("created", "began", "ended")}
    return asdict(info) | {name: None if time is None else time.isoformat() for name, time in times.items()}
