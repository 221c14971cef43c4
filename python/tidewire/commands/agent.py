"""The command ``tidewire agent``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewire.commands.place import Letters, LettersOrAll, Node, say, with_node

if TYPE_CHECKING:
    from tidewire.agents.inbox_store import DeadMessage, DurableInfo, PastMessage

agent = typer.Typer(help="Durable agents: their states, inboxes and dead letters.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="Of the agent.")]
_TEXT_CHARS = 100


@agent.command("ls", epilog="Example: tidewire agent ls --url data/")
@with_node
async def agent_ls(node: Node, as_json: bool) -> None:
    """List the durable agents that have ever run, by id."""
    infos = await node.durable_agents()
    say(as_json, [_data(info) for info in infos], "\n".join(map(_line, infos)) or "no durable agents")


@agent.command("show", epilog="Example: tidewire agent show clerk --url tide://127.0.0.1:7420")
@with_node
async def agent_show(
    node: Node,
    as_json: bool,
    name: Id,
    limit: Annotated[int, typer.Option("--limit", help="How many of its newest messages.", min=1, max=1_000)] = 20,
) -> None:
    """Show a durable agent: who has it, its state, its newest messages and its dead letters."""
    info = await node.durable_agent(name)
    past, dead = await node.agent_messages(name, limit), await node.agent_dead_letters(name)
    lines = [
        _line(info),
        f"held by {info.holder} with fence {info.fence}, written {info.commits} times, last at {info.written:%F %T}",
        *([f"state: {_short(info.state)}"] if info.durable == "state" else []),
        *map(_past, past),
        *(f"dead letter {one.sequence}, {one.reason} after {one.attempts} attempts: {one.error}" for one in dead),
    ]
    data = _data(info) | {
        "messages": [_past_data(one) for one in past],
        "dead_letters": [_dead_data(one) for one in dead],
    }
    say(as_json, data, "\n".join(lines))


@agent.command("requeue", epilog="Example: tidewire agent requeue clerk 17 --url tide://127.0.0.1:7420")
@with_node
async def agent_requeue(node: Node, as_json: bool, name: Id, sequences: LettersOrAll = None) -> int:
    """Send dead letters to their agent anew; exit code 1 if there were none."""
    chosen = sequences or [letter.sequence for letter in await node.agent_dead_letters(name)]
    count = await node.requeue_agent_messages(name, *chosen)
    say(as_json, {"requeued": count}, f"{name}: {count} requeued")
    return 0 if count else 1


@agent.command("drop", epilog="Example: tidewire agent drop clerk 17 --url tide://127.0.0.1:7420")
@with_node
async def agent_drop(node: Node, as_json: bool, name: Id, sequences: Letters) -> int:
    """Forget dead letters; exit code 1 if there were none."""
    count = await node.drop_agent_messages(name, *sequences)
    say(as_json, {"dropped": count}, f"{name}: {count} dropped")
    return 0 if count else 1


def _line(info: DurableInfo) -> str:
    counts = "".join(
        f", {count} {label}"
        for count, label in ((info.lag, "to come"), (info.open, "open"), (info.dead, "dead"))
        if count
    )
    return f"{info.id}  {info.durable}  {info.handled} handled{counts}"


def _past(one: PastMessage) -> str:
    content = "can't be read" if one.message is None else f"from {one.message.sender}: {_short(one.message.payload)}"
    return f"{one.sequence:>8}  {one.time:%F %T}  {one.stage:7}  {content}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}..."


def _data(info: DurableInfo) -> dict[str, Any]:
    return asdict(info) | {"written": info.written.isoformat(), "state": _plain(info.state)}


def _past_data(one: PastMessage) -> dict[str, Any]:
    fields = {"sequence": one.sequence, "time": one.time.isoformat(), "stage": one.stage}
    return (
        fields
        if one.message is None
        else fields | {"sender": one.message.sender, "payload": _plain(one.message.payload)}
    )


def _dead_data(one: DeadMessage) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in ("sequence", "attempts", "reason", "error", "traceback")}
    payload = None if one.message is None else _plain(one.message.payload)
    return fields | {"time": one.time.isoformat(), "payload": payload}


def _plain(value: Any) -> Any:
    """Return a value in plain JSON types, with the repr of others."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)
