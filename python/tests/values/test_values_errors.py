"""Errors between processes: the same type where it is known, with the traceback of the other side
as data.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
import tidewire as tw
from tidewire.errors import RemoteError
from tidewire.values import decode, encode
from value_support import put


def raised(make: Any) -> Exception:
    try:
        raise make()
    except Exception as error:  # noqa: BLE001
        return error


class OutOfStock(Exception):
    """An error with a constructor of its own."""

    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{item}: {left} left")
        self.item, self.left, self.lock = item, left, lambda: None


class Doubled(Exception):
    """An error that hands on something else than it was given."""

    def __init__(self, text: str) -> None:
        super().__init__(text * 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyError("x", 3),
        lambda: FileNotFoundError(2, "No such file", "/x"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        lambda: OutOfStock("nails", 3),
        lambda: Doubled("ab"),
        lambda: json.JSONDecodeError("bad", "doc", 1),
        lambda: tw.ActorStopped("gone"),
        lambda: tw.AskCycle("ring", path=["a", "b"]),
        lambda: RemoteError("KeyError", "'x'", "Traceback ..."),
        lambda: Exception(),
    ],
    ids=lambda make: type(make()).__name__,
)
def test_an_error_comes_back_as_its_type_with_the_traceback_of_the_other_side(make: Any) -> None:
    error = raised(make)
    back = decode(encode(error))
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)
    assert set(vars(back)) == {name for name in vars(error) if name != "lock"}
    cause = back.__cause__
    assert isinstance(cause, RemoteError)
    assert (cause.type_name.rpartition(":")[2], cause.message) == (type(error).__qualname__, str(error))
    assert "in raised" in cause.remote_traceback


def test_attributes_and_notes_of_an_error_travel() -> None:
    error = OutOfStock("nails", 3)
    error.__notes__ = ["look in the cellar"]
    back = decode(encode([error]))[0]
    assert (back.item, back.left, back.__notes__) == ("nails", 3, ["look in the cellar"])
    assert decode(encode(tw.AskCycle("ring", path=["a"]))).path == ["a"]


def test_an_error_that_is_not_known_here_is_a_remote_error(elsewhere: ModuleType) -> None:
    kind = put(elsewhere, type("Gone", (Exception,), {}), "Gone")
    blob = encode(raised(lambda: kind("away", 1)))
    del elsewhere.Gone
    back = decode(blob)
    assert type(back) is RemoteError
    assert (back.type_name, back.message) == ("tests_elsewhere:Gone", "('away', 1)")
    assert "in raised" in back.remote_traceback


@pytest.mark.parametrize(
    "error", [StopIteration(1), StopAsyncIteration(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr
)
def test_an_error_that_would_end_more_than_its_call_is_a_remote_error(error: BaseException) -> None:
    back = decode(encode(error))
    assert type(back) is RemoteError
    assert back.type_name == type(error).__name__


def test_arguments_that_cannot_be_sent_leave_a_remote_error() -> None:
    class Odd(Exception):
        """An error whose text can't be made."""

        def __str__(self) -> str:
            raise RuntimeError

    back = decode(encode([ValueError("bad", b"x" * 9_000, object()), b"y" * 5_000]))[0]
    assert (type(back), back.type_name) == (RemoteError, "ValueError")
    assert decode(encode(Odd())).message == "<its message can't be made: RuntimeError>"
    assert decode(encode(ValueError("\ud800"))).message == "\\ud800"
    long = decode(encode(ValueError("x" * 1_000_000, object())))
    assert len(long.message) <= 65_536


def test_groups_of_errors_travel() -> None:
    back = decode(encode(ExceptionGroup("two", [KeyError("a"), ValueError("b")])))
    assert type(back) is ExceptionGroup
    assert [type(inner) for inner in back.exceptions] == [KeyError, ValueError]
