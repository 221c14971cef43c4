"""Fixtures of the tests of values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest


@pytest.fixture
def elsewhere() -> Iterator[ModuleType]:
    """A module that one side has imported and the other has not."""
    module = ModuleType("tests_elsewhere")
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)
