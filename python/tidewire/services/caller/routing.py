"""Explanation of the policy "lowest_latency": estimates of instances, and the last decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire._binding import Balancer


@dataclass(frozen=True)
class RoutingEstimate:
    """The view that a caller has of one instance, for one call.

    Attributes:
        instance: The id of the instance.
        expected_s: Expected seconds of the call, without calls in progress; None before the first
            answer.
        error: Standard error of ``expected_s`` as a share of it; infinite without samples.
        samples: Answered calls of the method.
        outstanding: Calls in progress.
        failures: Share of failed calls, 0 to 1; recent ones count most.
        ejected_s: Seconds until an ejected instance gets calls again; 0.0 if it is not ejected.
        starting: True if the instance is new and gets few calls at a time.
    """

    instance: str
    expected_s: float | None
    error: float
    samples: int
    outstanding: int
    failures: float
    ejected_s: float
    starting: bool


@dataclass(frozen=True)
class RoutingDecision:
    """One choice of an instance.

    Attributes:
        ago_s: Seconds since the choice.
        method: The method.
        instance: The id of the chosen instance.
        reason: "lowest time", "new", "probe", "probe of an ejected instance", "only" (no other was
            left), or "fallback" (the others are ejected, or busy new ones).
        expected_s: Expected seconds of the call there, with the calls in progress.
    """

    ago_s: float
    method: str
    instance: str
    reason: str
    expected_s: float


@dataclass(frozen=True)
class RoutingExplanation:
    """The state of the policy "lowest_latency" for one call.

    Attributes:
        estimates: The instances, in order of registration.
        decisions: The last 32 decisions for the service, oldest first.
        calls: Calls of the service under the policy.
        probes: Calls among them to an instance other than the best.
    """

    estimates: tuple[RoutingEstimate, ...] = ()
    decisions: tuple[RoutingDecision, ...] = ()
    calls: int = 0
    probes: int = 0


def explain(balancer: Balancer, call: tuple[str, Any, bool]) -> RoutingExplanation:
    """Return the state of a balancer for a call: its method, its cost argument, and True if it is
    idempotent.
    """
    estimates, decisions, calls, probes = balancer.explain(call)
    return RoutingExplanation(
        tuple(RoutingEstimate(*one) for one in estimates),
        tuple(RoutingDecision(*one) for one in decisions),
        calls,
        probes,
    )
