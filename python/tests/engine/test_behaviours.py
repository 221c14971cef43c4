"""Refusals of a context, and the handlers that an actor can become: plain functions everywhere,
coroutines on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw


async def coroutine(message: object) -> object:
    return message


def generator(message: object) -> Any:
    yield message


@pytest.mark.parametrize("target", [lambda _: None, coroutine])
def test_wrong_arguments_of_a_context_are_refused_inside_the_handler(node: tw.Node, target: Any) -> None:
    refused: list[Callable[[Any], Any]] = [
        lambda ctx: ctx.become(42),
        lambda ctx: ctx.become(generator),
        lambda ctx: ctx.become(lambda: None),
        lambda ctx: ctx.become(print, stack="yes"),
        lambda ctx: ctx.watch("other"),
        lambda ctx: ctx.unwatch(None),
        lambda ctx: ctx.spawn(print, name=7),
        lambda ctx: ctx.spawn(42),
    ]

    def plain(_: object, ctx: tw.Context) -> str:
        for call in refused:
            with pytest.raises(tw.InvalidArgument):
                call(ctx)
        return "still here"

    async def on_the_loop(_: object, ctx: tw.Context) -> str:
        return plain(_, ctx)

    ref = node.spawn(on_the_loop if target is coroutine else plain)
    assert [node.sync.ask(ref, n) for n in range(2)] == ["still here"] * 2
    assert len(node.statistics()["actors"]) == 1


def test_a_coroutine_is_no_behaviour_of_a_plain_actor(node: tw.Node) -> None:
    def base(message: object, ctx: tw.Context) -> object:
        if message == "become":
            ctx.become(coroutine)
        return message

    ref = node.spawn(base)
    with pytest.raises(tw.InvalidArgument, match=r"handler: coroutine is a coroutine function.*async def"):
        node.sync.ask(ref, "become")
    assert node.sync.ask(ref, "as before") == "as before"


def test_a_plain_function_is_a_behaviour_of_a_coroutine_actor_too(node: tw.Node) -> None:
    def above(message: object, ctx: tw.Context) -> object:
        if message == "unbecome":
            ctx.unbecome()
        if isinstance(message, type):
            raise message
        return ("above", message)

    ref = node.spawn(coroutine)
    ref.request_become(above)
    ask = node.sync.ask
    assert ask(ref, 1) == ("above", 1)
    for error, raised in ((ValueError, ValueError), (StopIteration, RuntimeError)):
        with pytest.raises(raised):
            ask(ref, error)
    assert ask(ref, "unbecome") == ("above", "unbecome")
    assert ask(ref, 2) == 2
    ledger = node.sync.stop(ref)
    assert (ledger.handled, ledger.dead_lettered, ledger.balanced) == (4, 2, True)


def test_a_plain_function_runs_on_the_event_loop_if_asked_to(node: tw.Node) -> None:
    here = node.spawn(lambda _: asyncio.get_running_loop().is_running(), dispatcher="asyncio")
    assert node.sync.ask(here, None) is True
    here.request_become(coroutine)
    assert node.sync.ask(here, 5) == 5
