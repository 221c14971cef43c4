"""The generated files are what the tables say, and the error classes are what callers rely on."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A module of the package, loaded from its file: these two need no compiled engine."""
    spec = importlib.util.spec_from_file_location(f"generated_{name}", ROOT / f"python/tidewire/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


errors = load("errors")
limits = load("_limits")
CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the generator reads TOML with Python 3.11 or later")
def test_nothing_is_stale() -> None:
    command = [sys.executable, str(ROOT / "tools/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_takes_a_message_and_is_pickled(cls: type[Exception]) -> None:
    error = cls("what, its value, the mend")
    assert isinstance(error, errors.TidewireError)
    assert str(error) == "what, its value, the mend"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(set(codes)) == len(codes)


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
    of_nodes = {"MailboxFull", "AskTimeout", "LimitExceeded", "LinkLost", "NoResponders", "WorkerLost"}
    of_stores = {"StoreUnavailable", "HomeBusy", "HomeUnavailable", "LeaseHeld"}
    assert retryable == of_nodes | of_stores


def test_limits_hold_their_defaults() -> None:
    every = [value for value in vars(limits).values() if isinstance(value, limits.Limit)]
    assert [limit.name for limit in every if not limit.min <= limit.default <= limit.max] == []
    assert limits.MAILBOX_CAPACITY == ("mailbox_capacity", "messages", 10_000, 1, 1_000_000)
