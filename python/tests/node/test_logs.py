"""Log records: nodes that join and leave, services, and failures, once and in the right place."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from link_processes import Programs
from service_support import logged

PATIENCE = 20.0


class Pricing(tw.Service):
    @tw.method
    def quote(self, symbol: str) -> float:
        return {"X": 2.5}[symbol]

    @tw.method
    async def ticks(self) -> Any:
        yield 1.0
        raise KeyError("Y")


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_joins_leaves_and_services_are_logged_at_hub_and_nodes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidewire")
    tokens = [tw.Token("the token of the hub itself", "hub"), tw.Token("the long token of the shop", "shop")]
    async with tw.Node(name="center") as hub:
        url = hub.listen("tide://127.0.0.1:0", tokens=tokens).url
        async with tw.Node(url, name="till", token="the long token of the shop") as till:
            served = await till.serve(Pricing(), instance="one")
            await served.stop()
        await logged(lambda: any('"till" has left' in line for line in lines(caplog, logging.INFO)))
        wanted = [
            f"till: has joined the hub 'center' at {url}",
            'center: node "till" has joined as "shop"',
            "till: serves 'pricing', instance 'one'",
            'center: node "till" serves svc.pricing.one.*',
            "till: serves 'pricing', instance 'one', no longer",
            'center: node "till" serves svc.pricing.one.* no longer',
            "till: leaves the hub 'center'",
            'center: node "till" has left',
        ]
        assert {*wanted} <= {*lines(caplog, logging.INFO)}
    assert not lines(caplog, logging.WARNING)


async def test_a_method_that_raises_is_logged_once_at_its_service(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidewire")
    async with tw.Node(name="hub") as hub:
        await hub.serve(Pricing())
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="caller") as caller:
            for _ in range(3):
                with pytest.raises(KeyError):
                    await caller.client("pricing").quote("Y")
            with pytest.raises(KeyError):
                assert [tick async for tick in caller.client("pricing").ticks()]
            with pytest.raises(tw.InvalidArgument):
                await caller.client("pricing").quote(7)
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in told[:2]] == [
        "pricing.quote failed: KeyError: 'Y'",
        "pricing.ticks failed: KeyError: 'Y'",
    ]
    assert all(record.exc_info is not None for record in told[:2])
    assert [record.getMessage().partition(" more in ")[0] for record in told[2:]] == ["pricing.quote failed 2 times"]
    assert not lines(caplog, logging.ERROR)


async def test_a_failure_that_reaches_its_asker_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture, node: tw.Node
) -> None:
    caplog.set_level(logging.INFO, "tidewire")

    def fails(message: object) -> None:
        raise KeyError(message)

    async def fails_later(message: object) -> None:
        raise KeyError(message)

    for handler in (fails, fails_later):
        with pytest.raises(KeyError):
            await node.spawn(handler).ask("Y")
    assert not lines(caplog, logging.ERROR)
    told = [record for record in caplog.records if "failed in receive: KeyError: 'Y'" in record.getMessage()]
    assert [(record.levelno, record.exc_info) for record in told] == 2 * [(logging.INFO, None)]
    node.spawn(fails).tell("Z")
    await node.until(lambda _: len(node.dead_letters.list()) == 3, PATIENCE)
    assert len(lines(caplog, logging.ERROR)) == 1


@pytest.mark.promise("P7.20")
@pytest.mark.parametrize("kind", ["actors", "agents", "services"])
async def test_an_error_that_callers_pass_on_is_logged_where_it_arose(
    caplog: pytest.LogCaptureFixture, node: tw.Node, kind: str
) -> None:
    caplog.set_level(logging.INFO, "tidewire")
    asker = node.agent(lambda payload: None, id="asker")

    async def ask(name: str, message: object) -> object:
        if kind == "services":
            return await node.client(name).handle(message)
        return await (asker.request(message, to=name) if kind == "agents" else node.lookup(name).ask(message))  # type: ignore[union-attr]

    makers: dict[str, Callable[[str, Any], Any]] = {
        "services": lambda name, handle: node.serve({"handle": handle}, name=name),
        "agents": lambda name, handle: node.agent(handle, id=name),
        "actors": lambda name, handle: node.spawn(handle, name=name),
    }

    def fails(message: object) -> None:
        raise KeyError(message)

    async def top(message: object) -> object:
        return await ask("bottom", message)

    makers[kind]("bottom", fails)
    makers[kind]("top", top)
    with pytest.raises(KeyError):
        await ask("top", "Y")
    told = [record.getMessage() for record in caplog.records if "KeyError" in record.getMessage()]
    assert len(told) == 1 and "bottom" in told[0], told
    if kind != "services":
        assert [letter.name for letter in node.dead_letters.list()] == ["bottom"]
        # Nobody gets the error of a message that nobody asked.
        node.lookup("top").tell(tw.Message("Z") if kind == "agents" else "Z")  # type: ignore[union-attr]
        await node.until(lambda _: len(node.dead_letters.list(name="top")) == 1, PATIENCE)
        [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "top" in error.getMessage() and error.exc_info is not None


async def test_repeated_failures_are_counted_and_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    def fails(message: object) -> None:
        raise KeyError(message)

    caplog.set_level(logging.INFO, "tidewire")
    async with tw.Node() as node:
        ref = node.spawn(fails, name="fragile")
        for number in range(25):
            await ref.send(number)
        await ref.stop()
        [first] = lines(caplog, logging.ERROR)
        assert "'fragile'" in first.replace('"', "'") and "KeyError: 0" in first
    # The end of a node sums up.
    _, more = lines(caplog, logging.ERROR)
    assert "failed in receive 24 times more in" in more and "at last with KeyError: 24" in more
    async with tw.Node():
        pass
    assert len(lines(caplog, logging.ERROR)) == 2


async def test_many_handlers_that_fail_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    def fails(message: object) -> None:
        raise KeyError(message)

    caplog.set_level(logging.ERROR, "tidewire")
    async with tw.Node() as node:
        refs = [node.spawn(fails) for _ in range(50)]
        for ref in refs:
            for number in range(3):
                await ref.send(number)
        for ref in refs:
            await ref.stop()
        caplog.clear()
    told = lines(caplog, logging.ERROR)
    assert len(told) == 21
    assert told[-1] == "30 handlers more failed 60 times"


async def test_records_have_their_event_and_the_fields_of_the_reference(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidewire")
    page = Path(__file__).resolve().parents[3] / "docs/reference/log-events.md"
    rows = re.findall(r"^\| `([\w.]+)` \| [\w ]+ \| (.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    async with tw.Node(name="center") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="till") as till:
            await till.serve(Pricing(), instance="one")
            for _ in range(3):
                with pytest.raises(KeyError):
                    await hub.client("pricing").quote("Y")
    records = {vars(record)["event_name"]: record for record in caplog.records}
    own = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event_name"}
    of_first = {"title", "node", "service", "method", "instance"}
    for name, fields in rows:
        if record := records.pop(name, None):
            assert record.name == f"tidewire.{name.partition('.')[0]}"
            assert {*vars(record)} - own - of_first <= {*re.findall(r"\w+", fields)}, name
            assert vars(record).get("node") in {None, "till", "center"}
            assert not name.startswith("call.") or of_first <= {*vars(record)}
            assert name != "link.joined" or (vars(record)["hub"], vars(record)["url"]) == ("center", url)
            assert name != "call.failed" or re.fullmatch(r"[0-9a-f]{32}", vars(record)["trace_id"])
            assert name != "call.failed_again" or vars(record)["count"] == 2
    assert not records, "events without a row"


def test_a_hub_prints_the_fields_as_json(started: Programs) -> None:
    hub = started.run("-m", "tidewire", "up", "--listen", "tide://127.0.0.1:0", "--log-format", "json")
    listening = json.loads(hub.expect_log('"event_name": "hub.listening"'))
    assert listening["url"].startswith("tide://127.0.0.1:") and listening["node"] in listening["message"]
    assert (listening["level"], listening["logger"]) == ("info", "tidewire.hub")


async def test_structlog_renders_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    structlog = pytest.importorskip("structlog", reason="structlog is not installed")
    before = [structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()]
    handler = logging.StreamHandler(sys.stdout)
    renderer = structlog.processors.JSONRenderer()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=before))
    printed = [json.loads(line) for line in await served_with(handler, capsys)]
    started = next(line for line in printed if line.get("event_name") == "service.started")
    assert started["event"] == "till: serves 'pricing', instance 'one'" and started["level"] == "info"
    assert (started["node"], started["service"], started["instance"]) == ("till", "pricing", "one")


async def test_loguru_takes_text_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    loguru = pytest.importorskip("loguru", reason="loguru is not installed")

    class Intercepted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            to = loguru.logger.bind(**vars(record)).opt(exception=record.exc_info)
            to.log(record.levelname, record.getMessage())

    loguru.logger.remove()
    sink = loguru.logger.add(lambda text: print(text, end=""), format="{level} {extra[event_name]} {message}")
    try:
        printed = await served_with(Intercepted(), capsys)
    finally:
        loguru.logger.remove(sink)
    assert "INFO service.started till: serves 'pricing', instance 'one'" in printed


async def served_with(handler: logging.Handler, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that a handler prints for a node that serves."""
    logger = logging.getLogger("tidewire")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        async with tw.Node(name="till") as node:
            await node.serve(Pricing(), instance="one")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return capsys.readouterr().out.splitlines()
