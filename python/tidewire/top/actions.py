"""Actions of operators on campaigns and pools of this process: the method ``act`` of ``$sys``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidewire._log import log
from tidewire._node import live_work
from tidewire.errors import InvalidArgument

_CAMPAIGNS = ("campaign", live_work.campaigns)
_POOLS = ("pool", live_work.pools)
_ACTIONS: dict[str, tuple[tuple[str, Callable[[], list[Any]]], Callable[..., object], int]] = {
    "pause_campaign": (_CAMPAIGNS, lambda campaign, by: campaign.pause(by), 0),
    "resume_campaign": (_CAMPAIGNS, lambda campaign, by: campaign.resume(by), 0),
    "cancel_campaign": (_CAMPAIGNS, lambda campaign, by: campaign.cancel(by), 0),
    "scale_pool": (_POOLS, lambda pool, _, workers: pool.scale(workers), 1),
    "drain_pool": (_POOLS, lambda pool, _: pool.drain(), 0),
}


def act(arguments: tuple[Any, ...], named_arguments: dict[str, Any], *, by: str) -> None:
    """Run an action on a campaign or a pool of this process.

    Args:
        arguments: The action, such as "pause_campaign", and a list of the name of the campaign or
            pool and the values of the action.
        named_arguments: Empty: actions have no arguments by name.
        by: The calling user or node, for events and logs.

    Raises:
        InvalidArgument: if there is no such action, its arguments differ, or not exactly one
            campaign or pool has the name.
        TidewireError: if the campaign or pool refuses the action.
    """
    match arguments:
        case (str(action), [str(name), *values]) if action in _ACTIONS and not named_arguments:
            (kind, all_live), call, count = _ACTIONS[action]
        case _:
            raise InvalidArgument(
                f"act: {arguments!r:.200} is not allowed: give one of {', '.join(_ACTIONS)}, and a list that begins with a name"
            )
    if len(values) != count:
        raise InvalidArgument(f"arguments: {values!r:.200} beside the name are not allowed: {action} takes {count}")
    targets = [one for one in all_live() if one.name == name]
    if len(targets) != 1:
        raise InvalidArgument(
            f"{kind}: {len(targets)} {kind}s of this process are named {name!r}: name one of those that the node reports"
        )
    call(targets[0], f"by {by}", *values)
    log.info("operator.acted", "%(by)s: %(action)s %(name)r", by=by, action=action, name=name)
