"""Errors that a table of spec/ makes, and public names. ``make lint`` compares the errors with the
table.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
import tidewire as tw
from tidewire import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_takes_a_message_and_is_pickled(cls: type[Exception]) -> None:
    error = cls("what, its value, the fix")
    assert isinstance(error, errors.TidewireError)
    assert str(error) == "what, its value, the fix"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("AskTimeout", TimeoutError),
        ("ConfigError", ValueError),
        ("InvalidArgument", ValueError),
        ("InvalidSubject", errors.InvalidArgument),
        ("NoSuchTarget", LookupError),
        ("UnknownDispatcher", LookupError),
    ],
)
def test_errors_are_what_python_calls_them_too(name: str, base: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), base)


@pytest.mark.parametrize(
    ("name", "field"), [("AskCycle", "path"), ("ConfigError", "problems"), ("UnknownDispatcher", "known")]
)
def test_lists_survive_pickling(name: str, field: str) -> None:
    cls = getattr(errors, name)
    assert getattr(cls("text"), field) == []
    copy = pickle.loads(pickle.dumps(cls("text", **{field: ("a", "b")})))
    assert (str(copy), getattr(copy, field)) == ("text", ["a", "b"])


def test_a_remote_error_names_type_and_message() -> None:
    error = errors.RemoteError("KeyError", "'x'", "Traceback ...")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "KeyError: 'x'"
    assert (copy.type_name, copy.message, copy.remote_traceback) == ("KeyError", "'x'", "Traceback ...")


def test_only_passing_troubles_are_retryable() -> None:
    retryable = {cls.__name__ for cls in CLASSES if cls.retryable}
    of_nodes = {"MailboxFull", "AskTimeout", "LimitExceeded", "LinkLost", "NoResponders", "Overloaded", "WorkerLost"}
    of_stores = {"StoreUnavailable", "HomeBusy", "HomeUnavailable", "LeaseHeld"}
    assert retryable == of_nodes | of_stores


def test_public_names_are_those_of_the_stub() -> None:
    stub = Path(tw.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    named = re.findall(r"^from [\w.]+ import (\w+) as \1$", stub, re.MULTILINE)
    assert sorted([*named, *errors.__all__]) == tw.__all__
