"""The balancing policy of a client."""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import short

KINDS = ("first", "random", "least_outstanding", "lowest_latency", "all")


@dataclass(frozen=True)
class Policy:
    """How an instance is chosen.

    Args:
        kind: "first" (the one served longest), "random", "least_outstanding" (the default; of equal
            ones, in turn), "lowest_latency" (of the lowest expected time for this call), or "all",
            which calls each and gives a list of ``tw.Answer``.
        seed: Makes what is random the same in each run.
        explore: The largest share of calls with which "lowest_latency" tries another instance than
            the best: one in a hundred.

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
        """Return a policy that was given as one, or by its name."""
        return policy if isinstance(policy, Policy) else cls(policy)
