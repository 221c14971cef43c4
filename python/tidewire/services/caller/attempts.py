"""Retry policy of a call: the next instance, and the errors that allow a retry."""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from tidewire._binding import Retry
from tidewire.errors import LinkLost, NodeStopped, NoResponders
from tidewire.services.instance_transport import Refused

if TYPE_CHECKING:
    from tidewire.services.caller.options import CallOptions
    from tidewire.services.instance_transport import InstanceTransport
    from tidewire.services.registry import Group


class Attempts:
    """The attempts of one call, once one has failed.

    Args:
        until: When the call ends at the latest, in seconds; None if it has no end.
        left: How often it may be made again after its link was lost.
    """

    __slots__ = ("_retry", "_why")

    def __init__(self, until: float | None, left: int) -> None:
        self._retry = Retry(until, left, random.getrandbits(64))
        # Error where no instance is left: it carries the cause.
        self._why: LinkLost | NodeStopped | None = None

    def choose(self, group: Group, options: CallOptions, without: Iterable[str] = ()) -> InstanceTransport:
        """Return the route to an instance that was not tried yet; see ``Group.choose``."""
        return group.choose(options, (*without, *self._retry.tried), self._why)

    def goes_on(
        self, group: Group, port: InstanceTransport, since: float, error: BaseException, idempotent: bool
    ) -> bool:
        """Note how an attempt has failed, and return whether another instance is to be tried.

        Args:
            group: The instances that it might have gone to.
            port: The route to the instance of the attempt, sent or not.
            since: When that was, by ``perf_counter``.
            error: The error of the attempt.
            idempotent: True if the call may be repeated although its handler may have run.
        """
        note(group, port, since, error)
        if _is_refusal(error):
            self._retry.refused(port.instance)
        elif not (idempotent and _is_loss(error) and self._retry.lost(port.instance, monotonic())):
            return False
        if isinstance(error, LinkLost) or (isinstance(error, NodeStopped) and not isinstance(self._why, LinkLost)):
            self._why = error
        return True

    def wait_s(self, error: BaseException) -> float:
        """Return how long to wait, as nobody is left to try, or the link is not back; or raise the
        error, as the call is given up.

        Raises:
            LinkLost: in its place, if the link was lost before.
        """
        wait_s = None if is_final(error) else self._retry.nobody(monotonic())
        if wait_s is not None:
            return wait_s
        if self._why is None or self._why is error:
            raise error
        raise self._why from error


def note(group: Group, port: InstanceTransport, since: float, error: BaseException) -> None:
    """Note at an instance that a call of it has failed. One that it has not taken, or that was
    cancelled, says nothing of it.
    """
    if _is_refusal(error) or not isinstance(error, Exception):
        group.ended(port.instance, None)
    else:
        group.ended(port.instance, perf_counter() - since, failed=True)


def is_final(error: BaseException) -> bool:
    """Return whether a call that failed with this is over, whatever it is, and however many
    instances there are.
    """
    return not _is_refusal(error) and not _is_loss(error)


def _is_refusal(error: BaseException) -> bool:
    """Return whether an error says that an instance has not got the call, or has not taken it, so
    that another may.
    """
    if _is_loss(error):
        return getattr(error, "unsent", False) is True
    return isinstance(error, (Refused, NoResponders)) or (isinstance(error, NodeStopped) and error.retryable)


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that a link was lost, rather than that a handler raised such an
    error.
    """
    return isinstance(error, LinkLost) and getattr(error, "of_link", False) is True
