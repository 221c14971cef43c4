"""The commands that talk to a hub, as a user types them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import command_support
import pytest
import tidewire as tw
from link_processes import Programs

TIDEWIRE = [sys.executable, "-m", "tidewire"]


class Pricing(tw.Service):
    """Says what things cost."""

    @tw.method
    async def quote(self, symbol: str, qty: int = 1) -> float:
        """Return a price."""
        return {"X": 2.5}[symbol] * qty

    @tw.method
    async def ticks(self, count: int) -> object:
        """Return a stream of numbers."""
        for number in range(count):
            yield number


class Echo(tw.Service):
    """Says what it is told."""

    @tw.method
    async def say(self, text: str) -> str:
        """Return a text."""
        return text


@pytest.fixture
def hub() -> Iterator[tuple[tw.Node, str]]:
    with tw.Node(name="hub") as node:
        url = node.listen("tide://127.0.0.1:0").url
        node.serve(Pricing(), name="pricing")
        yield node, url


def run(url: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return command_support.run_all(arguments, TIDEWIRE_URL=url, **variables)[0]


def run_all(url: str, *commands: Sequence[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands."""
    return command_support.run_all(*commands, TIDEWIRE_URL=url)


def test_a_service_is_listed_and_called(hub: tuple[tw.Node, str]) -> None:
    _, url = hub
    listed, table, quoted, ticks = run_all(
        url,
        ("services", "--json"),
        ("services",),
        ("call", "pricing.quote", "X", "qty=3"),
        ("call", "pricing.ticks", "3", "--json"),
    )
    (found,) = json.loads(listed.stdout)
    assert (found["name"], found["description"]) == ("pricing", "Says what things cost.")
    assert "pricing" in table.stdout
    assert quoted.stdout == "7.5\n"
    assert ticks.stdout.split() == ["0", "1", "2"]


def test_an_ascii_output_escapes_the_rest(hub: tuple[tw.Node, str]) -> None:
    node, url = hub
    node.serve(Echo(), name="echo")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    command = [*TIDEWIRE, "call", "echo.say", "Zürich ☕", "--url", url]
    results = [
        subprocess.run([*command, *options], capture_output=True, text=True, timeout=30, check=False, env=environment)
        for options in ((), ("--json",))
    ]
    assert [one.returncode for one in results] == [0, 0], results
    text, data = (one.stdout.rstrip() for one in results)
    assert [json.loads(f'"{text}"'), json.loads(data)] == ["Zürich ☕", "Zürich ☕"]


def test_nodes_and_agents_are_listed(hub: tuple[tw.Node, str]) -> None:
    node, url = hub
    with tw.Node(url, name="worker") as worker:
        worker.agent(lambda payload: payload, id="planner", type="agent.plan", capabilities=["plan", "draw"])
        nodes, table, agents, agent_table = run_all(
            url, ("nodes", "--json"), ("nodes",), ("agents", "--json"), ("agents",)
        )
        found = {one["name"]: one for one in json.loads(nodes.stdout)}
        assert {"hub", "worker"} <= {*found}
        assert 0 < found["worker"]["joined_s"] < 60
        assert found["worker"]["subscriptions"] > 0
        assert "worker" in table.stdout
        assert json.loads(agents.stdout) == [
            {"id": "planner", "type": "agent.plan", "capabilities": ["draw", "plan"], "node": "worker"}
        ]
        assert "draw, plan" in agent_table.stdout
    assert node.name == "hub"


def test_an_error_is_one_line_and_wrong_usage_has_a_code_of_its_own(hub: tuple[tw.Node, str]) -> None:
    _, url = hub
    problems: tuple[tuple[tuple[str, ...], str], ...] = (
        (("call", "pricing.quote", "Y"), "KeyError: 'Y' (raised by the handler)"),
        (("call", "pricing.qote", "X"), "no_such_target: pricing has no method 'qote'"),
        (("call", "nobody.home"), "no_responders: nobody"),
        (("call", "pricing.quote", "X", "qty=many"), "invalid_argument: pricing.quote: qty: 'many' is not allowed"),
        (("req", "nobody.listens", "1"), 'nobody answers calls on "nobody.listens": subscribe a handler there'),
        (("pub", "x", '{"id": 7'), """invalid_argument: MESSAGE: '{"id": 7' begins like JSON and is none (Expecting"""),
        (("req", "x", " [1, 2"), "or send it as text with --text"),
        (("call", "pricing.quote", "symbol={a"), "invalid_argument: symbol: '{a' begins like JSON"),
        (("pub", "a..b", "1"), "invalid_subject: "),
        (("pub", "$hub.services.added", "1"), 'invalid_subject: subject "$hub.services.added" is not published on'),
        (("services", "--url", "mem://"), "url: 'mem://' is not allowed here: give that of a hub"),
        (("services", "--ca", "missing.pem"), "certificates were given, and it has no TLS"),
        (("pub", "a", "1", "--header", "x"), "--header: 'x' is not allowed: write NAME=VALUE"),
    )
    ended = run_all(url, *(arguments for arguments, _ in problems))
    for done, (_, said) in zip(ended, problems, strict=True):
        is_wrong_usage = done.stderr.startswith(("invalid_argument: ", "invalid_subject: "))
        assert (done.returncode, done.stderr.count("\n")) == (2 if is_wrong_usage else 1, 1), done.stderr
        assert said in done.stderr
    methods = ("quote", "pricing._quote", "pricing.with_", "pricing.sync")
    for done in run_all(url, *(("call", method) for method in methods)):
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("invalid_argument: METHOD: ")
    gone = run("tide://127.0.0.1:1", "services")
    assert gone.returncode == 3
    assert gone.stderr.startswith("link_lost: url: there is no hub at tide://127.0.0.1:1")


RETRYABLE = ("no_responders", "link_lost")


def test_an_error_is_an_object_where_the_result_would_be_one(hub: tuple[tw.Node, str]) -> None:
    _, url = hub
    errors = (
        (("call", "pricing.quote", "Y"), "remote_error", "KeyError"),
        (("call", "pricing.qote", "X"), "no_such_target", None),
        (("req", "nobody.listens", "1"), "no_responders", None),
        (("pub", "x", "{"), "invalid_argument", None),
        (("call", "quote"), "invalid_argument", None),
        (("services", "--url", "tide://127.0.0.1:1"), "link_lost", None),
    )
    ended = run_all(url, *((*arguments, "--json") for arguments, _, _ in errors))
    for done, (_, code, kind) in zip(ended, errors, strict=True):
        assert done.returncode == {"invalid_argument": 2, "link_lost": 3}.get(code, 1)
        assert not done.stdout
        told = json.loads(done.stderr)["error"]
        assert (told["code"], told.get("type"), told["retryable"]) == (code, kind, code in RETRYABLE)
        assert told["message"]


def test_an_option_takes_json_as_text(hub: tuple[tw.Node, str]) -> None:
    node, url = hub
    node.subscribe("echo", lambda message: [message])
    texts = ('{"id": 7', '{"id": 7}', "[x", "7")
    commands = [*((text, "--text") for text in texts), ('{"id": 7}',), ("7 [x]",)]
    ended = run_all(url, *(("req", "echo", *command) for command in commands))
    answers = [json.loads(done.stdout) for done in ended]
    assert answers == [*([text] for text in texts), [{"id": 7}], ["7 [x]"]]


def test_a_message_goes_from_pub_to_sub_and_a_request_is_answered(hub: tuple[tw.Node, str], started: Programs) -> None:
    node, url = hub
    node.subscribe("double", lambda number: number * 2)
    assert run(url, "req", "double", "21").stdout == "42\n"
    reader = started.run("-m", "tidewire", "sub", "orders.>", "--count", "2", "--url", url)
    assert reader.expect_log("sub: ") == f"sub: orders.> at {url}"
    node.publish("orders.created", {"id": 7})
    assert reader.line() == 'orders.created  {"id": 7}'
    assert run(url, "pub", "orders.paid", "at noon").stdout == "published on orders.paid\n"
    assert reader.ended() == 0


def test_a_command_waits_for_a_hub_that_is_not_up_yet(tmp_path: Path, started: Programs) -> None:
    path = tmp_path / "hub.sock"
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(path))
        closed.listen()
        waiting = started.run("-m", "tidewire", "nodes", "--wait", "60", "--json", "--url", f"tide+unix://{path}")
        closed.accept()[0].close()
        path.unlink()
    with tw.Node(name="late") as hub:
        hub.listen(f"tide+unix://{path}")
        assert [one["name"] for one in json.loads(waiting.line())] == ["late"]
        assert waiting.ended() == 0


def test_up_logs_joins_refusals_and_ends(started: Programs) -> None:
    secret = "a long secret"
    hub = started.run("-m", "tidewire", "up", "--listen", "tide://127.0.0.1:0", "--name", "main", "--token", secret)
    *words, url = hub.line().split()
    assert " ".join(words) == "hub main listens at"
    with pytest.raises(tw.Unauthorized):
        tw.Node(url, name="thief", token="a wrong secret").start()
    with tw.Node(url, name="shop", token=secret):
        pass
    wanted = (("INFO", f"main: is a hub, and listens at {url}"), ("WARNING", "main: ", "token"))
    for words in (*wanted, ("INFO", 'main: node "shop" has joined'), ("INFO", 'main: node "shop" has left')):
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]", hub.expect_log(*words))
    hub.signal(signal.SIGTERM)
    assert hub.line().startswith("hub main has stopped: 0 accepted = ")
    assert hub.ended() == 0


def test_up_names_what_is_wrong_with_its_options(hub: tuple[tw.Node, str]) -> None:
    _, url = hub
    here = ("--listen", "tide://127.0.0.1:0")
    problems: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (("--listen", "tide://0.0.0.0:0"), ("can be reached from other machines", "--insecure")),
        (("--listen", url), ("can't listen at",)),
        (("--listen", "http://x"), ("is not allowed: the port is missing: give http://host:port",)),
        (("--listen", "ftp://x"), ("is not allowed: use tide://host:port",)),
        (("--listen", "nonsense"), ("url: ",)),
        (("--listen", "tide://127.0.0.1:99999"), ("number from 0 to 65,535",)),
        ((*here, "--token", "ann:short"), ("8 characters or more",)),
        ((*here, "--timeout", "-1"), ("timeout: -1.0 is not allowed",)),
        ((*here, "--timeout", "nan"), ("timeout: nan is not allowed",)),
        ((*here, "--config", "/missing.toml"), ("/missing.toml",)),
        ((*here, "--http", "0.0.0.0:0"), ("clear text",)),
        ((*here, "--http", "127.0.0.1:0", "--cors", "shop.example"), ("cors",)),
        ((*here, "--nats", "tide://127.0.0.1:1"), ("nats: the value is no URL of NATS",)),
        ((*here, "--nats", "nats://127.0.0.1:1", "--data", "folder"), ("nats: data is given, too",)),
        ((*here, "--nats", "nats://127.0.0.1:1?x=1"), ('"x" is no option',)),
        ((*here, "--nats", "nats://127.0.0.1:1"), ("can't be reached",)),
    )
    ended = run_all(url, *(("up", *options) for options, _ in problems))
    for done, (options, words) in zip(ended, problems, strict=True):
        last = done.stderr.splitlines()[-1]
        code = {"invalid_argument": 2, "link_lost": 3}.get(last.partition(": ")[0], 1)
        assert (done.returncode, done.stdout) == (code, ""), options
        assert re.match("[a-z_]+: ", last) and all(word in last for word in words), done.stderr


@pytest.mark.promise("P6.14")
def test_a_watcher_answers_nothing(hub: tuple[tw.Node, str], started: Programs) -> None:
    _, url = hub
    watching = started.run("-m", "tidewire", "sub", ">", "--json", "--url", url)
    watching.expect_log("sub:", url)

    async def story() -> None:
        async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
            await server.subscribe("double", lambda number: number * 2)
            assert [await caller.request("double", number) for number in range(20)] == list(range(0, 40, 2))
            with pytest.raises(tw.NoResponders):
                await caller.request("nobody.listens", 1)
            # Messages of the hub to nodes about services are not shown.
            await caller.serve({"late": lambda: None}, name="late")
            caller.publish("news", {(1, 2): float("nan"), "raw": b"bytes"})
            heard = json.loads(await asyncio.to_thread(watching.line))
            assert (heard["subject"], heard["message"]) == ("news", {"[1, 2]": "nan", "raw": "bytes"})

    asyncio.run(story())
    watching.signal(signal.SIGINT)
    assert watching.ended() == 130


def test_a_reader_that_has_read_enough_ends_a_command(hub: tuple[tw.Node, str]) -> None:
    _, url = hub
    command = [*TIDEWIRE, "call", "pricing.ticks", "200000", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as counting:
        assert counting.stdout is not None
        assert counting.stderr is not None
        assert counting.stdout.readline() == "0\n"
        counting.stdout.close()
        assert (counting.wait(30), counting.stderr.read()) == (1, "")


def test_hubs_with_tls_are_trusted_by_a_file(started: Programs, certificates: Path) -> None:
    _, url = started.hub("wss://127.0.0.1:0", f"--cert={certificates}/hub.pem", f"--key={certificates}/hub.key")
    ca = str(certificates / "ca.pem")
    trusted = run(url, "services", "--ca", ca)
    assert (trusted.returncode, trusted.stdout) == (0, f"no services at {url}\n"), trusted.stderr
    assert run(url, "pub", "a.b", "1", TIDEWIRE_CA=ca).returncode == 0
    assert "(ca)" in run(url, "services").stderr
    assert "missing.pem" in run(url, "services", "--ca", "missing.pem").stderr


def test_a_hub_with_the_certificate_of_a_ca_gets_the_fix(started: Programs, certificates: Path) -> None:
    _, url = started.hub("tide+tls://127.0.0.1:0", f"--cert={certificates}/ca.pem", f"--key={certificates}/ca.key")
    refused = run(url, "services", "--ca", str(certificates / "ca.pem"))
    assert refused.returncode == 2
    assert "its certificate is that of a CA" in refused.stderr
    assert "basicConstraints=CA:FALSE" in refused.stderr


class Books(tw.Service):
    @tw.command
    async def close_year(self, year: int) -> int:
        return year + 1


def test_services_of_tidewire_itself_are_listed_on_request(tmp_path: Path) -> None:
    internals = {"$sys", "tidewire-streams", "tidewire-commands"}
    with tw.Node(data=tmp_path, inspect=True) as node:
        url = node.listen("tide://127.0.0.1:0").url
        assert run(url, "services").stdout == f"no services at {url}\n"
        node.serve(Books())
        listed, table, types, all_listed, all_table, all_types = run_all(
            url,
            ("services", "--json"),
            ("services",),
            ("generate", "ts"),
            ("services", "--all", "--json"),
            ("services", "--all"),
            ("generate", "ts", "--all"),
        )
    assert [one["name"] for one in json.loads(listed.stdout)] == ["books"]
    assert {one["name"] for one in json.loads(all_listed.stdout)} == {"books", *internals}
    for less, more in ((table, all_table), (types, all_types)):
        assert "books" in less.stdout and "books" in more.stdout
        assert not [name for name in internals if name in less.stdout], less.stdout
        assert not [name for name in internals if name not in more.stdout], more.stdout


def test_health_has_an_exit_code_for_each_state(hub: tuple[tw.Node, str]) -> None:
    node, url = hub
    gateway = node.listen("http://127.0.0.1:0").url
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        over_link, over_http, late, wrong, tide, bad = run_all(
            url,
            ["health", url, "--json"],
            ["health", gateway],
            ["health", f"http://127.0.0.1:{port}", "--timeout", "0.5"],
            ["health", f"{gateway}/services"],
            ["health", url.replace("tide://", "http://")],
            ["health", url, "--timeout", "-1"],
        )
    assert (over_link.returncode, json.loads(over_link.stdout)["ready"]) == (0, True)
    assert over_http.returncode == 0 and over_http.stdout.startswith("ready, in ")
    assert late.returncode == 3 and late.stderr.startswith("link_lost: url: ")
    for one in (wrong, tide):
        assert one.returncode == 1 and one.stderr.startswith("not_found: url: "), one.stderr
    assert bad.returncode == 2 and "timeout: " in bad.stderr


async def test_a_node_knows_its_health(started: Programs) -> None:
    process, url = started.hub("tide://127.0.0.1:0")
    node = tw.Node(url)
    assert node.health() == (False, ("the node has not started",))
    async with node:
        assert node.health() == (True, ())
        process.kill()
        await node.until(lambda now: now["links"]["hub"] is None, 30.0)
        assert node.health() == (False, (f"the link to {url} is lost",))
    assert node.health() == (False, ("the node has stopped",))
