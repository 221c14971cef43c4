"""The machine of a measurement, and the versions of everything that took part."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from tidewire import __version__

PEERS = ("ractor", "actix", "tokio", "parking_lot", "mimalloc")


def machine() -> dict[str, object]:
    """The processor, the memory, the kernel and how busy it all is."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory_bytes() / 2**30, 1),
        "kernel": platform.release(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions(bench: Path | None) -> dict[str, str]:
    """Python, Tidewire, and with the repository at hand Rust, Java and the peers."""
    found = {"python": platform.python_version(), "tidewire": __version__}
    if bench is None:
        return found
    found.update(commit=commit(bench), rust=first_line("rustc", "--version"), java=first_line("java", "-version"))
    found.update(crates(bench / "rust" / "Cargo.lock"))
    pom = bench / "pekko" / "pom.xml"
    pekko = re.search(r"<pekko.version>(.*?)</pekko.version>", text_of(pom))
    if pekko:
        found["pekko"] = pekko.group(1)
    return {name: version for name, version in found.items() if version}


def processor() -> str:
    """The model as the kernel names it."""
    model = re.search(r"^model name\s*:\s*(.+)$", text_of(Path("/proc/cpuinfo")), re.MULTILINE)
    return model.group(1) if model else platform.processor() or platform.machine()


def memory_bytes() -> int:
    """All the memory there is."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit(bench: Path) -> str:
    """The commit that is checked out, marked if there are changes on top."""
    return first_line("git", "-C", str(bench), "describe", "--always", "--dirty")


def crates(lock: Path) -> dict[str, str]:
    """Versions of the peers from the lock file that they are built with."""
    packages = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', text_of(lock))
    return {name: version for name, version in packages if name in PEERS}


def first_line(*command: str) -> str:
    """First line that a program prints about itself; empty if the program is absent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else ""


def text_of(path: Path) -> str:
    """A file's text; nothing if it isn't there."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
