"""Log of failures: the first of each handler at once, later ones as a periodic summary."""

from __future__ import annotations

import logging
import threading
import weakref
from time import monotonic
from typing import Any

from tidewire._runtime.process_state import in_child, reentrant_lock

logger = logging.getLogger("tidewire")
_PLAIN = (str, int, float, bool, type(None))

SUM_UP_S = 10.0
"""Seconds between the summaries of one handler's failures."""
_LINES_MAX = 20
_COUNTED_MAX = 10_000
_LOGGED = "__tidewire_logged__"
"""Attribute of an error: the handler and the level that it was logged for."""


class EventLog:
    """Log of events. Each has a stable name, and fields that are attributes of its record.

    The part before the dot names the logger: ``link.joined`` is an event of ``tidewire.link``. The
    text refers to fields as ``%(field)s``. `docs/reference/log-events.md` lists all events: name
    and text are literals, so that `tools/generate.py` can read them.
    """

    def debug(self, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        self.at(logging.DEBUG, event, text, exc_info, **fields)

    def info(self, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        self.at(logging.INFO, event, text, exc_info, **fields)

    def warning(self, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        self.at(logging.WARNING, event, text, exc_info, **fields)

    def error(self, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        self.at(logging.ERROR, event, text, exc_info, **fields)

    def critical(self, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        self.at(logging.CRITICAL, event, text, exc_info, **fields)

    def at(self, level: int, event: str, text: str, exc_info: Any = None, **fields: Any) -> None:
        target = self.logger(event.partition(".")[0])
        if target.isEnabledFor(level):
            extra = {name: _plain(value) for name, value in fields.items() if value is not None}
            # Adapters and filters of users get the fields, and the text without them.
            target.log(level, text, fields, exc_info=exc_info, stacklevel=3, extra={"event_name": event, **extra})

    def logger(self, area: str) -> logging.Logger:
        return logging.getLogger(f"tidewire.{area}")


log = EventLog()


class _Repeated:
    """The failures of one handler.

    Attributes:
        level: Their log level.
        logged_at: Time of their last log record.
        more: Number of failures since then.
        last: Text of the last one.
        fields: The failed operation and its owner, as fields of records.
    """

    __slots__ = ("fields", "last", "level", "logged_at", "more")

    def __init__(self, level: int, now: float, fields: dict[str, Any]) -> None:
        self.level, self.logged_at, self.fields = level, now, fields
        self.more, self.last = 0, ""


# Keyed by the actors themselves: other nodes of the process reuse their ids.
_repeats: weakref.WeakKeyDictionary[object, dict[object, _Repeated]] = weakref.WeakKeyDictionary()
_pending: list[_Repeated] = []
_timer: threading.Timer | None = None
_lock = reentrant_lock()


def failed(actor: object, hook: str, error: BaseException, is_reported: bool = False) -> None:
    """Log that a handler or a hook of an actor has failed; without a traceback if an asker gets the
    error.
    """
    level = logging.INFO if is_reported else logging.ERROR
    fields = {"title": f"{actor!r} failed in {hook}", "actor": repr(actor), "hook": hook}
    if (text := _first_text("actor", actor, (hook, is_reported), error, level, fields)) is not None:
        shown = None if is_reported else error
        log.at(level, "actor.failed", "%(title)s: %(error)s", shown, **fields, error=text)


def call_failed(instance: Any, request: Any, error: BaseException) -> None:
    """Log that a method of a service has raised; without a traceback if its caller is in this
    process and has it.
    """
    node, service, title = instance.node.name, instance.info.name, request.title
    method = title.removeprefix(f"{service}.")
    fields = {"title": f"{title} failed", "node": node, "service": service, "method": method, "instance": instance.id}
    if (text := _first_text("call", instance, title, error, logging.WARNING, fields)) is not None:
        shown = error if request.node != node else None
        log.warning("call.failed", "%(title)s: %(error)s", shown, **fields, error=text, trace_id=request.trace)


def unreadable(actor: object, error: BaseException) -> None:
    """Log that a message of another node to an actor can't be decoded."""
    text = "%(actor)r: a message of another node could not be taken in: %(error)s"
    log.error("actor.message_unreadable", text=text, exc_info=error, actor=actor, error=_text(error))


def sum_up() -> None:
    """Log the counted failures."""
    global _timer
    with _lock:
        counted, timer = _pending.copy(), _timer
        _pending.clear()
        _timer = None
        now = monotonic()
        counts = [(one.more, now - one.logged_at, one) for one in counted]
        for one in counted:
            one.more, one.logged_at = 0, now
    if timer is not None:
        timer.cancel()
    counts.sort(key=lambda row: -row[0])
    for more, seconds, one in counts[:_LINES_MAX]:
        fields = {"times": _times(more), "count": more, "seconds": seconds, "error": one.last, **one.fields}
        text = "%(title)s %(times)s more in %(seconds).1f s, at last with %(error)s"
        if "actor" in one.fields:
            log.at(one.level, "actor.failed_again", text, **fields)
        else:
            log.at(one.level, "call.failed_again", text, **fields)
    others = counts[_LINES_MAX:]
    if others:
        fields = {"handlers": len(others), "times": _times(sum(row[0] for row in others))}
        log.error("actor.others_failed", "%(handlers)d handlers more failed %(times)s", **fields)


def _first_text(
    area: str, owner: object, key: object, error: BaseException, level: int, fields: dict[str, Any]
) -> str | None:
    """Return the text of an error to log now. Count an error for the summary, and return None."""
    if not log.logger(area).isEnabledFor(level) or _is_logged_by_callee(owner, error, level):
        return None
    global _timer
    text, now, is_full = _text(error), monotonic(), False
    new_timer: threading.Timer | None = None
    with _lock:
        repeats = _repeats.setdefault(owner, {})
        found = repeats.get(key)
        is_first = found is None or (found.more == 0 and now - found.logged_at > SUM_UP_S)
        if found is None or is_first:
            repeats[key] = _Repeated(level, now, fields)
        else:
            found.more, found.last, found.level = found.more + 1, text, max(found.level, level)
            if found.more == 1:
                _pending.append(found)
                is_full = len(_pending) >= _COUNTED_MAX
                if _timer is None:
                    _timer = new_timer = threading.Timer(SUM_UP_S, sum_up)
    if new_timer is not None:
        new_timer.name, new_timer.daemon = "tidewire-log-sum", True
        new_timer.start()
    if is_full:
        sum_up()
    return text if is_first else None


def _is_logged_by_callee(owner: object, error: BaseException, level: int) -> bool:
    """Return True if a callee raised the error, and it was logged there at this level or above."""
    state = vars(error)
    logged_for, logged_at = state.get(_LOGGED, (hash(owner), level))
    if logged_for != hash(owner) and level <= logged_at:
        return True
    state[_LOGGED] = (hash(owner), level)
    return False


def _reset() -> None:
    """Reset the state in the child of a fork: the timer and the failures are the parent's."""
    global _timer
    _timer = None
    _pending.clear()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _plain(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else _text(value) if isinstance(value, BaseException) else str(value)


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    # The failure is logged even if ``__str__`` of its class fails.
    except BaseException as second:  # noqa: BLE001
        text = f"<its message can't be made: {type(second).__name__}>"
    return f"{name}: {text}" if text else name


in_child(_reset)
