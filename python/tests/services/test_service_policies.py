"""Services: which instance gets a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw


async def f(self: Any, y: int) -> None:
    """Take a number."""


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: tw.Policy("best"), "policy: 'best' is not allowed: use one of 'first', 'random'"),
        (lambda: tw.Policy([]), "policy: [] is not allowed"),  # type: ignore[arg-type]
        (lambda: tw.Policy("random", seed="x"), "policy.seed: 'x' is not allowed"),  # type: ignore[arg-type]
        (
            lambda: type("Bad", (tw.Service,), {"f": tw.method(cost="x")(f)}),
            "f: cost: 'x' is not allowed: give the name of a parameter",
        ),
        (lambda: tw.Policy(explore=2), "policy.explore: 2 is not allowed: give a number from 0 to 1"),
    ],
)
def test_policies_that_are_not_allowed_are_named(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(tw.InvalidArgument) as wrong:
        made()
    assert said in str(wrong.value)


# In a node


def echo(node: tw.Node, *instances: str) -> None:
    def made(instance: str) -> Any:
        async def where() -> str:
            return instance

        async def fail() -> str:
            if instance == "b":
                raise KeyError(instance)
            return instance

        async def hold(event: asyncio.Event) -> str:
            await event.wait()
            return instance

        return {"where": where, "fail": fail, "hold": hold}

    for instance in instances:
        node.serve(made(instance), name="echo", instance=instance)


async def test_a_client_chooses_by_its_policy(node: tw.Node) -> None:
    echo(node, "a", "b", "c")
    calls = node.client("echo")
    assert [await calls.where() for _ in range(6)] == ["b", "c", "a"] * 2
    assert {await calls.with_(policy="first").where() for _ in range(5)} == {"a"}
    assert {await calls.with_(instance="c").where() for _ in range(5)} == {"c"}
    same = [calls.with_(policy=tw.Policy("random", seed=5)) for _ in range(2)]
    one = [await same[0].where() for _ in range(30)]
    other = [await same[1].where() for _ in range(30)]
    assert one == other
    assert set(one) == {"a", "b", "c"}
    quick = calls.with_(policy=tw.Policy("lowest_latency", explore=0.0))
    assert len({await quick.where() for _ in range(20)}) >= 1


@pytest.mark.promise("P13.88")
async def test_calls_go_round_an_instance_that_is_busy(node: tw.Node) -> None:
    echo(node, "a", "b")
    calls, event = node.client("echo"), asyncio.Event()
    held = [asyncio.create_task(calls.with_(instance="a").hold(event)) for _ in range(3)]
    await asyncio.sleep(0)
    assert {await calls.where() for _ in range(10)} == {"b"}
    event.set()
    assert await asyncio.gather(*held) == ["a"] * 3
    assert {await calls.where() for _ in range(10)} == {"a", "b"}


class Reports(tw.Service):
    """Writes reports."""

    def __init__(self, row_s: float, fails: bool = False) -> None:
        self.row_s, self.fails = row_s, fails

    @tw.method(cost="rows", idempotent=True)
    async def write(self, rows: int, title: str = "") -> float:
        # The policy measures the time that this takes.
        await asyncio.sleep(rows * self.row_s)
        if self.fails:
            raise KeyError(rows)
        return self.row_s


@pytest.mark.parametrize("made_with", [Reports, "reports"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.promise("P13.85", "P13.100")
async def test_an_estimate_follows_the_cost_and_is_explained(
    node: tw.Node, remote: bool, made_with: type[Reports] | str
) -> None:
    async with tw.Node(node.listen("tide://127.0.0.1:0").url, name="caller") as caller:
        # Far enough apart that a busy machine does not change the order of two calls.
        for instance, row_s in (("quick", 0.0005), ("slow", 0.02)):
            await node.serve(Reports(row_s), instance=instance)
        policy = tw.Policy("lowest_latency", explore=0.0)
        write = (caller if remote else node).client(made_with).with_(policy=policy).write
        assert write.explain(1).estimates == () or write.explain(1).estimates[0].expected_s is None
        took = [await write(rows, title="t") for rows in (5, 50) * 8]
        assert took.count(0.0005) > 2 * took.count(0.02)
        few, many = write.explain(5), write.explain(rows=50)
        assert [one.instance for one in many.estimates] == ["quick", "slow"]
        quick, slow = many.estimates
        assert quick.expected_s is not None
        assert few.estimates[0].expected_s is not None
        assert quick.expected_s > few.estimates[0].expected_s
        assert quick.samples > slow.samples > 0
        assert quick.error < slow.error
        assert (many.calls, many.probes) == (16, 0)
        assert [one.reason for one in many.decisions][:2] == ["new", "new"]
        assert (many.decisions[-1].instance, many.decisions[-1].reason) == ("quick", "lowest time")


@pytest.mark.promise("P13.86")
async def test_an_instance_that_fails_at_once_gets_few_calls(node: tw.Node) -> None:
    for instance, fails in (("a", True), ("b", False), ("c", False)):
        node.serve(Reports(0.0002, fails), instance=instance)
    reports = node.client(Reports).with_(policy="lowest_latency")
    with pytest.raises(KeyError):
        await node.client(Reports).with_(instance="a").write(0)
    assert reports.write.explain(0).estimates[0].failures == 0.0, "other policies teach nothing"
    failed = 0
    for _ in range(60):
        try:
            await reports.write(5)
        except KeyError:
            failed += 1
    assert 1 <= failed <= 3
    a, b, c = reports.write.explain(0).estimates
    assert a.failures > 0.0
    assert (b.failures, c.failures) == (0.0, 0.0)


async def test_all_gives_what_each_instance_answered(node: tw.Node) -> None:
    echo(node, "a", "b", "c")
    everybody = node.client("echo").with_(policy="all")
    assert await everybody.where() == [tw.Answer("a", "a"), tw.Answer("b", "b"), tw.Answer("c", "c")]
    assert await everybody.with_(policy="first").where() == "a"
    a, b, c = await everybody.fail()
    assert (a.result(), c.result()) == ("a", "c")
    with pytest.raises(KeyError):
        b.result()
    with pytest.raises(tw.InvalidArgument, match="can't go to several"):
        await everybody.where(numbers())
    with pytest.raises(tw.AskTimeout):
        (await everybody.with_(timeout=0.05).hold(asyncio.Event()))[0].result()


def test_all_in_a_plain_thread(node: tw.Node) -> None:
    echo(node, "a", "b")
    everybody = node.client("echo").with_(policy="all")
    assert everybody.sync.where() == [tw.Answer("a", "a"), tw.Answer("b", "b")]
    assert isinstance(everybody.sync.fail()[1].error, KeyError)


async def numbers() -> Any:
    yield 1
