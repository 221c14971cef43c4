"""Tokens with limits of their own: what the nodes that join with one may have, and what they hear
above it.
"""

from __future__ import annotations

import asyncio

import pytest
import tidewire as tw
from service_support import logged

ROOT = tw.Token("all of it all", user="root")
SECRET = "few of it all"


def place(hub: tw.Node, **limits: int) -> str:
    """Return the address of a hub whose token of ann has these limits."""
    return hub.listen("tide://127.0.0.1:0", tokens=[ROOT, tw.Token(SECRET, user="ann", **limits)]).url


async def test_a_subscription_that_the_hub_refuses_is_not_in_force_at_the_node_either() -> None:
    tokens = [ROOT, tw.Token(SECRET, user="ann", subscribe=["allowed.*"])]
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0", tokens=tokens).url
        async with tw.Node(url, name="ann", token=SECRET) as ann:
            seen: list[object] = []
            for subject in ("allowed.x", "refused.x"):
                subscription = ann.subscribe(subject, seen.append)
                if subject == "allowed.x":
                    assert await subscription is subscription
                    continue
                with pytest.raises(tw.Unauthorized, match="refused"):
                    await subscription
                assert not subscription.unsubscribe()
            blocked = ann.subscribe("refused.y", seen.append)
            with pytest.raises(tw.Unauthorized):
                await asyncio.to_thread(blocked.wait)
            assert not blocked.unsubscribe()
            assert [ann.publish(subject, subject) for subject in ("allowed.x", "refused.x", "refused.y")] == [1, 0, 0]
    assert seen == ["allowed.x"]


@pytest.mark.promise("P13.2")
async def test_a_service_that_the_hub_refuses_is_not_served_at_the_node_either() -> None:
    tokens = [ROOT, tw.Token(SECRET, user="ann", subscribe=[], serve=["allowed"])]
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0", tokens=tokens).url
        async with tw.Node(url, name="ann", token=SECRET) as ann, tw.Node(url, name="root", token=ROOT.token) as root:
            await ann.serve({"echo": lambda value: value}, name="allowed", instance="one")
            refused = ann.serve({"echo": lambda value: value}, name="refused")
            with pytest.raises(tw.Unauthorized, match='may not serve "refused"'):
                await refused
            assert [info.name for info in await ann.services()] == ["allowed"]
            with pytest.raises(tw.NoResponders):
                await ann.client("refused").echo(1)
            assert refused.statistics()["calls"] == 0
            assert await root.client("allowed").echo(2) == 2


def test_a_refusal_of_the_hub_that_nobody_awaits_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        tokens = [ROOT, tw.Token(SECRET, user="ann", subscribe=["allowed.*"])]
        async with tw.Node(name="hub") as hub:
            url = hub.listen("tide://127.0.0.1:0", tokens=tokens).url
            async with tw.Node(url, name="ann", token=SECRET) as ann:
                kept = ann.subscribe("refused.x", print)
                ann.serve({"echo": lambda value: value}, name="refused")
                with pytest.raises(tw.Unauthorized):
                    await ann.subscribe("refused.y", print)
                await logged(lambda: len(said()) >= 3)
                with pytest.raises(tw.Unauthorized):
                    await kept

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "refuses" in record.getMessage()]

    with caplog.at_level("WARNING", logger="tidewire"):
        asyncio.run(asyncio.wait_for(story(), 30))
    assert said()[0].partition(", so that")[0] == "ann: the hub 'hub' refuses 'refused.x'"
    # The two of a service are its name, and its instance.
    assert len(said()) == 3 and all("await what subscribe() and serve() return" in line for line in said())


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (
            {"hub_links": 0},
            "hub_links: 0 is not allowed: give 1 to 1000000 links, or None for as many as the hub allows",
        ),
        ({"link_subscriptions": True}, "link_subscriptions: True is not allowed: give 1 to"),
        ({"link_in_flight": 15}, "link_in_flight: 15 is not allowed: give 16 to"),
        ({"link_queue_bytes": "1 MiB"}, "link_queue_bytes: '1 MiB' is not allowed: give 1048576 to"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_the_token(limits: dict[str, int], problem: str) -> None:
    with pytest.raises(tw.InvalidArgument) as wrong:
        tw.Token(SECRET, **limits)
    assert str(wrong.value).startswith(problem)


def test_a_token_can_not_allow_more_than_its_hub() -> None:
    more = tw.Token(SECRET, link_subscriptions=10)
    with tw.Node(name="hub", config={"links": {"link_subscriptions": 9}}) as hub:
        with pytest.raises(
            tw.InvalidArgument,
            match=r"tokens\[1\]\.link_subscriptions: 10 is more than link_subscriptions=9 of the hub: give at most that",
        ):
            hub.listen("tide://127.0.0.1:0", tokens=[ROOT, more])
        hub.listen("tide://127.0.0.1:0", tokens=[ROOT, tw.Token(SECRET, link_subscriptions=9)])
