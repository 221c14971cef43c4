"""What is written about failures: the first of each actor, then every tenth, hundredth, and so on."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from tidewire import _forking

if TYPE_CHECKING:
    from tidewire._binding import ActorRef

logger = logging.getLogger("tidewire")

_ACTORS_MAX = 10_000
# Ids are used again in other nodes of the process, so that the actors themselves are counted, as long as they are there.
_counts: weakref.WeakKeyDictionary[ActorRef, int] = weakref.WeakKeyDictionary()
_lock = _forking.lock()


def failed(actor: ActorRef, hook: str, error: BaseException) -> None:
    """Note a failure of an actor's handler or hook, and log it unless it is one of many."""
    with _lock:
        count = _counts.pop(actor, 0) + 1
        _counts[actor] = count
        if len(_counts) > _ACTORS_MAX:
            _counts.pop(next(iter(_counts)), None)
    if not _is_power_of_ten(count):
        return
    again = "" if count == 1 else f" ({count} failures so far; the next is logged after {count * 10})"
    logger.error("%r failed in %s: %s%s", actor, hook, _text(error), again, exc_info=error)


def unreadable(actor: ActorRef, error: BaseException) -> None:
    """Log that a message of another node can't be read by the actor that it is for."""
    logger.error("%r: a message of another node could not be taken in: %s", actor, _text(error), exc_info=error)


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    # Whatever its class does there: the failure is written down all the same.
    except BaseException as second:  # noqa: BLE001
        text = f"<its message can't be made: {type(second).__name__}>"
    return f"{name}: {text}" if text else name


def _is_power_of_ten(count: int) -> bool:
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count == 1
