"""Commands with a node of a data folder, a hub or NATS."""

from __future__ import annotations

import contextlib
import inspect
import json as jsonlib
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tidewire as tw
from tidewire.commands.output import fail

if TYPE_CHECKING:
    Node = tw.Node
else:
    # Reading the options of commands for their help must not import the node.
    Node = Any

Where = Annotated[
    str,
    typer.Option(
        "--url", envvar=["TIDEWIRE_DATA", "TIDEWIRE_URL"], help="A data folder, or the URL of a hub or of NATS."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]
Letters = Annotated[list[int], typer.Argument(metavar="SEQUENCE...", help="Which dead letters.")]
_ALL_LETTERS = typer.Argument(metavar="[SEQUENCE]...", help="Which dead letters; all if none is named.")
LettersOrAll = Annotated[list[int] | None, _ALL_LETTERS]


def with_options(command: Callable[..., Any], work: Callable[..., Any], skip: int) -> Callable[..., None]:
    """Give a command with ``**own`` the name, the help and the options of its implementation,
    except the first ``skip`` parameters, which the command itself passes.
    """
    own = list(inspect.signature(work, eval_str=True).parameters.values())[skip:]
    *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
    options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in (*own, *shared)]
    command.__name__, command.__doc__ = work.__name__, work.__doc__
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def with_node(work: Callable[..., Awaitable[int | None]]) -> Callable[..., None]:
    """Make a command of a coroutine function with a node and a flag to print data. Its result is
    the exit code, or 0 for None. After an error it is that of ``fail``, after Ctrl-C 130.
    """

    def command(at: Where, json: Json = False, **own: Any) -> None:
        raise typer.Exit(_run(at, json, lambda node: work(node, json, **own)))

    return with_options(command, work, 2)


def _run(at: str, as_json: bool, work: Callable[[Node], Awaitable[int | None]]) -> int:
    import asyncio

    async def main() -> int:
        async with _open_node(at) as node:
            return await work(node) or 0

    try:
        if "://" not in at:
            require_data_folder("url", Path(at), ", or the URL of a hub or of NATS")
        return asyncio.run(main())
    except tw.TidewireError as error:
        return fail(error, as_json)
    except KeyboardInterrupt:
        return 130


def _open_node(at: str) -> Node:
    """Return a node for a URL or a data folder. If a program has the folder open, the node joins
    the socket of that program.
    """
    from tidewire._node.folder_socket import SOCKET
    from tidewire.top.sockets import is_stale

    if "://" in at:
        return tw.Node(at)
    socket = Path(at).resolve() / SOCKET
    return tw.Node(f"tide+unix://{socket}") if socket.exists() and not is_stale(socket) else tw.Node(data=at)


def require_data_folder(field: str, path: Path, or_else: str = "") -> None:
    """Raise NotFound if this path is not a data folder, where a node would create one."""
    if not any(any(path.glob(pattern)) for pattern in ("state/*.log", "streams/*/*.log")):
        raise tw.NotFound(
            f"{field}: there is no data folder at {str(path)!r}; "
            f"give the folder of tw.Node(data=...) or of `tidewire up --data`{or_else}"
        )


def say(as_json: bool, data: Any, text: str) -> None:
    """Print the data as JSON, or the text."""
    print(jsonlib.dumps(data, default=str) if as_json else text, flush=True)


def value_of(text: str) -> Any:
    """Return the value of an argument: parsed as JSON, or its text."""
    try:
        return jsonlib.loads(text)
    except ValueError:
        return text


def moment(field: str, text: str, others: str = "") -> datetime:
    """Parse a time: an age such as ``90s``, ``30m``, ``1h`` or ``2d``, or a time with its zone."""
    if (ago := re.fullmatch(r"(\d{1,9})([smhd])", text)) is not None:
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[ago[2]])
    with contextlib.suppress(ValueError):
        if (time := datetime.fromisoformat(text)).tzinfo is not None:
            return time
    raise tw.InvalidArgument(
        f"{field}: {text!r} is not allowed: give {others}a time with its zone, such as 2026-11-23T21:00:00Z, "
        "or 1h for an hour ago"
    )
