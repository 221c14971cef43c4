"""The retry policy of an agent: attempts and backoff."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tidewire import _limits
from tidewire.errors import InvalidArgument


@dataclass(frozen=True)
class Retry:
    """Retry policy with exponential backoff and jitter.

    Args:
        limit: Maximum number of retries after the first attempt.
        backoff_ms: Wait before the first retry, in milliseconds. It doubles with each retry, less
            a random part of up to one half.
        backoff_max_ms: Longest wait, in milliseconds.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    limit: int
    backoff_ms: float = _limits.RETRY_BACKOFF_MS.default
    backoff_max_ms: float = _limits.RETRY_BACKOFF_MAX_MS.default

    def __post_init__(self) -> None:
        limits = (_limits.RETRY_LIMIT, _limits.RETRY_BACKOFF_MS, _limits.RETRY_BACKOFF_MAX_MS)
        for field, limit in zip(("limit", "backoff_ms", "backoff_max_ms"), limits, strict=True):
            value = getattr(self, field)
            number = isinstance(value, int if field == "limit" else (int, float)) and not isinstance(value, bool)
            if not number or not limit.min <= value <= limit.max:
                raise InvalidArgument(
                    f"retry.{field}: {value!r} is not allowed: give {limit.min:,} to {limit.max:,} {limit.unit}"
                )

    def wait_s(self, failures: int) -> float:
        """Return the wait after this number of failures, in seconds."""
        longest = min(self.backoff_max_ms, self.backoff_ms * 2.0 ** min(failures - 1, 60))
        return longest * (1 - random.random() / 2) / 1000


NEVER = Retry(limit=0)
"""A policy without retries."""
