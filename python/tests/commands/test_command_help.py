"""``--help``: each command shows the defaults and the environment variables of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from command_support import run_all
from tidewire.cli import OPTIONS_OF_ITS_OWN, app

# The helps are read once.
pytestmark = pytest.mark.xdist_group("command help")

OF_A_HUB = ("pub", "sub", "req", "call", "services", "nodes", "agents", "generate ts")
OF_A_STORE = ("run", "list", "show", "pause", "resume", "cancel", "errors", "summary", "export", "report")
CPUS, HUB = "one for each processor", "tide://127.0.0.1:7420"
SAID = {
    **dict.fromkeys(OF_A_HUB, ("TIDEWIRE_URL", HUB, "TIDEWIRE_TOKEN", "TIDEWIRE_CA, or the system")),
    **{f"campaign {name}": ("TIDEWIRE_STORE", "sqlite:///tidewire.db") for name in OF_A_STORE},
    "campaign run": ("TIDEWIRE_STORE", "sqlite:///tidewire.db", CPUS),
    "worker": ("TIDEWIRE_STORE", "sqlite:///tidewire.db", CPUS),
    "up": (
        HUB,
        "default: (10)",
        "What a token allows, and its limits, go in tables hub.tokens of the --config file",
    ),
    "doctor": ("Example: tidewire doctor",),
    "top": ("the nodes of this user", "TIDEWIRE_TOKEN", "TIDEWIRE_CA, or the system"),
    "mcp": ("TIDEWIRE_TOKEN",),
    "stream ls": ("TIDEWIRE_DATA",),
}
"""Defaults that are the code's to know, in the help of each command that has them."""


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for own, command in group.commands.items():
        path = f"{name} {own}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, path)
        elif command.context_settings != OPTIONS_OF_ITS_OWN:
            yield path, command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of each command, as it is shown in a terminal that is wide enough."""
    wanted = [[*name.split(), "--help"] for name in COMMANDS]
    shown = run_all(*wanted, TERMINAL_WIDTH="1000", COLUMNS="1000")
    assert {ended.returncode for ended in shown} == {0}
    texts = ["\n".join(map(words, ended.stdout.splitlines())) for ended in shown]
    return dict(zip(COMMANDS, texts, strict=True))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_shows_all_that_its_options_say(helps: dict[str, str], name: str) -> None:
    for option in (one for one in COMMANDS[name].params if not getattr(one, "hidden", False)):
        line = line_of(option, helps[name])
        assert words(option.help or "") in line, (option.name, line)
        if option.default not in (None, False, "", ()) and not callable(option.default):
            assert f"[default: {option.default}]" in line, (option.name, line)
        if isinstance(option.show_default, str):
            assert f"[default: ({option.show_default})]" in line, (option.name, line)
        if option.envvar:
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar
            assert f"[env var: {', '.join(variables)}]" in line, (option.name, line)


@pytest.mark.parametrize("name", SAID)
def test_the_help_of_a_command_names_the_defaults_of_the_code(helps: dict[str, str], name: str) -> None:
    for text in SAID[name]:
        assert text in helps[name], (text, helps[name])


def test_commands_of_campaigns_have_examples(helps: dict[str, str]) -> None:
    without = {
        name for name in helps if name.startswith("campaign ") and f"Example: tidewire {name}" not in helps[name]
    }
    assert not without and "Example: tidewire worker" in helps["worker"]


def test_commands_are_grouped_and_ordered_and_a_place_has_one_word() -> None:
    [shown] = run_all(["--help"], TERMINAL_WIDTH="120")
    [completed] = run_all([], _TIDEWIRE_COMPLETE="complete_bash", COMP_WORDS="tidewire str", COMP_CWORD="1")
    titles = ("Hubs and their state", "up ", "Messages and calls", "Stored data", "stream ", "Campaigns and", "worker ")
    at = [re.search(f"│ {title}|─ {title}", shown.stdout) for title in titles]
    starts = [found.start() for found in at if found]
    assert len(starts) == len(titles) and starts == sorted(starts), shown.stdout
    assert "--install-completion" in shown.stdout and completed.stdout.split() == ["stream"], completed
    words = {word for command in COMMANDS.values() for option in command.params for word in option.opts}
    assert "--url" in words and not words & {"--at", "--store"}


def line_of(option: Any, shown: str) -> str:
    """Return the line of an option, or of an argument."""
    name = option.opts[0] if option.param_type_name == "option" else option.metavar or option.name
    [line] = [line for line in shown.splitlines() if re.match(rf"(\* )?{re.escape(name)}(\.\.\.)?( |$)", line)]
    return line


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())
