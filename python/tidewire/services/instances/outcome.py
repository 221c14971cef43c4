"""Outcome of a failed call: the handler's exception for its caller."""

from __future__ import annotations

import traceback

from tidewire.errors import RemoteError, RemoteTraceback


def error_for_caller(title: str, error: BaseException) -> BaseException:
    """Return the error for the caller of a handler that raised: the same one, unless it means
    something else there.

    StopIteration would end a loop of the caller, and SystemExit its program. Ctrl-C also ends this
    program.
    """
    if isinstance(error, KeyboardInterrupt):
        from tidewire._runtime.loop import interrupted

        interrupted(error)
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        replacement: BaseException = RuntimeError(f"{title} raised {type(error).__name__}")
        replacement.__cause__ = error
        return replacement
    if isinstance(error, Exception):
        # The flag belongs to a call within the handler; the call of the handler was taken.
        vars(error).pop("untaken", None)
        return error
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    remote = RemoteError(type(error).__qualname__, f"{error} (raised by {title})".strip(), text)
    remote.__cause__ = RemoteTraceback(text)
    return remote
