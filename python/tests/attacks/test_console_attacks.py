"""Attacks on the operator console: actions without the right, pages of others, frames, paths.

Markup in names and payloads is tried in ``js/packages/console/test``, where a browser is.
"""

from __future__ import annotations

import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import campaign_functions
import pytest
import tidewire as tw

if not (Path(tw.__file__).parent / "console" / "index.html").is_file():
    pytest.skip("this installation was built without the console", allow_module_level=True)

SECRET, EVIL = "a payload of the bank", {"Origin": "http://evil.example"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "tidewire.v1",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ALL, ONE = ("orders", ("all", 0), None, [], 10, 1_000, 0), ("orders", "billing")
CALLS: dict[str, dict[str, tuple[Any, ...]]] = {
    "look": {
        "list_streams": (),
        "list_leases": (),
        "stream_info": ("orders",),
        "list_consumers": ("orders",),
        "list_events": ALL,
        "list_dead": (*ONE, 0, 9),
        "keys": ("config", ">", None, 9),
    },
    "read": {
        "read": ALL,
        "dead_letters": (*ONE, 0, 9),
        "list_schedules": ("orders",),
        "get": ("config", "key", None),
        "history": ("config", "key"),
        "watch": ("config", ">", 0, 9, 0),
    },
    "act": {
        "purge": ("orders", None, None, None),
        "seek": (*ONE, ("all", 0)),
        "release": ("night", 1),
        "requeue": (*ONE, [1]),
        "drop_dead": (*ONE, [1]),
        "pause": (*ONE, None),
        "delete_stream": ("orders",),
        **dict.fromkeys(("resume", "delete_consumer", "cancel_schedule"), ONE),
        "put": ("config", "key", b"\x01", None, None),
        "delete": ("config", "key", None, False),
        "delete_bucket": ("config",),
    },
    "call": {
        "publish": ("orders", [["orders.b", b"\x01", None, None, [], None, None]], True),
        "renew": ("night", 1),
        "fetch": (*ONE, 1, 1, 0),
        "settle": (*ONE, []),
        "acquire": ("day", "eve", 1_000_000, 0),
        "create_bucket": ("mine", 1, 0, 0, 1),
    },
}
RIGHTS = {"inspect": {"look"}, "inspect_payloads": {"look", "read"}, "admin": {"look", "act"}}
TOKENS = [tw.Token("of-the-hub"), *(tw.Token(f"of-{right}", **{right: True}) for right in RIGHTS)]
CAMPAIGN_ACTIONS = ("pause_campaign", "resume_campaign", "cancel_campaign")
POOL_ACTIONS: dict[str, tuple[Any, ...]] = {
    "scale_pool": ("desk", 2),
    "drain_pool": ("desk",),
}
POSTS = (
    "services/tidewire-streams/act",
    "services/$sys/about",
    "services/$sys/act",
    "commands/bank/pay",
    "subjects/orders.b",
)


@asynccontextmanager
async def console(folder: Path, tokens: list[tw.Token]) -> AsyncIterator[tuple[tw.Node, str, tw.Campaign, tw.Pool]]:
    """A hub with a console, a dead letter, a key, a lease, a campaign and a pool."""
    study = tw.campaign(campaign_functions.number, runs=9, store=f"{folder}/study.db", name=folder.name)
    async with tw.Node(name="hub", data=folder, inspect=True) as hub:
        web = hub.listen("http://127.0.0.1:0", tokens=tokens, http=tw.Http(console=True))
        await hub.serve({"pay": lambda: "paid"}, name="bank", visibility="public")
        stream = await hub.stream("orders", subjects=["orders.>"])
        desk = hub.pool(len, workers=tw.Scale(1, 3), name="desk")
        consumer = await stream.consumer("billing", start="all", max_deliver=1)
        await stream.publish("orders.a", SECRET)
        await (await consumer.next()).nak(error=ValueError("no card"), wait=True)
        await (await hub.kv("config")).put("key", SECRET)
        async with hub.lease("night"):
            yield hub, web.url.removeprefix("http://"), study, desk


async def state(hub: tw.Node, study: tw.Campaign, desk: tw.Pool) -> str:
    """All that an action could have changed."""
    stream, bucket = await hub.stream("orders"), await hub.kv("config")
    durable = [await hub.streams(), await stream.consumers(), await bucket.get("key"), await hub.buckets()]
    return repr([*durable, study.events(), desk.statistics()])


def asked(place: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return answer.status, found


@pytest.mark.promise("P15.79")
@pytest.mark.parametrize("right", [*RIGHTS, "nobody"])
async def test_a_console_does_what_its_token_allows_and_no_more(tmp_path: Path, right: str) -> None:
    """With ``nobody``, the hub has no tokens, and its console may only look."""
    token, may = (None, {"look"}) if right == "nobody" else (f"of-{right}", RIGHTS[right])
    async with console(tmp_path, TOKENS if token else []) as (hub, place, study, desk):
        # The process may still have campaigns of other tests: the name of this one is its own.
        actions = {**dict.fromkeys(CAMPAIGN_ACTIONS, (study.name,)), **POOL_ACTIONS}
        before = await state(hub, study, desk)
        async with tw.Node(f"ws://{place}/console/link", name="console", token=token) as node:
            streams, commands = node.client("tidewire-streams"), node.client("tidewire-commands")
            inspection = node.client("$sys")
            for action, arguments in actions.items() if "act" not in may else ():
                with pytest.raises(tw.Unauthorized, match="give the token admin, or call"):
                    await inspection.act(action, arguments)
            for own, method in ((own, method) for own in CALLS for method in CALLS):
                for name, arguments in CALLS[own].items():
                    if method != own or own not in may:
                        with pytest.raises(tw.Unauthorized):
                            await getattr(streams, method)(name, arguments)
                    elif own != "act":
                        said = await getattr(streams, method)(name, arguments)
                        assert own == "read" or SECRET not in repr(said), name
            for service, method in ((node.client("bank"), "pay"), (commands, "cancel"), (commands, "retry")):
                if "act" not in may or method == "pay":
                    fix = "give the token " + ("" if method == "pay" else "admin, or ") + "call with this subject"
                    with pytest.raises(tw.Unauthorized, match=fix):
                        await getattr(service, method)(*(() if method == "pay" else "x"))
            with pytest.raises(tw.Unauthorized):
                await commands.start("bank", "pay", b"", None, None, "normal")
            for refused in (node.subscribe("orders.>", print), node.serve({"pay": print}, name="bank")):
                with pytest.raises(tw.Unauthorized):
                    await refused
            with pytest.raises(tw.Unauthorized):
                node.publish("orders.b", SECRET)
            bearer = {"Authorization": f"Bearer {token}"}
            assert not token or {asked(place, "POST", f"/{path}", bearer)[0] for path in POSTS} <= {403, 404}
            assert await state(hub, study, desk) == before
            if "act" in may:
                assert await streams.act("purge", CALLS["act"]["purge"]) == 1
                for wrong in ((), ("stop", ["study"]), ("pause_campaign", ["other"]), ("scale_pool", ["desk", 4])):
                    with pytest.raises(tw.InvalidArgument):
                        await inspection.act(*wrong)
                for action, arguments in actions.items():
                    await inspection.act(action, arguments)
                assert [desk.statistics()["workers_set"], desk.state] == [2, "stopped"]
                assert [event.after for event in study.events()] == ["draft", "paused", "running", "cancelled"]
                assert study.status().reason == "by console"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "link", UPGRADE, 101),
        ("GET", "link", {**UPGRADE, **EVIL}, 403),
        ("GET", "link", {**UPGRADE, "Origin": "null"}, 403),
        ("GET", "link", {**UPGRADE, "Host": "evil.example"}, 421),
        ("GET", "hub.json", EVIL, 403),
        ("POST", "/services/bank/pay", EVIL, 403),
        *(("POST", path, {}, 405) for path in ("", "link", "hub.json")),
        *(("GET", path, {}, 404) for path in ("../cli.py", "..%2fcli.py", "%2e%2e/cli.py", "/etc/passwd", "a%00.js")),
        *(("GET", path, {}, 200) for path in ("", "console.js", "style.css", "icon.svg", "hub.json")),
    ],
)
async def test_pages_of_others_and_paths_reach_nothing_and_no_frame_shows_the_console(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with console(tmp_path, []) as (_, place, *_):
        found, said = asked(place, method, path if path.startswith("/services") else f"/console/{path}", headers)
        assert found == status
        if status == 200:
            policy = said["content-security-policy"]
            for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
                assert part in policy and "unsafe" not in policy
            assert (said["x-frame-options"], said["x-content-type-options"]) == ("DENY", "nosniff")
