#!/usr/bin/env python3
"""Check of all packages that a release publishes: versions, contents, sizes and the base install.

Usage: python tools/packages_check.py               all checks, and a table of the packages
       python tools/packages_check.py --tag v0.1.0  the versions alone, beside the tag of a release

Nothing is uploaded. `make packages-check` builds the wheel into dist/local first, with assertions
and debug information. `make wheel-check` measures the wheel of a release, and builds the unpacked
source distribution. `make crates-check` compiles each crate from its package. Exits 1 and names
each fault.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JS_PACKAGES = ("client", "react")
NOT_IN_CRATES = re.compile(r"\.env$|^target/|\.(so|crate)$")
# Documentation that is compiled by `cargo test` alone follows #[cfg(doctest)].
INCLUDED = re.compile(
    r'(#\[cfg\([^\n]*doctest[^\n]*\n#\[doc = )?include_(?:str|bytes)!\(\s*(concat!\(\s*env!\("CARGO_MANIFEST_DIR"\),\s*)?"([^"]+)"'
)
IMPORT_MS_MAX = 20.0
DEPENDENCIES_MAX = 5
IMPORTS = 20
IMPORT = "import time; at = time.process_time(); import tidewire; print((time.process_time() - at) * 1000)"

Row = tuple[str, str, str, int, int]


def main() -> int:
    tag = sys.argv[2] if sys.argv[1:2] == ["--tag"] else None
    version, problems = check_versions(tag)
    rows: list[Row] = []
    if tag is None:
        for check in (check_crates, check_npm, check_sdist, check_wheel):
            found, wrong = check(version)
            rows += found
            problems += wrong
    for row in rows:
        print("{:8}{:24}{:9}{:5} files {:>12,} bytes".format(*row))
    problems += check_workflows()
    for problem in problems:
        print(f"wrong: {problem}", file=sys.stderr)
    print(f"packages: version {version}, {len(rows)} packages, {len(problems)} faults")
    return 1 if problems else 0


def check_versions(tag: str | None) -> tuple[str, list[str]]:
    """Compare each stated version with that of the workspace, and with the page of versions."""
    workspace = toml("Cargo.toml")["workspace"]
    version: str = workspace["package"]["version"]
    stated = dict(versions_of_crates(workspace))
    for package in (*JS_PACKAGES, "console"):
        manifest = json.loads((ROOT / f"js/packages/{package}/package.json").read_text())
        stated[f"js/packages/{package}/package.json"] = manifest["version"]
        if needed := manifest.get("peerDependencies", {}).get("tidewire"):
            stated[f"js/packages/{package}/package.json, peer tidewire"] = needed
    chart = (ROOT / "deploy/helm/tidewire/Chart.yaml").read_text()
    for key, number in re.findall(r"^(version|appVersion): \"?([^\s\"]+)", chart, re.MULTILINE):
        stated[f"deploy/helm/tidewire/Chart.yaml, {key}"] = number
    released = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    stated["CHANGELOG.md, first section"] = released[1] if released else "nothing"
    if tag is not None:
        stated["the tag"] = tag.removeprefix("v")
    problems = [f"{where}: {found}, not {version}" for where, found in stated.items() if found != version]
    project = toml("python/pyproject.toml")["project"]
    page = (ROOT / "docs/reference/compatibility.md").read_text(encoding="utf-8")
    facts = [*(f"| `{extra}` |" for extra in project["optional-dependencies"]), project["requires-python"].strip(">=")]
    facts += [workspace["package"]["rust-version"], f"version of {version}"]
    problems += [f"docs/reference/compatibility.md: no {fact!r}" for fact in facts if fact not in page]
    if "version" not in project.get("dynamic", []):
        problems.append("python/pyproject.toml: the version must be dynamic, so that it is that of Cargo.toml")
    return version, problems


def versions_of_crates(workspace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the versions that manifests state for the crates of the workspace."""
    version = workspace["package"]["version"]
    for member in [".", *workspace["members"]]:
        manifest = toml(f"{member}/Cargo.toml")
        own = manifest.get("package", {}).get("version", {"workspace": True})
        if own != {"workspace": True}:
            yield f"{member}/Cargo.toml", str(own)
        is_published = manifest.get("package", {}).get("publish", True)
        for name, needed in (manifest.get("dependencies") or workspace["dependencies"]).items():
            if name.startswith("tidewire-") and "path" in needed and name != "tidewire-testkit":
                yield f"{member}/Cargo.toml, {name}", needed.get("version", "nothing" if is_published else version)


def check_crates(version: str) -> tuple[list[Row], list[str]]:
    """Publish all crates in the order of their dependencies, without the upload.

    Cargo takes crates that no registry has yet from the workspace. They are not compiled here.
    """
    ran = run(["cargo", "publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty", "--locked"])
    order = re.findall(r"Uploading (\S+) v", ran.stderr)
    rows: list[Row] = []
    problems: list[str] = []
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for name in order:
        package = target / f"package/tmp-registry/{name}-{version}.crate"
        with tarfile.open(package) as archive:
            names = [found.partition("/")[2] for found in archive.getnames()]
        problems += [
            f"{name}: {wanted} is missing" for wanted in ("Cargo.toml", "LICENSE", "README.md") if wanted not in names
        ]
        problems += [f"{name}: {found} is in the package" for found in names if NOT_IN_CRATES.search(found)]
        rows.append(("crate", name, version, len(names), package.stat().st_size))
    return rows, problems if order else [*problems, "cargo would publish no crate"]


def check_npm(_version: str) -> tuple[list[Row], list[str]]:
    """Pack each npm package without a file, and look for what its manifest names."""
    chosen = [word for package in JS_PACKAGES for word in ("--workspace", f"packages/{package}")]
    ran = run(["npm", "pack", "--dry-run", "--json", "--ignore-scripts", *chosen], ROOT / "js")
    packed = json.loads(ran.stdout)
    rows: list[Row] = []
    problems: list[str] = []
    for found, package in zip(packed if isinstance(packed, list) else packed.values(), JS_PACKAGES, strict=True):
        manifest = json.loads((ROOT / f"js/packages/{package}/package.json").read_text())
        files = {file["path"] for file in found["files"]}
        wanted = {"LICENSE", "README.md", "package.json", *targets(manifest.get("exports")), manifest["main"][2:]}
        wanted |= {target for target in targets(manifest.get("imports")) if target.startswith("dist/")}
        problems += [f"{found['name']}: {file} is missing" for file in sorted(wanted - files)]
        problems += [
            f"{found['name']}: {file} is in the package" for file in sorted(files) if "test" in file.split("/")
        ]
        rows.append(("npm", found["name"], found["version"], len(files), found["size"]))
    return rows, problems


def targets(entry: Any) -> Iterator[str]:
    """Yield the files below the conditions of `exports` and `imports`."""
    if isinstance(entry, dict):
        for below in entry.values():
            yield from targets(below)
    elif isinstance(entry, str):
        yield entry.removeprefix("./")


def check_sdist(version: str) -> tuple[list[Row], list[str]]:
    """Unpack the source distribution: cargo reads all manifests, and included files are there."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="tidewire-sdist-") as made:
        run([maturin(), "sdist", "--out", made], ROOT / "python")
        (sdist,) = Path(made).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            names = archive.getnames()
            archive.extractall(made, filter="data")
        source = Path(made) / f"tidewire-{version}"
        run(["cargo", "metadata", "--format-version=1", "--locked", "--no-deps"], source)
        problems += [
            f"sdist: {name} is missing"
            for name in ("LICENSE", "PKG-INFO", "Cargo.lock")
            if not (source / name).exists()
        ]
        for file in source.rglob("src/**/*.rs"):
            for of_doctest, of_crate, name in INCLUDED.findall(file.read_text(encoding="utf-8")):
                if of_doctest or file.name == "tests.rs":
                    continue
                base = next(up for up in file.parents if (up / "Cargo.toml").exists()) if of_crate else file.parent
                if not (base / name.lstrip("/")).exists():
                    problems.append(f"sdist: {file.relative_to(source)} includes {name}, which is missing")
        return [("sdist", "tidewire", version, len(names), sdist.stat().st_size)], problems


def check_wheel(version: str) -> tuple[list[Row], list[str]]:
    """Check the wheel of `make wheel` with twine, and measure its base install."""
    wheels = sorted((ROOT / "dist/local").glob(f"tidewire-{version}-*.whl"))
    if len(wheels) != 1:
        return [], [f"dist/local has {len(wheels)} wheels of version {version}: run make wheel"]
    (wheel,) = wheels
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel)])
    with tempfile.TemporaryDirectory(prefix="tidewire-base-") as made:
        run([sys.executable, "-m", "venv", made])
        own = str(Path(made) / "bin/python")
        run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)])
        listed = run([own, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"])
        names = sorted({one["name"] for one in json.loads(listed.stdout)} - {"pip", "setuptools", "tidewire"})
        # Processor time: other programs of the machine change it little.
        took = min(float(run([own, "-c", IMPORT], Path(made)).stdout) for _ in range(IMPORTS))
        installed = [file for file in Path(made).glob("lib/*/site-packages/tidewire/**/*") if file.is_file()]
        size = sum(file.stat().st_size for file in installed)
    problems = []
    if took > IMPORT_MS_MAX:
        problems.append(
            f"import tidewire takes {took:.1f} ms of processor time: at most {IMPORT_MS_MAX:.0f} are allowed"
        )
    if len(names) > DEPENDENCIES_MAX:
        problems.append(
            f"the base install has {len(names)} dependencies, {names}: at most {DEPENDENCIES_MAX} are allowed"
        )
    print(f"base install: {len(names)} dependencies ({', '.join(names)}), import in {took:.1f} ms of processor time")
    with zipfile.ZipFile(wheel) as archive:
        packed = len(archive.namelist())
    rows: list[Row] = [("wheel", "tidewire", version, packed, wheel.stat().st_size)]
    return [*rows, ("install", "tidewire", version, len(installed), size)], problems


def check_workflows() -> list[str]:
    """Run actionlint, which `make packages-check` builds where Go is there."""
    if (command := shutil.which("actionlint", path=f"{ROOT / '.make/go/bin'}:{os.environ['PATH']}")) is None:
        print("actionlint: not here, and the workflows are not checked (it is built with Go)")
        return []
    ran = subprocess.run([command, "-oneline"], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode else []


def toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def maturin() -> str:
    """The maturin beside this interpreter, or the one on PATH."""
    beside = Path(sys.executable).with_name("maturin")
    return str(beside) if beside.exists() else "maturin"


def run(command: list[str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure ends this program with the output of the command."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran


if __name__ == "__main__":
    sys.exit(main())
