"""Fixture of a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_support import Site, site


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """A node with a gateway, for all stories of a file."""
    with site() as made:
        yield made
