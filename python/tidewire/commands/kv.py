"""The command ``tidewire kv``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewire.commands.place import Node, say, value_of, with_node

kv = typer.Typer(help="Key-value buckets of a data folder or of a hub.", no_args_is_help=True)
BucketName = Annotated[str, typer.Argument(help="Of the bucket.")]
Key = Annotated[str, typer.Argument()]
Value = Annotated[str, typer.Argument(help="JSON, or text.")]


@kv.command("ls")
@with_node
async def kv_ls(
    node: Node,
    as_json: bool,
    name: Annotated[str | None, typer.Argument(help="A bucket, for its keys.", show_default=False)] = None,
) -> None:
    """List the buckets, or the keys of one."""
    if name is None:
        infos = await node.buckets()
        lines = [f"{info['name']}  {info['keys']} keys  {info['bytes']} bytes" for info in infos]
        say(as_json, infos, "\n".join(lines) or "no buckets")
        return
    keys = await (await node.find_kv(name)).keys()
    say(as_json, keys, "\n".join(keys))


@kv.command("get")
@with_node
async def kv_get(node: Node, as_json: bool, name: BucketName, key: Key) -> int:
    """Print the value of a key; exit code 1 if it has none."""
    entry = await (await node.find_kv(name)).get(key)
    if entry is None:
        say(as_json, None, f"{key} has no value")
        return 1
    say(as_json, {"key": key, "value": entry.value, "revision": entry.revision}, repr(entry.value))
    return 0


@kv.command("put")
@with_node
async def kv_put(node: Node, as_json: bool, name: BucketName, key: Key, value: Value) -> None:
    """Write a value, and print its revision."""
    revision = await (await node.find_kv(name)).put(key, value_of(value))
    say(as_json, {"revision": revision}, f"revision {revision}")


@kv.command("watch")
@with_node
async def kv_watch(
    node: Node,
    as_json: bool,
    name: BucketName,
    filter: Annotated[str, typer.Option("--filter", help="Which keys.")] = ">",
) -> None:
    """Print what is there and every change, until Ctrl-C."""
    async for entry in (await node.find_kv(name)).watch(filter):
        data = {"key": entry.key, "value": entry.value, "revision": entry.revision, "deleted": entry.is_deleted}
        say(as_json, data, f"{entry.revision} {entry.key} {'deleted' if entry.is_deleted else repr(entry.value)}")


@kv.command("rm")
@with_node
async def kv_rm(node: Node, as_json: bool, name: BucketName, key: Key) -> None:
    """Delete the value of a key."""
    revision = await (await node.find_kv(name)).delete(key)
    say(as_json, {"revision": revision}, f"{key} deleted")
