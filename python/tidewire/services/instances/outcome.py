"""Outcome of a failed call: the handler's exception for its caller."""

from __future__ import annotations

import traceback

from tidewire.errors import RemoteError, RemoteTraceback


def error_for_caller(title: str, error: BaseException) -> BaseException:
    """Return the error that the caller of a handler gets: the handler's own, unless it would do
    something else there.

    StopIteration would end a loop of the caller, and SystemExit its program. Ctrl-C ends this one
    as well.
    """
    if isinstance(error, KeyboardInterrupt):
        from tidewire._runtime.loop import interrupted

        interrupted(error)
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        made: BaseException = RuntimeError(f"{title} raised {type(error).__name__}")
        made.__cause__ = error
        return made
    if isinstance(error, Exception):
        # A call in the handler was not taken; the call of the handler was.
        vars(error).pop("untaken", None)
        return error
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    remote = RemoteError(type(error).__qualname__, f"{error} (raised by {title})".strip(), text)
    remote.__cause__ = RemoteTraceback(text)
    return remote
