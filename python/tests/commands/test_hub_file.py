"""The table ``hub`` of a file that ``tidewire up`` reads: where it listens, and who may do what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tidewire as tw
from command_support import run_all
from link_processes import Programs

SECRET, OTHER = "a-long-secret", "another-long-secret"

FILE = """
[hub]
name = "harbour"
listen = ["tide://127.0.0.1:0", "tide+tls://127.0.0.1:0"]
cert = "hub.pem"
key = "hub.key"
timeout = 5

[[hub.tokens]]
token = "a-long-secret"

[[hub.tokens]]
token = "another-long-secret"
user = "ann"
publish = ["orders.>"]
subscribe = []
call = ["svc.pricing.>"]

[links]
link_heartbeat_ms = 1000
"""


def up(started: Programs, file: Path, *options: str) -> dict[str, object]:
    """Start a hub, and return what it says when it listens."""
    said = started.run("-m", "tidewire", "up", "--json", "--config", str(file), *options).line()
    return dict(json.loads(said))


async def test_a_file_says_where_a_hub_listens_and_what_each_token_allows(
    started: Programs, certificates: Path
) -> None:
    file = certificates / "hub.toml"
    file.write_text(FILE)
    said = up(started, file)
    plain, secured = said["urls"]
    assert (said["hub"], secured.startswith("tide+tls://")) == ("harbour", True)
    tls = tw.Tls(ca=certificates / "ca.pem")
    async with (
        tw.Node(plain, name="server", token=SECRET) as server,
        tw.Node(secured, name="ann", token=OTHER, tls=tls) as ann,
    ):
        users = []

        async def quote() -> None:
            users.append(tw.context().user)

        await server.serve({"quote": quote}, name="pricing")
        await server.serve({"quote": quote}, name="secrets")
        await ann.client("pricing").quote()
        assert users == ["ann"]
        with pytest.raises(tw.Unauthorized, match="not allowed with this token"):
            await ann.client("secrets").quote()
        with pytest.raises(tw.Unauthorized, match=r'"orders\.x" is not allowed with this token'):
            await ann.subscribe("orders.x", print)


def test_options_win_over_the_file(started: Programs, certificates: Path) -> None:
    file = certificates / "options.toml"
    file.write_text(FILE)
    said = up(started, file, "--listen", "tide://127.0.0.1:0", "--name", "pier", "--token", "a-third-secret")
    (url,) = said["urls"]
    assert said["hub"] == "pier"
    with tw.Node(url, name="guest", token="a-third-secret"):
        pass
    with pytest.raises(tw.Unauthorized, match="does not know the token"), tw.Node(url, name="ann", token=OTHER):
        pass


def test_the_table_is_for_the_command_alone(tmp_path: Path) -> None:
    file = tmp_path / "both.toml"
    file.write_text("mailbox_capacity = 7\n" + FILE)
    with tw.Node(config=file) as node:
        assert node.links.link_heartbeat_ms == 1000
    with pytest.raises(tw.ConfigError, match="hub: unknown key"):
        tw.Node(config={"hub": {}})


WRONG = (
    ('lisen = ["tide://127.0.0.1:0"]', "hub.lisen: unknown key; did you mean listen?"),
    ('listen = "tide://127.0.0.1:0"', "hub.listen: 'tide://127.0.0.1:0' is not allowed: give a list of text"),
    ("listen = []", "hub.listen: [] is not allowed: give a list of text"),
    ('name = ""', "hub.name: '' is not allowed"),
    ("insecure = 1", "hub.insecure: 1 is not allowed: give true or false"),
    ("timeout = -1", "hub.timeout: -1 is not allowed: give seconds, 0 or more"),
    ("timeout = nan", "hub.timeout: nan is not allowed"),
    ("cert = 5", "hub.cert: 5 is not allowed: give the path of a PEM file"),
    ("http_files = []", "hub.http_files: [] is not allowed: give the path of a folder"),
    ('http_limits = { http_streams = "many" }', "hub.http_limits"),
    ('nats = "tide://ann:secret@127.0.0.1:4222"', "hub.nats: the value is no URL of NATS"),
    ('tokens = ["a-long-secret"]', "hub.tokens[0]: the value is no table"),
    ('[[hub.tokens]]\nuser = "ann"', "hub.tokens[0].token: the value is not allowed: give a string of 8"),
    (
        '[[hub.tokens]]\ntoken = "a-long-secret"\npublic = []',
        "hub.tokens[0].public: unknown key; did you mean publish?",
    ),
    (
        '[[hub.tokens]]\ntoken = "a-long-secret"\ncall = ["svc..x"]',
        "hub.tokens[0].call: 'svc..x' is not allowed: give tokens divided by single dots",
    ),
    ('[[hub.tokens]]\ntoken = "a-long-secret"\nadmin = 1', "hub.tokens[0].admin: 1 is not allowed: give True or False"),
    (
        '[[hub.tokens]]\ntoken = "a-long-secret"\nlink_in_flight = 3',
        "hub.tokens[0].link_in_flight: 3 is not allowed: give 16 to",
    ),
)


def test_errors_in_the_table_name_their_key(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.toml" for number in range(len(WRONG))]
    for file, (text, _) in zip(files, WRONG, strict=True):
        file.write_text(f"[hub]\n{text}\n")
    ended = run_all(*(("up", "--config", str(file)) for file in files))
    for done, file, (_, problem) in zip(ended, files, WRONG, strict=True):
        assert (done.returncode, done.stdout) == (1, "")
        assert f"configuration: {problem}" in done.stderr
        assert done.stderr.endswith(f"(from {file})\n")
        assert SECRET not in done.stderr and "ann:secret" not in done.stderr, "secrets are not shown"


def test_errors_of_the_command_are_data_with_json(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text('[hub]\nlisten = ["tide://0.0.0.0:0"]\n')
    (hub,) = run_all(("up", "--json", "--config", str(file)))
    error = json.loads(hub.stderr)["error"]
    assert (hub.returncode, error["code"], error["retryable"]) == (1, "unauthorized", False)
    assert "can be reached from other machines" in error["message"]
