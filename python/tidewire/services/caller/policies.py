"""The balancing policy of a client."""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import short

KINDS = ("first", "random", "least_outstanding", "lowest_latency", "all")


@dataclass(frozen=True)
class Policy:
    """Balancing policy: the choice of an instance.

    Args:
        kind: "first" (the oldest instance), "random", "least_outstanding" (the default; round robin
            among equal ones), "lowest_latency" (the lowest expected time for this call), or "all",
            which calls every instance and returns a list of ``tw.Answer``.
        seed: Seed of the random choices, for reproducible runs.
        explore: Largest share of calls of "lowest_latency" that probe an instance other than the
            best; 0.01 by default.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    kind: str = "least_outstanding"
    seed: int | None = None
    explore: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InvalidArgument(
                f"policy: {short(self.kind)} is not allowed: use one of {', '.join(map(repr, KINDS))}"
            )
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise InvalidArgument(f"policy.seed: {short(self.seed)} is not allowed: give a whole number, or None")
        number = isinstance(self.explore, (int, float)) and not isinstance(self.explore, bool)
        if not number or not 0 <= self.explore <= 1:
            raise InvalidArgument(f"policy.explore: {short(self.explore)} is not allowed: give a number from 0 to 1")

    @classmethod
    def of(cls, policy: Policy | str) -> Policy:
        """Return a policy from a policy or its name."""
        return policy if isinstance(policy, Policy) else cls(policy)
