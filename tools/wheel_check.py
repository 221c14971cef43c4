#!/usr/bin/env python3
"""Builds the wheel and the source distribution, looks into them, and tries both in clean
environments of CPython 3.11 to 3.13.

python tools/wheel_check.py            builds into dist/, checks, and tries with each Python of this
machine python tools/wheel_check.py 3.11 3.13  tries with these alone python tools/wheel_check.py
--short    builds the wheel from the artifacts of the tests, and tries it with this interpreter
alone python tools/wheel_check.py --try FILE  tries a wheel or sdist with this interpreter, and runs
a part of the tests with what was installed

Interpreters are looked for on PATH and below ~/.pyenv. Exits 1 if something fails, or no
interpreter was found; one that is missing is named. The wheel is built with zig as its C compiler
and linker, so that it runs with an older glibc than this machine's.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# Why so many: docs/decisions/0001-dependencies.md.
BYTES_MAX = 8_500_000
GLIBC_MAX = (2, 17)
PLATFORM = "manylinux_2_17"
VERSIONS = ("3.11", "3.12", "3.13")
QUICK = {
    "CARGO_PROFILE_WHEEL_LTO": "off",
    "CARGO_PROFILE_WHEEL_OPT_LEVEL": "0",
    "CARGO_PROFILE_WHEEL_CODEGEN_UNITS": "16",
}
"""How the sdist is built: what is tried is whether all of it is there, for each interpreter."""
METADATA = (
    "Author",
    "Classifier",
    "Description-Content-Type",
    "Keywords",
    "License-Expression",
    "Requires-Python",
    "Summary",
)
# A part of the tests that needs the extra `test` and no server: a minute.
TESTS = (
    "tests/engine/test_actors.py",
    "tests/engine/test_subjects_and_timers.py",
    "tests/services/test_services.py",
    "tests/links/test_link_subjects.py",
    "tests/streams/test_open_by_name.py",
)
NOT_SHIPPED = re.compile(r"__pycache__|tidewire_bench|(^|/)tests?/|\.rs$|\.so\.dbg$")

PROGRAM = """
import asyncio, sys
import tidewire as tw

assert not {"typer", "rich", "pydantic", "pygments", "tidewire_bench"} & set(sys.modules)


class Pricing(tw.Service):
    @tw.method
    def quote(self, symbol: str, qty: int = 1) -> float:
        return 2.5 * qty


async def main():
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        await hub.serve(Pricing())
        assert await hub.spawn(lambda number: number * 2).ask(21) == 42
        async with tw.Node(url, name="caller") as caller:
            assert await caller.client("pricing").quote("X", qty=3) == 7.5
        assert await hub.pool("math:sqrt", workers=1, kind="process").submit(49.0) == 7.0
    print("tidewire", tw.__version__, "works")


if __name__ == "__main__":
    asyncio.run(main())
"""


def main() -> int:
    if sys.argv[1:] == ["--short"]:
        return short()
    if sys.argv[1:2] == ["--try"]:
        return try_built(Path(sys.argv[2]).resolve())
    wanted = sys.argv[1:] or list(VERSIONS)
    found = {version: interpreter(version) for version in wanted}
    wheel, sdist = build()
    problems = [*problems_of_wheel(wheel), *problems_of_sdist(sdist)]
    for problem in problems:
        print(f"wrong: {problem}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tidewire-wheel-") as made:
        for kind, what in (("wheel", wheel), ("sdist", unpacked(sdist, Path(made)))):
            for version, python in found.items():
                if python is not None:
                    attempt(version, python, str(what), Path(made) / f"{kind}-{version}")
    for version in [version for version, python in found.items() if python is None]:
        print(f"CPython {version}: not on this machine, not tried")
    return 1 if problems or not any(found.values()) else 0


def short() -> int:
    """Try a wheel of the profile `fast`. Its size and its glibc are those of this machine, so
    nobody looks at them.
    """
    with tempfile.TemporaryDirectory(prefix="tidewire-wheel-") as made:
        run(["maturin", "build", "--profile", "fast", "--out", made], ROOT / "python", ROOT / "target")
        run(["maturin", "sdist", "--out", made], ROOT / "python", ROOT / "target")
        (wheel,), (sdist,) = Path(made).glob("*.whl"), Path(made).glob("*.tar.gz")
        machine = re.compile(r"the wheel (has|asks for)")
        problems = [one for one in [*problems_of_wheel(wheel), *problems_of_sdist(sdist)] if not machine.match(one)]
        for problem in problems:
            print(f"wrong: {problem}", file=sys.stderr)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        attempt(version, sys.executable, str(wheel), Path(made) / "environment")
    return 1 if problems else 0


def try_built(package: Path) -> int:
    """Try what was built elsewhere, for this system. The tests import the installed package: their
    folder is copied without the sources beside it.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory(prefix="tidewire-try-") as made:
        environment = Path(made) / "environment"
        attempt(version, sys.executable, str(package), environment)
        for part in ("python/tests", "python/pyproject.toml", "tools"):
            (Path(made) / part).parent.mkdir(exist_ok=True)
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, Path(made) / part)
        own = str(environment / "bin" / "python")
        run(
            [
                own,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                f"{package}[test]",
                "pytest-xdist>=3.6",
            ]
        )
        run([str(environment / "bin" / "pytest"), *TESTS], Path(made) / "python")
    print(f"CPython {version}: {len(TESTS)} files of tests passed with {package.name}")
    return 0


def build() -> tuple[Path, Path]:
    """Build both with maturin, which is on PATH with zig beside it."""
    shutil.rmtree(DIST, ignore_errors=True)
    zig = ["--zig", "--compatibility", PLATFORM]
    run(["maturin", "build", "--profile", "wheel", *zig, "--out", str(DIST)], ROOT / "python")
    run(["maturin", "sdist", "--out", str(DIST)], ROOT / "python")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def problems_of_wheel(wheel: Path, bytes_max: int = BYTES_MAX) -> list[str]:
    """Look at size, contents, symbols and metadata."""
    size = wheel.stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (library,) = (name for name in names if name.endswith(".so"))
        binary = archive.read(library)
        (described,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(described))
    glibc = max(tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)", binary))
    print(f"{wheel.name}: {size:,} bytes, glibc {glibc[0]}.{glibc[1]}, {len(names)} files")
    problems = [f"{name} is in the wheel" for name in names if NOT_SHIPPED.search(name)]
    if size > bytes_max:
        problems.append(f"the wheel has {size:,} bytes: at most {bytes_max:,} are allowed")
    if glibc > GLIBC_MAX:
        problems.append(f"the wheel asks for glibc {glibc}: {GLIBC_MAX} is the newest allowed")
    if "tidewire/py.typed" not in names:
        problems.append("py.typed is not in the wheel")
    return [*problems, *problems_of_metadata(metadata)]


def problems_of_metadata(metadata: Message) -> list[str]:
    """Look at what a person reads of the package, and at what is installed with it."""
    problems = [f"{field}: missing in the metadata" for field in METADATA if not metadata.get_all(field)]
    if len(str(metadata.get_payload())) < 500:
        problems.append("the metadata has no text")
    needed = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    if [re.match(r"[\w-]+", need)[0] for need in needed] != ["msgspec"]:  # type: ignore[index]
        problems.append(f"a user of the library gets {needed}: msgspec alone is allowed")
    return problems


def problems_of_sdist(sdist: Path) -> list[str]:
    """Look at what is needed to build it."""
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes, {len(names)} files")
    wanted = ("Cargo.lock", "LICENSE", "README.md", "pyproject.toml")
    return [f"{name} is not in the sdist" for name in wanted if not any(found.endswith(f"/{name}") for found in names)]


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack the sdist once, so that what cargo has built of it serves all interpreters."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (source,) = folder.glob("tidewire-*")
    return source


def interpreter(version: str) -> str | None:
    """Return a CPython of this version, or None."""
    below = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python3"))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(below))):
        said = f"import sys; sys.exit(sys.version_info[:2] != tuple(map(int, {version.split('.')})))"
        if (
            candidate is not None
            and subprocess.run([candidate, "-c", said], check=False, capture_output=True).returncode == 0
        ):
            return candidate
    return None


def attempt(version: str, python: str, what: str, folder: Path) -> None:
    """Install it in a clean environment, and use it: without the command line first, then with
    it.
    """
    run([python, "-m", "venv", str(folder)])
    own = str(folder / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, what])
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    run([own, str(program)], folder)
    run([str(folder / "bin" / "tidewire"), "--version"], folder)
    bare = subprocess.run([str(folder / "bin" / "tidewire"), "doctor"], capture_output=True, text=True, check=False)
    if bare.returncode != 2 or "pip install 'typer" not in bare.stderr:
        sys.exit(f"tidewire without its extra: exit code {bare.returncode}, {bare.stderr}")
    run([*install, f"{what}[cli]"])
    run([str(folder / "bin" / "tidewire"), "doctor"], folder)
    print(f"CPython {version}: {'wheel' if what.endswith('.whl') else 'sdist'} installed and tried")


def run(command: list[str], folder: Path = ROOT, target: Path | None = None) -> None:
    """Run a command; a failure ends this program with the output of the command."""
    quick = {} if command[0] == "maturin" else QUICK
    target = target or ROOT / "target" / ("sdist" if quick else "wheel")
    environment = {**os.environ, **quick, "CARGO_TARGET_DIR": str(target)}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")


if __name__ == "__main__":
    sys.exit(main())
