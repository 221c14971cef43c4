"""``tidewire doctor TARGET``: checks a hub, NATS servers, a data folder or a campaign store."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import tidewire as tw
from tidewire._binding import CampaignStore, check_folder
from tidewire._campaigns.store import shown, url_of
from tidewire._urls import is_nats, without_secrets
from tidewire.commands.output import as_json, fail
from tidewire.commands.place import require_data_folder
from tidewire.commands.talk import Hub

_STORES = ("sqlite:", "postgres:", "postgresql:")


def doctor(target: str, hub: Hub) -> int:
    """Check a URL or a data folder, and print the verdict first. Return 1 if there is a problem."""
    began = perf_counter()
    try:
        if url_of(target).startswith(_STORES):
            return _show("store", shown(target), began, _store(target), [], hub)
        if "://" not in target:
            facts, problems = _folder(target)
            return _show("folder", target, began, facts, problems, hub)
    except tw.TidewireError as error:
        return fail(error, hub.as_json)
    return hub.run(lambda node: _node(node, target, began, hub))


async def _node(node: tw.Node, target: str, began: float, hub: Hub) -> int:
    kind = "nats" if is_nats(target) else "hub"
    facts: dict[str, Any] = {"joined_ms": _ms(began)}
    started = perf_counter()
    facts["services"] = [one.name for one in await node.services()]
    facts["answer_ms"] = _ms(started)
    try:
        facts["streams"] = len(await node.streams())
    except tw.TidewireError as error:
        # A hub without a data folder, or a token without this right, is not a problem.
        facts["streams"] = f"{error.code}: {error}"
    return _show(kind, without_secrets(target), began, facts, [], hub)


def _folder(target: str) -> tuple[dict[str, Any], list[str]]:
    require_data_folder("TARGET", Path(target), ", or the URL of a hub, of NATS or of a store")
    files = check_folder(target)
    facts = {name: sum(file[name] for file in files) for name in ("records", "bytes")}
    return {"files": len(files), **facts}, [
        f"{file['file']}: {file['damage']}; rescue the intact part with `tidewire log salvage {target} --into NEW`"
        for file in files
        if file["damage"]
    ]


def _store(target: str) -> dict[str, Any]:
    rows = CampaignStore(url_of(target), create=False).campaigns()
    return {"campaigns": len(rows), "running": sum(row["state"] == "running" for row in rows)}


def _show(kind: str, target: str, began: float, facts: dict[str, Any], problems: list[str], hub: Hub) -> int:
    """Print a report, and return the exit code."""
    verdict = f"{kind} {target}: {'needs repair' if problems else 'it works'}"
    facts = {**facts, "took_ms": _ms(began)}
    if hub.as_json:
        print(as_json({"verdict": verdict, "kind": kind, "target": target, **facts, "problems": problems}))
    else:
        print("\n".join([verdict, *problems, *(f"  {name}: {value}" for name, value in facts.items())]))
    return 1 if problems else 0


def _ms(since: float) -> float:
    return round((perf_counter() - since) * 1e3, 2)
