"""Log of failures: the first of each handler as it is, and later ones summed up after a while."""

from __future__ import annotations

import logging
import threading
import weakref
from time import monotonic

from tidewire._runtime.fork_handlers import in_child
from tidewire._runtime.locks import reentrant_lock

logger = logging.getLogger("tidewire")

SUM_UP_S = 10.0
"""How long failures of one handler are counted before their number is logged."""
_LINES_MAX = 20
_COUNTED_MAX = 10_000
_LOGGED = "__tidewire_logged__"
"""Where an error keeps which handler it was logged for, and at which level."""


class _Repeated:
    """The failures of one handler.

    Attributes:
        title: The failed operation and its owner.
        level: The level that they are logged at.
        said_at: When something of them was logged last.
        more: How many have come since then.
        last: The last of those.
    """

    __slots__ = ("last", "level", "more", "said_at", "title")

    def __init__(self, title: str, level: int, now: float) -> None:
        self.title, self.level, self.said_at = title, level, now
        self.more, self.last = 0, ""


# Ids of actors are used again in other nodes of the process, so that the actors themselves are
# known, as long as they are there.
_known: weakref.WeakKeyDictionary[object, dict[object, _Repeated]] = weakref.WeakKeyDictionary()
_counted: list[_Repeated] = []
_timer: threading.Timer | None = None
_lock = reentrant_lock()


def failed(actor: object, hook: str, error: BaseException, is_reported: bool = False) -> None:
    """Log that a handler or a hook of an actor has failed; briefly, if an asker gets the error."""
    _note(
        actor,
        (hook, is_reported),
        f"{actor!r} failed in {hook}",
        error,
        logging.INFO if is_reported else logging.ERROR,
        not is_reported,
    )


def call_failed(host: object, title: str, error: BaseException, is_shown: bool) -> None:
    """Log that a method of a service has raised; briefly, if its caller is in this process and has
    the traceback too.
    """
    _note(host, title, f"{title} failed", error, logging.WARNING, is_shown)


def unreadable(actor: object, error: BaseException) -> None:
    """Log that a message of another node can't be read by the actor that it is for."""
    logger.error("%r: a message of another node could not be taken in: %s", actor, _text(error), exc_info=error)


def sum_up() -> None:
    """Log the failures that were counted and not logged."""
    global _timer
    with _lock:
        counted, timer = _counted.copy(), _timer
        _counted.clear()
        _timer = None
        now = monotonic()
        counts = [(one.more, now - one.said_at, one) for one in counted]
        for one in counted:
            one.more, one.said_at = 0, now
    if timer is not None:
        timer.cancel()
    counts.sort(key=lambda row: -row[0])
    for more, seconds, one in counts[:_LINES_MAX]:
        logger.log(one.level, "%s %s more in %.1f s, at last with %s", one.title, _times(more), seconds, one.last)
    others = counts[_LINES_MAX:]
    if others:
        logger.error("%d handlers more failed %s", len(others), _times(sum(row[0] for row in others)))


def _note(owner: object, key: object, title: str, error: BaseException, level: int, with_trace: bool) -> None:
    if not logger.isEnabledFor(level) or _is_passed_on(owner, error, level):
        return
    global _timer
    text, now, is_full = _text(error), monotonic(), False
    begins: threading.Timer | None = None
    with _lock:
        of_owner = _known.setdefault(owner, {})
        found = of_owner.get(key)
        is_first = found is None or (found.more == 0 and now - found.said_at > SUM_UP_S)
        if found is None or is_first:
            of_owner[key] = _Repeated(title, level, now)
        else:
            found.more, found.last, found.level = found.more + 1, text, max(found.level, level)
            if found.more == 1:
                _counted.append(found)
                is_full = len(_counted) >= _COUNTED_MAX
                if _timer is None:
                    _timer = begins = threading.Timer(SUM_UP_S, sum_up)
    if begins is not None:
        begins.name, begins.daemon = "tidewire-log-sum", True
        begins.start()
    if is_first:
        logger.log(level, "%s: %s", title, text, exc_info=error if with_trace else None)
    if is_full:
        sum_up()


def _is_passed_on(owner: object, error: BaseException, level: int) -> bool:
    """Tell whether an error came from a callee, for which it was logged at this level or above."""
    state = vars(error)
    logged_for, logged_at = state.get(_LOGGED, (hash(owner), level))
    if logged_for != hash(owner) and level <= logged_at:
        return True
    state[_LOGGED] = (hash(owner), level)
    return False


def _forget() -> None:
    """In the child of a fork: the thread of the timer is the parent's, and so are the failures."""
    global _timer
    _timer = None
    _counted.clear()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    # The failure is logged even if its class can't make a text.
    except BaseException as second:  # noqa: BLE001
        text = f"<its message can't be made: {type(second).__name__}>"
    return f"{name}: {text}" if text else name


in_child(_forget)
