"""The stopping rule of a campaign: the required precision of a mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidewire.errors import InvalidArgument


@dataclass(frozen=True)
class Precision:
    """Stopping rule: ends a campaign when the mean of a column is this precise for every parameter
    set.

    All sets get the same number of runs, until the set with the least precise mean is precise
    enough. The rule is checked after fixed numbers of runs, so that the end of a campaign does not
    depend on workers or timing.

    Args:
        column: A column of integers, floats or booleans. A run with several rows counts with their
            mean.
        half_width: Half the width of the confidence interval, above 0, in the unit of the column.
        confidence: Confidence over all checks together, between 0 and 1, for each set by itself.

    Raises:
        InvalidArgument: if an argument is not allowed.
    """

    column: str
    half_width: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise InvalidArgument(f"until.column: {self.column!r} is no name of a column")
        if not _is_number(self.half_width) or not 0 < self.half_width < math.inf:
            raise InvalidArgument(f"until.half_width: {self.half_width!r} is not allowed: give a number above 0")
        if not _is_number(self.confidence) or not 0 < self.confidence < 1:
            raise InvalidArgument(
                f"until.confidence: {self.confidence!r} is not allowed: give a number between 0 and 1, such as 0.99"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
