"""Campaigns whose disk is full: an error that says so, nothing half stored, and the rest once there
is room.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import campaign_functions as functions
import pytest
import tidewire as tw
from server_keeper import Keeper

RUNS = 30_000
SMALL_MB, LARGE_MB = 24, 200


class Disk:
    """A file system in memory that is small, until it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        if not shutil.which("mount") or self._mount(f"size={SMALL_MB}m").returncode != 0:
            pytest.skip("a small disk is a tmpfs, and this user may not mount one")

    def grow(self) -> None:
        assert self._mount(f"remount,size={LARGE_MB}m").returncode == 0

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, timeout=60)

    def _mount(self, options: str) -> subprocess.CompletedProcess[bytes]:
        command = ["mount", "-t", "tmpfs", "-o", options, "tidewire-test", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True, timeout=60)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with closing(Disk(tmp_path / "small")) as disk:
        yield disk


def check(campaign: tw.Campaign, disk: Disk, whole: str) -> None:
    """Run into the end of the disk, then to the end of the campaign."""
    with pytest.raises(tw.CampaignError, match="disk is full: make room") as caught:
        campaign.run(workers=2, progress=False)
    assert caught.value.kind == "full"
    status = campaign.status()
    assert (status.state, 0 < status.done < RUNS) == ("running", True)
    assert sum(len(batch.runs) for batch in campaign.batches()) == status.done
    assert campaign.verify() == status.digest, "each range is stored whole or not at all"
    disk.grow()
    report = campaign.run(workers=2, progress=False)
    assert (report.state, report.done, report.digest) == ("done", RUNS, whole)
    assert campaign.verify() == whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = f"sqlite:///{tmp_path_factory.mktemp('whole')}/farm.db"
    return tw.campaign(functions.lines, runs=RUNS, store=store).run(workers=1, progress=False).digest


def test_a_file_on_a_disk_that_gets_full(disk: Disk, whole: str) -> None:
    check(tw.campaign(functions.lines, runs=RUNS, store=f"sqlite:///{disk.folder}/farm.db"), disk, whole)


def test_a_server_whose_disk_gets_full(whole: str) -> None:
    with Keeper() as keeper, closing(Disk(keeper.folder / "small")) as disk:
        with suppress(LookupError, PermissionError):
            shutil.chown(disk.folder, "postgres", "postgres")
        for statement in (f"CREATE TABLESPACE small LOCATION '{disk.folder}'", "CREATE DATABASE farm TABLESPACE small"):
            psql = ["psql", keeper.url, "--quiet", "--command", statement]
            subprocess.run(psql, check=True, capture_output=True, timeout=60)
        store = urlsplit(keeper.url)._replace(path="/farm").geturl()
        check(tw.campaign(functions.lines, runs=RUNS, store=store), disk, whole)
