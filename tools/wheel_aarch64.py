#!/usr/bin/env python3
"""Builds a wheel for Linux on aarch64 on an x86-64 machine, and tries it in an emulator.

Usage: python tools/wheel_aarch64.py                  the wheel of a release, into dist/aarch64
       python tools/wheel_aarch64.py --profile fast   the same quickly: large, with assertions
       python tools/wheel_aarch64.py --try FILE       tries a wheel that is there

`make wheel-aarch64` runs it with maturin, zig and pip beside the interpreter. The compiler, its
library for aarch64, the emulator and the Python in it are packages of Debian. They are unpacked
into .make/aarch64, and nothing is installed. A later run uses them without a download. Each check
is one line, and the exit code is 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wheel_check import PLATFORM, PROGRAM, problems_of_wheel

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".make/aarch64"
DIST = ROOT / "dist/aarch64"
# More than for x86-64, for the reason in docs/decisions/0001-dependencies.md.
BYTES_MAX = 10_500_000
TARGET = "aarch64-unknown-linux-gnu"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
PLATFORMS = ("--python-version", "3.11", "--platform", "manylinux2014_aarch64", "--platform", "manylinux_2_28_aarch64")
NEEDED = {
    "apt-get": "the command needs Debian, or a system made of it",
    "dpkg-deb": "the command needs Debian, or a system made of it",
    "cargo": "install Rust as https://rustup.rs says",
    "cc": "apt-get install gcc libc6-dev",
    "maturin": "call make wheel-aarch64, which installs it",
}
# Packages, and the folder below HOME that each set is unpacked into.
PACKAGES = {
    "rust": ["rustc-web", "libstd-rust-web-dev:arm64"],
    "emulator": ["qemu-user-static"],
    "machine": ["python3.11-minimal:arm64", "libpython3.11-stdlib:arm64"],
}
# Libraries that a package depends on. The compiler runs on the C library of this machine.
LIBRARY = re.compile(
    r"^ [ |](?:Pre)?Depends: ((?:lib(?!c6-dev|std-rust\S+:arm64)|zlib1g)[\w.+-]*(?::arm64)?)$", re.MULTILINE
)
OF_THIS_MACHINE = {"libc6", "libgcc-s1"}
# Sources of this machine that are signed with the keys of Debian.
SOURCES = Path("/etc/apt/sources.list.d")
KEYS = "debian-archive-keyring"
APT = """Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
Dir::Etc::sourceparts "{0}/sources";
Dir::Etc::sourcelist "/dev/null";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; "arm64"; }};
APT::Sandbox::User "";
"""
# The kernel runs the scripts, so a process that the emulated Python starts is emulated, too.
SCRIPTS = {
    "rustc": """#!/bin/sh
exec /lib64/ld-linux-x86-64.so.2 --library-path '{0}/rust/usr/lib/x86_64-linux-gnu' '{0}/rust/usr/bin/rustc' "$@"
""",
    "python": """#!/bin/sh
exec '{0}/emulator/usr/bin/qemu-aarch64-static' -0 "$0" -L '{0}/machine' '{0}/machine/usr/bin/python3.11' "$@"
""",
    "tidewire": """#!/bin/sh
exec '{0}/bin/python' -m tidewire "$@"
""",
}
# The second has a durable stream in a folder, which several processes open in turn.
TUTORIALS = ("actor", "stream")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
COMMAND_S_MAX = 120


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds a wheel for Linux on aarch64, and tries it in an emulator.")
    parser.add_argument("--profile", default="wheel", help="profile of cargo (default: wheel)")
    parser.add_argument("--try", dest="wheel", type=Path, help="try this wheel, and build none")
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(f"{sys.platform} on {platform.machine()}: the command needs Linux on x86-64 (see make wheel-check)")
    for command, fix in NEEDED.items():
        if shutil.which(command) is None:
            sys.exit(f"{command} is missing: {fix}")
    began = time.monotonic()
    unpack_packages(HOME)
    print(f"aarch64: the packages of Debian are there, {time.monotonic() - began:.0f} s", flush=True)
    wheel = given.wheel or build(given.profile)
    # Assertions and debug information make the wheel of another profile large.
    problems = problems_of_wheel(wheel, BYTES_MAX if given.profile == "wheel" else sys.maxsize)
    install(wheel)
    for name, files, commands in checks():
        began = time.monotonic()
        faults = list(faults_of(files, commands))
        print(f"aarch64: {'FAILED' if faults else 'passed'}  {name}, {time.monotonic() - began:.1f} s", flush=True)
        problems += faults
    for problem in problems:
        print(f"wrong: {problem}", file=sys.stderr)
    print(f"aarch64: {wheel}, {wheel.stat().st_size:,} bytes, {len(problems)} faults")
    return 1 if problems else 0


def unpack_packages(home: Path) -> None:
    """Download and unpack the packages of Debian, unless an earlier run did it to its end."""
    if (mark := home / "unpacked").exists() and mark.read_text() == repr(PACKAGES):
        return
    sources = [path for path in SOURCES.glob("*.*") if KEYS in path.read_text()]
    if not sources:
        sys.exit(f"{SOURCES}: no file names {KEYS}: the command needs the package sources of Debian")
    shutil.rmtree(home, ignore_errors=True)
    for folder in (
        "state/lists/partial",
        "cache/archives/partial",
        "bin",
        "sources",
        *(f"packages/{name}" for name in PACKAGES),
    ):
        (home / folder).mkdir(parents=True)
    for path in sources:
        shutil.copy(path, home / "sources")
    for file, text in {"status": "", "apt.conf": APT.format(home)}.items():
        (home / file).write_text(text)
    os.environ["APT_CONFIG"] = str(home / "apt.conf")
    fix = (
        "apt needs a server of Debian: check the network, /etc/apt/sources.list.d and the proxy in /etc/apt/apt.conf.d"
    )
    run(["apt-get", "update", "--error-on=any"], fix=fix)
    for folder, packages in PACKAGES.items():
        run(["apt-get", "download", *with_libraries(packages)], home / "packages" / folder, fix=fix)
        for package in (home / "packages" / folder).iterdir():
            run(["dpkg-deb", "-x", str(package), str(home / folder)])
    for name, script in SCRIPTS.items():
        (home / "bin" / name).write_text(script.format(home))
        (home / "bin" / name).chmod(0o755)
    fix = "the programs of Debian 12 need its C library, glibc 2.36, or a later one on this machine"
    for name in ("rustc", "python"):
        print(f"aarch64: {run([str(home / 'bin' / name), '--version'], fix=fix).strip()}")
    for folder in ("packages", "state", "cache"):
        shutil.rmtree(home / folder)
    mark.write_text(repr(PACKAGES))


def with_libraries(wanted: list[str]) -> list[str]:
    """Return the packages and all libraries that they depend on."""
    found: set[str] = set()
    while wanted:
        found.update(wanted)
        wanted = sorted(set(LIBRARY.findall(run(["apt-cache", "depends", *wanted]))) - found - OF_THIS_MACHINE)
    return sorted(found)


def build(profile: str) -> Path:
    """Build the wheel with the compiler of Debian, and with zig as C compiler and linker."""
    began = time.monotonic()
    shutil.rmtree(DIST, ignore_errors=True)
    os.environ |= {"RUSTC": str(HOME / "bin/rustc"), "PYO3_PYTHON": sys.executable}
    os.environ["CARGO_TARGET_DIR"] = str(ROOT / "target/aarch64")
    options = ["--profile", profile, "--target", TARGET, "--zig", "--compatibility", PLATFORM, "--out", str(DIST)]
    run(["maturin", "build", "--locked", *options], ROOT / "python", shown=True)
    (wheel,) = DIST.glob("*.whl")
    print(f"aarch64: the wheel is built, profile {profile}, {time.monotonic() - began:.0f} s", flush=True)
    return wheel


def install(wheel: Path) -> None:
    """Unpack the wheel beside the packages that it asks for, which pip downloads once."""
    site, mark = HOME / "site", HOME / "installed"
    with zipfile.ZipFile(wheel) as archive:
        (described,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needs = "".join(re.findall(r"^Requires-Dist.*\n", archive.read(described).decode(), re.MULTILINE))
        if not mark.exists() or mark.read_text() != needs:
            shutil.rmtree(site, ignore_errors=True)
            fix = "pip needs pypi.org: check the network, or set PIP_INDEX_URL"
            run([sys.executable, *PIP, *PLATFORMS, "--target", str(site), f"{wheel}[cli]"], fix=fix)
            mark.write_text(needs)
        for old in site.glob("tidewire*"):
            shutil.rmtree(old)
        archive.extractall(site)


def checks() -> Iterator[tuple[str, dict[str, str], list[tuple[str, str]]]]:
    """Yield the name of each check, its files, and its commands with their output."""
    yield "import", {}, [("python -c 'import platform, tidewire; print(platform.machine())'", "aarch64")]
    ran = [("python program.py", "tidewire ... works")]
    yield "actor, service over TCP between two nodes, process pool", {"program.py": PROGRAM}, ran
    for tutorial in TUTORIALS:
        blocks = BLOCK.findall((ROOT / f"docs/tutorials/{tutorial}.md").read_text(encoding="utf-8"))
        files = {name: block for language, name, block in blocks if language == "python"}
        ran = [found for language, _, block in blocks if language == "console" for found in COMMAND.findall(block)]
        yield f"tutorial {tutorial}, {len(ran)} commands", files, ran


def faults_of(files: dict[str, str], commands: list[tuple[str, str]]) -> Iterator[str]:
    """Run the commands of one check in an empty folder, and yield the faults."""
    own = {"PATH": f"{HOME}/bin{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{HOME}/site"}
    with tempfile.TemporaryDirectory(prefix="tidewire-aarch64-") as made:
        for name, text in files.items():
            Path(made, name).write_text(text, encoding="utf-8")
        for command, expected in commands:
            process = subprocess.Popen(
                command, shell=True, cwd=made, env=os.environ | own, stdout=-1, stderr=-1, text=True, process_group=0
            )
            try:
                said, log = process.communicate(timeout=COMMAND_S_MAX)
            except subprocess.TimeoutExpired:
                said, log = "", f"no end within {COMMAND_S_MAX} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            pattern = ".*".join(map(re.escape, expected.strip().split("...")))
            if code != 0 or not re.fullmatch(pattern, said.strip(), re.DOTALL):
                yield f"{command}: exit code {code}, printed {said!r} instead of {expected!r}\n{log}"


def run(command: list[str], folder: Path = ROOT, *, shown: bool = False, fix: str = "") -> str:
    """Run a command and return its output; a failure ends this program with that output and the
    fix.
    """
    out = None if shown else subprocess.PIPE
    ran = subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stdout or ''}{fix}")
    return ran.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
