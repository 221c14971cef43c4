"""Services: which instance gets a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: tw.Policy("best"), "policy: 'best' is not allowed: use one of 'first', 'random'"),
        (lambda: tw.Policy([]), "policy: [] is not allowed"),  # type: ignore[arg-type]
        (lambda: tw.Policy("random", seed="x"), "policy.seed: 'x' is not allowed"),  # type: ignore[arg-type]
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
