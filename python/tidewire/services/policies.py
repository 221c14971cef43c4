"""Which of several instances gets a call: a state machine that is told what began and what ended, and knows no clock."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidewire._binding import Standing
from tidewire.errors import InvalidArgument, NoResponders
from tidewire.services.names import nearest, short

KINDS = ("first", "random", "least_outstanding", "lowest_latency", "all")


@dataclass(frozen=True)
class Policy:
    """How an instance is chosen.

    Args:
        kind: "first" (the one served longest), "random", "least_outstanding" (the default; of equal ones, in turn),
            "lowest_latency", or "all", which calls each and gives a list of ``tw.Answer``.
        seed: Makes what is random the same in each run.
        explore: The share of calls with which "lowest_latency" tries another instance than the best.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    kind: str = "least_outstanding"
    seed: int | None = None
    explore: float = 0.05

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


class Standings:
    """The instances of one service, in the order in which they came."""

    def __init__(self) -> None:
        self._of: dict[str, Standing] = {}
        self._turn = 0

    def add(self, instance: str) -> None:
        """Add an instance."""
        self._of[instance] = Standing()

    def remove(self, instance: str) -> None:
        """Forget an instance. Calls that it is still at may end afterwards."""
        self._of.pop(instance, None)

    def began(self, instance: str) -> None:
        """Note that a call was sent to an instance."""
        standing = self._of.get(instance)
        if standing is not None:
            standing.began()

    def ended(self, instance: str, took_s: float | None, failed: bool = False) -> None:
        """Note that a call has ended.

        Args:
            instance: Where.
            took_s: How long it took, or None where that says nothing, as for streams.
            failed: Whether it failed. A failure may be quick, and must not draw calls: it counts as slower than what was before.
        """
        standing = self._of.get(instance)
        if standing is not None:
            standing.ended(took_s, failed)

    def choose(self, policy: Policy, dice: random.Random, without: Iterable[str] = ()) -> str | None:
        """Return the instance for the next call, or None if there is none left.

        Args:
            policy: How to choose.
            dice: Where chance comes from.
            without: Instances that have refused the call.
        """
        if not without and len(self._of) == 1:
            return next(iter(self._of))
        left = [instance for instance in self._of if instance not in without] if without else list(self._of)
        if len(left) <= 1:
            return left[0] if left else None
        if policy.kind == "random":
            return dice.choice(left)
        if policy.kind == "lowest_latency":
            return self._quickest(left, policy, dice)
        return left[0] if policy.kind in ("first", "all") else self._least(left)

    def named(self, service: str, instance: str) -> str:
        """Return an instance that was named.

        Raises:
            NoResponders: if there is none of this name.
        """
        if instance not in self._of:
            raise NoResponders(
                f"{service}: instance: {short(instance)} is not among its instances: {nearest(instance, self._of)}"
            )
        return instance

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, instance: str) -> Standing:
        return self._of[instance]

    def _least(self, left: list[str]) -> str:
        self._turn = start = (self._turn + 1) % len(left)
        best, least = left[start], self._of[left[start]].outstanding
        for at in range(start + 1 - len(left), start):
            outstanding = self._of[left[at]].outstanding
            if outstanding < least:
                best, least = left[at], outstanding
        return best

    def _quickest(self, left: list[str], policy: Policy, dice: random.Random) -> str:
        # One that nothing is known of is tried once; until its answer comes, others get the calls.
        fresh = [one for one in left if self._of[one].latency_s is None and not self._of[one].outstanding]
        if fresh:
            return fresh[0]
        if dice.random() < policy.explore:
            return dice.choice(left)
        return min(left, key=self._expected)

    def _expected(self, instance: str) -> float:
        """How long a call may take there: it waits behind those that are under way."""
        standing = self._of[instance]
        return float("inf") if standing.latency_s is None else standing.latency_s * (standing.outstanding + 1)
